"""Errors about a key name the place where the user set it."""

from argparse import Namespace
from pathlib import Path

import pytest

from bareboat import config
from bareboat.cli import given
from bareboat_base.errors import BareboatError, Command, PlanError, SetKey, StoreError, UsageError, Words

LAUNCHER = UsageError("no such launcher", key="launcher", remedy=SetKey("launcher", '"srun"'))
NODES = PlanError("too many", key="topology.nodes", remedy=SetKey("topology.nodes", "1"))
PROGRAMS = UsageError("not installed", key="capture.programs", remedy=SetKey("capture.programs", ""))
IMAGE = StoreError("not found", key="image", remedy="bareboat image ls   # lists them")
STORE = StoreError("no", key="store", remedy=SetKey("store", '"~/bareboat"'))


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> config.Settings:
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text('command = ["true"]\nlauncher = "gone"\n[topology]\nnodes = 2\n')
    environment = {"HOME": str(tmp_path), "BAREBOAT_STORE": "/s"}
    return config.resolve({"policy": "gone"}, folder=tmp_path, environment=environment)


@pytest.mark.parametrize(
    ("error", "options", "place", "remedy"),
    [
        (LAUNCHER, {"launcher": "gone"}, "--launcher", "--launcher srun"),
        (LAUNCHER, {"assignments": ["launcher=gone"]}, "--set launcher", "--set launcher=srun"),
        (NODES, {"nodes": 2}, "--nodes", "--nodes 1"),
        (NODES, {"assignments": ["nodes = 2"]}, "--set nodes", "--set nodes=1"),
        (PROGRAMS, {"assignments": ["programs=git"]}, "--set programs", "remove --set programs"),
        (IMAGE, {"image": "x"}, "--image", "bareboat image ls   # lists them"),
        (STORE, {}, "BAREBOAT_STORE", "export BAREBOAT_STORE=~/bareboat"),
        (LAUNCHER, {}, "job.toml, line 2", 'set launcher = "srun"'),
        (NODES, {}, "job.toml, line 4", "set nodes = 1 under [topology]"),
        (IMAGE, {"store": "/a b"}, "", "bareboat image ls --store '/a b'   # lists them"),
        (UsageError("no", remedy="ls -l"), {"store": "/s"}, "", "ls -l"),
    ],
)
def test_an_error_has_its_place_and_a_remedy_in_the_user_s_words(
    settings: config.Settings, error: BareboatError, options: dict[str, object], place: str, remedy: str
) -> None:
    placed = given.placed(error, Namespace(**{"file": "job.toml", "assignments": [], **options}), settings)
    assert (placed.problem.place, placed.remedy) == (place, remedy)
    assert placed.context == (f"set by {place}" if place.startswith(("-", "BAREBOAT_")) else place)


def test_a_problem_is_data() -> None:
    problem = UsageError("n is 9", key="n", value=9, allowed="1 to 3", remedy="ls").at("a.toml").problem
    assert problem == ("usage", "n", "a.toml", 9, "1 to 3", Words("ls"))
    assert UsageError("x", remedy="bareboat doctor").problem.remedy == Command("bareboat doctor")
    assert UsageError("x", remedy="bareboat run, or try").problem.remedy == Words("bareboat run, or try")
    assert UsageError("x").problem.remedy is None
