"""How reports show metrics: their units, what they are, and the direction of a difference."""

import re

import msgspec
import pytest

pytest.importorskip("matplotlib")

from builders import make_records, make_study
from matrices import make_three, report_of

from bareboat_study import definitions, forest, study_report, verdicts
from bareboat_study.analysis import analyse
from bareboat_study.drawing import plot
from bareboat_study.numbers import quantity, scaled_unit, with_unit
from bareboat_study.report import render


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (1.625e-07, "s/sample", "162.5 ns"),
        (0.0123, "s", "12.3 ms"),
        (2.0e-5, "J", "20.0 µJ"),
        (20.736, "s", "20.74 s"),
        (2**30, "bytes", "1,024.0 MiB"),
        (9667.2, "samples/s", "9,667"),
        (2.9976123456789012, "", "2.998"),
        (0.0, "s", "0 s"),
    ],
)
def test_a_value_has_few_digits_and_a_unit_of_its_size(value: float, unit: str, shown: str) -> None:
    assert quantity(value, unit) == shown


def test_the_unit_of_a_column_follows_from_its_largest_value() -> None:
    assert scaled_unit((1e-7, 2e-8), "s/sample") == (1e-9, "ns/sample")
    assert scaled_unit((1.0, 2e-8), "s") == (1.0, "s")
    assert scaled_unit((3.0,), "images/s") == (1.0, "images/s")
    assert with_unit("processor time", "s/sample") == "processor time per sample"
    assert with_unit("throughput", "samples/s") == "throughput, samples/s"


def test_the_page_says_what_each_metric_is_and_how_memory_is_counted() -> None:
    study = make_study(metered=True)
    records = make_records(study)
    found = analyse(study, records)
    page = render(report_of(study, records, found))
    for metric in found.metrics:
        assert definitions.text(metric, found.pairs, study.metrics), metric.name
        assert f"<dt>{definitions.title(metric, found.pairs)}</dt>" in page
    assert "peak memory (PSS)" in page
    resident = tuple(msgspec.structs.replace(each, memory_kind="rss") for each in records)
    page = render(report_of(study, resident, analyse(study, resident)))
    assert "peak memory (RSS)" in page
    assert "(PSS)" not in page


def test_a_difference_has_its_size_and_direction() -> None:
    study = make_study(metered=True)
    slower = analyse(study, make_records(study, ratio=0.9))
    assert re.fullmatch(r"different: (9|10)\.\d % slower", verdicts.headline(slower.verdict, slower.primary))
    faster = analyse(study, make_records(study, ratio=1.1))
    assert verdicts.headline(faster.verdict, faster.primary).endswith(" % faster")
    wall = next(metric for metric in slower.metrics if metric.name == "wall time")
    assert verdicts.headline("different", wall).endswith(" slower")
    assert verdicts.headline("undecided", wall) == "undecided"
    memory = next(metric for metric in slower.metrics if metric.name == "peak memory")
    assert verdicts.headline("different", memory).endswith(" higher")


def test_the_page_of_three_arms_has_one_forest_plot_one_machine_and_two_tables() -> None:
    matrix, studies, records = make_three()
    page = render(study_report.of(matrix, studies, records))
    for once in ("Ratio of every comparison</h4>", "The machine</h4>", "The design</h4>",
                 "What each metric is</h4>", "Raw values of every run"):  # fmt: skip
        assert page.count(once) == 1, once
    assert page.count("Every metric</h3>") == 2
    assert "different: 7." in page
    assert " % slower</p>" in page
    for arm in studies[0].arms:
        assert page.count(f"The script of {arm.name}: sha256:") == 1


def test_a_row_beyond_the_axis_keeps_its_diamond_and_its_name_is_left_of_the_axis() -> None:
    study = make_study(metered=True)
    found = analyse(study, make_records(study))
    drawing = forest.of_metrics(study, found)
    svg = plot(drawing, "x")
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert {"decides", "for information", "process start"} <= set(texts)
    start = next(metric for metric in found.metrics if metric.name == "process start")
    assert start.comparison.ratio > 2  # far beyond the axis
    marks = svg.count("<use ")
    arrows = sum(metric.comparison.high > 1.2 or metric.comparison.low < 0.83 for metric in found.metrics)
    assert marks >= len(found.metrics) + arrows
