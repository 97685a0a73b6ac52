"""The analysis under test. The only module here that an analysis with another interface needs changed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bareboat.model import Record, Study
from bareboat_base.errors import UsageError
from bareboat_study import change, repeated
from bareboat_study.analysis import analyse, measured_pairs
from bareboat_study.statistics import Verdict
from generated_studies.records import CONFIDENCE, MARGIN, Made

#: The first look of who looks after each run.
FIRST_LOOK = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the analysis reports: a verdict, and the ratio of the throughputs, contender over baseline, with
    its interval; NaN where it reports none. `secondary`: whether a secondary metric has the verdict
    "different". `runs`: of the study when it was judged."""

    verdict: str
    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    secondary: bool = False
    runs: int = 0


def of_study(study: Study, records: Sequence[Record]) -> Judgement:
    try:
        found = analyse(study, records)
    except UsageError:
        return Judgement(verdict="none")
    compared = found.primary.comparison
    return Judgement(
        verdict=found.verdict.value,
        ratio=compared.ratio,
        low=compared.low,
        high=compared.high,
        secondary=any(
            not metric.primary and found.word_of(metric) == Verdict.DIFFERENT for metric in found.metrics
        ),
        runs=compared.runs,
    )


def of_looks(study: Study, records: Sequence[Record]) -> Judgement:
    """Look after each run, and stop at the first verdict."""
    judgement = Judgement(verdict="none")
    for run in range(FIRST_LOOK, study.job.prove.repeats + 1):
        judgement = of_study(study, [record for record in records if record.run <= run])
        if judgement.verdict in (Verdict.EQUIVALENT, Verdict.DIFFERENT):
            break
    return judgement


def of_pooled(studies: Sequence[Made]) -> Judgement:
    try:
        found = repeated.pool([(study, analyse(study, records)) for study, records, _ in studies])
    except UsageError:
        return Judgement(verdict="none")
    pooled = found.metrics[0].pooled
    return Judgement(
        verdict=pooled.verdict or "none",
        ratio=pooled.ratio,
        low=pooled.low,
        high=pooled.high,
        secondary=any(each.pooled.verdict == Verdict.DIFFERENT for each in found.metrics[1:]),
        runs=sum(len(measured_pairs(study, records)) for study, records, _ in studies),
    )


def of_change(first: Made, second: Made) -> Judgement:
    arms = first[0].arms[0].name, first[0].arms[1].name
    one, other = (analyse(study, records) for study, records, _ in (first, second))
    try:
        found = change.of_metrics(arms, one, other, margin=MARGIN, confidence=CONFIDENCE)
    except UsageError:
        return Judgement(verdict="none")
    primary = found.found[0].comparison
    return Judgement(
        verdict=found.found[0].verdict or "none",
        ratio=primary.ratio,
        low=primary.low,
        high=primary.high,
        secondary=any(each.verdict is Verdict.DIFFERENT for each in found.found[1:]),
        runs=primary.runs,
    )
