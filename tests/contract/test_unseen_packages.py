"""Packages that a script finds in the user's shell and not in a captured environment: a warning."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from environments import make_environment
from tools import completed

from bareboat.captures.interpreter import ask, unseen


def make_package(folder: Path) -> Path:
    (folder / "own").mkdir(parents=True)
    (folder / "own" / "__init__.py").write_text("")
    return folder


@pytest.fixture
def user_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of `pip install --user` with a package."""
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path / "user"))
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return make_package(tmp_path / "user" / "lib" / version / "site-packages")


@pytest.mark.parametrize("system", [False, True])
def test_a_virtual_environment_reads_them_only_with_the_system_s(
    tmp_path: Path, user_site: Path, *, system: bool
) -> None:
    python = make_environment(tmp_path / "venv")
    settings = tmp_path / "venv" / "pyvenv.cfg"
    if system:
        settings.write_text(settings.read_text().replace("packages = false", "packages = true"))
    natively = subprocess.run([python, "-c", "import own"], capture_output=True, check=False).returncode == 0
    assert natively == system
    assert unseen(ask(str(python)), {}) == ([str(user_site)] if system else [])
    assert unseen(ask(str(python)), {"PYTHONNOUSERSITE": "1"}) == []


def test_empty_and_missing_directories_are_not_named(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "venv")
    (tmp_path / "empty").mkdir()
    own = make_package(tmp_path / "own")
    paths = ("", "relative", "/nowhere", str(tmp_path / "empty"), str(own), str(own))
    assert unseen(ask(str(python)), {"PYTHONPATH": ":".join(paths)}) == [str(own)]


@pytest.mark.parametrize("passed", [False, True])
def test_the_plan_warns(tmp_path: Path, lean: str, *, passed: bool) -> None:
    python = make_environment(tmp_path / "venv")
    own = make_package(tmp_path / "elsewhere")
    (tmp_path / "work").mkdir()
    job = f'command = ["python", "-c", "import own"]\nmounts = ["{own}"]\n'
    job += f'[environment]\nPYTHONPATH = "{own}"\n' if passed else ""
    (tmp_path / "work" / "job.toml").write_text(job)
    environment = {"BAREBOAT_STORE": str(tmp_path / "store"), "PYTHONPATH": str(own), "PATH": lean}
    done = completed(
        [sys.executable, "-m", "bareboat", "plan", "--python", str(python), "job.toml"],
        cwd=tmp_path / "work",
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    assert (str(own) in done.stderr) is not passed
    assert ("does not find the packages" in done.stderr) is not passed
