"""A sweep of bad invocations: each fails within 10 s with a message that has a remedy, and leaves nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest
from hostile.sweep import invocations, judge
from hostile.sweep.invocations import Case
from hostile.sweep.surroundings import SURROUNDINGS
from hostile.sweep.worker import Answer, ask

#: Of the real processes one in so many, and in every surrounding so many cases, without --exhaustive.
_REAL_ONE_IN = 60
_SAMPLE = 12
_SHOWN = 4


def _report(found: Iterable[tuple[str, Case, Answer, list[str]]]) -> str:
    """The bad answers by their causes, with what shows them again."""
    causes = defaultdict(list)
    count = 0
    for name, case, answer, faults in found:
        count += 1
        for fault in faults:
            causes[fault].append((name, case, answer))
    lines = []
    for fault, cases in sorted(causes.items(), key=lambda each: -len(each[1])):
        lines.append(f"\n{len(cases)} x {fault}")
        for name, case, answer in cases[:_SHOWN]:
            error = answer.err.decode("utf-8", "replace").strip()
            lines.append(f"  {case.title} ({name}, {answer.wall_s:.1f} s)")
            lines.append(f"    {case.by_hand()[:300]}")
            lines += [f"    {change}" for change in (*answer.changes, *answer.processes)[:3]]
            lines += [f"    | {line[:200]}" for line in error.splitlines()[-4:]]
    return f"{count} bad invocations\n" + "\n".join(lines) if causes else ""


def _judged(
    asked: list[tuple[str, Case, bool]], folder: Path, **how: int
) -> list[tuple[str, Case, Answer, list[str]]]:
    good = {case.title for case in invocations.good()}
    return [
        (
            name,
            case,
            answer,
            judge.faults(case, answer, may_succeed=case.title in good, mute=2 in SURROUNDINGS[name].closed),
        )
        for name, case, answer in ask(asked, folder, **how)
    ]


def test_bad_invocations_are_refused_and_good_ones_are_not(tmp_path: Path) -> None:
    """Every invocation of the sweep differs from a good one by its mistake."""
    found = _judged([("plain", case, False) for case in invocations.good()], tmp_path, workers=1)
    assert {case.title: answer.code for _, case, answer, _ in found if answer.code != 0} == {}
    assert not (report := _report(found)), report


def test_every_bad_invocation_is_answered_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = invocations.every()
    assert len(cases) >= 1500
    found = _judged([("plain", case, False) for case in cases], tmp_path)
    with capsys.disabled():
        print(
            f" {len(found)} bad invocations, {sum(not faults for *_, faults in found)} answered well", end=""
        )
    assert not (report := _report(found)), report


def test_a_real_process_answers_the_same(tmp_path: Path) -> None:
    cases = invocations.every()[::_REAL_ONE_IN]
    answers = [ask([("plain", case, real) for case in cases], tmp_path / str(real)) for real in (False, True)]
    for (_, case, forked), (_, _, real) in zip(*answers, strict=True):
        assert (forked.code, forked.out) == (real.code, real.out), case.by_hand()
