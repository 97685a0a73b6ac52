"""Read an old job and write its job file: values with the lines that they come from, and every line that it
leaves out. Nothing of it is run here."""

from __future__ import annotations

import os
import posixpath
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bareboat_adopt import bash, directives, job
from bareboat_adopt.reading import Note, Reading, Value, hidden
from bareboat_adopt.steps import Script
from bareboat_adopt.values import Scope
from bareboat_base import units
from bareboat_base.errors import UsageError
from bareboat_base.files import untrusted
from bareboat_base.printable import counted, one_line
from bareboat_base.toml_values import assignment

#: The exit code for an old job of which no complete job file follows.
REFUSED = 9
_SHEBANG = re.compile(r"#!\s*(?:\S*/env\s+(?:-S\s+)?)?(?:\S*/)?(\S+)([^\n]*)")
#: Bytes of no text, and what builds an image.
_NO_SCRIPT = re.compile(r"[\0-\x08]|\A(?:#.*\n|[ \t]*\n)*(?:FROM\s|bootstrap\s*:)", re.IGNORECASE)
#: Numbers of the request, by the beginning of their names -> keys that have them.
_KEY_OF = {
    "nodes": "topology.nodes", "tasks": "topology.ranks_per_node", "cpus": "topology.cpus_per_rank",
    "gpus": "topology.gpus_per_rank", "memory": "scheduling.mem_per_node_bytes",
}  # fmt: skip
_TABLES = ("topology", "environment", "scheduling", "sweep", "capture")
_HEADS = {
    "wholly": "understood wholly",
    "in part": "understood in part: see the end",
    "refused": 'NOT COMPLETE: it does not run before you answer these, in the places of "?" and []',
}


class Adopted(NamedTuple):
    """`notes`: what the user should read; `verdict`: "wholly", "in part" or "refused"."""

    text: str
    summary: str
    notes: tuple[str, ...]
    verdict: str
    facts: dict[str, Any]


def choose(named: str, here: Path) -> tuple[Path, str]:
    """The script that a path means, and its text. Raises UsageError."""
    path = Path(os.path.abspath(here / os.path.expanduser(named)))
    found = untrusted.read_bytes(path, limit=1 << 20, follow=True).decode(errors="surrogateescape")
    if not found.strip() or _NO_SCRIPT.search(found):
        raise UsageError(f"{one_line(path.name)} is not a script", remedy="bareboat init --from SCRIPT")
    return path, found


def read(path: Path, text: str, target: Path, environment: Mapping[str, str]) -> Adopted:
    """The job file for `target` of the script at this path. `environment`: of the shell that would submit the
    old job, of which only HOME and USER are read."""
    reading = Reading()
    rows = text.replace("\r\n", "\n").split("\n")
    base = os.path.realpath(path.parent)
    directives.read(rows, reading)
    account = {name: environment[name] for name in ("HOME", "USER") if name in environment}
    scope = reading.scope = Scope({**account, **job.variables(reading, base)}, base)
    if re.search(r"[%$]" if scope.is_known("HOME") else r"[%$~]", reading.starts_in):
        reading.refuse("the working directory", reading.request.lines.get("starts_in", 0), reading.starts_in)
    elif reading.starts_in:
        begin = re.sub(r"^~", lambda _: scope.value("HOME"), reading.starts_in)
        scope.directory = posixpath.normpath(posixpath.join(base, begin))
    script = Script(reading, rows)
    _read(text, script, reading)
    if not script.line:
        script.finish()
    job.complete(script.launch, script.line, reading, os.path.realpath(target.parent))
    _name_unused(reading, rows)
    name, old = os.path.relpath(target), path.name
    written, notes = _write(reading, rows, name=name, old=old), tuple(_messages(reading))
    return Adopted(written, _summary(reading), notes, reading.verdict, _facts(reading, old))


def _read(written: str, script: Script, reading: Reading) -> None:
    """Read the commands of the script; where it is not bash, no line is understood."""
    first = _SHEBANG.match(written)
    try:
        if first is not None and first[1] not in ("bash", "sh", "dash", "ksh"):
            raise bash.Unreadable(1, f"a script of {one_line(first[1], limit=40)}")
        script.read(bash.parse(written))
    except bash.Unreadable as fault:
        line, reason = fault.args
        reading.refuse("the command", line, f"not bash: {reason}")
        reading.skip(1, "the script", written.count("\n") + 1)
    if first is not None and first[2].strip() not in ("", "-l", "--login"):
        reading.skip(1, one_line(first[0], limit=80))


def _name_unused(reading: Reading, rows: Sequence[str]) -> None:
    """Name the lines whose numbers are not in the job file."""
    has = {"", *reading.values} - {*reading.open}
    for name, line in reading.request.lines.items():
        key = _KEY_OF.get(name.partition("_")[0], "")
        if reading.request[name] and key not in has and line not in _lines(reading.unread):
            reading.skip(line, one_line(rows[line - 1].strip(), limit=200))


