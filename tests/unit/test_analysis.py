"""From records to a verdict."""

import json
import math
from pathlib import Path

import msgspec
import pytest
from builders import altered, make_records, make_site, make_study
from matrices import report_of
from scipy import stats

from bareboat.model import Record, Study, Window, kept_result
from bareboat.runs import studies
from bareboat_base import codec
from bareboat_base.errors import UsageError
from bareboat_images.store import Store
from bareboat_study import analysis, arm_differences, listing, measures, method, report_tables, validity
from bareboat_study.report import render
from bareboat_study.statistics import OPEN, Comparison, Verdict
from bareboat_study.windows import block_log_ratios


def windows(*means: float, steps: int = 10) -> tuple[Window, ...]:
    """Windows with the given mean step seconds."""
    return tuple(Window(block=i, began_s=float(i), step_s=(mean,) * steps) for i, mean in enumerate(means))


def test_each_arm_counts_its_own_samples(study: Study, records: list[Record]) -> None:
    """Half the samples in each step of equal length is half the throughput, and is warned of."""
    contender = study.arms[1].name
    equal = analysis.analyse(study, [msgspec.structs.replace(r, samples_per_step=64) for r in records])
    assert equal.warnings == ()
    own = [msgspec.structs.replace(r, samples_per_step=32 if r.arm == contender else 64) for r in records]
    found = analysis.analyse(study, own)
    assert found.primary.contender_mean == pytest.approx(equal.primary.contender_mean / 2)
    assert found.primary.baseline_mean == pytest.approx(equal.primary.baseline_mean)
    assert found.primary.comparison.ratio == pytest.approx(equal.primary.comparison.ratio / 2)
    for metric in found.metrics:
        assert metric.contender_mean / metric.baseline_mean == pytest.approx(metric.comparison.ratio)
        for a, b, effect in zip(metric.baseline, metric.contender, metric.effects, strict=True):
            assert b / a == pytest.approx(math.exp(effect))
    assert found.verdict.value == "different"
    assert "trains 64 samples per step" in found.warnings[0]


def with_windows(records: list[Record], arm: str, made: tuple[Window, ...]) -> list[Record]:
    return [msgspec.structs.replace(r, windows=made) if r.arm == arm else r for r in records]


def smooth(study: Study, records: list[Record]) -> list[Record]:
    """The records with equal windows, so that the arms are equivalent."""
    for number, arm in enumerate(study.arms):
        records = with_windows(records, arm.name, windows(*[0.010 + 0.00001 * number] * 12))
    return records


@pytest.fixture
def study() -> Study:
    return make_study(metered=True, runs=8)


@pytest.fixture
def records(study: Study) -> list[Record]:
    return list(make_records(study, ratio=1.0))


def test_throughput_is_samples_over_the_time_of_all_steps(study: Study, records: list[Record]) -> None:
    baseline, contender = (arm.name for arm in study.arms)
    records = with_windows(records, baseline, windows(0.010, 0.010, 0.010))
    records = with_windows(records, contender, windows(0.020, 0.020, 0.020))
    found = analysis.analyse(study, records).primary
    samples = records[0].samples_per_step
    assert samples is not None
    assert found.name == "throughput"
    assert found.baseline[0] == pytest.approx(samples / 0.010)
    assert found.contender[0] == pytest.approx(samples / 0.020)
    assert found.comparison.ratio == pytest.approx(0.5)
    assert isinstance(found.comparison, Comparison)
    assert found.comparison.verdict is Verdict.DIFFERENT


def test_only_blocks_that_both_arms_completed_are_paired(study: Study, records: list[Record]) -> None:
    baseline, contender = (arm.name for arm in study.arms)
    records = with_windows(records, baseline, windows(0.010, 0.010, 0.010))
    records = with_windows(records, contender, windows(0.010, 0.010, 0.010, 0.5, 0.5))
    (run, *_) = analysis.measured_runs(study, records)
    assert block_log_ratios((run[0], run[1])) == pytest.approx([0.0, 0.0, 0.0])
    assert analysis.analyse(study, records).primary.comparison.ratio == pytest.approx(1.0)


