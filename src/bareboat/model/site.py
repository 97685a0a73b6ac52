"""The site: what a machine can do."""

from __future__ import annotations

from msgspec import Struct, field

from bareboat.fabric.facts import Network
from bareboat.model.host_files import DriverFile, Mount
from bareboat.model.mpi import MpiFacts


class Check(Struct, frozen=True, kw_only=True):
    """One thing a probe tried: whether it works, what was seen, and what mends it."""

    name: str
    works: bool
    detail: str
    remedy: str = ""


class EngineFacts(Struct, frozen=True, kw_only=True):
    """An engine found on a machine, and what happened when something was run in it. `modes`: of its ways to
    run, by its own names for them, those that worked, best first; `faults`: those that did not, and why.
    `files`: kind of packed image -> what went wrong when one was run; empty: it ran. `settings`: what else it
    found that the engine needs here."""

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
    """The file system that a path of interest lies on."""

    purpose: str
    path: str
    kind: str
    free_bytes: int
    free_inodes: int
    options: tuple[str, ...] = ()


class GpuDriver(Struct, frozen=True, kw_only=True):
    """A GPU driver as it was found on a machine.

    `cuda`: the newest CUDA that it serves as it is. `devices`: the nodes in /dev, the GPUs' own first;
    `majors`: their major numbers. `sockets`: folders through which the driver's services are reached.
    `glibc`: the newest version of glibc's symbols that the library `glibc_by` asks for.
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
    environment: dict[str, str] = field(default_factory=dict)
    glibc: str | None = None
    glibc_by: str = ""
    notes: tuple[str, ...] = ()


class DefaultMemory(Struct, frozen=True, kw_only=True):
    """The memory that a job gets that asks for none: so much for each `per`, "cpu", "rank", "node" or "job".
    `setting`: the site's setting that says so, by its own name. `virtual`: it limits virtual memory."""

    bytes: int
    per: str
    setting: str
    virtual: bool = False


class Partition(Struct, frozen=True, kw_only=True):
    """A part of a cluster that jobs are sent to: Slurm's partition, the others' queue. None: not known, or
    no limit. `up`: it takes jobs and starts them."""

    name: str
    default: bool = False
    up: bool = True
    nodes: int | None = None
    max_nodes: int | None = None
    max_time_s: int | None = None
    cpus_per_node: int | None = None
    mem_per_node_bytes: int | None = None
    gpus_per_node: int | None = None
    accounts: tuple[str, ...] = ()
    default_memory: DefaultMemory | None = None


class SchedulerFacts(Struct, frozen=True, kw_only=True):
    """A scheduler found on a machine. `accounts`: those that this user can charge, None when the scheduler
    keeps no such list. `default_memory`: where a partition has none of its own. `settings`: what else a
    scheduler's module wants to know, by its own names. `remarks`: what its commands printed that is not
    understood."""

    name: str
    version: str
    works: bool = True
    detail: str = ""
    partitions: tuple[Partition, ...] = ()
    accounts: tuple[str, ...] | None = None
    mpi_plugins: tuple[str, ...] = ()
    default_memory: DefaultMemory | None = None
    settings: dict[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def partition(self, name: str | None) -> Partition | None:
        """The partition of this name; without a name, the default one."""
        return next((p for p in self.partitions if (p.default if name is None else p.name == name)), None)


class Site(Struct, frozen=True, kw_only=True):
    """Facts about one machine, as one probe saw them. `unseen`: paths of the login node that are not there on
    this compute node. `network`: None when nobody looked. `remarks`: what could not be probed, and why.
    `broken_launches`: what was tried on a compute node and starts no rank there ("srun --mpi=pmix") -> what
    it said."""

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
    gpu_drivers: tuple[GpuDriver, ...] = ()
    file_systems: tuple[FileSystem, ...] = ()
    mpis: tuple[MpiFacts, ...] = ()
    schedulers: tuple[SchedulerFacts, ...] = ()
    unseen: tuple[str, ...] = ()
    network: Network | None = None
    remarks: tuple[str, ...] = ()
    probed_at: str = ""
    broken_launches: dict[str, str] = field(default_factory=dict)

    def scheduler(self, name: str) -> SchedulerFacts | None:
        return next((facts for facts in self.schedulers if facts.name == name), None)

    def engine(self, name: str) -> EngineFacts | None:
        """The first working engine of this name, or of this NAME:MODE, else the first that does not work,
        else None."""
        base, _, mode = name.partition(":")
        found = [e for e in self.engines if e.name == base and (not mode or mode in (*e.modes, *e.faults))]
        found.sort(key=lambda e: (not e.works, mode not in e.modes))
        return found[0] if found else None

    def check(self, name: str) -> Check | None:
        return next((check for check in self.checks if check.name == name), None)
