"""CSV and vector figures of a study: complete, in agreement, and safe against the data."""

import csv
import io
import re

import pytest

pytest.importorskip("matplotlib")

from builders import make_records, make_study
from hypothesis import given
from hypothesis import strategies as st
from matrices import report_of

from bareboat_study import drawing, forest, plots, report_tables, study_report
from bareboat_study.analysis import Analysis
from bareboat_study.cli.report_export import FORMATS, study_files
from bareboat_study.report_values import Table, _cell, as_csv
from bareboat_study.study_report import StudyReport


@pytest.fixture(scope="module")
def case() -> StudyReport:
    study = make_study(metered=True, runs=5)
    return report_of(study, make_records(study, windows=6))


def analysis_of(shown: StudyReport) -> Analysis:
    assert shown.only is not None
    return shown.only.analysis


@given(st.lists(st.lists(st.text(), min_size=2, max_size=2), min_size=1))
def test_csv_is_read_back(rows: list[list[str]]) -> None:
    kept = [[_cell(cell) for cell in row] for row in rows]
    assert list(csv.reader(io.StringIO(as_csv(rows), newline=""))) == kept


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
def test_every_form_has_the_same_verdict_and_the_same_bytes_each_time(
    case: StudyReport,
) -> None:
    files = study_files(case, tuple(FORMATS))
    turned = study_report.of(case.matrix, case.studies, [own[::-1] for own in case.records])
    assert files == study_files(turned, tuple(FORMATS))
    word = analysis_of(case).comparison.verdict.value.encode()
    for name in ("summary.csv", "report.html"):
        assert word in files[name], name


@pytest.mark.thorough
def test_figures_are_vector_graphics_of_the_width_of_a_column(case: StudyReport) -> None:
    only = case.only
    assert only is not None
    ratios = drawing.vector(forest.of_metrics(only.study, only.analysis), "svg", drawing.FULL).decode()
    assert f"{only.analysis.comparison.runs} runs, margin ±2 %" in ratios
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


def test_a_table_folds_where_it_is_too_wide() -> None:
    made = Table(head=("a", "b", "c"), rows=[("1_", "2", ""), ("3", "4" * 30, "5")], caption="c")
    assert made.terminal(41)[:2] == [f"a   {'b':>30}  c", f"1_  {'2':>30}"]
    assert made.terminal(36) == ["1_", "  b 2", "3", f"  b {'4' * 30}; c 5"]
    assert made.html().count("<tr>") == 3
