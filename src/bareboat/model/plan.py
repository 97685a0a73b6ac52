"""The plan: what will be done, and why."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from bareboat.fabric.facts import FabricWatch
from bareboat.model.command import Command, Executable, Start, Word
from bareboat.model.host_files import Mount
from bareboat.model.job import Job


class Rejected(Struct, frozen=True, kw_only=True):
    """An alternative that was not taken, and why."""

    choice: str
    reason: str
    remedy: str = ""


class Refusal(Struct, frozen=True):
    """Why something cannot be done here, and the command that would change it; `rejected`: the ways that were
    tried."""

    reason: str
    remedy: str = ""
    rejected: tuple[Rejected, ...] = ()


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
    variables. `launch`: what of the site starts the ranks ("srun --mpi=pmix"); `site`: a digest of what
    decides, whatever the image, whether it can start any."""

    step: str
    context: str
    launch: str = ""
    site: str = ""


class Delivery(Struct, frozen=True, kw_only=True):
    """How the image's tree comes to a node: `archive`, a tar of it in the store, is unpacked as
    `folder`/`name`, once for all jobs of the user there. Where that cannot be, the tree `name` of
    the folder `shared` is read. `inodes`: how many it needs. The command names the folder of the two by the
    variable BAREBOAT_TREES."""

    archive: str
    folder: str
    shared: str
    name: str
    inodes: int


class Plan(Struct, frozen=True, kw_only=True):
    """Everything that will be done, with the reasons. Equal plans have equal digests.

    `keeps_output`: each rank's output is kept by itself, in logs/RANK.out and .err under the run's folder.
    `needs_flat`: the image's flat tree must be made before the run, with a place at the target of each of
    `mount_points`: a folder or a file, as its source is; those of `own_points`, which other jobs do not have,
    in a tree of their own. `relinked`: it is the one whose absolute links are
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
    own_points: tuple[Mount, ...] = ()
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
    #: Which step of MPI's ladder the proof is of (`bareboat.mpi.proven`), and what earlier proofs said. They
    #: are no part of what is done, nor of the digest.
    proves: Claim | None = None
    notes: tuple[str, ...] = ()
    #: Unset: nothing is brought to the nodes.
    delivery: Delivery | UnsetType = UNSET
    #: Where the nodes find py-spy, for the watchdog; unset: they may have one of their own.
    py_spy: str | UnsetType = UNSET
    #: True: the launcher's processes know each other by a secret of the run (BAREBOAT_SECRET).
    secret: bool | UnsetType = UNSET
    #: A shell in the container of the job, for a terminal; unset where the scheduler has no queue. It is no
    #: part of what is done, nor of the digest.
    shell: Command | UnsetType = UNSET
    #: What the job script looks after when the nodes have a fabric; unset: nothing.
    fabric: FabricWatch | UnsetType = UNSET
    #: True: the job script looks whether the ranks are connected with each other; unset: one rank, or ranks
    #: that the image's own launcher starts and checks.
    watches_world: bool | UnsetType = UNSET
    #: A file of the host that each node must be able to execute; unset: no such file.
    executable: Executable | UnsetType = UNSET
    #: Plans for the same allocation, tried in this order when the MPI check of the one before fails. They
    #: follow from what is known at the moment, and are no part of the digest.
    otherwise: tuple[Plan, ...] = ()
