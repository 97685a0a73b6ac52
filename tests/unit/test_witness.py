"""Whether taking turns changes what it measures: the arms alone, and the quarters of windows."""

import math

import msgspec
import pytest
from builders import make_records, make_study

from bareboat.model import Alone, Record, Study, Usage, Window
from bareboat_study import analysis, witness
from bareboat_study.statistics import Verdict

pytest.importorskip("scipy")


def with_alone(study: Study, records: tuple[Record, ...], factors: tuple[float, float]) -> list[Record]:
    """The records, two runs of them with each arm alone, so many times as fast as in turns."""
    times = dict(zip((arm.name for arm in study.arms), factors, strict=True))
    made = []
    for record in records:
        if record.run in (2, 5):
            steps = tuple(step / times[record.arm] for window in record.windows for step in window.step_s)
            record = msgspec.structs.replace(record, alone=Alone(step_s=steps, wall_s=sum(steps) + 3))
        made.append(record)
    return made


def with_first_quarter(records: tuple[Record, ...], arm: str, factor: float) -> list[Record]:
    """The records, with so many times as long steps in the first quarter of the windows of an arm."""

    def longer(window: Window) -> Window:
        quarter = len(window.step_s) // 4
        first = tuple(step * factor for step in window.step_s[:quarter])
        return msgspec.structs.replace(window, step_s=(*first, *window.step_s[quarter:]))

    return [
        msgspec.structs.replace(each, windows=tuple(map(longer, each.windows))) if each.arm == arm else each
        for each in records
    ]


def test_arms_that_are_as_fast_alone_have_their_verdict() -> None:
    study = make_study(runs=12)
    found = analysis.analyse(study, with_alone(study, make_records(study), (1.001, 0.999)))
    assert found.verdict is Verdict.EQUIVALENT
    assert not found.withheld
    (note,) = (each for each in found.notes if each.startswith("Alone / in turns, 2 runs of each arm"))
    assert "bare metal 1.0010 [" in note
    assert "container 0.9990 [" in note
    assert "The wall times of these runs alone have the ratio" in note


@pytest.mark.parametrize("factors", [(1.0, 0.75), (1.3, 1.0), (0.7, 0.7)])
def test_arms_that_turns_make_faster_or_slower_have_no_verdict(factors: tuple[float, float]) -> None:
    study = make_study(runs=12)
    found = analysis.analyse(study, with_alone(study, make_records(study), factors))
    assert found.verdict is Verdict.UNDECIDED
    assert found.unusable
    assert found.sentence.startswith("undecided: taking turns changes the speed of the arms")


def test_a_difference_that_noise_allows_withholds_nothing() -> None:
    study = make_study(runs=12)
    noisy = [
        msgspec.structs.replace(
            each, windows=tuple(_slower(window, 1 + 0.1 * (each.run * 7 % 3)) for window in each.windows)
        )
        if each.arm == "container"
        else each
        for each in make_records(study)
    ]
    found = analysis.analyse(study, with_alone(study, tuple(noisy), (1.0, 0.93)))
    assert not found.withheld


def _slower(window: Window, factor: float) -> Window:
    return msgspec.structs.replace(window, step_s=tuple(step * factor for step in window.step_s))


def test_runs_alone_that_failed_leave_the_turns_unchecked() -> None:
    study = make_study(runs=12)
    records = [
        msgspec.structs.replace(each, alone=Alone(code=3)) if each.alone is not msgspec.UNSET else each
        for each in with_alone(study, make_records(study), (1.0, 0.5))
    ]
    found = analysis.analyse(study, records)
    assert found.verdict is Verdict.UNDECIDED
    assert any(each.startswith("Of 2 runs with each arm alone, 0 ended well") for each in found.notes)


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, "equivalent"), (1.02, "undecided"), (0.98, "undecided")]
)
def test_windows_that_measure_a_transient_show_no_equivalence(factor: float, verdict: str) -> None:
    study = make_study(runs=12)
    found = analysis.analyse(study, with_first_quarter(make_records(study), "container", factor))
    assert found.verdict.value == verdict
    assert ("the windows measure a transient" in found.sentence) == (verdict == "undecided")
    assert any("first quarter of the windows takes longer" in each for each in found.notes)


def test_arms_that_are_alone_have_no_transient() -> None:
    study = msgspec.structs.replace(make_study(runs=12), alone_because="container: process 7 has a tracer")
    found = analysis.analyse(study, with_first_quarter(make_records(study), "container", 1.05))
    assert not found.withheld
    assert any(each.startswith("The arms do not take turns (container: process 7") for each in found.notes)


@pytest.mark.parametrize("metered", [True, False])
@pytest.mark.parametrize("left", [0.4, 0.6])
def test_runs_that_do_less_than_the_first_one_have_no_verdict(metered: bool, left: float) -> None:
    study = make_study(runs=12, metered=metered)
    records = []
    for each in make_records(study):
        is_first = each.warm_up and (metered or not each.position)
        windows = each.windows if is_first else each.windows[: round(len(each.windows) * left)]
        usage = Usage(at_s=(), curves={}, totals={"cpu_s": 13.0 * (1 if is_first else left)})
        records.append(msgspec.structs.replace(each, windows=windows, usage=usage))
    found = analysis.analyse(study, records)
    amount = "150 of 360 steps" if metered else "5.2 of 13 s of processor time"
    assert bool(found.withheld) == (amount in found.sentence) == (left < 0.5)
    assert found.unusable.startswith("all runs do less than half" * (left < 0.5))
    unknown = [msgspec.structs.replace(each, usage=msgspec.UNSET) for each in records]
    assert bool(analysis.analyse(study, unknown).withheld) == (metered and left < 0.5)


def test_a_drift_of_the_machine_is_no_noise() -> None:
    study = make_study(runs=12)
    drifting = [
        msgspec.structs.replace(
            each, windows=tuple(_slower(window, math.exp(0.02 * each.run)) for window in each.windows)
        )
        for each in make_records(study)
    ]
    records = with_alone(study, tuple(drifting), (1.0, 1.0))
    pairs = [(run[0], run[1]) for run in analysis.measured_runs(study, records)]
    widths: list[float] = [each.high / each.low - 1 for each in witness.alone_in_turns(study, pairs)]
    assert max(widths) < 0.2
