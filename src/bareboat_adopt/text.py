"""The job file of an old job: values with the lines that they come from, and every line that it leaves out.
Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from bareboat_adopt.job import SECRET
from bareboat_adopt.reading import Note, Reading, Value
from bareboat_base import units
from bareboat_base.printable import counted, one_line
from bareboat_base.toml_values import assignment, written

_TABLES = ("topology", "environment", "scheduling", "sweep", "capture")
_HEADS = {
    "wholly": "understood wholly",
    "in part": "understood in part: see the end",
    "refused": "NOT COMPLETE: it does not run before you answer these",
}
_SET = re.compile(rf"\b({SECRET.pattern})=(\"[^\"]*\"|'[^']*'|\S*)", re.IGNORECASE)


def write(reading: Reading, rows: Sequence[str], *, name: str, old: str) -> str:
    """The job file. `rows`: the lines of the old job; `name`: of the file, as it is shown; `old`: of the old
    one."""
    is_refused = bool(reading.refused)
    lines = _comments(
        f"Job file, written by `bareboat init --from`; {_HEADS[reading.verdict]}.",
        f"Numbers in comments are lines of {one_line(old, limit=60)}.",
        f"Then: bareboat plan {one_line(name)}",
        *_refused(reading),
    )
    lines.append("")
    for key, value in reading.values.items():
        if "." not in key:
            lines.append(("# " * (is_refused and key in ("command", "image"))) + _row(key, value))
    if reading.mounts:
        lines += ["mounts = [", *(f"  {written(each.value)},{_at(each)}" for each in reading.mounts), "]"]
    if reading.modules:
        lines += [f"modules = {written([each.value for each in reading.modules])}{_at(reading.modules[0])}"]
    for table in _TABLES:
        lines += _table(reading, table)
    lines += _notes("Not understood, and not in this file", reading.unread, rows)
    lines += _notes("Different here, and why", reading.different, ())
    if left := sorted(reading.left):
        numbers = f"line{'s' * (len(left) > 1)} {', '.join(map(str, left))}"
        lines += ["", *_comments(f"Left out, since it only prints: {numbers}.")]
    return "\n".join(lines) + "\n"


def facts(reading: Reading, old: str) -> dict[str, Any]:
    """The same for programs."""
    return {
        "from": old,
        "scheduler": reading.request.scheduler,
        "understood": reading.verdict,
        **{key.rpartition(".")[2]: value.value for key, value in reading.values.items()},
        "mounts": [each.value for each in reading.mounts],
        "modules": [each.value for each in reading.modules],
        "environment": {name: value.value for name, value in reading.environment.items()},
        "options": [each.value for each in reading.options],
        "refused": [[note.line, _hidden(note.text)] for note in reading.refused],
        "not_understood": [[note.line, _hidden(note.text)] for note in sorted(reading.unread)],
        "different": [[note.line, _hidden(note.text)] for note in sorted(reading.different)],
        "lines": {
            "used": sorted(reading.used),
            "only_print": sorted(reading.left),
            "not_understood": sorted({line for note in reading.unread for line in note.lines}),
        },
    }


def summary(reading: Reading) -> str:
    """One line for the user."""
    values = {key: value.value for key, value in reading.values.items()}
    parts = [_HEADS[reading.verdict].partition(":")[0]]
    if "topology.nodes" in values:
        ranks = counted(values["topology.ranks_per_node"], "rank")
        parts.append(f"{counted(values['topology.nodes'], 'node')} x {ranks}")
    if gpus := values.get("topology.gpus_per_rank"):
        parts.append(f"{counted(gpus, 'GPU')} each")
    if not reading.refused and "image" in values:
        parts.append(f"image {one_line(values['image'], limit=60)}")
    if reading.unread:
        parts.append(f"{counted(len(reading.unread), 'part')} not understood")
    return ", ".join(parts)


def notes(reading: Reading) -> list[str]:
    """What a user should read: reasons for a refusal, then what was not understood."""
    unread = (f"{_where(note)}not understood: {_hidden(note.text)}" for note in sorted(reading.unread))
    return [one_line(text, limit=300) for text in (*_refused(reading), *unread)]


def _refused(reading: Reading) -> list[str]:
    return [f"{_where(note)}not clear, {_hidden(note.text)}" for note in reading.refused]


def _where(note: Note) -> str:
    if not note.line:
        return ""
    return f"line {note.line}: " if len(note.lines) == 1 else f"lines {note.line} to {note.last}: "


def _hidden(text: str) -> str:
    """A text without the values of variables that may be secrets."""
    return _SET.sub(r"\1=…", text)


def _comments(*texts: str) -> list[str]:
    wrapper = textwrap.TextWrapper(
        80, initial_indent="# ", subsequent_indent="#   ", break_long_words=False, break_on_hyphens=False
    )
    return [line for text in texts for line in wrapper.wrap(one_line(text, limit=1000))]


def _notes(title: str, found: Iterable[Note], rows: Sequence[str]) -> list[str]:
    """The notes, and under one of several lines these lines."""
    lines: list[str] = []
    for note in sorted(found):
        lines += _comments(f"- {_where(note)}{_hidden(note.text)}")
        if len(note.lines) > 1:
            shown = ((number, rows[number - 1].rstrip()) for number in note.lines if number <= len(rows))
            lines += [f"#   {number}: {one_line(_hidden(row), limit=300)}" for number, row in shown]
    return ["", *_comments(f"{title}:"), *lines] if lines else []


def _row(key: str, value: Value) -> str:
    name, shown = key.rpartition(".")[2], value.value
    for unit in ("s", "bytes"):
        if name.endswith(f"_{unit}"):
            shown = units.written(shown, unit)
    return assignment(name, shown) + _at(value)


def _at(value: Value) -> str:
    return f"  # {value.line}" if value.line else ""


def _table(reading: Reading, table: str) -> list[str]:
    rows = [_row(key, value) for key, value in reading.values.items() if key.startswith(f"{table}.")]
    if table == "environment":
        rows = [assignment(name, value.value) + _at(value) for name, value in reading.environment.items()]
    if table == "scheduling" and reading.options:
        rows += ["options = [", *(f"  {written(each.value)},{_at(each)}" for each in reading.options), "]"]
    return ["", f"[{table}]", *rows] if rows else []
