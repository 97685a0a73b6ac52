"""The plan: what will be done, and why."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType, field

from bareboat.model.command import Command, Executable, Start, Word
from bareboat.model.fabric import FabricWatch
from bareboat.model.job import Job
from bareboat_base.alternatives import Rejected
from bareboat_base.host_files import Mount


class Refusal(Struct, frozen=True):
    """Why something cannot be done here, and the command that would change it; `rejected`: the alternatives
    that were tried; `key`: of the job, which is to blame."""

    reason: str
    remedy: str = ""
    rejected: tuple[Rejected, ...] = ()
    key: str = ""


class Decision(Struct, frozen=True, kw_only=True):
    """One choice of the planner."""

    subject: str
    choice: str
    reason: str
    rejected: tuple[Rejected, ...] = ()


class Requirement(Struct, frozen=True, kw_only=True):
    """A path that must exist when the job starts, and the remedy when it does not."""

    path: str
    what: str
    remedy: str


class CheckSubject(Struct, frozen=True, kw_only=True):
    """What an MPI check finds out: whether a step of MPI's ladder connects all ranks. `context`: a digest
    of everything else that matters: image, engine, layout, the site's launchers, the job's variables.
    `launch`: the site's command that starts the ranks ("srun --mpi=pmix"); `site`: a digest of what matters
    for any image."""

    step: str
    context: str
    launch: str = ""
    site: str = ""


class Delivery(Struct, frozen=True, kw_only=True):
    """How the image's tree gets to a node: `archive`, a tar of it in the store, is unpacked as
    `folder`/`name`, once for all jobs of the user there. Where that fails, the tree `name` of the directory
    `shared` is read. `inodes`: the number that it needs. The command refers to the directory by the variable
    BAREBOAT_TREES. `own`: the job's own tree in the store, of which each node makes one from `name`; the
    command refers to it by BAREBOAT_OWN_TREE."""

    archive: str
    folder: str
    shared: str
    name: str
    inodes: int
    own: str | UnsetType = UNSET


class KernelCache(Struct, frozen=True, kw_only=True):
    """Compiled GPU kernels that are kept between runs: archives in the directory `folder`/`key` of the
    user's own store, of which each node uses a copy. Without a key nothing is kept. `place`: where the
    command finds the copy; "": at its path on the node. `variables`: environment variables that name
    directories in it, which are called like them."""

    folder: str
    key: str
    place: str
    variables: tuple[str, ...]


class Plan(Struct, frozen=True, kw_only=True):
    """Everything that will be done, with the reasons. Equal plans have equal digests.

    `keeps_output`: each rank's output is kept separately, in logs/RANK.out and .err below the run's
    directory. `needs_flat`: the image must be unpacked before the run, with a mount point at each of the
    targets `mount_points` (a directory or a file, like its source; without `needs_flat` the engine makes
    them); `own_points` are in a separate tree,
    since other jobs lack them; `inner_points`: some of these are in directories that the container gets from
    that tree. `relinked`: use the tree with relative links. `packs`: the kind of file to pack the image as
    instead, with those mount points.
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
    own_points: tuple[Mount, ...] = ()
    inner_points: bool = False
    keeps_output: bool = False
    start: Start = Start.NODES
    #: The words of the program that starts the ranks (Start.PROGRAM); the command of a rank follows them.
    program: tuple[Word, ...] = ()
    #: Runs as the ranks before the job, to check that they find each other; None: nothing.
    mpi_check: Command | None = None
    #: Bash that runs before each start: settings from the launcher for the ranks.
    prelude: str = ""
    #: Lines for the scheduler at the top of the job script.
    directives: tuple[str, ...] = ()
    #: The step of MPI's ladder that the MPI check is for (`bareboat.mpi.checks`), and earlier results. They
    #: are not part of what is done, nor of the digest.
    check_subject: CheckSubject | None = None
    notes: tuple[str, ...] = ()
    #: Unset: nothing is copied to the nodes.
    delivery: Delivery | UnsetType = UNSET
    #: True: the launcher's processes authenticate with a secret of the run (BAREBOAT_SECRET).
    secret: bool | UnsetType = UNSET
    #: A shell in the job's container, for a terminal; unset where the scheduler has no queue. It is not part
    #: of what is done, nor of the digest.
    shell: Command | UnsetType = UNSET
    #: What the job script checks when the nodes have a fabric; unset: nothing.
    fabric: FabricWatch | UnsetType = UNSET
    #: True: the job script looks whether the ranks are connected with each other; unset: one rank, or ranks
    #: that the image's own launcher starts and checks.
    watches_world: bool | UnsetType = UNSET
    #: Unset: a job without GPUs, or one that keeps no kernels.
    kernel_cache: KernelCache | UnsetType = UNSET
    #: A file of the host that each node must be able to execute; unset: no such file.
    executable: Executable | UnsetType = UNSET
    #: What is made first, in the order in which that happens; only in a plan of a session that looks, and not
    #: part of the digest.
    missing: tuple[str, ...] | UnsetType = UNSET
    #: Plans for the same allocation, tried in this order when the MPI check of the previous one fails. They
    #: follow from current knowledge, and are not part of the digest.
    otherwise: tuple[Plan, ...] = ()


class HostMpiTree(Struct, frozen=True, kw_only=True):
    """A host's MPI prepared for one image. `folder`: the links to it; `over`: files of the host that are
    mounted over the image's own of the same name; `left_out`: libraries for which the image's own are
    used."""

    folder: str
    over: tuple[Mount, ...] = ()
    left_out: tuple[str, ...] = ()


class ScratchEntry(Struct, frozen=True, kw_only=True):
    """Something that an image has where a container gets a directory to write to. `leads_to`: its path in the
    image once links are followed."""

    path: str
    leads_to: str
    is_folder: bool


class OwnTree(Struct, frozen=True, kw_only=True):
    """A tree with the mount points of one job (`path`). `bound`: directories of it, by their paths without
    the first slash, that are mounted from the image's flat tree; None: it is the whole image."""

    path: str
    bound: tuple[str, ...] | None = None


class Rootfs(Struct, frozen=True, kw_only=True):
    """The location of an image on this machine: layer digest -> unpacked tree, bottom first, and the path of
    its flat tree; `relinked`: the same with relative links; `packed`: kind of file -> its path. `identity`: a
    directory with etc/passwd and etc/group that list the user, where the image's own do not. `in_scratch`:
    its content in directories that become scratch. `absolute`: absolute links are on the way to what
    every container mounts. `drivers`: vendor of a GPU driver of the site -> the
    directory of links to its files. `host_mpis`: library of a host's MPI -> that MPI, prepared for this
    image.
    `kernel_caches`: the directory in the user's own store for compiled GPU kernels. `exposed`: the job's
    writable mounts that show the store: source -> its path in the store, "." for a source in the store.
    `targets`: of the job's mounts, where a link of the image is on the way -> the path without links.
    `points`: a directory with mount points that the layers lack, to stack on them.
    `own`: the tree that replaces the flat one, where the job needs mount points that the image lacks."""

    layers: dict[str, str]
    flat: str
    packed: dict[str, str] = field(default_factory=dict)
    identity: str | None = None
    targets: dict[str, str] = field(default_factory=dict)
    points: str | None = None
    drivers: dict[str, str] = field(default_factory=dict)
    relinked: str = ""
    in_scratch: tuple[ScratchEntry, ...] = ()
    absolute: bool = False
    host_mpis: dict[str, HostMpiTree] = field(default_factory=dict)
    kernel_caches: str = ""
    exposed: dict[str, str] = field(default_factory=dict)
    own: OwnTree | None = None
