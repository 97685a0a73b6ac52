"""What a report of a study shows, in any form: its design, what was found, and the records behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bareboat.model import Matrix, Record, Study
from bareboat_images.store import Store
from bareboat_study import findings, matrix, published
from bareboat_study.analysis import Analysis
from bareboat_study.findings import ContrastFinding, PointFinding, StudyFindings
from bareboat_study.published import Beside


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Two arms at a point that have a verdict. `name`: the heading of the comparison, by its effect or its
    arms, and its point. `study`: the two arms as a study of their own."""

    name: str
    study: Study
    analysis: Analysis
    sentence: str

    @property
    def arms(self) -> str:
        return f"{self.study.arms[1].name} / {self.study.arms[0].name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyReport:
    """`studies[point]`, `records[point]`; `beside`: the measured values with the published ones, empty for a
    study without a published table."""

    matrix: Matrix
    studies: Sequence[Study]
    found: StudyFindings
    records: Sequence[Sequence[Record]]
    beside: Sequence[Beside] = ()
    compared: tuple[Compared, ...]

    @property
    def is_one_point(self) -> bool:
        return len(self.matrix.points) == 1

    @property
    def only(self) -> Compared | None:
        """The comparison of two arms at one point, whose report is about it alone; None for other studies."""
        is_only = self.is_one_point and len(self.found.contrasts) == 1
        return self.compared[0] if is_only and self.compared else None


def of(
    found: Matrix,
    studies: Sequence[Study],
    records: Sequence[Sequence[Record]],
    *,
    missing: int = 0,
    beside: Sequence[Beside] = (),
) -> StudyReport:
    """The report of these records."""
    result = findings.find(found, studies, records, missing=missing)
    compared = tuple(_compared(result))
    return StudyReport(
        matrix=found, studies=studies, found=result, records=records, beside=beside, compared=compared
    )


def read(store: Store, name: str) -> StudyReport:
    """The report of a study in the store."""
    found = matrix.read(store, name)
    studies, records = matrix.measured(store, found)
    rows = matrix.read_published(store, found)
    beside = () if rows is None else published.beside(found, records, rows)
    return of(found, studies, records, missing=len(matrix.missing(store, found)), beside=beside)


def _compared(found: StudyFindings) -> Iterator[Compared]:
    for contrast, sentence in zip(found.contrasts, found.sentences, strict=True):
        for each in contrast.points:
            if each.analysis is not None:
                yield Compared(
                    name=_name(contrast, each),
                    study=each.study,
                    analysis=each.analysis,
                    sentence=sentence if len(contrast.points) == 1 else each.analysis.sentence,
                )


def _name(contrast: ContrastFinding, point: PointFinding) -> str:
    what = contrast.contrast.effect or f"{contrast.contender} / {contrast.baseline}"
    return f"{what}, {point.label}" if point.label else what
