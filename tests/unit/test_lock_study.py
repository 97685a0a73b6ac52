"""Locks of studies of several arms, points and metrics: made, read, compared, and looked for here."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from locked import (
    make_lock,
    make_locked_image,
    make_locked_study,
    make_study_lock,
)
from matrices import keep, make_matrix, make_points, make_records

from bareboat.model import Job, Matrix
from bareboat_base import codec
from bareboat_base.errors import StoreError, UsageError
from bareboat_images.store import Store
from bareboat_study import change, point_runs
from bareboat_study.cli import diff
from bareboat_study.cli import replay as replay_verb
from bareboat_study.matrix import points
from bareboat_study.reproduction import (
    crate,
    making,
    reading,
    replay,
    retrieval,
    study_comparison,
    study_difference,
    study_retrieval,
)
from bareboat_study.reproduction.comparison import Tolerances
from bareboat_study.reproduction.difference import UNKNOWN, Weight
from bareboat_study.reproduction.document import Lock, LockedStudy

pytest.importorskip("scipy")
GITHUB = "ghp_" + "aB3" * 12


def parse(lock: Lock) -> Lock:
    return reading.parse(making.written(lock), what="run.lock")


# --- made ---------------------------------------------------------------------------------------------------


def keep_study(store: Store, *, jobs: Callable[[Job, int], Job] = lambda job, _arm: job) -> Matrix:
    """A complete study in the store, with the jobs of its arms."""
    matrix = make_matrix(points=(("vgg16", 32), ("vgg16", 64)), fixed=(("engine",), ()))
    studies = make_points(matrix)
    keep(store, matrix, make_records(matrix, studies, {"bare": 1.0, "sif": 1.0}))
    for study in studies:
        own = tuple(
            jobs(msgspec.structs.replace(study.job, engine=engine), arm)
            for arm, engine in enumerate(("native", None))
        )
        point_runs.keep(store, msgspec.structs.replace(study, site=matrix.site, jobs=own))
    return matrix


def test_the_lock_of_a_study_has_its_request_and_results(store: Store) -> None:
    matrix = keep_study(store)
    lock = making.Maker(store).lock(matrix.id)
    assert isinstance(lock.study, LockedStudy)
    assert lock.kind == "study"
    assert (lock.study.arms, lock.study.points) == (matrix.arms, matrix.points)
    assert [cell.job.engine for cell in lock.study.cells[1]] == ["native", None]
    assert lock.study.repeats == 6
    assert [each.verdict for each in lock.study.compared] == ["equivalent", "equivalent"]
    primary = lock.study.compared[0].primary
    assert primary is not None
    assert (primary.name, len(primary.baseline)) == ("speed", 6)
    assert any(text.startswith("the packages of the image") for text in lock.not_recorded)
    assert parse(lock) == lock


def test_no_arm_of_a_lock_has_a_secret(store: Store) -> None:
    def with_secret(job: Job, arm: int) -> Job:
        environment = {"A": "1", "API_KEY": f"geheim{arm}", "X": GITHUB} if arm == 0 else {"API_KEY": "x"}
        return msgspec.structs.replace(job, environment=environment)

    matrix = keep_study(store, jobs=with_secret)
    lock = making.Maker(store).lock(matrix.id)
    assert isinstance(lock.study, LockedStudy)
    text = making.written(lock).decode()
    assert "geheim" not in text
    assert GITHUB not in text
    assert lock.study.cells[0][0].withheld == ("API_KEY", "X")
    assert lock.study.cells[0][0].job.environment == {"A": "1"}
    assert lock.study.cells[0][1].withheld == ("API_KEY",)
    assert any("API_KEY has several values" in each for each in lock.not_recorded)


def test_a_secret_in_the_command_of_any_arm_is_refused(store: Store) -> None:
    def with_secret(job: Job, arm: int) -> Job:
        return job if arm else msgspec.structs.replace(job, command=("train", "--api-key", "geheim"))

    with pytest.raises(UsageError, match="--api-key of the command") as error:
        making.Maker(store).lock(keep_study(store, jobs=with_secret).id)
    assert "geheim" not in error.value.message


def test_a_study_with_runs_left_is_refused(store: Store) -> None:
    matrix = keep_study(store)
    store.write(store.run(matrix.id) / "matrix.json", codec.to_json(_more_repeats(matrix)))
    with pytest.raises(UsageError, match="is not complete: 2 runs left") as error:
        making.Maker(store).lock(matrix.id)
    assert error.value.remedy == f"bareboat prove --resume {matrix.id}"


def test_a_study_without_the_jobs_of_its_arms_is_refused(store: Store) -> None:
    matrix = keep_study(store)
    (first, *_) = studies = points(store, matrix)
    point_runs.keep(store, msgspec.structs.replace(first, jobs=()))
    with pytest.raises(UsageError, match="does not record the jobs of its arms") as error:
        making.Maker(store).lock(matrix.id)
    assert error.value.remedy.startswith("bareboat prove FILE")
    point_runs.keep(store, msgspec.structs.replace(first, jobs=studies[0].jobs[:1]))
    with pytest.raises(StoreError, match="its arms are not those of the study"):
        making.Maker(store).lock(matrix.id)


def _more_repeats(matrix: Matrix) -> Matrix:
    return msgspec.structs.replace(matrix, repeats=7)


def test_a_lock_that_is_too_large_names_what_makes_it_so(store: Store) -> None:
    def large(job: Job, _arm: int) -> Job:
        return msgspec.structs.replace(job, environment=dict.fromkeys("ABC", "x" * 100000))

    with pytest.raises(UsageError, match="the limit is") as error:
        making.Maker(store).lock(keep_study(store, jobs=large).id)
    assert "the largest part is its arms" in error.value.context


def test_a_study_has_its_records_in_a_crate(store: Store, tmp_path: Path) -> None:
    matrix = keep_study(store)
    lock = making.Maker(store).lock(matrix.id)
    described = crate.Description.read("Study", "MIT", [])
    crate.write(store, lock, described, tmp_path / "crate")
    assert (tmp_path / "crate/records/1/0006/contender.json").is_file()
    metadata = json.loads((tmp_path / "crate/ro-crate-metadata.json").read_text())
    assert "equivalent within 2 % at 2 of 2 points" in metadata["@graph"][1]["description"]


# --- read ---------------------------------------------------------------------------------------------------


def test_a_lock_is_read_as_it_was_written() -> None:
    assert parse(make_study_lock()) == make_study_lock()


def put(*place: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        part: Any = document["study"]
        for key in place[:-1]:
            part = part[key]
        part[place[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("arms", value=["bare"]), "fewer than two arms"),
        (put("arms", value=["bare", "bare"]), "one twice"),
        (put("arms", value=["bare", "\x1b[2J"]), "control character"),
        (put("arms", value=["bare", "x" * 41]), "longer than 40"),
        (put("fixed", value=[["engine"]]), "not keys of a job"),
        (put("fixed", value=[["engine"], ["__class__"]]), "not keys of a job"),
        (put("factors", value=["batch\n"]), "name of a factor"),
        (put("factors", value=["a b"]), "is not a name"),
        (put("points", value=[[32], [32]]), "a point twice"),
        (put("points", value=[[32], [64, 1]]), "another number of values"),
        (put("points", value=[]), "0 points"),
        (put("points", value=[[32]]), "metrics for each point"),
        (put("metrics", value=[]), "metrics for each point"),
        (put("metrics", 0, 0, "name", value="other"), "different metrics"),
        (put("metrics", 0, 0, "pattern", value="("), "not a regular expression"),
        (put("contrasts", value=[]), "compares no arms"),
        (put("contrasts", 0, "contender", value=7), "an arm that it does not have"),
        (put("contrasts", 0, "contender", value=-1), "an arm that it does not have"),
        (put("contrasts", 0, "contender", value=0), "with itself"),
        (put("prove", "margin", value=0), "margin"),
        (put("prove", "scaling", value="cores"), "not a factor"),
        (put("prove", "until_decided", value=True), "ends when it is decided"),
        (put("repeats", value=0), "0 repeats"),
        (put("images", 0, "digest", value="../x"), "not a digest"),
        (put("images", value=[]), "not among the study's"),
        (put("cells", value=[]), "a job for each arm"),
        (put("cells", 0, 0, "withheld", value=["A B"]), "not the name of an environment variable"),
        (put("cells", 0, 1, "job", "command", value=["rm", "-rf"]), "not that of the last arm"),
        (put("cells", 1, 0, "job", "topology", "nodes", value=0), "topology.nodes"),
        (put("compared", 0, "point", value=2), "a comparison that it does not have"),
        (put("compared", 1, "point", value=0), "a comparison twice"),
        (put("compared", 0, "metrics", 0, "baseline", value=[1.0]), "two or more pairs"),
        (put("compared", 0, "metrics", 0, "baseline", 0, value=0), "no measurement"),
        (put("compared", 0, "metrics", 0, "baseline", 0, value=-1.0), "no measurement"),
        (put("compared", 0, "metrics", 0, "baseline", 0, value=1e300), "no measurement"),
        (put("compared", 0, "metrics", 0, "primary", value=False), "one primary metric"),
        (put("failed", value=[{"arm": 9, "point": 0, "run": 1, "exit_code": 1, "reason": ""}]), "failed run"),
        (put("shape", value=1), "unknown key study.shape"),
    ],
)
def test_a_study_that_cannot_be_is_refused(change: Callable[[dict[str, Any]], None], said: str) -> None:
    document = json.loads(making.written(make_study_lock()))
    change(document)
    with pytest.raises(UsageError) as error:
        reading.parse(json.dumps(document).encode(), what="run.lock")
    assert said in error.value.message
    assert error.value.message.isprintable()
    assert error.value.remedy


def test_only_a_study_has_the_results_of_one() -> None:
    with pytest.raises(UsageError, match="disagree"):
        parse(msgspec.structs.replace(make_study_lock(), study=None))
    with pytest.raises(UsageError, match="disagree"):
        parse(make_study_lock(kind="run"))


# --- compared -----------------------------------------------------------------------------------------------


def outcome(second: LockedStudy, **tolerances: Any) -> study_comparison.Outcome:
    return study_comparison.of_studies(make_locked_study(), second, Tolerances(**tolerances))


def test_equal_ratios_are_equal_and_other_values_are_shown() -> None:
    found = outcome(make_locked_study(scale=2.0))
    assert replay.of_study(found) == replay.EQUAL
    assert [each.equal for each in found.ratios] == [True, True]
    assert {each.equal for each in found.values} == {None}
    assert len(found.changed) == 4
    assert "speed of bare at batch=32" in found.changed


def test_values_are_judged_where_their_metric_has_a_tolerance() -> None:
    found = outcome(make_locked_study(scale=1.1), own={"speed": 0.05})
    assert replay.of_study(found) == replay.DIFFERENT
    assert found.changed == ()
    assert replay.of_study(outcome(make_locked_study(scale=1.1), own={"speed": 0.2})) == replay.EQUAL


def test_another_ratio_is_a_difference_at_its_point_only() -> None:
    second = make_locked_study()
    slower = make_locked_study(ratio=0.9).compared[1]
    found = outcome(msgspec.structs.replace(second, compared=(second.compared[0], slower)))
    assert [each.equal for each in found.ratios] == [True, False]
    assert found.ratios[1].item == "speed: sif / bare at batch=64"
    assert "second / first 0.9000" in found.ratios[1].text
    assert replay.of_study(found) == replay.DIFFERENT


def test_too_few_runs_decide_nothing() -> None:
    found = outcome(make_locked_study(noise=0.1, runs=2))
    assert replay.of_study(found) == replay.UNDECIDED
    assert all("95% interval [too few runs]" in each.text for each in found.ratios)


def test_ratios_are_corrected_for_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A difference with p = 0.03 is one alone, and none of two."""
    monkeypatch.setattr(change, "BETWEEN_STUDIES", 0.0)
    many = outcome(make_locked_study(ratio=1.0062))
    p = _difference_p(1.0062)
    assert 0.025 < p < 0.05
    narrow = msgspec.structs.replace(make_locked_study().prove, margin=0.0001)
    first = make_locked_study(prove=narrow)
    both = study_comparison.of_studies(first, make_locked_study(ratio=1.0062), Tolerances())
    assert [each.equal for each in both.ratios] == [None, None]
    one = msgspec.structs.replace(first, compared=first.compared[:1])
    other = make_locked_study(ratio=1.0062)
    alone = study_comparison.of_studies(
        one, msgspec.structs.replace(other, compared=other.compared[:1]), Tolerances()
    )
    assert alone.ratios[0].equal is False
    assert [each.equal for each in many.ratios] == [True, True]


