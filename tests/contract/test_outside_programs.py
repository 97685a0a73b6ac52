"""Commands that are neither in the environment nor in what is mounted: the capture takes them along."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from environments import make_environment
from tools import tool


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program in a directory of the user's own."""
    path = tmp_path / "tools" / "greet"
    path.parent.mkdir()
    path.write_text('#!/bin/sh\necho "hello $1"\n')
    path.chmod(0o755)
    return path


def run(
    tmp_path: Path, *words: str, path: str = "", engine: str = "bubblewrap", quiet: bool = True
) -> tuple[int, str, str]:
    python = tmp_path / "venv" / "bin" / "python"
    if not python.exists():
        make_environment(tmp_path / "venv")
    (tmp_path / "work").mkdir(exist_ok=True)
    argv = [
        sys.executable,
        "-m",
        "bareboat",
        "run",
        *["-q"] * quiet,
        "--engine",
        engine,
        "--python",
        str(python),
        "--",
    ]
    done = subprocess.run(
        [*argv, *words],
        cwd=tmp_path / "work",
        env={**os.environ, "PATH": f"{os.environ['PATH']}:{path}", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("engine", ["bubblewrap", "native"])
def test_a_program_of_the_shell_s_path_runs(tmp_path: Path, program: Path, engine: str) -> None:
    done = run(tmp_path, "greet", "you", path=str(program.parent), engine=engine)
    assert done[:2] == (0, "hello you\n"), done


def test_a_program_by_its_path_runs(tmp_path: Path, program: Path) -> None:
    for name in (str(program), "../tools/greet"):
        done = run(tmp_path, name, "you")
        assert done[:2] == (0, "hello you\n"), done


def test_a_program_in_the_working_directory_is_mounted_and_not_captured(
    tmp_path: Path, program: Path
) -> None:
    (tmp_path / "work").mkdir()
    program.rename(tmp_path / "work" / "greet")
    assert run(tmp_path, "./greet", "you")[1] == "hello you\n"
    (tmp_path / "work" / "greet").write_text("#!/bin/sh\necho changed\n")
    assert run(tmp_path, "./greet", "you")[1] == "changed\n"


def test_a_program_with_files_of_its_own_has_them(tmp_path: Path) -> None:
    tool("Rscript")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "fit.R").write_text(
        'cat(coef(lm(c(3, 5, 7) ~ c(1, 2, 3))), commandArgs(TRUE), "\\n")'
    )
    done = run(tmp_path, "Rscript", "fit.R", "a b")
    assert done[:2] == (0, "1 2 a b \n"), done


def test_a_program_that_is_nowhere_is_refused(tmp_path: Path, program: Path) -> None:
    code, out, err = run(tmp_path, "greeet", path=str(program.parent))
    assert (code, out) == (127, "")
    assert '"greeet" is not on the PATH' in err


def test_an_interpreter_that_the_container_lacks_is_named_with_its_remedy(tmp_path: Path) -> None:
    """Of a script that is the command, and of one that another program starts."""
    tool("perl")
    (tmp_path / "work").mkdir()
    script = tmp_path / "work" / "script"
    script.write_text("#!/usr/bin/env perl\n")
    script.chmod(0o755)
    code, _, err = run(tmp_path, "./script")
    assert (code, 'try: set programs = ["perl"] under [capture]\n' in err) == (127, True), err
    code, _, err = run(tmp_path, "sh", "-c", "./script", quiet=False)
    assert (code, 'try: programs = ["perl"] under [capture]: it is' in err) == (127, True), err


def test_a_study_of_such_a_program_is_measured(tmp_path: Path, program: Path) -> None:
    program.write_text("#!/bin/sh\necho value $1\n")
    make_environment(tmp_path / "venv")
    study = tmp_path / "study.toml"
    study.write_text(
        'command = ["greet", "{n}"]\n[sweep]\nn = ["1"]\n[arms]\nbare = {engine = "native"}\nbox = {}\n'
        '[metrics.value]\npattern = "value ([0-9]+)"\nprimary = true\nbetter = "lower"\n'
    )
    python = str(tmp_path / "venv" / "bin" / "python")
    done = subprocess.run(
        [sys.executable, "-m", "bareboat", "prove", "--dry-run", "--python", python, str(study)],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{os.environ['PATH']}:{program.parent}", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
