"""LaTeX, Markdown, CSV and vector figures of a study: complete, in agreement, and safe against the data."""

from __future__ import annotations

import csv
import io
import re

import pytest

pytest.importorskip("matplotlib")

import msgspec
from builders import make_job, make_records, make_study
from hypothesis import given
from hypothesis import strategies as st
from matrices import report_of

from bareboat_study import drawing, forest, method, plots, report_tables, study_report
from bareboat_study.analysis import Analysis
from bareboat_study.cli.report_export import FORMATS, study_files
from bareboat_study.report_values import Table, as_csv, latex, plain_cell
from bareboat_study.study_report import StudyReport


@pytest.fixture(scope="module")
def case() -> StudyReport:
    study = make_study(metered=True, runs=5)
    return report_of(study, make_records(study, windows=6))


def analysis_of(shown: StudyReport) -> Analysis:
    assert shown.only is not None
    return shown.only.analysis


def latex_of(shown: StudyReport) -> str:
    return report_tables.main(shown).latex(study=shown.matrix.id, version="1")


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
    (_, _, line) = Table(head=("a",), groups=[[(text,)]]).markdown().split("\n")
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 2
    assert not re.search(r"(?<!\\)(?:\\\\)*[<`*\[]", line)


@given(st.lists(st.lists(st.text(), min_size=2, max_size=2), min_size=1))
def test_csv_is_read_back(rows: list[list[str]]) -> None:
    kept = [[plain_cell(cell.replace("\r\n", "\n").replace("\r", "\n")) for cell in row] for row in rows]
    assert list(csv.reader(io.StringIO(as_csv(rows), newline=""))) == kept


def test_a_table_of_booktabs_has_a_row_per_metric(case: StudyReport) -> None:
    analysis = analysis_of(case)
    table = latex_of(case)
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
    shown = report_of(study, make_records(study))
    for text in (latex_of(shown), method.latex_file(shown)):
        assert r"\input" not in text
    assert "<b>" not in re.sub(r"\\<", "", report_tables.markdown_report(shown))


def test_the_tables_hold_every_sample(case: StudyReport) -> None:
    (records,), analysis = case.records, analysis_of(case)
    tables = {
        name: list(csv.DictReader(io.StringIO(text))) for name, text in report_tables.csv_files(case).items()
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


@pytest.mark.thorough
@pytest.mark.thorough
def test_every_form_has_the_same_verdict_and_the_same_bytes_each_time(
    case: StudyReport,
) -> None:
    files = study_files(case, tuple(FORMATS))
    turned = study_report.of(case.matrix, case.studies, [own[::-1] for own in case.records])
    assert files == study_files(turned, tuple(FORMATS))
    word = analysis_of(case).comparison.verdict.value.encode()
    for name in ("summary.csv", "table.tex", "report.md", "report.html"):
        assert word in files[name], name


@pytest.mark.thorough
def test_figures_are_vector_graphics_of_the_width_of_a_column(
    case: StudyReport,
) -> None:
    only = case.only
    assert only is not None
    for each in (forest.of_metrics(only.study, only.analysis), *plots.figures(only.study, only.analysis)):
        for size in (drawing.COLUMN, drawing.FULL):
            svg = drawing.vector(each, "svg", size).decode()
            assert float(re.search(r'<svg[^>]* width="([\d.]+)pt"', svg)[1]) == pytest.approx(size[0] * 72)
            assert "<image" not in svg
            pdf = drawing.vector(each, "pdf", size)
            box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ", pdf)
            assert float(box[1]) == pytest.approx(size[0] * 72)
            assert b"/Subtype /Image" not in pdf
            assert b"CreationDate" not in pdf


def test_a_table_is_written_in_each_form() -> None:
    made = Table(head=("a", "b"), groups=[[("1_", "2")], [], [("3", "4")]], caption="c")
    assert made.tabular() == [
        r"\begin{tabular}{lr}", r"  \toprule", r"  a & b \\", r"  \midrule", r"  1\_ & 2 \\", r"  \midrule",
        r"  3 & 4 \\", r"  \bottomrule", r"\end{tabular}",
    ]  # fmt: skip
    assert made.markdown().splitlines() == ["| a | b |", "| :-- | --: |", r"| 1\_ | 2 |", "| 3 | 4 |"]
    assert made.terminal() == ["a   b", "1_  2", "3   4"]
    assert made.csv() == "a,b\n1_,2\n3,4\n"
    assert made.html().count("<tr>") == 3