def _difference_p(ratio: float) -> float:
    from scipy import stats

    def effects(matrix: LockedStudy) -> list[float]:
        values = matrix.compared[0].metrics[0]
        return [math.log(b / a) for a, b in zip(values.baseline, values.contender, strict=True)]

    samples = effects(make_locked_study()), effects(make_locked_study(ratio=ratio))
    return float(stats.ttest_ind(*samples, equal_var=False).pvalue)


def test_what_only_one_measured_is_a_difference() -> None:
    first = make_locked_study()
    empty = msgspec.structs.replace(first.compared[1], metrics=(), verdict="", reason="1 complete run")
    second = msgspec.structs.replace(first, compared=(first.compared[0], empty))
    for pair in ((first, second), (second, first)):
        found = study_comparison.of_studies(*pair, Tolerances())
        assert found.ratios[1].equal is False
        assert replay.of_study(found) == replay.DIFFERENT
    # What neither measured is none.
    both = study_comparison.of_studies(second, second, Tolerances())
    assert replay.of_study(both) == replay.EQUAL


def test_a_training_that_diverged_is_a_difference() -> None:
    first = make_locked_study()
    wild = msgspec.structs.replace(first.compared[1], has_diverged=True, verdict="training diverged")
    found = outcome(msgspec.structs.replace(first, compared=(first.compared[0], wild)))
    assert (found.ratios[1].equal, found.ratios[1].second) == (False, "the training diverged")


