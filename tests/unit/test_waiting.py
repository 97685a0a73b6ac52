"""The time that the arms waited for a processor, taken out of the throughput."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from builders import make_records, make_study

from bareboat.model import Record, Study, Window
from bareboat_base.execute.processes import scheduling
from bareboat_study import analysis, measures, waiting

SHARED = ("cgroup 0::/user; policy 0; nice 0; cores 0,1",)


@pytest.fixture
def study() -> Study:
    return make_study(metered=True, runs=6)


def waited(records: list[Record], *, slower: float = 1.0, cost: float = 1.0) -> list[Record]:
    """The records of arms that need 0.1 s for a step, the contender `slower` times as long, and wait as other
    work on the machine wants: by chance. A wait lengthens the step `cost` times as it does for one thread."""
    chance = random.Random(1)
    made = []
    for record in records:
        base = 0.1 * (1.0 if record.arm == records[0].arm else slower)
        windows = []
        for block in range(10):
            wait = chance.expovariate(1 / base) * 10
            cpu = base * 10
            step_s = base * math.exp(cost * math.log1p(wait / cpu) + chance.gauss(0, 0.002))
            windows.append(
                Window(
                    block=block,
                    began_s=float(block),
                    settle=0,
                    step_s=(step_s,) * 10,
                    cpu_s=cpu,
                    wait_s=wait,
                    threads=4,
                )
            )
        made.append(msgspec.structs.replace(record, windows=tuple(windows), scheduled_as=SHARED))
    return made


def half_width(metric: measures.Metric) -> float:
    return math.log(metric.comparison.high / metric.comparison.low) / 2


@pytest.mark.parametrize("cost", [1.0, 2.0])
def test_waits_are_removed_and_a_difference_of_the_arms_stays(study: Study, cost: float) -> None:
    records = waited(make_records(study), slower=1.03, cost=cost)
    found = analysis.analyse(study, records)
    by_name = {metric.name: metric for metric in found.metrics}
    measured, throughput, processor = (
        by_name[name] for name in ("throughput", measures.ADJUSTED, "processor time")
    )
    assert (measured.primary, throughput.primary) == (True, False)
    assert throughput.comparison.low < 1 / 1.03 < throughput.comparison.high
    assert half_width(throughput) < half_width(measured) / 20
    assert by_name[measures.WAITS].comparison.low < 1 < by_name[measures.WAITS].comparison.high
    assert processor.comparison.ratio == pytest.approx(1.03)
    assert not processor.higher_is_better
    for a, b, effect in zip(throughput.baseline, throughput.contender, throughput.effects, strict=True):
        assert b / a == pytest.approx(math.exp(effect))
    assert any(f"slope {cost:.0f}." in note or f"slope {cost - 0.01:.2f}" in note for note in found.notes)


def test_a_container_that_causes_waits_is_not_free(study: Study) -> None:
    """What the adjustment takes out is in the measured throughput, which decides."""
    made = []
    for record in waited(make_records(study)):
        more = 1.05 if record.arm == study.arms[1].name else 1.0
        windows = tuple(
            msgspec.structs.replace(
                w, cpu_s=1.0, wait_s=more - 1 + 0.001 * (w.block % 3), step_s=(0.1 * more,) * 10
            )
            for w in record.windows
        )
        made.append(msgspec.structs.replace(record, windows=windows))
    found = analysis.analyse(study, made)
    assert found.word == "different"
    assert found.primary.comparison.ratio == pytest.approx(1 / 1.05)
    (waits,) = (m for m in found.metrics if m.name == measures.WAITS)
    assert waits.comparison.ratio == pytest.approx(1.05, rel=0.002)


def test_arms_that_are_scheduled_differently_keep_their_waits(study: Study) -> None:
    """A container's limit on processor time makes it wait, which is its cost."""
    contender = study.arms[1].name
    limited = ("cgroup 0::/user/container; policy 0; nice 0; cores 0,1",)
    records = [
        msgspec.structs.replace(record, scheduled_as=limited) if record.arm == contender else record
        for record in waited(make_records(study))
    ]
    found = analysis.analyse(study, records)
    assert measures.ADJUSTED not in [metric.name for metric in found.metrics]
    assert not any("waited" in note for note in found.notes)
    crowded = [
        msgspec.structs.replace(
            record,
            scheduled_as=SHARED,
            windows=(*record.windows[:-1], msgspec.structs.replace(record.windows[-1], threads=5)),
        )
        if record.arm == contender
        else record
        for record in waited(make_records(study))
    ]
    assert analysis.analyse(study, crowded).primary == found.primary
    unknown = [msgspec.structs.replace(record, scheduled_as=msgspec.UNSET) for record in records]
    assert analysis.analyse(study, unknown).primary == found.primary


def test_without_the_kernel_s_counts_nothing_changes(study: Study) -> None:
    records = waited(make_records(study))
    first = msgspec.structs.replace(records[-1].windows[0], cpu_s=msgspec.UNSET, wait_s=msgspec.UNSET)
    windows = (first, *records[-1].windows[1:])
    records[-1] = msgspec.structs.replace(records[-1], windows=windows)
    names = [metric.name for metric in analysis.analyse(study, records).metrics]
    assert names[0] == "throughput"
    assert "processor time" not in names


def test_the_slope_is_that_within_the_runs() -> None:
    waits = [[0.1 * block for block in range(6)] for _ in range(5)]
    times = [[run + 0.5 * wait for wait in waits[run]] for run in range(5)]
    assert waiting.slope(times, waits) == pytest.approx(0.5)
    assert waiting.slope([[-each for each in run] for run in times], waits) == 0
    assert waiting.slope(times[:3], waits[:3]) == 0  # too few blocks
    assert waiting.slope(times, [[0.0] * 6] * 5) == 0


def test_steps_to_settle_are_in_no_processor_time() -> None:
    window = Window(block=0, began_s=0.0, settle=2, step_s=(1.0,) * 6, cpu_s=2.0, wait_s=1.0)
    assert waiting.cpu_step_s([window], 1.0) == 0.5


def test_a_process_is_scheduled_by_its_settings() -> None:
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    found = scheduling(os.getpid())
    assert found.startswith("cgroup ")
    assert found.endswith(f"; policy {os.sched_getscheduler(0)}; nice {os.nice(0)}; cores {cores}")
    assert scheduling(2**22 + 1) == ""


def test_a_process_that_helpers_work_for_is_scheduled_differently(tmp_path: Path) -> None:
    own = scheduling(os.getpid())
    (tmp_path / "squashfuse").symlink_to("/bin/cat")
    # PTRACE_TRACEME: traced by its parent.
    traced = "import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0); print(flush=True); input()"
    commands = {"; FUSE": [str(tmp_path / "squashfuse")], "; traced": [sys.executable, "-c", traced]}
    for mark, command in commands.items():
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            if mark == "; FUSE":
                process.stdin.write(b"\n")
                process.stdin.flush()
            process.stdout.readline()
            found = scheduling(process.pid)
            process.kill()
        assert found == own + mark
