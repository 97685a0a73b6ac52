"""From the records of several arms and points to the answer in a sentence."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import altered, make_study
from builders import make_records as pair_records
from hypothesis import given
from hypothesis import strategies as st
from matrices import SPEED, keep, make_matrix, make_points, make_records, make_three, measured

from bareboat.cli import run_list
from bareboat.model import Contrast, Matrix, MetricRequest, ProveRequest, Record, Topology
from bareboat.runs import removal
from bareboat_base import codec, units
from bareboat_base.errors import UsageError
from bareboat_images.store import Store
from bareboat_study import analysis, blocks, change, findings, listing, report, study_report, text, validity
from bareboat_study.change import Effects
from bareboat_study.statistics import Verdict


def found_in(matrix: Matrix, ratios: dict[str, float], **how: Any) -> findings.StudyFindings:
    studies = make_points(matrix)
    return findings.find(matrix, studies, make_records(matrix, studies, ratios, **how))


def test_a_container_without_cost_is_equivalent_at_every_point() -> None:
    found = found_in(make_matrix(), {"bare": 1.0, "sif": 0.998})
    (contrast,) = found.contrasts
    assert contrast.count(Verdict.EQUIVALENT) == 6
    (sentence,) = found.sentences
    assert sentence == "speed of sif / bare: equivalent within 2 % at 6 of 6 points"
    assert any("Holm" in note for note in found.notes)


def with_loss(records: list[list[Record]], points: set[int], arm: str) -> list[list[Record]]:
    """The records with a loss, which is not a number in all runs of an arm at some points."""
    return [
        [
            msgspec.structs.replace(
                record,
                results={**record.results, "loss": "nan" if point in points and record.arm == arm else 0.5},
                diverged={"loss": 7} if point in points and record.arm == arm else {},
            )
            for record in own
        ]
        for point, own in enumerate(records)
    ]


def test_shapes_with_equal_numbers_of_workers_are_series_of_their_own() -> None:
    """1 x 4 and 2 x 2 have four workers each; neither is left out."""
    shapes = tuple((nodes, ranks) for nodes in (1, 2, 4) for ranks in (1, 2, 4))
    matrix = make_matrix(factors=("topology.nodes", "topology.ranks_per_node"), points=shapes)
    studies = [
        msgspec.structs.replace(
            study,
            job=msgspec.structs.replace(study.job, topology=Topology(nodes=nodes, ranks_per_node=ranks)),
        )
        for study, (nodes, ranks) in zip(make_points(matrix), shapes, strict=True)
    ]
    # Nodes scale, ranks on a node do not.
    records = make_records(
        matrix, studies, {"bare": 1.0, "sif": 1.0}, scale=lambda point: float(shapes[point][0])
    )
    found = findings.find(matrix, studies, records)
    own = [each for each in found.scalings if each.arm == "bare"]
    assert len(own) == 6
    for each in own[:3]:
        assert "ranks_per_node" in each.at
        assert each.speed_ups[2].efficiency == pytest.approx(1, abs=0.02)
    for each in own[3:]:
        assert "nodes" in each.at
        assert each.speed_ups[2].speed_up == pytest.approx(1, abs=0.02)


def test_points_whose_training_diverged_are_equivalent_nowhere() -> None:
    matrix, studies, records = measured()
    every = findings.find(matrix, studies, with_loss(records, set(range(6)), "sif"))
    (contrast,) = every.contrasts
    assert (contrast.count(Verdict.EQUIVALENT), contrast.count(Verdict.DIVERGED)) == (0, 6)
    (sentence,) = every.sentences
    assert sentence == (
        "speed of sif / bare: equivalent within 2 % at 0 of 6 points, the training diverged at 6"
    )
    shown = "\n".join(text.study_lines(every, None))
    assert shown.count("  training diverged") == 6
    assert "] equivalent" not in shown
    values = text.values(every)["contrasts"][0]
    assert (values["equivalent"], values["diverged"]) == (0, 6)
    assert {point["verdict"] for point in values["points"]} == {"training diverged"}

    some = findings.find(matrix, studies, with_loss(records, {1, 4}, "sif"))
    assert "at 4 of 6 points, the training diverged at 2" in some.sentences[0]


@pytest.mark.thorough
def test_the_page_has_the_corrected_verdicts_and_the_whole_answer() -> None:
    # Each point alone is near the limit of equivalence; the correction takes some verdicts back.
    matrix, studies, records = measured(0.985)
    records[5] = altered(records[5], "sif", [2], exit_code=3, ended_because="the disk was full")
    found = findings.find(matrix, studies, records)
    (contrast,) = found.contrasts
    assert any(
        each.analysis and each.verdict is not each.analysis.comparison.verdict for each in contrast.points
    )
    page = report.render(study_report.of(matrix, studies, records))
    for each in contrast.points:
        assert each.analysis is not None
        assert each.analysis.verdict is each.verdict
    shown = [word.partition("<")[0] for word in page.split('<p class="word">')[1:]]
    assert [word.partition(":")[0] for word in shown] == [str(each.verdict) for each in contrast.points]
    assert "Holm" in page
    assert "the disk was full" in page
    assert found.sentences[0].replace("'", "&#x27;").replace(" %", "\xa0%") in page


def test_a_primary_metric_that_is_no_number_is_no_verdict() -> None:
    matrix, studies, records = measured()
    nan = [altered(own, "sif", results={"speed": "nan"}) for own in records]
    found = findings.find(matrix, studies, nan)
    assert "not measured at 6" in found.sentences[0]
    assert "speed, the primary metric, is not a number above 0" in found.contrasts[0].points[0].reason


def test_verdicts_are_corrected_for_all_points_and_contrasts() -> None:
    matrix = make_matrix(
        arms=("bare", "sif", "slow"),
        contrasts=(Contrast(baseline=0, contender=1), Contrast(baseline=0, contender=2)),
    )
    found = found_in(matrix, {"bare": 1.0, "sif": 1.0, "slow": 0.9})
    for contrast in found.contrasts:
        for point in contrast.points:
            assert point.analysis is not None
            single = point.analysis.comparison
            assert point.analysis.p_values[0] >= single.equivalence_p
            assert point.analysis.p_values[1] >= single.difference_p
    assert found.contrasts[1].count(Verdict.DIFFERENT) == 6
    assert "different at 6" in found.sentences[1]


def test_the_effects_of_attribution_multiply() -> None:
    matrix = make_matrix(
        arms=("bare metal", "captured", "image"),
        factors=(), points=((),), prove=ProveRequest(repeats=12), repeats=12,
        contrasts=(
            Contrast(baseline=0, contender=1, effect="container"),
            Contrast(baseline=1, contender=2, effect="software stack"),
            Contrast(baseline=0, contender=2, effect="both"),
        ),
    )  # fmt: skip
    studies = make_points(matrix)
    (own,) = make_records(matrix, studies, {"bare metal": 1.0, "captured": 1.0, "image": 0.7})
    for number, record in enumerate(own):
        # The later an arm starts, the faster it is; one arm fails in one run.
        position = (record.position + record.run) % 3
        own[number] = msgspec.structs.replace(
            record, position=position, exit_code=int((record.arm, record.run) == ("image", 4)),
            results={"speed": float(record.results["speed"]) * 1.1**position},
        )  # fmt: skip
    found = findings.find(matrix, studies, [own])
    compared = [each.points[0].analysis.comparison for each in found.contrasts if each.points[0].analysis]
    ratios = [each.ratio for each in compared]
    assert ratios[0] * ratios[1] == pytest.approx(ratios[2], rel=1e-13)
    assert ratios[0] == pytest.approx(1.0, abs=0.005)
    assert [each.runs for each in compared] == [11] * 3
    assert found.sentences[0].startswith("container: equivalent within 2 %")
    assert found.sentences[1].startswith("software stack: different: speed of image is 30.0 % lower")
    assert any("multiply" in note for note in found.notes)


def test_failed_runs_are_counted_and_in_no_number() -> None:
    matrix, studies, records = measured()
    before = findings.find(matrix, studies, records)
    for at, record in enumerate(records[0]):
        if record.run in (2, 3) and record.arm == "sif":
            records[0][at] = msgspec.structs.replace(
                record, exit_code=3 * (record.run == 2), ended_because="why", results={}
            )
    # Everything else of a point fails, too.
    records[1] = altered(records[1], runs=range(2, 100), exit_code=9, ended_because="out of memory")
    found = findings.find(matrix, studies, records)
    (contrast,) = found.contrasts
    assert contrast.points[0].analysis is not None
    assert contrast.points[0].analysis.primary.comparison.runs == 8
    assert contrast.points[1].analysis is None
    assert contrast.points[1].reason.startswith("1 complete run; a comparison requires at least 2; failed: 9")
    for whole in (contrast, before.contrasts[0]):
        assert whole.points[2].analysis is not None
    assert contrast.points[2].analysis.metrics == before.contrasts[0].points[2].analysis.metrics  # type: ignore[union-attr]
    assert len(found.failures) == 2 + 18
    assert "not measured at 1" in found.sentences[0]
    shown = "\n".join(text.study_lines(found, 80))
    assert "failed runs: 20, in no number above" in shown
    assert "run 2 of sif at model=resnet50 batch=32: why" in shown


def test_the_speed_up_is_of_each_arm_and_at_each_other_factor() -> None:
    matrix = make_matrix(
        factors=("model", "topology.ranks_per_node"),
        points=tuple((model, n) for model in ("a", "b") for n in (1, 2, 4, 8)),
    )
    studies = [
        msgspec.structs.replace(
            each,
            job=msgspec.structs.replace(
                each.job, topology=Topology(ranks_per_node=int(matrix.points[at][1]))
            ),
        )
        for at, each in enumerate(make_points(matrix))
    ]
    ideal = make_records(
        matrix, studies, {"bare": 1.0, "sif": 1.0}, scale=lambda point: float(matrix.points[point][1])
    )
    found = findings.find(matrix, studies, ideal)
    assert [(each.arm, each.at) for each in found.scalings] == [
        ("bare", "model=a"), ("sif", "model=a"), ("bare", "model=b"), ("sif", "model=b"),
    ]  # fmt: skip
    for each in found.scalings:
        assert [up.workers for up in each.speed_ups] == [1, 2, 4, 8]
        assert each.speed_ups[3].efficiency == pytest.approx(1, abs=0.02)
    named = make_matrix(
        factors=("model", "gpus"), points=matrix.points, prove=ProveRequest(repeats=6, scaling="gpus")
    )
    studies = make_points(named)
    times = make_records(
        named, studies, {"bare": 1.0, "sif": 1.0}, scale=lambda p: 1 / float(named.points[p][1])
    )
    lower = MetricRequest(name="speed", pattern="(.)", better="lower")
    studies = [msgspec.structs.replace(each, metrics=(lower,)) for each in studies]
    found = findings.find(named, studies, times)
    assert found.scalings[0].speed_ups[3].efficiency == pytest.approx(1, abs=0.02)


def test_the_text_fits_80_columns_and_the_json_has_no_raw_records() -> None:
    matrix = make_matrix(
        arms=("a name of forty characters, and no more..", "b" * 40),
        contrasts=(Contrast(baseline=0, contender=1),),
        factors=("a_factor_with_a_long_name", "topology.ranks_per_node"),
        points=(("a value", 1), ("a much longer value", 2), ("c", 4)),
        prove=ProveRequest(repeats=6, scaling="topology.ranks_per_node"),
    )
    found = found_in(matrix, dict.fromkeys(matrix.arms, 12345678.0))
    lines = list(text.study_lines(found, 80))
    assert [line for line in lines if len(line) > 80] == []
    assert "a_factor_with_a_long_name=a much longer value ranks_per_node=2" in lines
    values = json.loads(codec.to_json(text.values(found)))
    assert values["contrasts"][0]["points"][0]["metrics"][0]["name"] == "speed"
    assert "windows" not in json.dumps(values)
    one = found_in(make_matrix(factors=(), points=((),)), {"bare": 1, "sif": 1})
    assert any(line.startswith("peak memory (PSS)") for line in text.study_lines(one, 80, None))


def test_what_makes_verdicts_doubtful_is_below_the_table_of_points() -> None:
    matrix, studies, records = measured()
    quiet = "\n".join(text.study_lines(findings.find(matrix, studies, records), 80))
    assert "busy" not in quiet
    for point in (1, 2):
        records[point] = altered(records[point], load_1min=999.5)
    lines = list(text.study_lines(findings.find(matrix, studies, records), 80))
    assert max(map(len, lines)) <= 80
    (at,) = (number for number, line in enumerate(lines) if line.startswith("  ! "))
    assert lines[at].startswith(f"  ! {matrix.point_text(1)} and 1 more: The machine was busy")
    assert lines[0].endswith("2 % at 6 of 6 points, on a busy machine")
    records = [altered(own, load_1min=999.0 + point) for point, own in enumerate(records)]
    shown = "\n".join(text.study_lines(findings.find(matrix, studies, records), 80))
    assert shown.count("  ! ") == 5
    assert f"  ! 2 more warnings: bareboat report {matrix.id} -o PAGE.html" in shown


def test_a_secondary_metric_without_a_ratio_is_told() -> None:
    zero = MetricRequest(name="zero", pattern="z=(.*)")
    matrix, studies, records = measured(metrics=(SPEED, zero), factors=(), points=((),))
    records = [
        [msgspec.structs.replace(r, results=r.results | {"zero": 0.0}) for r in own] for own in records
    ]
    analysis = findings.find(matrix, studies, records).contrasts[0].points[0].analysis
    assert analysis is not None
    assert [metric.name for metric in analysis.metrics] == ["speed", "wall time", "peak memory"]
    assert any("zero" in note for note in analysis.notes)


# The order of the runs.


@given(st.integers(0, 2**63 - 1), st.integers(1, 40), st.integers(0, 8))
def test_every_repeat_has_every_point_once(seed: int, points: int, repeats: int) -> None:
    order = blocks.schedule(seed, points, repeats)
    assert [run for run, _ in order] == [run for run in range(repeats + 1) for _ in range(points)]
    for run in range(repeats + 1):
        assert sorted(point for r, point in order if r == run) == list(range(points))
    longer = blocks.schedule(seed, points, repeats + 3)
    assert longer[: len(order)] == order


def test_the_order_of_the_points_differs_between_repeats() -> None:
    order = blocks.schedule(1, 6, 50)
    firsts = {point for at, (_, point) in enumerate(order) if at % 6 == 0}
    assert firsts == set(range(6))


@given(st.floats(1, 1e6), st.lists(st.floats(0.01, 1e3), min_size=1, max_size=9), st.booleans())
def test_the_repeats_fit_into_the_time(within_s: float, warm_up_s: list[float], has_alone: bool) -> None:
    alone_s = 2 * sum(warm_up_s) * has_alone
    try:
        repeats = blocks.repeats_within("cost-1", within_s, warm_up_s, alone_s)
    except UsageError as error:
        refused = error
    else:
        assert 2 <= repeats <= blocks.MOST_REPEATS
        assert (repeats + 1) * sum(warm_up_s) + alone_s <= within_s * (1 + 1e-9)
        return
    assert within_s < (3 * sum(warm_up_s) + alone_s) * (1 + 1e-9)
    assert refused.message.startswith(f"{units.written(within_s, 's')} is too short for")
    proposed, _, more = refused.remedy.partition("   #")[0].rpartition(" ")
    assert proposed == "bareboat prove --resume cost-1 --within"
    assert blocks.repeats_within("cost-1", units.parse(more, "s"), warm_up_s, alone_s) >= 8


def test_the_time_left_is_that_of_later_runs() -> None:
    done = {0: [10.0, 2.0, 4.0], 1: [5.0]}
    assert blocks.seconds_left(done, [(3, 0), (1, 1), (2, 1)]) == pytest.approx(3 + 5 + 5)
    assert blocks.seconds_left({}, [(0, 0)]) is None


def test_the_list_of_runs_has_the_verdict_of_a_study_of_several_points(tmp_path: Path) -> None:
    """It had "complete" for each of them, a fifth word beside the four verdicts."""
    store = Store(tmp_path)
    matrix, studies, equal = measured()
    keep(store, matrix, [[] for _ in studies])
    listing.keep_verdict(store, findings.find(matrix, studies, equal, missing=1))
    assert listing.look(store, matrix.id).verdict is None
    found = findings.find(matrix, studies, equal)
    listing.keep_verdict(store, found)
    assert run_list.row(listing.look(store, matrix.id))[3] == "equivalent"
    assert run_list.detail(store, listing.look(store, matrix.id), apart=False) == found.sentences[0]
    slower = make_records(matrix, studies, {"bare": 1.0, "sif": 0.5})
    mixed = [*equal[:3], *slower[3:]]
    listing.keep_verdict(store, findings.find(matrix, studies, mixed))
    assert run_list.row(listing.look(store, matrix.id))[3] == "6 verdicts"


def test_the_design_of_three_arms_is_that_of_their_study() -> None:
    """Each pair of arms was compared by a design of two, so the page said that it had changed."""
    matrix, studies, records = make_three(4)
    design = validity.design_digest(studies[0])
    own = [msgspec.structs.replace(each, design="" if each.warm_up else design) for each in records[0]]
    for contrast in findings.find(matrix, studies, [own]).contrasts:
        (point,) = contrast.points
        assert point.analysis is not None
        assert point.analysis.warnings == ()
    own[-1] = msgspec.structs.replace(own[-1], design="sha256:" + "0" * 64)
    _, changed = findings.find(matrix, studies, [own]).contrasts
    assert changed.points[0].analysis is not None
    assert "after these runs were measured: 4" in changed.points[0].analysis.warnings[0]


def test_a_study_that_is_not_complete_is_not_compared() -> None:
    study = make_study()
    records = pair_records(study, seed=1)
    whole = analysis.analyse(study, records)
    part = analysis.analyse(study, [record for record in records if record.run <= 4])
    place = ("bare metal", "container", "")
    first, second = (
        [(place, Effects(metric="x", ratios=change.balanced(each.primary), unusable=bool(each.unusable)))]
        for each in (whole, part)
    )
    assert change.between(first, second, margin=0.02, confidence=0.95).unusable == (place,)


def test_a_point_whose_arms_fail_differently_is_no_result() -> None:
    matrix, studies, records = measured(prove=ProveRequest(repeats=12), repeats=12)
    records[0] = altered(records[0], "sif", range(1, 8), exit_code=1)
    found = findings.find(matrix, studies, records)
    (contrast,) = found.contrasts
    assert contrast.points[0].analysis is not None
    assert contrast.points[0].analysis.unusable == "the arms differ in their failed runs"
    why = "  Ratios in parentheses are no result: the arms differ in their failed runs."
    assert why in text.study_lines(found, 80)


def test_only_the_points_of_a_study_are_points(store: Store) -> None:
    matrix = make_matrix()
    keep(store, matrix, [[]] * len(matrix.points))
    assert listing.is_point(store, matrix.point_id(0))
    store.run("stray-1").mkdir()
    store.write(store.run("stray-1") / "study.json", b"{}")
    assert not listing.is_point(store, "stray-1")
    with pytest.raises(UsageError) as error:
        removal.remove(store, [matrix.point_id(0)])
    assert error.value.message == f"{matrix.point_id(0)} is a point of {matrix.id}"
    assert error.value.remedy == f"bareboat rm {matrix.id}"