def test_without_any_comparison_nothing_is_equal() -> None:
    empty = make_locked_study(compared=())
    assert replay.of_study(study_comparison.of_studies(empty, empty, Tolerances())) == replay.NOT_COMPARED


# --- differences --------------------------------------------------------------------------------------------


def test_equal_locks_do_not_differ() -> None:
    assert study_difference.compare(make_study_lock(), make_study_lock()) == []


def test_a_difference_of_one_arm_names_it() -> None:
    first = make_locked_study()
    (bare, sif), (bare_64, sif_64) = first.cells
    slower = tuple(
        msgspec.structs.replace(each, job=msgspec.structs.replace(each.job, environment={"SEED": "2"}))
        for each in (bare, bare_64)
    )
    second = msgspec.structs.replace(first, cells=((slower[0], sif), (slower[1], sif_64)))
    (only,) = study_difference.compare(make_study_lock(first), make_study_lock(second))
    assert (only.item, only.weight, only.reason) == (
        "SEED", Weight.STRONG, "a seed of random numbers; only in arm bare",
    )  # fmt: skip
    second = msgspec.structs.replace(first, cells=((slower[0], sif), (bare_64, sif_64)))
    (only,) = study_difference.compare(make_study_lock(first), make_study_lock(second))
    assert only.reason.endswith("only in bare at 1 point, such as batch=32")


