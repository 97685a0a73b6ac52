"""The page and the tables of a study of several points: all points at once, series, and published values."""

import csv
import dataclasses
import io
import math
import re
from typing import Any

import msgspec
import pytest
from matplotlib.figure import Figure
from matrices import SPEED, make_matrix, make_points, measured

from bareboat.model import Contrast, MetricRequest
from bareboat_study import drawing, published, report, report_tables, series_plots, study_report
from bareboat_study.study_report import StudyReport

LOSS = MetricRequest(name="loss", series=r"(?P<x>\d) (?P<y>.*)", x="epoch")
TABLE = (
    "model,batch,arm,metric,mean,std,min,max,hardware,source\n"
    "resnet50,32,bare,speed,54.9,0.83,,,a K80,a paper <1>\n"
    "resnet50,32,sif,speed,54.87,0.98,,,a K80,a paper <1>\n"
)


def make_report(*, table: str | None = TABLE, curves: Any = None, **changes: Any) -> StudyReport:
    """A study of six points, two arms, six repeats; `curves(point, run)`: the loss by epoch."""
    matrix, studies, records = measured(0.99, metrics=(SPEED, LOSS), **changes)
    if curves is not None:
        records = [
            [msgspec.structs.replace(each, series={"loss": curves(point, each.run)}) for each in own]
            for point, own in enumerate(records)
        ]
    beside = () if table is None else published.beside(matrix, records, published.read(table, "p.csv"))
    return dataclasses.replace(study_report.of(matrix, studies, records), beside=beside)


def falling(_point: int, run: int) -> tuple[tuple[float, float], ...]:
    return tuple((float(epoch), 2.0 / epoch + 0.01 * run) for epoch in range(1, 6))


def names_of(shown: StudyReport) -> list[str]:
    return [each.name for each in report.all_figures(shown)]


def test_the_figures_are_those_that_the_data_allow() -> None:
    assert names_of(make_report(curves=falling)) == ["points-1", "values", "series-loss"]
    one_factor = make_report(factors=("batch",), points=((32,), (64,), (128,)))
    assert names_of(one_factor) == ["points-1", "values"]
    workers = make_report(factors=("topology.nodes",), points=((1,), (2,), (3,)))
    assert "speed-up" not in names_of(workers)  # the jobs of all points have one node
    assert names_of(make_report(factors=(), points=((),))) == []


@pytest.mark.thorough
def test_every_figure_is_drawn_as_svg_and_pdf() -> None:
    def uneven(_point: int, run: int) -> tuple[tuple[float, float], ...]:
        return tuple((epoch + 0.1 * run, 1.0 / epoch) for epoch in range(1, 4 + run))

    for shown in (make_report(curves=falling), make_report(curves=uneven)):
        for each in report.all_figures(shown):
            assert drawing.plot(each, "all").startswith("<svg")
            assert drawing.vector(each, "pdf", drawing.COLUMN).startswith(b"%PDF")


@pytest.mark.thorough
def test_the_page_has_the_published_values_and_their_source() -> None:
    page = report.render(make_report(curves=falling))
    assert "Measured beside published" in page
    assert "54.90" in page
    assert "a paper &lt;1&gt;; measured there on: a K80" in page
    assert "the same point" in page
    assert "batch 32" in page  # for the points of the other batches
    assert page.count("<figure") > 4
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert "Measured beside published" not in report.render(make_report(table=None))


@pytest.mark.thorough
@pytest.mark.parametrize(("effect", "name"), [("", "sif / bare"), ("container", "container")])
def test_each_section_is_headed_by_its_comparison_and_point(effect: str, name: str) -> None:
    contrasts = (Contrast(baseline=0, contender=1, effect=effect),)
    page = report.render(make_report(table=None, contrasts=contrasts))
    heads = re.findall("<h2>([^<]*)</h2>", page)
    assert {"All comparisons", f"{name}, {make_matrix().point_text(0)}"} <= set(heads)
    assert len(heads) == len(set(heads))