def test_the_warm_up_counts_for_nothing(study: Study, records: list[Record]) -> None:
    before = analysis.analyse(study, records)
    assert [r.run for r in records if r.warm_up] == [0, 0]
    spoilt = altered(records, runs=[0], windows=windows(99.0), wall_s=1e6, results={})
    assert analysis.analyse(study, spoilt) == before


def test_the_order_of_the_records_does_not_matter(study: Study, records: list[Record]) -> None:
    assert analysis.analyse(study, records[::-1]) == analysis.analyse(study, records)


def test_a_run_with_one_arm_missing_is_left_out(study: Study, records: list[Record]) -> None:
    last = max(r.run for r in records)
    kept = [r for r in records if not (r.run == last and r.arm == study.arms[1].name)]
    assert analysis.analyse(study, kept).primary.comparison.runs == study.job.prove.repeats - 1


def test_too_few_runs_is_an_error_with_the_command_to_go_on(study: Study, records: list[Record]) -> None:
    with pytest.raises(UsageError) as raised:
        analysis.analyse(study, [r for r in records if r.run <= 1])
    assert f"bareboat prove --resume {study.id}" in raised.value.remedy


def test_without_a_meter_wall_time_carries_the_verdict() -> None:
    study = make_study(metered=False, runs=8)
    found = analysis.analyse(study, list(make_records(study, ratio=1.0)))
    assert found.primary.name == "wall time"
    assert not found.primary.higher_is_better
    assert {metric.name for metric in found.metrics} == {"wall time", "peak memory"}


def test_memory_that_was_never_sampled_is_not_compared(study: Study, records: list[Record]) -> None:
    unsampled = [msgspec.structs.replace(r, memory=(), peak_memory_bytes=0) for r in records]
    assert "peak memory" not in {m.name for m in analysis.analyse(study, unsampled).metrics}


@pytest.mark.parametrize(
    ("lowest", "reached"), [(0.9701, True), (0.97, True), (0.9699, False), (None, False)]
)
def test_a_goal_is_reached_only_by_every_run(
    study: Study, records: list[Record], lowest: float | None, reached: bool
) -> None:
    prove = msgspec.structs.replace(study.job.prove, goals={"acc": 0.97})
    study = msgspec.structs.replace(study, job=msgspec.structs.replace(study.job, prove=prove))
    arm = study.arms[1].name
    changed = [
        msgspec.structs.replace(
            r,
            results={}
            if (r.arm, r.run, lowest) == (arm, 2, None)
            else {"acc": lowest if (r.arm, r.run) == (arm, 2) and lowest is not None else 0.99},
        )
        for r in records
    ]
    goals = {goal.arm: goal for goal in analysis.analyse(study, changed).goals}
    assert goals[study.arms[0].name].reached
    assert goals[arm].reached is reached
    assert goals[arm].lowest == (0.99 if lowest is None else lowest)


def test_a_study_that_cannot_tell_says_how_many_more_repeats() -> None:
    study = make_study(metered=True, runs=10)
    records = list(make_records(study, ratio=1.0))
    baseline, contender = (arm.name for arm in study.arms)
    records = with_windows(records, baseline, windows(0.010, 0.010))
    changed = [
        msgspec.structs.replace(r, windows=windows(*[0.010 * (0.97 if r.run % 2 else 1.03)] * 2))
        if r.arm == contender
        else r
        for r in records
    ]
    found = analysis.analyse(study, changed)
    assert found.comparison.verdict in OPEN
    assert f"a new study of {found.comparison.enough_runs} runs decides" in found.sentence
    assert "fewer than 26% of the runs is in none of them with a probability" in str(found.notes)


