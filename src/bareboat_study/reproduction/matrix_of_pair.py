"""Pure: a locked study of bare metal and one container, as a scheduler's job measures it."""

from __future__ import annotations

import math

import msgspec
from msgspec import UNSET

from bareboat import registry
from bareboat.model import Contrast
from bareboat_base import codec
from bareboat_base.errors import UsageError
from bareboat_study.reproduction import matrix_reading
from bareboat_study.reproduction.document import Cell, Lock, LockedMatrix, LockedStudy, PairResult, Values
from bareboat_study.statistics import Verdict
from bareboat_study.studyfile import study_of_job


def as_matrix(lock: Lock, study: LockedStudy) -> Lock:
    """The lock as that of a study of two arms at one point, with the same results.

    Raises UsageError where both arms are bare metal, or a result is no measurement.
    """
    if lock.job.engine == registry.BARE_METAL:
        raise UsageError(
            "both arms of the study are bare metal, and such a study is measured on this machine",
            remedy="remove --scheduler, and replay on a node of the cluster",
        )
    request = study_of_job(lock.job)
    digest = lock.image.digest if lock.image is not None else ""
    engines = (registry.BARE_METAL, lock.plan.engine if lock.plan is not None else "")
    made = LockedMatrix(
        arms=request.arms,
        fixed=tuple(tuple(keys) for keys in request.fixed),
        factors=(),
        points=((),),
        metrics=((),),
        contrasts=(Contrast(baseline=0, contender=1),),
        prove=msgspec.structs.replace(
            lock.job.prove, margin=study.margin, confidence=study.confidence, quick=UNSET
        ),
        repeats=max(len(each.effects) for each in study.samples),
        images=() if lock.image is None else (lock.image,),
        cells=(
            tuple(
                Cell(job=job, image=digest, engine=engine, plan_digest="", withheld=lock.withheld)
                for job, engine in zip(request.jobs[0], engines, strict=True)
            ),
        ),
        sentences=(study.sentence,),
        compared=(_results(study),),
        samples_digest=codec.digest(study.samples),
    )
    changed = msgspec.structs.replace(lock, study=None, matrix=made)
    if (fault := matrix_reading.wrong(changed, made)) is not None:
        raise UsageError(
            f"the lock cannot be replayed in a scheduler's job: {fault}", remedy="remove --scheduler"
        )
    return changed


def _results(study: LockedStudy) -> PairResult:
    return PairResult(
        contrast=0,
        point=0,
        verdict=study.verdict,
        has_diverged=study.verdict == Verdict.DIVERGED,
        layout_deviation=study.layout_deviation,
        metrics=tuple(
            Values(
                name=each.name,
                unit=each.unit,
                higher_is_better=each.unit.endswith("/s"),
                primary=each.primary,
                baseline=each.baseline,
                # Of the effects, which are what is compared.
                contender=tuple(
                    value * math.exp(effect)
                    for value, effect in zip(each.baseline, each.effects, strict=False)
                ),
            )
            for each in study.samples
        ),
    )
