"""What precedes the program on a command line: programs that start ranks, and containers."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from bareboat_adopt import amounts, bash, containers, slurm
from bareboat_adopt.containers import Container
from bareboat_adopt.reading import Reading, Request, Value
from bareboat_adopt.values import Scope, Unknown, gap
from bareboat_shim.table import Mistake

_MPIRUN = ("mpirun", "mpiexec", "orterun", "prterun", "mpirun_rsh", "mpiexec.hydra", "mpirun.openmpi",
           "mpiexec.openmpi", "mpirun.mpich", "mpiexec.mpich", "ibrun", "aprun")  # fmt: skip
#: Options of mpirun of Open MPI, MPICH and Intel MPI: total of ranks, and ranks on each node.
_TOTAL = ("-np", "-n", "--n", "--np", "-c", "--ntasks")
_PER_NODE = ("-ppn", "--ppn", "-npernode", "--npernode", "-N", "-perhost", "--perhost", "-ranks-per-node")
_NODES = ("-hostfile", "--hostfile", "-machinefile", "--machinefile", "-f", "--default-hostfile")
_HOSTS = ("-H", "-host", "--host", "-hosts", "--hosts")
#: Options that the job file does not need -> the number of their values.
_MPI_LEFT = {
    **dict.fromkeys(("-mca", "--mca", "-gmca", "--gmca", "-genv", "-env", "--pmixmca", "--prtemca"), 2),
    **dict.fromkeys((
        "-x", "--bind-to", "-bind-to", "--map-by", "-map-by", "--rank-by", "-rank-by", "-bootstrap", "-iface",
        "-rmk", "-launcher", "--launcher", "-prefix", "--prefix", "--cpu-bind", "-binding", "--pe", "-d",
        "--depth", "-cc", "-genvlist", "--output-filename", "-outfile-pattern", "--timeout", "--tune", "-am",
        "--cpus-per-proc"), 1),
    **dict.fromkeys((
        "--allow-run-as-root", "-allow-run-as-root", "--oversubscribe", "-oversubscribe", "-v", "--verbose",
        "-bynode", "--bynode", "-bycore", "-bysocket", "-display-map", "--display-map", "--report-bindings",
        "-report-bindings", "--tag-output", "-tag-output", "--bind-to-core", "-bind-to-core",
        "--nooversubscribe", "-nooversubscribe", "-genvall", "-envall", "-q", "-l", "--use-hwthread-cpus",
        "--display-allocation", "-print-all-exitcodes"), 0),
}  # fmt: skip
_HOROVOD = (
    "-np", "--num-proc", "-H", "--hosts", "-p", "--ssh-port", "--start-timeout", "--network-interface",
    "--min-np", "--max-np", "--fusion-threshold-mb", "--cycle-time-ms", "--timeline-filename", "--log-level",
    "-hostfile", "--hostfile", "--mpi-args",
)  # fmt: skip
#: Options of accelerate launch: settings that it passes to the program, and others with a value.
_SETTINGS = (
    "config_file", "mixed_precision", "deepspeed_config_file", "zero_stage", "dynamo_backend",
    "gradient_accumulation_steps", "gradient_clipping", "fsdp_sharding_strategy",
)  # fmt: skip
_ACCELERATE = (
    *_SETTINGS, "num_processes", "num_machines", "machine_rank", "main_process_ip", "main_process_port",
    "gpu_ids", "num_cpu_threads_per_process", "rdzv_backend", "rdzv_conf", "max_restarts", "monitor_interval",
    "deepspeed_hostfile", "role", "tee",
)  # fmt: skip
#: Programs that start ranks, and are not read.
_UNREAD_STARTERS = re.compile(
    r"jsrun|lrun|flux|ccc_mprun|mpprun|yhrun|prun|poe|charmrun|(mpirun|mpiexec)[._]\w+|dmtcp_srun"
)
#: Programs that start containers, and have no table.
_UNREAD = ("sarus", "ch-run", "podman-hpc", "pcocc-rs", "enroot", "bwrap", "proot")
_CHOSEN = "the planner chooses the transport and where ranks run: bareboat plan shows it"
_TORCHRUN = {
    **dict.fromkeys(("nnodes", "nproc_per_node"), ""),
    **dict.fromkeys(("node_rank", "master_addr", "master_port", "rdzv_id", "rdzv_backend", "rdzv_endpoint",
                     "rdzv_conf", "max_restarts", "monitor_interval", "start_method", "log_dir", "redirects",
                     "tee", "role", "local_addr", "local_ranks_filter", "rdzv_timeout", "numa_binding"), "1"),
    **dict.fromkeys(("standalone", "use_env"), "0"),
}  # fmt: skip


class Refusal(Exception):
    """The command line is not clear. `subject`: the command, the ranks, the GPUs, the image, …"""

    def __init__(self, subject: str, reason: str) -> None:
        super().__init__(reason)
        self.subject = subject
        self.reason = reason


class Launch(Struct):
    """A program and what starts it. `tasks`, `per_node`, `nodes`: of the outer starter; `inner`: the ranks
    that a starter in each of its tasks starts ("gpus": one for each GPU); `inner_nodes`: the nodes that it
    names."""

    program: list[str]
    starter: str = ""
    request: Request | None = None
    tasks: int | None = None
    per_node: int | None = None
    nodes: int | None = None
    inner_starter: str = ""
    inner: int | str | None = None
    inner_nodes: int | None = None
    container: Container | None = None


def read(words: Sequence[str], line: int, scope: Scope, reading: Reading, names: Mapping[str, str]) -> Launch:
    """The program of a command line. `names`: of udocker's containers -> images. Raises Refusal."""
    launch = Launch(program=list(words))
    for _ in range(20):
        left = launch.program
        if not left:
            raise Refusal("the command", "no program is given")
        if len(left) > 1 and re.fullmatch(r"python[\d.]*", left[0]) and left[1] in ("torchrun", "deepspeed"):
            launch.program = left = left[1:]
        before = list(left)
        _peel(launch, line, scope, reading, names)
        if launch.program == before:
            return launch
    raise Refusal("the command", "too many programs that start another one")


