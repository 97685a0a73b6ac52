"""Corrections of a Dockerfile: the edits of findings, applied together. Pure."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable

from bareboat_images.lint.rule import Edit, Finding

#: One correction may make another possible.
_MOST_ROUNDS = 10


def fixed(text: str, find: Callable[[str], list[Finding]]) -> tuple[str, list[Finding]]:
    """The corrected text, and the findings that were corrected. `find`: returns the findings of a text."""
    done: list[Finding] = []
    without: set[str] = set()
    found = find(text)
    for _ in range(_MOST_ROUNDS):
        chosen = _compatible(each for each in found if each.edits and each.code not in without)
        after = applied(text, [edit for each in chosen for edit in each.edits])
        if not chosen or after == text:
            break
        again = find(after)
        before, left = (Counter(each.code for each in listed) for listed in (found, again))
        useless = {each.code for each in chosen if left[each.code] >= before[each.code]}
        if useless:  # an edit that does not help is not applied
            without |= useless
            continue
        text, found = after, again
        done += chosen
    return text, done


def applied(text: str, edits: Iterable[Edit]) -> str:
    """Apply edits that do not overlap to the text; insertions at one position keep their order."""
    for edit in sorted(edits, key=lambda each: each.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def diff(before: str, after: str, name: str) -> str:
    """The change as a unified diff."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _compatible(findings: Iterable[Finding]) -> list[Finding]:
    """The findings whose edits do not touch those of an earlier one. The others follow in the next round."""
    chosen: list[Finding] = []
    taken: list[Edit] = []
    for each in findings:
        if not any(_touch(edit, other) for edit in each.edits for other in taken):
            chosen.append(each)
            taken += each.edits
    return chosen


def _touch(one: Edit, other: Edit) -> bool:
    return one.start <= other.end and other.start <= one.end