def test_the_image_the_design_and_the_results_are_compared() -> None:
    other = make_locked_image(digest="sha256:" + "f" * 64, glibc="2.36", packages=())
    cells = tuple(
        tuple(msgspec.structs.replace(each, image=other.digest) for each in row)
        for row in make_locked_study().cells
    )
    second = make_locked_study(ratio=0.9, images=(other,), cells=cells, repeats=5)
    found = study_difference.compare(make_study_lock(), make_study_lock(second))
    items = [(each.section, each.item) for each in found]
    assert items[0] == ("packages", "numpy")
    assert {("image", "glibc"), ("design", "repeats")} <= set(items)
    assert [each.item for each in found if each.weight == Weight.RESULT] == [
        "speed: sif / bare at batch=32", "speed: sif / bare at batch=64",
    ]  # fmt: skip
    assert found[-1].reason == "ratio 0.9000"
    text = diff.text(make_study_lock(), make_study_lock(second), found, every=True)
    assert max(map(len, text.splitlines())) <= 80


def test_a_study_and_a_run_differ_in_kind() -> None:
    found = study_difference.compare(make_study_lock(), make_lock())
    assert ("design", "kind") in [(each.section, each.item) for each in found]


def test_a_study_of_a_scheduler_is_compared_by_its_nodes() -> None:
    lock = make_study_lock()
    assert lock.plan is not None
    plan = msgspec.structs.replace(lock.plan, scheduler="slurm")
    here = make_study_lock(plan=plan, node=msgspec.structs.replace(lock.machine, cpu="A"))
    there = make_study_lock(plan=plan, node=msgspec.structs.replace(lock.machine, cpu="B"))
    (only,) = study_difference.compare(here, there)
    assert (only.item, only.first, only.second) == ("CPU", "A", "B")


def test_a_launcher_that_the_planner_chose_is_not_recorded() -> None:
    lock = make_study_lock()
    assert lock.plan is not None
    plans = [msgspec.structs.replace(lock.plan, launcher=name) for name in ("ranks", "")]
    (only,) = study_difference.compare(*(make_study_lock(plan=plan) for plan in plans))
    assert (only.item, only.second, only.weight) == ("launcher", UNKNOWN, Weight.UNLIKELY)


