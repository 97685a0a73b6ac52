"""Options of sbatch and srun. https://slurm.schedmd.com/sbatch.html, https://slurm.schedmd.com/srun.html"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import NamedTuple

from bareboat_adopt import amounts
from bareboat_adopt.reading import Reading, Request, Value
from bareboat_shim import pyxis_table, slurm_options
from bareboat_shim.table import Mistake

#: Key of the job file -> options.
_KEYS = {
    "scheduling.partition": ("--partition", "-p"), "scheduling.account": ("--account", "-A"),
    "scheduling.qos": ("--qos", "-q"), "scheduling.reservation": ("--reservation",),
    "scheduling.constraint": ("--constraint", "-C"), "name": ("--job-name", "-J"),
}  # fmt: skip
#: Number of the request -> options.
_COUNTS = {
    "nodes": ("--nodes", "-N"), "tasks": ("--ntasks", "-n"),
    "tasks_per_node": ("--ntasks-per-node", "--tasks-per-node"), "cpus_per_task": ("--cpus-per-task", "-c"),
    "cpus_per_gpu": ("--cpus-per-gpu",), "tasks_per_gpu": ("--ntasks-per-gpu",),
}  # fmt: skip
_GPUS = {
    "gpus": ("--gpus", "-G"), "gpus_per_node": ("--gpus-per-node",), "gpus_per_task": ("--gpus-per-task",),
}  # fmt: skip
_SIZES = {
    "memory_per_node": ("--mem",), "memory_per_cpu": ("--mem-per-cpu",), "memory_per_gpu": ("--mem-per-gpu",),
}  # fmt: skip
#: Passed to sbatch unchanged.
_PASSED = (
    "--mail-type", "--mail-user", "--nodelist", "-w", "--exclude", "-x", "--gres-flags", "--hint",
    "--licenses", "-L", "--comment", "--nice", "--begin", "-b", "--switches", "--tmp", "--contiguous",
    "--wckey", "--priority", "--cpu-freq", "--threads-per-core", "--profile", "--dependency", "-d",
    "--clusters", "-M", "--deadline", "--oversubscribe", "-s", "--gpu-bind", "--gpu-freq", "--mincpus",
    "--sockets-per-node", "--cores-per-socket", "--core-spec", "-S", "--prefer", "--power", "--time-min",
    "--reboot", "--acctg-freq", "--no-kill", "-k", "--mem-bind", "--extra-node-info", "-B", "--delay-boot",
    "--use-min-nodes", "--kill-on-invalid-dep",
)  # fmt: skip
#: Options that the job file has no need of, with the reason.
_LEFT = {
    ("--output", "-o", "--error", "-e", "--open-mode"):
        "the output is kept with the run: bareboat logs prints it",
    ("--export", "--get-user-env"): "the job gets no variables of your shell but those that the file names",
    ("--parsable", "--quiet", "-Q", "--verbose", "-v", "--label", "-l", "--unbuffered", "-u",
     "--kill-on-bad-exit", "-K", "--wait-all-nodes", "--propagate", "--spread-job", "--wait", "-W"):
        "ranks are started, watched and ended by Bareboat",
    ("--mpi", "--cpu-bind", "--distribution", "-m", "--exact", "--overlap", "--resv-ports", "--network",
     "--accel-bind", "--ntasks-per-socket", "--ntasks-per-core", "--preserve-env", "-E",
     "--slurmd-debug", "--disable-status", "-X", "--threads", "-T", "--bcast",):
        "the planner chooses how ranks start and where they run: bareboat plan shows it",
}  # fmt: skip
_LEFT_BY_NAME = {name: reason for names, reason in _LEFT.items() for name in names}
_SPECIAL = (
    "--time", "-t", "--gres", "--array", "-a", "--exclusive", "--requeue", "--no-requeue", "--signal",
    "--chdir", "-D", "--workdir", "--export",
)  # fmt: skip
_OPTIONAL = (
    "--exclusive", "--nice", "--kill-on-bad-exit", "-K", "--propagate", "--get-user-env", "--no-kill", "-k",
    "--preserve-env",
)  # fmt: skip
_WITHOUT = (
    "--requeue", "--no-requeue", "--contiguous", "--parsable", "--quiet", "-Q", "--verbose", "-v", "--label",
    "-l", "--unbuffered", "-u", "--exact", "--overlap", "--oversubscribe", "-s", "--reboot", "--spread-job",
    "--use-min-nodes", "--disable-status", "-X", "-E", "--no-allocate", "-Z", "--pty", "--multi-prog",
    "--ignore-pbs", "-I",
)  # fmt: skip
#: Of the plug-in of Shifter: https://docs.nersc.gov/development/containers/shifter/how-to-use/
_SHIFTER = ("--image", "--volume", "--module")
_TAKE = (*_PASSED, *_SPECIAL, *_LEFT_BY_NAME, *_SHIFTER, "--input", "-i", "--het-group", "--jobid")
_NAMED = [name for table in (_KEYS, _COUNTS, _GPUS, _SIZES) for names in table.values() for name in names]
_OPTIONS: dict[str, str] = {
    **dict.fromkeys((*_NAMED, *_TAKE), "="),
    **dict.fromkeys(_OPTIONAL, "[="),
    **dict.fromkeys(_WITHOUT, ""),
}
#: Flags of Pyxis: name -> whether it takes a value.
PYXIS = {name: bool(flag.value) for flag in pyxis_table.FLAGS for name in flag.names}


class Line(NamedTuple):
    """A command line of sbatch or srun: its options that were read, those of Pyxis, and the command."""

    options: tuple[tuple[str, str], ...]
    pyxis: tuple[tuple[str, str], ...]
    rest: tuple[str, ...]


def parse(words: Sequence[str]) -> Line:
    """Raises Mistake for an option whose form is not known: the command would begin nobody knows where."""
    found = slurm_options.read(words, _OPTIONS, PYXIS)
    return Line(tuple((name, _value(name, each)) for name, each in found.slurm), found.flags, found.rest)


def _value(name: str, words: tuple[str, ...]) -> str:
    if len(words) == 2:
        return words[1].strip()
    if name.startswith("--"):
        return words[0].partition("=")[2].strip()
    return re.sub(rf"^-\w*?{name[1]}=?", "", words[0]).strip()


def directive(words: Sequence[str], line: int, reading: Reading) -> tuple[tuple[str, str], ...]:
    """Read the words of a line #SBATCH; returns the flags of Pyxis."""
    try:
        found = parse(words)
    except Mistake as mistake:
        reading.skip(line, f"#SBATCH {' '.join(words)}: {mistake.message}")
        return ()
    for name, value in found.options:
        _read(name, value, line, reading, reading.request)
    if found.rest[:1] in (("hetjob",), ("packjob",)):
        reading.refuse("the nodes", line, f"{found.rest[0]}: a job of parts that differ")
    elif found.rest:
        reading.skip(line, f"#SBATCH … {' '.join(found.rest)}: no option")
    return found.pyxis


