"""TERM reaches a program in a terminal, and no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from environments import make_environment


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("small") / "environment")


@pytest.mark.parametrize("engine", ["bubblewrap", "native"])
def test_term(engine: str, python: Path, tmp_path: Path) -> None:
    words = [
        sys.executable, "-m", "bareboat", "run", "-q", "--engine", engine, "--python", str(python),
        "--store", str(tmp_path / "store"), "--", "sh", "-c", "echo term=$TERM color=$COLORTERM end",
    ]  # fmt: skip
    environment = {"PATH": "/usr/bin:/bin", "TERM": "vt220", "COLORTERM": "truecolor", "HOME": str(tmp_path)}
    terminal = ["script", "-qec", subprocess.list2cmdline(words).replace("$", r"\$"), "/dev/null"]
    shown = {
        where: subprocess.run(argv, env=environment, capture_output=True, text=True, cwd=tmp_path, check=True)
        for where, argv in (("terminal", terminal), ("pipe", words))
    }
    assert "term=vt220 color=truecolor end" in shown["terminal"].stdout
    assert "vt220" not in shown["pipe"].stdout
    assert "truecolor" not in shown["pipe"].stdout
