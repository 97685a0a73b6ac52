"""Directives of a script, #SBATCH and #PBS, and the options of srun: one table says what each one gives.

https://slurm.schedmd.com/sbatch.html, https://slurm.schedmd.com/srun.html,
https://help.altair.com/2022.1.0/PBS%20Professional/PBSReferenceGuide2022.1.pdf; Torque's qsub(1).
"""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import chain

from bareboat_adopt.reading import Reading, Request
from bareboat_base import units
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
    ("requeue", "yes", "--requeue"),
    ("requeue", "no", "--no-requeue"),
    ("warning", "", "--signal="),
    ("starts_in", "", "--chdir= -D= --workdir="),
    ("variables", "", "--export="),
    ("refuse", "the command", "--jobid= --pty --input= -i="),
    ("refuse", "the ranks", "--het-group= --pack-group= --multi-prog --ntasks-per-gpu="),
    ("pass", "",
     "--mail-type= --mail-user= --nodelist= -w= --exclude= -x= --gres-flags= --hint= --licenses= -L= "
     "--comment= --begin= -b= --switches= --tmp= --wckey= --threads-per-core= --dependency= -d= --clusters= "
     "-M= --gpu-bind= --mincpus= --oversubscribe[= -s --contiguous[="),
    ("differ", _KEPT, "--output= -o= --error= -e= --open-mode="),
    ("differ", _PLACED, "--mpi= --cpu-bind= --distribution= -m= --wait= -W= --exact[= --overlap[= --quiet[= "
     "-Q --verbose[= -v --label[= -l -u --unbuffered[= --kill-on-bad-exit[= -K"),
)  # fmt: skip
#: The same of qsub, of `-l NAME=VALUE`, and of `select=2:NAME=VALUE`.
_PBS = (
    ("key", "scheduling.partition", "-q"),
    ("key", "scheduling.account", "-A -P"),
    ("key", "name", "-N"),
    ("array", "", "-J -t"),
    ("requeue", "", "-r"),
    ("starts_in", "", "-d wd"),
    ("variables", "", "-v"),
    ("pass", "", "-m -M -p"),
    ("differ", _KEPT, "-o -e -j -k"),
    ("differ", _CLEAN, "-V -S"),
    ("seconds", "walltime_s", "walltime"),
    ("size", "memory_of_job", "mem"),
    ("size", "memory_per_node", ":mem"),
    ("count", "cpus_per_node", "ncpus :ncpus"),
    ("count", "tasks_per_node", ":mpiprocs :ppn"),
    ("count", "gpus_per_node", "ngpus gpus :ngpus :gpus"),
    ("differ", "each node has the same number of ranks", "place"),
    ("pass", "", "filesystems cput software naccesspolicy qos feature file storage jobfs"),
)
_GPU = re.compile(r"(?:gres[:/])?gpu(?::([A-Za-z][\w.-]*))?(?::(\d{1,4}))?(?:\(S:[\d,-]+\))?")
_UNREAD = ("unread", "")
_MOST_ELEMENTS = 10_000
#: Slurm requires no space before an option.
_PREFIX = re.compile(r"(#SBATCH|#PBS)(?=-|\s|\Z)")
#: Of schedulers that are not read: Grid Engine, LSF, Flux, Fujitsu's, Cobalt, OAR, Moab, Donau, LoadLeveler.
_FOREIGN = re.compile(r"#\$\s*-|#((BSUB|PJM|COBALT|OAR|MSUB|DSUB)\b|(flux|FLUX):)|#\s?@\s*\w+\s*=")


def _options(rows: Sequence[tuple[str, str, str]]) -> dict[str, tuple[str, str]]:
    return {text.rstrip("[="): (kind, name) for kind, name, names in rows for text in names.split()}


OF_SLURM, _OF_PBS = _options(_SLURM), _options(_PBS)
_FORMS = {text.rstrip("[="): re.sub("[^[=]", "", text) for _, _, names in _SLURM for text in names.split()}
#: Flags of Pyxis: name -> whether it takes a value.
_PYXIS = {name: bool(flag.value) for flag in pyxis_table.FLAGS for name in flag.names}


