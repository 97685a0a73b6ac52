"""docs/engines.md, written from what the contract suite found: which engine keeps which promise."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from bareboat import registry

#: The contract, in the order of the table.
SUITES = (
    "tests/contract/test_engines.py",
    "tests/contract/test_engine_process.py",
    "tests/contract/test_engine_surroundings.py",
)
PAGE = Path(__file__).parents[1] / "docs" / "engines.md"

_BEGIN = "<!-- written by: make test TESTS='tests/contract/test_engine* --update-engines' -->"


def pairs(reports: Iterable[pytest.TestReport]) -> dict[tuple[str, str], bool]:
    """(promise, engine) -> whether it was kept, over all ways in which the engine was tried."""
    engines = sorted(_engines(), key=len, reverse=True)
    found: dict[tuple[str, str], bool] = {}
    for report in reports:
        path, _, test = report.nodeid.partition("::")
        name, bracket, case = test.partition("[")
        if not path.endswith(SUITES) or not bracket:
            continue
        engine = next((each for each in engines if case.startswith(each)), None)
        if engine is not None:
            kept = report.passed and not hasattr(report, "wasxfail")
            found[name, engine] = found.get((name, engine), True) and kept
    return found


def _engines() -> list[str]:
    """Every engine, in each of its modes: a column each."""
    return [mode for name in registry.names("engines") for mode in registry.modes(name)]


def write(found: dict[tuple[str, str], bool]) -> None:
    """Write the table below the mark in the page; what stands above it is left alone."""
    engines = [name for name in _engines() if any(engine == name for _, engine in found)]
    lines = ["| promise | " + " | ".join(engines) + " |", "|---" * (len(engines) + 1) + "|"]
    for promise in dict.fromkeys(name for name, _ in found):
        cells = [_cell(found.get((promise, engine))) for engine in engines]
        lines.append(f"| {_title(promise)} | " + " | ".join(cells) + " |")
    limits = [
        f"- **{engine}**, {_title(promise)}: {reason}"
        for engine in engines
        for promise, reason in sorted(registry.engine(engine).LIMITS.items())
    ]
    head = PAGE.read_text().partition(_BEGIN)[0] if PAGE.exists() else ""
    body = [_BEGIN, "", *lines, "", *(limits or ["No engine has a limit that the suite knows of."])]
    PAGE.write_text(head + "\n".join(body) + "\n")


def _cell(kept: bool | None) -> str:
    return {None: "", True: "yes", False: "**no**"}[kept]


def _title(test: str) -> str:
    return re.sub(r"_s(?=_|$)", "'s", test.removeprefix("test_")).replace("_", " ")