def test_work_beside_the_study_is_part_of_the_verdict(study: Study, records: list[Record]) -> None:
    assert analysis.analyse(study, records).warnings == ()
    busy = altered(records, load_1min=999.5)
    found = analysis.analyse(study, busy)
    assert "busy with other work: its load reached 999.5" in found.warnings[0]
    assert found.warnings[0] in found.text
    shown = report_of(study, busy, found)
    assert found.warnings[0] in render(shown)
    assert found.sentence.startswith("equivalent within 2 % on a busy machine: throughput")
    assert "Other work kept the machine busy in measured runs (load 999.5, 64 cores)." in method.text(shown)
    slow = render(report_of(study, altered(make_records(study, ratio=0.9), load_1min=999.5)))
    assert '"word">different on a busy machine: 1' in slow
    assert ">different on a busy machine: throughput of " in slow
    prove = msgspec.structs.replace(study.job.prove, margin=0.001)
    strict = msgspec.structs.replace(study, job=msgspec.structs.replace(study.job, prove=prove))
    undecided = analysis.analyse(strict, altered(make_records(strict, ratio=1.0, seed=4), load_1min=999.5))
    assert undecided.verdict in OPEN
    assert undecided.warnings[-1].endswith("cores; repeat the study on an idle machine")


def test_work_before_the_study_is_reported_with_its_load(study: Study, records: list[Record]) -> None:
    loaded = msgspec.structs.replace(study, site=make_site(load_1min=33.0, cpus=64))
    decided = analysis.analyse(loaded, records)
    assert decided.warnings == (
        "The machine was busy with other work: its load was 33.0 before the study with 64 cores",
    )
    busy = [msgspec.structs.replace(r, load_1min=999.5) for r in records]
    assert "its load was 33.0 before the study and reached 999.5" in analysis.analyse(loaded, busy).text
    queued = msgspec.structs.replace(loaded.job, scheduler="slurm")
    assert analysis.analyse(msgspec.structs.replace(loaded, job=queued), records).warnings == ()


def diverged(records: list[Record], arms: tuple[str, ...], runs: int) -> list[Record]:
    """As they are read back, with a loss that is not a number in the first runs."""
    made = [
        msgspec.structs.replace(
            r, results={**r.results, "loss": kept_result(math.nan)}, diverged={"loss": 120 + r.run}
        )
        if r.arm in arms and 1 <= r.run <= runs
        else msgspec.structs.replace(r, results={**r.results, "loss": 0.5})
        for r in records
    ]
    return [codec.from_json(codec.to_json(r), Record, what="a record") for r in made]


def test_no_output_gives_a_training_that_diverged_another_verdict(
    study: Study, records: list[Record], tmp_path: Path
) -> None:
    """Every table, export and list has the verdict of the study's primary metric from one function."""
    arms = tuple(arm.name for arm in study.arms)
    own = diverged(smooth(study, records), arms, 4)
    found = analysis.analyse(study, own)
    assert found.comparison.verdict is Verdict.EQUIVALENT
    assert found.verdict is Verdict.DIVERGED

    store, shown = Store(tmp_path), report_of(study, own)
    store.run(study.id).mkdir(parents=True)
    listing.keep_verdict(store, shown.found)
    kept = store.read(store.run(study.id) / "verdict.json", studies.Verdict)
    assert kept.verdict == "training diverged"

    table = report_tables.csv_files(shown)["summary.csv"]
    row = next(line for line in table.splitlines() if found.primary.name in line)
    assert "training diverged" in row
    assert "equivalent" not in row
    page = render(report_of(study, own, found))
    assert '<b class="first">training diverged</b>' in page
    assert '<b class="first">equivalent' not in page


def test_a_goal_is_not_reached_by_what_is_not_a_number(study: Study, records: list[Record]) -> None:
    prove = msgspec.structs.replace(study.job.prove, goals={"loss": 0.1})
    study = msgspec.structs.replace(study, job=msgspec.structs.replace(study.job, prove=prove))
    arms = tuple(arm.name for arm in study.arms)
    (first, second) = analysis.analyse(study, diverged(records, arms[1:], 2)).goals
    assert (first.reached, first.not_numbers) == (True, 0)
    assert (second.reached, second.not_numbers, second.lowest) == (False, 2, 0.5)


# What is estimated.


def stalled(records: list[Record], arm: str, blocks: set[int], factor: float) -> list[Record]:
    """The records with some windows of an arm longer, in every measured run."""
    return [
        msgspec.structs.replace(
            record,
            windows=tuple(
                msgspec.structs.replace(w, step_s=tuple(factor * s for s in w.step_s))
                if w.block in blocks
                else w
                for w in record.windows
            ),
        )
        if record.arm == arm
        else record
        for record in records
    ]


