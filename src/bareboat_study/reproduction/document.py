"""The lock of a run: everything that made it, as one JSON document.

What was not recorded when the run began is None or empty and is listed in `not_recorded`; nothing is taken
from the machine on which the lock is made.
"""

from __future__ import annotations

from msgspec import Struct, field

from bareboat.model import Job
from bareboat.model.provenance import Code
from bareboat.model.record import NotFinite

#: Changes when an older Bareboat could not read the document.
VERSION = 1
#: A larger document is neither written nor read.
MOST_BYTES = 1 << 20


class Decided(Struct, frozen=True, kw_only=True):
    """A decision of the plan, without the alternatives."""

    subject: str
    choice: str
    reason: str


class LockedPlan(Struct, frozen=True, kw_only=True):
    """What was planned. `engine_version`: of the machine on which the run was submitted."""

    digest: str
    engine: str
    launcher: str
    scheduler: str
    engine_version: str = ""
    decisions: tuple[Decided, ...] = ()


class LockedPackage(Struct, frozen=True, kw_only=True):
    """A package of the image, by its package URL. `sha256`: of the list of its files with their hashes
    (RECORD), or of the file that it was installed from; "": unknown."""

    purl: str
    sha256: str = ""


class LockedImage(Struct, frozen=True, kw_only=True):
    """The image. `origin`: "captured" from an environment, "pulled" from `reference`, or "site layer" on the
    image `base`, with the packages `added`. `mpis`: MPI libraries as "NAME VERSION". `packages`: None: not
    recorded."""

    digest: str
    origin: str
    reference: str = ""
    base: str = ""
    added: tuple[str, ...] = ()
    architecture: str = ""
    python_version: str = ""
    glibc: str = ""
    cuda: str = ""
    rocm: str = ""
    mpis: tuple[str, ...] = ()
    distribution: str = ""
    packages: tuple[LockedPackage, ...] | None = None


class Machine(Struct, frozen=True, kw_only=True):
    """A machine. Empty text: unknown. `fabric`: its active networks; `schedulers` and `mpis` as
    "NAME VERSION"."""

    hostname: str
    kernel: str = ""
    architecture: str = ""
    distribution: str = ""
    glibc: str = ""
    cpu: str = ""
    cpus: int = 0
    mem_bytes: int = 0
    gpus: tuple[str, ...] = ()
    driver: str = ""
    driver_cuda: str = ""
    fabric: str = ""
    mpis: tuple[str, ...] = ()
    schedulers: tuple[str, ...] = ()


class Datum(Struct, frozen=True, kw_only=True):
    """A file or directory of data that the user declared. `sha256`: of the file, or of the sorted list of the
    directory's files. `is_later`: it changed after the run began, so that it may not be what the run read."""

    path: str
    sha256: str
    size_bytes: int
    files: int
    is_folder: bool = False
    is_later: bool = False


class Results(Struct, frozen=True, kw_only=True):
    """What came of it. `exit_code`: None: of an arm of a study. `transports`: ways between nodes that
    libraries reported."""

    exit_code: int | None = None
    wall_s: float | None = None
    started_at: str = ""
    peak_memory_bytes: int = 0
    metrics: dict[str, float | NotFinite] = field(default_factory=dict)
    transports: tuple[str, ...] = ()
    ended_because: str = ""


class Lock(Struct, frozen=True, kw_only=True):
    """The document. `kind`: "run"; "study", of an arm, which is compared and not written. `job`: as
    resolved, with the variables of `[environment]` that are no secrets; `withheld`: the names of the
    others, whose values a replay takes from its environment. `machine`: where the run was submitted or
    started; `node`: its first compute node, where that is another. `patterns`: metric -> the regular
    expression that finds it in the output."""

    bareboat_lock: int = VERSION
    kind: str
    name: str
    made_by: str
    recorded_by: str = ""
    job: Job
    withheld: tuple[str, ...] = ()
    plan: LockedPlan | None = None
    image: LockedImage | None = None
    code: Code | None = None
    machine: Machine | None = None
    node: Machine | None = None
    nodes: tuple[str, ...] = ()
    data: tuple[Datum, ...] = ()
    patterns: dict[str, str] = field(default_factory=dict)
    results: Results
    not_recorded: tuple[str, ...] = ()
