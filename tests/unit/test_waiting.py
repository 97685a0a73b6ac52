"""The time that the arms waited for a processor, taken out of the throughput."""

import math
import random

import msgspec
import pytest
from builders import make_records, make_study

from bareboat.model import Record, Study, Window
from bareboat_study import analysis, measures


@pytest.fixture
def study() -> Study:
    return make_study(metered=True, runs=6)


def waited(records: list[Record]) -> list[Record]:
    """The records of arms that need 0.1 s for a step, and wait by chance, as beside other work."""
    chance = random.Random(1)
    made = []
    for record in records:
        windows = []
        for block in range(10):
            wait = chance.expovariate(10) * 10
            cpu = 1.0
            step_s = 0.1 * math.exp(math.log1p(wait / cpu) + chance.gauss(0, 0.002))
            windows.append(
                Window(
                    block=block,
                    began_s=float(block),
                    step_s=(step_s,) * 10,
                    cpu_s=cpu,
                    wait_s=wait,
                    threads=4,
                )
            )
        made.append(msgspec.structs.replace(record, windows=tuple(windows)))
    return made


def test_a_container_that_causes_waits_is_not_free(study: Study) -> None:
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
    assert found.verdict == "different"
    assert found.primary.comparison.ratio == pytest.approx(1 / 1.05)
    (waits,) = (m for m in found.metrics if m.name == measures.WAITS)
    assert waits.comparison.ratio == pytest.approx(1.05, rel=0.002)


def test_without_the_kernel_s_counts_nothing_changes(study: Study) -> None:
    records = waited(make_records(study))
    first = msgspec.structs.replace(records[-1].windows[0], cpu_s=msgspec.UNSET, wait_s=msgspec.UNSET)
    windows = (first, *records[-1].windows[1:])
    records[-1] = msgspec.structs.replace(records[-1], windows=windows)
    names = [metric.name for metric in analysis.analyse(study, records).metrics]
    assert names[0] == "throughput"
    assert "processor time" not in names
