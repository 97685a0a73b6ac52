"""The job: what the user asks for."""

from __future__ import annotations

import re

from msgspec import UNSET, Struct, UnsetType, field

from fairlead.errors import UsageError
from fairlead.model.host_files import Mount
from fairlead.model.variables import check_passed_on, check_variable
from fairlead.sweep import Sweep


class Topology(Struct, frozen=True, kw_only=True):
    """How many processes, where, and what each one gets."""

    nodes: int = 1
    ranks_per_node: int = 1
    cpus_per_rank: int | None = None
    gpus_per_rank: int = 0

    def __post_init__(self) -> None:
        for name, value, least in (
            ("nodes", self.nodes, 1),
            ("ranks_per_node", self.ranks_per_node, 1),
            ("cpus_per_rank", self.cpus_per_rank, 1),
            ("gpus_per_rank", self.gpus_per_rank, 0),
        ):
            if value is not None and value < least:
                raise UsageError(
                    f"topology.{name} is {value}; it must be at least {least}",
                    remedy=f"set {name} = {max(least, 1)} under [topology]",
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


class ProveRequest(Struct, frozen=True, kw_only=True):
    """How a proof is designed. `margin` is relative: 0.02 means that 2 % is taken as no difference."""

    repeats: int = 10
    margin: float = 0.02
    confidence: float = 0.95
    seed: int = 1
    window_s: float = 0.2
    goals: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.repeats < 2:
            raise UsageError(
                f"prove.repeats is {self.repeats}; a confidence interval needs at least 2 runs",
                remedy="set repeats = 10 under [prove], or pass --repeats 10",
            )
        if not 0 < self.margin < 1:
            raise UsageError(
                f"prove.margin is {self.margin}; it is a fraction between 0 and 1",
                remedy="set margin = 0.02 for 2 %",
            )
        if not 0.5 < self.confidence < 1:
            raise UsageError(
                f"prove.confidence is {self.confidence}; it lies between 0.5 and 1",
                remedy="set confidence = 0.95",
            )
        if self.window_s <= 0:
            raise UsageError(
                f"prove.window_s is {self.window_s}; a window takes time", remedy="set window_s = 0.2"
            )


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
        if self.warning_s < 0:
            raise UsageError(
                f"scheduling.warning_s is {self.warning_s}; it counts seconds before the end",
                remedy="set warning_s = 120",
            )
        if self.watchdog_s is not UNSET and self.watchdog_s < 0:
            raise UsageError(
                f"scheduling.watchdog_s is {self.watchdog_s}; it counts seconds of silence",
                remedy="set watchdog_s = 600, or 0 for no watchdog",
            )
        words = (self.partition, self.account, self.qos, self.reservation, self.constraint)
        for word in (*words, *self.after, *self.options):
            if word is not None and (not word or any(ord(c) < 32 or ord(c) == 127 for c in word)):
                raise UsageError(
                    f"{word!r} under [scheduling] is empty or holds a control character",
                    remedy="write it on one line",
                )


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
        if self.walltime_s is not None and self.walltime_s < 1:
            raise UsageError(
                f"walltime_s is {self.walltime_s}; it must be at least 1",
                remedy="set walltime_s, or leave it out",
            )
        if self.form not in (None, "tree", "file"):
            raise UsageError(f"form is {self.form!r}", remedy='write form = "tree" or form = "file"')
        if self.delivery not in (UNSET, "auto", "shared", "node"):
            raise UsageError(
                f"delivery is {self.delivery!r}", remedy='write delivery = "auto", "shared" or "node"'
            )
        if self.node_scratch is not UNSET and not re.fullmatch(r"(/[A-Za-z0-9._+-]+)+", self.node_scratch):
            raise UsageError(
                f"node_scratch is {self.node_scratch!r}; it is the path of a folder of each node, "
                "of letters, digits and . _ + - between slashes",
                remedy='set node_scratch = "/tmp"',
            )
        if self.fabric not in (UNSET, "mark", "require"):
            raise UsageError(
                f"fabric is {self.fabric!r}", remedy='write fabric = "mark" or fabric = "require"'
            )
        if self.writable and self.form == "file":
            raise UsageError(
                'writable = true and form = "file" exclude each other: an image as one file is read-only',
                remedy="leave one of them out",
            )
        if self.command and not self.command[0]:
            raise UsageError("the job has no command", remedy='set command = ["python", "train.py"]')
        if isinstance(self.entrypoint, tuple) and not (self.entrypoint and self.entrypoint[0]):
            raise UsageError("the entrypoint is empty", remedy="entrypoint = false puts nothing before it")
        words = self.entrypoint if isinstance(self.entrypoint, tuple) else ()
        if any("\0" in word for word in (*words, *self.command)):
            raise UsageError("the command holds a NUL byte, which no program can be given")
        for name, value in self.environment.items():
            check_variable(name, value)
        for name in self.environment_from:
            check_passed_on(name)
            if name in self.environment:
                raise UsageError(
                    f"{name} is in environment_from and under [environment]",
                    remedy="leave one of them out",
                )
        for module in self.modules:
            if not module or any(c.isspace() or not c.isprintable() for c in module):
                raise UsageError(
                    f"{module!r} is not the name of an environment module",
                    remedy='write modules = ["openmpi/4.1.4"]',
                )
        if self.scheduling.warning_s and self.walltime_s is None:
            raise UsageError(
                "scheduling.warning_s counts back from walltime_s, and the job has none",
                remedy="set walltime_s",
            )