def _write(reading: Reading, rows: Sequence[str], *, name: str, old: str) -> str:
    """The text. `rows`: lines of the old job; `name`: of the file, as it is shown; `old`: of the old one."""
    lines = _comments(
        f"Job file, written by `bareboat init --from`; {_HEADS[reading.verdict]}.",
        f"Numbers in comments are lines of {one_line(old, limit=60)}.",
        f"Then: bareboat plan {one_line(name)}",
        *_refused(reading),
    )
    for table in ("", *_TABLES):
        lines += _table(reading, table)
    lines += _notes("Not understood, and not in this file", reading.unread, rows)
    lines += _notes("Different here, and why", reading.different, ())
    rest = reading.used - _shown(reading) - _lines((*reading.refused, *reading.unread, *reading.different))
    title = "Lines without a number above only print or lead to values"
    lines += ["", *_comments(f"{title}: {', '.join(map(str, sorted(rest)))}")] if rest else []
    return "\n".join(lines) + "\n"


def _facts(reading: Reading, old: str) -> dict[str, Any]:
    """The same for programs."""
    unread = _lines(reading.unread)
    return {
        "from": old,
        "scheduler": reading.scheduler,
        "understood": reading.verdict,
        **{key: [] for key in ("mounts", "modules", "options")},
        **{key.rpartition(".")[2]: value.value for key, value in reading.values.items()},
        "environment": {name: value.value for name, value in reading.environment.items()},
        "refused": [[note.line, note.text] for note in reading.refused],
        "not_understood": [[note.line, note.text] for note in sorted(reading.unread)],
        "different": [[note.line, note.text] for note in sorted(reading.different)],
        "lines": {"used": sorted(reading.used - unread), "not_understood": sorted(unread)},
    }


def _lines(notes: Iterable[Note]) -> set[int]:
    return {line for note in notes for line in range(note.line, note.last + 1)}


def _shown(reading: Reading) -> set[int]:
    """The lines whose numbers stand beside values."""
    values = (*reading.values.values(), *reading.environment.values())
    return {line for value in values for line in (value.line, *value.more)}


def _summary(reading: Reading) -> str:
    """One line for the user."""
    head = _HEADS[reading.verdict].partition(":")[0]
    if {"topology.nodes", "topology.ranks_per_node"} & {*reading.open}:
        return head
    nodes, ranks = (reading.values[f"topology.{key}"].value for key in ("nodes", "ranks_per_node"))
    return f"{head}, {counted(nodes, 'node')} x {counted(ranks, 'rank')}"


def _messages(reading: Reading) -> list[str]:
    """What a user should read: reasons for a refusal, then what was not understood."""
    unread = (f"{_where(note)}not understood: {note.text}" for note in sorted(reading.unread))
    return [one_line(text, limit=300) for text in (*_refused(reading), *unread)]


def _refused(reading: Reading) -> list[str]:
    return [f"{_where(note)}not clear, {note.text}" for note in reading.refused]


def _where(note: Note) -> str:
    where = f"line {note.line}: " if note.last == note.line else f"lines {note.line} to {note.last}: "
    return where if note.line else ""


def _comments(*texts: str) -> list[str]:
    wrapper = textwrap.TextWrapper(
        80, initial_indent="# ", subsequent_indent="#   ", break_long_words=False, break_on_hyphens=False
    )
    return [line for text in texts for line in wrapper.wrap(one_line(text, limit=1000))]


def _notes(title: str, found: Iterable[Note], rows: Sequence[str]) -> list[str]:
    """The notes, and under one of several lines these lines."""
    lines: list[str] = []
    for note in sorted(found):
        lines += _comments(f"- {_where(note)}{note.text}")
        if note.last > note.line:
            shown = hidden("\n".join(rows[note.line - 1 : note.last])).split("\n")
            numbered = enumerate(shown, note.line)
            lines += [f"#   {number}: {one_line(row, limit=300)}" for number, row in numbered]
    return ["", *_comments(f"{title}:"), *lines] if lines else []


def _row(key: str, value: Value, *, is_open: bool) -> str:
    name, shown = key.rpartition(".")[2], value.value
    if (unit := name.rpartition("_")[2]) in ("s", "bytes"):
        shown = units.written(shown, unit)
    if name == "command" and is_open:
        return assignment(name, []) + _at(value) + f", so far: {assignment(name, shown)}" * bool(shown)
    return assignment(name, shown) + _at(value)


def _at(value: Value) -> str:
    lines = ", ".join(map(str, sorted({value.line, *value.more} - {0})))
    return f"  # {lines}" if lines else ""


def _table(reading: Reading, table: str) -> list[str]:
    rows = [
        _row(key, value, is_open=key in reading.open)
        for key, value in reading.values.items()
        if key.rpartition(".")[0] == table
    ]
    if table == "environment":
        rows = [assignment(name, value.value) + _at(value) for name, value in reading.environment.items()]
    return ["", *[f"[{table}]"] * bool(table), *rows] if rows else []