def _peel(launch: Launch, line: int, scope: Scope, reading: Reading, names: Mapping[str, str]) -> None:
    """Take one layer away from `launch.program`."""
    words = launch.program
    name = posixpath.basename(words[0])
    joined = " ".join(words[:2])
    module = _module(words)
    if (
        name in ("time", "nohup", "exec", "command", "sudo", "setsid", "/usr/bin/time")
        or words[0] == "\\time"
    ):
        launch.program = words[1:]
        while launch.program[:1] and launch.program[0] in ("-p", "-v", "-a", "-E"):
            launch.program = launch.program[1:]
    elif name == "env":
        _env(launch, line, reading)
    elif name == "srun":
        _outer(launch, name)
        _srun(launch, line, scope, reading)
    elif name in _MPIRUN:
        _outer(launch, name)
        _mpirun(launch, line, reading)
    elif name == "horovodrun":
        _outer(launch, name)
        _horovodrun(launch, line, reading)
    elif name == "torchrun" or module in ("torch.distributed.run", "torch.distributed.launch"):
        _inner(launch, "torchrun")
        _torchrun(
            launch, words[1:] if name == "torchrun" else words[words.index("-m") + 2 :], module, line, reading
        )
    elif (name == "accelerate" and words[1:2] == ["launch"]) or module == "accelerate.commands.launch":
        _inner(launch, "accelerate launch")
        _accelerate(launch, words[2:] if module is None else words[words.index("-m") + 2 :])
    elif name == "deepspeed":
        _inner(launch, name)
        _deepspeed(launch)
    elif name == "shifter" or containers.is_one(words):
        _container(launch, line, scope, reading, names)
    elif _UNREAD_STARTERS.fullmatch(name):
        raise Refusal("the ranks", f"{name} starts ranks, and is not read")
    elif name in _UNREAD or containers.is_tool(name):
        raise Refusal("the image", f"{joined} is not read")
    elif joined in (
        "conda run",
        "mamba run",
        "micromamba run",
        "uv run",
        "poetry run",
        "pixi run",
        "pipenv run",
    ):
        raise Refusal(
            "the command", f"{joined} starts a program of another environment: name its Python in [capture]"
        )
    elif re.fullmatch(r"(?:ba|da|z|k)?sh", name) and len(words) == 3 and re.fullmatch(r"-l?c|-cl", words[1]):
        _shell(launch, reading, line)


