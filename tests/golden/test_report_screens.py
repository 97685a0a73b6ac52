"""What `bareboat report` and the end of `bareboat prove` print, at 80 and at 200 columns.

After a change that is meant: `pytest tests/golden --update-golden`, then read `git diff tests/golden/report`.
"""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("matplotlib")

import msgspec
from builders import altered, make_records, make_study
from matrices import make_three, report_of

from bareboat.cli import console
from bareboat.model import Arm, Record, Study, Window, kept_result
from bareboat_study import findings
from bareboat_study.analysis import Analysis
from bareboat_study.cli import report_export, result
from bareboat_study.cli.report_export import Request
from bareboat_study.cli.report_run import _lines
from bareboat_study.findings import StudyFindings
from bareboat_study.text import SIGNS, comparison_lines, study_lines

Paint = Callable[[str, str], str] | None
SCREENS = Path(__file__).parent / "report"


def studied(
    runs: int = 12,
    ratio: float = 0.998,
    metered: bool = True,
    arms: tuple[str, str] = ("bare metal", "bubblewrap"),
) -> tuple[Study, list[Record]]:
    study = make_study(metered=metered, runs=runs)
    old = [arm.name for arm in study.arms]
    made = tuple(
        Arm(name=name, engine=arm.engine, plan_digest=arm.plan_digest, script=arm.script)
        for name, arm in zip(arms, study.arms, strict=True)
    )
    records = [
        msgspec.structs.replace(record, arm=arms[old.index(record.arm)])
        for record in make_records(study, ratio=ratio)
    ]
    return msgspec.structs.replace(study, arms=made), records


def slower(records: list[Record], arm: str, factor: Callable[[int], float]) -> list[Record]:
    def slow(record: Record) -> Record:
        if record.arm != arm:
            return record
        times = factor(record.run)
        windows = tuple(
            Window(block=w.block, began_s=w.began_s, step_s=tuple(s * times for s in w.step_s))
            for w in record.windows
        )
        return msgspec.structs.replace(record, windows=windows)

    return list(map(slow, records))


def different() -> tuple[Study, list[Record]]:
    return studied(ratio=0.9, metered=False)


def undecided() -> tuple[Study, list[Record]]:
    study, records = studied(runs=10)
    return study, slower(records, "bubblewrap", lambda run: 1 + 0.03 * (run % 3 - 1))


def too_noisy() -> tuple[Study, list[Record]]:
    study, records = studied(runs=10, arms=("bare metal A", "charliecloud B"))
    noisy = slower(records, "charliecloud B", lambda run: 1 + 0.4 * (run % 3 - 1))
    return study, [msgspec.structs.replace(record, load_1min=123.4) for record in noisy]


def too_few_runs() -> tuple[Study, list[Record]]:
    study, records = studied(runs=2)
    return study, slower(records, "bubblewrap", lambda run: 1 + 0.2 * (run % 2))


def diverged() -> tuple[Study, list[Record]]:
    study, records = studied(runs=3)
    nan = {"loss": kept_result(math.nan)}
    return study, [
        msgspec.structs.replace(r, results=r.results | nan, diverged={"loss": 120}) if r.run == 2 else r
        for r in records
    ]


CASES = {
    "equivalent": studied,
    "different": different,
    "undecided": undecided,
    "too-noisy": too_noisy,
    "too-few-runs": too_few_runs,
    "diverged": diverged,
}


def analysed(name: str) -> tuple[StudyFindings, Analysis]:
    shown = report_of(*CASES[name]())
    assert shown.only is not None
    return shown.found, shown.only.analysis


def study_text(found: StudyFindings, width: int | None, paint: Paint = None) -> str:
    return "\n".join(study_lines(found, width, paint))


@pytest.mark.parametrize("name", CASES)
def test_the_screen_is_as_agreed(name: str, request: pytest.FixtureRequest) -> None:
    check(f"{name}-80.txt", study_text(analysed(name)[0], 80) + "\n", request)


def equal_arms() -> tuple[Study, list[Record]]:
    study, records = studied(arms=("here", "again"), ratio=1.0)
    one, other = study.arms
    arms = (one, msgspec.structs.replace(other, engine=one.engine, plan_digest=one.plan_digest))
    return msgspec.structs.replace(study, arms=arms), records


def failures() -> tuple[Study, list[Record]]:
    study, records = studied()
    return study, altered(records, "bubblewrap", range(1, 8), exit_code=137)


def incomplete() -> tuple[Study, list[Record]]:
    study, records = studied()
    return study, [record for record in records if record.run <= 5]