def step(found: Line, line: int, reading: Reading) -> Request:
    """The request of a step of srun: that of the job with the step's own options."""
    request = copy.deepcopy(reading.request)
    before = {name: getattr(request, name) for name in ("tasks", "tasks_per_node")}
    for name, value in found.options:
        if name in ("--het-group", "--pack-group", "--multi-prog", "--jobid", "--pty"):
            reading.refuse("the command", line, f"srun {name} is not supported")
        _read(name, value, line, reading, request)
    if request.tasks != before["tasks"] and request.tasks_per_node == before["tasks_per_node"]:
        request.tasks_per_node = None
    complete(request)
    return request


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


def _read(name: str, value: str, line: int, reading: Reading, request: Request) -> None:
    text = f"{name}{'=' if name.startswith('--') and value else ' ' if value else ''}{value}"
    for key, names in _KEYS.items():
        if name in names:
            if re.search(r"[%<>]|\s", value) or not value:
                reading.skip(line, f"{text}: a placeholder, and no value")
            else:
                reading.set(key, value, line)
            return
    for field, names in (*_COUNTS.items(), *_GPUS.items()):
        if name in names:
            _count(field, value, text, line, reading, request)
            return
    for field, names in _SIZES.items():
        if name in names:
            _size(field, value, text, line, reading, request)
            return
    _others(name, value, text, line, reading, request)


