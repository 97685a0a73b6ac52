"""What a lock holds of a study, from what was recorded when it ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from bareboat.model import Job, Matrix, Record, Study
from bareboat.runs.withheld import names
from bareboat_base import codec
from bareboat_base.errors import UsageError
from bareboat_base.printable import counted, one_line
from bareboat_images.store import Store
from bareboat_study.reproduction import images
from bareboat_study.reproduction.document import Cell, Failed, LockedStudy, PairResult, Values

if TYPE_CHECKING:
    from bareboat_study.findings import PointFinding


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the lock, the study's first point, the records of that point, and what is not recorded."""

    locked: LockedStudy
    matrix: Matrix
    first: Study
    records: list[Record]
    lacks: tuple[str, ...]


def make(store: Store, name: str, *, packages: bool, say: Callable[[str], None]) -> Made:
    """The study with its results. Raises UsageError for one that is not complete, or whose arms' jobs were
    not recorded."""
    from bareboat_study import findings, matrix

    found = matrix.read(store, name)
    if left := matrix.missing(store, found):
        raise UsageError(
            f"{name} is not complete: {matrix.left_of(found, len(left))}",
            remedy=f"bareboat prove --resume {name}",
        )
    studies, records = matrix.measured(store, found)
    if not all(study.jobs for study in studies):
        raise UsageError(
            f"{name} does not record the jobs of its arms, and cannot be locked",
            remedy="bareboat prove FILE   # again",
        )
    result = findings.find(found, studies, records)
    locked_images = tuple(images.of_image(store, each, packages=packages, say=say) for each in found.images)
    lacks = [*_lacks(found, [study.jobs for study in studies])]
    if packages:
        lacks += [
            f"the packages of the image {one_line(each.digest, limit=19)}: it is no longer in the store"
            for each in locked_images
            if each.packages is None
        ]
    compared = tuple(
        _pair(number, each) for number, contrast in enumerate(result.contrasts) for each in contrast.points
    )
    lacks += _left_out(found, compared)
    return Made(
        locked=LockedStudy(
            arms=found.arms,
            fixed=found.fixed,
            factors=found.factors,
            points=found.points,
            metrics=tuple(study.metrics for study in studies),
            contrasts=found.contrasts,
            prove=found.prove,
            repeats=found.repeats or found.prove.repeats,
            images=locked_images,
            cells=tuple(tuple(_cells(study)) for study in studies),
            sentences=tuple(one_line(each, limit=1000) for each in result.sentences),
            compared=compared,
            failed=tuple(
                Failed(
                    arm=found.arms.index(each.arm), point=each.point, run=each.run,
                    exit_code=each.exit_code, reason=one_line(each.reason, limit=300),
                )
                for each in result.failures
            ),
            samples_digest=codec.digest(records),
        ),
        matrix=found,
        first=studies[0],
        records=records[0],
        lacks=tuple(lacks),
    )  # fmt: skip


def _cells(study: Study) -> Iterator[Cell]:
    for arm, job in zip(study.arms, map(shareable, study.jobs), strict=True):
        yield Cell(
            job=job[0],
            image=study.image.digest if arm.image_digest is UNSET else arm.image_digest,
            engine=arm.engine,
            plan_digest=arm.plan_digest,
            withheld=job[1],
        )


def shareable(job: Job) -> tuple[Job, tuple[str, ...]]:
    """The job without the variables that may be secrets, and their names."""
    withheld = names(job.environment)
    kept = {name: value for name, value in job.environment.items() if name not in withheld}
    return msgspec.structs.replace(job, environment=kept), withheld


def _pair(number: int, found: PointFinding) -> PairResult:
    analysed = found.analysis
    if analysed is None:
        return PairResult(contrast=number, point=found.point, reason=one_line(found.reason, limit=300))
    return PairResult(
        contrast=number,
        point=found.point,
        verdict=analysed.verdict.value,
        has_diverged=bool(analysed.diverged),
        layout_deviation=analysed.between,
        metrics=tuple(
            Values(
                name=each.name,
                unit=each.unit,
                higher_is_better=each.higher_is_better,
                primary=each.primary,
                baseline=each.baseline,
                contender=each.contender,
            )
            for each in analysed.metrics
        ),
    )


def _lacks(matrix: Matrix, jobs: Sequence[tuple[Job, ...]]) -> Iterator[str]:
    if curves := sorted(metric.name for metric in matrix.metrics if metric.is_curve):
        yield f"the curves of {', '.join(curves)}: the lock of a study holds one number per run"
    whole = [job for row in jobs for job in row]
    own = jobs[0][-1].workdir
    others = dict.fromkeys(job.workdir for job in whole if job.workdir not in (own, None))
    for folder in others:
        yield f"the code in {one_line(str(folder))}: only that of the last arm's directory is recorded"
    values: dict[str, set[str]] = {}
    for job in whole:
        for name in names(job.environment):
            values.setdefault(name, set()).add(job.environment[name])
    for name in sorted(name for name, own in values.items() if len(own) > 1):
        yield f"that {name} has several values in the study: a replay gives all arms the value of its shell"


def _left_out(matrix: Matrix, compared: Sequence[PairResult]) -> list[str]:
    """The declared numbers that some comparison does not have."""
    declared = [metric.name for metric in matrix.metrics if not metric.is_curve]
    measured = [{each.name for each in pair.metrics} for pair in compared if pair.metrics]
    lacking = {name: sum(name not in known for known in measured) for name in declared}
    return [
        f"{name} in {counted(number, 'comparison')}: a value is not a number above 0"
        for name, number in lacking.items()
        if number
    ]
