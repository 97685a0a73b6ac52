"""Which runs a study does: all, as many as fit into a minute, or until it is decided."""

import json
import os
from pathlib import Path
from typing import Any

import forked
import msgspec
import pytest
from builders import make_job, make_records, make_study
from matrices import keep, of_pair

from bareboat.model import Matrix, ProveRequest, Study
from bareboat_base import codec
from bareboat_images.store import Store
from bareboat_study import matrix, point_runs, study_report, validity

pytest.importorskip("scipy")


class Measured:
    """A study whose runs take ten seconds each, and their numbers in the order in which they were done."""

    def __init__(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, failed: int = 0, where: str = "local", **how: Any
    ) -> None:
        study = make_study(job=make_job(prove=ProveRequest(**how), scheduler=where))
        self.runs: list[int] = []
        self.notes: list[str] = []
        self._failed = failed
        made, studies, (self._records,) = of_pair(study, make_records(study))
        made = msgspec.structs.replace(made, repeats=None) if study.job.prove.is_timed else made
        keep(store, made, [[]], studies)
        monkeypatch.setattr(point_runs, "measure", self._measure)
        self.found: Matrix = matrix.conduct(store, made, say=lambda _: None, note=self.notes.append)

    def _measure(self, store: Store, study: Study, run: int, _scripts: dict[str, Path], **_: Any) -> Study:
        self.runs.append(run)
        folder = store.run(study.id) / f"{run:04d}"
        folder.mkdir()
        own = {record.arm: record for record in self._records if record.run == run}
        for name, arm in zip(point_runs.file_names(study), study.arms, strict=True):
            record = msgspec.structs.replace(own[arm.name], exit_code=int(run == self._failed > 0))
            (folder / f"{name}.json").write_bytes(codec.to_json(record))
            (folder / f"{name}.log").write_text(f"{arm.name}, run {run}\n")
        (folder / "took_s").write_text("10.0")
        return study


def test_a_study_ends_at_the_first_look_that_decides(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    done = Measured(store, monkeypatch, repeats=40, until_decided=True)
    assert done.runs == list(range(11))
    assert (done.found.repeats, done.found.decided_after) == (40, 10)
    assert matrix.missing(store, matrix.read(store, done.found.id)) == []
    shown = study_report.read(store, done.found.id)
    assert shown.only is not None
    assert shown.only.analysis.verdict.value == "equivalent"


def test_a_study_that_is_not_decided_in_its_time_pauses_and_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = Measured(store, monkeypatch, repeats=40, until_decided=True, within_s=5.0)
    assert done.runs == [0, 1, 2]  # with fewer there is no interval
    shown = study_report.read(store, done.found.id)
    assert shown.only is not None
    assert shown.only.analysis.verdict.value == "incomplete"
    assert "not decided yet" in shown.only.analysis.sentence
    found = matrix.conduct(store, done.found, say=lambda _: None, note=done.notes.append)
    assert (done.runs, found.decided_after) == (list(range(11)), 10)


# Turns are also measured alone in two runs, which take twice the time; in a scheduler's jobs there are none.
@pytest.mark.parametrize(("where", "runs"), [("local", 3), ("slurm", 5)])
def test_a_study_has_as_many_runs_as_fit(
    store: Store, monkeypatch: pytest.MonkeyPatch, where: str, runs: int
) -> None:
    done = Measured(store, monkeypatch, where=where, within_s=60.0)
    assert (done.runs, done.found.repeats) == (list(range(runs + 1)), runs)
    assert " fit into 60 s if each takes as long as the warm-up; " in done.notes[0]


def test_an_arm_that_was_stopped_since_the_other_failed_is_no_failed_run() -> None:
    made, _, (known,) = of_pair(study := make_study(), make_records(study))
    first, second = (arm.name for arm in study.arms)
    ends = {(1, first): validity.STOPPED, (1, second): 3, (2, first): validity.STOPPED, (2, second): 0}
    records = [
        msgspec.structs.replace(
            record,
            exit_code=ends.get((record.run, record.arm), 0),
            ended_because=f"{second}: out of memory" if ends.get((record.run, record.arm)) else "",
        )
        for record in known
    ]
    shown = [each.text for each in validity.failures_of(made, [records])]
    assert shown == [f"run 1 of {second}: out of memory", f"run 2 of {first}: {second}: out of memory"]


def test_failed_runs_of_a_study_are_listed_with_their_output(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Measured(store, monkeypatch, failed=2, repeats=4).found
    environment = {**os.environ, "BAREBOAT_STORE": str(store.root)}

    def bareboat(*words: str, code: int = 0) -> str:
        done = forked.run(*words, env=environment, timeout_s=60)
        assert done.returncode == code, done.stderr
        return done.stdout or done.stderr

    base, container = study.arms
    failed = [f"run 2 of {arm}: exit code 1" for arm in study.arms]
    assert bareboat("status", study.id).splitlines()[-3:] == [
        *failed,
        f"their output: bareboat logs {study.id}",
    ]
    assert json.loads(bareboat("status", study.id, "--json"))[0]["failed_runs"] == failed
    logs = f"==> run 2 of {base} <==\n{base}, run 2\n==> run 2 of {container} <==\n{container}, run 2\n"
    assert bareboat("logs", study.id) == bareboat("logs") == logs
    lines = map(json.loads, bareboat("logs", study.id, "--json").splitlines())
    assert [(line["run"], line["line"]) for line in lines] == [
        (f"run 2 of {arm}", f"{arm}, run 2") for arm in study.arms
    ]
    assert "is a study" in bareboat("logs", "-f", study.id, code=2)


def test_the_output_of_a_study_without_failures_is_that_of_its_newest_run(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Measured(store, monkeypatch, repeats=2).found
    assert matrix.failures(store, study.id) == []
    shown = [(name, path.read_text()) for name, path in matrix.logs(store, study.id)]
    assert shown == [(f"run 2 of {arm}", f"{arm}, run 2\n") for arm in study.arms]


def test_a_study_that_was_stopped_at_a_look_ends_there(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    done = Measured(store, monkeypatch, repeats=40, until_decided=True)
    stopped = msgspec.structs.replace(done.found, decided_after=msgspec.UNSET)
    found = matrix.conduct(store, stopped, say=lambda _: None, note=done.notes.append)
    assert (done.runs, found.decided_after) == (list(range(11)), 10)
