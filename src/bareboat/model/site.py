"""The site: what a machine supports."""

from __future__ import annotations

from msgspec import Struct, field

from bareboat.model.fabric import Network
from bareboat_base.host_files import DriverFile, Mount
from bareboat_images.model import MpiFacts


class Check(Struct, frozen=True, kw_only=True):
    """One check of a probe: whether it passed (None: unknown), the finding, and the remedy."""

    name: str
    works: bool | None
    detail: str
    remedy: str = ""


class EngineFacts(Struct, frozen=True, kw_only=True):
    """An engine found on a machine, and the result of running something in it. `modes`: its modes that
    worked, by its own names, best first; `faults`: those that did not work, and why. `files`: kind of packed
    image -> the error when one was run; empty: it ran. `settings`: other facts that the engine needs here."""

    name: str
    path: str
    version: str
    origin: str
    works: bool
    detail: str = ""
    remedy: str = ""
    overlay: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    modes: tuple[str, ...] = ()
    faults: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


class FileSystem(Struct, frozen=True, kw_only=True):
    """The file system of a path of interest."""

    purpose: str
    path: str
    kind: str
    free_bytes: int
    free_inodes: int
    options: tuple[str, ...] = ()


class GpuDriver(Struct, frozen=True, kw_only=True):
    """A GPU driver found on a machine.

    `cuda`: the newest CUDA that it supports by itself. `devices`: the nodes in /dev, the GPUs' own first;
    `majors`: their major numbers. `sockets`: directories through which the driver's services are reached.
    `glibc`: the newest glibc symbol version that the library `glibc_by` requires.
    """

    vendor: str
    version: str
    source: str
    cuda: str | None = None
    models: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    majors: tuple[int, ...] = ()
    libraries: tuple[DriverFile, ...] = ()
    programs: tuple[DriverFile, ...] = ()
    sockets: tuple[Mount, ...] = ()
    glibc: str | None = None
    glibc_by: str = ""
    notes: tuple[str, ...] = ()


class Partition(Struct, frozen=True, kw_only=True):
    """A part of a cluster to submit to: a Slurm partition, or another scheduler's queue. None: unknown, or no
    limit. `up`: it accepts jobs; `starts`: it starts them. `job_cpus`, `job_gpus`, `job_mem_bytes`: limits of
    a job on all of its nodes together."""

    name: str
    default: bool = False
    up: bool = True
    starts: bool = True
    nodes: int | None = None
    max_nodes: int | None = None
    max_time_s: int | None = None
    min_time_s: int | None = None
    cpus_per_node: int | None = None
    mem_per_node_bytes: int | None = None
    gpus_per_node: int | None = None
    job_cpus: int | None = None
    job_gpus: int | None = None
    job_mem_bytes: int | None = None
    accounts: tuple[str, ...] = ()


class SchedulerFacts(Struct, frozen=True, kw_only=True):
    """A scheduler found on a machine. `accounts`: those that this user can charge, None without such a list.
    `settings`: other facts for the scheduler's module.
    `remarks`: output of its commands that cannot be parsed."""

    name: str
    version: str
    works: bool = True
    detail: str = ""
    partitions: tuple[Partition, ...] = ()
    accounts: tuple[str, ...] | None = None
    mpi_plugins: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def partition(self, name: str | None) -> Partition | None:
        """The partition of this name; without a name, the default one."""
        return next((p for p in self.partitions if (p.default if name is None else p.name == name)), None)


#: Directories that are usually local to each node.
OWN_OF_NODES = ("/tmp", "/var/tmp", "/dev/shm", "/run")


class Site(Struct, frozen=True, kw_only=True):
    """Facts about one machine from one probe. `unseen`: paths of the login node that do not exist on this
    compute node. `own`: directories, as /tmp, that it has of its own. `lacks_modules`: it does not have the
    command `module`.
    `network`: None when not probed. `unprobed`: engines that nobody looked for, since one that
    costs less may do. `remarks`: what could not be probed, and why. `broken_launches`: launches that start no
    rank on a compute node ("srun --mpi=pmix") -> the error message."""

    hostname: str
    kernel: str
    architecture: str
    distribution: str
    glibc: str
    cpu_model: str
    cpus: int
    mem_bytes: int
    user: str
    uid: int
    gid: int
    home: str
    timezone: str
    load_1min: float
    checks: tuple[Check, ...] = ()
    engines: tuple[EngineFacts, ...] = ()
    other_tools: dict[str, str] = field(default_factory=dict)
    gpus: tuple[str, ...] = ()
    gpu_capabilities: tuple[str, ...] = ()
    gpu_drivers: tuple[GpuDriver, ...] = ()
    file_systems: tuple[FileSystem, ...] = ()
    mpis: tuple[MpiFacts, ...] = ()
    schedulers: tuple[SchedulerFacts, ...] = ()
    unseen: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    lacks_modules: bool = False
    unprobed: tuple[str, ...] = ()
    network: Network | None = None
    remarks: tuple[str, ...] = ()
    probed_at: str = ""
    broken_launches: dict[str, str] = field(default_factory=dict)

    def scheduler(self, name: str) -> SchedulerFacts | None:
        return next((facts for facts in self.schedulers if facts.name == name), None)

    @property
    def is_busy(self) -> bool:
        """Whether other work kept at least half of the processors busy in the minute before."""
        return self.load_1min > 0.5 * self.cpus

    @property
    def working_scheduler(self) -> str | None:
        """The name of the first scheduler that works."""
        return next((facts.name for facts in self.schedulers if facts.works), None)

    def engine(self, name: str) -> EngineFacts | None:
        """The first working engine of this name, or of this NAME:MODE, else the first that does not work,
        else None."""
        base, _, mode = name.partition(":")
        found = [e for e in self.engines if e.name == base and (not mode or mode in (*e.modes, *e.faults))]
        found.sort(key=lambda e: (not e.works, mode not in e.modes))
        return found[0] if found else None

    def check(self, name: str) -> Check | None:
        return next((check for check in self.checks if check.name == name), None)
