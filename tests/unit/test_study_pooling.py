"""The pooled ratio against R's metafor, Holm's correction, and the laws of scaling."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bareboat_base.errors import UsageError
from bareboat_study.families import holm
from bareboat_study.pooling import common_errors, pool
from bareboat_study.scaling import law_speed, scale

# metafor 3.8.1: rma(yi, sei=, method="REML", test="knha", control=list(threshold=1e-12, maxiter=1000)):
# mean, bounds of the 95 % interval, tau, I2, Q and its p. The last one is metafor's own example (dat.bcg).
# The second and third agree better than their errors allow: bounds from t / sqrt(sum of 1 / error^2). That
# is metafor's test = "adhoc"; the others are those of "knha", too.
METAFOR = [
    ((0.01, -0.002, 0.004, 0.03, -0.012), (0.004, 0.003, 0.006, 0.005, 0.0045),
     (0.00586843416318, -0.0135537386186, 0.025290606945, 0.0149190100126, 0.92394940563, 45.9259691705,
      2.55178109122e-09)),
    ((-0.004, -0.002, -0.0031, -0.0025), (0.004, 0.003, 0.006, 0.005),
     (-0.00272727272727, -0.00920469853166, 0.00375015307712, 0, 0, 0.165934343434, 0.982891707664)),
    ((0.25, 0.26), (0.01, 0.02), (0.252, 0.138352249896, 0.365647750104, 0, 0, 0.2, 0.654720846019)),
    ((0.0102, -0.0043, 0.0021, 0.0056, -0.0012, 0.0089, 0.0001, -0.0067, 0.0034, 0.0045),
     (0.002, 0.0031, 0.0019, 0.0042, 0.0027, 0.0033, 0.0022, 0.0038, 0.0029, 0.0025),
     (0.00242674158338, -0.00136050453282, 0.00621398769957, 0.00439230024471, 0.734347725415, 33.3574141905,
      0.000115704114437)),
    ((-0.889311, -1.585389, -1.348073, -1.441551, -0.217547, -0.786116, -1.620898, 0.011952, -0.469418,
      -1.371345, -0.339359, 0.445913, -0.017314),
     tuple(map(math.sqrt, (0.3259, 0.1947, 0.4154, 0.0200, 0.0514, 0.0069, 0.2230, 0.0040, 0.0564, 0.0730,
                           0.0124, 0.5325, 0.0714))),
     (-0.714547217035, -1.10846073524, -0.320633698827, 0.559664749629, 0.922064658849, 151.794395426,
      2.4512670584e-26)),
]  # fmt: skip


@pytest.mark.parametrize(("effects", "errors", "expected"), METAFOR)
def test_the_pooled_ratio_is_that_of_metafor(
    effects: tuple[float, ...], errors: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    found = pool(effects, errors, margin=0.02, confidence=0.95)
    logs = [math.log(each) for each in (found.ratio, found.low, found.high)]
    assert [*logs, found.tau, found.i2, found.q, found.q_p] == pytest.approx(expected, rel=1e-6, abs=1e-8)


EFFECTS = st.lists(
    st.tuples(st.floats(-0.5, 0.5), st.floats(1e-4, 0.1)),
    min_size=2,
    max_size=12,
    unique_by=lambda pair: pair[0],
)


@given(EFFECTS)
def test_swapping_the_arms_inverts_the_ratio(pairs: list[tuple[float, float]]) -> None:
    effects, errors = zip(*pairs, strict=True)
    found = pool(effects, errors, margin=0.02, confidence=0.95)
    swapped = pool([-each for each in effects], errors, margin=0.02, confidence=0.95)
    assert swapped.ratio == pytest.approx(1 / found.ratio, rel=1e-4)
    assert swapped.verdict == found.verdict
    assert found.low <= found.ratio <= found.high
    assert min(effects) - 1e-9 <= math.log(found.ratio) <= max(effects) + 1e-9
    assert 0 <= found.i2 <= 1


def test_equal_runs_and_bad_numbers() -> None:
    assert pool([0.0] * 5, [0.0] * 5, margin=0.02, confidence=0.95).verdict == "equivalent"
    for effects, errors in (([0.1], [0.1]), ([0.1, 0.2], [0.1]), ([0.1, math.nan], [0.1, 0.1])):
        with pytest.raises(UsageError):
            pool(effects, errors, margin=0.02, confidence=0.95)


def test_the_noise_of_all_points_counts_for_each() -> None:
    assert common_errors([0.03, 0.04], [4, 4]) == pytest.approx([math.sqrt(0.00125) / 2] * 2)
    assert common_errors([0.01, 0.01], [4, 16]) == pytest.approx([0.005, 0.0025])


# --------------------------------------------------------------------------------------------------
# Holm.


def test_holm_multiplies_the_smallest_by_the_number_and_so_on() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([0.04]) == [0.04]
    assert holm([]) == []
    with pytest.raises(UsageError):
        holm([0.1, math.nan])


@given(st.lists(st.floats(0, 1), max_size=6))
def test_holm_rejects_what_the_closed_test_of_bonferroni_rejects(p_values: list[float]) -> None:
    """A hypothesis is rejected if Bonferroni rejects every intersection of hypotheses that holds it."""
    numbers = range(len(p_values))
    for alpha in (0.01, 0.05, 0.3):
        for number in numbers:
            others = [each for each in numbers if each != number]
            rejected = all(
                (size + 1) * min([p_values[number], *(p_values[each] for each in more)]) <= alpha
                for size in range(len(p_values))
                for more in itertools.combinations(others, size)
            )
            assert (holm(p_values)[number] <= alpha) == rejected


# --------------------------------------------------------------------------------------------------
# Scaling.


def speeds(
    serial: float, coherency: float, noise: float, workers: tuple[int, ...]
) -> dict[float, list[float]]:
    draw = random.Random(5)
    return {
        n: [100 * law_speed(n, serial, coherency) * math.exp(draw.gauss(0, noise)) for _ in range(6)]
        for n in workers
    }


@settings(deadline=None, max_examples=30)
@given(st.floats(0, 0.5), st.floats(0, 0.01))
def test_the_laws_are_found_again(serial: float, coherency: float) -> None:
    found = scale(speeds(serial, coherency, 0, (1, 2, 4, 8, 16)), confidence=0.95)
    amdahl, usl = found.laws
    assert (amdahl.name, usl.name) == ("Amdahl", "USL")
    assert usl.serial == pytest.approx(serial, abs=1e-4)
    assert usl.coherency == pytest.approx(coherency, abs=1e-4)
    assert max(map(abs, usl.residuals)) < 1e-4
    for each in found.speed_ups:
        assert each.speed_up == pytest.approx(law_speed(each.workers, serial, coherency))
        assert each.efficiency == pytest.approx(each.speed_up / each.workers)


def test_the_speed_up_has_an_interval_and_the_ideal_is_inside_without_overhead() -> None:
    found = scale(speeds(0, 0, 0.01, (2, 4, 8)), confidence=0.95)
    assert [each.workers for each in found.speed_ups] == [2, 4, 8]
    assert found.speed_ups[0].speed_up == 1
    for each in found.speed_ups[1:]:
        assert each.low < each.speed_up < each.high
        assert (each.low, each.high) == pytest.approx((each.speed_up,) * 2, rel=0.03)
        assert each.efficiency == pytest.approx(each.speed_up / (each.workers / 2))
    assert [law.name for law in found.laws] == ["Amdahl"]
    assert found.laws[0].serial < 0.05


def test_residuals_show_a_law_that_does_not_fit() -> None:
    amdahl, usl = scale(speeds(0.05, 0.002, 0, (1, 2, 4, 8, 16, 32)), confidence=0.95).laws
    assert max(map(abs, amdahl.residuals)) > 0.1
    assert usl.peak == pytest.approx(math.sqrt(0.95 / 0.002), rel=1e-3)


@pytest.mark.parametrize("bad", [{1: [1.0, 2.0]}, {1: [1.0], 2: [1.0, 2.0]}, {1: [1.0, 0.0], 2: [1.0, 2.0]}])
def test_too_little_to_scale(bad: dict[float, list[float]]) -> None:
    with pytest.raises(UsageError):
        scale(bad, confidence=0.95)


def test_two_points_that_agree_by_chance_get_neither_a_narrow_interval_nor_a_verdict() -> None:
    """From studies with [0.956, 1.110] and [1.005, 1.056], which pooled to [1.0299, 1.0312]."""
    effects = [math.log(1.030), math.log(1.0302)]
    found = pool(effects, [0.019, 0.006], margin=0.05, confidence=0.95)
    assert found.verdict is None
    assert found.high / found.low > 1.1
    assert pool(effects * 2, [0.019, 0.006] * 2, margin=0.05, confidence=0.95).verdict is None
    assert pool(effects * 3, [0.019, 0.006] * 3, margin=0.05, confidence=0.95).verdict == "equivalent"


def test_the_prediction_interval_holds_another_point() -> None:
    chance = random.Random(5)
    inside = 0
    for _study in range(200):
        effects = [chance.gauss(0, 0.01) + chance.gauss(0, 0.003) for _ in range(10)]
        found = pool(effects, [0.003] * 10, margin=0.02, confidence=0.95)
        inside += found.next_low <= math.exp(chance.gauss(0, 0.01)) <= found.next_high
    assert 0.9 <= inside / 200 <= 0.99


def test_the_deviation_between_studies_has_a_floor() -> None:
    wide = pool([0.0] * 6, [0.001] * 6, margin=0.02, confidence=0.95, between=0.005)
    assert wide.tau == pytest.approx(0.005)
    assert wide.i2 == 0  # by the data, which show none
    assert wide.next_high > 1.01
