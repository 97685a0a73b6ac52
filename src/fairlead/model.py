"""The types that pass between the rooms: frozen, validated at construction, free of I/O.

Units are in the names. Everything here can be written to JSON and read back by `fairlead.codec`. They are
msgspec's Structs rather than dataclasses because forty dataclasses take 15 ms to define, at every start;
`msgspec.structs.replace` makes a changed copy.
"""

from __future__ import annotations

import re
from enum import StrEnum

from msgspec import UNSET, Struct, UnsetType, field

from fairlead.errors import UsageError
from fairlead.fabric.facts import FabricLibrary, FabricWatch, Network, Transport
from fairlead.stragglers import Straggler
from fairlead.sweep import Sweep

# --------------------------------------------------------------------------------------------------
# The job: what the user asks for.


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


class Mount(Struct, frozen=True, kw_only=True):
    """A file or folder of the host, seen inside the container."""

    source: str
    target: str
    writable: bool = False

    def __post_init__(self) -> None:
        if not self.target.startswith("/"):
            raise UsageError(
                f"the mount target {self.target!r} is not absolute",
                remedy='write mounts as "SOURCE", "SOURCE:TARGET" or "SOURCE:TARGET:rw"',
            )


class CaptureRequest(Struct, frozen=True, kw_only=True):
    """Which environment `image = "capture"` means."""

    python: str | None = None
    include: tuple[str, ...] = ()


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

    `after`: job ids that must have ended well before. `warning_s`: how long before the end of `walltime_s`
    the ranks get SIGUSR1. `requeue`: the job is put back in the queue when a node is lost, and when it ends
    with exit code 75 (sysexits' EX_TEMPFAIL). `options`: lines for the scheduler as they stand, for what has
    no word here. `watchdog_s`: the run is ended when none of its ranks has printed or reported anything for
    so long.
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
    `workdir`: None is the image's, with nothing of the host mounted there. `writable`: the command may write
    anywhere in the image; what it writes vanishes with the container. `form`: the image as a "tree" of files
    or as one "file"; None: as the planner finds. `sweep`: the points at which the job runs; unset, and not
    part of its digest, when it is no sweep. `delivery`: where ranks read the image's tree, "shared" from the
    store, "node" from a copy that each node makes once in its folder `node_scratch`, or "auto". `site_layer`:
    what is added to the image for this site; unset, likewise, when that is nothing. `fabric`: what becomes of
    ranks on several nodes that fall back to sockets although there is a fabric: "mark" (so, too, when it is
    unset) says it aloud and on the record, "require" ends the job.
    """

    name: str
    command: tuple[str, ...] = ()
    entrypoint: bool | tuple[str, ...] | None = None
    workdir: str | None
    image: str = "capture"
    topology: Topology = field(default_factory=Topology)
    mounts: tuple[Mount, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
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


def check_variable(name: str, value: str) -> None:
    """Raise UsageError for what an environment cannot carry."""
    if not name.isidentifier():
        raise UsageError(
            f"{name!r} is not a name for an environment variable",
            remedy="use letters, digits and underscores under [environment]",
        )
    if "\0" in value:
        raise UsageError(f"the value of {name} holds a NUL byte, which no environment can carry")


# --------------------------------------------------------------------------------------------------
# The image: what is in the container.


class Layer(Struct, frozen=True, kw_only=True):
    """One layer: the digest of its uncompressed tar, and what it costs on disk."""

    diff_id: str
    size_bytes: int
    unpacked_bytes: int
    inodes: int
    comment: str = ""
    stackable: bool = True


class StoredLayer(Struct, frozen=True, kw_only=True):
    """What unpacking found out about a layer; it lies beside the layer's tree.

    `stackable`: overlayfs can use the tree as it is. `rebuildable`: the layer's tar can be written again,
    bit for bit, from the tree and its recipe.
    """

    diff_id: str
    size_bytes: int
    unpacked_bytes: int
    inodes: int
    stackable: bool = True
    rebuildable: bool = True
    notes: tuple[str, ...] = ()


class Pin(Struct, frozen=True, kw_only=True):
    """What a reference stood for when it was pulled. `digest` is that of this architecture's manifest.

    `root` tells whether that has changed: the digest that the registry serves for the tag (of the index,
    where there is one), or the size and time of a file.
    """

    reference: str
    digest: str
    root: str
    pinned_at: str


class Process(Struct, frozen=True, kw_only=True):
    """What an image says of the process that it wants to be run (OCI image config). `workdir_missing`: the
    image names a folder that it does not have; Docker makes it."""

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    workdir: str = "/"
    workdir_missing: bool = False
    user: str = ""


class Prefix(Struct, frozen=True, kw_only=True):
    """A folder of the image that must be seen as the image has it, whatever is mounted around it."""

    path: str
    layer: str


class MpiFamily(StrEnum):
    """Whose MPI it is. All but OpenMPI are made from MPICH's source and share its binary interface."""

    OPENMPI = "OpenMPI"
    MPICH = "MPICH"
    INTEL = "Intel MPI"
    MVAPICH = "MVAPICH"
    CRAY = "Cray MPICH"
    UNKNOWN = "unknown"


class Pmi(StrEnum):
    """The protocols by which whoever started a rank tells it who it is."""

    PMI1 = "pmi1"
    PMI2 = "pmi2"
    PMIX = "pmix"


class DriverFile(Struct, frozen=True, kw_only=True):
    """A library or program of the host's: the name by which it is looked for, and where it really lies."""

    name: str
    path: str


class HostLibrary(Struct, frozen=True, kw_only=True):
    """All that a host's libmpi loads, but the C library. `folders`: place in a prefix ("lib/openmpi") -> the
    host's folder of plugins or texts. `asked`: library -> the symbol versions that the others ask of it.
    `glibc`: the newest version of glibc's symbols that the library `glibc_by` asks for."""

    libraries: tuple[DriverFile, ...]
    folders: dict[str, str] = field(default_factory=dict)
    asked: dict[str, tuple[str, ...]] = field(default_factory=dict)
    glibc: str | None = None
    glibc_by: str = ""


class HostMpiTree(Struct, frozen=True, kw_only=True):
    """A host's MPI made ready for one image. `folder`: the links to it; `over`: files of the host that are
    mounted over the image's own of the same name; `left_out`: libraries of which the image's own serve."""

    folder: str
    over: tuple[Mount, ...] = ()
    left_out: tuple[str, ...] = ()


class MpiFacts(Struct, frozen=True, kw_only=True):
    """One MPI of an image or of a machine: a library, a launcher, or both.

    `moved`: it lies elsewhere than it was built for. `speaks`: what its library understands.
    `pmix_version`, `pmix_bundled`: of the PMIx that it speaks with, and whether that is its own copy.
    `slurm`: it was built with parts for Slurm. `origin`: where it was found, in words. `runtime`: of a
    host's, what its library loads.
    """

    family: MpiFamily
    version: str | None = None
    library: str | None = None
    launcher: str | None = None
    prefix: str | None = None
    moved: bool = False
    speaks: tuple[Pmi, ...] = ()
    pmix_version: str | None = None
    pmix_bundled: bool = False
    slurm: bool = False
    origin: str = ""
    runtime: HostLibrary | None = None

    @property
    def title(self) -> str:
        return f"{self.family.value} {self.version}" if self.version else self.family.value


class SiteLayer(Struct, frozen=True, kw_only=True):
    """What an image was extended by for a site (fairlead.mpi.site_layer): `contents`, as NAME==VERSION, on
    the image whose digest is `base`. `made`: it lies in the store; `because`: why the job has it."""

    base: str
    contents: tuple[str, ...]
    made: bool = True
    because: str = ""


class CudaCompat(Struct, frozen=True, kw_only=True):
    """The forward-compatibility package (cuda-compat) of an image: in `folder`, the user-space half of the
    driver whose version is `driver`."""

    folder: str
    driver: str


class Image(Struct, frozen=True, kw_only=True):
    """An image in the store and the facts about what is inside. `cuda`, `rocm`: the newest that it brings.
    `mpis`: the one that its programs find first stands first. `mpi_users`: Python packages that use MPI ->
    the libraries that they are linked to. `fabrics`: its libraries for fast networks; None: not looked
    for."""

    digest: str
    layers: tuple[Layer, ...]
    environment: dict[str, str] = field(default_factory=dict)
    python: str | None = None
    python_version: str | None = None
    glibc: str | None = None
    frameworks: dict[str, str] = field(default_factory=dict)
    prefixes: tuple[Prefix, ...] = ()
    unresolved_libraries: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    reference: str = ""
    architecture: str = ""
    process: Process = field(default_factory=Process)
    mpis: tuple[MpiFacts, ...] = ()
    mpi_users: dict[str, tuple[str, ...]] = field(default_factory=dict)
    cuda: str | None = None
    rocm: str | None = None
    cuda_compat: CudaCompat | None = None
    site_layer: SiteLayer | None = None
    fabrics: tuple[FabricLibrary, ...] | None = None

    @property
    def size_bytes(self) -> int:
        return sum(layer.size_bytes for layer in self.layers)

    @property
    def inodes(self) -> int:
        return sum(layer.inodes for layer in self.layers)


class PackedFile(Struct, frozen=True, kw_only=True):
    """An image packed into one file, as it lies beside that. `sha256`: of the file, in hexadecimal digits.
    `places`: what was made to be mounted over -> whether it is a folder."""

    kind: str
    size_bytes: int
    sha256: str
    places: dict[str, bool]


class Held(Struct, frozen=True, kw_only=True):
    """Something that an image has where a container gets a folder to write to. `leads_to`: its path in the
    image once links are followed."""

    path: str
    leads_to: str
    is_folder: bool


class Rootfs(Struct, frozen=True, kw_only=True):
    """Where an image lies on this machine: layer digest -> unpacked tree, bottom first, and the place of
    its one flat tree; `relinked`: of the same with its absolute links made relative; `packed`: kind of file
    -> where it would be as one. `identity`: a folder with the etc/passwd and etc/group that know the user,
    where the image's own do not. `held`: what it has in the folders that become scratch. `drivers`: vendor of
    a GPU driver of the site -> the folder of links to its files. `host_mpis`: library of a host's MPI ->
    that, made ready for this image."""

    layers: dict[str, str]
    flat: str
    packed: dict[str, str] = field(default_factory=dict)
    identity: str | None = None
    drivers: dict[str, str] = field(default_factory=dict)
    relinked: str = ""
    held: tuple[Held, ...] = ()
    host_mpis: dict[str, HostMpiTree] = field(default_factory=dict)


# --------------------------------------------------------------------------------------------------
# The site: what a machine can do.


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


class SchedulerFacts(Struct, frozen=True, kw_only=True):
    """A scheduler found on a machine. `accounts`: those that this user can charge, None when the scheduler
    keeps no such list. `settings`: what else a scheduler's module wants to know, by its own names."""

    name: str
    version: str
    works: bool = True
    detail: str = ""
    partitions: tuple[Partition, ...] = ()
    accounts: tuple[str, ...] | None = None
    mpi_plugins: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)

    def partition(self, name: str | None) -> Partition | None:
        """The partition of this name; without a name, the default one."""
        return next((p for p in self.partitions if (p.default if name is None else p.name == name)), None)