def _container(launch: Launch, line: int, scope: Scope, reading: Reading, names: Mapping[str, str]) -> None:
    if launch.container is not None:
        raise Refusal("the image", "a container in a container")
    words = launch.program
    try:
        if posixpath.basename(words[0]) == "shifter":
            launch.container, launch.program = containers.of_shifter(words, line, scope, reading)
        else:
            launch.container, launch.program = containers.read(words, line, scope, reading, names)
    except Mistake as mistake:
        raise Refusal("the image", mistake.message) from None
    except Unknown as unknown:
        raise Refusal("the image", unknown.reason) from None


def _module(words: Sequence[str]) -> str | None:
    """The module of `python -m MODULE`."""
    if not re.fullmatch(r"python[\d.]*", posixpath.basename(words[0])) or "-m" not in words[:4]:
        return None
    at = words.index("-m")
    return (
        words[at + 1]
        if at + 1 < len(words) and all(w in ("-u", "-B", "-s", "-O") for w in words[1:at])
        else None
    )


def _interpreter(words: Sequence[str]) -> str:
    """The Python in which torchrun and its like run a script: the one that runs them, or lies beside them."""
    folder, name = posixpath.split(words[0])
    return words[0] if re.fullmatch(r"python[\d.]*", name) else posixpath.join(folder, "python")


def _outer(launch: Launch, name: str) -> None:
    if launch.starter or launch.inner_starter:
        raise Refusal("the ranks", f"{name} in {launch.starter or launch.inner_starter}: both start ranks")
    launch.starter = name


def _inner(launch: Launch, name: str) -> None:
    if launch.inner_starter:
        raise Refusal("the ranks", f"{name} in {launch.inner_starter}: both start ranks")
    launch.inner_starter = name


def _env(launch: Launch, line: int, reading: Reading) -> None:
    left = launch.program[1:]
    while left and re.match(r"[A-Za-z_]\w*=", left[0]):
        name, _, value = left.pop(0).partition("=")
        reading.environment[name] = Value(value, line)
    if left and left[0].startswith("-"):
        raise Refusal("the command", f"env {left[0]} is not read")
    launch.program = left


def _srun(launch: Launch, line: int, scope: Scope, reading: Reading) -> None:
    try:
        found = slurm.parse(launch.program[1:])
    except Mistake as mistake:
        raise Refusal("the command", f"srun: {mistake.message}") from None
    launch.request = slurm.step(found, line, reading)
    launch.program = list(found.rest)
    if found.pyxis:
        _pyxis(launch, found.pyxis, line, scope, reading)


def _pyxis(
    launch: Launch, flags: Sequence[tuple[str, str]], line: int, scope: Scope, reading: Reading
) -> None:
    try:
        launch.container = containers.of_pyxis(flags, line, scope, reading)
    except Mistake as mistake:
        raise Refusal("the image", mistake.message) from None


def _number(name: str, text: str) -> int:
    found = amounts.count(text)
    if not found:
        raise Refusal("the ranks", f"{name} {text} is no number")
    return found


def _mpirun(launch: Launch, line: int, reading: Reading) -> None:
    program = launch.starter
    left = launch.program[1:]
    while left and left[0].startswith("-"):
        word = left.pop(0)
        name, equals, attached = word.partition("=")

        def value(equals: str = equals, attached: str = attached, name: str = name) -> str:
            if equals:
                return attached
            if not left:
                raise Refusal("the command", f"{program} {name} has no value")
            return left.pop(0)

        if name in _TOTAL:
            launch.tasks = _number(name, value())
        elif name in _PER_NODE:
            launch.per_node = _number(name, value())
        elif name in ("--map-by", "-map-by") and (
            found := re.match(r"ppr:(\d{1,7}):node", left[0] if left else attached)
        ):
            value()
            launch.per_node = int(found[1])
        elif name in ("--map-by", "-map-by") and "ppr:" in (left[0] if left else attached):
            raise Refusal("the ranks", f"{program} {name} {value()}: ranks by sockets or cores")
        elif name in _NODES:
            _hostfile(value(), line, reading)
        elif name in _HOSTS:
            _hosts(launch, value(), line, reading)
        elif name == "-x" or name == "-genv" or name == "-env":
            _forwarded(name, left, line, reading, value)
        elif name in ("-wdir", "--wdir"):
            raise Refusal("the working directory", f"{program} {name} {value()}")
        elif name in _MPI_LEFT:
            for _ in range(_MPI_LEFT[name] - bool(equals)):
                value()
            reading.differ(line, f"{program} {name}: {_CHOSEN}")
        else:
            raise Refusal("the command", f"{program} {name} is not known: it may have a value")
    if ":" in left:
        raise Refusal("the command", f"{program} starts several programs")
    launch.program = left


