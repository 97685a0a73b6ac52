"""Pure: the metrics of a run, from what its program printed and wrote. `matching` searches the output."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from bareboat.model import MetricRequest, kept_result
from bareboat.model.metric import compiled
from bareboat.model.record import NotFinite
from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line, quoted

#: A longer curve is refused: it would make the records too large to read.
MOST_POINTS = 100_000
MOST_PATTERNS = 50
_SHOWN = 3

Curve = tuple[tuple[float | NotFinite, float | NotFinite], ...]

_TAKEN: dict[str, Callable[[Sequence[float]], float]] = {
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "min": min,
    "max": max,
    "mean": statistics.fmean,
    "sum": math.fsum,
}


class MissingMetricError(UsageError):
    """The source of the metric has no value of it at all."""


def number(metric: MetricRequest, texts: Sequence[str]) -> float:
    """The value of the texts that the pattern matches. Raises UsageError where they are several without
    `take`, or no numbers; MissingMetricError where there are none."""
    if not texts:
        raise MissingMetricError(
            f"metrics.{metric.name}: the pattern matches nothing in the output",
            context=f"pattern: {metric.pattern}",
            remedy="compare the pattern with the program's output; '.' matches any character, '\\.' a dot",
        )
    values = [_number(metric, text) for text in texts]
    if metric.take != "only":
        return _TAKEN[metric.take](values)
    if len(values) > 1:
        some = ", ".join(one_line(str(text), limit=40) for text in texts[:_SHOWN])
        raise UsageError(
            f"metrics.{metric.name}: the pattern matches {len(values)} times in the output: {some}"
            + (", …" if len(texts) > _SHOWN else ""),
            context=f"pattern: {metric.pattern}",
            remedy='make the pattern match one line, or set take = "last" (or first, min, max, mean, sum)',
        )
    return values[0]


def curve(metric: MetricRequest, texts: Sequence[Sequence[str]]) -> Curve:
    """The points that the pattern matches. Raises UsageError where they are not numbers, or too many;
    MissingMetricError where there are none."""
    if len(texts) > MOST_POINTS:
        raise UsageError(
            f"metrics.{metric.name}: the series has more than {MOST_POINTS:,} points",
            remedy="make the program print fewer, or the pattern match fewer",
        )
    points = [(_number(metric, x), _number(metric, y)) for x, y in texts]
    if not points:
        raise MissingMetricError(
            f"metrics.{metric.name}: the series matches nothing in the output",
            context=f"series: {metric.series}",
            remedy="compare the pattern with the program's output",
        )
    return tuple((kept_result(x), kept_result(y)) for x, y in points)


def of_options(given: Sequence[str]) -> dict[str, str]:
    """The patterns of `--metric NAME=PATTERN`. Raises UsageError."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, pattern = text.partition("=")
        wrong = fault(name, pattern) if equals else "has no ="
        if wrong is None and name in found:
            wrong = "is given twice"
        if wrong is not None:
            raise UsageError(
                f"--metric {quoted(text, limit=200)} {wrong}",
                remedy="--metric 'images_per_s=total images/sec: ([0-9.]+)'",
            )
        found[name] = pattern
    if len(found) > MOST_PATTERNS:
        raise UsageError(f"--metric is given {len(found)} times", remedy=f"give at most {MOST_PATTERNS}")
    return found


def fault(name: str, pattern: str) -> str | None:
    """What is wrong with a pattern of a lock, as the end of a sentence; None: nothing."""
    if not re.fullmatch(r"[A-Za-z_][\w.-]{0,99}", name, re.ASCII):
        return "has no valid name: use letters, digits and underscores"
    try:
        groups = compiled(pattern).groups
    except ValueError as error:
        return str(error)
    return None if groups == 1 else f"has {groups} groups; it must have one, around the number"


def finite(texts: Sequence[str]) -> list[float | NotFinite]:
    """The texts that are finite numbers, which may have commas between thousands."""
    found: list[float | NotFinite] = []
    for text in texts:
        try:
            value = float(text.replace(",", ""))
        except ValueError:
            continue
        if math.isfinite(value):
            found.append(value)
    return found


def entry(metric: MetricRequest, content: bytes) -> float:
    """The number at the metric's key in a JSON file. Raises UsageError; MissingMetricError where there is
    none."""
    assert metric.key is not None
    try:
        value: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"metrics.{metric.name}: {metric.file} is not JSON: {one_line(str(error), limit=100)}",
            remedy="check what the program writes to it; only the file's whole content is read",
        ) from None
    for part in _parts(metric.key):
        found, value = _below(value, part)
        if not found:
            raise MissingMetricError(
                f"metrics.{metric.name}: {metric.file} has no {metric.key!r}; {part!r} is missing",
                context=f"there: {_keys(value)}",
                remedy='set key to a name, or to a path of names and numbers: "/jobs/0/read/iops"',
            )
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        kind = "a list" if isinstance(value, list) else "a table" if isinstance(value, dict) else repr(value)
        raise UsageError(
            f"metrics.{metric.name}: {metric.key!r} in {metric.file} is {kind}, not a number",
            context=f"there: {_keys(value)}" if isinstance(value, list | dict) else "",
            remedy="set key to the path of a number",
        )
    return _number(metric, value)


def _parts(key: str) -> list[str]:
    """The steps of a JSON pointer (RFC 6901), or of a plain name."""
    if not key.startswith("/"):
        return [key]
    return [part.replace("~1", "/").replace("~0", "~") for part in key[1:].split("/")]


def _below(value: Any, part: str) -> tuple[bool, Any]:
    """Whether the value has this part, and the part; or the value itself."""
    if isinstance(value, dict) and part in value:
        return True, value[part]
    if isinstance(value, list) and re.fullmatch(r"[0-9]{1,9}", part) and int(part) < len(value):
        return True, value[int(part)]
    return False, value


def _keys(value: Any) -> str:
    if isinstance(value, dict):
        names = [one_line(str(name), limit=40) for name in list(value)[:12]]
        return ", ".join(names) + (", …" if len(value) > 12 else "") if names else "an empty table"
    if isinstance(value, list):
        return f"a list of {len(value)}; the first is /0" if value else "an empty list"
    return one_line(repr(value), limit=60)


def _number(metric: MetricRequest, text: Any) -> float:
    try:
        return float(text)
    except (TypeError, ValueError, OverflowError):
        shown = one_line(str(text), limit=60)
        raise UsageError(
            f"metrics.{metric.name}: {shown!r} is not a number",
            remedy=r"write a pattern whose group holds digits only: ([0-9.]+)",
        ) from None
