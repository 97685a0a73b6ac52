"""The job: what the user requests."""

from __future__ import annotations

import re

from msgspec import UNSET, Struct, UnsetType, field

from bareboat.model.names import check_name
from bareboat.model.sweep import Sweep
from bareboat.model.variables import check_passed_on, check_variable
from bareboat_base.errors import UsageError
from bareboat_base.expressions import expression
from bareboat_base.host_files import Mount
from bareboat_base.ranges import MOST_RANKS, check

DELIVERIES = ("auto", "shared", "node")
_ADDRESS = expression(r"[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9.-]{1,255}")


class Topology(Struct, frozen=True, kw_only=True):
    """The number of processes, their nodes, and the resources of each."""

    nodes: int = 1
    ranks_per_node: int = 1
    cpus_per_rank: int | None = None
    gpus_per_rank: int = 0

    def __post_init__(self) -> None:
        for name in ("nodes", "ranks_per_node", "gpus_per_rank"):
            check(f"topology.{name}", getattr(self, name))
        if self.cpus_per_rank is not None:
            check("topology.cpus_per_rank", self.cpus_per_rank)
        if self.world_size > MOST_RANKS:
            raise UsageError(
                f"{self.nodes:,} nodes x {self.ranks_per_node:,} ranks are {self.world_size:,} ranks; "
                f"at most {MOST_RANKS:,} are supported",
                key="topology.ranks_per_node",
                remedy="set ranks_per_node = 1 under [topology]",
            )

    @property
    def world_size(self) -> int:
        return self.nodes * self.ranks_per_node


class CaptureRequest(Struct, frozen=True, kw_only=True):
    """The environment that `image = "capture"` refers to. `compiler`: include this machine's C and C++
    compiler; unset: do not, and the plan reports what will not work. `programs`: of this machine, to
    include; unset: none, and the plan reports those that packages lack. `cuda`: False leaves
    out CUDA libraries that no other file needs, for machines without GPUs. `study`: keep the packages that
    only Bareboat's measurement uses; unset: unless the program cannot import them."""

    python: str | None = None
    include: tuple[str, ...] = ()
    compiler: bool | UnsetType = UNSET
    programs: tuple[str, ...] | UnsetType = UNSET
    cuda: bool | UnsetType = UNSET
    study: bool | UnsetType = UNSET

    def __post_init__(self) -> None:
        programs = () if self.programs is UNSET else self.programs
        for name, values in (("include", self.include), ("programs", programs)):
            if any("\0" in value for value in values):
                raise UsageError(
                    f"capture.{name} contains a NUL byte, which no path has",
                    key=f"capture.{name}",
                    remedy="correct the path",
                )
        if "" in programs:
            raise UsageError(
                "capture.programs has an empty name",
                key="capture.programs",
                remedy='set programs = ["git"], or leave it out',
            )
        if "" in self.include:
            raise UsageError(
                "capture.include has an empty path",
                key="capture.include",
                remedy='set include = ["data"], or remove it',
            )


class ProveRequest(Struct, frozen=True, kw_only=True):
    """The design of a study. `margin` is relative: 0.02 means that differences of 2 % count as equal.

    `within_s`: the time that the study may take; the number of repeats follows from it. `baseline_python`:
    the interpreter of the environment on bare metal, where the job's image was pulled. `attribution`: compare
    the environment on bare metal, the same in a container, and the image in a container. `scaling`: the
    factor that counts the workers. `quick`: at most `repeats` runs, as many as fit into about a minute.
    `until_decided`: at most `repeats` runs; the study ends early at one of a few looks that its design fixes.
    `seed`: of the order of the arms; unset: drawn for each study. `layout`: "kept" leaves the arms' files in
    the page cache as they are; unset: they are read again before each run.
    """

    repeats: int = 10
    margin: float = 0.02
    confidence: float = 0.95
    window_s: float = 0.2
    goals: dict[str, float] = field(default_factory=dict)
    # Unset unless requested, so that other plans keep their digests.
    seed: int | UnsetType = UNSET
    until_decided: bool | UnsetType = UNSET
    within_s: float | UnsetType = UNSET
    baseline_python: str | UnsetType = UNSET
    attribution: bool | UnsetType = UNSET
    scaling: str | UnsetType = UNSET
    quick: bool | UnsetType = UNSET
    layout: str | UnsetType = UNSET

    @property
    def is_timed(self) -> bool:
        """Whether the number of repeats follows from the time that the warm-up takes."""
        return self.within_s is not UNSET or self.quick is True

    def __post_init__(self) -> None:
        for name in ("repeats", "margin", "confidence", "window_s"):
            check(f"prove.{name}", getattr(self, name))
        if self.seed is not UNSET:
            check("prove.seed", self.seed)
        if self.until_decided is True and self.is_timed:
            raise UsageError(
                "until_decided chooses the number of runs by its own rule",
                key="prove.until_decided",
                remedy="remove quick and within_s, or until_decided",
            )
        if self.within_s is not UNSET:
            check("prove.within_s", self.within_s)
        if self.layout not in (UNSET, "redrawn", "kept"):
            raise UsageError(
                f'prove.layout is {self.layout!r}; it must be "redrawn" or "kept"',
                key="prove.layout",
                remedy='set layout = "redrawn" under [prove], or remove it',
            )
        for name in ("baseline_python", "scaling"):
            if (text := getattr(self, name)) is not UNSET:
                check_name(f"prove.{name}", text, key=f"prove.{name}")
        for goal, least in self.goals.items():
            check_name("the goal", goal, key="prove.goals")
            check("prove.goals", least, name=f"prove.goals.{goal}")


