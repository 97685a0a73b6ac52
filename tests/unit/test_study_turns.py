"""The order of the arms, the looks of a sequential study, the clock of the ranks, the length of windows."""

import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from builders import make_study

from bareboat.model import Arm, Study
from bareboat_study import pilot, records, runs, turns
from bareboat_study.arms import ArmError
from bareboat_study.meterlog import Process


def seeded(seed: int, arms: int = 2) -> Study:
    study = make_study()
    own = tuple(
        Arm(name=f"arm {number}", engine="native", plan_digest=str(number), script="")
        for number in range(arms)
    )
    return msgspec.structs.replace(study, arms=own, seed=seed)


@pytest.mark.parametrize("arms", [2, 3, 4])
@pytest.mark.parametrize("seed", range(20))
def test_every_arm_has_every_position_equally_often(seed: int, arms: int) -> None:
    study = seeded(seed, arms)
    for orders in (
        [turns.starts(study, run) for run in range(1, 1 + 4 * arms)],
        [turns.windows(study, 3, block) for block in range(4 * arms)],
    ):
        for position in range(arms):
            assert Counter(order[position] for order in orders) == dict.fromkeys(range(arms), 4)
        assert all(sorted(order) == list(range(arms)) for order in orders)


def test_orders_are_random_and_those_of_their_seed() -> None:
    studies = [seeded(seed) for seed in range(40)]
    firsts = [tuple(turns.starts(study, run) for run in range(1, 13)) for study in studies]
    assert len(set(firsts)) > 30
    assert firsts[3] == tuple(turns.starts(seeded(3), run) for run in range(1, 13))
    assert {turns.starts(study, 1)[0] for study in studies} == {0, 1}


def rank(number: int, *steps: tuple[float, float], independent: bool = False) -> Process:
    process = Process(
        rank=number, world_size=2, samples_per_step=1.0, loaded_ns=0, imported_ns=0, start_ns=0,
        independent=independent,
    )  # fmt: skip
    process.stretches = [(int(began * 1e9), [int(end * 1e9)]) for began, end in steps]
    return process


def test_a_step_ends_with_the_latest_rank() -> None:
    ranks = [rank(0, (0, 1), (1, 2), (5, 6)), rank(1, (0, 1.5), (1.5, 2.25), (5.1, 7))]
    found = records.of_ranks(ranks, is_one_machine=True)
    assert found.seconds == pytest.approx((1.5, 0.75, 2.0))  # the pause at the gate is in none
    alone = records.of_ranks(ranks[:1], is_one_machine=True)
    assert alone.seconds == pytest.approx((1.0, 1.0, 1.0))


def test_clocks_of_nodes_are_aligned() -> None:
    ranks = [rank(0, (0, 1), (1, 2), (2, 3)), rank(1, (1000, 1001), (1001, 1002.5), (1002.5, 1003))]
    found = records.of_ranks(ranks, is_one_machine=False)
    assert found.seconds == pytest.approx((1.0, 1.5, 0.5))


def test_independent_ranks_add_their_rates() -> None:
    fast = [(float(step), step + 1.0) for step in range(5)]
    slow = [(3.0 * step, 3.0 * step + 3.0) for step in range(5)]
    ranks = [rank(0, *fast, independent=True), rank(1, *slow, independent=True)]
    found = records.of_ranks(ranks, is_one_machine=True)
    # 4 steps at rates of 1 and 1/3, each of half of the samples.
    assert math.fsum(found.seconds[1:]) == pytest.approx(4 / ((1 + 1 / 3) / 2))


def test_a_job_that_does_not_end_after_its_ranks_is_named_with_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float | None] = []
    live = SimpleNamespace(wait=waited.append, process_lines=lambda: ["process 7: python train.py"])
    arm: Any = SimpleNamespace(arm=SimpleNamespace(name="container"), live=live, log=tmp_path / "none")
    monkeypatch.setattr(runs, "SILENCE_S", 60.0)
    with pytest.raises(ArmError, match="container: all ranks closed their meters") as raised:
        runs._await_exit(arm)
    assert waited == [60.0]
    assert "process 7: python train.py" in raised.value.context


def windows(first_s: float, *, buffer: int, lengths: tuple[int, ...]) -> list[list[float]]:
    """Windows of these lengths whose first `buffer` steps take so long, and the others 10 ms."""
    return [[first_s] * min(buffer, each) + [0.010] * max(0, each - buffer) for each in lengths]


@pytest.mark.parametrize(("buffer", "expected"), [(0, 20), (1, 40), (4, 160)])
def test_windows_are_as_long_as_the_slowest_buffer_needs(buffer: int, expected: int) -> None:
    lengths = tuple(20 << number for number in range(6)) * 4
    arms = [windows(0.010, buffer=0, lengths=lengths), windows(0.0085, buffer=buffer, lengths=lengths)]
    assert pilot.chosen(arms, 0.06, least=20, total=10**6) == expected


def test_noise_makes_no_longer_windows_and_a_short_training_not_too_few() -> None:
    noisy = [[[0.01, 0.02] * 10, [0.02, 0.01] * 10, [0.01] * 10 + [0.02] * 10, [0.02] * 10 + [0.01] * 10]]
    assert pilot.chosen(noisy, 0.02, least=20, total=10**6) == 20
    arms = [windows(0.001, buffer=9, lengths=(20, 40, 80) * 4)]
    assert pilot.chosen(arms, 0.02, least=20, total=240) == 40
    assert pilot.chosen(arms, 0.02, least=20, total=30) == 5


def test_steps_that_run_ahead_of_a_device_are_no_transient() -> None:
    ahead = [0.001] * 16 + [0.010] * 63 + [0.010 + 16 * 0.009]
    found = pilot.transient(ahead)
    assert found is not None
    assert abs(found) < 1e-9
    assert pilot.transient([0.005] * 20 + [0.010] * 60) == pytest.approx(math.log(0.5))
    assert pilot.transient([0.010] * 3) is None


def test_some_runs_have_each_arm_alone() -> None:
    study = msgspec.structs.replace(seeded(1), metered=True)
    assert [run for run in range(31) if turns.has_alone(study, run)] == [2, 5, 20, 30]
    few = msgspec.structs.replace(study.job.prove, repeats=3)
    few_runs = msgspec.structs.replace(study, job=msgspec.structs.replace(study.job, prove=few))
    assert [run for run in range(4) if turns.has_alone(few_runs, run)] == [1, 2]
    assert not turns.has_alone(msgspec.structs.replace(study, alone_because="a tracer"), 2)
