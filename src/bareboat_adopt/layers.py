"""What precedes the program on a command line: programs that start ranks, and containers. One table has the
options of the first, the tables of the shims those of containers; another option is refused: it may have a
value."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from bareboat_adopt import directives
from bareboat_adopt.reading import Reading, Request
from bareboat_adopt.values import Unclear
from bareboat_shim import apptainer_table, pyxis_mounts, pyxis_settings, udocker_table
from bareboat_shim.table import Mistake, Table, parse

#: Programs, and their options; "=" is after those with a value, "==" after one with two.
_TABLE = {
    "mpirun mpiexec orterun prterun mpiexec.hydra mpirun.openmpi mpiexec.openmpi ibrun aprun":
        "np= n= c= ntasks= num-proc= ppn= npernode= N= perhost= ranks-per-node= H= host= hosts= hostfile= "
        "machinefile= f= default-hostfile= x= mca== gmca== bind-to= map-by= rank-by= prefix= "
        "bootstrap= iface= rmk= launcher= cpu-bind= d= allow-run-as-root oversubscribe v verbose bynode "
        "display-map report-bindings tag-output bind-to-core nooversubscribe genvall envall q l",
    "horovodrun":
        "np= num-proc= H= hosts= hostfile= p= ssh-port= start-timeout= network-interface= gloo mpi verbose "
        "autotune disable-cache",
    "torchrun":
        "nnodes= nproc-per-node= node-rank= master-addr= master-port= rdzv-id= rdzv-backend= rdzv-endpoint= "
        "rdzv-conf= max-restarts= monitor-interval= start-method= log-dir= redirects= tee= role= local-addr= "
        "local-ranks-filter= numa-binding= standalone use-env no-python m module",
    "deepspeed": "num-gpus= num-nodes= hostfile= H= master-port= master-addr= launcher= no-local-rank",
}  # fmt: skip
#: Program -> option -> number of its values.
_OPTIONS = {
    program: {text.rstrip("="): text.count("=") for text in options.split()}
    for programs, options in _TABLE.items()
    for program in programs.split()
}
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
_CHOSEN = "the planner chooses the transport and where ranks run: bareboat plan shows it"
_SHIMS: dict[str, Table] = {
    "apptainer": apptainer_table.TABLE, "singularity": apptainer_table.TABLE, "udocker": udocker_table.TABLE,
}  # fmt: skip
TOOLS = tuple(_SHIMS)
_STARTERS = frozenset({*_OPTIONS, *TOOLS, "srun"})
#: What starts ranks, or depends on them, in a text that a shell runs.
_IN_TEXT = re.compile(
    rf"\b(?:{'|'.join(_STARTERS)}|accelerate|torch\.distributed)\b|\$\{{?(?:SLURM|PBS|SGE|LSB|FLUX|PMI|OMPI)"
)
#: Flags that are read, those whose effect a job has anyway, and those that change nothing here.
_DONE = {
    "nv", "rocm", "writable-tmpfs", "pwd", "entrypoint", "bind", "volume", "env", "cleanenv", "contain",
    "containall", "compat", "no-home", "pid", "ipc", "uts", "userns", "no-eval", "rm", "hostenv", "hostauth",
    "no-umask", "user", "containerauth", "bindhome", "quiet", "silent", "workdir",
}  # fmt: skip
_HOME = 'the home directory of the container is empty; for the real one: mounts = ["~:~:rw"]'
#: In place of a program: the image's own.
IMAGES_COMMAND = "\x00image\x00"


class Launch(Struct):
    """A program and what starts it. `tasks`, `per_node`: of the outer starter; `inner`: the ranks that a
    starter in each of its tasks starts (0: one for each GPU); `inner_nodes`: the nodes that it names.
    `image`: of the container, as a job file names it, or ""; `workdir`: in it, None for the image's, "." for
    that outside; `entrypoint`: whether the image's own precedes the command. `is_read`: wholly."""

    program: list[str]
    starter: str = ""
    request: Request | None = None
    tasks: int | None = None
    per_node: int | None = None
    inner_starter: str = ""
    inner: int = 1
    inner_nodes: int | None = None
    image: str = ""
    gpus: bool = False
    workdir: str | None = "."
    entrypoint: bool | tuple[str, ...] = False
    mounts: list[tuple[str, str, bool]] = field(default_factory=list)
    writable: bool = False
    is_read: bool = False