def test_a_stall_in_one_window_of_ten_is_in_the_verdict() -> None:
    study = make_study(metered=True, runs=12)
    records = with_windows(list(make_records(study)), study.arms[0].name, windows(*[0.01] * 10))
    records = with_windows(records, study.arms[1].name, windows(*[0.01] * 10))
    found = analysis.analyse(study, stalled(records, study.arms[1].name, {4}, 3.0))
    assert found.primary.comparison.ratio == pytest.approx(10 / 12)
    assert found.verdict.value == "different"
    (typical,) = (m for m in found.metrics if m.name == measures.TYPICAL)
    assert typical.comparison.ratio == pytest.approx(1.0)
    (warning,) = found.warnings
    assert warning.startswith("Slow windows weigh in: the ratio of the throughputs is 0.8333")
    assert "12 of 120 windows of container with 16.7% of its time (run 1 block 4: 3.0x" in warning


def test_a_cost_in_the_first_steps_of_windows_is_in_the_verdict() -> None:
    study = make_study(metered=True, runs=10)
    records = with_windows(list(make_records(study)), study.arms[0].name, windows(*[0.01] * 5))
    slow = tuple(Window(block=block, began_s=0.0, step_s=(0.06, 0.06, *[0.01] * 8)) for block in range(5))
    found = analysis.analyse(study, with_windows(records, study.arms[1].name, slow))
    assert found.primary.comparison.ratio == pytest.approx(0.5)


def test_only_the_primary_metric_has_tests_and_a_verdict(study: Study, records: list[Record]) -> None:
    found = analysis.analyse(study, records)
    for metric in found.metrics:
        assert (found.word_of(metric) != "") is metric.primary
        assert isinstance(metric.comparison, Comparison) is metric.primary
        assert (metric.tests == (None, None, None)) is not metric.primary
    assert '"verdict"' not in json.dumps(json.loads(codec.to_json(found.metrics[1])))


# What is claimed.


def test_a_study_with_runs_left_has_no_verdict() -> None:
    study = make_study(metered=True, runs=12)
    found = analysis.analyse(study, [r for r in make_records(study) if r.run <= 6])
    assert (found.verdict.value, found.sentence) == ("incomplete", "incomplete, 6 of 12 runs: no verdict")
    assert found.text.startswith("incomplete, 6 of 12 runs: no verdict")
    assert math.isnan(found.comparison.equivalence_p)
    assert math.isnan(found.comparison.difference_p)
    assert 'class="word">incomplete' in render(report_of(study, make_records(study), found))


def test_arms_that_fail_differently_get_no_verdict() -> None:
    study = make_study(metered=True, runs=12)
    contender = study.arms[1].name
    few = analysis.analyse(study, altered(make_records(study), contender, range(1, 3), exit_code=9))
    assert few.censored is not None
    assert (few.censored.failed, few.censored.attempts) == ((0, 2), (12, 12))
    assert few.censored.p == pytest.approx(stats.fisher_exact([[0, 12], [2, 10]])[1])
    assert not few.is_selected
    assert "failed: 0 of 12 runs of bare metal, 2 of 12 runs of container" in few.text
    many = analysis.analyse(study, altered(make_records(study), contender, range(1, 7), exit_code=9))
    assert many.verdict.value == "undecided"
    assert "the arms differ in their failed runs" in many.sentence


def test_an_arm_that_was_stopped_with_the_other_did_not_fail() -> None:
    study = make_study(metered=True, runs=10)
    records = altered(make_records(study), runs=[2], exit_code=143, ended_because="x")
    records = altered(records, study.arms[0].name, [2], exit_code=9)
    found = analysis.analyse(study, records).censored
    assert found is not None
    assert found.failed == (1, 0)


def test_records_show_that_the_design_was_set_before(study: Study, records: list[Record]) -> None:
    digest = validity.design_digest(study)
    bound = [msgspec.structs.replace(r, design=digest) for r in records]
    assert "The design was changed" not in analysis.analyse(study, bound).text
    prove = msgspec.structs.replace(study.job.prove, margin=0.1)
    changed = msgspec.structs.replace(study, job=msgspec.structs.replace(study.job, prove=prove))
    found = analysis.analyse(changed, bound)
    assert "The design was changed" in found.text


