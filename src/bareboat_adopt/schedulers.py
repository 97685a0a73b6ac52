"""Directives of schedulers in a script: #SBATCH, #PBS, #$, #BSUB and #flux:."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from bareboat_adopt import amounts, slurm
from bareboat_adopt.reading import Reading, Value

_OUTPUT = "the output is kept with the run: bareboat logs prints it"
_SHELL = "the job gets no variables of your shell but those that the file names"
_MAIL = "mail only when the run ended"
#: Prefix of a directive -> scheduler.
_PREFIXES = {"#SBATCH": "slurm", "#PBS": "pbs", "#$": "gridengine", "#BSUB": "lsf", "#flux:": "flux",
             "#FLUX:": "flux"}  # fmt: skip
#: Of schedulers that are not read: Fujitsu's, Cobalt, OAR, Moab, Donau, LoadLeveler.
_FOREIGN = re.compile(r"#(PJM|COBALT|OAR|MSUB|DSUB)\b|#\s?@\s*\w+\s*=")


def read(text: str, reading: Reading) -> tuple[tuple[str, str, int], ...]:
    """Read the directives of a script; returns the flags of Pyxis with their lines. Slurm and PBS stop at the
    first command."""
    pyxis: list[tuple[str, str, int]] = []
    found: dict[str, int] = {}
    is_over = False
    rows = text.replace("\r\n", "\n").split("\n")
    if foreign := next((n for n, row in enumerate(rows, 1) if _FOREIGN.match(row)), 0):
        reading.refuse("the nodes", foreign, "directives of a scheduler that is not read")
    for number, row in enumerate(rows, 1):
        prefix = next((each for each in _PREFIXES if _has(row, each)), None)
        if prefix is None:
            is_over = is_over or bool(row.strip() and not row.lstrip().startswith("#"))
            continue
        scheduler = _PREFIXES[prefix]
        if is_over and scheduler in ("slurm", "pbs"):
            reading.differ(number, f"{prefix} after the first command has no effect, here neither")
            continue
        found.setdefault(scheduler, number)
        words = _words(row[len(prefix) :])
        if words is None:
            reading.skip(number, row.strip())
        elif words:
            reading.request.scheduler = reading.request.scheduler or scheduler
            if scheduler != reading.request.scheduler:
                continue
            if scheduler == "slurm":
                pyxis += [(*each, number) for each in slurm.directive(words, number, reading)]
            else:
                _READERS[scheduler](words, number, reading)
    if len(found) > 1:
        reading.refuse("the nodes", max(found.values()), f"directives of {' and '.join(sorted(found))}")
    _complete(reading)
    return tuple(pyxis)


def _has(row: str, prefix: str) -> bool:
    if prefix == "#$":
        return re.match(r"#\$\s*-", row) is not None
    if row.startswith("#SBATCH-"):  # Slurm requires no space
        return prefix == "#SBATCH"
    return row.startswith(prefix) and (row[len(prefix) :][:1] in (" ", "\t", "") or prefix.endswith(":"))


def _words(text: str) -> list[str] | None:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return None


def _complete(reading: Reading) -> None:
    """What the request implies."""
    request = reading.request
    if request.scheduler == "gridengine" and not request.starts_in:
        request.starts_in = "~"
    if request.scheduler == "pbs" and not request.starts_in:
        request.starts_in = "~"
    slurm.complete(request)
    if "nci" in request.lines and request.cpus_per_node:
        request.give("tasks", request.cpus_per_node, request.lines["cpus_per_node"])


def _common(name: str, value: str, line: int, reading: Reading, keys: dict[str, str]) -> bool:
    """Options that several schedulers have in a similar way."""
    if name in keys and value:
        if re.search(r"[<>%\s]", value):
            reading.skip(line, f"{name} {value}: a placeholder, and no value")
        else:
            reading.set(keys[name], value, line)
    elif name in ("-o", "-e", "-j", "-k", "-eo", "-oo"):
        reading.differ(line, _OUTPUT)
    elif name in ("-V", "-S", "-L"):
        reading.differ(line, _SHELL)
    elif name in ("-m", "-M", "-B", "-N", "-u") and name not in keys:
        reading.differ(line, f'{_MAIL}: notify = "mail"')
    else:
        return False
    return True


#: Options of qsub, of PBS as of Grid Engine.
_QSUB = {
    "-q": "scheduling.partition",
    "-A": "scheduling.account",
    "-P": "scheduling.account",
    "-N": "name",
}


def _pbs(words: list[str], line: int, reading: Reading) -> None:
    """https://help.altair.com/2022.1.0/PBS%20Professional/PBSReferenceGuide2022.1.pdf; Torque's qsub(1)."""
    split = [each for word in words for each in _apart(word)]
    for name, value, text in amounts.option_words(split):
        if name == "-l":
            for part in re.split(r",(?=[a-z_]+=)", value):
                _pbs_resource(part, line, reading)
        elif name in ("-J", "-t"):
            found = amounts.elements(value)
            if found is None:
                reading.refuse("the command", line, f"{text} is not a list of numbers")
            else:
                reading.array = found[0]
                reading.request.lines["array"] = line
        elif name == "-r" and value in ("y", "n"):
            reading.set("scheduling.requeue", value == "y", line)
        elif name == "-d":
            reading.request.starts_in = value
        elif name == "-W" and value.startswith("group_list="):
            reading.options.append(Value(f"-W {value}", line))
        elif name == "-v":
            _variables(value, line, reading)
        elif not _common(name, value, line, reading, _QSUB):
            reading.skip(line, f"#PBS {text}")