def read(launch: Launch, line: int, reading: Reading) -> None:
    """Take what surrounds the program away from its command line. Raises Unclear."""
    before: list[str] = []
    try:
        _enter_pyxis(launch, reading.pyxis, line, reading)
        while launch.program != before:
            before = launch.program = past_builtins(launch.program)
            if not before:
                raise Unclear("no program is given")
            _peel(launch, line, reading)
    except Mistake as mistake:
        raise Unclear(mistake.message, "the image") from None
    if launch.starter and ":" in before:
        raise Unclear(f"{launch.starter} starts several programs")
    if inner := next((word for word in before[1:] if posixpath.basename(word) in _STARTERS), ""):
        raise Unclear(f"{inner} may start ranks below {before[0]}", "the ranks")
    launch.is_read = True


def past_builtins(words: Sequence[str]) -> list[str]:
    """The words after commands of the shell that only start what follows them."""
    left = list(words)
    while left[1:] and left[0] in ("time", "exec", "command") and not left[1].startswith("-"):
        left.pop(0)
    return left


def _peel(launch: Launch, line: int, reading: Reading) -> None:
    """Take one starter of ranks or container away from `launch.program`."""
    words = launch.program
    name, python_module = posixpath.basename(words[0]), module(words)
    if python_module in ("torch.distributed.run", "torch.distributed.launch"):
        name = "torchrun"
    if name == "srun":
        _start(launch, name)
        launch.request, found = directives.step(words[1:], line, reading)
        launch.program = list(found.rest)
        _enter_pyxis(launch, found.flags, line, reading)
    elif name in _INNER:
        _start(launch, name)
        _inner(launch, name, python_module, line, reading)
    elif name in _OPTIONS:
        _start(launch, name)
        _mpirun(launch, line, reading)
    elif name in TOOLS and {"exec", "run"} & set(words[1:8]):
        _enter(launch, line, reading)
    elif _UNREAD.fullmatch(name) or name in TOOLS or python_module.startswith("accelerate"):
        subject = "the image" if name in TOOLS else "the ranks"
        raise Unclear(f"{' '.join(words[:2])} is not read", subject)
    elif re.fullmatch(r"(?:ba|da|z|k|c|tc)?sh", name) and re.match(r"(-\w+ )*-\w*c", " ".join(words[1:4])):
        is_plain = len(words) == 3 and re.fullmatch(r"[\w./-]+( [\w./=:,@+%-]+)*", words[2])
        launch.program = words[2].split() if is_plain else words
        if not is_plain and (ranks := _IN_TEXT.search(" ".join(words))):
            raise Unclear(f"{ranks[0]} in a shell's command: ranks may start there", "the ranks")


def _start(launch: Launch, name: str) -> None:
    is_inner = name in _INNER
    if launch.inner_starter or (launch.starter and not is_inner):
        raise Unclear(f"{name} in {launch.inner_starter or launch.starter}: both start ranks", "the ranks")
    launch.starter, launch.inner_starter = (launch.starter, name) if is_inner else (name, "")


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
        elif name == "map-by" and ("ppr:" in value or "PE=" in value):
            raise Unclear(f"{program} --map-by {value}: ranks by nodes, sockets or cores", "the ranks")
        elif name in _HOSTS and value.partition(":")[0] != "localhost":
            if not reading.scheduler:
                raise Unclear(f"{program} --{name} {value}: no scheduler chooses the nodes", "the nodes")
            reading.differ(line, "the list of hosts: ranks start on the nodes of the scheduler's job")
        elif name == "x":
            if "=" in value:
                reading.pass_on([value], line)
            elif not reading.scope.is_known(value):
                reading.skip(line, f"{program} -x {value}: a variable of your shell")
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