class Site(Struct, frozen=True, kw_only=True):
    """Facts about one machine, as one probe saw them. `unseen`: paths of the login node that are not there on
    this compute node. `network`: None when nobody looked."""

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
    probed_at: str = ""

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


# --------------------------------------------------------------------------------------------------
# The plan: what will be done, and why.


class Variable(Struct, frozen=True):
    """A value known only when the job runs. The renderer writes it as a shell variable."""

    name: str


class Joined(Struct, frozen=True):
    """Parts that make one word."""

    parts: tuple[str | Variable, ...]


class WhenSet(Struct, frozen=True):
    """Words that are there only when the variable is set and not empty."""

    variable: str
    words: tuple[str | Variable | Joined, ...]


class PassedOn(Struct, frozen=True, omit_defaults=True):
    """Variables of the job script that the command is to see: those of these names and those whose names
    begin with these prefixes, as far as they are set when the command starts. `words` are there once for
    each, with its name and value as the variables `name` and `value`; and once for each of `given`, names
    with values that only the job script knows."""

    names: tuple[str, ...]
    prefixes: tuple[str, ...]
    words: tuple[str | Variable | Joined, ...]
    given: tuple[tuple[str, Joined], ...] = ()


Word = str | Variable | Joined | WhenSet | PassedOn