@pytest.mark.thorough
def test_a_study_of_many_points_has_a_page_without_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report.MOST_SECTIONS == 24
    monkeypatch.setattr(report, "MOST_SECTIONS", 4)  # each section takes a second
    points = tuple((f"m{at}", batch) for at in range(3) for batch in (1, 2))
    page = report.render(make_report(points=points, table=None))
    assert "All comparisons" in page
    assert "have no sections of their own" in page
    assert page.count('<p class="word">') == 0
    assert page.count("m2") >= 2
    few = report.render(make_report(points=points[:4], table=None))
    assert few.count('<p class="word">') == 4


def test_series_of_failed_runs_and_of_the_warm_up_are_not_drawn() -> None:
    shown = make_report(curves=falling)
    failed = [[msgspec.structs.replace(each, exit_code=1) for each in own] for own in shown.records]
    assert series_plots.figures(shown.matrix, failed) == ()
    only = [[each for each in own if each.warm_up] for own in shown.records]
    assert series_plots.figures(shown.matrix, only) == ()
    infinite = make_report(curves=lambda _point, _run: ((1.0, "nan"), (2.0, "inf")))
    assert "series-loss" not in names_of(infinite)


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_csv_has_every_run_and_every_comparison_with_all_digits() -> None:
    shown = make_report(curves=falling)
    made = report_tables.csv_files(shown)
    assert sorted(made) == ["published.csv", "runs.csv", "series.csv", "summary.csv"]
    runs = rows_of(made["runs.csv"])
    assert len(runs) == 6 * 11 * 2
    assert sum(row["is_warm_up"] == "1" for row in runs) == 12
    first = shown.records[3][4]
    (row,) = (r for r in runs if (r["point"], r["run"], r["arm"]) == ("3", str(first.run), first.arm))
    assert float(row["result.speed"]) == first.results["speed"]
    assert (row["factor.model"], row["factor.batch"]) == ("vgg16", "32")
    primary = [row for row in rows_of(made["summary.csv"]) if row["is_primary"] == "1"]
    assert len(primary) == 6
    for row, each in zip(primary, shown.found.contrasts[0].points, strict=True):
        assert each.analysis is not None
        assert float(row["ratio"]) == each.analysis.primary.comparison.ratio
        assert float(row["corrected_equivalence_p"]) == each.analysis.p_values[0]
        assert row["verdict"] == str(each.verdict)
    assert len(rows_of(made["series.csv"])) == 6 * 11 * 2 * 5


@pytest.mark.thorough
def test_a_point_without_a_verdict_is_in_the_tables() -> None:
    whole = make_report()
    matrix, studies = whole.matrix, make_points(whole.matrix)
    records = [list(own) for own in whole.records]
    records[2] = [
        msgspec.structs.replace(each, ended_because="it failed", exit_code=1) for each in records[2]
    ]
    shown = study_report.of(matrix, studies, records)
    assert report_tables.points(shown.found, shown.found.contrasts).rows[2][1:] == ("", "", "", "no verdict")
    assert "no verdict" in report.render(shown)
    assert shown.found.contrasts[0].points[2].reason.startswith("0 complete runs")


@pytest.mark.parametrize(
    "ratios",
    [[1.0] * 6, [1e-6, 1e6, 1.0, 0.5, 2.0, 1.0], [0.2, 0.3, 0.25, 0.21, 0.4, 0.33]],
    ids=["equal", "far apart", "all small"],
)
def test_any_ratio_can_be_drawn(ratios: list[float]) -> None:
    shown = make_report(table=None)
    matrix, studies = shown.matrix, make_points(shown.matrix)
    records = [
        [
            msgspec.structs.replace(
                each, results={"speed": float(each.results["speed"]) * ratio ** (each.arm == "sif")}
            )
            for each in own
        ]
        for own, ratio in zip(shown.records, ratios, strict=True)
    ]
    for each in report.all_figures(study_report.of(matrix, studies, records)):
        assert drawing.plot(each, "all")


@pytest.mark.parametrize(("low", "high"), [(0.0313, 20.8), (1e-6, 1e6), (0.2, 0.9), (0.97, 1.01)])
def test_the_labels_of_ratios_are_few_and_1_is_one(low: float, high: float) -> None:
    axes = Figure().subplots()
    axes.set_xlim(math.log(low), math.log(max(high, 1.01)))
    drawing.ratio_axis(axes.xaxis, math.log(low), math.log(max(high, 1.01)))
    labels = [each.get_text() for each in axes.get_xticklabels()]
    assert "1" in labels
    assert len(labels) <= 10
