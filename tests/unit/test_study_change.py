"""Two studies of the same arms: what changed from one to the other."""

import argparse
import json
import math
import random

import msgspec
import pytest
from builders import make_records as make_pair
from builders import make_study
from matrices import keep, make_matrix, make_points, make_records, of_pair

from bareboat.cli.main import main
from bareboat.model import Matrix
from bareboat_images.store import Store
from bareboat_study import change, listing, statistics, study_report
from bareboat_study.change import Effects
from bareboat_study.cli import report_export
from bareboat_study.statistics import Comparison, Verdict, compare

FIRST = make_matrix(points=(("resnet50", 32), ("vgg16", 32), ("vgg16", 64)))


def keep_study(store: Store, matrix: Matrix, *, slower_at: int | None = None) -> None:
    """A study whose container costs nothing, except at one point 10 %."""
    records = make_records(matrix, make_points(matrix), {"bare": 1.0, "sif": 1.0})
    if slower_at is not None:
        records[slower_at] = [
            msgspec.structs.replace(each, results={"speed": float(each.results["speed"]) * 0.9})
            if each.arm == "sif"
            else each
            for each in records[slower_at]
        ]
    keep(store, matrix, records)


def second(**changes: object) -> Matrix:
    site = msgspec.structs.replace(FIRST.site, kernel="9.9.9")
    facts = {"id": "galileo-20260101-090000", "points": FIRST.points[1:], "site": site}
    return msgspec.structs.replace(FIRST, **(facts | changes))


def test_the_ratios_of_two_studies_are_compared_at_their_common_points(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_study(store, FIRST)
    keep_study(store, second(), slower_at=1)
    assert main(["report", FIRST.id, second().id]) == 0
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert f"A study {FIRST.id}, 2025-03-03T09:00:00Z" in lines
    assert any(line.startswith("kernel ") and "-> 9.9.9" in line for line in lines)
    assert "speed of sif / bare" in lines
    (same,) = (line for line in lines if line.startswith("model=vgg16 batch=32"))
    (slower,) = (line for line in lines if line.startswith("model=vgg16 batch=64"))
    assert same.endswith("equivalent")
    assert slower.endswith("different")
    assert " 0.89" in slower
    assert "only in A: sif / bare at model=resnet50 batch=32" in lines
    assert max(map(len, out.splitlines())) <= 80

    assert main(["report", "--json", FIRST.id, second().id]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["verdict"] for each in found["changes"]["found"]] == ["equivalent", "different"]


def test_a_change_between_few_runs_has_no_interval_that_means_nothing(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    few = msgspec.structs.replace(FIRST.prove, repeats=2)
    matrices = [msgspec.structs.replace(each, prove=few, repeats=2) for each in (FIRST, second())]
    for matrix in matrices:
        records = make_records(matrix, make_points(matrix), {"bare": 1.0, "sif": 1.0})
        for own in records:
            own[:] = [
                msgspec.structs.replace(
                    each, results={"speed": float(each.results["speed"]) * (1 + 0.2 * each.run)}
                )
                if each.arm == "sif"
                else each
                for each in own
            ]
        keep(store, matrix, records)
    assert main(["report", *(matrix.id for matrix in matrices)]) == 0
    assert capsys.readouterr().out.count("[too few runs]") == 2
    assert main(["report", FIRST.id]) == 0
    assert capsys.readouterr().out.count("[too few runs]") == 3


def test_a_study_whose_arms_fail_differently_says_so_in_every_form(
    store: Store, tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = make_study(metered=False, runs=8)
    codes = {(run, "container"): 9 for run in range(2, 9)}
    records = [msgspec.structs.replace(r, exit_code=codes.get((r.run, r.arm), 0)) for r in make_pair(study)]
    made, studies, rows = of_pair(study, records)
    keep(store, made, rows, studies)
    listing.keep_verdict(store, study_report.read(store, made.id).found)
    page = tmp_path / "flaky.html"
    assert main(["report", made.id, "-o", str(page)]) == 1
    said = "the arms differ in their failed runs; failed: 0 of 8 runs of bare metal, 7 of 8 runs of container"
    assert main(["status", made.id]) == 0
    assert said in capsys.readouterr().out
    assert said in page.read_text()
    assert main(["report", made.id, "--csv"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(records)
    options = argparse.Namespace(runs=[made.id], csv=made.id, output=None)
    assert report_export.read(options, lambda _: True).folder == made.id  # also if a study has that name


def test_studies_with_nothing_in_common_are_refused(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    other = second(points=(("alexnet", 1),))
    keep_study(store, FIRST)
    keep_study(store, other)
    assert main(["report", FIRST.id, other.id]) == 2
    assert "have no comparison in common" in capsys.readouterr().err


def test_the_newest_study_of_several_points_is_the_one_without_a_name(
    store: Store, tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_study(store, FIRST)
    assert main(["report", "--csv"]) == 0
    found = capsys.readouterr()
    assert found.out.startswith("study,")
    assert f"study {FIRST.id} (the newest)" in found.err
    keep(store, msgspec.structs.replace(FIRST, id=FIRST.id + "-2"), [[] for _ in FIRST.points])
    assert main(["report", FIRST.id + "-2", "-o", str(tmp_path / "report.html")]) == 1
    assert "report.html was not written: no point has enough complete runs" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_page_is_the_report_of_the_study_and_not_of_its_points(
    store: Store, tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_study(store, FIRST)
    keep_study(store, second())
    page = str(tmp_path / "report.html")
    for name, said in ((FIRST.id, ""), (FIRST.id, ""), (second().id, f"replaced the report of {FIRST.id};")):
        assert main(["report", name, "-o", page]) == 0
        assert capsys.readouterr().err.strip().partition(" write")[0] == said


def judged(first: list[float], later: list[float]) -> Comparison:
    return compare(statistics.change(first, later), margin=0.02, confidence=0.95, least_runs=2)


def test_the_interval_of_a_change_holds_the_true_change() -> None:
    draw = random.Random(1)
    inside = 0
    for _ in range(400):
        first = [draw.gauss(0.01, 0.01) for _ in range(4)]
        later = [draw.gauss(0.03, 0.03) for _ in range(9)]
        found = judged(first, later)
        inside += found.low <= math.exp(0.02) <= found.high
    assert 370 <= inside <= 392


def test_the_interval_is_welchs_without_a_deviation_between_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change, "BETWEEN_STUDIES", 0.0)
    stats = pytest.importorskip("scipy.stats")
    draw, place = random.Random(1), ("bare", "sif", "")
    logs = [[draw.gauss(0, 0.01) for _ in range(10)], [draw.gauss(0.003, 0.02) for _ in range(11)]]
    sides = [[(place, Effects(metric="speed", ratios=tuple(map(math.exp, own))))] for own in logs]
    (found,) = change.between(sides[0], sides[1], margin=0.02, confidence=0.95).found
    interval = stats.ttest_ind(logs[1], logs[0], equal_var=False).confidence_interval(0.95)
    assert found.comparison.low == pytest.approx(math.exp(interval.low))
    assert found.comparison.high == pytest.approx(math.exp(interval.high))


def test_values_without_deviation_have_a_verdict() -> None:
    same = judged([0.1] * 8, [0.1] * 8)
    assert (same.verdict, same.low, same.high) == (Verdict.EQUIVALENT, 1.0, 1.0)
    other = judged([0.0, 0.0], [0.1, 0.1])
    assert other.verdict is Verdict.DIFFERENT
