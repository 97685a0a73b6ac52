"""Directives of a script, #SBATCH and #PBS, and the options of srun: one table says what each one gives.

https://slurm.schedmd.com/sbatch.html, https://slurm.schedmd.com/srun.html,
https://help.altair.com/2022.1.0/PBS%20Professional/PBSReferenceGuide2022.1.pdf; Torque's qsub(1).
"""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Iterator, Sequence

from bareboat_adopt.reading import Reading, Request, Value
from bareboat_shim import pyxis_table, slurm_options
from bareboat_shim.table import Mistake

_KEPT = "the output is kept with the run: bareboat logs prints it"
_PLACED = "the planner chooses how ranks start and where they run: bareboat plan shows it"
_CLEAN = "the job gets no variables of your shell but those that the file names"
#: What the options of sbatch and srun are, what they give, and their names; "=" is after those with a value,
#: "[=" after those that may have one. `pass`: given to the scheduler unchanged; `differ`: with the reason.
_SLURM = (
    ("key", "scheduling.partition", "--partition= -p="),
    ("key", "scheduling.account", "--account= -A="),
    ("key", "scheduling.qos", "--qos= -q="),
    ("key", "scheduling.reservation", "--reservation="),
    ("key", "scheduling.constraint", "--constraint= -C="),
    ("key", "name", "--job-name= -J="),
    ("count", "nodes", "--nodes= -N="),
    ("count", "tasks", "--ntasks= -n="),
    ("count", "tasks_per_node", "--ntasks-per-node= --tasks-per-node="),
    ("count", "cpus_per_task", "--cpus-per-task= -c="),
    ("count", "cpus_per_gpu", "--cpus-per-gpu="),
    ("count", "tasks_per_gpu", "--ntasks-per-gpu="),
    ("count", "gpus", "--gpus= -G="),
    ("count", "gpus_per_node", "--gpus-per-node="),
    ("count", "gpus_per_task", "--gpus-per-task="),
    ("size", "memory_per_node", "--mem="),
    ("size", "memory_per_cpu", "--mem-per-cpu="),
    ("size", "memory_per_gpu", "--mem-per-gpu="),
    ("minutes", "walltime_s", "--time= -t="),
    ("gres", "", "--gres="),
    ("array", "", "--array= -a="),
    ("exclusive", "", "--exclusive[="),
    ("yes", "scheduling.requeue", "--requeue"),
    ("no", "scheduling.requeue", "--no-requeue"),
    ("warning", "", "--signal="),
    ("starts_in", "", "--chdir= -D= --workdir="),
    ("variables", "", "--export="),
    ("refuse", "", "--het-group= --pack-group= --jobid= --multi-prog --pty --input= -i="),
    ("pass", "",
     "--mail-type= --mail-user= --nodelist= -w= --exclude= -x= --gres-flags= --hint= -L= --licenses= "
     "--comment= --begin= -b= --switches= --tmp= --wckey= --priority= --cpu-freq= --threads-per-core= "
     "--profile= --dependency= -d= --clusters= -M= --deadline= --gpu-bind= --gpu-freq= --mincpus= "
     "--sockets-per-node= --cores-per-socket= --core-spec= -S= --prefer= --time-min= --acctg-freq= "
     "--mem-bind= --extra-node-info= -B= --delay-boot= --contiguous[= --oversubscribe[= -s --reboot[= "
     "--use-min-nodes[= --nice[= --no-kill[="),
    ("differ", _KEPT, "--output= -o= --error= -e= --open-mode="),
    ("differ", _PLACED, "--mpi= --cpu-bind= --distribution= -m= --network= --accel-bind= --wait= -W= "
     "--ntasks-per-socket= --ntasks-per-core= --threads= -T= --bcast= --exact[= --overlap[= --quiet[= -Q "
     "--verbose[= -v --label[= -l -u --unbuffered[= --kill-on-bad-exit[= -K --propagate[= --preserve-env[= "
     "-E --parsable[="),
)  # fmt: skip
#: The same of qsub, of `-l NAME=VALUE`, and of `select=2:NAME=VALUE`. `nci`: of a site whose ncpus are also
#: the slots for ranks.
_PBS = (
    ("key", "scheduling.partition", "-q"),
    ("key", "scheduling.account", "-A -P"),
    ("key", "name", "-N"),
    ("array", "", "-J -t"),
    ("rerun", "", "-r"),
    ("starts_in", "", "-d"),
    ("variables", "", "-v"),
    ("pass", "", "-m -M -p"),
    ("differ", _KEPT, "-o -e -j -k"),
    ("differ", _CLEAN, "-V -S"),
    ("seconds", "walltime_s", "walltime"),
    ("size", "memory_of_job", "mem vmem"),
    ("size", "memory_per_task", "pmem pvmem"),
    ("size", "memory_per_node", ":mem"),
    ("count", "cpus_per_node", "ncpus :ncpus"),
    ("count", "tasks_per_node", ":mpiprocs :ppn"),
    ("count", "gpus_per_node", "ngpus gpus :ngpus :gpus"),
    ("nci", "", "wd storage jobfs"),
    ("differ", "each node has the same number of ranks", "place"),
    ("pass", "", "filesystems cput software naccesspolicy qos feature file"),
)
_GPU = re.compile(r"(?:gres[:/])?gpu(?::([A-Za-z][\w.-]*))?(?::(\d{1,4}))?(?:\(S:[\d,-]+\))?")
_UNITS = "bkmgt"
_MOST_ELEMENTS = 10_000
_SCHEDULERS = {"#SBATCH": "slurm", "#PBS": "pbs"}
#: Slurm requires no space before an option.
_PREFIX = re.compile(r"(#SBATCH|#PBS)(?=-|\s|\Z)")
#: Of schedulers that are not read: Grid Engine, LSF, Flux, Fujitsu's, Cobalt, OAR, Moab, Donau, LoadLeveler.
_FOREIGN = re.compile(r"#\$\s*-|#((BSUB|PJM|COBALT|OAR|MSUB|DSUB)\b|(flux|FLUX):)|#\s?@\s*\w+\s*=")


