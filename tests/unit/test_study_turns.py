"""The order of the arms, the looks of a sequential study, the clock of the ranks, and processes to stop."""

from __future__ import annotations

import math
import subprocess
import time
from collections import Counter

import msgspec
import pytest
from builders import make_study

from bareboat.model import Arm, Study
from bareboat_base.execute import processes
from bareboat_study import job_steps, sequential, turns
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
    assert len({turns.drawn_seed(None) for _ in range(5)}) > 1
    assert turns.drawn_seed(7) == 7


def test_studies_of_earlier_versions_keep_their_seed() -> None:
    assert make_study().order_seed == 1
    assert seeded(5).order_seed == 5


@pytest.mark.parametrize(
    ("repeats", "expected"),
    [(40, (10, 20, 30, 40)), (12, (6, 8, 12)), (10, (8, 10)), (5, (5,)), (2, (2,))],
)
def test_the_looks_are_planned(repeats: int, expected: tuple[int, ...]) -> None:
    assert sequential.looks(repeats) == expected


def rank(number: int, *steps: tuple[float, float], independent: bool = False) -> Process:
    process = Process(
        rank=number, world_size=2, samples_per_step=1.0, loaded_ns=0, imported_ns=0, start_ns=0,
        independent=independent,
    )  # fmt: skip
    process.stretches = [(int(began * 1e9), [int(end * 1e9)]) for began, end in steps]
    return process


def test_a_step_ends_with_the_latest_rank() -> None:
    ranks = [rank(0, (0, 1), (1, 2), (5, 6)), rank(1, (0, 1.5), (1.5, 2.25), (5.1, 7))]
    found = job_steps.of_ranks(ranks, is_one_machine=True)
    assert found.seconds == pytest.approx((1.5, 0.75, 2.0))  # the pause at the gate is in none
    assert found.clock == "latest rank"
    alone = job_steps.of_ranks(ranks[:1], is_one_machine=True)
    assert alone.seconds == pytest.approx((1.0, 1.0, 1.0))


def test_clocks_of_nodes_are_aligned() -> None:
    ranks = [rank(0, (0, 1), (1, 2), (2, 3)), rank(1, (1000, 1001), (1001, 1002.5), (1002.5, 1003))]
    found = job_steps.of_ranks(ranks, is_one_machine=False)
    assert found.seconds == pytest.approx((1.0, 1.5, 0.5))


def test_independent_ranks_add_their_rates() -> None:
    fast = [(float(step), step + 1.0) for step in range(5)]
    slow = [(3.0 * step, 3.0 * step + 3.0) for step in range(5)]
    ranks = [rank(0, *fast, independent=True), rank(1, *slow, independent=True)]
    found = job_steps.of_ranks(ranks, is_one_machine=True)
    assert found.clock == "sum of rates"
    # 4 steps at rates of 1 and 1/3, each of half of the samples.
    assert math.fsum(found.seconds[1:]) == pytest.approx(4 / ((1 + 1 / 3) / 2))


def test_a_process_of_a_run_is_stopped_and_continues() -> None:
    """What `Live.freeze` stops; torchrun's agent, without the variable of its ranks, goes on."""
    mark = {"BAREBOAT_RUN": "turns-test", "PATH": "/usr/bin:/bin"}
    with (
        subprocess.Popen(["sleep", "60"], env=mark) as agent,
        subprocess.Popen(["sleep", "60"], env={**mark, "TORCHELASTIC_RUN_ID": "x"}) as own,
    ):
        deadline = time.monotonic() + 10
        while set(processes.processes_of("turns-test")) != {agent.pid, own.pid}:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert processes.ranks_of("turns-test") == [own.pid]
        agent.kill()
        own.kill()
