"""The record: what was measured, and the design of its study."""

from __future__ import annotations

import math
from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from bareboat.model.fabric import Transport
from bareboat.model.job import Job
from bareboat.model.metric import MetricRequest
from bareboat.model.site import Site
from bareboat.model.submission import End
from bareboat_images.model import Image

#: JSON has no numbers for these; float() reads them.
NotFinite = Literal["nan", "inf", "-inf"]


def kept_result(value: float) -> float | NotFinite:
    """A result in the form for records."""
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


class Phases(Struct, frozen=True, kw_only=True):
    """The wall time of one run, split into phases, in seconds, as seen by rank 0.

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
    `step_s` holds the seconds of every step, raw. `cpu_s`: the processor time of all threads of the run's
    processes in the window; `wait_s`: how long these threads were ready to run and waited for a processor,
    also in sum; `threads`: how many they were at the end. Unset where the kernel does not count them.
    """

    block: int
    began_s: float
    step_s: tuple[float, ...]
    cpu_s: float | UnsetType = UNSET
    wait_s: float | UnsetType = UNSET
    threads: int | UnsetType = UNSET


class Alone(Struct, frozen=True, kw_only=True):
    """The same arm once more in the run, from start to end with no other arm alive: the seconds of its steps
    after the first, raw, and its wall time. `code`: of its exit; nothing is measured where it is not 0."""

    step_s: tuple[float, ...] = ()
    wall_s: float = 0.0
    code: int = 0


class MemorySample(Struct, frozen=True, kw_only=True):
    """Memory of all processes of one arm: `at_s` after its spawn, `bytes` as PSS (or RSS, see Record)."""

    at_s: float
    bytes: int


class Usage(Struct, frozen=True, kw_only=True):
    """What an arm's processes and its machines' devices used while it ran, from the sampler's series; these
    are in the run's directory, unreduced.

    `at_s`: times since the arm's start; each curve has a value for each of them. Curves: `rss_bytes`,
    `pss_bytes` (every process's share of shared pages), `cpu_s` (since the start), and of the GPUs together
    `gpu_memory_bytes`, `gpu_percent` (mean) and `power_w`.
    `totals`: `cpu_s`, `read_bytes`, `written_bytes`, `minor_faults`, `major_faults`, `energy_j` (of GPUs and
    processors whose energy can be read, all that runs on them included), `throttled_percent` (of the GPUs'
    samples), `nodes`.
    `phase_ends_s`: when the phases of rank 0 ended, waits at the gate included; none without a meter.
    """

    at_s: tuple[float, ...]
    curves: dict[str, tuple[float, ...]]
    totals: dict[str, float]
    phase_ends_s: tuple[float, ...] = ()


class JobStart(Struct, frozen=True, kw_only=True):
    """One start of a job by its scheduler: when, in seconds of the epoch, and on which first node."""

    at_epoch_s: int
    node: str
    job_id: str


class Delivered(Struct, frozen=True, kw_only=True):
    """How one node got the image: "unpacked" it (an archive of this size, in this time), "found" a copy of
    another job of the user, or "shared", from the store, since a copy was not possible."""

    at_epoch_s: int
    node: str
    how: str
    took_s: int
    archive_bytes: int


class NodeLimits(Struct, frozen=True, kw_only=True):
    """What the ranks of one node may use, and what the job requested for them. `cpus`: the kernel's list;
    `rank_cpus`: of each rank where it is known. 0 requested: nothing was. `threads`: of a rank, as
    OMP_NUM_THREADS. `clock_offset_s`: the file server's clock minus the node's. `cpu_quota`: of the control
    group, in processors. `scratch_free`: share of node-local storage. `gpus_used`: that had processes of the
    run, None while that is not known; of `gpus_of_ranks` that its ranks requested together."""

    node: str
    ranks: int
    cpus: str
    rank_cpus: tuple[str, ...] = ()
    memory_bytes: int | None = None
    gpus: int | None = None
    cpus_requested: int = 0
    gpus_requested: int = 0
    threads: int = 0
    memory_requested_bytes: int = 0
    clock_offset_s: float | None = None
    cpu_quota: float | None = None
    scratch_free_bytes: int | None = None
    scratch_free: float | None = None
    gpus_used: int | None = None
    gpus_of_ranks: int = 0


