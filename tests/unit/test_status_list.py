"""The list of runs, at 80 columns and elsewhere."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from builders import fake_digest, make_records, make_study

from bareboat.cli import run_list
from bareboat.cli.run_list import placed
from bareboat.model import JobStart, JobState, Submission
from bareboat.runs.state import Status
from bareboat.runs.studies import Listed
from bareboat_base import codec
from bareboat_images.store import Store

LIST = Path(__file__).parents[1] / "golden" / "status.txt"
ROWS = [
    ("digits-20261120-101500", "python train.py --epochs 90 --lr 0.1", "slurm 4711", "running", "0:12:03",
     "2 h"),
    ("train-20261123-094501", "python -c 'raise ValueError(1)'", "login1", "1", "0:00:02", "5 min"),
    ("a-job-with-a-long-name-20261123-094501", "./solver", "gridengine 17.4", "lost", "", "12 d"),
]  # fmt: skip
DETAILS = [
    [],
    ["", "Python exception: ValueError: 1; a longer reason that does not fit on one line of a terminal"],
    [
        "",
        "cancelled: by the user",
        "try: requeue = true under [scheduling]; or: bareboat submit --time 2h job.toml",
    ],
]


def test_the_list_fits_80_columns() -> None:
    lines = placed(ROWS, DETAILS, 80)
    assert max(map(len, lines)) <= 80
    assert "\n".join(lines) + "\n" == LIST.read_text()


def test_elsewhere_each_run_and_each_reason_has_one_line() -> None:
    lines = placed(ROWS, DETAILS, None)
    assert len(lines) == 7
    assert [lines[at].strip() for at in (3, 5, 6)] == [DETAILS[1][1], *DETAILS[2][1:]]
    assert all(row[0] in "\n".join(lines) for row in ROWS)


def test_the_record_of_a_run_is_read_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Submission(
        run_id="digits-20261120-101500", scheduler="slurm", job_id="17", name="digits", nodes=2, world_size=2,
        engine="bubblewrap", submitted_at="2026-11-20T10:15:00Z", plan_digest=fake_digest("d"),
        image_digest=None, site_digest=fake_digest("f"),
    )  # fmt: skip
    store.run(made.run_id).mkdir(parents=True)
    record = msgspec.structs.replace(make_records(make_study(runs=2))[0], fabric_mark="TCP")
    store.write(store.run(made.run_id) / "record.json", codec.to_json(record))
    start = JobStart(at_epoch_s=1, node="n1", job_id="17")
    status = Status(submission=made, state=JobState.COMPLETED, exit_code=0, starts=(start,))
    read: list[Path] = []
    was = Store.read
    monkeypatch.setattr(Store, "read", lambda self, path, kind: read.append(path) or was(self, path, kind))
    assert run_list.detail(store, status, apart=True) == "on n1; TCP"
    assert [path.name for path in read].count("record.json") == 1


def test_a_study_whose_first_run_failed_shows_the_cause_and_nothing_to_resume(tmp_path: Path) -> None:
    study = Listed(run_id="train-20261128-061823", total=11, failure="container: ValueError: no data")
    assert run_list.row(study)[3] == "failed"
    (_, _, detail) = run_list.lines(Store(tmp_path), [study], apart=False, width=80)
    assert detail == "    container: ValueError: no data"
