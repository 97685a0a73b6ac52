"""The results that a study's goals name: whether the program reports them, before and in the warm-up."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bareboat.model import Job, Record
from bareboat.runs import code
from bareboat_base.errors import RunError
from bareboat_base.nearest import nearest
from bareboat_base.printable import one_line


def unreported(job: Job, metrics: Collection[str]) -> Iterator[str]:
    """Warnings of goals that no `meter.result` of the job's script reports, and no metric of the study. A
    script that reports nothing itself is not judged."""
    known = code.results(job) if job.prove.goals else ()
    if not known or None in known:
        return
    names = {*metrics, *filter(None, known)}
    for goal in sorted(job.prove.goals.keys() - names):
        yield f"the script reports no result {goal!r}, which is a goal; {_remedy(goal, names)}"


def check(goals: Collection[str], arm: str, results: Collection[str]) -> None:
    """Raise RunError for a goal that a run which ended well did not report."""
    for goal in sorted(set(goals) - set(results)):
        reported = ", ".join(one_line(name, limit=60) for name in sorted(results)[:20])
        raise RunError(
            f"{arm}: the run reported no result {goal!r}, which is a goal",
            context=f"its results: {reported}" if results else "it reported no results",
            remedy=_remedy(goal, results),
        )


def check_records(goals: Collection[str], records: Collection[Record]) -> None:
    """The same for each arm of a warm-up."""
    for record in records:
        check(goals, record.arm, record.results)


def _remedy(goal: str, names: Collection[str]) -> str:
    guess = nearest(goal, names)
    correct = f"did you mean {guess!r}? Correct" if guess else "correct"
    return f"{correct} goals under [prove], or report it: meter.result({goal}=VALUE)"