def _forwarded(name: str, left: list[str], line: int, reading: Reading, value: Callable[[], str]) -> None:
    """A variable for the ranks: with a value, it is one of the job; else the job has it already."""
    variable, equals, text = value().partition("=")
    if name in ("-genv", "-env") and not equals:
        if not left:
            raise Refusal("the command", f"{name} {variable} has no value")
        equals, text = "=", left.pop(0)
    if equals:
        reading.environment[variable] = Value(text, line)


def _hostfile(text: str, line: int, reading: Reading) -> None:
    if reading.request.scheduler:
        reading.differ(line, "the list of hosts: ranks start on the nodes of the scheduler's job")
    else:
        raise Refusal("the nodes", f"the hosts are in {text}")


def _hosts(launch: Launch, text: str, line: int, reading: Reading) -> None:
    if gap(text) is not None:
        _hostfile(text, line, reading)
        return
    hosts = text.split(",")
    launch.nodes = len(hosts)
    slots = {found[1] if (found := re.fullmatch(r"[^:]+:(\d{1,7})", host)) else "" for host in hosts}
    if len(slots) != 1:
        raise Refusal("the ranks", f"hosts with different numbers of ranks: {text}")
    if (each := slots.pop()) and launch.tasks not in (None, int(each) * len(hosts)):
        raise Refusal("the ranks", f"{launch.tasks} ranks on {text}")
    if each:
        launch.per_node = int(each)
    if hosts[0].partition(":")[0] not in ("localhost", "127.0.0.1"):
        reading.differ(line, f"the hosts {text}: the scheduler chooses the nodes")


def _horovodrun(launch: Launch, line: int, reading: Reading) -> None:
    left = launch.program[1:]
    while left and left[0].startswith("-"):
        name, equals, attached = left.pop(0).partition("=")
        if name in _HOROVOD:
            if not equals and not left:
                raise Refusal("the command", f"horovodrun {name} has no value")
            value = attached if equals else left.pop(0)
            if name in ("-np", "--num-proc"):
                launch.tasks = _number(name, value)
            elif name in ("-H", "--hosts"):
                _hosts(launch, value, line, reading)
            elif name in ("-hostfile", "--hostfile"):
                raise Refusal("the nodes", f"the hosts are in {value}")
            elif name in ("--min-np", "--max-np"):
                raise Refusal("the ranks", f"horovodrun {name}: the number of ranks changes")
        elif name not in ("--gloo", "--mpi", "--verbose", "--autotune", "--disable-cache"):
            raise Refusal("the command", f"horovodrun {name} is not known: it may have a value")
    launch.program = left


def _torchrun(launch: Launch, words: Sequence[str], module: str | None, line: int, reading: Reading) -> None:
    python, left = _interpreter(launch.program), list(words)
    while left and left[0].startswith("-"):
        written, equals, attached = left.pop(0).partition("=")
        name = written.lstrip("-").replace("-", "_")
        if written in ("-m", "--module") or name == "no_python":
            launch.program = [python, "-m", *left] if name != "no_python" else left
            return
        if name not in _TORCHRUN:
            raise Refusal("the command", f"torchrun {written} is not known: it may have a value")
        if _TORCHRUN[name] == "0":
            launch.inner_nodes = 1 if name == "standalone" else launch.inner_nodes
            continue
        if not equals and not left:
            raise Refusal("the command", f"torchrun {written} has no value")
        value = attached if equals else left.pop(0)
        if name == "nproc_per_node":
            launch.inner = "gpus" if value in ("gpu", "auto") else _number(written, value)
        elif name == "nnodes":
            launch.inner_nodes = _number(written, value)
    launch.inner = launch.inner or 1
    if module == "torch.distributed.launch" and "--use_env" not in words and "--use-env" not in words:
        reading.differ(
            line,
            "torch.distributed.launch passes --local_rank to the script: read LOCAL_RANK instead",
        )
    launch.program = [python, *left]