class Where(StrEnum):
    """Where a command runs."""

    LOGIN = "login node"
    NODE = "once per node"
    RANK = "once per rank"


class Position(StrEnum):
    """Where a launcher stands: outside the container it starts one per rank, inside one per node."""

    OUTSIDE = "outside the container"
    INSIDE = "inside the container"


class Start(StrEnum):
    """Who starts the ranks: the launcher once on every node, the job script itself one by one, or a program
    that the first node runs (mpirun, srun) and that reaches the other nodes by its own ways."""

    NODES = "once per node"
    RANKS = "rank by rank, by the job script"
    PROGRAM = "by a program on the first node"


class Command(Struct, frozen=True, kw_only=True):
    """An argv that nobody has quoted yet. `environment` is all that the workload sees of it."""

    argv: tuple[Word, ...]
    environment: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    where: Where = Where.NODE


class Rejected(Struct, frozen=True, kw_only=True):
    """An alternative that was not taken, and why."""

    choice: str
    reason: str
    remedy: str = ""


class Decision(Struct, frozen=True, kw_only=True):
    """One choice of the planner."""

    subject: str
    choice: str
    reason: str
    rejected: tuple[Rejected, ...] = ()


class Requirement(Struct, frozen=True, kw_only=True):
    """A path that must be there when the job starts, and what to do when it is not."""

    path: str
    what: str
    remedy: str


