"""bench/generated_studies: the true ratio is that of the drawn times, and the records are complete."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bareboat.model import Record, Study
from bareboat_base import codec

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(BENCH))
    import generated_verdicts

    yield generated_verdicts
    for name in [name for name in sys.modules if name.startswith("generated_")]:
        del sys.modules[name]


EFFECTS: tuple[dict[str, float], ...] = (
    {},
    {"ratio": 0.95},
    {"stall_share": 0.05, "stall_factor": 3.0},
    {"stall_share": 0.05, "stall_factor": 3.0, "stall_runs": 0.25},
    {"settle_factor": 3.0},
    {"wait": 0.08},
    {"ratio": 0.97, "stall_share": 0.1, "stall_factor": 2.0, "settle_factor": 2.0, "wait": 0.1},
)


@pytest.mark.usefixtures("bench")
@pytest.mark.parametrize("effects", EFFECTS, ids=str)
def test_the_true_ratio_is_that_of_the_drawn_times(effects: dict[str, float]) -> None:
    from generated_studies import process, scenarios

    made = process.Process(machine=scenarios.HARD, order=scenarios.SECOND, effects=process.Effects(**effects))
    generator = np.random.default_rng(5)
    totals = np.array([process.draw(made, generator).step_s.sum(axis=(1, 3)).sum(axis=0) for _ in range(150)])
    baseline, contender = totals.mean(axis=0)
    # The error of a ratio of two means, whose parts vary together.
    rest = totals[:, 0] - baseline / contender * totals[:, 1]
    error = rest.std(ddof=1) / math.sqrt(len(totals)) / baseline
    assert abs(math.log(baseline / contender / made.true_ratio)) < 4 * error
    assert error < 0.005


@pytest.mark.usefixtures("bench")
def test_a_copy_has_its_own_ratio_in_each_study() -> None:
    from generated_studies import process

    made = process.Process(effects=process.Effects(copy_deviation=0.01))
    generator = np.random.default_rng(5)
    drawn = [process.draw(made, generator) for _ in range(100)]
    own = np.log([each.true_ratio for each in drawn])
    assert 0.008 < own.std(ddof=1) < 0.012
    totals = np.array([each.step_s.sum(axis=(0, 1, 3)) for each in drawn])
    error = np.log(totals[:, 0] / totals[:, 1]) - own
    assert abs(error.mean()) < 0.001
    assert error.std(ddof=1) < 0.003


@pytest.mark.usefixtures("bench")
def test_records_are_those_of_a_whole_study() -> None:
    from generated_studies import process, records

    made = process.Process(order=process.Order(contender_first=0.75))
    study, written, _ = records.make(made, np.random.default_rng(5))
    assert codec.from_json(codec.to_json(study), Study, what="study") == study
    assert [codec.from_json(codec.to_json(each), Record, what="record") for each in written] == list(written)
    assert [(each.run, each.position) for each in written] == [
        (run, position) for run in range(made.size.runs + 1) for position in (0, 1)
    ]
    first = [each.arm for each in written if each.position == 0 and not each.warm_up]
    assert first.count("container") == 9
    for each in written[2:]:
        assert len(each.windows) == made.size.blocks
        assert all(len(window.step_s) == made.size.steps for window in each.windows)
    begun = sorted((w.began_s, sum(w.step_s)) for each in written[2:4] for w in each.windows)
    for (began, took), (following, _) in itertools.pairwise(begun):
        assert following == pytest.approx(began + took)


def test_equal_seeds_give_equal_rows(bench: Any) -> None:
    scenarios = {each.name: each for each in bench.SCENARIOS}
    assert len(scenarios) == len(bench.SCENARIOS)
    assert bench.row(scenarios["null"], 3, 1, False) == bench.row(scenarios["null"], 3, 1, False)
    assert bench.row(scenarios["null"], 3, 1, False) != bench.row(scenarios["null"], 3, 2, False)


def test_a_scenario_at_the_margin_is_at_the_margin(bench: Any) -> None:
    from generated_studies.scenarios import AT_MARGIN

    at_margin = [
        each for each in bench.SCENARIOS if "at the margin" in each.name and "faster" not in each.name
    ]
    assert len(at_margin) > 15
    for each in at_margin:
        assert each.process.true_ratio == pytest.approx(AT_MARGIN, rel=2e-4), each.name
