"""Student's t with Hall's transformation: against scipy, and what holds for every skewness."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

stats = pytest.importorskip("scipy.stats")

from bareboat_study.t_statistic import quantile, upper_tail  # noqa: E402

PROBABILITIES = st.floats(0.001, 0.999)
FREEDOMS = st.floats(1, 1e6)
#: One value of n far from all others has 1.
SKEWNESSES = st.floats(-1.2, 1.2)


@given(PROBABILITIES, FREEDOMS, SKEWNESSES)
def test_the_tail_beyond_a_quantile_is_its_probability(
    probability: float, freedom: float, skewness: float
) -> None:
    found = quantile(probability, freedom, skewness)
    assert upper_tail(found, 1.0, freedom, skewness) == pytest.approx(1 - probability, rel=1e-5, abs=1e-9)


@given(PROBABILITIES, FREEDOMS, SKEWNESSES)
def test_the_mirror_image_has_the_mirrored_quantile(
    probability: float, freedom: float, skewness: float
) -> None:
    found = quantile(probability, freedom, skewness)
    assert quantile(1 - probability, freedom, -skewness) == pytest.approx(-found, rel=1e-6, abs=1e-9)


@given(st.floats(-1e300, 1e300), st.floats(1e-12, 1e12), FREEDOMS, SKEWNESSES)
def test_every_distance_has_a_p_value(distance: float, error: float, freedom: float, skewness: float) -> None:
    p = upper_tail(distance, error, freedom, skewness)
    assert 0 <= p <= 1
    assert upper_tail(distance + abs(distance), error, freedom, skewness) <= p


def test_an_example_worked_by_hand() -> None:
    # 0.3 * 2 / 3 = 0.2; 2 * (1 + 0.2 * (1 + 0.2 / 3)) + 0.3 / 6 = 2.4766667 with 11 degrees of freedom.
    assert upper_tail(0.04, 0.02, 11, 0.3) == pytest.approx(stats.t(11).sf(2.4766667), rel=1e-6)
    assert upper_tail(0.04, 0.02, 11) == pytest.approx(stats.t(11).sf(2.0), rel=1e-9)
