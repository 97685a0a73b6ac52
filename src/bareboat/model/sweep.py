"""Pure: a sweep, which is one job at many points: the points, the placeholders for their values, and the
table that the job script reads.

A sweep has one job script, whose size does not depend on the points: it takes its point's number from its
run's name, SWEEP.NUMBER, and the values from the table's line. Values are never evaluated.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from bareboat_base import ranges
from bareboat_base.errors import UsageError
from bareboat_base.expressions import expression
from bareboat_base.nearest import nearest
from bareboat_base.printable import one_line, quoted

#: Variables for the command: the point's number from 0, and each value under its name in capitals.
PREFIX = "BAREBOAT_SWEEP_"
INDEX = "index"
_MOST_POINTS = 100_000
#: Under [sweep]: the points themselves, instead of lists to combine.
POINTS = "points"

_NAME = expression(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACES = expression(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class Field(Struct, frozen=True):
    """A placeholder for a point's value of this name."""

    name: str


class Sweep(Struct, frozen=True, kw_only=True):
    """`points`: the values of each point as text, in the order of `names`. `at_once`: how many may run at the
    same time; None: no limit but the scheduler's."""

    names: tuple[str, ...]
    points: tuple[tuple[str, ...], ...]
    at_once: int | None = None

    def __post_init__(self) -> None:
        if not self.points:
            raise UsageError("the sweep has no points", remedy="under [sweep], write lr = [0.1, 0.01]")
        _check_count(len(self.points))
        if self.at_once is not None:
            ranges.check(ranges.RANGES["--at-once"], self.at_once, name="--at-once")

    def values(self, index: int) -> dict[str, str]:
        return dict(zip(self.names, self.points[index], strict=True))


def variable(name: str) -> str:
    """The environment variable that holds this value."""
    return PREFIX + name.upper()


def read(table: Mapping[str, Any]) -> Sweep:
    """Read the table [sweep] of a job file: lists, whose combinations are the points, the last list varying
    fastest; or `points`, one table of values each."""
    for name in table:
        if "." in name:
            raise UsageError(
                f"{name!r} under [sweep] is a key of the job, which only a study can vary",
                key="sweep",
                remedy="bareboat prove FILE; or name a value of your own and use it in the command: {NAME}",
            )
    names, rows = expand(table)
    points = tuple(tuple(map(text_of, names, row)) for row in rows)
    return Sweep(names=check_names(names), points=points)


def expand(table: Mapping[str, Any]) -> tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]:
    """The names of a table [sweep], and the values of each point, unchanged."""
    if POINTS not in table:
        names = tuple(table)
        for name, values in table.items():
            if not isinstance(values, list) or not values:
                import json  # here, because every start imports this module

                shown = "an empty list" if values == [] else one_line(repr(values), limit=60)
                raise UsageError(
                    f"sweep.{name} is {shown}; it must be a list of values",
                    remedy=f"write {name} = [{json.dumps(values)}]"
                    if isinstance(values, str | int | float)
                    else f"write {name} = [0.1, 0.01]",
                )
        _check_count(math.prod(len(values) for values in table.values()))
        for name, values in table.items():
            for value in values:
                text_of(name, value)
        return names, itertools.product(*table.values()) if names else ()
    if len(table) > 1:
        raise UsageError(
            "[sweep] has both points and lists of values",
            remedy="write the lists' combinations out under points, or remove points",
        )
    rows = table[POINTS]
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) and row for row in rows):
        raise UsageError(
            "sweep.points is not a list of points", remedy="write points = [{lr = 0.1}, {lr = 0.01}]"
        )
    names = tuple(rows[0])
    for row in rows:
        if set(row) != set(names):
            raise UsageError(
                f"the points of the sweep have different values: {', '.join(names)} and {', '.join(row)}",
                remedy="give each point a value of each name",
            )
    return names, (tuple(row[name] for name in names) for row in rows)


