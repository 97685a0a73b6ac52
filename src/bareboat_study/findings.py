"""Pure: what a study found: the answer in a sentence, and every comparison."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from bareboat.model import Contrast, Matrix, ProveRequest, Record, Study
from bareboat.model.matrix import Value, point_text
from bareboat.model.metric import primary_of
from bareboat_base.errors import UsageError
from bareboat_study import analysis, arm_differences, scaling, validity
from bareboat_study.analysis import Analysis, Correction
from bareboat_study.measures import Metric
from bareboat_study.scaling import SpeedUp
from bareboat_study.statistics import LEAST_RUNS_OF_MANY, Verdict, holm_corrected
from bareboat_study.validity import Failure, failures_of

_WORKERS = ("topology.nodes", "topology.ranks_per_node")


@dataclass(frozen=True, slots=True, kw_only=True)
class PointFinding:
    """Two arms at one point. `study`: the two arms as a study of their own. `analysis`: of that; None where
    fewer than two runs are complete, for the `reason`. Its verdict is corrected for the number of points and
    contrasts (Holm)."""

    point: int
    label: str
    study: Study
    analysis: Analysis | None
    reason: str = ""

    @property
    def verdict(self) -> Verdict | None:
        return None if self.analysis is None else self.analysis.verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ContrastFinding:
    """Two arms at all points."""

    contrast: Contrast
    baseline: str
    contender: str
    points: tuple[PointFinding, ...]

    def count(self, verdict: Verdict | None) -> int:
        return sum(each.verdict is verdict for each in self.points)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingFinding:
    """How one arm scales. `at`: the values of the other factors."""

    arm: str
    at: str
    speed_ups: tuple[SpeedUp, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFindings:
    """The results of a study. `metric`: the primary one. `missing`: runs that are left; a study is complete
    without any."""

    study: str
    metric: str
    unit: str
    higher_is_better: bool
    contrasts: tuple[ContrastFinding, ...]
    scalings: tuple[ScalingFinding, ...]
    failures: tuple[Failure, ...]
    missing: int
    sentences: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def caveats(self) -> list[str]:
        """Why ratios in tables are in parentheses."""
        known = [each.analysis.unusable for row in self.contrasts for each in row.points if each.analysis]
        return [f"Ratios in parentheses are no result: {each}." for each in dict.fromkeys(known) if each]


def find(
    matrix: Matrix, studies: Sequence[Study], records: Sequence[Sequence[Record]], *, missing: int = 0
) -> StudyFindings:
    """Analyse a study from its raw records. `studies` and `records`: of each point."""
    raw = [
        [_point(matrix, contrast, point, studies[point], records[point]) for point in range(len(studies))]
        for contrast in matrix.contrasts
    ]
    corrected = _corrected(raw)
    contrasts = tuple(
        ContrastFinding(
            contrast=contrast,
            baseline=matrix.arms[contrast.baseline],
            contender=matrix.arms[contrast.contender],
            points=tuple(row),
        )
        for contrast, row in zip(matrix.contrasts, corrected, strict=True)
    )
    known = next((each.analysis for c in contrasts for each in c.points if each.analysis), None)
    declared = primary_of(matrix.metrics)
    failures = tuple(failures_of(matrix, records))
    return StudyFindings(
        study=matrix.id,
        metric=known.primary.name if known else declared.name if declared else "",
        unit=known.primary.unit if known else "",
        higher_is_better=known.primary.higher_is_better if known else True,
        contrasts=contrasts,
        scalings=tuple(_scalings(matrix, studies, contrasts)),
        failures=failures,
        missing=missing,
        sentences=tuple(sentence(matrix.prove, each) for each in contrasts),
        notes=tuple(_notes(matrix, contrasts)),
    )


# --------------------------------------------------------------------------------------------------
# One comparison.


def _point(
    matrix: Matrix, contrast: Contrast, point: int, study: Study, records: Sequence[Record]
) -> PointFinding:
    view = arm_differences.of_arms(study, contrast.baseline, contrast.contender)
    image = next((each for each in matrix.images if each.digest == view.arms[1].image_digest), study.image)
    view = msgspec.structs.replace(view, image=image)
    label = matrix.point_text(point)
    try:
        found = analysis.analyse(view, records, design=validity.design_digest(study))
    except UsageError as error:
        reason = error.message
        if (failed := validity.censored(view, records)) is not None:
            differ = "the arms differ in their failed runs" if failed.p <= validity.LEVEL else reason
            reason = f"{differ}; {failed.text([arm.name for arm in view.arms])}"
        return PointFinding(point=point, label=label, study=view, analysis=None, reason=reason)
    return PointFinding(point=point, label=label, study=view, analysis=found)


# --------------------------------------------------------------------------------------------------
# All comparisons.


def _corrected(rows: Sequence[Sequence[PointFinding]]) -> Sequence[Sequence[PointFinding]]:
    """The points with Holm's correction over all points and contrasts. The claims of equivalence are one
    family, those of difference another."""
    every = [each.analysis for row in rows for each in row]
    known = [each for each in every if each is not None and each.is_complete]
    if len(known) < 2:
        return rows
    corrected = holm_corrected([each.comparison for each in known])
    made = {
        id(each): _with(each, Correction(len(known), verdict, equal_p, differ_p))
        for each, (equal_p, differ_p, verdict) in zip(known, corrected, strict=True)
    }
    return [
        [dataclasses.replace(each, analysis=made.get(id(each.analysis), each.analysis)) for each in row]
        for row in rows
    ]


def _with(analysed: Analysis, correction: Correction) -> Analysis:
    """The analysis of one of several comparisons, in its own words."""
    note = (
        f"The verdict is corrected for {correction.comparisons} comparisons (Holm); the interval is that of "
        "this one."
    )
    made = dataclasses.replace(analysed, corrected=correction, notes=(note, *analysed.notes))
    if made.verdict is not correction.verdict or made.verdict is made.comparison.verdict:
        return made
    few = LEAST_RUNS_OF_MANY if analysed.comparison.runs < LEAST_RUNS_OF_MANY else 0
    needs = f", of which each needs {few} runs" if few else ""
    text = f"{made.verdict.value} after the correction for several comparisons{needs}; alone: "
    return dataclasses.replace(made, sentence=text + made.sentence)


def _scalings(
    matrix: Matrix, studies: Sequence[Study], contrasts: Sequence[ContrastFinding]
) -> list[ScalingFinding]:
    factors = _worker_factors(matrix)
    if not factors:
        return []
    found = _scalings_over(matrix, studies, contrasts, factors)
    if found is None:
        # Different shapes have equal numbers of workers, such as 1 x 4 and 2 x 2: one factor after the other.
        found = [
            each for factor in factors for each in _scalings_over(matrix, studies, contrasts, (factor,)) or ()
        ]
    return found


def _scalings_over(
    matrix: Matrix, studies: Sequence[Study], contrasts: Sequence[ContrastFinding], factors: Sequence[str]
) -> list[ScalingFinding] | None:
    """How each arm scales with these factors, at each value of the others. None where two points of a series
    have equal numbers of workers."""
    rest = [at for at, name in enumerate(matrix.factors) if name not in factors]
    groups: dict[tuple[str, tuple[Value, ...]], dict[float, list[float]]] = {}
    for (arm, point), own in values_of_arms(contrasts).items():
        number = _workers(matrix, studies[point], point)
        key = (arm, tuple(matrix.points[point][at] for at in rest))
        if number in groups.setdefault(key, {}):
            return None
        is_speed = own.metric.higher_is_better
        groups[key][number] = [value if is_speed else 1 / value for value in own.values]
    found = []
    for (arm, others), speeds_of in groups.items():
        try:
            made = scaling.scale(speeds_of, confidence=matrix.prove.confidence)
        except UsageError:  # too few points of it are complete
            continue
        at = point_text(tuple(matrix.factors[each] for each in rest), others)
        found.append(ScalingFinding(arm=arm, at=at, speed_ups=made))
    return found


def _worker_factors(matrix: Matrix) -> tuple[str, ...]:
    """The factors that change the number of workers."""
    if matrix.prove.scaling:
        return (str(matrix.prove.scaling),)
    return tuple(name for name in matrix.factors if name in _WORKERS)


def _workers(matrix: Matrix, study: Study, point: int) -> float:
    if matrix.prove.scaling:
        return float(matrix.values(point)[str(matrix.prove.scaling)])
    return float(study.job.topology.world_size)


class ArmValues(NamedTuple):
    """The primary metric of an arm at a point: its value in each run, and their geometric mean."""

    metric: Metric
    values: tuple[float, ...]
    mean: float


def values_of_arms(contrasts: Sequence[ContrastFinding]) -> dict[tuple[str, int], ArmValues]:
    """(arm, point) -> its values. Of an arm in several comparisons the first counts."""
    found: dict[tuple[str, int], ArmValues] = {}
    for contrast in contrasts:
        for each in contrast.points:
            if each.analysis is not None:
                m = each.analysis.primary
                baseline, contender = (contrast.baseline, each.point), (contrast.contender, each.point)
                found.setdefault(baseline, ArmValues(m, m.baseline, m.baseline_mean))
                found.setdefault(contender, ArmValues(m, m.contender, m.contender_mean))
    return found


# --------------------------------------------------------------------------------------------------
# Words.


def sentence(prove: ProveRequest, found: ContrastFinding) -> str:
    """The answer of one contrast."""
    effect = f"{found.contrast.effect}: " if found.contrast.effect else ""
    if len(found.points) == 1:
        (point,) = found.points
        if point.analysis is None:
            return f"{effect}no verdict about {found.contender} / {found.baseline}: {point.reason}"
        return effect + point.analysis.sentence
    margin = f"{prove.margin * 100:g} %"
    total = len(found.points)
    counts = [f"equivalent within {margin} at {found.count(Verdict.EQUIVALENT)} of {total} points"]
    for verdict, words in (
        (Verdict.DIFFERENT, "different"),
        (Verdict.UNDECIDED, "undecided"),
        (Verdict.TOO_NOISY, "too noisy"),
        (Verdict.INCOMPLETE, "incomplete"),
        (Verdict.DIVERGED, "the training diverged"),
        (None, "not measured"),
    ):
        if number := found.count(verdict):
            counts.append(f"{words} at {number}")
    known = next((each.analysis for each in found.points if each.analysis), None)
    if busy := sum(bool(each.analysis and each.analysis.is_busy) for each in found.points):
        counts.append(f"on a busy machine at {busy}")
    name = f"{known.primary.name} of " if known else ""
    return f"{effect}{name}{found.contender} / {found.baseline}: {', '.join(counts)}"


def _notes(matrix: Matrix, contrasts: Sequence[ContrastFinding]) -> list[str]:
    """What holds for all comparisons together."""
    notes: list[str] = []
    comparisons = sum(each.analysis is not None for c in contrasts for each in c.points)
    if comparisons > 1:
        notes.append(
            f"The verdicts are corrected for {comparisons} comparisons (Holm): the probability that any of "
            f"the claims of equivalence is wrong is at most {1 - matrix.prove.confidence:.0%}, and the same "
            "for the claims of difference. The intervals are those of single comparisons."
        )
    if len(contrasts) == 3 and contrasts[0].contrast.effect:
        notes.append("The effects multiply: container x software stack = both.")
    return notes
