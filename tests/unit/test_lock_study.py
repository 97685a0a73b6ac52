"""The lock of a study: its study file, with everything resolved and its images pinned."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import fake_digest, make_image, make_job
from matrices import keep, make_matrix, make_points, make_records

from bareboat import config
from bareboat.model import Image, ProveRequest, Study
from bareboat_base.errors import UsageError
from bareboat_base.toml import TomlFile
from bareboat_images.store import Store
from bareboat_study import point_runs
from bareboat_study.reproduction import study_lock
from bareboat_study.studyfile import StudyRequest, is_study, read_study, study_of_job

pytest.importorskip("scipy")
GITHUB = "ghp_" + "aB3" * 12
TEXT = """\
name = "galileo"
command = "python train.py {batch} '{{x}}'"
mounts = ["data:/data:rw"]
environment = {SEED = "1", TAG = "b{batch}"}
[arms]
bare = {engine = "native"}
sif = {"topology.cpus_per_rank" = 1, environment = {OMP_NUM_THREADS = "1"}}
[sweep]
batch = [32, 64]
"topology.ranks_per_node" = [1, 2]
[metrics.speed]
pattern = 'v="(.*)"\\.'
primary = true
[prove]
margin = 0.05
within_s = "10m"
goals = {accuracy = 0.9}
"""


def read(folder: Path, text: str) -> StudyRequest:
    path = folder / "study.toml"
    path.write_text(text)
    (folder / "train.py").touch()
    settings = config.resolve({}, folder=folder, environment={"HOME": str(folder / "nobody")})
    return read_study(TomlFile(path), settings)


def kept(store: Store, request: StudyRequest, *, image: Image | None = None, **changes: Any) -> str:
    """The study of a request as `prove` leaves it, with 3 repeats; its name."""
    image = image or make_image()
    prove = msgspec.structs.replace(request.prove, repeats=3)
    matrix = make_matrix(
        arms=request.arms, factors=request.factors, points=request.points, metrics=request.metrics[0],
        contrasts=request.contrasts, prove=prove, repeats=3, keys=request.keys, template=request.template,
        images=(image,), **changes,
    )  # fmt: skip
    studies = make_points(matrix)
    keep(store, matrix, make_records(matrix, studies, dict.fromkeys(request.arms, 1.0)))
    for study, jobs in zip(studies, request.jobs, strict=True):
        arms = tuple(
            msgspec.structs.replace(arm, engine=job.engine or "bubblewrap")
            for arm, job in zip(study.arms, jobs, strict=True)
        )
        whole: Study = msgspec.structs.replace(study, jobs=jobs, arms=arms, image=image)
        point_runs.keep(store, msgspec.structs.replace(whole, site=matrix.site))
    return matrix.id


def test_a_lock_is_the_same_study_elsewhere(store: Store, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    request = read(tmp_path, TEXT)
    text = study_lock.text(store, kept(store, request))
    assert "# speed of sif / bare: " in text
    (tmp_path / "elsewhere").mkdir()
    again = read(tmp_path / "elsewhere", text)
    assert (again.arms, again.factors, again.points) == (request.arms, request.factors, request.points)
    assert (again.metrics, again.contrasts) == (request.metrics, request.contrasts)
    assert again.prove == msgspec.structs.replace(request.prove, repeats=3, within_s=None)
    for old, new in zip(request.jobs, again.jobs, strict=True):
        images = [job.image for job in new]
        assert images == ["capture", make_image().digest]
        assert [
            msgspec.structs.replace(job, image="capture", prove=old[0].prove) for job in new
        ] == list(old)  # fmt: skip


def test_the_lock_of_a_job_names_both_arms(store: Store, tmp_path: Path) -> None:
    job = make_job(command=("echo", "a b"), workdir=str(tmp_path), engine="apptainer", prove=ProveRequest())
    text = study_lock.text(store, kept(store, study_of_job(job)))
    again = read(tmp_path, text)
    assert is_study(TomlFile(tmp_path / "study.toml"))
    assert again.arms == ("bare metal", "container")
    # The engine belonged to the site.
    assert [each.engine for each in again.jobs[0]] == ["native", None]
    assert [each.image for each in again.jobs[0]] == ["capture", make_image().digest]
    assert again.jobs[0][1].command == job.command


@pytest.mark.parametrize(
    ("reference", "pin"),
    [
        ("quay.io/ada/train:1", f"quay.io/ada/train@{fake_digest('a')}"),
        ("/scratch/train.sif", fake_digest("a")),
    ],
)
def test_a_pulled_image_is_pinned_where_it_was_pulled(
    store: Store, tmp_path: Path, reference: str, pin: str
) -> None:
    text = TEXT.replace('name = "galileo"', f'image = "{reference}"').replace(
        "[prove]", '[prove]\nbaseline_python = "/usr/bin/python3"'
    )
    (tmp_path / "data").mkdir()
    request = read(tmp_path, text)
    again = read(
        tmp_path, study_lock.text(store, kept(store, request, image=make_image(reference=reference)))
    )
    assert [job.image for job in again.jobs[0]] == ["capture", pin]
    assert again.jobs[0][0].capture.python == "/usr/bin/python3"


def test_images_that_are_compared_are_pinned_each(store: Store, tmp_path: Path) -> None:
    text = (
        'command = ["x"]\n[arms]\na = {image = "quay.io/a/b:1"}\nb = {image = "quay.io/a/b:1", form = "file"}'
    )
    image = make_image(reference="quay.io/a/b:1")
    again = read(tmp_path, study_lock.text(store, kept(store, read(tmp_path, text), image=image)))
    assert [job.image for job in again.jobs[0]] == [f"quay.io/a/b@{image.digest}"] * 2
    text = TEXT.replace('"topology.ranks_per_node" = [1, 2]', 'image = ["quay.io/a/b:1"]')
    text = text.replace("[prove]", '[prove]\nbaseline_python = "/usr/bin/python3"').replace("bare =", "#")
    text = text.replace("sif =", "first = {}\nsif =").replace('mounts = ["data:/data:rw"]', "")
    other = Store(tmp_path / "other")
    text = study_lock.text(
        other, kept(other, read(tmp_path, text.replace("baseline_python", "#")), image=image)
    )
    assert f'image = "quay.io/a/b@{image.digest}"' in text


def test_an_attribution_keeps_its_arms(store: Store, tmp_path: Path) -> None:
    text = 'command = ["x"]\nimage = "quay.io/a/b:1"\n[prove]\nattribution = true\n'
    image = make_image(reference="quay.io/a/b:1")
    again = read(tmp_path, study_lock.text(store, kept(store, read(tmp_path, text), image=image)))
    assert again.arms == ("bare metal", "captured", "image")
    assert again.jobs[0][2].image == f"quay.io/a/b@{image.digest}"


def test_no_secret_is_in_a_lock(store: Store, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    request = read(tmp_path, TEXT.replace('SEED = "1"', f'API_KEY = "geheim", X = "{GITHUB}"'))
    text = study_lock.text(store, kept(store, request))
    assert "geheim" not in text
    assert GITHUB not in text
    assert read(tmp_path, text).jobs[0][0].environment_from == ("API_KEY", "X")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{batch}", "{batch} --api-key geheim", "--api-key of the command"),
        ("/data:rw", f"/{GITHUB}", "mounts[0] of the lock"),
        ('OMP_NUM_THREADS = "1"', 'API_KEY = "geheim"', "an arm sets API_KEY"),
    ],
)
def test_other_secrets_are_refused(store: Store, tmp_path: Path, old: str, new: str, said: str) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(UsageError) as error:
        study_lock.text(store, kept(store, read(tmp_path, TEXT.replace(old, new, 1))))
    assert said in error.value.message
    assert "geheim" not in str(error.value)
    assert error.value.remedy


def test_a_study_without_the_jobs_of_its_arms_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    name = kept(store, read(tmp_path, TEXT))
    path = store.run(f"{name}.0") / "study.json"
    point_runs.keep(store, msgspec.structs.replace(store.read(path, Study), jobs=()))
    with pytest.raises(UsageError, match="does not record the jobs of its arms") as error:
        study_lock.text(store, name)
    assert error.value.remedy.startswith("bareboat prove FILE")
