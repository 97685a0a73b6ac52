"""A run on one cluster, locked, and replayed on another, on this machine, and with another day's image."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster, need_this_system
from desks import Desk, desk_on
from environments import make_environment

SCRIPT = """
import os, random
import flavour
random.seed(int(os.environ["SEED"]))
for step in range(20):
    print(f"step {step} loss {flavour.SCALE / (step + 1) + random.random() / 100:.6f}", flush=True)
"""
METRIC = r"loss=step \d+ loss ([0-9.]+)"


def write_package(python: Path, version: str, scale: float) -> None:
    """A package of the environment, whose version decides the result."""
    (place,) = python.parents[1].glob("lib/python3*/site-packages")
    for old in place.glob("flavour*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    (place / "flavour.py").write_text(f"SCALE = {scale}\n")
    about = place / f"flavour-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: flavour\nVersion: {version}\n")
    (about / "RECORD").write_text(f"flavour.py,,\nflavour-{version}.dist-info/METADATA,,\n")


@pytest.fixture
def python(tmp_path: Path) -> Path:
    need_this_system()
    made = make_environment(tmp_path / "environment")
    write_package(made, "1.0", 1.0)
    return made


@pytest.fixture
def slurm_desk(slurm: Cluster, python: Path, tmp_path: Path) -> Desk:
    made = desk_on(slurm, "slurm", python, tmp_path.name)
    made.write("train.py", SCRIPT)
    return made


def lock_of(desk: Desk, *options: str, name: str = "train") -> tuple[Path, dict[str, Any]]:
    """Submit the job and lock its run."""
    more = 'launcher = "ranks"\n[environment]\nSEED = "3"'
    job = desk.job(name, ["python", "train.py"], nodes=1, ranks_per_node=1, more=more)
    run = desk.submit(job)
    desk.wait(run)
    path = desk.folder / "run.lock"
    desk.bareboat("lock", run, "-o", path, "--metric", METRIC, *options)
    found: dict[str, Any] = json.loads(path.read_text())
    return path, found


def test_lock_of_slurm_replayed_under_grid_engine_and_locally(
    slurm_desk: Desk, gridengine: Cluster, python: Path, tmp_path: Path
) -> None:
    path, lock = lock_of(slurm_desk)
    assert lock["plan"]["scheduler"] == "slurm"
    assert lock["nodes"] == [lock["node"]["hostname"]]
    assert lock["node"]["kernel"]
    assert lock["node"]["cpu"]
    assert lock["image"]["packages"]
    assert lock["results"]["metrics"]["loss"]
    assert not any("node" in text for text in lock["not_recorded"])

    other = desk_on(gridengine, "gridengine", python, tmp_path.name)
    shutil.copy(path, other.folder)
    saved = other.folder / "image.tar"
    slurm_desk.bareboat("image", "save", lock["image"]["digest"], saved)
    # The one cluster sees nothing of the other.
    slurm_desk.folder.rename(slurm_desk.folder.with_name("gone"))
    refused = other.bareboat("replay", "run.lock", "--dry-run", code=11)
    assert "image      missing" in refused.stdout
    assert "bareboat image save" in refused.stderr
    assert "code       can be had: 1 file of the lock" in refused.stdout
    other.bareboat("image", "load", saved)
    runs = other.store / "runs"
    before = set(runs.iterdir()) if runs.is_dir() else set()
    done = other.bareboat("replay", "run.lock", "--yes", "--scheduler", "gridengine")
    assert "equal: replay" in done.stdout
    assert "plan: scheduler  slurm -> gridengine" in done.stdout
    (run,) = [path.name for path in set(runs.iterdir()) - before]
    assert other.record(run)["scheduler"] == "gridengine"
    assert (other.folder / f"{lock['name']}-code" / "train.py").read_text() == SCRIPT

    here = other.bareboat("replay", "run.lock", "--scheduler", "local", "--json")
    judged = json.loads(here.stdout)
    assert judged["word"] == "equal"
    assert {each["item"] for each in judged["compared"]} >= {"exit code", "loss"}


def test_another_days_image_is_named(slurm_desk: Desk, python: Path) -> None:
    path, lock = lock_of(slurm_desk)
    write_package(python, "2.0", 1.5)
    done = slurm_desk.bareboat("replay", path, "--yes", "--scheduler", "slurm", "--image", "capture", code=10)
    assert "different: replay" in done.stdout
    assert "DIFFERENT  loss" in done.stdout
    told = slurm_desk.bareboat("diff", path, "train", "--all").stdout
    assert "packages: flavour  1.0 -> 2.0" in told
    assert "image: digest" in told
    assert lock["name"] in told
    equal = slurm_desk.bareboat("replay", path, "--scheduler", "slurm")  # its own image is still in the store
    assert "equal: replay" in equal.stdout


def test_ranks_on_three_nodes_are_submitted_by_themselves(slurm_desk: Desk) -> None:
    job = slurm_desk.job(
        "ranks", ["python", "train.py"], more='launcher = "ranks"\n[environment]\nSEED = "3"'
    )
    run = slurm_desk.submit(job)
    slurm_desk.wait(run)
    of_one = METRIC.replace("loss=", r"loss=\[rank 0\] ")
    slurm_desk.bareboat("lock", run, "-o", "ranks.lock", "--without", "packages", "--metric", of_one)
    lock = json.loads((slurm_desk.folder / "ranks.lock").read_text())
    assert len(lock["nodes"]) == 3
    done = slurm_desk.bareboat("replay", "ranks.lock", "--yes")
    assert "equal: replay" in done.stdout
    assert "ranks      6 on 3 nodes" in done.stderr
