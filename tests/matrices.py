"""Studies of several arms and points, with made-up records whose true ratios are known."""

import dataclasses
import math
import random
from collections.abc import Sequence
from typing import Any

import builders
import msgspec
from builders import fake_digest, make_image, make_job, make_layout, make_site, make_study

from bareboat.model import Arm, Contrast, Matrix, MetricRequest, ProveRequest, Record, Study
from bareboat_base import codec
from bareboat_images.store import Store
from bareboat_study import point_runs, study_report
from bareboat_study.analysis import Analysis
from bareboat_study.study_report import StudyReport

SPEED = MetricRequest(name="speed", pattern="v=(.*)", unit="images/s")


def make_matrix(**changes: Any) -> Matrix:
    facts: dict[str, Any] = {
        "id": "galileo-20250303-090000",
        "created_at": "2025-03-03T09:00:00Z",
        "name": "galileo",
        "request": fake_digest("f"),
        "arms": ("bare", "sif"),
        "factors": ("model", "batch"),
        "points": tuple((model, batch) for model in ("resnet50", "vgg16") for batch in (32, 64, 128)),
        "metrics": (SPEED,),
        "contrasts": (Contrast(baseline=0, contender=1),),
        "prove": ProveRequest(repeats=10),
        "repeats": 10,
        "images": (make_image(),),
        "site": make_site(),
        "bareboat_version": "0.1.0",
        "keys": ({"engine": "native"}, {}),
    }
    return Matrix(**(facts | changes))


def make_points(matrix: Matrix, **changes: Any) -> list[Study]:
    arms = tuple(
        Arm(name=name, engine="native", plan_digest=fake_digest("d"), script=name,
            image_digest=matrix.images[0].digest)
        for name in matrix.arms
    )  # fmt: skip
    return [
        make_study(
            metered=False, id=matrix.point_id(point), arms=arms, point=point, metrics=matrix.metrics,
            job=make_job(prove=matrix.prove, **changes),
        )
        for point in range(len(matrix.points))
    ]  # fmt: skip


def of_pair(study: Study, records: Sequence[Record]) -> tuple[Matrix, list[Study], list[list[Record]]]:
    """Two arms at one point, as the study of a job is."""
    matrix = make_matrix(
        id=study.id, name=study.job.name, created_at=study.created_at,
        arms=tuple(arm.name for arm in study.arms), factors=(), points=((),), metrics=study.metrics,
        contrasts=(Contrast(baseline=0, contender=1),), prove=study.job.prove,
        repeats=study.job.prove.repeats, images=(study.image,), site=study.site,
        bareboat_version=study.bareboat_version, seed=study.seed, keys=({"engine": "native"}, {}),
    )  # fmt: skip
    bare = msgspec.structs.replace(study.job, engine="native")
    own = msgspec.structs.replace(study, id=matrix.point_id(0), point=0, jobs=(bare, study.job))
    return matrix, [own], [[msgspec.structs.replace(each, study=own.id) for each in records]]


def report_of(study: Study, records: Sequence[Record], analysis: Analysis | None = None) -> StudyReport:
    """The report of two arms at one point. `analysis`: another than that of the records."""
    shown = study_report.of(*of_pair(study, records))
    if analysis is None:
        return shown
    (contrast,) = shown.found.contrasts
    points = (dataclasses.replace(contrast.points[0], analysis=analysis),)
    contrasts = (dataclasses.replace(contrast, points=points),)
    found = dataclasses.replace(shown.found, contrasts=contrasts, sentences=(analysis.sentence,))
    (only,) = shown.compared
    compared = (dataclasses.replace(only, analysis=analysis, sentence=analysis.sentence),)
    return dataclasses.replace(shown, found=found, compared=compared)


def make_records(
    matrix: Matrix, studies: list[Study], ratios: dict[str, float], **how: Any
) -> list[list[Record]]:
    """Each arm's speed is 100 times its ratio, with noise of 0.3 %; `scale(point)` multiplies it."""
    draw = random.Random(3)
    scale = how.get("scale", lambda _point: 1.0)
    template = make_study(metered=False)
    found = []
    for point, study in enumerate(studies):
        own = []
        for run in range(matrix.prove.repeats + 1):
            for position, arm in enumerate(study.arms):
                speed = 100 * ratios[arm.name] * scale(point) * math.exp(draw.gauss(0, 0.003))
                own.append(
                    Record(
                        study=study.id, run=run, arm=arm.name, warm_up=run == 0, position=position,
                        started_at=template.created_at, exit_code=0, wall_s=1.0, plan_digest=arm.plan_digest,
                        image_digest=None, site_digest=fake_digest("5"), peak_memory_bytes=10**8,
                        results={"speed": speed}, layout=make_layout(),
                    )
                )  # fmt: skip
        found.append(own)
    return found


def measured(sif: float = 1.0, **changes: Any) -> tuple[Matrix, list[Study], list[list[Record]]]:
    """A study with its records; `sif`: how fast its second arm is."""
    matrix = make_matrix(**changes)
    studies = make_points(matrix)
    return matrix, studies, make_records(matrix, studies, {"bare": 1.0, "sif": sif})


def keep(
    store: Store, matrix: Matrix, records: Sequence[Sequence[Record]], studies: Sequence[Study] = ()
) -> None:
    """Write the study as `prove` leaves it."""
    store.run(matrix.id).mkdir(parents=True, exist_ok=True)
    store.write(store.run(matrix.id) / "matrix.json", codec.to_json(matrix))
    for study, own in zip(studies or make_points(matrix), records, strict=True):
        store.run(study.id).mkdir(parents=True)
        point_runs.keep(store, study if studies else msgspec.structs.replace(study, site=matrix.site))
        for record in own:
            folder = store.run(study.id) / f"{record.run:04d}"
            folder.mkdir(exist_ok=True)
            name = point_runs.file_names(study)[[arm.name for arm in study.arms].index(record.arm)]
            (folder / f"{name}.json").write_bytes(codec.to_json(record))


def make_three(runs: int = 10) -> tuple[Matrix, list[Study], list[list[Record]]]:
    """A study of a metered job with three arms at one point: the second is as fast as bare metal, and the
    third is slower."""
    names = ("bare metal", "bubblewrap", "apptainer")
    prove_request = ProveRequest(repeats=runs)
    pair = make_study(metered=True, runs=runs, job=make_job(prove=prove_request))
    matrix = make_matrix(
        id="digits-20261120-101500", name="digits", arms=names, factors=(), points=((),), metrics=(),
        contrasts=(Contrast(baseline=0, contender=1), Contrast(baseline=0, contender=2)),
        prove=prove_request, repeats=runs,
    )  # fmt: skip
    arms = tuple(
        Arm(name=name, engine=engine, plan_digest=fake_digest(digit), image_digest=pair.image.digest,
            script=pair.arms[min(place, 1)].script)
        for place, (name, engine, digit) in enumerate(
            zip(names, ("native", "bubblewrap", "apptainer"), "def", strict=True)
        )
    )  # fmt: skip
    study = msgspec.structs.replace(pair, id=matrix.point_id(0), arms=arms, point=0)
    records = []
    for place, ratio in ((1, 0.998), (2, 0.93)):
        for record in builders.make_records(pair, ratio=ratio):
            is_contender = record.arm == pair.arms[1].name
            if is_contender or place == 1:
                number = place if is_contender else 0
                records.append(
                    msgspec.structs.replace(
                        record, study=study.id, arm=names[number], plan_digest=arms[number].plan_digest,
                        position=2 if number == 2 else record.position,
                    )
                )  # fmt: skip
    return matrix, [study], [records]
