"""Pure: the claims of a study with many comparisons, corrected for their number."""

from __future__ import annotations

from collections.abc import Sequence

from bareboat_study.statistics import LEAST_RUNS, LEAST_RUNS_OF_MANY, Comparison, Verdict, verdict_of


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values after Holm's correction, in the given order.

    Where the null hypotheses with a corrected value of at most alpha are rejected, the probability that any
    of them is true is at most alpha, whatever depends on what.

    Source: Holm (1979), Scandinavian Journal of Statistics 6, 65-70.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


def corrected(
    compared: Sequence[Comparison], *, least_runs: int | None = None
) -> list[tuple[float, float, Verdict]]:
    """Of each comparison the corrected p values of equivalence and of a difference, which are two families,
    and the verdict by them. `least_runs`: that equivalence requires; None: as in a study."""
    least = least_runs or (LEAST_RUNS_OF_MANY if len(compared) > 1 else LEAST_RUNS)
    equal = holm([each.equivalence_p for each in compared])
    differ = holm([each.difference_p for each in compared])
    return [
        (equal_p, differ_p, verdict_of(each, equal_p, differ_p, least))
        for each, equal_p, differ_p in zip(compared, equal, differ, strict=True)
    ]
