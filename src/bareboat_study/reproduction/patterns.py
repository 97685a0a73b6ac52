"""Pure: metrics of unmodified programs, found in their output by regular expressions with one group."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from bareboat.model.record import NotFinite
from bareboat_base.errors import UsageError

MOST_PATTERNS = 50
_LONGEST = 500
#: Of an output.
_MOST_MATCHES = 100_000


def read(given: list[str]) -> dict[str, str]:
    """The patterns of `--metric NAME=PATTERN`. Raises UsageError."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, pattern = text.partition("=")
        wrong = fault(name, pattern) if equals else "has no ="
        if wrong is None and name in found:
            wrong = "is given twice"
        if wrong is not None:
            raise UsageError(
                f"--metric {text[:200]!r} {wrong}",
                remedy="--metric 'images_per_s=total images/sec: ([0-9.]+)'",
            )
        found[name] = pattern
    if len(found) > MOST_PATTERNS:
        raise UsageError(f"--metric is given {len(found)} times", remedy=f"give at most {MOST_PATTERNS}")
    return found


def fault(name: str, pattern: str) -> str | None:
    """What is wrong with a pattern, as the end of a sentence; None: nothing."""
    if not re.fullmatch(r"[A-Za-z_][\w.-]{0,99}", name, re.ASCII):
        return "has no valid name: use letters, digits and underscores"
    if not pattern or len(pattern) > _LONGEST:
        return f"is empty or longer than {_LONGEST} characters"
    try:
        groups = re.compile(pattern, re.MULTILINE).groups
    except (re.error, OverflowError, RecursionError) as error:
        return f"is not a regular expression: {error}"
    return None if groups == 1 else f"has {groups} groups; it must have one, around the number"


def find(patterns: Mapping[str, str], output: str) -> dict[str, list[float | NotFinite]]:
    """The numbers that each pattern finds, in order. Matches that are no finite numbers are left out."""
    found: dict[str, list[float | NotFinite]] = {}
    for name, pattern in patterns.items():
        values: list[float | NotFinite] = []
        for match in re.finditer(pattern, output, re.MULTILINE):
            try:
                value = float((match[1] or "").replace(",", ""))
            except ValueError:
                continue
            if math.isfinite(value):
                values.append(value)
            if len(values) == _MOST_MATCHES:
                break
        if values:
            found[name] = values
    return found