def test_the_start_up_ratio_is_balanced_over_the_order() -> None:
    """The arm that starts second imports 1.33 times as long; the contender starts second in 3 of 12 runs."""
    study = make_study(metered=True, runs=12)
    records = []
    for record in make_records(study):
        second = (record.run % 4 == 0) == (record.arm == study.arms[1].name)
        assert record.phases is not None
        phases = msgspec.structs.replace(record.phases, import_s=2.0 * (1.33 if second else 1.0))
        records.append(msgspec.structs.replace(record, position=int(second), phases=phases))
    found = analysis.analyse(study, records)
    (imported,) = (m for m in found.metrics if m.name == "import")
    assert imported.comparison.ratio == pytest.approx(1.0)
    assert imported.contender_mean / imported.baseline_mean == pytest.approx(1.0)
    assert imported.comparison.order == pytest.approx(1.33)
    assert any("1.330 [1.330, 1.330] times the import" in note for note in found.notes)


def test_equal_arms_are_said_to_be_equal_by_their_plans(study: Study, records: list[Record]) -> None:
    def arms_text(changed: Study) -> str:
        (found,) = (note for note in analysis.analyse(changed, records).notes if "(A/A)" in note)
        return found

    one, other = study.arms
    equal = msgspec.structs.replace(
        study, arms=(one, msgspec.structs.replace(other, plan_digest=one.plan_digest))
    )
    assert arms_text(equal) == "Both arms have the same plan: this study measures the method itself (A/A)."


def test_the_report_names_what_differs_between_the_arms(study: Study) -> None:
    """Arms of one engine are not the same: they may differ in the image, the environment or the PATH."""
    one, other = study.arms
    assert arm_differences.sentence(study) == "The arms differ in: engine (native, bubblewrap)."
    bare = msgspec.structs.replace(other, engine=one.engine)
    bare = msgspec.structs.replace(study, arms=(one, bare))
    assert arm_differences.sentence(bare) == "The arms differ in: plan."
    job = study.job
    other_path = msgspec.structs.replace(job, environment={"PATH": "/opt/b", "LANG": "C"}, launcher="srun")
    jobs = (msgspec.structs.replace(job, environment={"PATH": "/opt/a", "LANG": "C"}), other_path)
    assert arm_differences.sentence(msgspec.structs.replace(bare, jobs=jobs)) == (
        "The arms differ in: environment variables (PATH) and launcher."
    )
    image = msgspec.structs.replace(other, engine=one.engine, image_digest="sha256:" + "7" * 64)
    assert arm_differences.sentence(msgspec.structs.replace(study, arms=(one, image))) == (
        "The arms differ in: image."
    )


def test_a_study_until_decided_ends_at_a_planned_look() -> None:
    study = make_study(metered=True, runs=40)
    prove = msgspec.structs.replace(study.job.prove, until_decided=True)
    study = msgspec.structs.replace(study, job=msgspec.structs.replace(study.job, prove=prove))
    records = smooth(study, list(make_records(study)))
    early = analysis.analyse(study, [r for r in records if r.run <= 9])
    assert early.sentence.startswith("not decided yet: between ")
    found = analysis.analyse(study, [r for r in records if r.run <= 11])
    assert (found.verdict.value, found.comparison.runs, found.planned) == ("equivalent", 10, 10)
    assert found.comparison.confidence == pytest.approx(1 - 0.05 / 4)


def test_a_contender_that_fails_alone_is_not_equivalent() -> None:
    study = make_study(metered=True, runs=12)
    records = make_records(study)
    assert analysis.analyse(study, records).verdict is Verdict.EQUIVALENT
    arms = [arm.name for arm in study.arms]
    found = analysis.analyse(study, altered(records, arms[1], [4], exit_code=1))
    assert (found.verdict, found.fails_alone) == (Verdict.UNDECIDED, True)
    assert f"{arms[1]} failed in 1 of 12 runs" in found.sentence
    for arm in (arms[0], None):
        failed = altered(records, arm, [4], exit_code=1)
        assert analysis.analyse(study, failed).verdict is Verdict.EQUIVALENT
