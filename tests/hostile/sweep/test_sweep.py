"""A sweep of bad invocations: each fails within 10 s with a message that has a remedy, and leaves nothing."""

import contextlib
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hostile.sweep import invocations, judge
from hostile.sweep.invocations import Case
from hostile.sweep.surroundings import EVERY, ODD, SURROUNDINGS, TOOLS
from hostile.sweep.worker import Asked, Workers

pytestmark = pytest.mark.thorough

#: Without --exhaustive: of all invocations one in so many, of the real processes one in so many, and in every
#: surroundings so many bad invocations, which are others in each.
_ONE_IN = 12
_REAL_ONE_IN = 120
_SAMPLE = 6
_RIGHT_ONE_IN = 16
_SHOWN = 4

PLACES = [name for name, each in SURROUNDINGS.items() if not each.odd and name != "plain"]


@contextlib.contextmanager
def _started(count: int, wrapper: str = "plain") -> Iterator[Workers]:
    """Workers below a directory with a short path."""
    with tempfile.TemporaryDirectory(prefix="s-", ignore_cleanup_errors=True) as folder:
        made = Workers(Path(folder), count, wrapper=wrapper)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with _started(2) as made:
        yield made


@pytest.fixture(scope="module")
def many(request: pytest.FixtureRequest, exhaustive: bool) -> Iterator[Workers]:
    """For tools that hang, which takes time and no work: a worker for each of several."""
    if not exhaustive:
        yield request.getfixturevalue("workers")
        return
    with _started(4) as made:
        yield made


def _judge(workers: Workers, asked: Sequence[Asked], good: Sequence[Case] = ()) -> str:
    """Have all answered; a report of the bad answers, with what shows them again. `good`: right invocations,
    which may succeed."""
    right = {case.title for case in good}
    causes = defaultdict(list)
    bad = 0
    for name, case, answer in workers.ask(asked):
        found = judge.faults(
            case,
            answer,
            may_succeed=case.title in right,
            elsewhere=name != "plain",
            mute=2 in SURROUNDINGS[name].closed,
        )
        bad += bool(found)
        for fault in found:
            causes[fault].append((name, case, answer))
    lines = [f"{len(asked)} invocations, {bad} of them answered badly"]
    for fault, cases in sorted(causes.items(), key=lambda each: -len(each[1])):
        lines.append(f"\n{len(cases)} x {fault}")
        for name, case, answer in cases[:_SHOWN]:
            error = answer.err.decode("utf-8", "replace").strip()
            lines.append(f"  {case.title} ({name}, {answer.wall_s:.1f} s)")
            lines.append(f"    {case.by_hand()[:300]}")
            lines += [f"    {change}" for change in (*answer.changes, *answer.processes)[:3]]
            lines += [f"    | {line[:200]}" for line in error.splitlines()[-4:]]
    return "\n".join(lines) if bad else ""


def _sample(number: int, *, exhaustive: bool) -> list[Case]:
    cases = invocations.every()
    step = 1 if exhaustive else len(cases) // _SAMPLE
    return cases[number * 7 % step :: step]


def test_the_good_invocations_succeed(workers: Workers) -> None:
    """Each bad invocation differs from one of these by its mistake."""
    answers = workers.ask([("plain", case, False) for case in invocations.good()])
    assert {case.title: answer.err for _, case, answer in answers if answer.code != 0} == {}


def test_every_bad_invocation_is_answered_well(
    workers: Workers, exhaustive: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = invocations.every()
    assert len(cases) >= 1500
    cases = cases[:: 1 if exhaustive else _ONE_IN]
    with capsys.disabled():
        print(f" {len(cases)} bad invocations", end="")
    assert not (report := _judge(workers, [("plain", case, False) for case in cases])), report


def test_a_real_process_answers_the_same(workers: Workers, exhaustive: bool) -> None:
    cases = invocations.every()[:: 1 if exhaustive else _REAL_ONE_IN]
    forked, real = (workers.ask([("plain", case, each) for case in cases]) for each in (False, True))
    for (_, case, one), (_, _, other) in zip(forked, real, strict=True):
        # A plan warns of the load, which is another at each moment.
        outs = [re.sub(rb" *warning: the machine is busy.*\n", b"", each.out) for each in (one, other)]
        assert (one.code, outs[0]) == (other.code, outs[1]), case.by_hand()


@pytest.mark.parametrize("name", PLACES)
def test_bad_surroundings_cost_one_clear_message(workers: Workers, exhaustive: bool, name: str) -> None:
    number = PLACES.index(name)
    good = invocations.good()[:: 1 if exhaustive else 2]
    cases = [*good, *_sample(number, exhaustive=exhaustive)]
    asked = [(name, case, False) for case in cases]
    if SURROUNDINGS[name].wrapper:
        with _started(1, wrapper=name) as own:
            report = _judge(own, asked, good)
    else:
        report = _judge(workers, asked, good)
    assert not report, report


@pytest.mark.parametrize("what", ODD)
def test_tools_that_answer_oddly_cost_one_clear_message(many: Workers, exhaustive: bool, what: str) -> None:
    """With --exhaustive, all invocations run where every tool is odd, and a sample with each odd tool.
    Without it, samples where every tool is odd in two of the four ways, and one tool in the other two."""
    asked: list[Asked] = []
    good: list[Case] = []
    subjects = [(tool, (scheduler,)) for tool, scheduler in TOOLS.items()]
    subjects.append((EVERY, tuple(dict.fromkeys(TOOLS.values()))))
    if not exhaustive:
        number = list(ODD).index(what)
        subjects = subjects[number : number + 1] if number % 2 else subjects[-1:]
    for number, (tool, schedulers) in enumerate(subjects):
        right = [case for scheduler in schedulers for case in invocations.of_tools(scheduler)]
        right = right[:: 1 if exhaustive else _RIGHT_ONE_IN]
        cases = [*right, *_sample(number, exhaustive=exhaustive and tool == EVERY)]
        asked += [(f"{tool} {what}", case, False) for case in cases]
        good += right
    assert not (report := _judge(many, asked, good)), report
