"""Errors about a key name the place where the user set it."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from bareboat import config
from bareboat.cli import given
from bareboat_base.errors import BareboatError, PlanError, StoreError, UsageError

NOTIFY = UsageError("notify is 'gone', which is not a program", key="notify", remedy='set notify = "mail"')
NODES = PlanError(
    "the topology requires 2 nodes", key="topology.nodes", remedy="set nodes = 1 under [topology], or submit"
)
PROGRAMS = UsageError(
    "capture.programs names git, which is not installed",
    key="capture.programs",
    remedy="remove programs under [capture], or install git",
)
IMAGE = StoreError("image 'x' not found", key="image", remedy="bareboat image ls")


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> config.Settings:
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text('command = ["true"]\nnotify = ["gone"]\n[topology]\nnodes = 2\n')
    environment = {"HOME": str(tmp_path), "BAREBOAT_STORE": "/s"}
    return config.resolve({"policy": "gone"}, folder=tmp_path, environment=environment)


@pytest.mark.parametrize(
    ("error", "options", "message", "remedy"),
    [
        (NOTIFY, {"notify": "gone"}, "--notify is 'gone', which is not a program", "--notify mail"),
        (NOTIFY, {"assignments": ["notify=gone"]}, "--set notify is 'gone', which", "--set notify=mail"),
        (NODES, {"nodes": 2}, "--nodes: the topology requires 2 nodes", "--nodes 1, or submit"),
        (NODES, {"assignments": ["nodes = 2"]}, "--set nodes: the topology", "--set nodes=1, or submit"),
        (PROGRAMS, {"assignments": ["programs=git"]}, "--set programs names git", "remove --set programs,"),
        (IMAGE, {"image": "x"}, "--image: image 'x' not found", "bareboat image ls"),
        (StoreError("no", key="store"), {}, "BAREBOAT_STORE: no", "export BAREBOAT_STORE=~/bareboat"),
        (UsageError("no", key="policy", remedy="ls"), {}, "--policy: no", "ls"),
    ],
)
def test_an_error_has_the_name_that_the_user_gave(
    settings: config.Settings, error: BareboatError, options: dict[str, object], message: str, remedy: str
) -> None:
    placed = given.placed(error, Namespace(**{"file": "job.toml", "assignments": [], **options}), settings)
    assert placed.message.startswith(message)
    assert placed.remedy.startswith(remedy)
    assert "job.toml" not in placed.context


@pytest.mark.parametrize(("error", "line"), [(NOTIFY, 2), (NODES, 4)])
def test_an_error_has_the_line_of_the_key(settings: config.Settings, error: BareboatError, line: int) -> None:
    placed = given.placed(error, Namespace(file="job.toml", assignments=[]), settings)
    assert (placed.message, placed.remedy) == (error.message, error.remedy)
    assert placed.context == f"job.toml, line {line}"


def test_a_key_that_is_not_in_the_file_has_no_line(settings: config.Settings) -> None:
    for file in ("job.toml", "gone.toml", "train.py", None):
        assert given.placed(IMAGE, Namespace(file=file, assignments=[]), settings).context == ""