class Scheduling(Struct, frozen=True, kw_only=True):
    """The job's requests to the scheduler, in common terms that each scheduler translates.

    `after`: jobs that must complete first: job IDs or run names. `warning_s`: how long before the end of
    `walltime_s` the ranks get SIGUSR1. `requeue`: the job is requeued when a node is lost, and when it exits
    with code 75 (sysexits' EX_TEMPFAIL). `options`: lines for the scheduler, unchanged, for everything else.
    `watchdog_s`: the run is terminated when no rank has printed or reported anything for this long.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    constraint: str | None = None
    exclusive: bool = False
    mem_per_node_bytes: int | None = None
    requeue: bool = True
    warning_s: int = 0
    after: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    watchdog_s: int | UnsetType = UNSET

    def __post_init__(self) -> None:
        check("scheduling.warning_s", self.warning_s)
        if self.watchdog_s is not UNSET:
            check("scheduling.watchdog_s", self.watchdog_s)
        if self.mem_per_node_bytes is not None:
            check("scheduling.mem_per_node_bytes", self.mem_per_node_bytes)
        for name in ("partition", "account", "qos", "reservation", "constraint"):
            if (text := getattr(self, name)) is not None:
                check_name(f"scheduling.{name}", text, key=f"scheduling.{name}")
        for name in ("after", "options"):
            for text in getattr(self, name):
                check_name(f"scheduling.{name}", text, key=f"scheduling.{name}")


class Job(Struct, frozen=True, kw_only=True):
    """What to run. Paths are absolute: the job file's reader resolves them against its directory.

    Without a `command` the image's own process runs. `entrypoint`: what precedes the command: True for the
    image's, False for nothing, or words; None is False with a command and True without. `environment_from`:
    environment variables passed on by name, whose values are never stored. `workdir`: None is the image's,
    with nothing of the host mounted there. `writable`: the command may write anywhere in the image; changes
    are discarded with the container. `form`: the image as a "tree" of files or as one "file"; None: the
    planner chooses. `sweep`: the points at which the job runs; unset, and not part of its digest, when it is
    not a sweep. `delivery`: where ranks read the image's tree: "shared" from the store, "node" from a copy
    that each node makes once in its directory `node_scratch`, or "auto". `site_layer`: what is added to the
    image for this site; unset, likewise, when nothing is. `fabric`: what happens when ranks on several nodes
    fall back to TCP although there is a fabric: "mark" (also when unset) reports and records it, "require"
    terminates the job. `notify`: what happens when the run ended: "mail" or an address, for a mail from the
    scheduler, or a command of the host. `seccomp`: False keeps only the part of the system call filter that
    protects the terminal. `kernel_cache`: False keeps no compiled GPU kernels between runs.
    """

    name: str
    command: tuple[str, ...] = ()
    entrypoint: bool | tuple[str, ...] | None = None
    workdir: str | None
    image: str = "capture"
    topology: Topology = field(default_factory=Topology)
    mounts: tuple[Mount, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    environment_from: tuple[str, ...] = ()
    walltime_s: int | None = None
    engine: str | None = None
    launcher: str | None = None
    scheduler: str | None = None
    scheduling: Scheduling = field(default_factory=Scheduling)
    modules: tuple[str, ...] = ()
    writable: bool = False
    form: str | None = None
    site_layer: tuple[str, ...] | UnsetType = UNSET
    capture: CaptureRequest = field(default_factory=CaptureRequest)
    prove: ProveRequest = field(default_factory=ProveRequest)
    sweep: Sweep | UnsetType = UNSET
    # Unset unless requested, so that other plans keep their digests.
    delivery: str | UnsetType = UNSET
    node_scratch: str | UnsetType = UNSET
    fabric: str | UnsetType = UNSET
    notify: str | tuple[str, ...] | UnsetType = UNSET
    seccomp: bool | UnsetType = UNSET
    kernel_cache: bool | UnsetType = UNSET

    def __post_init__(self) -> None:
        check_name("name", self.name, key="name")
        for key in ("engine", "launcher", "scheduler"):
            if (text := getattr(self, key)) is not None:
                check_name(key, text, key=key)
        if self.walltime_s is not None:
            check("walltime_s", self.walltime_s)
        self._check_choices()
        self._check_command()
        self._check_variables()
        self._check_parts()

    def _check_choices(self) -> None:
        if self.form not in (None, "tree", "file"):
            raise UsageError(
                f'form is {self.form!r}; it must be "tree" or "file"', key="form", remedy='set form = "tree"'
            )
        if self.delivery not in (UNSET, *DELIVERIES):
            raise UsageError(
                f'delivery is {self.delivery!r}; it must be "auto", "shared" or "node"',
                key="delivery",
                remedy='set delivery = "auto"',
            )
        if self.node_scratch is not UNSET:
            check_node_scratch(self.node_scratch)
        if self.fabric not in (UNSET, "mark", "require"):
            raise UsageError(
                f'fabric is {self.fabric!r}; it must be "mark" or "require"',
                key="fabric",
                remedy='set fabric = "mark"',
            )
        if self.notify is not UNSET:
            check_notify(self.notify)
        if self.writable and self.form == "file":
            raise UsageError(
                'writable = true and form = "file" cannot be combined: an image file is read-only',
                key="form",
                remedy="remove one of them",
            )
        if self.capture.cuda is False and self.topology.gpus_per_rank:
            raise UsageError(
                "capture.cuda is false, which leaves CUDA libraries out, but the job requests GPUs",
                key="capture.cuda",
                remedy="remove cuda from [capture], or set gpus_per_rank = 0 under [topology]",
            )

    def _check_command(self) -> None:
        if self.command and not self.command[0]:
            raise UsageError(
                "the job has no command", key="command", remedy='set command = ["python", "train.py"]'
            )
        if isinstance(self.entrypoint, tuple) and not (self.entrypoint and self.entrypoint[0]):
            raise UsageError(
                "the entrypoint is empty",
                key="entrypoint",
                remedy="set entrypoint = false for none",
            )
        words = self.entrypoint if isinstance(self.entrypoint, tuple) else ()
        for key, given in (("entrypoint", words), ("command", self.command)):
            if any("\0" in word for word in given):
                raise UsageError(
                    f"the {key} contains a NUL byte, which cannot be passed to a program",
                    key=key,
                    remedy="write the bytes to a file, and pass the file's path to the command",
                )

    def _check_variables(self) -> None:
        for name, value in self.environment.items():
            check_variable(name, value)
        for name in self.environment_from:
            check_passed_on(name)
            if name in self.environment:
                raise UsageError(
                    f"{name} is both in environment_from and under [environment]",
                    key="environment_from",
                    remedy="remove one of them",
                )

    def _check_parts(self) -> None:
        for module in self.modules:
            if not module or any(c.isspace() or not c.isprintable() for c in module):
                raise UsageError(
                    f"{module!r} is not a valid name of an environment module",
                    key="modules",
                    remedy='write modules = ["openmpi/4.1.4"]',
                )
        targets: set[str] = set()
        for mount in self.mounts:
            if mount.target in targets:
                raise UsageError(
                    f"two mounts have the same target {mount.target}",
                    key="mounts",
                    remedy='use different targets:  mounts = ["a:/data/a", "b:/data/b"]',
                )
            targets.add(mount.target)
        warning_s = self.scheduling.warning_s
        if warning_s and (self.walltime_s is None or warning_s >= self.walltime_s):
            has = "the job has none" if self.walltime_s is None else f"that is {self.walltime_s}"
            raise UsageError(
                f"scheduling.warning_s is {warning_s}: it must be less than walltime_s, and {has}",
                key="scheduling.warning_s",
                remedy=f"set walltime_s = {max(3600, 2 * warning_s)}, or warning_s = 0 under [scheduling]",
            )


def check_notify(notify: str | tuple[str, ...]) -> None:
    remedy = 'set notify = "mail", notify = "ada@example.org", or notify = ["./tell.sh"]'
    if isinstance(notify, str):
        if notify != "mail" and not _ADDRESS.fullmatch(notify):
            raise UsageError(
                f'notify is {notify!r}; it must be "mail", a mail address, or a command as a list',
                key="notify",
                remedy=remedy,
            )
    elif not notify or not notify[0] or any("\0" in word for word in notify):
        raise UsageError("notify is not a command", key="notify", remedy=remedy)


def check_node_scratch(path: str) -> None:
    if not re.fullmatch(r"(/[A-Za-z0-9._+-]+)+/?", path):
        raise UsageError(
            f"node_scratch is {path!r}; it must be the absolute path of a directory below / on each node, of "
            "letters, digits and . _ + -",
            key="node_scratch",
            remedy='set node_scratch = "/tmp"',
        )
