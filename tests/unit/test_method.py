"""The paragraph on the method: of two arms, and of several arms and points, with its sources."""

import dataclasses
from typing import Any

import msgspec
import pytest
from builders import altered, fake_digest, make_records, make_study
from matrices import make_matrix, make_points, report_of
from matrices import make_records as make_rows

from bareboat.model import JobStart, MpiFacts, MpiFamily
from bareboat_study import method, report, study_report
from bareboat_study.study_report import StudyReport


def measured(**changes: Any) -> StudyReport:
    matrix = make_matrix(**changes)
    points = make_points(matrix)
    ratios = {"bare": 1.0, "sif": 0.99, "other": 1.2}
    return study_report.of(matrix, points, make_rows(matrix, points, ratios))


def test_the_method_names_everything_that_it_takes_to_repeat_it() -> None:
    study = make_study(metered=True, runs=5)
    shown = report_of(study, make_records(study))
    text = method.text(shown)
    for part in (
        study.bareboat_version, study.site.cpu_model, study.site.kernel, study.image.digest, "5 runs",
        "one warm-up run", "seed 1", "±2 %", "Schuirmann 1987", "95 % intervals", "4 degrees of freedom",
        f"windows of {study.steps_per_window} training steps", "bubblewrap 0.11.0",
    ):  # fmt: skip
        assert part in text, part
    assert "for the command python digits.py --epochs 40, with Bareboat" in text


def test_the_method_of_several_points_names_their_design_and_their_statistics() -> None:
    shown = measured()
    matrix, text = shown.matrix, method.text(shown)
    for part in (
        "We compared sif with bare at 6 points, of model (resnet50, vgg16) and batch (32, 64, 128)",
        matrix.id, "10 runs of 2 processes on 1 node per arm and point", "blocks", "seed 1", "95 % intervals",
        "±2 %", "6 comparisons", "Holm 1979", matrix.images[0].digest,
        "The primary metric was the speed", "ran one whole run after another",
    ):  # fmt: skip
        assert part in text, part


def test_the_method_names_engines_images_and_software_that_the_arms_used() -> None:
    study = make_study(metered=False)
    broken = msgspec.structs.replace(study.site.engines[0], version="0.8.0", works=False)
    mpi = MpiFacts(family=MpiFamily.OPENMPI, version="4.1.4")
    images = [msgspec.structs.replace(study.image, digest=fake_digest(name), mpis=(mpi,)) for name in "ab"]
    arms = [
        msgspec.structs.replace(arm, image_digest=image.digest, launcher="mpirun")
        for arm, image in zip(study.arms, images, strict=True)
    ]
    study = msgspec.structs.replace(
        study,
        arms=tuple(arms),
        job=msgspec.structs.replace(study.job, command=("./heat", "9")),
        site=msgspec.structs.replace(study.site, engines=(broken, *study.site.engines)),
    )
    shown = report_of(study, make_records(study))
    shown = dataclasses.replace(shown, matrix=msgspec.structs.replace(shown.matrix, images=tuple(images)))
    text = method.text(shown)
    assert "We ran bare metal in no container and container in bubblewrap 0.11.0." in text
    assert "The ranks were started by mpirun." in text
    page = report.render(shown)
    for title, image in zip(("The programs of bare metal", "The image of container"), images, strict=True):
        assert f"{title}: {image.digest} with OpenMPI 4.1.4." in text
        assert f"{title}</h4>" in page
    assert "bubblewrap 0.11.0, launcher mpirun" in page
    assert [text.count("Python"), page.count("0.8.0")] == [0, 0]


def test_failed_runs_and_points_of_different_sizes_are_named() -> None:
    matrix = make_matrix(factors=("topology.nodes",), points=((1,), (2,)))
    points = make_points(matrix)
    jobs = [msgspec.structs.replace(each.job.topology, nodes=n) for n, each in enumerate(points, start=1)]
    points = [
        msgspec.structs.replace(each, job=msgspec.structs.replace(each.job, topology=shape))
        for each, shape in zip(points, jobs, strict=True)
    ]
    records = make_rows(matrix, points, {"bare": 1.0, "sif": 1.0})
    records[0][5] = msgspec.structs.replace(records[0][5], exit_code=9)
    text = method.text(study_report.of(matrix, points, records))
    assert "we did 10 runs per arm and point" in text
    assert "1 measured run failed, in the records and in no number" in text


@pytest.mark.parametrize("metered", [True, False])
def test_arms_in_a_job_do_not_take_turns(metered: bool) -> None:
    study = make_study(metered=metered, runs=5)
    queued = msgspec.structs.replace(study, job=msgspec.structs.replace(study.job, scheduler="slurm"))
    records = altered(make_records(study), starts=(JobStart(at_epoch_s=1, node="c1", job_id="7"),))
    text = method.text(report_of(queued, records))
    assert " on c1 (AMD EPYC" in report.render(report_of(queued, records))
    for part in ("jobs of slurm", "the same nodes", "warm-up run of each job", "machine that submitted"):
        assert part in text, part
    assert "took turns" not in text
    assert ("the same windows of two arms" in text) is metered
    shown = measured()
    job = msgspec.structs.replace(shown.studies[0].job, scheduler="slurm")
    points = [msgspec.structs.replace(each, job=job, metered=metered) for each in shown.studies]
    several = method.text(dataclasses.replace(shown, studies=points))
    assert "jobs of its own" in several
    assert "blocks" not in several