def _enter(launch: Launch, line: int, reading: Reading) -> None:
    """Take a container's tool and its image away from the program. Raises Mistake and Unclear."""
    words, program = launch.program, posixpath.basename(launch.program[0])
    is_udocker = program == "udocker"
    found = parse(_SHIMS[program], words[1:], {})
    if launch.image or not found.words or found.has("overlay"):
        raise Mistake(f"{program} {found.verb.name} without an image, in a container, or with files above it")
    image, *command = found.words
    kind, colon, rest = image.partition("://")
    launch.image, launch.program = rest if colon else image, command or [IMAGES_COMMAND]
    launch.gpus, launch.writable = found.has("nv") or found.has("rocm"), found.has("writable-tmpfs")
    launch.entrypoint = is_udocker or found.verb.name == "run" or not command
    if found.has("entrypoint"):
        launch.entrypoint = (found.value("entrypoint") or "",) if found.value("entrypoint") else False
    launch.workdir = found.value("workdir") if is_udocker else found.value("pwd") or "."
    if is_udocker:
        launch.image = reading.containers.get(image, image)
        if launch.image == image and not re.search(r"[:/]", image):
            raise Mistake(f"{image} may be a container of udocker that this file does not create")
    elif colon and kind != "docker":
        raise Mistake(f"{kind}:// is not supported", "name a SIF file, a directory, or docker://NAME:TAG")
    else:
        if not colon and not image.startswith(("/", "./", "../", "~")):
            launch.image = f"./{image}"
        if not any(found.has(key) for key in ("no-home", "containall", "contain", "home")):
            reading.differ(line, _HOME)
    for spec in (*found.mounts("bind"), *found.values("volume")):
        source, target, options = [*spec.split(":", 2), "", ""][:3]
        if options not in ("", "ro", "rw"):
            raise Mistake(f"{spec}: the option {options} is not supported")
        _mount(launch, source, target or source, reading, is_writable=options != "ro")
    for value in found.values("env"):
        reading.pass_on([value] if is_udocker else re.split(r",(?=[A-Za-z_]\w*=)", value), line)
    for flag in found.verb.flags:
        if found.has(flag.key) and flag.key not in _DONE and not flag.meaning.startswith("no effect"):
            reading.skip(line, f"{flag.names[0]} {found.value(flag.key)}".rstrip())


def _enter_pyxis(launch: Launch, flags: Sequence[tuple[str, str]], line: int, reading: Reading) -> None:
    """Enter the container of Pyxis' flags, if they name an image. Raises Mistake and Unclear."""
    found = pyxis_settings.read([flags], {})
    if not found.is_given:
        return
    host, hash_, rest = (found.image or "").removeprefix("docker://").partition("#")
    if launch.image or not host + rest:
        raise Mistake("a container in another one, or by its name, without an image")
    launch.image = f"{host.rpartition('@')[2]}/{rest}" if hash_ else host
    launch.workdir, launch.entrypoint = found.workdir, found.entrypoint is True
    launch.writable = found.writable is True
    for mount in (each for text in found.mounts for each in pyxis_mounts.parse(text)):
        if mount.source in ("tmpfs", "umount"):
            reading.skip(line, f"--container-mounts {mount.source}:{mount.target}")
        else:
            _mount(launch, mount.source, mount.target, reading, is_writable=not mount.is_read_only)
    if found.mount_home:
        _mount(launch, "~", "~", reading, is_writable=True)
    kept = (*found.names, *found.unshare, found.name, found.save, "as root" * found.remap_root)
    if unread := ", ".join(filter(None, kept)):
        reading.skip(line, f"flags --container-…: {unread}")


def _mount(launch: Launch, source: str, target: str, reading: Reading, *, is_writable: bool) -> None:
    scope = reading.scope
    paths = [scope.value("HOME") + path[1:] if path.startswith("~") else path for path in (source, target)]
    source, target = (posixpath.normpath(posixpath.join(scope.directory, path)) for path in paths)
    launch.mounts.append((source, target, is_writable))