# --- looked for ---------------------------------------------------------------------------------------------


def find(lock: Lock, store: Store, environment: dict[str, str] | None = None, **wishes: Any) -> Any:
    assert isinstance(lock.study, LockedStudy)
    return study_retrieval.find(
        lock, store, retrieval.Wishes(**wishes), environment=environment or {},
        progress=lambda *_: None,
    )  # fmt: skip


def test_each_missing_part_is_named_once_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = find(make_study_lock(), Store(tmp_path / "store"))
    assert [(part.name, part.state.value) for part in found.parts] == [
        ("image", "missing"), ("code", "can be had"), ("variable", "missing"),
    ]  # fmt: skip
    assert "bareboat image save" in found.parts[0].remedy
    assert found.parts[2].remedy == "export API_TOKEN=…"
    assert found.restores == str(tmp_path / f"{make_study_lock().name}-code")
    assert {job.workdir for row in found.jobs for job in row} == {found.restores}


def test_the_parts_of_one_arm_name_it(tmp_path: Path) -> None:
    first = make_locked_study()
    pulled = make_locked_image(digest="sha256:" + "f" * 64, origin="pulled", reference="quay.io/ada/train:1")
    cells = tuple((row[0], msgspec.structs.replace(row[1], image=pulled.digest)) for row in first.cells)
    lock = make_study_lock(msgspec.structs.replace(first, images=(*first.images, pulled), cells=cells))
    found = find(lock, Store(tmp_path / "store"), {"API_TOKEN": "x"})
    assert found.parts[0].text.endswith("(arm bare)")
    (image,) = [part for part in found.parts if part.text.startswith("pulled again")]
    assert image.text.endswith("(arm sif)")
    assert [job.image for job in found.jobs[0]] == [
        first.cells[0][0].job.image, f"quay.io/ada/train@{pulled.digest}",
    ]  # fmt: skip


def test_an_image_that_the_study_compares_stays(tmp_path: Path) -> None:
    lock = make_study_lock(make_locked_study(fixed=(("engine",), ("engine", "image"))))
    found = find(lock, Store(tmp_path / "store"), image="docker.io/library/debian:12")
    assert found.jobs[0][0].image == "docker.io/library/debian:12"
    assert found.jobs[0][1].image != "docker.io/library/debian:12"


def test_files_of_metrics_move_with_their_directories(tmp_path: Path) -> None:
    first = make_locked_study()
    metric = msgspec.structs.replace(
        first.metrics[0][0], pattern=None, file="/home/ada/digits/out.json", key="speed"
    )
    lock = make_study_lock(msgspec.structs.replace(first, metrics=((metric,), (metric,))))
    (tmp_path / "train.py").write_text("")
    found = find(lock, Store(tmp_path / "store"), code=str(tmp_path))
    assert found.metrics[0][0].file == str(tmp_path / "out.json")


def test_all_that_any_arm_runs_is_shown(tmp_path: Path) -> None:
    first = make_locked_study()
    (bare, sif), last = first.cells
    evil = msgspec.structs.replace(
        bare,
        job=msgspec.structs.replace(
            bare.job, command=("rm", "-rf", "\x1b[2J"), modules=("evil",), seccomp=False
        ),
    )
    lock = make_study_lock(msgspec.structs.replace(first, cells=((evil, sif), last)))
    found = find(lock, Store(tmp_path / "store"))
    text = replay_verb.shown(lock, found, found.job)
    for said in (
        "rm -rf",
        "python train.py 32",
        "python train.py 64",
        "WITHOUT a container",
        "module ",
        "without the system call filter",
    ):
        assert said in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_what_the_study_compares_is_no_matter_of_the_site() -> None:
    job = make_lock().job
    job = msgspec.structs.replace(
        job, engine="apptainer", launcher="srun", modules=("mpi",), notify=("rm", "-rf", "/"),
        scheduling=msgspec.structs.replace(job.scheduling, partition="gpu", account="ada"),
    )  # fmt: skip
    kept = retrieval.without_place(job, {"engine", "scheduling.partition"})
    assert (kept.engine, kept.launcher, kept.modules) == ("apptainer", None, ())
    assert (kept.scheduling.partition, kept.scheduling.account) == ("gpu", None)
    assert kept.notify is None
    assert retrieval.without_place(job).engine is None
