"""Commands that are neither in the environment nor in what is mounted: the capture takes them along."""

import os
import time
from pathlib import Path

import forked
import pytest
from environments import make_environment
from tools import executable, tool


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program in a directory of the user's own."""
    path = tmp_path / "tools" / "greet"
    executable(path, '#!/bin/sh\necho "hello $1"\n')
    return path


@pytest.fixture
def python(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return make_environment(tmp_path / "venv")


def bareboat(python: Path, *words: str, path: Path | None = None) -> tuple[int, str, str]:
    """Run it in the directory `work`, with another one at the end of PATH."""
    top = python.parents[2]
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:{path or ''}", "HOME": str(top)}
    done = forked.run(*words, env=environment, cwd=top / "work", timeout_s=120)
    return done.returncode, done.stdout, done.stderr


def run(
    python: Path, *words: str, path: Path | None = None, engine: str = "bubblewrap", quiet: bool = True
) -> tuple[int, str, str]:
    flags = (*["-q"] * quiet, "--engine", engine, "--python", str(python), "--")
    return bareboat(python, "run", *flags, *words, path=path)


@pytest.mark.parametrize("engine", ["bubblewrap", "native"])
def test_a_program_of_the_shell_s_path_runs(python: Path, program: Path, engine: str) -> None:
    done = run(python, "greet", "you", path=program.parent, engine=engine)
    assert done[:2] == (0, "hello you\n"), done


def test_a_program_by_its_path_runs(python: Path, program: Path) -> None:
    for name in (str(program), "../tools/greet"):
        done = run(python, name, "you")
        assert done[:2] == (0, "hello you\n"), done


def test_a_program_in_the_working_directory_is_mounted_and_not_captured(
    python: Path, tmp_path: Path, program: Path
) -> None:
    program.rename(tmp_path / "work" / "greet")
    assert run(python, "./greet", "you")[1] == "hello you\n"
    time.sleep(3)  # a younger environment is not known by its times
    run(python, "./greet", "you")
    (tmp_path / "work" / "greet").write_text("#!/bin/sh\necho changed\n")
    (python.parent / "another").touch()
    _, out, err = run(python, "./greet", "you", quiet=False)
    assert out == "changed\n"
    assert "/another changed; the capture before is kept: bareboat image du" in err


def test_a_program_with_files_of_its_own_has_them(python: Path, tmp_path: Path) -> None:
    tool("Rscript")
    (tmp_path / "work" / "fit.R").write_text(
        'cat(coef(lm(c(3, 5, 7) ~ c(1, 2, 3))), commandArgs(TRUE), "\\n")'
    )
    done = run(python, "Rscript", "fit.R", "a b")
    assert done[:2] == (0, "1 2 a b \n"), done


def test_a_program_that_is_nowhere_is_refused(python: Path, program: Path) -> None:
    code, out, err = run(python, "greeet", path=program.parent)
    assert (code, out) == (127, "")
    assert '"greeet" is not on the PATH' in err


def test_an_interpreter_that_the_container_lacks_is_named_with_its_remedy(
    python: Path, tmp_path: Path
) -> None:
    """Of a script that is the command, and of one that another program starts."""
    tool("perl")
    script = tmp_path / "work" / "script"
    executable(script, "#!/usr/bin/env perl\n")
    code, _, err = run(python, "./script")
    assert (code, 'try: set programs = ["perl"] under [capture]\n' in err) == (127, True), err
    code, _, err = run(python, "sh", "-c", "./script", quiet=False)
    assert (code, 'try: programs = ["perl"] under [capture]: it is' in err) == (127, True), err


def test_a_study_of_such_a_program_is_measured(python: Path, tmp_path: Path, program: Path) -> None:
    program.write_text("#!/bin/sh\necho value $1\n")
    study = tmp_path / "study.toml"
    study.write_text(
        'command = ["greet", "{n}"]\n[sweep]\nn = ["1"]\n[arms]\nbare = {engine = "native"}\nbox = {}\n'
        '[metrics.value]\npattern = "value ([0-9]+)"\nprimary = true\nbetter = "lower"\n'
    )
    code, _, err = bareboat(
        python, "prove", "--dry-run", "--python", str(python), str(study), path=program.parent
    )
    assert code == 0, err
