"""Pure: what each metric of a study is, in a sentence, and the name that it has in reports."""

from __future__ import annotations

from collections.abc import Sequence

from bareboat.model import MetricRequest
from bareboat_study import measures
from bareboat_study.measures import Metric
from bareboat_study.windows import Pair

_MEMORY = "peak memory"
_KINDS = {
    "pss": "PSS, which divides a page among all processes that share it, other programs' included: on bare "
    "metal often pages of the interpreter and of the system's libraries, in a container those of its image. "
    "The figure over time has RSS, which counts it in each process and is larger.",
    "rss": "RSS, which counts a page that several processes share in each of them.",
}
_TEXTS = {
    measures.THROUGHPUT: "Samples, or steps, over the total time of all steps; a stall counts with its whole "
    "length.",
    measures.TYPICAL: "The same by the trimmed mean of the windows' logarithms, without the longest and the "
    "shortest.",
    measures.WAITS: "How many times longer the steps took because threads waited for a processor.",
    "processor time": "Processor time of all threads for one sample, or one step.",
    "wall time": "From the start of the arm to its end; with a meter, without the other arm's turns.",
    "CPU time": "Processor time of all processes of the arm, from its start to its end.",
    "peak GPU memory": "The largest sample of the memory of all GPUs of the arm.",
    "energy": "Energy of the GPUs and processors that report it, other work on them included.",
    "energy per sample": "The energy of a whole run over its samples.",
    "process start": "From the start of the engine, or of the program on bare metal, to the first line of "
    "Python.",
    "import": "From there until `Meter(…)`: imports, and what else stands above it.",
    "set-up": "From there to the first step.",
    "first step": "The first step, with what it compiles and loads.",
}


def title(metric: Metric, pairs: Sequence[Pair]) -> str:
    """The name of the metric; that of memory with how it is counted."""
    kinds = {record.memory_kind for pair in pairs for record in pair}
    is_memory = metric.name == _MEMORY and metric.unit == "bytes" and len(kinds) == 1
    return f"{metric.name} ({kinds.pop().upper()})" if is_memory else metric.name


def text(metric: Metric, pairs: Sequence[Pair], own: Sequence[MetricRequest]) -> str:
    """What the metric is. `own`: the metrics that the study declares."""
    if any(request.name == metric.name for request in own):
        return "What the program reported; the study file names the pattern or the file."
    if metric.name == _MEMORY:
        kinds = sorted({record.memory_kind for pair in pairs for record in pair})
        return "The largest sample of the memory of all processes of the arm: " + " or ".join(
            _KINDS.get(kind, f"{kind.upper()}.") for kind in kinds
        )
    return _TEXTS.get(metric.name, "")
