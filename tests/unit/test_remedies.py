"""Every command of Bareboat in a remedy is one that its own parser takes."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from bareboat.cli.main import _parse
from bareboat_base.errors import BareboatError

SRC = Path(__file__).parents[2] / "src"


def text_of(node: ast.expr) -> str:
    """The literal with a word in place of each value that is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "filled" for part in node.values
        )
    return ""


def commands() -> Iterator[tuple[str, str]]:
    """Each literal command that is a `remedy=` or a `Command(…)`, with its place."""
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            given = [each.value for each in node.keywords if each.arg == "remedy"]
            given += node.args[:1] if isinstance(node.func, ast.Name) and node.func.id == "Command" else []
            for each in given:
                for part in (each.body, each.orelse) if isinstance(each, ast.IfExp) else (each,):
                    if (text := text_of(part)).startswith("bareboat "):
                        yield (
                            f"{path.relative_to(SRC)}:{node.lineno}",
                            re.split(r" +#|, |;| 2>| && ", text)[0],
                        )


FOUND = list(commands())


@pytest.mark.parametrize(("place", "command"), FOUND, ids=[place for place, _ in FOUND])
def test_a_command_of_a_remedy_exists(place: str, command: str) -> None:
    words = ["job.toml" if word in ("…", "FILE", "JOB") else word for word in shlex.split(command)]
    if "--help" in words or "filled" in words[:2]:
        return
    try:
        _parse(words[1:])
    except BareboatError as error:
        if "filled" not in error.message:
            pytest.fail(f"{place}: {command}: {error.message}")


def test_there_are_many() -> None:
    assert len(FOUND) > 50
