"""Locks of real runs and studies: replayed in real containers, refused, and compared."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import forked
import pytest
from processes import bareboat, command, environment

from bareboat_images.store import Store

pytestmark = pytest.mark.thorough

JOB = """\
command = ["python", "train.py"]
environment = {{SEED = "{seed}", API_TOKEN = "geheim"}}
[capture]
python = "{python}"
"""
TRAIN = """\
import os, random
from helper import scale
random.seed(int(os.environ["SEED"]))
values = []
for step in range(10):
    values.append(scale(1 / (step + 1)) + random.random() / 10)
    print("step", step, "loss", values[-1])
print("token", len(os.environ["API_TOKEN"]))
"""
METRIC = r"loss=^step \d+ loss (\S+)$"


class Desk:
    """A project directory, and Bareboat in it."""

    def __init__(self, place: Path, folder: Path) -> None:
        self.place = place
        self.folder = folder
        self.write_job()
        (folder / "train.py").write_text(TRAIN)
        (folder / "helper.py").write_text("def scale(x):\n    return x\n")

    @property
    def store(self) -> Path:
        return self.place / "store"

    def write_job(self, seed: int = 1) -> None:
        text = JOB.format(seed=seed, python=self.place / "env/bin/python")
        (self.folder / f"{self.folder.name}.toml").write_text(text)

    def do(self, *words: str | Path, code: int = 0, store: Path | None = None, **variables: str) -> str:
        """Run a verb; return what it printed. It must exit with this code."""
        own = environment(store or self.store) | variables
        done = forked.run(*words, cwd=self.folder, env=own, timeout_s=300)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        assert "geheim" not in done.stdout + done.stderr
        return done.stdout + done.stderr

    def run(self) -> str:
        self.do("run", f"{self.folder.name}.toml", "--quiet")
        return next(run for run in reversed(Store(self.store).runs()) if run.startswith(self.folder.name))

    def lock(self, *options: str) -> dict[str, Any]:
        self.do("lock", self.run(), "-o", "run.lock", "--force", "--metric", METRIC, *options)
        found: dict[str, Any] = json.loads((self.folder / "run.lock").read_text())
        return found


@pytest.fixture
def desk(place: Path, tmp_path: Path) -> Desk:
    return Desk(place, tmp_path)


def test_a_lock_has_what_made_the_run_and_no_secret(desk: Desk) -> None:
    (desk.folder / "data").mkdir()
    (desk.folder / "data" / "x").write_text("1")
    os.utime(desk.folder / "data" / "x", (1, 1))
    lock = desk.lock("--data", "data")
    assert lock["job"]["environment"] == {"SEED": "1"}
    assert lock["withheld"] == ["API_TOKEN"]
    assert {file["path"] for file in lock["code"]["files"]} == {"train.py", "helper.py"}
    assert lock["image"]["origin"] == "captured"
    assert lock["image"]["packages"] is not None
    assert lock["machine"]["kernel"] == os.uname().release
    assert lock["results"]["exit_code"] == 0
    assert list(lock["results"]["metrics"]) == ["loss"]
    assert (lock["data"][0]["files"], lock["data"][0]["is_later"]) == (1, False)
    assert lock["not_recorded"] == []
    text = (desk.folder / "run.lock").read_text()
    assert "geheim" not in text
    assert os.environ.get("USER", "nobody-at-all") not in (lock["machine"] | {"hostname": ""}).values()
    again = desk.do("lock", lock["name"], "-o", "run.lock", code=2)
    assert "already exists" in again


def test_a_lock_in_a_pipe_is_the_document(desk: Desk) -> None:
    run = desk.run()
    code, out, _ = bareboat("lock", run, store=desk.store, cwd=desk.folder)
    assert code == 0
    assert json.loads(out)["name"] == run


def test_a_replay_is_agreed_to_checked_and_equal(desk: Desk) -> None:
    lock = desk.lock()
    runs = len(Store(desk.store).runs())
    refused = desk.do("replay", "run.lock", code=2, API_TOKEN="x")
    assert "nobody agreed to run it" in refused
    assert "command    python train.py" in refused
    missing = desk.do("replay", "run.lock", "--yes", code=11)
    assert "API_TOKEN is not in the lock, nor in this shell" in missing
    dry = desk.do("replay", "run.lock", "--dry-run", API_TOKEN="x")
    assert "2 files as locked" in " ".join(dry.split())
    assert "engine" in dry  # the plan
    assert len(Store(desk.store).runs()) == runs
    done = desk.do("replay", "run.lock", "--yes", API_TOKEN="x")
    assert f"of {lock['name']}" in done
    assert "equal      loss" in done
    # Agreed once, the same file needs no more agreement; another one does.
    desk.do("replay", "run.lock", API_TOKEN="x")
    changed = (desk.folder / "run.lock").read_text().replace('"train.py"', '"helper.py"')
    (desk.folder / "run.lock").write_text(changed)
    desk.do("replay", "run.lock", code=2, API_TOKEN="x")


def test_a_difference_has_its_exit_code_and_is_named(desk: Desk) -> None:
    desk.lock()
    first = desk.folder / "first.lock"
    (desk.folder / "run.lock").rename(first)
    desk.write_job(seed=2)
    second = desk.run()
    told = desk.do("diff", first, second)
    assert "environment: SEED  1 -> 2   (a seed of random numbers)" in told
    assert "results: loss" in told.partition("\nresults\n")[2]
    # The seed is what the lock says, so the code is changed instead.
    document = json.loads(first.read_text())
    document["job"]["environment"]["SEED"] = "5"
    first.write_text(json.dumps(document))
    done = desk.do("replay", first, "--yes", code=10, API_TOKEN="x")
    assert "DIFFERENT  loss" in done
    assert "different: replay" in done
    loose = desk.do("replay", first, "--tolerance", "loss=1", "--ignore", "loss", code=13, API_TOKEN="x")
    assert "ignored" in loose
    assert "--ignore leaves no metric to compare" in loose


def test_code_that_changed_is_named_and_found_elsewhere(desk: Desk) -> None:
    desk.lock()
    (desk.folder / "helper.py").write_text("def scale(x):\n    return 2 * x\n")
    changed = desk.do("replay", "run.lock", "--yes", code=11, API_TOKEN="x")
    assert "differs from the lock in helper.py" in changed
    kept = desk.folder / "kept"
    kept.mkdir()
    (kept / "train.py").write_text(TRAIN)
    (kept / "helper.py").write_text("def scale(x):\n    return x\n")
    assert "equal: replay" in desk.do("replay", "run.lock", "--yes", "--code", "kept", API_TOKEN="x")


def test_on_a_machine_that_has_none_of_the_parts_each_is_named(desk: Desk, tmp_path: Path) -> None:
    (desk.folder / "data").write_text("1")
    desk.lock("--data", "data")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (desk.folder / "run.lock").rename(elsewhere / "run.lock")
    gone = desk.folder.rename(desk.folder.with_name(desk.folder.name + "-gone"))
    try:
        done = subprocess.run(
            command("replay", "run.lock", "--dry-run"), cwd=gone / "elsewhere",
            env=environment(gone / "empty-store"), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        gone.rename(desk.folder)
    assert done.returncode == 11
    for text in (
        "image      missing: sha256:",
        "captured from an environment of",
        "code       can be had: 2 files of the lock",
        "data       missing:",
        "variable   missing: API_TOKEN",
    ):
        assert text in done.stdout, done.stdout
    assert "bareboat image save sha256:" in done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_code_is_written_from_the_lock_where_it_is_gone(desk: Desk) -> None:
    lock = desk.lock()
    document = json.loads((desk.folder / "run.lock").read_text())
    old = document["job"]["workdir"]
    text = (desk.folder / "run.lock").read_text().replace(old, old + "/gone")
    (desk.folder / "run.lock").write_text(text)
    done = desk.do("replay", "run.lock", "--yes", API_TOKEN="x")
    made = desk.folder / f"{lock['name']}-code"
    assert (made / "train.py").read_text() == TRAIN
    assert "equal: replay" in done


def test_data_with_another_checksum_is_refused(desk: Desk) -> None:
    (desk.folder / "data").write_text("1")
    desk.lock("--data", "data")
    (desk.folder / "data").write_text("2")
    assert "other content" in desk.do("replay", "run.lock", "--yes", code=11, API_TOKEN="x")
    (desk.folder / "right").write_text("1")
    moved = f"{desk.folder / 'data'}={desk.folder / 'right'}"
    assert "equal: replay" in desk.do("replay", "run.lock", "--yes", "--path", moved, API_TOKEN="x")


def test_without_a_metric_nothing_is_equal(desk: Desk) -> None:
    (desk.folder / "train.py").write_text("raise SystemExit(7)\n")
    desk.do("run", f"{desk.folder.name}.toml", "--quiet", code=7)
    desk.do("lock", desk.folder.name, "-o", "run.lock")
    done = desk.do("replay", "run.lock", "--yes", API_TOKEN="x", code=13)
    assert "no metric to compare: replay" in done
    assert "equal      exit code: 7" in done
    assert "bareboat lock RUN --metric" in " ".join(done.split())


def test_an_image_whose_origin_was_captured_again_is_another(desk: Desk) -> None:
    desk.lock()
    done = desk.do("replay", "run.lock", "--yes", "--image", "capture", API_TOKEN="x")
    assert "another: capture instead, as you asked" in done
    assert "equal: replay" in done


def test_a_point_of_a_sweep_is_a_job_of_its_own(desk: Desk) -> None:
    name = f"{desk.folder.name}.toml"
    text = (desk.folder / name).read_text().replace('"train.py"]', '"train.py", "{lr}"]')
    (desk.folder / name).write_text(text + "[sweep]\nlr = [0.1, 0.2]\n")
    desk.do("run", name, "--quiet")
    (sweep,) = [run for run in Store(desk.store).runs() if run.startswith(desk.folder.name)]
    assert "a lock holds one run" in desk.do("lock", sweep, code=2)
    desk.do("lock", f"{sweep}.1", "-o", "point.lock", "--metric", METRIC)
    lock = json.loads((desk.folder / "point.lock").read_text())
    assert lock["job"]["command"] == ["python", "train.py", "0.2"]
    assert lock["job"]["environment"]["BAREBOAT_SWEEP_LR"] == "0.2"
    assert "equal: replay" in desk.do("replay", "point.lock", "--yes", API_TOKEN="x")
    told = desk.do("diff", f"{sweep}.0", f"{sweep}.1")
    assert "environment: BAREBOAT_SWEEP_LR  0.1 -> 0.2" in told


STUDY = """\
name = "{name}"
command = ["python", "measure.py", "{{size}}"]
[capture]
python = "{python}"
[arms]
bare = {{engine = "native"}}
bubblewrap = {{engine = "bubblewrap"}}
[sweep]
size = [1, 2]
[metrics.speed]
pattern = 'speed: ([0-9.]+)'
[prove]
repeats = 2
"""
MEASURE = """\
import os, sys
print("speed:", 100 + int(sys.argv[1]) + len(os.environ["API_TOKEN"]) / 1e6)
"""


def test_the_lock_of_a_study_is_measured_again_and_compared(desk: Desk) -> None:
    name = f"m{desk.folder.name}"
    (desk.folder / "study.toml").write_text(STUDY.format(name=name, python=desk.place / "env/bin/python"))
    (desk.folder / "measure.py").write_text(MEASURE)
    desk.do("prove", "study.toml", "--set", "environment.API_TOKEN=geheim")
    (first,) = [run for run in Store(desk.store).runs() if run.startswith(name)]
    assert "--data is for runs" in desk.do("lock", first, "--data", "study.toml", code=2)
    assert "is a point of a study" in desk.do("diff", f"{first}.0", f"{first}.1", code=2)
    (desk.folder / "elsewhere").mkdir()
    desk.do("lock", name, "-o", "elsewhere/again.toml")
    text = (desk.folder / "elsewhere/again.toml").read_text()
    assert "geheim" not in text
    assert 'environment_from = ["API_TOKEN"]' in text
    assert 'image = "sha256:' in text
    desk.do("prove", "elsewhere/again.toml", API_TOKEN="geheim")
    (second,) = [run for run in Store(desk.store).runs() if run.startswith(name) and run != first]
    told = desk.do("report", first, second)
    assert "speed of bubblewrap / bare" in told
    assert "size=2" in told
