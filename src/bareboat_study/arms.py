"""An arm of a study's run: started, and then its record."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import UnsetType

from bareboat.model import Arm, MemorySample, Phases, Record, Study, Usage, Window
from bareboat.runs import directory, sampler_series
from bareboat.runs.causes import own_error
from bareboat_base import execute
from bareboat_base.clock import utc_now
from bareboat_base.errors import BareboatError, RunError
from bareboat_base.files.untrusted import last_lines
from bareboat_base.nearest import nearest
from bareboat_base.printable import one_line
from bareboat_study import page_cache, records, validity
from bareboat_study.freezer import Freezer
from bareboat_study.gate import Gate
from bareboat_study.meterlog import Process, read_rank
from bareboat_study.metrics import Reader
from bareboat_study.patterns import Curve, MissingMetricError

#: Interval of memory samples of an arm without a meter: a tenth of its age, within these bounds.
_SAMPLE_S = (0.01, 0.2)
_OUTPUT = "its last output:"
#: torchrun writes up to 60 lines below the error of a rank.
_SEARCHED_LINES, _SHOWN_LINES = 400, 18


class ArmError(RunError):
    """One arm failed. `arm`: its name."""

    def __init__(
        self, arm: str, message: str, *, context: str = "", remedy: str = "", code: int | None = None
    ) -> None:
        super().__init__(f"{arm}: {message}", context=context, remedy=remedy, code=code)
        self.arm = arm


def last_output(log: Path) -> str:
    """The error of the rank that failed first, and below it the last lines of the output."""
    text = last_lines(log, most=_SEARCHED_LINES)
    lines = text.splitlines()
    own = own_error(text) or next((line for line in reversed(lines) if line.strip()), "")
    return own if len(lines) < 2 else "\n".join((own, _OUTPUT, *lines[-_SHOWN_LINES:]))


@dataclass(slots=True, kw_only=True)
class MeasuredArm:
    """An arm of a run with the directory of its output and its metrics. `fault`: why its run is not
    measured."""

    arm: Arm
    folder: Path
    position: int
    numbers: dict[str, float] = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=dict)
    fault: BareboatError | None = None

    @property
    def log(self) -> Path:
        return self.folder / "output.log"


def check_warm_up(arms: Sequence[MeasuredArm]) -> None:
    """Raise RunError for an arm that was not measured."""
    faults = [(arm, arm.fault) for arm in arms if arm.fault is not None]
    if not faults:
        return
    arm, fault = faults[0]
    name = f"{arm.arm.name}: "
    message = fault.message if fault.message.startswith(name) else name + fault.message
    others = [each.arm.name for each in arms if each.fault is None]
    if isinstance(fault, MissingMetricError) and others:
        message += f"; it is there in {', '.join(others)}"
    parts = (fault.context, _OUTPUT, last_lines(arm.log))
    raise RunError(message, context="\n".join(filter(None, parts)), remedy=fault.remedy)


def check_goals(goals: Collection[str], arm: str, results: Collection[str]) -> None:
    """Raise RunError for a goal that a warm-up which ended well did not report."""
    for goal in sorted(set(goals) - set(results)):
        guess = nearest(goal, results)
        correct = f"did you mean {guess!r}? Correct" if guess else "correct"
        reported = ", ".join(one_line(name, limit=60) for name in sorted(results)[:20])
        raise RunError(
            f"{arm}: the run reported no result {goal!r}, which is a goal",
            context=f"its results: {reported}" if results else "it reported no results",
            remedy=f"{correct} goals under [prove], or report it: meter.result({goal}=VALUE)",
        )


def meters_differ() -> RunError:
    return RunError(
        "some arms have a meter, others do not",
        remedy="make bareboat_meter importable in all of them, or in none",
    )


class Turn(NamedTuple):
    """The steps `first` to `last` - 1 of an arm. `used`: `Used.since`, where the kernel counts it."""

    block: int
    first: int
    last: int
    used: tuple[int, int, int] | None


@dataclass(slots=True, kw_only=True)
class LiveArm(MeasuredArm):
    """An arm that has been started."""

    live: execute.Live
    freezer: Freezer
    gate: Gate
    started_at: str
    reader: Reader
    turns: list[Turn] = field(default_factory=list)
    memory: list[MemorySample] = field(default_factory=list)
    #: The files of which its processes execute code, in a warm-up, and how many of their bytes they use.
    executed: dict[str, int] | None = None
    _looked_at_s: float = 0.0

    def watch(self) -> float:
        """Sample an arm without a meter. Returns the seconds until the next sample."""
        least_s, most_s = _SAMPLE_S
        if self.live.wall_s >= least_s:
            self.sample_memory("rss")
        return min(max(self.live.wall_s / 10, least_s), most_s)

    def sample_memory(self, kind: str) -> None:
        at_s = (time.monotonic_ns() - self.live.spawned_ns) / 1e9
        self.memory.append(MemorySample(at_s=at_s, bytes=self.live.memory_bytes(kind)))
        if self.executed is not None:
            self._note_use(self.executed, at_s)

    def _note_use(self, executed: dict[str, int], at_s: float) -> None:
        """Keep which files the arm uses after its start."""
        if len(self.memory) == 1:
            page_cache.forget_use(execute.processes_of(self.live.mark))
            self._looked_at_s = 0.0
        elif at_s >= 1.1 * self._looked_at_s:  # rarely, because it takes as long as a window
            self._looked_at_s = at_s
            found = page_cache.executed_files(execute.processes_of(self.live.mark))
            executed |= {path: max(used, executed.get(path, 0)) for path, used in found.items()}

    def stand_still(self) -> str:
        """Stop all processes of the arm. Returns why this is not possible, where all go on; else empty."""
        why = self.freezer.freeze()
        if why:
            self.freezer.thaw()
        return why

    def stop(self) -> None:
        """Terminate the arm with all its processes."""
        self.freezer.thaw()
        self.live.stop()

    def ranks(self) -> list[Process]:
        """What the ranks' meters wrote. Raises RunError."""
        return [read_rank(self.meter_folder, rank) for rank in range(self.gate.world_size or 0)]

    @property
    def meter_folder(self) -> Path:
        return self.folder / "meter"