def _apart(word: str) -> tuple[str, ...]:
    """`-lnodes=2` as an option and its value."""
    return (word[:2], word[2:]) if re.match(r"-[a-zA-Z].", word) else (word,)


def _variables(value: str, line: int, reading: Reading) -> None:
    for part in value.split(","):
        name, equals, text = part.partition("=")
        if equals:
            reading.environment[name] = Value(text, line)
        else:
            reading.skip(line, f"-v {name}: its value is your shell's; write environment_from")


def _pbs_resource(part: str, line: int, reading: Reading) -> None:
    request = reading.request
    name, _, value = part.partition("=")
    if name == "walltime" and (seconds := amounts.clock(value)):
        reading.set("walltime_s", seconds, line)
    elif name in ("select", "nodes"):
        _pbs_nodes(name, value, line, reading)
    elif name in ("mem", "pmem", "vmem", "pvmem") and (size := amounts.size(value, unit="b")):
        if name in ("mem", "vmem"):
            request.give("memory_per_node", size, line)
        else:
            request.give("memory_per_task", size, line)
    elif name == "ncpus" and (count := amounts.count(value)):
        request.give("cpus_per_node", count, line)
    elif name in ("ngpus", "gpus") and (count := amounts.count(value)):
        request.give("gpus_per_node", count, line)
    elif part == "wd":  # of NCI, whose ncpus are also the slots for ranks
        request.starts_in = "."
        request.lines["nci"] = line
    elif name in ("storage", "jobfs"):
        reading.options.append(Value(f"-l {part}", line))
        request.lines["nci"] = line
    elif name == "place" and value in ("excl", "scatter:excl", "exclhost", "scatter:exclhost"):
        reading.set("scheduling.exclusive", True, line)
    elif name == "place" and value in ("scatter", "free", "pack", "free:shared", "scatter:shared"):
        reading.differ(line, f"place={value}: each node has the same number of ranks")
    elif name in (
        "filesystems",
        "cput",
        "software",
        "naccesspolicy",
        "qos",
        "feature",
        "place",
        "file",
        "walltime",
    ):
        reading.options.append(Value(f"-l {part}", line))
    else:
        reading.skip(line, f"-l {part}")


def _pbs_nodes(name: str, value: str, line: int, reading: Reading) -> None:
    request = reading.request
    if "+" in value:
        reading.refuse("the nodes", line, f"-l {name}={value}: nodes that differ")
        return
    first, *rest = value.split(":")
    if "=" in first:  # one chunk
        first, rest = "1", [first, *rest]
    nodes = amounts.count(first)
    if nodes is None:
        reading.refuse("the nodes", line, f"-l {name}={value} is not one number")
        return
    given: dict[str, str] = {}
    for each in rest:
        key, _, text = each.partition("=")
        given[key] = text
    fields = {"ncpus": "cpus_per_node", "mpiprocs": "tasks_per_node", "ngpus": "gpus_per_node",
              "gpus": "gpus_per_node", "ppn": "tasks_per_node", "ompthreads": ""}  # fmt: skip
    for key, text in given.items():
        if key == "mem" and (size := amounts.size(text, unit="b")):
            request.give("memory_per_node", size, line)
        elif key in fields and (count := amounts.count(text)) is not None:
            if fields[key]:
                request.give(fields[key], count, line)
        else:
            reading.skip(line, f"-l {name}=…:{key}{'=' if text else ''}{text}: a property of the nodes")
    if name == "nodes" and "ppn" in given:
        request.give("cpus_per_node", request.tasks_per_node or 1, line)
    if name == "select" and "mpiprocs" not in given:
        request.lines["one_slot_per_node"] = line
    request.give("nodes", nodes, line)
    if nodes > 1 and name == "select" and not any("mpiprocs" in each or "ncpus" in each for each in rest):
        reading.differ(line, f"select={nodes}: chunks; here each is a node")
    elif nodes > 1 and name == "select":
        reading.differ(
            line, f"select={nodes}: chunks, of which PBS may put several on a node; here each is a node"
        )


