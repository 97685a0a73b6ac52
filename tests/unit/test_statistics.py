"""The statistics room: arithmetic against independent sources, and its promises against simulated studies."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

np = pytest.importorskip("numpy")
stats = pytest.importorskip("scipy.stats")

from bareboat_base.errors import UsageError  # noqa: E402
from bareboat_study.statistics import (  # noqa: E402
    LEAST_RUNS,
    MOST_RUNS,
    OPEN,
    Comparison,
    Verdict,
    change,
    compare,
    contrast,
    mean_of,
    runs_needed,
)
from bareboat_study.windows import typical_speeds  # noqa: E402

sys.path.append(str(Path(__file__).parents[2] / "bench"))
import simulate  # noqa: E402
from simulate import Design, Machine, Method, Rates, error_rates  # noqa: E402

# Log ratios as studies have them, from a third to three times as fast, and all sizes of study.
LOG_RATIOS = st.lists(st.floats(-1.1, 1.1, allow_subnormal=False), min_size=2, max_size=30)
MARGINS = st.floats(0.001, 0.5)
CONFIDENCES = st.sampled_from([0.8, 0.9, 0.95, 0.99])


def judge(log_ratios: Sequence[float], margin: float = 0.02, confidence: float = 0.95) -> Comparison:
    return compare(mean_of(log_ratios), margin=margin, confidence=confidence)


# compare: against sources that share no code with it


#: As many runs on each side as far from the middle, or too few for an estimate of the skewness.
UNSKEWED = st.lists(st.floats(-1.1, 1.1, allow_subnormal=False), min_size=2, max_size=11) | st.builds(
    lambda half, middle: [middle + side * each for each in half for side in (1, -1)],
    st.lists(st.floats(0.001, 0.5), min_size=6, max_size=15),
    st.floats(-0.5, 0.5),
)


@settings(max_examples=40)
@given(UNSKEWED, MARGINS, CONFIDENCES)
def test_without_skewness_p_values_and_interval_are_those_of_scipy(
    values: list[float], margin: float, confidence: float
) -> None:
    assume(np.std(values) > 1e-6)
    found = judge(values, margin, confidence)
    bound = math.log(1 + margin)
    two_sided = stats.ttest_1samp(values, 0)
    above_low = stats.ttest_1samp(values, -bound, alternative="greater")
    below_high = stats.ttest_1samp(values, bound, alternative="less")
    interval = two_sided.confidence_interval(confidence)
    assert found.difference_p == pytest.approx(two_sided.pvalue, rel=1e-6, abs=1e-12)
    assert found.equivalence_p == pytest.approx(max(above_low.pvalue, below_high.pvalue), rel=1e-6, abs=1e-12)
    assert math.log(found.low) == pytest.approx(interval.low, rel=1e-6, abs=1e-9)
    assert math.log(found.high) == pytest.approx(interval.high, rel=1e-6, abs=1e-9)
    assert math.log(found.ratio) == pytest.approx(np.mean(values), rel=1e-6, abs=1e-9)


def test_skewed_runs_have_the_outer_ends_of_student_and_hall() -> None:
    # 9 runs without an effect, and 3 that a stall made slower: the mean is -0.05.
    values = [0.0] * 9 + [-0.2] * 3
    error = math.sqrt((9 * 0.05**2 + 3 * 0.15**2) / 11 / 12)
    cumulant = (9 * 0.05**3 - 3 * 0.15**3) * 12 / (11 * 10)
    skewness = cumulant / 12**2 / error**3
    found = judge(values)
    assert found.skewness == pytest.approx(skewness, rel=1e-9)

    def transformed(end: float) -> float:
        t = (-0.05 - end) / error
        return float(t + skewness * t**2 / 3 + skewness**2 * t**3 / 27 + skewness / 6)

    quantile = stats.t(11).ppf(0.975)
    assert transformed(math.log(found.low)) == pytest.approx(quantile, rel=1e-9)
    assert math.log(found.high) == pytest.approx(-0.05 + quantile * error, rel=1e-9)
    inner = stats.t(11).ppf(0.95)
    assert transformed(math.log(found.inner_low)) == pytest.approx(inner, rel=1e-9)
    assert found.difference_p == pytest.approx(2 * stats.t(11).cdf(-0.05 / error), rel=1e-9)


@pytest.mark.parametrize("runs", [2, 11, 12])
def test_the_skewness_of_few_runs_is_not_estimated(runs: int) -> None:
    found = judge([0.0] * (runs - 1) + [-0.1])
    assert (found.skewness != 0) is (runs == 12)


def test_a_known_part_of_the_error_has_no_skewness() -> None:
    mean = mean_of([0.0] * 11 + [-0.1])
    alone, wide = (compare(mean, margin=0.02, confidence=0.95, between=each) for each in (0.0, 0.1 / 12))
    # The error of the mean is 0.1 / 12, so the whole is sqrt(2) times as large.
    assert wide.skewness == pytest.approx(alone.skewness / 2**1.5, rel=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize(("share", "factor"), [(0.01, 3.0), (0.02, 2.0)])
def test_rare_stalls_that_cost_the_margin_are_seldom_called_equivalent(share: float, factor: float) -> None:
    # By Student's t it is in 10 and 8 % of them.
    generator = np.random.default_rng(1)
    stalled = generator.binomial(60, share, (2000, 12))
    runs = generator.normal(0, 0.0057, (2000, 12)) - np.log1p((factor - 1) * stalled / 60)
    found = [judge(each, margin=0.02) for each in runs.tolist()]
    assert sum(each.verdict is Verdict.EQUIVALENT for each in found) <= 0.065 * len(found)
    assert sum(each.low <= 1 / 1.02 <= each.high for each in found) >= 0.94 * len(found)


# compare: what holds for every study


@settings(max_examples=40)
@given(LOG_RATIOS, MARGINS, CONFIDENCES)
def test_swapping_the_arms_inverts_ratio_and_interval_and_nothing_else(
    values: list[float], margin: float, confidence: float
) -> None:
    one = judge(values, margin, confidence)
    other = judge([-value for value in values], margin, confidence)
    assert other.ratio == pytest.approx(1 / one.ratio, rel=1e-9)
    assert other.low == pytest.approx(1 / one.high, rel=1e-9)
    assert other.high == pytest.approx(1 / one.low, rel=1e-9)
    assert other.equivalence_p == pytest.approx(one.equivalence_p, rel=1e-9)
    assert other.difference_p == pytest.approx(one.difference_p, rel=1e-9)
    assert (other.verdict, other.enough_runs) == (one.verdict, one.enough_runs)


@settings(max_examples=40)
@given(LOG_RATIOS, MARGINS, CONFIDENCES)
def test_the_verdict_follows_from_the_intervals(
    values: list[float], margin: float, confidence: float
) -> None:
    found = judge(values, margin, confidence)
    # The interval of TOST at level alpha is the two-sided one of confidence 1 - 2 alpha.
    assume(1 - 2 * (1 - confidence) > 0.5)
    narrow = judge(values, margin, 1 - 2 * (1 - confidence))
    edges = (1 / (1 + margin), 1 + margin)
    # On an edge itself rounding decides.
    assume(all(abs(edge - end) > 1e-9 for edge in edges for end in (narrow.low, narrow.high)))
    assume(found.low == found.high or min(abs(found.low - 1), abs(found.high - 1)) > 1e-9)
    if edges[0] < narrow.low and narrow.high < edges[1]:
        expected = Verdict.EQUIVALENT if len(values) >= LEAST_RUNS else Verdict.UNDECIDED
    elif found.low > 1 or found.high < 1:
        expected = Verdict.DIFFERENT
    elif len(values) >= LEAST_RUNS and found.half_widths_of_margin > 3:
        expected = Verdict.TOO_NOISY
    else:
        expected = Verdict.UNDECIDED
    assert found.verdict is expected
    assert found.low <= found.ratio <= found.high
    assert found.enough_runs is None or (found.verdict in OPEN and found.enough_runs >= 1)


# compare: edges


def test_equivalent_between_the_one_sided_and_the_two_sided_level() -> None:
    # t = 2 with 9 degrees of freedom: p = 0.038 one-sided. Half the level on each side would refuse it.
    unit = [-1.0, 1.0] * 5
    error = math.sqrt(10 / 9) / math.sqrt(10)
    mean = math.log(1.02) - 2 * error * 0.004
    found = judge([mean + 0.004 * value for value in unit])
    assert found.equivalence_p == pytest.approx(0.0383, abs=1e-4)
    assert found.verdict is Verdict.EQUIVALENT


def test_a_one_sided_p_below_the_level_does_not_prove_a_difference() -> None:
    # t = 2 again: two-sided p = 0.077, so the interval holds 1 and nothing is proven.
    error = math.sqrt(10 / 9) / math.sqrt(10)
    found = judge([0.1 * (2 * error + value) for value in [-1.0, 1.0] * 5])
    assert found.difference_p == pytest.approx(0.0766, abs=1e-4)
    assert found.low < 1 < found.high
    assert found.verdict in OPEN


@pytest.mark.parametrize(
    ("value", "verdict", "equivalence_p", "difference_p"),
    [
        (0.0, Verdict.EQUIVALENT, 0, 1),
        (0.01, Verdict.EQUIVALENT, 0, 0),
        (-0.01, Verdict.EQUIVALENT, 0, 0),
        (0.1, Verdict.DIFFERENT, 1, 0),
        (-0.1, Verdict.DIFFERENT, 1, 0),
        (math.log1p(0.02), Verdict.DIFFERENT, 1, 0),
        (-math.log1p(0.02), Verdict.DIFFERENT, 1, 0),
    ],
)
def test_zero_variance_is_exact(
    value: float, verdict: Verdict, equivalence_p: float, difference_p: float
) -> None:
    found = judge([value] * 8)
    assert found.low == found.ratio == found.high == math.exp(value)
    assert (found.equivalence_p, found.difference_p) == (equivalence_p, difference_p)
    assert (found.verdict, found.enough_runs) == (verdict, None)


def test_the_bounds_are_symmetric_for_the_logarithm_not_for_the_ratio() -> None:
    # 1 / 1.02 = 0.98039 lies between them; with bounds of 0.98 and 1.02 both would pass.
    assert judge([math.log(0.98035)] * 8).verdict is Verdict.DIFFERENT
    assert judge([math.log(0.98045)] * 8).verdict is Verdict.EQUIVALENT


def test_wild_values_have_an_infinite_interval_not_a_crash() -> None:
    found = judge([400.0, -400.0])
    assert found.high == math.inf
    assert found.low == 0
    assert found.verdict in OPEN


@pytest.mark.parametrize("values", [[], [0.01]])
def test_fewer_than_two_runs_are_refused(values: list[float]) -> None:
    with pytest.raises(UsageError, match="at least 2") as caught:
        judge(values)
    assert "--repeats" in caught.value.remedy


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(wrong: float) -> None:
    for refused in (
        lambda: judge([0.0, wrong, 0.1]),
        lambda: runs_needed(deviation=wrong, margin=0.02, confidence=0.95),
    ):
        with pytest.raises(UsageError, match="not finite") as caught:
            refused()
        assert caught.value.remedy


@pytest.mark.parametrize(
    ("margin", "confidence", "match"),
    [
        (0, 0.95, "margin"),
        (-0.02, 0.95, "margin"),
        (1, 0.95, "margin"),
        (math.nan, 0.95, "margin"),
        (0.02, 0.5, "confidence"),
        (0.02, 1, "confidence"),
        (0.02, 95, "confidence"),
        (0.02, math.nan, "confidence"),
    ],
)
def test_settings_out_of_range_are_refused(margin: float, confidence: float, match: str) -> None:
    with pytest.raises(UsageError, match=match) as caught:
        judge([0.0, 0.1], margin, confidence)
    assert caught.value.remedy
    with pytest.raises(UsageError, match=match):
        runs_needed(deviation=0.01, margin=margin, confidence=confidence)


# contrast: one model of all arms


@st.composite
def designs(draw: st.DrawFn) -> tuple[Any, Any]:
    """Logs and positions of a study of several arms, in Latin squares of which some runs failed."""
    arms = draw(st.integers(2, 5))
    runs = draw(st.integers(4, 5)) * arms
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    squares = [generator.permutation(arms) for _ in range(runs // arms)]
    places = np.array([np.roll(square, shift) for square in squares for shift in range(arms)])
    kept = generator.permutation(runs)[: runs - draw(st.integers(0, 2))]
    return generator.normal(0, 0.1, (runs, arms))[kept], places[kept]


@settings(max_examples=60)
@given(designs())
def test_the_ratios_of_any_arms_multiply(design: tuple[Any, Any]) -> None:
    logs, places = design
    arms = logs.shape[1]
    first, middle, last = 0, arms // 2, arms - 1

    def ratio(baseline: int, contender: int) -> float:
        order = [baseline, contender, *({*range(arms)} - {baseline, contender})]
        return contrast(logs[:, order], places[:, order]).value

    assert ratio(first, last) == pytest.approx(-ratio(last, first), abs=1e-13)
    if arms > 2:
        assert ratio(first, middle) + ratio(middle, last) == pytest.approx(ratio(first, last), abs=1e-13)


@settings(max_examples=60)
@given(designs())
def test_runs_and_positions_are_in_no_ratio_and_no_interval(design: tuple[Any, Any]) -> None:
    logs, places = design
    runs, arms = logs.shape
    moved = logs + np.linspace(0, 1, runs)[:, None] + np.linspace(0, 0.3, arms)[places] ** 2
    one, other = contrast(logs, places), contrast(moved, places)
    for name in ("value", "error", "skewness", "freedom"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), rel=1e-6, abs=1e-9), name
    # In whole squares the ratio is that of the means, whatever the positions are worth.
    if all(np.ptp(np.bincount(column)) == 0 for column in places.T):
        assert one.value == pytest.approx((logs[:, 1] - logs[:, 0]).mean(), abs=1e-12)
        assert one.freedom == runs - 2
        assert one.error == pytest.approx(one.deviation / math.sqrt(runs))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.floats(-1, 1), st.booleans()), min_size=6, max_size=30))
def test_two_arms_have_the_mean_of_both_orders(runs: list[tuple[float, bool]]) -> None:
    sides = [np.array([value for value, order in runs if order is side]) for side in (False, True)]
    assume(min(map(len, sides)) >= 2)
    assume(sum(((side - side.mean()) ** 2).sum() for side in sides) > 1e-6)
    found = simulate.mean([value for value, _ in runs], [order for _, order in runs])
    squares = sum(((side - side.mean()) ** 2).sum() for side in sides)
    assert found.value == pytest.approx(sum(side.mean() for side in sides) / 2, abs=1e-12)
    assert found.freedom == len(runs) - 2
    assert found.deviation == pytest.approx(math.sqrt(squares / (len(runs) - 2)))
    assert found.error == pytest.approx(found.deviation * math.sqrt(sum(1 / len(side) for side in sides)) / 2)
    assert found.order is not None
    assert found.order.value == pytest.approx((sides[1].mean() - sides[0].mean()) / 2, abs=1e-12)
    assert (found.order.error, found.order.freedom) == (pytest.approx(found.error), found.freedom)
    if len(runs) >= 12:
        cubes = sum(((side - side.mean()) ** 3).sum() for side in sides)
        known = sum((len(side) - 1) * (len(side) - 2) / len(side) for side in sides)
        weight = sum(1 / len(side) ** 2 for side in sides) / 8
        assert found.skewness == pytest.approx(cubes / known * weight / found.error**3, rel=1e-6, abs=1e-9)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=80))
def test_typical_speeds_have_the_trimmed_mean_of_scipy(logs: list[float]) -> None:
    def arm(values: list[float]) -> Any:
        windows = [SimpleNamespace(step_s=(math.exp(value),)) for value in values]
        return SimpleNamespace(windows=windows, samples_per_step=2.0)

    one, other = typical_speeds((arm([0.3] * len(logs)), arm([0.3 + value for value in logs])))
    assert math.log(one / other) == pytest.approx(stats.trim_mean(logs, 0.2), rel=1e-9, abs=1e-12)


# runs_needed


@pytest.mark.parametrize(
    ("deviation", "margin", "confidence"), [(0.02, 0.02, 0.95), (0.05, 0.1, 0.99), (0.15, 0.05, 0.9)]
)
def test_the_number_of_runs_has_the_power_and_one_fewer_has_not(
    deviation: float, margin: float, confidence: float
) -> None:
    needed = runs_needed(deviation=deviation, margin=margin, confidence=confidence)
    assert needed is not None
    slack, settled = 4 * math.sqrt(0.25 / 40_000), []
    for runs in (needed - 1, needed):
        # The share of 40,000 drawn studies that pass TOST by scipy's quantiles.
        drawn = np.random.default_rng(7).normal(0, deviation, (40_000, runs))
        width = stats.t.ppf(confidence, runs - 1) * drawn.std(axis=1, ddof=1) / math.sqrt(runs)
        settled.append(float((np.abs(drawn.mean(axis=1)) + width <= math.log(1 + margin)).mean()))
    assert settled[0] < 0.8 + slack
    assert settled[1] > 0.8 - slack


def test_the_number_of_runs_contains_what_all_runs_have_in_common() -> None:
    deviation, between, bound, level = 0.03, 0.006, math.log(1.02), 0.95
    needed = runs_needed(deviation=deviation, margin=0.02, confidence=level, between=between)
    alone = runs_needed(deviation=deviation, margin=0.02, confidence=level)
    assert needed is not None
    assert alone is not None
    assert needed > alone
    settled = []
    for runs in (needed, alone):
        generator = np.random.default_rng(7)
        drawn = generator.normal(0, deviation, (40_000, runs)) + generator.normal(0, between, (40_000, 1))
        squares = drawn.var(axis=1, ddof=1) / runs
        errors = np.sqrt(squares + between**2)
        width = stats.t.ppf(level, (runs - 1) * (errors**2 / squares) ** 2) * errors
        settled.append(float((np.abs(drawn.mean(axis=1)) + width <= bound).mean()))
    slack = 4 * math.sqrt(0.25 / 40_000)
    assert settled[0] > 0.8 - slack > settled[1]
    assert runs_needed(deviation=0.001, margin=0.02, confidence=level, between=0.01) is None
    assert runs_needed(deviation=0.0, margin=0.02, confidence=level, between=0.005) == 2


@given(st.floats(0.001, 0.2), st.floats(0.005, 0.1))
@settings(max_examples=50)
def test_the_number_of_runs_grows_with_the_deviation(deviation: float, margin: float) -> None:
    one, more, unsure = (
        runs_needed(deviation=each, margin=margin, confidence=0.95, freedom=freedom) or math.inf
        for each, freedom in ((deviation, None), (1.5 * deviation, None), (deviation, 11))
    )
    assert 2 <= one <= min(more, unsure)
    assert one == math.inf or one <= MOST_RUNS


def test_without_variance_two_runs_are_enough() -> None:
    assert runs_needed(deviation=0, margin=0.02, confidence=0.95) == 2


def test_beyond_ten_thousand_there_is_no_advice() -> None:
    assert runs_needed(deviation=5, margin=0.02, confidence=0.95) is None
    # The normal approximation for equivalence in the middle: n = ((z.95 + z.90) s / log 1.02)^2.
    fits = math.sqrt(9_990) * math.log(1.02) / (1.644854 + 1.281552)
    assert runs_needed(deviation=fits, margin=0.02, confidence=0.95) == pytest.approx(9_990, abs=5)
    wild = judge([5.0, -5.0, 4.0, -4.0])
    assert (wild.verdict in OPEN, wild.enough_runs) == (True, None)


# The promises, kept over 1,000 studies each. Bounds: 99.9 % of the binomial; the seeds are fixed.

STUDIES = 1000
MOST = stats.binom.ppf(0.999, STUDIES, 0.05) / STUDIES
LEAST = stats.binom.ppf(0.001, STUDIES, 0.05) / STUDIES


def rates_of(true_ratio: float, method: Method = Method.TOTAL, runs: int = 12) -> Rates:
    return error_rates(
        true_ratio,
        Design(runs=runs, blocks=60, margin=0.02, confidence=0.95),
        studies=STUDIES,
        seed=round(1000 * true_ratio),
        method=method,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("true_ratio", [1.00, 1.01, 1.03, 1.10, 1 / 1.03])
def test_1000_studies_keep_their_promises(true_ratio: float) -> None:
    rates = rates_of(true_ratio)
    assert rates.equivalent + rates.different + rates.undecided == pytest.approx(1)
    # Not too narrow, and not so wide that the coverage is bought with precision.
    assert LEAST <= 1 - rates.coverage <= MOST
    assert 0.010 < rates.half_width < 0.015
    if true_ratio == 1:
        assert rates.different <= MOST
        assert rates.equivalent > 0.8
    elif abs(math.log(true_ratio)) >= math.log(1.02):
        assert rates.equivalent <= MOST
        assert rates.different > 0.95


@pytest.mark.thorough
@pytest.mark.parametrize("true_ratio", [1.02, 1 / 1.02])
def test_on_the_margin_equivalence_is_said_in_5_percent_no_more_and_no_less(true_ratio: float) -> None:
    # Less would be an honest test that wastes the user's time: half the level, say.
    assert LEAST <= rates_of(true_ratio).equivalent <= MOST


def test_with_three_runs_little_is_said_but_nothing_false() -> None:
    # So few that a normal quantile in place of Student's, or runs in place of runs - 1, would break it.
    at_one, on_the_margin = rates_of(1.0, runs=3), rates_of(1.02, runs=3)
    assert at_one.different <= MOST
    assert LEAST <= 1 - at_one.coverage <= MOST
    assert on_the_margin.equivalent <= MOST
    assert at_one.undecided > 0.1


@pytest.mark.thorough
def test_one_sided_costs_are_in_the_total_and_in_no_trimmed_mean() -> None:
    def rates(ratio: float, method: Method) -> Rates:
        return error_rates(
            ratio, Design(runs=12, blocks=60, margin=0.02, confidence=0.95), studies=200, seed=3,
            method=method, machine=Machine(stall_share=0.05, stall_factor=2.0),
        )  # fmt: skip

    most = stats.binom.ppf(0.999, 200, 0.05) / 200
    assert rates(1.05, Method.TRIMMED).equivalent > 0.8
    assert 1 - rates(1.05, Method.TRIMMED).coverage > 0.9
    found = rates(1.05, Method.TOTAL)
    assert (found.equivalent <= 0.01, found.different >= 0.95) == (True, True)
    assert 1 - found.coverage <= most
    assert rates(1.02, Method.TOTAL).equivalent <= most


def test_an_order_that_never_changes_is_not_estimated() -> None:
    effects = [0.001, 0.004, -0.002, 0.003, 0.0, -0.001]
    assert simulate.mean(effects, [True] * 6) == mean_of(effects)


@pytest.mark.thorough
def test_the_planned_looks_keep_the_promises() -> None:
    def rates(ratio: float) -> Rates:
        return error_rates(
            ratio, Design(runs=24, blocks=4, margin=0.02, confidence=0.95), studies=100, seed=5,
            machine=Machine(run_deviation=0.03), judge=simulate.until_decided(0.02, 0.95),
        )  # fmt: skip

    most = stats.binom.ppf(0.999, 100, 0.05) / 100
    equal, on_the_margin = rates(1.0), rates(1.02)
    assert equal.different <= most
    assert on_the_margin.equivalent <= most
    assert max(1 - each.coverage for each in (equal, on_the_margin)) <= most


def test_the_deviation_between_studies_widens_what_is_claimed_of_two() -> None:
    first, second = [0.0, 0.001, -0.001, 0.0005], [0.012, 0.013, 0.011, 0.0125]
    both = change(first, second)
    alone = compare(both, margin=0.02, confidence=0.95)
    wide = compare(both, margin=0.02, confidence=0.95, between=0.01 * math.sqrt(2))
    assert (alone.difference_p < 0.001, wide.difference_p > 0.05) == (True, True)
    assert wide.ratio == pytest.approx(alone.ratio)
    assert wide.half_width == pytest.approx(1.96 * 0.01 * math.sqrt(2), rel=0.02)
