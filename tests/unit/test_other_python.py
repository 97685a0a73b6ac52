"""The Python that a shell starts by a name, beside the one of the environment."""

from pathlib import Path

import pytest

from bareboat.captures.interpreter import Interpreter, of_shell


def environment(folder: Path, base: Path) -> Interpreter:
    return Interpreter(
        executable=str(folder / "bin/python"), base_executable=str(base), prefix=str(folder),
        base_prefix=str(base.parent.parent), version="3.11.2", stdlib="", path=(),
    )  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two installations, and two virtual environments made with the first one."""
    for name in ("one", "two"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin/python3").write_text("#!/bin/sh\n")
        (tmp_path / name / "bin/python3").chmod(0o755)
    for name in ("own", "other"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "pyvenv.cfg").write_text("home = one\n")
        for link in ("python", "python3"):
            (tmp_path / name / "bin" / link).symlink_to(tmp_path / "one/bin/python3")
    return tmp_path


@pytest.mark.parametrize(
    ("folder", "word", "other"),
    [
        ("two", "python3", True),
        ("other", "python", True),
        ("one", "python3", False),
        ("own", "python", False),
        ("own", "python3", False),
        ("two", "python", False),
    ],
)
def test_the_python_of_a_shell_is_named_where_it_is_another_one(
    place: Path, folder: str, word: str, other: bool
) -> None:
    """The Python that the environment was made with is no other one, and a name that is not found none."""
    found = of_shell(word, environment(place / "own", place / "one/bin/python3"), str(place / folder / "bin"))
    assert found == (str(place / folder / "bin" / word) if other else None)


def test_another_program_is_no_python(place: Path) -> None:
    path = str(place / "two/bin")
    assert of_shell("bash", environment(place / "own", place / "one/bin/python3"), path) is None