def _gridengine(words: list[str], line: int, reading: Reading) -> None:
    """https://gridscheduler.sourceforge.net/htmlman/htmlman1/qsub.html"""
    left = list(words)
    while left:
        name = left.pop(0)
        takes = 0 if name in ("-cwd", "-V", "-notify", "-h", "-verify") else 2 if name == "-pe" else 1
        values, left = left[:takes], left[takes:]
        text = " ".join((name, *values))
        value = values[0] if values else ""
        if name == "-cwd":
            reading.request.starts_in = "."
        elif name == "-wd":
            reading.request.starts_in = value
        elif name == "-pe" and len(values) == 2:
            _slots(values, text, line, reading)
        elif name == "-l":
            for part in value.split(","):
                _ge_resource(part, line, reading)
        elif name == "-t" and (found := amounts.elements(value)):
            reading.array = found[0]
            reading.request.lines["array"] = line
        elif name == "-tc":
            reading.differ(
                line, f"-tc {value}: at most so many at the same time: bareboat submit --at-once {value}"
            )
        elif name == "-t":
            reading.refuse("the command", line, f"{text} is not a list of numbers")
        elif name == "-r" and value in ("y", "n", "yes", "no"):
            reading.set("scheduling.requeue", value[0] == "y", line)
        elif name in ("-R", "-ac", "-p", "-hold_jid", "-js"):
            reading.options.append(Value(text, line))
        elif name == "-v":
            _variables(value, line, reading)
        elif not _common(name, value, line, reading, _QSUB):
            reading.skip(line, f"#$ {text}")


def _slots(values: list[str], text: str, line: int, reading: Reading) -> None:
    request = reading.request
    slots = amounts.count(values[1])
    if slots is None:
        reading.refuse("the ranks", line, f"{text} is not one number of slots")
    elif re.search(r"smp|shared|thread|omp|local|openmp|single", values[0]):
        request.give("nodes", 1, line)
        request.give("cpus_per_node", slots, line)
        request.give("tasks", slots, line)
        reading.differ(line, f"{text}: the parallel environment is chosen by the number of slots")
    elif slots == 1:
        request.give("nodes", 1, line)
        request.give("tasks", 1, line)
    else:
        request.give("tasks", slots, line)
        reading.refuse("the nodes", line, f"{text}: how the slots lie on nodes is known to your site only")


def _ge_resource(part: str, line: int, reading: Reading) -> None:
    request = reading.request
    name, _, value = part.partition("=")
    if name == "h_rt" and (seconds := amounts.clock(value)):
        reading.set("walltime_s", seconds, line)
    elif name in ("gpu", "gpus", "ngpus", "cuda", "gpu_card") and (count := amounts.count(value)) is not None:
        request.give("gpus", count, line)
        request.lines["gpus_per_slot"] = line
    elif name in ("h_vmem", "mem_free", "mem", "s_vmem", "vf") and (size := amounts.size(value, unit="b")):
        if name == "mem_free":
            reading.skip(line, f"-l {part}: free memory of the node, or per slot, by your site's settings")
        else:
            request.give("memory_per_task", size, line)
    elif name in ("exclusive", "excl") and value.lower() in ("", "true", "1"):
        reading.set("scheduling.exclusive", True, line)
    elif re.search(r"gpu|cuda|node|rt_[A-Z]", name):
        reading.refuse("the GPUs", line, f"-l {part}: what it means is known to your site only")
    else:
        reading.options.append(Value(f"-l {part}", line))


