"""The t statistic of a mean whose values may be skewed. Pure.

Where a few values lie far to one side, as of the few runs that a stall struck, the mean and its error vary
together, and Student's distribution fits the statistic badly: on the side of those values the interval is too
short. Hall's transformation takes the skewness out, so that Student's quantiles hold; it is monotone, and
without skewness it changes nothing. `skewness` is that of the mean, its third cumulant over the cube of its
error.

Source: Hall (1992), Journal of the Royal Statistical Society B 54, 221-228.
"""

from __future__ import annotations

import math

from scipy import special

#: Less of it changes no digit that anybody reads.
_NONE = 1e-9

#: More of it counts as this much: the transformation is flat at -3 / skewness, and an interval that ends near
#: there would be made by a single run. bench/verdicts.md shows what this costs.
_MOST = 0.4

#: A longer distance, in errors, counts as this: its cube is finite.
_FARTHEST = 1e100


def quantile(probability: float, freedom: float, skewness: float = 0.0) -> float:
    """The value that the statistic (estimate - truth) / error does not exceed with this probability."""
    student = float(special.stdtrit(freedom, probability))
    skewness = _counted(skewness)
    if abs(skewness) < _NONE:
        return student
    inner = skewness * (student - skewness / 6)
    # Near 0 the difference of a root and 1 would lose its digits.
    root = math.expm1(math.log1p(inner) / 3) if abs(inner) < 0.5 else math.cbrt(1 + inner) - 1
    return 3 / skewness * root


def upper_tail(distance: float, error: float, freedom: float, skewness: float = 0.0) -> float:
    """p of a one-sided test whose estimate lies `distance` above the null hypothesis."""
    if error == 0:
        return 0.0 if distance > 0 else 1.0
    statistic = max(-_FARTHEST, min(distance / error, _FARTHEST))
    skewness = _counted(skewness)
    bent = skewness * statistic / 3
    statistic = statistic * (1 + bent * (1 + bent / 3)) + skewness / 6
    # The lower tail of the negated statistic: 1 - cdf would round small p values to 0.
    return float(special.stdtr(freedom, -statistic))


def _counted(skewness: float) -> float:
    return max(-_MOST, min(skewness, _MOST))
