"""What is known of an old job while it is read: values with their lines, and what no key can hold."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from bareboat.model.variables import looks_secret
from bareboat_adopt.values import Scope, Unclear, gap, of_shell

#: What a scheduler is asked for has at least one of these.
_AT_LEAST_ONE = ("nodes", "tasks", "tasks_per_node", "cpus_per_task", "cpus_per_gpu")
#: What is not clear -> keys that the user must fill in.
_OPEN = {
    "the command": ("command",), "the image": ("image",), "the working directory": ("workdir",),
    "the nodes": ("topology.nodes", "topology.ranks_per_node"), "the ranks": ("topology.ranks_per_node",),
    "the GPUs": ("topology.gpus_per_rank",),
}  # fmt: skip
#: A flag or a variable with its value.
_SET = re.compile(r"(--[\w-]+[= ]|\b\w+=|\blogin )(\"[^\"]*\"|'[^']*'|\S*)")


class Note(NamedTuple):
    """A remark on lines of the old job; line 0 is none in particular."""

    line: int
    text: str
    last: int


class Value(NamedTuple):
    value: Any
    line: int
    more: tuple[int, ...] = ()


class Request(dict[str, int | None]):
    """The numbers that the scheduler was asked for, None for others; `lines`: of each."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}

    def __missing__(self, name: str) -> None:
        return None

    def give(self, name: str, value: int | None, line: int) -> None:
        self[name] = value
        self.lines[name] = line

    def at(self, beginning: str, *default: int) -> tuple[int, ...]:
        """The lines of the numbers whose names begin so."""
        return tuple(line for name, line in self.lines.items() if name.startswith(beginning)) or default


class Reading(Struct):
    """`scheduler`, `starts_in`: of the directives; "~" is the home directory. `values`: keys of the job file
    with their values; `refused`: why the command, the ranks, the GPUs or the image are not clear; `unread`:
    lines, or parts of them, that the job file does not have; `different`: what it does otherwise, and why;
    `open`: keys that the user must fill in; `used`: other lines. `pyxis`: flags of the container in which the
    whole script runs; `containers`: names of udocker's -> images."""

    scheduler: str = ""
    starts_in: str = ""
    request: Request = field(default_factory=Request)
    scope: Scope = field(default_factory=lambda: Scope({}, ""))
    pyxis: list[tuple[str, str]] = field(default_factory=list)
    containers: dict[str, str] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    environment: dict[str, Value] = field(default_factory=dict)
    environment_from: dict[str, int] = field(default_factory=dict)
    refused: dict[Note, None] = field(default_factory=dict)
    open: dict[str, int] = field(default_factory=dict)
    unread: dict[Note, None] = field(default_factory=dict)
    different: list[Note] = field(default_factory=list)
    used: set[int] = field(default_factory=set)
    array: tuple[int, ...] = ()

    def set(self, key: str, value: Any, line: int, *more: int) -> None:
        self.values[key] = Value(value, line, more)

    def add(self, key: str, items: Sequence[str], line: int) -> None:
        before = self.values.get(key, Value([], line))
        self.set(key, [*before.value, *items], before.line, *before.more, *[line] * len(items))

    def count(self, name: str, value: str, text: str, line: int) -> None:
        """A number of the request. `value`: of GPUs, it may follow a type; `text`: as it is written."""
        found = re.fullmatch(r"(?:([A-Za-z][\w.-]*):)?0*(\d{1,7})(?:-\2)?", value)
        if found is None or (found[1] and "gpus" not in name) or (found[2] == "0" and name in _AT_LEAST_ONE):
            subject = "the nodes" if name == "nodes" else "the GPUs" if "gpus" in name else "the ranks"
            self.refuse(subject, line, gap(text) or f"{text} is not one number")
            return
        if found[1]:
            self.skip(line, f"{text}: the type of the GPUs; name it by a constraint or a partition")
        self.request.give(name, int(found[2]), line)

    def pass_on(self, parts: Sequence[str], line: int) -> None:
        """Variables for the job: NAME=VALUE, or NAME with the value of the shell that submits it."""
        for part in parts:
            name, equals, text = part.partition("=")
            if name == "CUDA_VISIBLE_DEVICES" and (gap(text) is not None or not equals):
                self.differ(line, "CUDA_VISIBLE_DEVICES is set for each rank")
            elif equals and gap(text) != of_shell(name):
                self.environment[name] = Value(text, line)
            elif name.upper() not in ("ALL", "NONE", "NIL"):
                self.environment_from[name] = line

    def refuse(self, subject: str, line: int, reason: str) -> None:
        """`subject`: the command, the ranks, the GPUs, the image, …; the first reason of a line is shown."""
        if not any((note.line, note.text.partition(":")[0]) == (line, subject) for note in self.refused):
            self.refused[Note(line, hidden(f"{subject}: {gap(reason) or reason}"), line)] = None
        for key in _OPEN[subject]:
            self.open.setdefault(key, line)

    @contextlib.contextmanager
    def refusing(self, line: int) -> Iterator[None]:
        """Refuse what is Unclear."""
        try:
            yield
        except Unclear as unclear:
            self.refuse(unclear.subject, line, unclear.reason)

    def skip(self, line: int, text: str, last: int = 0) -> None:
        """Something that the job file does not have."""
        self.unread.setdefault(Note(line, hidden(text), max(line, last)))

    def differ(self, line: int, text: str) -> None:
        if all(note.text != hidden(text) for note in self.different):
            self.different.append(Note(line, hidden(text), line))

    @property
    def verdict(self) -> str:
        """ "wholly", "in part" or "refused"."""
        return "refused" if self.refused else "in part" if self.unread else "wholly"


def hidden(text: str) -> str:
    """A text, of as many lines, without the values that may be secrets."""

    def without(found: re.Match[str]) -> str:
        name = found[1].strip("-= ").replace("-", "_")
        is_secret = looks_secret(name) or name == "login"
        return f"{found[1]}…" + "\n" * found[2].count("\n") if is_secret else found[0]

    return _SET.sub(without, text)