def _lsf(words: list[str], line: int, reading: Reading) -> None:
    """https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=bsub-options"""
    request = reading.request
    keys = {"-q": "scheduling.partition", "-P": "scheduling.account"}
    for name, value, text in amounts.option_words(words):
        if name == "-n" and (count := amounts.count(value)):
            request.give("tasks", count, line)
        elif name == "-nnodes" and (count := amounts.count(value)):
            request.give("nodes", count, line)
        elif name == "-W" and (seconds := _lsf_time(value)):
            reading.set("walltime_s", seconds, line)
        elif name == "-J":
            _lsf_name(value, line, reading)
        elif name == "-R":
            _lsf_resources(value, line, reading)
        elif name == "-gpu" and (found := re.match(r"num=(\d+)(?:/host)?", value)):
            request.give("gpus_per_node", int(found[1]), line)
            if ":" in value:
                reading.skip(line, f"-gpu {value}: only the number is read")
        elif name == "-x":
            reading.set("scheduling.exclusive", True, line)
        elif name == "-cwd":
            request.starts_in = value
        elif name in ("-B", "-N", "-u"):
            reading.differ(line, f'{_MAIL}: notify = "mail"')
        elif name in ("-w", "-We", "-m", "-M", "-b"):
            reading.options.append(
                Value(text if '"' in text or " " not in value else f'{name} "{value}"', line)
            )
        elif not _common(name, value, line, reading, keys):
            reading.skip(line, f"#BSUB {text}")


def _lsf_time(text: str) -> int | None:
    found = re.fullmatch(r"(?:(\d{1,5}):)?(\d{1,6})", text.partition("/")[0])
    return int(found[1] or 0) * 3600 + int(found[2]) * 60 if found else None


def _lsf_name(value: str, line: int, reading: Reading) -> None:
    name, bracket, listed = value.partition("[")
    if re.fullmatch(r"[\w.-]+", name):
        reading.set("name", name, line)
    if bracket:
        found = amounts.elements(listed.replace("]", ""))
        if found is None:
            reading.refuse("the command", line, f"-J {value} is not a list of numbers")
        else:
            reading.array = found[0]
            reading.request.lines["array"] = line


def _lsf_resources(value: str, line: int, reading: Reading) -> None:
    for name, inside in re.findall(r"(\w+)\[([^]]*)\]", value):
        if name == "span" and (found := re.fullmatch(r"\s*ptile\s*=\s*(\d+)\s*", inside)):
            reading.request.give("tasks_per_node", int(found[1]), line)
        elif name == "span" and re.fullmatch(r"\s*hosts\s*=\s*1\s*", inside):
            reading.request.give("nodes", 1, line)
        else:
            reading.skip(line, f'-R "{name}[{inside}]"')
    if not re.search(r"\w+\[", value):
        reading.skip(line, f"-R {value}")


def _flux(words: list[str], line: int, reading: Reading) -> None:
    """https://flux-framework.readthedocs.io/projects/flux-core/en/latest/man1/flux-batch.html"""
    request = reading.request
    counts = {
        "-N": "nodes", "--nodes": "nodes", "-n": "tasks", "--nslots": "tasks", "-c": "cpus_per_task",
        "--cores-per-slot": "cpus_per_task", "-g": "gpus_per_task", "--gpus-per-slot": "gpus_per_task",
    }  # fmt: skip
    keys = {"-q": "scheduling.partition", "--queue": "scheduling.partition", "--job-name": "name",
            "-B": "scheduling.account", "--bank": "scheduling.account"}  # fmt: skip
    apart = [each for word in words for each in (word.split("=", 1) if word.startswith("-") else (word,))]
    apart = [each for word in apart for each in (_apart(word) if re.match(r"-[A-Za-z]\d", word) else (word,))]
    for name, value, text in amounts.option_words(apart):
        if name in counts and (count := amounts.count(value)):
            request.give(counts[name], count, line)
        elif name in counts:
            reading.refuse(
                "the nodes" if counts[name] == "nodes" else "the ranks", line, f"{text} is no number"
            )
        elif name in ("-t", "--time-limit") and (seconds := _flux_time(value)):
            reading.set("walltime_s", seconds, line)
        elif name in ("-x", "--exclusive"):
            reading.set("scheduling.exclusive", True, line)
        elif name in ("--output", "--error", "-o"):
            reading.differ(line, _OUTPUT)
        elif name == "--cwd":
            request.starts_in = value
        elif not _common(name, value, line, reading, keys):
            reading.skip(line, f"#flux: {text}")


def _flux_time(text: str) -> int | None:
    found = re.fullmatch(r"(\d{1,7})(?:\.\d+)?([smhd]?)", text)
    return int(found[1]) * {"": 60, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]] if found else None


_READERS: dict[str, Callable[[list[str], int, Reading], None]] = {
    "pbs": _pbs, "gridengine": _gridengine, "lsf": _lsf, "flux": _flux,
}  # fmt: skip
