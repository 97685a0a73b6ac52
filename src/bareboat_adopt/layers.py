"""What precedes the program on a command line: programs that start another one, ranks, and containers. One
table has their options; another option is refused: it may have a value."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from bareboat_adopt import bash, containers, directives
from bareboat_adopt.containers import Container
from bareboat_adopt.reading import Reading, Request
from bareboat_adopt.values import Scope, Unclear
from bareboat_shim.table import Mistake

#: Programs, the options that have a value ("=" twice: two), and those that have none.
_TABLE = (
    ("time", "", "p"),
    ("nice", "n", ""),
    ("env nohup exec command setsid", "", ""),
    ("mpirun mpiexec orterun prterun mpiexec.hydra mpirun.openmpi mpiexec.openmpi mpirun.mpich mpiexec.mpich "
     "ibrun aprun",
     "np n c ntasks num-proc ppn npernode N perhost ranks-per-node H host hosts hostfile machinefile f "
     "default-hostfile x genv env mca== gmca== pmixmca== prtemca== bind-to map-by rank-by bootstrap iface "
     "rmk launcher prefix cpu-bind d binding depth cc genvlist output-filename outfile-pattern timeout tune",
     "allow-run-as-root oversubscribe v verbose bynode bycore bysocket display-map report-bindings "
     "tag-output bind-to-core nooversubscribe genvall envall q l use-hwthread-cpus display-allocation "
     "print-all-exitcodes"),
    ("horovodrun", "np num-proc H hosts hostfile p ssh-port start-timeout network-interface",
     "gloo mpi verbose autotune disable-cache"),
    ("torchrun",
     "nnodes nproc-per-node node-rank master-addr master-port rdzv-id rdzv-backend rdzv-endpoint rdzv-conf "
     "max-restarts monitor-interval start-method log-dir redirects tee role local-addr local-ranks-filter "
     "numa-binding", "standalone use-env no-python m module"),
    ("deepspeed", "num-gpus num-nodes hostfile H master-port master-addr launcher", "no-local-rank"),
)  # fmt: skip
#: Program -> option -> number of its values.
_OPTIONS: dict[str, dict[str, int]] = {
    program: {
        **{name.rstrip("="): 1 + name.endswith("==") for name in valued.split()},
        **dict.fromkeys(plain.split(), 0),
    }
    for programs, valued, plain in _TABLE
    for program in programs.split()
}
_WRAPPERS = ("time", "nice", "env", "nohup", "exec", "command", "setsid")
_INNER = ("torchrun", "deepspeed")
_TOTAL = ("np", "n", "c", "ntasks", "num-proc")
_PER_NODE = ("ppn", "npernode", "N", "perhost", "ranks-per-node")
_HOSTS = ("H", "host", "hosts", "hostfile", "machinefile", "f", "default-hostfile")
#: Programs that start ranks or containers, and are not read.
_UNREAD = re.compile(
    r"jsrun|lrun|flux|ccc_mprun|mpprun|yhrun|prun|poe|charmrun|(mpirun|mpiexec)[._]\w+|dmtcp_srun|accelerate"
    r"|shifter|sarus|ch-run|podman-hpc|pcocc-rs|enroot|bwrap|proot|docker|podman|nvidia-docker"
    r"|conda|mamba|micromamba|uv|poetry|pixi|pipenv|sudo"
)
_STARTERS = frozenset({*_OPTIONS, *containers.TOOLS, "srun"} - {*_WRAPPERS})
_CHOSEN = "the planner chooses the transport and where ranks run: bareboat plan shows it"


class Launch(Struct):
    """A program and what starts it. `tasks`, `per_node`: of the outer starter; `inner`: the ranks that a
    starter in each of its tasks starts (0: one for each GPU); `inner_nodes`: the nodes that it names."""

    program: list[str]
    starter: str = ""
    request: Request | None = None
    tasks: int | None = None
    per_node: int | None = None
    inner_starter: str = ""
    inner: int = 1
    inner_nodes: int | None = None
    container: Container | None = None


def read(
    words: Sequence[str], line: int, scope: Scope, reading: Reading, names: Mapping[str, str],
    pyxis: Sequence[tuple[str, str]],
) -> Launch:  # fmt: skip
    """The program of a command line. `names`: of udocker's containers -> images; `pyxis`: flags of the
    script's container. Raises Unclear."""
    launch = Launch(program=list(words))
    before: list[str] = []
    try:
        launch.container = containers.of_pyxis(pyxis, line, scope, reading)
        while launch.program != before:
            before = launch.program
            variables, launch.program = past_wrappers(before)
            reading.pass_on(variables, line)
            if not launch.program:
                raise Unclear("no program is given")
            _peel(launch, line, scope, reading, names)
    except Mistake as mistake:
        raise Unclear(mistake.message, "the image") from None
    if launch.starter and ":" in before:
        raise Unclear(f"{launch.starter} starts several programs")
    if inner := next((word for word in before[1:] if posixpath.basename(word) in _STARTERS), ""):
        raise Unclear(f"{inner} may start ranks below {before[0]}", "the ranks")
    return launch