class Health(Struct, frozen=True, kw_only=True):
    """What was allowed on each node against what was requested. `marks`: the mismatches."""

    nodes: tuple[NodeLimits, ...]
    marks: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The certificate, on one line."""
        return "; ".join(self.marks) or "healthy"


class Layout(Struct, frozen=True, kw_only=True):
    """A new layout of an arm's files in the page cache, before a run: the files that were read again and
    their bytes; the bytes that the arm uses of files that the other arms do not have, and how many of these
    stayed in the cache; the seconds that reading took."""

    files: int
    bytes: int
    own_bytes: int
    stayed_bytes: int
    took_s: float


class Record(Struct, frozen=True, kw_only=True):
    """What one arm did in one run: raw samples, never only a mean. Immutable once written. `diverged`:
    results that are not finite -> the first training step with this. `wall_s`: None where nobody
    knows when the run ended."""

    schema: int = 1
    study: str
    run: int
    arm: str
    warm_up: bool
    position: int
    started_at: str
    exit_code: int
    wall_s: float | None
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
    results: dict[str, float | NotFinite] = field(default_factory=dict)
    diverged: dict[str, int] = field(default_factory=dict)
    #: The curves that a study's patterns found: pairs of x and y.
    series: dict[str, tuple[tuple[float | NotFinite, float | NotFinite], ...]] | UnsetType = UNSET
    load_1min: float = 0.0
    #: Unset where no sampler ran.
    usage: Usage | UnsetType = UNSET
    #: For a run of a scheduler: its job ID, and when and on which first node it started: once, or again after
    #: a lost node or its own pause.
    scheduler: str = "local"
    job_id: str = ""
    starts: tuple[JobStart, ...] = ()
    ended_because: str = ""
    #: The structured cause of a failure.
    end: End | None = None
    #: For all of its starts, in order of time.
    deliveries: tuple[Delivered, ...] = ()
    #: The transports between nodes that libraries reported, and the warning if ranks fell back to TCP
    #: although the nodes have a fabric.
    transports: tuple[Transport, ...] = ()
    fabric_mark: str = ""
    #: Of several ranks between which no connection was seen: in what groups they may be.
    world_mark: str = ""
    #: Unset where the job script wrote nothing about it.
    health: Health | UnsetType = UNSET
    #: The digest of all that was chosen before the run (study/validity.py); empty: not recorded.
    design: str = ""
    #: Unset where the files stayed in the page cache as they were.
    layout: Layout | UnsetType = UNSET
    #: In some of the runs in which arms take turns.
    alone: Alone | UnsetType = UNSET

    @property
    def health_marks(self) -> tuple[str, ...]:
        """What the ranks could not use as the job requested it."""
        return () if self.health is UNSET else self.health.marks

    @property
    def wall_text(self) -> str:
        return "unknown" if self.wall_s is None else f"{self.wall_s:.1f} s"


class Arm(Struct, frozen=True, kw_only=True):
    """One side of a comparison: its name, its plan and its script. `image_digest`: unset where the study's
    arms have the same image. `launcher`: empty where it was not recorded."""

    name: str
    engine: str
    plan_digest: str
    script: str
    launcher: str = ""
    image_digest: str | UnsetType = UNSET


class Study(Struct, frozen=True, kw_only=True):
    """The design of a study at one point, fixed before the first measured run: of all its arms, the baseline
    first, or of two that are compared.

    `point`: its number among the points of the study (`Matrix`). `metrics`: what is read from the program's
    output and files. `jobs`: of each arm. `seed`: of the order of the arms, drawn for the study unless its
    job has one. `alone_because`: why arms with a meter take no turns; empty where an arm that waits can be
    stopped. `written`: what to say of the files that the warm-up wrote in the working directory.
    """

    schema: int = 1
    id: str
    created_at: str
    job: Job
    arms: tuple[Arm, ...]
    image: Image
    site: Site
    bareboat_version: str
    metered: bool | None = None
    steps_per_window: int | None = None
    alone_because: str = ""
    point: int | UnsetType = UNSET
    metrics: tuple[MetricRequest, ...] = ()
    jobs: tuple[Job, ...] = ()
    seed: int | UnsetType = UNSET
    written: str = ""

    def __post_init__(self) -> None:
        if not self.arms:
            raise ValueError("a study has arms")

    @property
    def whole(self) -> str:
        """The name of the study with all of its points."""
        return self.id if self.point is UNSET else self.id.rpartition(".")[0]

    @property
    def order_seed(self) -> int:
        """Studies of earlier versions have none of their own: 1 was the default."""
        if self.seed is not UNSET:
            return self.seed
        return 1 if self.job.prove.seed is None else self.job.prove.seed
