"""Goals that no run can reach, because nothing reports them, are found before a study is measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import make_job, make_records, make_study

from bareboat.model import Job, ProveRequest
from bareboat_base.errors import RunError
from bareboat_study import goals, studyfile
from bareboat_study import point_plans as studies

SCRIPT = "from bareboat_meter import Meter\nmeter = Meter()\nmeter.result(slope=1.0)\nmeter.result(loss=2)\n"


def job(folder: Path, goal: str, *, script: str = SCRIPT, **prove: object) -> Job:
    (folder / "train.py").write_text(script)
    request = ProveRequest(goals={goal: 0.5}, **prove)  # type: ignore[arg-type]
    return make_job(command=("python", "-u", "train.py"), workdir=str(folder), prove=request)


def test_a_goal_that_the_script_does_not_report_is_noted_with_the_likeliest_name(tmp_path: Path) -> None:
    (text,) = goals.unreported(job(tmp_path, "slop"), [])
    assert text == (
        "the script reports no result 'slop', which is a goal; did you mean 'slope'? "
        "Correct goals under [prove], or report it: meter.result(slop=VALUE)"
    )
    (text,) = goals.unreported(job(tmp_path, "accuracy"), [])
    assert "did you mean" not in text
    assert list(goals.unreported(job(tmp_path, "accuracy"), ["accuracy"])) == []


@pytest.mark.parametrize("more", ["", "pass\n", "meter.result(**values)\n", "import other\n"])
def test_a_goal_that_the_script_may_report_is_not_noted(tmp_path: Path, more: str) -> None:
    (tmp_path / "other.py").write_text("def report(meter, value):\n    meter.result(slop=value)\n")
    script = SCRIPT + more if more not in ("", "pass\n") else more
    assert list(goals.unreported(job(tmp_path, "slop", script=script), [])) == []
    assert list(goals.unreported(job(tmp_path, "slope"), [])) == []


def test_few_repeats_and_unreported_goals_are_noted_before_a_study(tmp_path: Path) -> None:
    request = studyfile.study_of_job(job(tmp_path, "slop", repeats=4))
    few, goal = studies._doubts(request)
    assert few == (
        "4 runs are too few to decide; use at least 8, better 12: --repeats 10, or repeats under [prove]"
    )
    assert "did you mean 'slope'" in goal
    for prove in ({"repeats": 8}, {"repeats": 2, "within_s": 60.0}):
        assert list(studies._doubts(studyfile.study_of_job(job(tmp_path, "slope", **prove)))) == []


def test_a_goal_that_the_warm_up_did_not_report_is_refused_with_its_results() -> None:
    study = make_study(runs=2)
    warm_up = [record for record in make_records(study) if record.warm_up]
    goals.check_records({"test_accuracy": 0.5}, warm_up)
    with pytest.raises(RunError, match="bare metal: the run reported no result 'accuracy'") as caught:
        goals.check_records({"accuracy": 0.5}, warm_up)
    assert "test_accuracy" in caught.value.context
    assert "did you mean 'test_accuracy'" in caught.value.remedy
    with pytest.raises(RunError) as caught:
        goals.check({"loss": 1.0}, "container", {})
    assert caught.value.context == "it reported no results"