def past_wrappers(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The variables that `env` sets, and the words after programs that only start another one. Raises
    Unclear."""
    variables, left = [], list(words)
    while left and posixpath.basename(left[0]) in _WRAPPERS and left[1:2] not in ([], ["-v"]):
        name = posixpath.basename(left.pop(0))
        list(_options(name, name, left))
        while name == "env" and left and re.match(r"[A-Za-z_]\w*=", left[0]):
            variables.append(left.pop(0))
    return variables, left


def _peel(launch: Launch, line: int, scope: Scope, reading: Reading, names: Mapping[str, str]) -> None:
    """Take one starter of ranks or container away from `launch.program`."""
    words = launch.program
    name, python_module = posixpath.basename(words[0]), module(words)
    if python_module in ("torch.distributed.run", "torch.distributed.launch"):
        name = "torchrun"
    if name == "srun":
        _start(launch, name)
        launch.request, found = directives.step(words[1:], line, reading)
        launch.program = list(found.rest)
        _enter(launch, containers.of_pyxis(found.flags, line, scope, reading))
    elif name in _INNER:
        _start(launch, name)
        _inner(launch, name, python_module, line, reading)
    elif name in _OPTIONS:
        _start(launch, name)
        _mpirun(launch, line, reading)
    elif name in containers.TOOLS and {"exec", "run"} & set(words[1:8]):
        container, launch.program = containers.read(words, line, scope, reading, names)
        _enter(launch, container)
    elif _UNREAD.fullmatch(name) or name in containers.TOOLS or python_module.startswith("accelerate"):
        subject = "the image" if name in containers.TOOLS else "the ranks"
        raise Unclear(f"{' '.join(words[:2])} is not read", subject)
    elif re.fullmatch(r"(?:ba|da|z|k)?sh", name) and len(words) == 3 and re.fullmatch(r"-l?c|-cl", words[1]):
        _shell(launch, reading, line)


def _enter(launch: Launch, container: Container | None) -> None:
    if launch.container is not None and container is not None:
        raise Unclear("a container in a container", "the image")
    launch.container = container or launch.container


def _start(launch: Launch, name: str) -> None:
    other = launch.inner_starter or ("" if name in _INNER else launch.starter)
    if other:
        raise Unclear(f"{name} in {other}: both start ranks", "the ranks")
    if name in _INNER:
        launch.inner_starter = name
    else:
        launch.starter = name


def module(words: Sequence[str]) -> str:
    """The module of `python -m MODULE`; "" of another command."""
    found = re.match(r"(?:\S*/)?python[\d.]*(?: -[uBsO])* -m (\S+)", " ".join(words[:7]))
    return found[1] if found else ""


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"0*[1-9]\d{0,6}", text):
        raise Unclear(f"{name} {text} is no number", "the ranks")
    return int(text)


def _options(program: str, table: str, left: list[str]) -> Iterator[tuple[str, str]]:
    """The options with their values, taken from `left`. Raises Unclear for another one: it may have a
    value."""
    known = _OPTIONS[table]
    while left and left[0].startswith("-"):
        text, equals, value = left.pop(0).partition("=")
        name = text.lstrip("-").replace("_", "-") if len(text) > 2 else text[1:]
        if name not in known:
            raise Unclear(f"{program} {text} is not known: it may have a value")
        missing = known[name] - bool(equals)
        if missing > len(left):
            raise Unclear(f"{program} {text} has no value")
        values = [value] if equals else []
        yield name, " ".join([*values, *(left.pop(0) for _ in range(missing))])


def _mpirun(launch: Launch, line: int, reading: Reading) -> None:
    program, left = launch.starter, launch.program[1:]
    for name, value in _options(program, program, left):
        if name in _TOTAL:
            launch.tasks = _number(name, value)
        elif name in _PER_NODE:
            launch.per_node = _number(name, value)
        elif name == "map-by" and (found := re.fullmatch(r"ppr:(\d{1,7}):node", value)):
            launch.per_node = int(found[1])
        elif name == "map-by" and ("ppr:" in value or "PE=" in value):
            raise Unclear(f"{program} --map-by {value}: ranks by sockets or cores", "the ranks")
        elif name in _HOSTS and value.partition(":")[0] != "localhost":
            if not reading.request.scheduler:
                raise Unclear(f"{program} --{name} {value}: no scheduler chooses the nodes", "the nodes")
            reading.differ(line, "the list of hosts: ranks start on the nodes of the scheduler's job")
        elif name in ("x", "genv", "env"):
            if "=" not in value and name != "x":
                value = f"{value}={left.pop(0) if left else ''}"
            if "=" in value:
                reading.pass_on([value], line)
        else:
            reading.differ(line, f"{program} {name}: {_CHOSEN}")
    launch.program = left


def _inner(launch: Launch, name: str, of_python: str, line: int, reading: Reading) -> None:
    """What torchrun or deepspeed starts: a script, in the Python that runs it, or that lies beside it."""
    words, options = launch.program, {}
    left = words[words.index("-m") + 2 :] if of_python else words[1:]
    for option, value in _options(name, name, left):
        options[option] = value
        if option in ("m", "module", "no-python"):
            break
    each = options.get("nproc-per-node", options.get("num-gpus", "1" if name == "torchrun" else "gpu"))
    nodes = options.get("nnodes", options.get("num-nodes", "1" if "standalone" in options else ""))
    launch.inner = 0 if each in ("gpu", "auto") else _number(name, each)
    launch.inner_nodes = _number(name, nodes) if nodes else None
    if of_python == "torch.distributed.launch" and "use-env" not in options:
        reading.differ(line, "torch.distributed.launch passes --local_rank to the script: read LOCAL_RANK")
    python = words[0] if of_python else posixpath.join(posixpath.dirname(words[0]), "python")
    runs_module = ["-m"] if {"m", "module"} & {*options} else []
    launch.program = left if "no-python" in options else [python, *runs_module, *left]


def _shell(launch: Launch, reading: Reading, line: int) -> None:
    """`bash -c TEXT` with one plain command is that command; else it stays, if it starts no ranks."""
    text = launch.program[2]
    try:
        match bash.parse(text):
            case [bash.Statement(keyword="", commands=[bash.Command(words=raw, redirections=())])]:
                words = [word for each in raw for word in Scope({}, "").words(each)]
                if words and "=" not in words[0]:
                    launch.program = words
                    return
    except bash.Unreadable as fault:
        raise Unclear(f"bash -c: {fault.reason}") from None
    except Unclear:
        pass
    if found := re.search(rf"\b({'|'.join(_STARTERS)}|accelerate|torch\.distributed)\b", text):
        raise Unclear(f"{found[1]} in a shell's command starts ranks", "the ranks")
    if found := re.search(r"\$\{?((?:SLURM|PBS|SGE|LSB|FLUX|PMI|OMPI)_?\w*)", text):
        raise Unclear(f"a shell's command uses {found[1]}, which the job has not")
    reading.differ(line, "a shell runs the command's text, in the container, with the job's variables only")
