"""The job file of an old job: values with the lines that they come from, and what it leaves out. Pure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from typing import Any

from bareboat_adopt.job import Job
from bareboat_adopt.reading import Note, Value
from bareboat_base import units
from bareboat_base.printable import counted, one_line

_WIDTH = 80
_TABLES = ("topology", "environment", "scheduling", "sweep", "capture")
_HEADS = {
    "wholly": "understood wholly",
    "in part": "understood in part: see the end",
    "refused": "NOT COMPLETE: it does not run before you answer these",
}


def write(job: Job, *, name: str) -> str:
    """The job file. `name`: of the file, as it is shown."""
    lines = _head(job, name)
    for key, value in job.values.items():
        if "." not in key:
            lines.append(_row(key, value, job.verdict == "refused" and key in ("command", "image")))
    if job.mounts:
        lines += ["mounts = [", *(f"  {_toml(each.value)},{_at(each)}" for each in job.mounts), "]"]
    if job.modules:
        lines += [f"modules = {_toml([each.value for each in job.modules])}{_at(job.modules[0])}"]
    for table in _TABLES:
        lines += _table(job, table)
    lines += _notes("Not understood, and not in this file", job.unread)
    lines += _notes("Different here, and why", job.different)
    if job.left:
        numbers = ", ".join(str(line) for line in sorted(set(job.left)))
        lines += [
            "",
            *_comment(f"Left out, since it only prints, checks or waits: {_lines(job.left)} {numbers}."),
        ]
    return "\n".join(lines) + "\n"


def summary(job: Job) -> str:
    """One line for the user."""
    values = {key: value.value for key, value in job.values.items()}
    parts = [_HEADS[job.verdict].partition(":")[0]]
    if "topology.nodes" in values:
        ranks = values["topology.ranks_per_node"]
        parts.append(f"{counted(values['topology.nodes'], 'node')} x {counted(ranks, 'rank')}")
        if gpus := values.get("topology.gpus_per_rank"):
            parts.append(f"{counted(gpus, 'GPU')} each")
    if job.verdict != "refused" and "image" in values:
        parts.append(f"image {one_line(values['image'], limit=60)}")
    if job.unread:
        parts.append(f"{counted(len(job.unread), 'line')} not understood")
    return ", ".join(parts)


def notes(job: Job) -> list[str]:
    """What a user should read: reasons for a refusal, then what was not understood."""
    found = [
        f"{_where(note)}not clear, {subject}: {note.text}"
        for subject, each in job.refusals.items()
        for note in each
    ]
    return [
        one_line(text, limit=300)
        for text in (*found, *(f"{_where(note)}not understood: {note.text}" for note in job.unread))
    ]


def _where(note: Note) -> str:
    return f"line {note.line}: " if note.line else ""


def _lines(found: list[int]) -> str:
    return "line" if len(set(found)) == 1 else "lines"


def _head(job: Job, name: str) -> list[str]:
    old = one_line(job.old, limit=60)
    lines = _comment(f"Job file, written by `bareboat init --from`; {_HEADS[job.verdict]}.")
    lines += _comment(f"Numbers in comments are lines of {old}. Then: bareboat plan {one_line(name)}")
    for subject, found in job.refusals.items():
        for note in found:
            lines += _comment(f"{_where(note)}not clear, {subject}: {note.text}")
    return [*lines, ""]


def _comment(text: str) -> list[str]:
    return textwrap.wrap(
        one_line(text, limit=1000), _WIDTH, initial_indent="# ", subsequent_indent="#   ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _notes(title: str, found: Iterable[Note]) -> list[str]:
    each = sorted(found)
    if not each:
        return []
    return [
        "",
        *_comment(f"{title}:"),
        *(line for note in each for line in _comment(f"- {_where(note)}{note.text}")),
    ]


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _row(key: str, value: Value, is_off: bool = False) -> str:
    name = key.rpartition(".")[2]
    shown = value.value
    if name.endswith("_s"):
        shown = units.written(shown, "s")
    elif name.endswith("_bytes"):
        shown = units.written(shown, "bytes")
    return f"{'# ' if is_off else ''}{name} = {_toml(shown)}{_at(value)}"


def _at(value: Value) -> str:
    return f"  # {value.line}" if value.line else ""


def _table(job: Job, table: str) -> list[str]:
    rows = [_row(key, value) for key, value in job.values.items() if key.startswith(f"{table}.")]
    if table == "environment":
        rows = [f"{name} = {_toml(value.value)}{_at(value)}" for name, value in job.environment.items()]
    if table == "scheduling" and job.options:
        rows += ["options = [", *(f"  {_toml(each.value)},{_at(each)}" for each in job.options), "]"]
    return ["", f"[{table}]", *rows] if rows else []
