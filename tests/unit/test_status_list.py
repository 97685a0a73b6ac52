"""Studies in the list of `status`."""

import json
import subprocess
from pathlib import Path

import pytest
from builders import make_image, make_job, make_rootfs, make_site
from processes import command

from bareboat.plan import plan
from bareboat.runs import studies
from bareboat_base import codec
from bareboat_images.store import Store
from bareboat_study import matrix, studyfile


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAREBOAT_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_study(store: Store) -> str:
    job, image, site = make_job(), make_image(), make_site()
    cells = [
        (plan(make_job(engine=name), image, make_rootfs(image), site), image) for name in ("native", None)
    ]
    return matrix.design(store, studyfile.study_of_job(job), [cells], site).id


def listed() -> subprocess.CompletedProcess[str]:
    return subprocess.run(command("status"), capture_output=True, text=True, check=False)


def test_a_study_is_in_the_list_with_its_verdict(around: Path) -> None:
    store = Store(around / "store")
    run_id = make_study(store)
    shown = listed().stdout
    assert run_id in shown
    assert f"study, 0 of 11 runs with warm-ups: bareboat prove --resume {run_id}" in shown
    assert not (store.run(run_id) / "lock").exists(), "the list writes nothing"
    with store.locked(run_id):
        assert "measuring" in listed().stdout
    for number in range(11):
        (store.run(f"{run_id}.0") / f"{number:04}").mkdir()
    head, row = listed().stdout.splitlines()[:2]
    assert "complete" in row
    assert "  result  " in head
    verdict = studies.Verdict(verdict="undecided", sentence="It may be slower.", runs=10)
    store.write(store.run(run_id) / "verdict.json", codec.to_json(verdict))
    assert "undecided" in listed().stdout
    assert "It may be slower." in listed().stdout
    # With its name it would list the runs that failed, and they have no records here.
    done = subprocess.run(command("status", "--json"), capture_output=True, check=True)
    (found,) = json.loads(done.stdout)
    assert (found["kind"], found["verdict"], found["runs_done"]) == ("study", "undecided", 11)
    (store.run(run_id) / "matrix.json").write_text("{")
    damaged = listed()
    assert damaged.returncode == 4
    assert run_id in damaged.stdout
