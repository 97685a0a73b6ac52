"""What the tutorial says in prose is what happens."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import documented
import pytest

pytest.importorskip("matplotlib")

from builders import make_records, make_site, make_study
from matrices import report_of

from bareboat.cli import console, doctor
from bareboat.model import ProveRequest
from bareboat_study import blocks, verdicts
from bareboat_study.cli import report_export, result
from bareboat_study.statistics import Verdict, compare

PAGE = documented.ROOT / "docs/tutorial.md"
TEXT = " ".join(PAGE.read_text().split())
FILES = {block.file: block.body for block in documented.blocks(PAGE) if block.file}
NUMBERS = {2: "two", 3: "three", 5: "five", 6: "six"}
ENDED = (Verdict.EQUIVALENT, Verdict.DIFFERENT, Verdict.UNDECIDED, Verdict.TOO_NOISY)


def test_the_numbers_of_runs_processes_and_points_are_those_of_the_files() -> None:
    job, sweep = tomllib.loads(FILES["train.toml"]), tomllib.loads(FILES["rates.toml"])
    repeats = job["prove"]["repeats"]
    assert f"{NUMBERS[repeats + 1]} times with the warm-up" in TEXT
    assert f"{NUMBERS[repeats].title()} repeats are often too few" in TEXT
    ranks = job["topology"]["ranks_per_node"]
    assert f"Now {NUMBERS[ranks]} processes run" in TEXT
    assert f"with {NUMBERS[len(sweep['sweep']['rate'])]} points" in TEXT
    nodes = int(re.findall(r"submit -N (\d+) train.toml", TEXT)[0])
    assert f"requests {NUMBERS[nodes]} nodes" in TEXT
    assert f"rank {nodes * ranks - 1} of {nodes * ranks}:" in TEXT


def test_the_margin_and_the_turns_are_the_defaults() -> None:
    prove = ProveRequest()
    assert f"take turns of {prove.window_s:g} s" in TEXT
    assert f"the margin of {prove.margin * 100:g} %" in TEXT


@pytest.mark.parametrize("page", ["tutorial.md", "verdict.md"])
def test_the_verdicts_are_those_of_the_program(page: str) -> None:
    rows = re.findall(r"^\| (\w[\w ]*?) \|", (PAGE.parent / page).read_text(), re.MULTILINE)
    at = rows.index("verdict")
    assert rows[at + 1 : at + 1 + len(ENDED)] == [str(each) for each in ENDED]
    assert "one of four" in TEXT


@pytest.mark.parametrize("between", [0.0, 0.005, 0.01])
@pytest.mark.parametrize("runs", [5, 12])
def test_an_undecided_line_has_a_number_of_runs_or_says_why_there_is_none(runs: int, between: float) -> None:
    assert "gives the number of runs that a new study needs, or the reason why no number is enough" in TEXT
    found = compare([0.045, -0.045] * (runs // 2) + [0.0], margin=0.02, confidence=0.95, between=between)
    assert found.verdict is Verdict.UNDECIDED
    text = verdicts.sentence(found, metric="throughput", baseline="a", contender="b", between=between)
    reason = "no number of runs is enough at this margin: the interval contains"
    assert re.search(rf"a new study of \d+ runs decides|{reason}", text)


def test_fewer_repeats_than_those_of_the_tutorial_are_too_few() -> None:
    repeats = tomllib.loads(FILES["train.toml"])["prove"]["repeats"]
    assert "and fewer decide nothing: `prove` says so before it measures" in TEXT
    assert not blocks.few(repeats)
    assert blocks.few(repeats - 1)


def test_the_first_line_of_a_result_is_the_verdict_and_the_last_one_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = make_study(metered=True)
    shown = report_of(study, make_records(study))
    assert shown.only is not None
    texts = list(result.study_lines(shown.found, None))
    assert texts[0].startswith(f"{shown.only.analysis.word} within")
    assert "The first line of the result is the verdict" in TEXT
    assert texts[-1].startswith("goal ")
    assert "and a line for each goal. The last line names the page" in TEXT
    lines: list[str] = []
    monkeypatch.setattr(console, "result", lines.append)
    options = type("Options", (), {"json": False})()
    monkeypatch.setattr(report_export, "write", lambda *_: "report.html")
    request = report_export.Request(("markdown",), "paper", None, False)
    result._report(type("Context", (), {"options": options})(), shown, request)
    assert "\n".join(lines).strip().splitlines()[-1] == "report: report.html"


def test_doctor_begins_with_what_is_ready() -> None:
    assert "Its first lines say what is ready" in TEXT
    assert doctor._text(make_site(), []).startswith("ready: ")


def test_the_examples_of_the_page_of_verdicts_are_sentences_of_the_program() -> None:
    """They are lines of the golden reports, with the symbols that a terminal gets."""
    golden = Path(__file__).parents[1] / "golden/report"
    known = " ".join(" ".join(path.read_text().split()) for path in golden.glob("*-80.txt"))
    examples = [each for each in documented.blocks(PAGE.parent / "verdict.md") if "output" in each.words]
    assert len(examples) == 8
    for block in examples:
        parts = re.split(r"^[✔≠?!…]\s*", block.body, flags=re.MULTILINE)
        for part in parts:
            assert " ".join(part.split()) in known, part