@pytest.mark.parametrize("case", [equal_arms, failures, incomplete])
def test_a_screen_says_what_a_study_without_an_answer_needs(
    case: Callable[[], tuple[Study, list[Record]]],
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study, records = case()
    monkeypatch.setattr(console, "width", lambda: 80)
    context = SimpleNamespace(options=SimpleNamespace(json=False))
    shown = report_of(study, records)
    done = len({record.run for record in records})
    found = dataclasses.replace(shown.found, missing=study.job.prove.repeats + 1 - done)
    shown = dataclasses.replace(shown, found=found)
    result._report(context, shown, Request((), None, None, False))  # type: ignore[arg-type]
    check(f"{case.__name__.replace('_', '-')}-80.txt", capsys.readouterr().out, request)


def test_a_difference_names_the_next_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = report_of(*different())
    context = SimpleNamespace(options=SimpleNamespace(json=False))
    result._report(context, shown, Request((), None, None, False))  # type: ignore[arg-type]
    name = shown.matrix.id
    where = "\nfind the cause in the table above, and in\n  "
    assert capsys.readouterr().out.endswith(f"{where}bareboat report {name} -o {name}.html\n")
    request = Request(("html",), None, "page.html", False)
    monkeypatch.setattr(report_export, "write", lambda *_: "page.html")
    result._report(context, shown, request)  # type: ignore[arg-type]
    assert capsys.readouterr().out.endswith(f"{where}the figures of the report\n\nreport: page.html\n")
    busy = report_of(different()[0], altered(different()[1], load_1min=123.4))
    result._report(context, busy, Request((), None, None, False))  # type: ignore[arg-type]
    assert capsys.readouterr().out.endswith("\n\nmeasure again on an idle machine:\n  bareboat prove FILE\n")


def check(name: str, shown: str, request: pytest.FixtureRequest, width: int = 80) -> None:
    assert max(map(len, shown.splitlines())) <= width
    kept = SCREENS / name
    if request.config.getoption("--update-golden"):
        kept.write_text(shown)
    assert shown == kept.read_text()


@pytest.mark.parametrize("width", [80, 200])
def test_three_arms_are_shown_as_two_are(width: int, request: pytest.FixtureRequest) -> None:
    matrix, studies, records = make_three()
    shown = "\n".join(study_lines(findings.find(matrix, studies, records), width, None)) + "\n"
    check(f"three-arms-{width}.txt", shown, request, width)
    (contrast, _) = findings.find(matrix, studies, records).contrasts
    point = contrast.points[0]
    assert point.analysis is not None
    assert "\n".join(comparison_lines(point.study, point.analysis, width)) in shown


@pytest.mark.parametrize("name", CASES)
def test_a_pipe_gets_each_sentence_on_one_line_and_no_symbol(name: str) -> None:
    found, analysis = analysed(name)
    lines = study_text(found, None).splitlines()
    assert lines[: 1 + len(analysis.warnings)] == [analysis.sentence, *analysis.warnings]
    more = len(analysis.warnings) + len(analysis.metrics) + len(analysis.goals) + bool(analysis.unusable)
    assert len(lines) == 4 + more
    assert not any(symbol in "\n".join(lines) for symbol in "✔≠✘")


@pytest.mark.parametrize("name", CASES)
def test_a_terminal_gets_a_symbol_and_a_colour_on_the_verdict(name: str) -> None:
    found, analysis = analysed(name)

    def paint(text: str, code: str) -> str:
        return f"\033[{code}m{text}\033[0m"

    symbol, colour = SIGNS[analysis.verdict.value]
    first = study_text(found, 80, paint).splitlines()[0]
    assert first.startswith(f"\033[{colour}m\033[1m{symbol} ")
    assert all(console._COLOUR.fullmatch(f"\033[{code}m") for _, code in SIGNS.values())


def test_a_run_folds_below_its_names() -> None:
    rows = [("command", "python train.py " + "--word " * 12), ("state", "completed")]
    for width in (40, 80):
        lines = list(_lines(rows, 9, width))
        assert max(map(len, lines)) <= width
        assert all(line.startswith(" " * 13) for line in lines[1:-1])
    assert len(list(_lines(rows, 9, None))) == 2


def test_a_narrow_terminal_folds_on_purpose() -> None:
    found, _ = analysed("too-noisy")
    for width in (40, 50, 60, 79):
        lines = study_text(found, width).splitlines()
        assert max(map(len, lines)) <= width
