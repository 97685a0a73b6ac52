"""The tables of a job file that are types of their own: their keys (`bareboat.model.keys`)."""

from typing import Annotated

from msgspec import Struct, field

from bareboat.model.keys import Key, check_keys
from bareboat.model.variables import check_name
from bareboat_base import ranges
from bareboat_base.errors import UsageError
from bareboat_base.ranges import Range

_MOST_RANKS = 10_000_000
#: Three years.
MOST_SECONDS = 100_000_000


def _check_paths(name: str, paths: tuple[str, ...]) -> None:
    if any("\0" in path for path in paths):
        raise UsageError(
            f"{name} contains a NUL byte, which no path has",
            key=name,
            remedy=ranges.setting(name, [each for each in paths if "\0" not in each]),
        )
    if "" in paths:
        what = "name" if name.endswith("programs") else "path"
        rest = [each for each in paths if each]
        raise UsageError(f"{name} has an empty {what}", key=name, remedy=ranges.setting(name, rest))


def _check_python(name: str, path: str) -> None:
    if not path.strip():
        remedy = ranges.setting(name, '"python3"')
        raise UsageError(f"{name} is empty", key=name, remedy=f"{remedy}, or remove it")


def _check_goals(name: str, goals: dict[str, float]) -> None:
    for goal, least in goals.items():
        check_name("the goal", goal, key=name)
        ranges.check(_GOAL, least, name=f"{name}.{goal}")


_GOAL = Range(-1e308, 1e308, "0.9", whole=False)


class Topology(Struct, frozen=True, kw_only=True):
    """The number of processes, their nodes, and the resources of each."""

    # fmt: off
    nodes: Annotated[int, Key(
        "number of nodes; more than one requires a scheduler",
        range=Range(1, 1_000_000, "1"), flags=("-N", "--nodes"), value="N", aliases=("num_nodes",),
    )] = 1
    ranks_per_node: Annotated[int, Key(
        "processes on each node",
        range=Range(1, 10_000, "1"), flags=("--nproc-per-node", "--ranks-per-node"), value="N",
        aliases=("nproc_per_node", "ntasks_per_node"),
    )] = 1
    cpus_per_rank: Annotated[int | None, Key(
        "processor cores of each process; also sets `OMP_NUM_THREADS` (1 if not given), where a launcher "
        "starts the ranks; `single` does not",
        range=Range(1, 10_000, "1"), flags=("--cpus-per-rank",), value="N", aliases=("cpus", "cpus_per_task"),
    )] = None
    gpus_per_rank: Annotated[int, Key(
        "GPUs of each process; makes the host's GPU driver available: [gpus.md](gpus.md)",
        range=Range(0, 1_000, "1"), flags=("--gpus-per-rank",), value="N", aliases=("gpus", "gpus_per_task"),
    )] = 0
    # fmt: on

    def __post_init__(self) -> None:
        check_keys(self, "topology.")
        if self.world_size > _MOST_RANKS:
            raise UsageError(
                f"{self.nodes:,} nodes x {self.ranks_per_node:,} ranks are {self.world_size:,} ranks; "
                f"at most {_MOST_RANKS:,} are supported",
                key="topology.ranks_per_node",
                remedy="set ranks_per_node = 1 under [topology]",
            )

    @property
    def world_size(self) -> int:
        return self.nodes * self.ranks_per_node


class Scheduling(Struct, frozen=True, kw_only=True):
    """The job's requests to the scheduler, in common terms that each scheduler translates."""

    # fmt: off
    partition: Annotated[str | None, Key(
        "partition or queue", default="the site's setting, else the cluster's default",
        is_name=True, flags=("-p", "--partition"), aliases=("queue",), is_setting=True,
        example='"PARTITION"', is_free=True,
    )] = None
    account: Annotated[str | None, Key(
        "account or project to charge", default="the site's setting, else your default",
        is_name=True, flags=("-A", "--account"), is_setting=True,
        example='"ACCOUNT"', is_free=True,
    )] = None
    qos: Annotated[str | None, Key(
        "quality of service", is_name=True, flags=("--qos",), is_setting=True,
        example='"QOS"', is_free=True,
    )] = None
    reservation: Annotated[str | None, Key(
        "reservation to run in", is_name=True, flags=("--reservation",), is_setting=True,
        example='"RESERVATION"', is_free=True,
    )] = None
    constraint: Annotated[str | None, Key(
        "required node features; in the scheduler's own syntax",
        is_name=True, flags=("--constraint",), is_setting=True,
        example='"FEATURE"', is_free=True,
    )] = None
    exclusive: Annotated[bool, Key("no other jobs on the nodes", used_by="scheduler")] = False
    mem_per_node_bytes: Annotated[int | None, Key(
        "memory on each node, such as 16GiB", default="the scheduler's",
        # Schedulers count in MiB; for Slurm, 0 means all memory.
        range=Range(2**20, 2**50, "8589934592", unit="bytes"),
        flags=("--mem",), value="SIZE", aliases=("mem", "memory"), used_by="scheduler",
    )] = None
    requeue: Annotated[bool, Key(
        "requeue the job when a node is lost; once, and whenever the job exits with code 75 (`EX_TEMPFAIL`)",
        used_by="scheduler",
    )] = True
    warning_s: Annotated[int, Key(
        "send SIGUSR1 to the ranks this long before `walltime_s` is over", default="0: none",
        range=Range(0, MOST_SECONDS, "120", unit="s"), used_by="scheduler",
    )] = 0
    watchdog_s: Annotated[int | None, Key(
        "end the run if no rank has printed or reported anything for this long "
        "([failures.md](failures.md#runs-that-hang)); also on this machine", default="0: none",
        range=Range(0, MOST_SECONDS, "600", unit="s"),
    )] = None
    after: Annotated[tuple[str, ...], Key(
        "runs, job IDs, or names of jobs, whose newest run is taken; the job starts after these have "
        "succeeded (Grid Engine: after they are over). An unknown name or ID is refused, and a run that has "
        "already failed", is_name=True, flags=("--after",), value="RUN",
        example='["12345"]', is_free=True, used_by="scheduler",
    )] = ()
    options: Annotated[tuple[str, ...], Key(
        'lines for the scheduler, passed unchanged, for what has no key: `["--mail-type=END"]`', is_name=True,
        example='["--mail-type=END"]', is_free=True, used_by="scheduler",
    )] = ()
    # fmt: on

    def __post_init__(self) -> None:
        check_keys(self, "scheduling.")


