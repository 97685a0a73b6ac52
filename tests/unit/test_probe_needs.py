"""Commands that run a job look only for what its plan depends on; `plan` and `doctor` look for everything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from environments import make_environment

#: Programs of engines, schedulers and MPIs, each of which takes a while to answer on a real cluster.
PROGRAMS = ("podman", "apptainer", "ch-run", "sbatch", "sinfo", "qsub", "qconf", "mpirun")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("small") / "environment")


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH whose first directory has the programs; each notes that it was started, and fails."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).write_text(f'#!/bin/sh\necho "${{0##*/}}" >> {tmp_path}/started\nexit 1\n')
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def started(tmp_path: Path, path: str, *words: str | Path) -> set[str]:
    """Which of the programs the command starts; its exit code does not matter."""
    notes = tmp_path / "started"
    notes.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "bareboat", *map(str, words)]
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path)}
    subprocess.run(argv, env=environment, cwd=tmp_path, capture_output=True, timeout=120, check=False)
    return set(notes.read_text().split()) if notes.exists() else set()


def test_a_run_looks_for_one_engine(tmp_path: Path, path: str, python: Path) -> None:
    assert started(tmp_path, path, "run", "--python", python, "--", "/bin/true") == set()


def test_an_engine_that_is_asked_for_is_looked_for_alone(tmp_path: Path, path: str, python: Path) -> None:
    words = ("run", "--engine", "charliecloud", "--python", python, "--", "/bin/true")
    assert "ch-run" in started(tmp_path, path, *words)
    assert "podman" not in started(tmp_path, path, "run", "--engine", "native", *words[3:])


def test_where_the_cheapest_cannot_run_the_job_all_are_looked_for(
    tmp_path: Path, path: str, python: Path
) -> None:
    found = started(tmp_path, path, "run", "--form", "file", "--python", python, "--", "/bin/true")
    assert {"podman", "apptainer"} <= found


def test_several_ranks_need_the_mpis(tmp_path: Path, path: str, python: Path) -> None:
    words = ("run", "--ranks-per-node", "2", "--python", python, "--", "/bin/true")
    assert started(tmp_path, path, *words) == {"mpirun"}


def test_a_plan_that_is_shown_weighs_everything(tmp_path: Path, path: str, python: Path) -> None:
    found = started(tmp_path, path, "plan", "--python", python, "--", "/bin/true")
    assert {"podman", "apptainer", "sinfo", "qconf", "mpirun"} <= found


def test_a_plan_for_one_engine_looks_for_no_other(tmp_path: Path, path: str, python: Path) -> None:
    found = started(tmp_path, path, "plan", "--engine", "native", "--python", python, "--", "/bin/true")
    assert {"sinfo", "qconf", "mpirun"} <= found
    assert found.isdisjoint({"podman", "apptainer", "ch-run"})