class Claim(Struct, frozen=True, kw_only=True):
    """That a step of MPI's ladder makes one world of the ranks. `step`: the step's name; `context`: a digest
    of all else that decides whether it does: image, engine, layout, the site's launchers, the job's own
    variables."""

    step: str
    context: str


class Delivery(Struct, frozen=True, kw_only=True):
    """How the image's tree comes to a node: `archive`, a tar of it in the store, is unpacked as
    `folder`/`name`, once for all jobs of the user there. Where that cannot be, the tree `name` of
    the folder `shared` is read. `inodes`: how many it needs. The command names the folder of the two by the
    variable FAIRLEAD_TREES."""

    archive: str
    folder: str
    shared: str
    name: str
    inodes: int


class Plan(Struct, frozen=True, kw_only=True):
    """Everything that will be done, with the reasons. Equal plans have equal digests.

    `keeps_output`: each rank's output is kept by itself, in logs/RANK.out and .err under the run's folder.
    `needs_flat`: the image's flat tree must be made before the run, with a place at the target of each of
    `mount_points`: a folder or a file, as its source is. `relinked`: it is the one whose absolute links are
    relative. `packs`: the kind of file that the image must be packed as instead, with those places in it.
    """

    job: Job
    image_digest: str | None
    engine: str
    launcher: str
    scheduler: str
    command: Command
    decisions: tuple[Decision, ...]
    warnings: tuple[str, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    needs_flat: bool = False
    relinked: bool = False
    packs: str | None = None
    mount_points: tuple[Mount, ...] = ()
    keeps_output: bool = False
    start: Start = Start.NODES
    #: The words of the program that starts the ranks (Start.PROGRAM); the command of a rank follows them.
    program: tuple[Word, ...] = ()
    #: What runs as the ranks before the job, to see that they find each other; None: nothing.
    proof: Command | None = None
    #: Bash that runs before each start: what the launcher must tell the ranks.
    prelude: str = ""
    #: Lines for the scheduler, as it reads them at the top of the job script.
    directives: tuple[str, ...] = ()
    #: Which step of MPI's ladder the proof is of (`fairlead.mpi.proven`), and what earlier proofs said. They
    #: are no part of what is done, nor of the digest.
    proves: Claim | None = None
    notes: tuple[str, ...] = ()
    #: Unset: nothing is brought to the nodes.
    delivery: Delivery | UnsetType = UNSET
    #: Where the nodes find py-spy, for the watchdog; unset: they may have one of their own.
    py_spy: str | UnsetType = UNSET
    #: What the job script looks after when the nodes have a fabric; unset: nothing.
    fabric: FabricWatch | UnsetType = UNSET


class JobState(StrEnum):
    """What a scheduler says of a job, in words that all have."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    NODE_FAIL = "node failed"
    OUT_OF_MEMORY = "out of memory"
    UNKNOWN = "unknown"

    @property
    def over(self) -> bool:
        """The scheduler will not run it (again)."""
        return self not in (JobState.PENDING, JobState.RUNNING, JobState.UNKNOWN)


class QueueEntry(Struct, frozen=True, kw_only=True):
    """What a scheduler says of one job. `reason`: its own words, why it waits or how it ended."""

    job_id: str
    state: JobState
    reason: str = ""
    nodes: str = ""


class Submission(Struct, frozen=True, kw_only=True):
    """What was handed to a scheduler, kept beside the run. `job_id`: None until the scheduler gave one."""

    run_id: str
    scheduler: str
    job_id: str | None
    name: str
    nodes: int
    world_size: int
    engine: str
    submitted_at: str
    plan_digest: str
    image_digest: str | None
    site_digest: str
    walltime_s: int | None = None
    #: Of a sweep, whose points are runs of their own; 0: it is none.
    points: int = 0
    fabric: FabricWatch | None = None


class Outcome(Struct, frozen=True, kw_only=True):
    """What a finished command said. `exit_code` is negative for a signal, 127 for no such program."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str
    wall_s: float

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


# --------------------------------------------------------------------------------------------------
# The record: what was measured.


class Phases(Struct, frozen=True, kw_only=True):
    """The wall time of one run, split, in seconds, as its rank 0 saw it.

    `process_start_s`: from the spawn of the job script to the first line of the training script.
    `import_s`: from there to the end of the imports. `setup_s`: data, model, process group.
    `first_step_s`: the first training step. `steady_s`: the other steps, without waits at the gate.
    `finish_s`: from the last step to the exit of the job script.
    """

    process_start_s: float
    import_s: float
    setup_s: float
    first_step_s: float
    steady_s: float
    finish_s: float


class Window(Struct, frozen=True, kw_only=True):
    """Consecutive training steps of one arm between two waits at the gate.

    `block` pairs the windows of the two arms. `began_s` counts from the start of the study's run.
    `step_s` holds the seconds of every step, raw; the first `settle` of them are not analysed.
    """

    block: int
    began_s: float
    settle: int
    step_s: tuple[float, ...]


class MemorySample(Struct, frozen=True, kw_only=True):
    """Memory of all processes of one arm: `at_s` after its spawn, `bytes` as PSS (or RSS, see Record)."""

    at_s: float
    bytes: int


class JobStart(Struct, frozen=True, kw_only=True):
    """One start of a job by its scheduler: when, in seconds of the epoch, and on which first node."""

    at_epoch_s: int
    node: str
    job_id: str


class Delivered(Struct, frozen=True, kw_only=True):
    """What one node did for the image: "unpacked" it (an archive of so many bytes, in so many seconds),
    "found" it, since another job of the user has it, or read the tree of the store,
    "shared", since it could not be had."""

    at_epoch_s: int
    node: str
    how: str
    took_s: int
    archive_bytes: int


class Record(Struct, frozen=True, kw_only=True):
    """What one arm did in one run: raw samples, never only a mean. Immutable once written."""

    schema: int = 1
    study: str
    run: int
    arm: str
    warm_up: bool
    position: int
    started_at: str
    exit_code: int
    wall_s: float
    plan_digest: str
    image_digest: str | None
    site_digest: str
    world_size: int = 1
    samples_per_step: float | None = None
    phases: Phases | None = None
    windows: tuple[Window, ...] = ()
    memory: tuple[MemorySample, ...] = ()
    memory_kind: str = "pss"
    peak_memory_bytes: int = 0
    peak_rank_rss_bytes: tuple[int, ...] = ()
    results: dict[str, float] = field(default_factory=dict)
    load_1min: float = 0.0
    #: Of a run that a scheduler had: its number there, and when and on which first node it was started: once,
    #: or more often after a lost node or a pause of its own.
    scheduler: str = "local"
    job_id: str = ""
    starts: tuple[JobStart, ...] = ()
    ended_because: str = ""
    #: Of all of its starts, in the order of time.
    deliveries: tuple[Delivered, ...] = ()
    #: The slowest rank of those that reported their steps, if it was slow for sure.
    straggler: Straggler | None = None
    #: The ways between nodes that the ranks took, as libraries said of themselves, and what is wrong with
    #: them: they are sockets although the nodes have a fabric.
    transports: tuple[Transport, ...] = ()
    fabric_mark: str = ""


class Arm(Struct, frozen=True, kw_only=True):
    """One side of a comparison: its name, the plan that it ran and the script made from it."""

    name: str
    engine: str
    plan_digest: str
    script: str


class Study(Struct, frozen=True, kw_only=True):
    """The design of a proof, fixed before the first measured run. `arms` holds baseline, then contender."""

    schema: int = 1
    id: str
    created_at: str
    job: Job
    arms: tuple[Arm, ...]
    image: Image
    site: Site
    fairlead_version: str
    metered: bool | None = None
    steps_per_window: int | None = None
    settle: int = 0
