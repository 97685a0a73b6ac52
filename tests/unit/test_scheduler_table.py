"""The table of schedulers in docs/clusters.md: each of its cells "tests" has a test on the real scheduler."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FIXTURES = {"Slurm": "slurm", "Grid Engine": "gridengine"}
#: Without the number of a remark.
CELLS = {"tests", "hand", "replay", "manual", "no"}


def table() -> dict[str, dict[str, str]]:
    """The cells by scheduler and feature."""
    text = (TESTS.parent / "docs" / "clusters.md").read_text()
    lines = text.partition("| | Slurm | Grid Engine |")[2].partition("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[3:]]
    names = ["Slurm", "Grid Engine", "OpenPBS", "Torque", "LSF", "Flux"]
    assert all(len(row) == len(names) + 1 for row in rows)
    return {name: {row[0]: row[at].partition(" (")[0] for row in rows} for at, name in enumerate(names, 1)}


def test_each_cell_says_how_the_feature_is_known_to_work() -> None:
    found = table()
    assert len(found["Slurm"]) > 20
    assert {cell for cells in found.values() for cell in cells.values()} == CELLS
    assert "tests" not in {cell for name in found if name not in FIXTURES for cell in found[name].values()}


@pytest.mark.parametrize("name", FIXTURES)
def test_each_feature_that_is_tested_has_its_test_on_this_scheduler(name: str) -> None:
    tests = tomllib.loads((TESTS / "data" / "schedulers" / "features.toml").read_text())[name]
    cells = {row for row, cell in table()[name].items() if cell == "tests"}
    assert set(tests) == cells
    for test in tests.values():
        file, _, function = test.partition("::")
        text = (TESTS / file).read_text()
        definitions = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
        arguments = _arguments(definitions, function)
        parameters = " ".join(
            _decorators(text, definitions[argument]) for argument in arguments if argument in definitions
        )
        assert FIXTURES[name] in arguments or re.search(rf'params=.*"{FIXTURES[name]}"', parameters), test


def _arguments(definitions: dict[str, ast.FunctionDef], name: str) -> set[str]:
    """The fixtures of a function, and theirs."""
    found: set[str] = set()
    for argument in definitions[name].args.args:
        found |= {argument.arg}
        if argument.arg in definitions:
            found |= _arguments(definitions, argument.arg)
    return found


def _decorators(text: str, function: ast.FunctionDef) -> str:
    return " ".join(ast.get_source_segment(text, each) or "" for each in function.decorator_list)