def _accelerate(launch: Launch, words: Sequence[str]) -> None:
    python, left = _interpreter(launch.program), list(words)
    total = nodes = None
    config = ""
    while left and left[0].startswith("-"):
        written, equals, attached = left.pop(0).partition("=")
        name = written.lstrip("-").replace("-", "_")
        if name in ("multi_gpu", "cpu", "use_deepspeed", "use_fsdp", "same_network", "m", "module", "debug",
                    "tpu", "quiet", "q"):  # fmt: skip
            if name in ("m", "module"):
                left = ["-m", *left]
                break
            continue
        if name not in _ACCELERATE:
            raise Refusal("the command", f"accelerate launch {written} is not known: it may have a value")
        if not equals and not left:
            raise Refusal("the command", f"accelerate launch {written} has no value")
        value = attached if equals else left.pop(0)
        if name == "num_processes":
            total = _number(written, value)
        elif name == "num_machines":
            nodes = _number(written, value)
        elif name in _SETTINGS:
            config = f"{written} {value}"
    if config:
        raise Refusal("the command", f"accelerate launch {config}: settings that only accelerate passes on")
    if total is None:
        raise Refusal("the ranks", "accelerate launch without --num_processes follows its configuration")
    if total % (nodes or 1):
        raise Refusal("the ranks", f"{total} ranks on {nodes} nodes")
    launch.inner, launch.inner_nodes = total // (nodes or 1), nodes
    launch.program = [python, *left]


def _deepspeed(launch: Launch) -> None:
    python, left = _interpreter(launch.program), launch.program[1:]
    launch.inner = "gpus"
    while left and left[0].startswith("-"):
        written, equals, attached = left.pop(0).partition("=")
        if written == "--no_local_rank":
            continue
        if written not in ("--num_gpus", "--num_nodes", "--hostfile", "-H", "--master_port", "--master_addr",
                           "--include", "-i", "--launcher", "--exclude", "--node_rank"):  # fmt: skip
            raise Refusal("the command", f"deepspeed {written} is not known: it may have a value")
        if not equals and not left:
            raise Refusal("the command", f"deepspeed {written} has no value")
        value = attached if equals else left.pop(0)
        if written == "--num_gpus":
            launch.inner = _number(written, value)
        elif written == "--num_nodes":
            launch.inner_nodes = _number(written, value)
        elif written in ("--include", "-i") and (found := re.fullmatch(r"localhost:(\d+(?:,\d+)*)", value)):
            launch.inner = len(found[1].split(","))
        elif written in ("--include", "-i", "--exclude"):
            raise Refusal("the GPUs", f"deepspeed {written} {value}")
    launch.program = [python, *left]


def _shell(launch: Launch, reading: Reading, line: int) -> None:
    """`bash -c TEXT` with one plain command is that command; else it stays, if it starts no ranks."""
    text = launch.program[2]
    try:
        parsed = bash.parse(text)
    except bash.Unreadable as fault:
        raise Refusal("the command", f"bash -c: {fault.reason}") from None
    inner = list(bash.commands(parsed))
    if len(parsed) == 1 and len(inner) == 1 and not inner[0].redirections and not inner[0].assigned:
        words = [word.plain for word in inner[0].words]
        if all(word is not None for word in words) and not any(
            part.kind == "pattern" for word in inner[0].words for part in word.parts
        ):
            launch.program = [word for word in words if word is not None]
            return
    for each in inner:
        name = (each.words[0].plain or "") if each.words else ""
        if posixpath.basename(name) in (*_MPIRUN, "srun", "torchrun", "horovodrun", "deepspeed") or (
            name == "accelerate" or "torch.distributed" in text
        ):
            raise Refusal("the ranks", f"{name or 'torch.distributed'} in a shell's command starts ranks")
    if found := re.search(r"\$\{?((?:SLURM|PBS|SGE|LSB|FLUX|PMI|OMPI)_?\w*)", text):
        raise Refusal("the command", f"a shell's command uses {found[1]}, which the job has not")
    reading.differ(
        line, "a shell runs the command's text: it starts in the container, with the job's variables only"
    )
