"""The types that pass between the rooms: frozen, validated at construction, free of I/O.

Units are in the names. All types can be written to JSON and read back by `bareboat_base.codec`. They are
msgspec Structs instead of dataclasses because forty dataclasses take 15 ms to define at every start;
`msgspec.structs.replace` makes a changed copy. Import all of them from here.
"""

from __future__ import annotations

from bareboat.model.command import (
    AbsentModule,
    CodeFacts,
    Command,
    Executable,
    ForwardEnv,
    Handing,
    IfSet,
    Joined,
    Missing,
    NodePath,
    Opened,
    Sealed,
    Start,
    Variable,
    Word,
)
from bareboat.model.job import Job
from bareboat.model.job_tables import CaptureRequest, ProveRequest, Scheduling, Topology
from bareboat.model.matrix import Contrast, Matrix
from bareboat.model.metric import MetricRequest
from bareboat.model.plan import (
    CheckSubject,
    Decision,
    Delivery,
    HostMpiTree,
    KernelCache,
    OwnTree,
    Plan,
    Refusal,
    Requirement,
    Rootfs,
    ScratchEntry,
)
from bareboat.model.record import (
    Alone,
    Arm,
    Delivered,
    JobStart,
    Layout,
    MemorySample,
    Phases,
    Record,
    Study,
    Usage,
    Window,
    kept_result,
)
from bareboat.model.site import (
    Check,
    EngineFacts,
    FileSystem,
    GpuDriver,
    Partition,
    SchedulerFacts,
    Site,
)
from bareboat.model.submission import Cause, End, JobState, Mark, QueueEntry, Submission
from bareboat.model.variables import NOT_SHOWN, check_variable, digestible, is_carried, looks_secret
from bareboat_base.alternatives import Rejected
from bareboat_base.host_files import DriverFile, Mount
from bareboat_base.outcome import Outcome
from bareboat_images.model import (
    CudaCompat,
    HostLibrary,
    Image,
    Layer,
    Linked,
    MpiFacts,
    MpiFamily,
    Pin,
    Pmi,
    Prefix,
    Process,
    SiteLayer,
)

__all__ = [
    "NOT_SHOWN", "AbsentModule", "Alone",
    "Arm", "CaptureRequest", "Cause", "Check", "CheckSubject",
    "CodeFacts", "Command", "Contrast", "CudaCompat", "Decision", "Delivered", "Delivery",
    "DriverFile", "End", "EngineFacts", "Executable", "FileSystem", "ForwardEnv", "GpuDriver", "Handing",
    "HostLibrary", "HostMpiTree", "IfSet", "Image", "Job", "JobStart", "JobState", "Joined",
    "KernelCache", "Layer", "Layout", "Linked", "Mark", "Matrix", "MemorySample", "MetricRequest",
    "Missing", "Mount", "MpiFacts", "MpiFamily", "NodePath", "Opened", "Outcome", "OwnTree", "Partition",
    "Phases", "Pin", "Plan", "Pmi", "Prefix", "Process", "ProveRequest", "QueueEntry", "Record",
    "Refusal", "Rejected", "Requirement", "Rootfs", "SchedulerFacts", "Scheduling", "ScratchEntry",
    "Sealed", "Site", "SiteLayer", "Start",
    "Study", "Submission", "Topology", "Usage", "Variable", "Window", "Word", "check_variable",
    "digestible", "is_carried", "kept_result", "looks_secret",
]  # fmt: skip