def _check_count(points: int) -> None:
    """Check before they are built: few lists of a hundred values give a million combinations."""
    if points > _MOST_POINTS:
        count = f"{points:,}" if points < 10**18 else "more than 10^18"
        raise UsageError(
            f"the sweep has {count} points; at most {_MOST_POINTS:,} are supported",
            remedy="shorten the lists under [sweep], or write several job files",
        )


def check_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names that placeholders can have, all different. Raises UsageError."""
    seen: dict[str, str] = {}
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{quoted(name)} under [sweep] is not a name",
                remedy="rename it, of letters, digits and underscores"
                + (f": {meant}" if _NAME.fullmatch(meant := re.sub(r"\W+", "_", name)) else ""),
            )
        if name.lower() == INDEX or name.lower() in seen:
            other = seen.get(name.lower())
            raise UsageError(
                f"{name!r} under [sweep] is the name of the number of each point"
                if other is None
                else f"{other!r} and {name!r} under [sweep] set the same variable, {variable(name)}",
                remedy=f"rename {name}, for example to {name}_2",
            )
        seen[name.lower()] = name
    return names


def text_of(name: str, value: Any) -> str:
    """A value as text. Raises UsageError for other kinds of values."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        raise UsageError(
            f"sweep.{name} has {one_line(repr(value), limit=60)}; "
            "a value must be text, a number, true or false",
            remedy=f'write {name} = ["a", "b"]',
        )
    if "\0" in value:
        raise UsageError(
            f"a value of sweep.{name} holds a NUL byte, which cannot be passed to a program",
            remedy=f"write the values to files, and their paths under sweep.{name}",
        )
    return value


def parse(text: str, names: Sequence[str]) -> tuple[str | Field, ...]:
    """Parse a word with placeholders. `{lr}` is the value of lr; `{{` and `}}` are braces."""
    parts: list[str | Field] = []
    position = 0
    for found in _BRACES.finditer(text):
        parts.append(text[position : found.start()])
        position = found.end()
        if found[0] in ("{{", "}}"):
            parts.append(found[0][0])
        elif found[1] is None:
            name = re.match(r"\w*", text[found.end() :])
            meant = f"{{{name[0]}}}, or " if name and name[0] in (*names, INDEX) and found[0] == "{" else ""
            raise UsageError(
                f"single brace in {quoted(text)}: in a sweep, braces mark placeholders",
                remedy=f"write {meant}{found[0] * 2} for a brace",
            )
        elif found[1] not in (*names, INDEX):
            near = nearest(found[1], (*names, INDEX))
            raise UsageError(
                f"no {found[0]} under [sweep] for {text!r}" + (f"; did you mean {{{near}}}?" if near else ""),
                remedy=f"use one of:  {', '.join(f'{{{name}}}' for name in (*names, INDEX))}; "
                f"or {{{{{found[1]}}}}} for braces",
            )
        else:
            parts.append(Field(found[1]))
    parts.append(text[position:])
    return tuple(part for part in parts if part != "")


def fill(text: str, sweep: Sweep, index: int) -> str:
    """The word with this point's values."""
    values = {**sweep.values(index), INDEX: str(index)}
    return "".join(part if isinstance(part, str) else values[part.name] for part in parse(text, sweep.names))


def table(sweep: Sweep) -> bytes:
    """The table: a line of names, then one line per point, values between bars. Special characters are
    escaped for bash's `printf %b`."""
    lines = [sweep.names, *(tuple(map(_encoded, point)) for point in sweep.points)]
    return "".join("|".join(line) + "\n" for line in lines).encode("ascii")


def _encoded(text: str) -> str:
    return "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in "\\|" else f"\\0{byte:03o}"
        for byte in text.encode("utf-8", "surrogateescape")
    )


def point_text(sweep: Sweep, index: int) -> str:
    """A point's values, for display."""
    return " ".join(f"{name}={value}" for name, value in sweep.values(index).items())