class CaptureRequest(Struct, frozen=True, kw_only=True):
    """The environment that `image = "capture"` refers to."""

    # fmt: off
    python: Annotated[str | None, Key(
        "Python interpreter of the environment to capture", kind="path or name",
        default="the active environment's", path="program", flags=("--python",), value="PATH",
        check=_check_python,
        example='"python3"', used_by="capture",
    )] = None
    include: Annotated[tuple[str, ...], Key(
        "programs, data and libraries to add to the capture", kind="list of paths",
        check=_check_paths, path="path",
        example='["/usr/share/zoneinfo"]', used_by="capture",
    )] = ()
    compiler: Annotated[bool | None, Key(
        "add this machine's compiler (what `CC` names, GCC, or clang) with its headers and libraries, and "
        "the assembler and linker of its CUDA toolkit, for `torch.compile`, Triton, DeepSpeed and others "
        "that compile at run time ([gpus.md](gpus.md#compilers)); if unset, the plan warns where such "
        "packages are installed", default="false",
    )] = None
    programs: Annotated[tuple[str, ...] | None, Key(
        'programs of this machine to add, with their libraries: `["git", "ffmpeg"]`; if unset, the plan '
        "warns about programs that installed packages are known to start "
        "([gpus.md](gpus.md#programs-that-packages-start))", kind="list of names or paths",
        check=_check_paths, path="program",
        example='["git"]',
    )] = None
    # fmt: on

    def __post_init__(self) -> None:
        check_keys(self, "capture.")


class ProveRequest(Struct, frozen=True, kw_only=True):
    """The design of a study."""

    # fmt: off
    repeats: Annotated[int, Key(
        "number of measured runs, without the warm-up",
        range=Range(2, 100_000, "10"), flags=("--repeats",), value="N", is_setting=True,
    )] = 10
    margin: Annotated[float, Key(
        "largest relative difference that counts as equal", kind="fraction",
        range=Range(0, 1, "0.02", whole=False, open=True), flags=("--margin",), value="X", is_setting=True,
    )] = 0.02
    confidence: Annotated[float, Key(
        "confidence level of intervals and tests", kind="fraction",
        range=Range(0.5, 1, "0.95", whole=False, open=True),
        flags=("--confidence",), value="X", is_setting=True,
    )] = 0.95
    seed: Annotated[int | None, Key(
        "random seed of the arms' order", default="drawn for each study",
        range=Range(0, 2**63 - 1, "1"), flags=("--seed",), value="N", is_setting=True,
    )] = None
    until_decided: Annotated[bool, Key(
        "end once the verdict is clear, after at most 40 runs, or --repeats, error rates are kept; it ends "
        "at a planned look that decides "
        "([measurement.md](measurement.md#studies-that-end-when-they-are-decided))",
        flags=("--until-decided",),
    )] = False
    window_s: Annotated[float, Key(
        "length of a window with the meter", range=Range(0.001, 3600, "0.2", whole=False, unit="s"),
    )] = 0.2
    layout: Annotated[str | None, Key(
        "whether each run reads the arms' programs and libraries into new places of the page cache "
        "([measurement.md](measurement.md#what-is-claimed-layouts-of-files-in-memory-this-machine))",
        default='"redrawn"', values=("redrawn", "kept"),
    )] = None
    goals: Annotated[dict[str, float], Key(
        "results that the training must reach, such as `test_accuracy`; a name that the warm-up does not "
        "report ends the study",
        range=_GOAL, check=_check_goals,
        example='{ test_accuracy = 0.9 }',
    )] = field(default_factory=dict)
    within_s: Annotated[float | None, Key(
        "time for the study, such as 2h: an estimate, which chooses the number of repeats by the warm-up; "
        "a study with `until_decided` pauses after it; [studies.md](studies.md#the-number-of-repeats)",
        range=Range(1, MOST_SECONDS, "7200", whole=False, unit="s"), flags=("--within",), value="TIME",
    )] = None
    baseline_python: Annotated[str | None, Key(
        "the interpreter of the environment on bare metal, for a pulled image "
        "([studies.md](studies.md#images-that-were-pulled))", kind="path or name", is_name=True,
        example='"python3"',
    )] = None
    attribution: Annotated[bool, Key(
        "separate the container's effect from the software stack's "
        "([studies.md](studies.md#container-or-software-stack))",
    )] = False
    scaling: Annotated[str | None, Key(
        "the factor that counts the workers ([studies.md](studies.md#scaling))", kind="name of a factor",
        default="`topology`'s", is_name=True,
        example='"nodes"',
    )] = None
    # fmt: on

    @property
    def is_timed(self) -> bool:
        """Whether the number of repeats follows from the time that the warm-up takes."""
        return self.within_s is not None and not self.until_decided

    def __post_init__(self) -> None:
        check_keys(self, "prove.")