def record(study: Study, run: int, arm: LiveArm, began_ns: int) -> Record:
    """The record of an arm that exited. `began_ns`: the start of the study's run."""
    processes = arm.ranks() if study.metered else []
    first = processes[0] if processes else None
    exited_ns = arm.live.exited_ns or time.monotonic_ns()
    wall_s = arm.live.wall_s
    phases = None
    windows: tuple[Window, ...] = ()
    if first is not None:
        steps = records.of_ranks(processes, is_one_machine=True)
        turns = [turn for turn in arm.turns if turn.last <= len(steps.seconds)]
        windows = tuple(_window(steps, turn, began_ns) for turn in turns)
        if study.alone_because:
            windows = records.windows(study, steps, began_ns / 1e9)
        spawned_s = arm.live.spawned_ns / 1e9
        phases = records.phases(first, steps, began_s=spawned_s, ended_s=exited_ns / 1e9)
        wall_s = sum(getattr(phases, name) for name in Phases.__struct_fields__)
    # The kernel's peak of the largest process covers what samples missed.
    peak = max([arm.live.peak_process_bytes, *(sample.bytes for sample in arm.memory)])
    return records.make(
        study,
        run,
        arm.arm,
        first=first,
        numbers=arm.numbers,
        curves=arm.curves,
        fault=arm.fault,
        position=arm.position,
        started_at=arm.started_at,
        exit_code=arm.live.poll() or 0,
        wall_s=wall_s,
        world_size=arm.gate.world_size or study.job.topology.world_size,
        phases=phases,
        windows=windows,
        memory=tuple(arm.memory),
        memory_kind="pss" if first else "rss",
        peak_memory_bytes=peak,
        peak_rank_rss_bytes=tuple(process.peak_rss_bytes for process in processes),
        load_1min=os.getloadavg()[0],
        usage=_usage(arm, first, exited_ns),
    )


def _window(steps: records.JobSteps, turn: Turn, began_ns: int) -> Window:
    used: dict[str, Any] = {}
    if turn.used is not None:
        cpu_ns, wait_ns, threads = turn.used
        used = {"cpu_s": cpu_ns / 1e9, "wait_s": wait_ns / 1e9, "threads": threads}
    return Window(
        block=turn.block,
        began_s=(steps.opened_ns[turn.first] - began_ns) / 1e9,
        step_s=steps.seconds[turn.first : turn.last],
        **used,
    )


def failed_record(study: Study, run: int, arm: Arm, error: RunError) -> Record:
    """The record of an arm in a run of which an arm failed while all were taking turns."""
    failed = error.arm if isinstance(error, ArmError) else arm.name
    return records.make(
        study,
        run,
        arm,
        fault=error,
        position=0,
        started_at=utc_now(),
        exit_code=(error.code or 1) if arm.name == failed else validity.STOPPED,
        wall_s=0.0,
        load_1min=os.getloadavg()[0],
    )


def _usage(arm: LiveArm, first: Process | None, exited_ns: int) -> Usage | UnsetType:
    began_ns = arm.live.spawned_ns
    ends_ns = () if first is None else (*first.phase_ends_ns, exited_ns)
    return sampler_series.read(
        sampler_series.folders(arm.folder / directory.CONTROL),
        began_s=began_ns / 1e9,
        phase_ends_s=tuple((each - began_ns) / 1e9 for each in ends_ns),
        exact=arm.live.totals,
        is_alone=first is None,
    )
