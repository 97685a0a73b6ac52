"""Who is slow, by what ranks report: found when it is so, and not made up from noise."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareboat.runs.progress import look_for_straggler
from bareboat.runs.stragglers import ERROR, WINDOW, find_straggler, read_steps

Reports = dict[int, dict[int, float]]


def reports(ranks: int, steps: int, *, seed: int = 1, noise: float = 0.1, **slow: float) -> Reports:
    """`slow`: rN -> so many times as long."""
    draw = random.Random(seed)
    return {
        rank: {step: slow.get(f"r{rank}", 1.0) * 0.1 * draw.lognormvariate(0, noise) for step in range(steps)}
        for rank in range(ranks)
    }


def nodes(ranks: int, each: int = 2) -> tuple[str, ...]:
    return tuple(f"c{rank // each + 1}" for rank in range(ranks))


def test_a_slow_rank_is_found_with_its_node() -> None:
    found = find_straggler(reports(8, 100, r5=1.4), nodes(8))
    assert found is not None
    assert (found.rank, found.node, found.steps, found.also) == (5, "c3", WINDOW, 0)
    assert found.ratio == pytest.approx(1.4, rel=0.1)
    assert found.text.startswith("rank 5 on c3: 1.4x the median of the others in the last 50 steps")


def test_of_two_ranks_the_slow_one_is_told() -> None:
    found = find_straggler(reports(2, 30, r1=2.0), nodes(2, 1))
    assert found is not None
    assert found.text == f"rank 1 on c2: {found.ratio:.1f}x the other rank's in the last 30 steps"


def test_a_slow_node_is_told_as_one() -> None:
    found = find_straggler(reports(6, 60, r2=1.5, r3=1.5), nodes(6))
    assert found is not None
    assert (found.node, found.whole_node, found.also) == ("c2", True, 1)
    assert found.text.startswith("node c2: ")
    one_more = find_straggler(reports(6, 60, r2=1.5, r3=1.5, r4=1.5), nodes(6))
    assert one_more is not None
    assert not one_more.whole_node


def test_only_the_newest_steps_count() -> None:
    was_slow = reports(4, 200, r1=3.0)
    is_slow = reports(4, 200, r2=2.0)
    both = {r: {s: (was_slow if s < 100 else is_slow)[r][s] for s in range(200)} for r in range(4)}
    found = find_straggler(both, nodes(4))
    assert found is not None
    assert found.rank == 2


@pytest.mark.parametrize("slow", [{}, {"r1": 1.1}])
def test_nobody_is_told_of_who_is_not_slow(slow: dict[str, float]) -> None:
    assert find_straggler(reports(8, 100, **slow), nodes(8)) is None


def test_one_long_step_is_no_straggler() -> None:
    """A checkpoint of rank 0, say."""
    made = reports(4, 50)
    for step in range(0, 50, 5):
        made[0][step] = 30.0
    assert find_straggler(made, nodes(4)) is None


@pytest.mark.parametrize(
    "made",
    [
        {},
        reports(4, 2, r1=9.0),  # too few steps to be sure
        {rank: found for rank, found in reports(4, 50, r1=9.0).items() if rank != 2},  # one says nothing
        {rank: {s + 100 * rank: t for s, t in f.items()} for rank, f in reports(4, 50, r1=9.0).items()},
    ],
)
def test_too_little_is_nothing(made: Reports) -> None:
    assert find_straggler(made, nodes(4)) is None


def test_noise_alone_is_rarely_told() -> None:
    """With noise of 50 % the slowest of 16 equal ranks looks 1.2 times as slow as the others often enough."""
    trials = 200
    told = looks_slow = 0
    for seed in range(trials):
        made = reports(16, 12, seed=seed, noise=0.5)
        told += find_straggler(made, nodes(16)) is not None
        middles = sorted(median(found.values()) for found in made.values())
        looks_slow += middles[-1] > 1.2 * median(middles)
    assert looks_slow > trials / 2
    assert told <= trials * ERROR * 3


TIMES = st.floats(1e-6, 1e3)


@given(st.lists(st.lists(TIMES, min_size=20, max_size=20), min_size=2, max_size=6), st.randoms())
def test_the_order_of_ranks_and_the_unit_of_time_do_not_matter(
    times: list[list[float]], draw: random.Random
) -> None:
    made = {rank: dict(enumerate(found)) for rank, found in enumerate(times)}
    found = find_straggler(made, nodes(len(times)))
    scaled = {rank: {s: 4.0 * t for s, t in taken.items()} for rank, taken in made.items()}
    assert find_straggler(scaled, nodes(len(times))) == found
    if found is None:
        return
    assert found.ratio >= 1.2
    order = list(made)
    draw.shuffle(order)
    moved = find_straggler({new: made[old] for new, old in enumerate(order)}, nodes(len(times)))
    assert moved is not None
    assert (moved.ratio, moved.also) == (found.ratio, found.also)


@given(st.integers(2, 5), st.data())
def test_the_ratio_is_that_to_the_median_of_the_others(ranks: int, data: st.DataObject) -> None:
    slow = data.draw(st.integers(0, ranks - 1))
    made = {
        rank: {step: data.draw(TIMES) for step in range(12)} if rank != slow else {} for rank in range(ranks)
    }
    for step in range(12):
        made[slow][step] = 2 * max(found[step] for rank, found in made.items() if rank != slow)
    found = find_straggler(made, ["c1"] * ranks)
    assert found is not None
    expected = median(made[slow][s] / median(f[s] for r, f in made.items() if r != slow) for s in range(12))
    assert found.rank == slow
    assert found.ratio == pytest.approx(expected, abs=1e-3, rel=1e-3)


@given(st.text())
def test_anything_may_stand_in_a_report(text: str) -> None:
    assert all(seconds > 0 for seconds in read_steps(text).values())


def test_reports_are_read_leniently() -> None:
    assert read_steps("1 0.5\nhello\n\n2 nan\n3 inf\n4 -1\n5 0.25 more\nx 1\n6\n") == {1: 0.5, 5: 0.25}
    assert read_steps("7 1\n8 1\n3 2\n4 2\n") == {3: 2.0, 4: 2.0}, "it started anew"


def test_files_are_read_from_their_ends(tmp_path: Path) -> None:
    folder = tmp_path / "ranks" / "progress"
    assert look_for_straggler(tmp_path, ("c1", "c2")) is None
    folder.mkdir(parents=True)
    (folder / "0").write_text("".join(f"{step} 0.1000000\n" for step in range(5000)))
    assert look_for_straggler(tmp_path, ("c1", "c2")) is None
    # One that is being written: a last line without an end.
    (folder / "1").write_text("".join(f"{step} 0.2000000\n" for step in range(5000)) + "5000 0.00")
    found = look_for_straggler(tmp_path, ("c1", "c2"))
    assert found is not None
    assert (found.rank, found.ratio, found.steps) == (1, 2.0, WINDOW)