def _count(field: str, value: str, text: str, line: int, reading: Reading, request: Request) -> None:
    kind, _, number = value.rpartition(":") if field.startswith("gpus") else ("", "", value)
    first, _, last = number.partition("-")
    found = amounts.count(number) if not last or first != last else amounts.count(first)
    if found is None:
        subject = "the nodes" if field == "nodes" else "the GPUs" if "gpus" in field else "the ranks"
        reading.refuse(subject, line, f"{text} is not one number")
        return
    if kind:
        reading.skip(line, f"{text}: the type {kind} of the GPUs; name it by a constraint or a partition")
    request.give(field, found, line)


def _size(field: str, value: str, text: str, line: int, reading: Reading, request: Request) -> None:
    found = amounts.size(value)
    if value == "0" and field == "memory_per_node":
        reading.options.append(Value("--mem=0", line))
    elif found is None:
        reading.skip(line, f"{text}: not a size")
    else:
        request.give(field, found, line)


def _others(name: str, value: str, text: str, line: int, reading: Reading, request: Request) -> None:
    if name in ("--time", "-t"):
        seconds = amounts.slurm_time(value)
        if not seconds:
            reading.skip(line, f"{text}: no time limit")
        else:
            reading.set("walltime_s", seconds, line)
    elif name == "--gres":
        _gres(value, text, line, reading, request)
    elif name in ("--array", "-a"):
        _array(value, text, line, reading)
    elif name == "--exclusive" and value in ("", "1"):
        reading.set("scheduling.exclusive", True, line)
    elif name in ("--requeue", "--no-requeue"):
        reading.set("scheduling.requeue", name == "--requeue", line)
    elif name == "--signal":
        found = re.fullmatch(r"(?:SIG)?USR1@(\d{1,6})|10@(\d{1,6})", value)
        if found:
            reading.set("scheduling.warning_s", int(found[1] or found[2]), line)
        else:
            reading.skip(line, f"{text}: warning_s sends SIGUSR1 to the ranks, and no other signal")
    elif name in ("--chdir", "-D", "--workdir"):
        request.starts_in = value
        request.lines["starts_in"] = line
    elif name == "--export" and "=" in value:
        _export(value, line, reading)
    elif name in _SHIFTER:
        reading.shifter[name] = Value(value, line)
    elif name in _LEFT_BY_NAME:
        reading.differ(line, f"{name}: {_LEFT_BY_NAME[name]}")
    elif name in _PASSED:
        reading.options.append(Value(text, line))
    else:
        reading.skip(line, text)


def _gres(value: str, text: str, line: int, reading: Reading, request: Request) -> None:
    for part in value.split(","):
        found = re.fullmatch(
            r"(?:gres[:/])?gpu(?::([A-Za-z][\w.-]*))?(?::(\d{1,4}))?(?:\(S:[\d,-]+\))?", part
        )
        if found is None:
            reading.options.append(Value(f"--gres={part}", line))
            if "gpu" in part:
                reading.refuse("the GPUs", line, f"{text} is not one number")
            continue
        if found[1]:
            reading.skip(
                line, f"{text}: the type {found[1]} of the GPUs; name it by a constraint or a partition"
            )
        request.give("gpus_per_node", int(found[2] or 1), line)


def _array(value: str, text: str, line: int, reading: Reading) -> None:
    found = amounts.elements(value)
    if found is None:
        reading.refuse("the command", line, f"{text} is not a list of numbers")
        return
    reading.array = found[0]
    reading.request.lines["array"] = line
    if found[1]:
        reading.differ(
            line, f"{text}: at most {found[1]} at the same time: bareboat submit --at-once {found[1]}"
        )


def _export(value: str, line: int, reading: Reading) -> None:
    for part in value.split(","):
        name, equals, text = part.partition("=")
        if equals:
            reading.environment[name] = Value(text, line)
        elif name not in ("ALL", "NONE", "NIL"):
            reading.skip(line, f"--export {name}: its value is your shell's; write environment_from")
    reading.differ(line, f"--export: {_LEFT_BY_NAME['--export']}")
