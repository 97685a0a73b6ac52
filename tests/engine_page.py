"""Write the guarantees in docs/engines.md from the results of the contract suite."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from engine_limits import limits

from bareboat import registry

#: The contract, in the order of the table.
SUITES = (
    "tests/contract/test_engines.py",
    "tests/contract/test_engine_process.py",
    "tests/contract/test_engine_surroundings.py",
)
PAGE = Path(__file__).parents[1] / "docs" / "engines.md"

_BEGIN = "<!-- written by: make test TESTS='tests/contract/test_engine* --exhaustive --update-engines' -->"


def pairs(reports: Iterable[pytest.TestReport]) -> dict[tuple[str, str], bool]:
    """(guarantee, engine) -> whether every test of it passed with the engine."""
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
    """Write the page's part below the mark: what every engine guarantees, then the exceptions."""
    engines = [name for name in _engines() if any(engine == name for _, engine in found)]
    everywhere, exceptions = [], []
    for test in dict.fromkeys(name for name, _ in found):
        kept = [found.get((test, engine)) for engine in engines]
        if all(kept):
            everywhere.append(f"- {_title(test)}")
        else:
            exceptions.append(f"| {_title(test)} | " + " | ".join(map(_cell, kept)) + " |")
    head = PAGE.read_text().partition(_BEGIN)[0] if PAGE.exists() else ""
    body = [_BEGIN, "", f"Every engine ({', '.join(engines)}) guarantees:", "", *everywhere]
    if exceptions:
        columns = "| guarantee | " + " | ".join(engines) + " |"
        body += ["", "Exceptions:", "", columns, "|---" * (len(engines) + 1) + "|", *exceptions]
    PAGE.write_text(head + "\n".join([*body, *_limits(engines)]) + "\n")


def _limits(engines: list[str]) -> list[str]:
    """The reasons of the exceptions, each with the engines that it applies to."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for engine in engines:
        for test, reason in sorted(limits(engine).items()):
            by_reason.setdefault((test, reason), []).append(engine)
    lines = [
        f"- {_title(test)} (**{', '.join(names)}**): {reason}" for (test, reason), names in by_reason.items()
    ]
    return ["", *lines] if lines else []


def _cell(kept: bool | None) -> str:
    return {None: "", True: "yes", False: "**no**"}[kept]


def _title(test: str) -> str:
    return re.sub(r"_s(?=_|$)", "'s", test.removeprefix("test_")).replace("_", " ")