_Option = tuple[str, str]


def _options(rows: Sequence[tuple[str, str, str]]) -> dict[str, _Option]:
    return {text.rstrip("[="): (kind, name) for kind, name, names in rows for text in names.split()}


_OF_SLURM, _OF_PBS = _options(_SLURM), _options(_PBS)
_FORMS = {
    text.rstrip("[="): text[len(text.rstrip("[=")) :] for _, _, names in _SLURM for text in names.split()
}
#: Flags of Pyxis: name -> whether it takes a value.
_PYXIS = {name: bool(flag.value) for flag in pyxis_table.FLAGS for name in flag.names}


def read(rows: Sequence[str], reading: Reading) -> list[tuple[str, str]]:
    """Read the directives of a script; returns the flags of Pyxis. Slurm and PBS stop at the
    first command."""
    pyxis: list[tuple[str, str]] = []
    request, is_over = reading.request, False
    for number, row in enumerate(rows, 1):
        prefix = _PREFIX.match(row)
        if _FOREIGN.match(row):
            reading.refuse("the nodes", number, "directives of a scheduler that is not read")
        if prefix is None:
            is_over = is_over or bool(row.strip() and not row.lstrip().startswith("#"))
            continue
        if is_over:
            reading.differ(number, f"{prefix[1]} after the first command has no effect, here neither")
            continue
        scheduler = _SCHEDULERS[prefix[1]]
        request.scheduler = request.scheduler or scheduler
        if scheduler != request.scheduler:
            reading.refuse("the nodes", number, f"directives of {request.scheduler} and {scheduler}")
        reading.used.add(number)
        try:
            words = shlex.split(row[prefix.end() :], comments=True)
            if scheduler == "slurm":
                pyxis += _sbatch(words, number, reading)
            else:
                _qsub(words, number, reading)
        except (ValueError, Mistake):
            reading.skip(number, row.strip())
    if request.scheduler == "pbs" and not request.starts_in:
        request.starts_in = "~"
    if request.memory_of_job:
        size, at = -(-request.memory_of_job // (request.nodes or 1)), request.lines["memory_of_job"]
        request.give("memory_per_node", size, at)
    complete(request)
    if "nci" in request.lines and request.cpus_per_node:
        request.give("tasks", request.cpus_per_node, request.lines["cpus_per_node"])
    return pyxis


def _sbatch(words: Sequence[str], line: int, reading: Reading) -> tuple[tuple[str, str], ...]:
    """Read the words of a line #SBATCH; returns the flags of Pyxis. Raises Mistake."""
    found = slurm_options.read(words, _FORMS, _PYXIS)
    for name, value, text in _values(found):
        give(_OF_SLURM.get(name), value, text, line, reading)
    if found.rest[:1] in (("hetjob",), ("packjob",)):
        reading.refuse("the nodes", line, f"{found.rest[0]}: a job of parts that differ")
    elif found.rest:
        reading.skip(line, f"#SBATCH … {' '.join(found.rest)}: no option")
    return found.flags


def step(words: Sequence[str], line: int, reading: Reading) -> tuple[Request, slurm_options.Words]:
    """A command line of srun: the job's request with the step's own options. Raises Mistake for an option
    whose form is not known: the command would begin nobody knows where."""
    found = slurm_options.read(words, _FORMS, _PYXIS)
    job, request = reading.request, copy.deepcopy(reading.request)
    for name, value, text in _values(found):
        if name != "--exclusive":  # a step's own processors, and not whole nodes
            give(_OF_SLURM.get(name), value, text, line, reading, request)
    if request.tasks != job.tasks and request.tasks_per_node == job.tasks_per_node:
        request.tasks_per_node = None
    complete(request)
    return request, found


def _values(found: slurm_options.Words) -> Iterator[tuple[str, str, str]]:
    """Options as (name, value, as written)."""
    for name, words in found.slurm:
        value = words[-1]
        if len(words) == 1:
            value = value.partition("=" if name[1] == "-" else name[1])[2]
            value = value if name[1] == "-" else value.removeprefix("=")
        value = value.strip()
        yield name, value, f"{name}{'=' if name.startswith('--') and value else ' ' * bool(value)}{value}"


def complete(request: Request) -> None:
    """The tasks that follow from the GPUs, or the other way round."""
    each, line = request.tasks_per_gpu, request.lines.get("tasks_per_gpu", 0)
    if each and request.tasks is None and request.tasks_per_node is None:
        if request.gpus_per_node:
            request.give("tasks_per_node", request.gpus_per_node * each, line)
        elif request.gpus:
            request.give("tasks", request.gpus * each, line)
    elif each and request.tasks and request.gpus is request.gpus_per_node is request.gpus_per_task is None:
        request.give("gpus", -(-request.tasks // each), line)


def give(
    option: _Option | None, value: str, text: str, line: int, reading: Reading, request: Request | None = None
) -> None:
    """Read the value of an option. `text`: as it is written; `request`: of a step, else the job's."""
    kind, name = option or ("unread", "")
    match kind:
        case "key" if value and not re.search(r"[%<>]|\s", value):
            reading.set(name, value, line)
        case "count":
            reading.count(name, value, text, line, request)
        case "size" if value == "0":
            reading.options.append(Value(text, line))
        case "size" if amount := _size(value, unit="m" if text.startswith("--") else "b"):
            (request or reading.request).give(name, amount, line)
        case "minutes" | "seconds" if amount := _seconds(value, alone=60 if kind == "minutes" else 1):
            reading.set(name, amount, line)
        case "gres":
            _gres(value, text, line, reading, request)
        case "array":
            reading.set_array(_elements(value), text, line)
        case "exclusive" if value in ("", "1"):
            reading.set("scheduling.exclusive", True, line)
        case "yes" | "no":
            reading.set(name, kind == "yes", line)
        case "rerun" if value in ("y", "n"):
            reading.set("scheduling.requeue", value == "y", line)
        case "warning" if found := re.fullmatch(r"(?:(?:SIG)?USR1|10)@(\d{1,6})", value):
            reading.set("scheduling.warning_s", int(found[1]), line)
        case "starts_in":
            reading.request.starts_in = value
            reading.request.lines["starts_in"] = line
        case "variables":
            reading.pass_on(value.split(","), line)
            reading.differ(line, f"{text}: {_CLEAN}")
        case "nci":
            reading.request.lines["nci"] = line
            if not value:
                reading.request.starts_in = "."
            else:
                reading.options.append(Value(text, line))
        case "pass":
            reading.options.append(Value(text, line))
        case "differ":
            reading.differ(line, f"{text}: {name}")
        case "refuse":
            reading.refuse("the command", line, f"{text} is not supported")
        case _:
            reading.skip(line, text)


def _gres(value: str, text: str, line: int, reading: Reading, request: Request | None) -> None:
    for part in value.split(","):
        found = _GPU.fullmatch(part)
        if found is not None:
            kind = f"{found[1]}:" if found[1] else ""
            reading.count("gpus_per_node", f"{kind}{found[2] or 1}", text, line, request)
        elif "gpu" in part:
            reading.refuse("the GPUs", line, f"{text} is not one number")
        else:
            reading.options.append(Value(f"--gres={part}", line))


def _qsub(words: Sequence[str], line: int, reading: Reading) -> None:
    """Read the words of a line #PBS; a value may be joined to its option."""
    left = [part for word in words for part in re.sub(r"^(-[a-zA-Z])(?=.)", r"\1\n", word).split("\n")]
    while left:
        name = left.pop(0)
        value = left.pop(0) if left and not left[0].startswith("-") else ""
        if name == "-l":
            for part in re.split(r",(?=[a-z_]+=)", value):
                _resource(part, line, reading)
        elif name == "-W" and value.startswith("group_list="):
            reading.options.append(Value(f"-W {value}", line))
        else:
            give(_OF_PBS.get(name), value, f"{name} {value}".strip(), line, reading)


def _resource(part: str, line: int, reading: Reading) -> None:
    """One of the resources of `-l`."""
    name, _, value = part.partition("=")
    if name == "place" and "excl" in value:
        reading.set("scheduling.exclusive", True, line)
        return
    if name not in ("select", "nodes"):
        give(_OF_PBS.get(name), value, f"-l {part}", line, reading)
        return
    first, *rest = value.split(":")
    if "=" in first:  # one chunk
        first, rest = "1", [first, *rest]
    reading.count("nodes", first if "+" not in value else value, f"-l {part}", line)
    for each in rest:
        key, _, text = each.partition("=")
        if f":{key}" in _OF_PBS:
            give(_OF_PBS[f":{key}"], text, f"-l {part}", line, reading)
        else:
            reading.skip(line, f"-l {name}=…:{each}: a property of the nodes")
    request = reading.request
    if name == "nodes" and request.tasks_per_node:
        request.give("cpus_per_node", request.tasks_per_node, line)
    if name == "select" and (request.nodes or 0) > 1:
        reading.differ(line, f"-l {part}: PBS may put several chunks on a node; here each is a node")


# Amounts as schedulers write them; None: not such an amount.


def _size(text: str, *, unit: str) -> int | None:
    """Bytes of `32G`, `32gb`, `32GiB`; `unit`: of a number without one. All are powers of 1024."""
    found = re.fullmatch(r"(\d{1,12})(?:\.(\d{1,3}))?\s*([bkmgtBKMGT]?)(?:i?[bB])?", text.strip())
    if found is None:
        return None
    digits = found[2] or ""
    power = _UNITS.index((found[3] or unit).lower())
    return int(found[1] + digits) * int(1024**power) // int(10 ** len(digits))


def _seconds(text: str, *, alone: int) -> int | None:
    """Seconds of M:S, H:M:S, D-H, D-H:M, D-H:M:S, or of one number of `alone` seconds."""
    found = re.fullmatch(r"(?:(\d{1,5})-)?(\d{1,9})(?::(\d{1,5}))?(?::(\d{1,9}))?", text.strip())
    if found is None:
        return None
    days, *rest = found.groups()
    numbers = [int(each) for each in rest if each is not None]
    if days is None and len(numbers) == 1:
        return numbers[0] * alone
    units = (3600, 60, 1) if days is not None else (3600, 60, 1)[-len(numbers) :]
    return int(days or 0) * 86400 + sum(number * unit for number, unit in zip(numbers, units, strict=False))


def _elements(text: str) -> tuple[tuple[int, ...], int] | None:
    """The numbers of an array such as 0-7, 1-10:2 or 1,3,5%2, and how many run at the same time."""
    listed, _, limit = text.partition("%")
    found: list[int] = []
    for part in listed.split(","):
        match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7})(?::([1-9]\d{0,6}))?)?", part.strip())
        if match is None:
            return None
        found += range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1))[:_MOST_ELEMENTS]
    if not 0 < len(found) < _MOST_ELEMENTS or not re.fullmatch(r"0*[1-9]\d{0,6}|", limit):
        return None
    return tuple(found), int(limit or 0)
