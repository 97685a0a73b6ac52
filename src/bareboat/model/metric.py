"""Pure: the metrics of a study, which are read from what an unmodified program prints or writes."""

from __future__ import annotations

import re

from msgspec import Struct

from bareboat.model.variables import check_name
from bareboat_base.errors import UsageError

BETTER = ("higher", "lower")
#: How one number comes from several matches of a pattern.
TAKE = ("only", "first", "last", "min", "max", "mean", "sum")
#: The groups of a series.
AXES = ("x", "y")
LONGEST_PATTERN = 1000


def compiled(pattern: str) -> re.Pattern[str]:
    """A regular expression for a program's output. Raises ValueError with the fault, as the end of
    a sentence."""
    if not pattern or len(pattern) > LONGEST_PATTERN:
        raise ValueError(f"is empty or longer than {LONGEST_PATTERN} characters")
    try:
        return re.compile(pattern, re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is not a regular expression: {error}") from None


class MetricRequest(Struct, frozen=True, kw_only=True):
    """A number, or a curve, of each run. It has one source: a regular expression over the output (`pattern`
    for a number, `series` with the groups x and y for a curve), or a JSON `file` that the program writes,
    with the `key` of the number there (a name, or a JSON pointer). `take`: which of several matches counts;
    "only" refuses several. `x`: what the x of a series is, for display. The `primary` metric gives the
    verdict."""

    name: str
    pattern: str | None = None
    series: str | None = None
    file: str | None = None
    key: str | None = None
    take: str = "only"
    unit: str = ""
    x: str = ""
    better: str = "higher"
    primary: bool = False

    def __post_init__(self) -> None:
        table = f"metrics.{self.name}"
        check_name("the metric", self.name, key="metrics")
        for name, value in (("unit", self.unit), ("x", self.x)):
            if value:
                check_name(f"{table}.{name}", value, key=f"{table}.{name}")
        sources = [name for name in ("pattern", "series", "file") if getattr(self, name) is not None]
        if len(sources) != 1:
            has = "none" if not sources else " and ".join(sources)
            raise UsageError(
                f"{table} must have one of pattern, series and file; it has {has}",
                key=table,
                remedy=f"write under [{table}]: pattern = 'images/sec: ([0-9.]+)'",
            )
        for name, allowed in (("better", BETTER), ("take", TAKE)):
            if getattr(self, name) not in allowed:
                raise UsageError(
                    f"{table}.{name} is {getattr(self, name)!r}; it must be one of: {', '.join(allowed)}",
                    key=f"{table}.{name}",
                    remedy=f'set {name} = "{allowed[0]}" under [{table}]',
                )
        if (self.file is None) != (self.key is None):
            raise UsageError(
                f"{table} needs both file and key: the JSON file, and the place of the number in it",
                key=table,
                remedy=f'write under [{table}]: file = "result.json", key = "/jobs/0/read/iops"',
            )
        if self.file == "" or self.key == "":
            raise UsageError(
                f"{table}.{'file' if self.file == '' else 'key'} is empty",
                key=table,
                remedy=f'write under [{table}]: file = "result.json", key = "/jobs/0/read/iops"',
            )
        if self.x and self.series is None:
            raise UsageError(
                f"{table}.x is the name of a series' x axis, and {table} is a number",
                key=f"{table}.x",
                remedy="remove x, or use series",
            )
        self._check_patterns(table)

    def _check_patterns(self, table: str) -> None:
        if self.pattern is not None:
            groups = self._compiled("pattern", self.pattern).groups
            if groups != 1:
                raise UsageError(
                    f"{table}.pattern has {groups} groups; it must have one, around the number",
                    key=f"{table}.pattern",
                    remedy=r"use ( ) once, and (?: ) for other groups: 'images/sec: ([0-9.]+)'",
                )
        if self.series is not None:
            if not set(AXES) <= set(self._compiled("series", self.series).groupindex):
                raise UsageError(
                    f"{table}.series must have the groups x and y",
                    key=f"{table}.series",
                    remedy=r"write series = 'step (?P<x>\d+) loss (?P<y>[0-9.e+-]+)'",
                )
            if self.primary or self.take != "only":
                what = "primary = true" if self.primary else "take"
                raise UsageError(
                    f"{table} is a series: it is kept as a curve and not compared, so {what} does not apply",
                    key=table,
                    remedy=f"remove {what.partition(' ')[0]}, or use pattern",
                )

    @property
    def is_curve(self) -> bool:
        return self.series is not None

    @property
    def higher_is_better(self) -> bool:
        return self.better == "higher"

    def _compiled(self, name: str, pattern: str) -> re.Pattern[str]:
        try:
            return compiled(pattern)
        except ValueError as error:
            raise UsageError(
                f"metrics.{self.name}.{name} {error}",
                key=f"metrics.{self.name}.{name}",
                remedy="write it in single quotes, with a backslash before each special character",
            ) from None


def primary_of(metrics: tuple[MetricRequest, ...]) -> MetricRequest | None:
    """The metric of the verdict: the one that is marked, else the first number; None: no number is declared.

    Raises UsageError where several are marked, or two have the same name.
    """
    marked = [metric for metric in metrics if metric.primary]
    if len(marked) > 1:
        raise UsageError(
            f"several metrics have primary = true: {', '.join(metric.name for metric in marked)}",
            key=f"metrics.{marked[1].name}.primary",
            remedy="keep it in one of them: that metric gives the verdict",
        )
    numbers = [metric for metric in metrics if not metric.is_curve]
    return next(iter(marked or numbers), None)
