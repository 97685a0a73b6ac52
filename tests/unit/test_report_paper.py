"""LaTeX, Markdown, CSV and vector figures of a study: complete, in agreement, and safe against the data."""

from __future__ import annotations

import csv
import io
import re

import pytest

pytest.importorskip("matplotlib")

import msgspec
from builders import make_analysis, make_job, make_records, make_study
from hypothesis import given
from hypothesis import strategies as st

from bareboat.cli.report_export import FORMATS, study_files
from bareboat.model import Record, Study
from bareboat_study import drawing, forest, method, plots, report_paper, report_tables
from bareboat_study.analysis import Analysis
from bareboat_study.report_values import (
    as_csv,
    latex,
    latex_rows,
    markdown,
    markdown_table,
    plain_cell,
)


@pytest.fixture(scope="module")
def case() -> tuple[Study, tuple[Record, ...], Analysis]:
    study = make_study(metered=True, runs=5)
    records = tuple(make_records(study, windows=6))
    return study, records, make_analysis(study, records)


def balanced(text: str) -> bool:
    depth = 0
    for character in re.sub(r"\\.", "", text):
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0


@given(st.text())
def test_latex_prints_any_text_and_obeys_none(text: str) -> None:
    found = latex(text)
    assert balanced(found)
    assert "\n" not in found
    names = "textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|ldots|textasciigrave"
    plain = re.sub(rf"\\({names}){{}}|\\[&%$#_{{}}]|\$\\(pm|geq)\$|{{[\[\]]}}|-{{}}", "", found)
    assert not set("\\&%$#_^~<>|`[]{}") & set(plain)
    assert "--" not in found


@given(st.text())
def test_markdown_shows_any_text_in_its_cell(text: str) -> None:
    (_, _, line) = markdown_table(("a",), [(markdown(text),)], texts=(0,)).split("\n")
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 2
    assert not re.search(r"(?<!\\)(?:\\\\)*[<`*\[]", line)


@given(st.lists(st.lists(st.text(), min_size=2, max_size=2), min_size=1))
def test_csv_is_read_back(rows: list[list[str]]) -> None:
    kept = [[plain_cell(cell.replace("\r\n", "\n").replace("\r", "\n")) for cell in row] for row in rows]
    assert list(csv.reader(io.StringIO(as_csv(rows), newline=""))) == kept


def test_a_table_of_booktabs_has_a_row_per_metric(case: tuple[Study, tuple[Record, ...], Analysis]) -> None:
    study, _, analysis = case
    table = report_paper.latex_table(study, analysis)
    assert balanced(re.sub("^%.*", "", table))
    assert table.count(r"\\") == 1 + len(analysis.metrics)
    for part in (r"\toprule", r"\bottomrule", r"\caption{", r"\label{tab:", analysis.primary.name):
        assert part in table
    assert table.count(r"\begin{") == table.count(r"\end{") == 2


def test_hostile_names_stay_text() -> None:
    evil = r"\input{/etc/passwd}<b>|`x`"
    study = make_study(metered=True, runs=3)
    study = msgspec.structs.replace(
        study, job=msgspec.structs.replace(make_job(name=evil, command=(evil,)), prove=study.job.prove)
    )
    analysis = make_analysis(study, make_records(study))
    for text in (report_paper.latex_table(study, analysis), method.latex_of_pair(study, analysis)):
        assert r"\input" not in text
    assert "<b>" not in re.sub(r"\\<", "", report_paper.markdown_report(study, analysis))


def test_the_tables_hold_every_sample(case: tuple[Study, tuple[Record, ...], Analysis]) -> None:
    study, records, analysis = case
    tables = {
        name: list(csv.DictReader(io.StringIO(text)))
        for name, text in report_tables.tables(study, records, analysis).items()
    }
    assert len(tables["runs.csv"]) == len(records)
    steps = sum(len(window.step_s) for record in records for window in record.windows)
    assert len(tables["steps.csv"]) == steps
    assert len(tables["memory.csv"]) == sum(len(record.memory) for record in records)
    summary = {row["metric"]: row for row in tables["summary.csv"]}
    for metric in analysis.metrics:
        row = summary[metric.name]
        assert float(row["ratio"]) == metric.comparison.ratio
        quotient = float(row["contender_geometric_mean"]) / float(row["baseline_geometric_mean"])
        assert quotient == pytest.approx(metric.comparison.ratio)


def test_every_form_has_the_same_verdict_and_the_same_bytes_each_time(
    case: tuple[Study, tuple[Record, ...], Analysis],
) -> None:
    study, records, analysis = case
    files = study_files([case], tuple(FORMATS))
    assert files == study_files([(study, records[::-1], analysis)], tuple(FORMATS))
    word = analysis.primary.comparison.verdict.value.encode()
    for name in ("summary.csv", "table.tex", "report.md", "report.html"):
        assert word in files[name], name


def test_figures_are_vector_graphics_of_the_width_of_a_column(
    case: tuple[Study, tuple[Record, ...], Analysis],
) -> None:
    study, _, analysis = case
    for each in (forest.of_metrics(study, analysis), *plots.figures(study, analysis)):
        for size in (drawing.COLUMN, drawing.FULL):
            svg = drawing.vector(each, "svg", size).decode()
            assert float(re.search(r'<svg[^>]* width="([\d.]+)pt"', svg)[1]) == pytest.approx(size[0] * 72)
            assert "<image" not in svg
            pdf = drawing.vector(each, "pdf", size)
            box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ", pdf)
            assert float(box[1]) == pytest.approx(size[0] * 72)
            assert b"/Subtype /Image" not in pdf
            assert b"CreationDate" not in pdf


def test_several_studies_have_files_of_their_own(case: tuple[Study, tuple[Record, ...], Analysis]) -> None:
    study, records, analysis = case
    other = msgspec.structs.replace(study, id="other-1")
    files = study_files([case, (other, records, analysis)], ("csv", "html"))
    assert {"other-1-summary.csv", f"{study.id}-summary.csv", "report.html"} <= set(files)


def test_rules_of_a_table_part_its_groups() -> None:
    assert latex_rows("lr", ("a", "b"), [[("1", "2")], [], [("3", "4")]]) == [
        r"\begin{tabular}{lr}", r"  \toprule", r"  a & b \\", r"  \midrule", r"  1 & 2 \\", r"  \midrule",
        r"  3 & 4 \\", r"  \bottomrule", r"\end{tabular}",
    ]  # fmt: skip
