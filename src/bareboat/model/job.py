"""The job: what the user asks for."""

from __future__ import annotations

import re

from msgspec import UNSET, Struct, UnsetType, field

from bareboat.errors import UsageError
from bareboat.model.host_files import Mount
from bareboat.model.names import check_name
from bareboat.model.variables import check_passed_on, check_variable
from bareboat.ranges import MOST_RANKS, check
from bareboat.sweep import Sweep

DELIVERIES = ("auto", "shared", "node")


class Topology(Struct, frozen=True, kw_only=True):
    """How many processes, where, and what each one gets."""

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
                f"{self.nodes:,} nodes of {self.ranks_per_node:,} ranks are {self.world_size:,} ranks; "
                f"at most {MOST_RANKS:,} are supported",
                key="topology.ranks_per_node",
                remedy="set ranks_per_node = 1 under [topology]",
            )

    @property
    def world_size(self) -> int:
        return self.nodes * self.ranks_per_node


class CaptureRequest(Struct, frozen=True, kw_only=True):
    """Which environment `image = "capture"` means. `compiler`: with this machine's C and C++ compiler; unset:
    without, and a plan says what will not work."""

    python: str | None = None
    include: tuple[str, ...] = ()
    compiler: bool | UnsetType = UNSET

    def __post_init__(self) -> None:
        if "" in self.include:
            raise UsageError(
                "capture.include has an empty path",
                key="capture.include",
                remedy='set include = ["data"], or leave it out',
            )


class ProveRequest(Struct, frozen=True, kw_only=True):
    """How a proof is designed. `margin` is relative: 0.02 means that 2 % is taken as no difference."""

    repeats: int = 10
    margin: float = 0.02
    confidence: float = 0.95
    seed: int = 1
    window_s: float = 0.2
    goals: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("repeats", "margin", "confidence", "seed", "window_s"):
            check(f"prove.{name}", getattr(self, name))
        for goal, least in self.goals.items():
            check_name("the goal", goal, key="prove.goals")
            check("prove.goals", least, name=f"prove.goals.{goal}")


class Scheduling(Struct, frozen=True, kw_only=True):
    """What the job asks of the scheduler, in the field's common words; each scheduler says them its own way.

    `after`: jobs that must have ended well before: their numbers, or names of runs. `warning_s`: how long
    before the end of `walltime_s` the ranks get SIGUSR1. `requeue`: the job is put back in the queue when a
    node is lost, and when it ends with exit code 75 (sysexits' EX_TEMPFAIL). `options`: lines for the
    scheduler as they stand, for what has no word here. `watchdog_s`: the run is ended when none of its
    ranks has printed or reported anything for so long.
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
    """What to run. Paths are absolute: the job file's reader resolves them against its folder.

    Without a `command` the image's own process runs. `entrypoint`: what stands before the command: True for
    the image's, False for nothing, words for these; None is False for a command and True without one.
    `environment_from`: environment variables that are passed on by name, with their values written down
    nowhere. `workdir`: None is the image's, with nothing of the host mounted there. `writable`: the command
    may write anywhere in the image; what it writes vanishes with the container. `form`: the image as a "tree"
    of files or as one "file"; None: as the planner finds. `sweep`: the points at which the job runs; unset,
    and not part of its digest, when it is no sweep. `delivery`: where ranks read the image's tree, "shared"
    from the store, "node" from a copy that each node makes once in its folder `node_scratch`, or "auto".
    `site_layer`: what is added to the image for this site; unset, likewise, when that is nothing. `fabric`:
    what becomes of ranks on several nodes that fall back to sockets although there is a fabric: "mark" (so,
    too, when it is unset) says it aloud and on the record, "require" ends the job. `seccomp`: False leaves of
    the filter of system calls only what guards the terminal.
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
    # Unset where nobody asked, so that plans which have nothing to do with it keep their digests.
    delivery: str | UnsetType = UNSET
    node_scratch: str | UnsetType = UNSET
    fabric: str | UnsetType = UNSET
    seccomp: bool | UnsetType = UNSET

    def __post_init__(self) -> None:
        check_name("name", self.name, key="name")
        for key in ("engine", "launcher", "scheduler"):
            if (text := getattr(self, key)) is not None:
                check_name(key, text, key=key)
        if self.walltime_s is not None:
            check("walltime_s", self.walltime_s)
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
        if self.writable and self.form == "file":
            raise UsageError(
                'writable = true and form = "file" exclude each other: an image as one file is read-only',
                key="form",
                remedy="leave one of them out",
            )
        if self.command and not self.command[0]:
            raise UsageError(
                "the job has no command", key="command", remedy='set command = ["python", "train.py"]'
            )
        if isinstance(self.entrypoint, tuple) and not (self.entrypoint and self.entrypoint[0]):
            raise UsageError(
                "the entrypoint is empty",
                key="entrypoint",
                remedy="set entrypoint = false, which puts nothing before the command",
            )
        words = self.entrypoint if isinstance(self.entrypoint, tuple) else ()
        for key, given in (("entrypoint", words), ("command", self.command)):
            if any("\0" in word for word in given):
                raise UsageError(
                    f"the {key} holds a NUL byte, which no program can be given",
                    key=key,
                    remedy="write the bytes to a file, and give the command the file's path",
                )
        for name, value in self.environment.items():
            check_variable(name, value)
        for name in self.environment_from:
            check_passed_on(name)
            if name in self.environment:
                raise UsageError(
                    f"{name} is in environment_from and under [environment]",
                    key="environment_from",
                    remedy="leave one of them out",
                )
        for module in self.modules:
            if not module or any(c.isspace() or not c.isprintable() for c in module):
                raise UsageError(
                    f"{module!r} is not the name of an environment module",
                    key="modules",
                    remedy='write modules = ["openmpi/4.1.4"]',
                )
        targets: set[str] = set()
        for mount in self.mounts:
            if mount.target in targets:
                raise UsageError(
                    f"two mounts have the target {mount.target}, where only one can be seen",
                    key="mounts",
                    remedy='give each its own: mounts = ["a:/data/a", "b:/data/b"]',
                )
            targets.add(mount.target)
        warning_s = self.scheduling.warning_s
        if warning_s and (self.walltime_s is None or warning_s >= self.walltime_s):
            has = "the job has none" if self.walltime_s is None else f"that is {self.walltime_s}"
            raise UsageError(
                f"scheduling.warning_s is {warning_s}: it counts back from walltime_s, and {has}",
                key="scheduling.warning_s",
                remedy=f"set walltime_s = {max(3600, 2 * warning_s)}, or warning_s = 0 under [scheduling]",
            )


def check_node_scratch(path: str) -> None:
    if not re.fullmatch(r"(/[A-Za-z0-9._+-]+)+/?", path):
        raise UsageError(
            f"node_scratch is {path!r}; it must be an absolute path on each node, of letters, digits and "
            ". _ + -",
            key="node_scratch",
            remedy='set node_scratch = "/tmp"',
        )
