"""Goals that no run can reach, because nothing reports them, are found in the warm-up."""

import pytest
from builders import make_records, make_study

from bareboat_base.errors import RunError
from bareboat_study.arms import check_goals


def test_a_goal_that_the_warm_up_did_not_report_is_refused_with_its_results() -> None:
    warm_up = make_records(make_study(runs=2))[0]
    check_goals({"test_accuracy": 0.5}, warm_up.arm, warm_up.results)
    with pytest.raises(RunError, match="bare metal: the run reported no result 'accuracy'") as caught:
        check_goals({"accuracy": 0.5}, "bare metal", warm_up.results)
    assert "test_accuracy" in caught.value.context
    assert "did you mean 'test_accuracy'" in caught.value.remedy
    with pytest.raises(RunError) as caught:
        check_goals({"loss": 1.0}, "container", {})
    assert caught.value.context == "it reported no results"
