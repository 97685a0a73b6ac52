"""Verdicts in words: how large a difference may be, and no number of repeats that means nothing."""

import math
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from bareboat_study import verdicts
from bareboat_study.statistics import LEAST_RUNS, Comparison, Verdict, compare, mean_of


def said(*ratios: float, margin: float = 0.02) -> tuple[Comparison, str]:
    found = compare(mean_of([math.log(ratio) for ratio in ratios]), margin=margin, confidence=0.95)
    return found, verdicts.sentence(found, metric="wall time", baseline="bare metal", contender="bubblewrap")


def test_a_difference_that_may_be_small_may_exceed_the_margin() -> None:
    found, text = said(0.97, 0.985, 0.975, 0.99, 0.98, 0.985)
    assert found.verdict is Verdict.DIFFERENT
    assert "% lower: the margin of 2 % may be exceeded" in text
    assert re.search(r"between 1\.\d % and 2\.\d % lower", text)


def test_an_interval_of_few_runs_that_means_nothing_is_not_printed() -> None:
    assert said(0.9, 1.12)[0].has_too_few_runs
    assert "interval" in said(0.99, 1.01)[1]  # too wide for the margin, and no wonder of any other kind
    large, text = said(9.0, 11.0)
    assert (large.verdict, large.has_too_few_runs) == (Verdict.DIFFERENT, False)
    assert "95 % interval [" in text


def with_layouts(between: float, *effects: float, margin: float = 0.02) -> tuple[Comparison, str]:
    found = compare(mean_of(effects), margin=margin, confidence=0.95, between=between)
    text = verdicts.sentence(found, metric="throughput", baseline="a", contender="b", between=between)
    return found, text


NOISE = (0.03, -0.03, 0.025, -0.025, 0.035, -0.035, 0.03, -0.03)


def test_where_layouts_alone_are_too_much_they_are_the_reason() -> None:
    found, text = with_layouts(0.01, *NOISE)
    assert (found.verdict, found.enough_runs) == (Verdict.UNDECIDED, None)
    assert text.endswith(
        "no number of runs is enough at this margin: the interval contains a deviation of 1 % between "
        "layouts of files in the page cache, which more runs do not reduce; a new study needs a larger one"
    )
    _, text = with_layouts(0.0001, *NOISE, margin=0.001)
    assert "too noisy" in text
    found = compare(mean_of([0.9 * sign for sign in (1, -1) * 300]), margin=0.025, confidence=0.95)
    text = verdicts.sentence(found, metric="throughput", baseline="a", contender="b")
    assert text.endswith(
        "no number of runs up to 10,000 is enough at this margin; a new study needs a larger one"
    )


@settings(max_examples=40)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=14), st.sampled_from((0.001, 0.02, 0.5)))  # log ratios
def test_a_sentence_never_suggests_one_repeat_nor_any_from_too_few_runs(
    effects: list[float], margin: float
) -> None:
    found = compare(mean_of(effects), margin=margin, confidence=0.95)
    text = verdicts.sentence(found, metric="m", baseline="a", contender="b")
    assert text.startswith(found.verdict.value)
    if found.verdict is Verdict.UNDECIDED:
        assert re.search(r"new study of \d+ runs|too few to decide|no number of runs", text)
    more = re.search(r"new study of (\d+) runs", text)
    if more is not None:
        assert int(more[1]) >= 2
        assert found.runs >= LEAST_RUNS
    if found.verdict is Verdict.DIFFERENT:
        assert ("is exceeded" in text) == (max(found.low, 1 / found.high) > 1 + margin)
        assert "is exceeded" in text or "may be exceeded" in text