def read(rows: Sequence[str], reading: Reading) -> None:
    """Read the directives of a script. Slurm and PBS stop at the first command."""
    request = reading.request
    for number, row in enumerate(rows, 1):
        if row.strip() and not row.lstrip().startswith("#"):
            break
        if _FOREIGN.match(row):
            reading.refuse("the nodes", number, "directives of a scheduler that is not read")
        prefix = _PREFIX.match(row)
        if prefix is None:
            continue
        scheduler = "slurm" if prefix[1] == "#SBATCH" else "pbs"
        reading.scheduler = reading.scheduler or scheduler
        if scheduler != reading.scheduler:
            reading.refuse("the nodes", number, f"directives of {reading.scheduler} and {scheduler}")
        reading.used.add(number)
        try:
            words = shlex.split(row[prefix.end() :], comments=True)
            (_sbatch if scheduler == "slurm" else _qsub)(words, number, reading)
        except (ValueError, Mistake):
            reading.skip(number, row.strip())
    if reading.scheduler == "pbs" and not reading.starts_in:
        reading.starts_in = "~"
    if request["memory_of_job"]:
        size, at = -(-request["memory_of_job"] // (request["nodes"] or 1)), request.lines["memory_of_job"]
        request.give("memory_per_node", size, at)


def _sbatch(words: Sequence[str], line: int, reading: Reading) -> None:
    """Read the words of a line #SBATCH. Raises Mistake."""
    found = slurm_options.read(words, _FORMS, _PYXIS)
    for name, value, text in _values(found):
        give(OF_SLURM.get(name, _UNREAD), value, text, line, reading)
    if found.rest:  # such as hetjob
        reading.refuse("the nodes", line, f"#SBATCH {' '.join(found.rest)} is no option")
    reading.pyxis += found.flags


def step(words: Sequence[str], line: int, reading: Reading) -> tuple[Request, slurm_options.Words]:
    """A command line of srun: the job's request with the step's own options. Raises Mistake for an option
    whose form is not known: the command would begin nobody knows where."""
    found = slurm_options.read(words, _FORMS, _PYXIS)
    own, job = copy.copy(reading), reading.request
    own.request = request = copy.deepcopy(job)
    for name, value, text in _values(found):
        if name in ("--chdir", "-D"):
            reading.refuse("the working directory", line, f"{text} of a step")
        elif name != "--exclusive":  # a step's own processors, and not whole nodes
            give(OF_SLURM.get(name, _UNREAD), value, text, line, own)
    if request["tasks"] != job["tasks"] and request["tasks_per_node"] == job["tasks_per_node"]:
        request["tasks_per_node"] = None
    return request, found


def _values(found: slurm_options.Words) -> Iterator[tuple[str, str, str]]:
    """Options as (name, value, as written)."""
    for name, words in found.slurm:
        mark = "=" if name.startswith("--") else name[1]
        value = (words[1] if len(words) > 1 else words[0].partition(mark)[2].removeprefix("=")).strip()
        yield name, value, f"{name}{'=' if mark == '=' else ' '}{value}" if value else name


def give(option: tuple[str, str], value: str, text: str, line: int, reading: Reading) -> None:
    """Read the value of an option. `text`: as it is written."""
    kind, name = option
    match kind:
        case "key" if value and not re.search(r"[%<>]|\s", value):
            reading.set(name, value, line)
        case "count":
            reading.count(name, value, text, line)
        case "size" if value == "0":
            reading.add("scheduling.options", [text], line)
        case "size" if amount := _size(value, "M" if text.startswith("--") else "B"):
            reading.request.give(name, amount, line)
        case "minutes" | "seconds" if amount := _seconds(value, 60 if kind == "minutes" else 1):
            reading.set(name, amount, line)
        case "gres":
            _gres(value, text, line, reading)
        case "array":
            _array(value, text, line, reading)
        case "exclusive" if value in ("", "1"):
            reading.set("scheduling.exclusive", True, line)
        case "requeue" if name or value in ("y", "n"):
            reading.set("scheduling.requeue", (name or value)[0] == "y", line)
        case "warning" if found := re.fullmatch(r"(?:(?:SIG)?USR1|10)@(\d{1,6})", value):
            reading.set("scheduling.warning_s", int(found[1]), line)
        case "starts_in":
            reading.starts_in = value or "."
            reading.request.lines["starts_in"] = line
        case "variables":
            reading.pass_on(value.split(","), line)
            reading.differ(line, f"{text}: {_CLEAN}")
        case "pass":
            reading.add("scheduling.options", [text], line)
        case "differ":
            reading.differ(line, f"{text}: {name}")
        case "refuse":
            reading.refuse(name, line, f"{text} is not supported")
        case _:
            reading.skip(line, text)


def _gres(value: str, text: str, line: int, reading: Reading) -> None:
    for part in value.split(","):
        found = _GPU.fullmatch(part)
        if found is not None:
            kind = f"{found[1]}:" if found[1] else ""
            reading.count("gpus_per_node", f"{kind}{found[2] or 1}", text, line)
        elif "gpu" in part:
            reading.refuse("the GPUs", line, f"{text} is not one number")
        else:
            reading.add("scheduling.options", [f"--gres={part}"], line)


def _qsub(words: Sequence[str], line: int, reading: Reading) -> None:
    """Read the words of a line #PBS; a value may be joined to its option."""
    left = [part for word in words for part in re.sub(r"^(-[a-zA-Z])(?=.)", r"\1\n", word).split("\n")]
    while left:
        name = left.pop(0)
        value = left.pop(0) if left and not left[0].startswith("-") else ""
        if name == "-l":
            for part in re.split(r",(?=[a-z_]+=)", value):
                _resource(part, line, reading)
        else:
            give(_OF_PBS.get(name, _UNREAD), value, f"{name} {value}".strip(), line, reading)


def _resource(part: str, line: int, reading: Reading) -> None:
    """One of the resources of `-l`."""
    name, _, value = part.partition("=")
    if name == "place" and "excl" in value:
        reading.set("scheduling.exclusive", True, line)
        return
    if name not in ("select", "nodes"):
        give(_OF_PBS.get(name, _UNREAD), value, f"-l {part}", line, reading)
        return
    first, *rest = value.split(":")
    if "=" in first:  # one chunk
        first, rest = "1", [first, *rest]
    reading.count("nodes", first if "+" not in value else value, f"-l {part}", line)
    for each in rest:
        key, _, text = each.partition("=")
        give(_OF_PBS.get(f":{key}", _UNREAD), text, f"-l {name}=…:{each}", line, reading)
    request = reading.request
    if name == "nodes" and request["tasks_per_node"]:
        request.give("cpus_per_node", request["tasks_per_node"], line)
    if name == "select" and (request["nodes"] or 0) > 1:
        reading.differ(line, f"-l {part}: PBS may put several chunks on a node; here each is a node")


def _size(text: str, alone: str) -> int | None:
    """Bytes; None for other text. `alone`: the unit of a plain number; all units are powers of 1024."""
    bare = re.sub(r"(?<=\w)i?b\Z", "", text, flags=re.IGNORECASE)
    try:
        return int(units.parse(bare + alone * bare.isdigit(), "bytes"))
    except ValueError:
        return None


def _seconds(text: str, alone: int) -> int | None:
    """Of M:S, H:M:S, D-H, D-H:M, D-H:M:S, or of one number of `alone` seconds; None for other text."""
    found = re.fullmatch(r"(?:(\d{1,5})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", text)
    if found is None:
        return None
    days, *rest = (int(part) if part else None for part in found.groups())
    unit = 3600 if days is not None or rest[2] is not None else 60 if rest[1] is not None else alone
    return (days or 0) * 86400 + sum((part or 0) * unit // int(60**n) for n, part in enumerate(rest))


def _array(value: str, text: str, line: int, reading: Reading) -> None:
    """The numbers of an array such as 0-7, 1-10:2 or 1,3,5%2, and how many run at the same time."""
    listed, _, limit = value.partition("%")
    form = r"\s*(\d{1,7})(?:-(\d{1,7})(?::([1-9]\d{0,6}))?)?\s*"
    parts = [re.fullmatch(form, part) for part in listed.split(",")]
    found = [range(int(part[1]), int(part[2] or part[1]) + 1, int(part[3] or 1)) for part in parts if part]
    count = sum(map(len, found))
    if None in parts or not 0 < count < _MOST_ELEMENTS or not re.fullmatch(r"0*[1-9]\d{0,6}|", limit):
        reading.refuse("the command", line, f"{text} is not a list of numbers")
        return
    reading.array, reading.request.lines["array"] = tuple(chain.from_iterable(found)), line
    if limit:
        reading.differ(line, f"{text}: bareboat submit --at-once {int(limit)}")
