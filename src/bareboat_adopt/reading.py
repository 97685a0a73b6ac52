"""What is known of an old job while it is read: values with their lines, and what no key can hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from bareboat_adopt.values import gap, of_shell

#: What a scheduler is asked for has at least one of these.
_AT_LEAST_ONE = ("nodes", "tasks", "tasks_per_node", "cpus_per_task", "tasks_per_gpu", "cpus_per_gpu")


class Note(NamedTuple):
    """A remark on lines of the old job; line 0 is none in particular."""

    line: int
    text: str
    last: int = 0

    @property
    def lines(self) -> range:
        return range(self.line, max(self.line, self.last) + 1)


class Value(NamedTuple):
    value: Any
    line: int


class Request(Struct):
    """What the scheduler was asked for, as far as it is given. `starts_in`: where the script starts; "" is
    its directory, "~" the home directory. `lines`: of each value."""

    scheduler: str = ""
    nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    tasks_per_gpu: int | None = None
    cpus_per_task: int | None = None
    cpus_per_node: int | None = None
    cpus_per_gpu: int | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    memory_of_job: int | None = None
    memory_per_node: int | None = None
    memory_per_cpu: int | None = None
    memory_per_gpu: int | None = None
    memory_per_task: int | None = None
    starts_in: str = ""
    lines: dict[str, int] = field(default_factory=dict)

    def give(self, name: str, value: int, line: int) -> None:
        setattr(self, name, value)
        self.lines[name] = line

    def line(self, beginning: str, default: int) -> int:
        """The line of the first number whose name begins so."""
        return next((line for name, line in self.lines.items() if name.startswith(beginning)), default)


class Reading(Struct):
    """`values`: keys of the job file with their values; `refused`: why the command, the ranks, the GPUs or
    the image are not clear; `unread`: lines, or parts of them, that the job file does not have; `different`:
    what it does otherwise, and why; `left`: lines that print only; `used`: lines that it has."""

    request: Request = field(default_factory=Request)
    values: dict[str, Value] = field(default_factory=dict)
    environment: dict[str, Value] = field(default_factory=dict)
    environment_from: dict[str, int] = field(default_factory=dict)
    mounts: list[Value] = field(default_factory=list)
    modules: list[Value] = field(default_factory=list)
    options: list[Value] = field(default_factory=list)
    refused: dict[Note, None] = field(default_factory=dict)
    unread: dict[Note, None] = field(default_factory=dict)
    different: list[Note] = field(default_factory=list)
    left: set[int] = field(default_factory=set)
    used: set[int] = field(default_factory=set)
    array: tuple[int, ...] = ()

    def set(self, key: str, value: Any, line: int) -> None:
        self.values[key] = Value(value, line)

    def count(self, name: str, value: str, text: str, line: int, request: Request | None = None) -> None:
        """A number of the request, or of a step's. `value`: of GPUs, it may follow a type; `text`: as it is
        written."""
        found = re.fullmatch(r"(?:([A-Za-z][\w.-]*):)?0*(\d{1,7})(?:-\2)?", value)
        if found is None or (found[1] and "gpus" not in name) or (found[2] == "0" and name in _AT_LEAST_ONE):
            subject = "the nodes" if name == "nodes" else "the GPUs" if "gpus" in name else "the ranks"
            self.refuse(subject, line, gap(text) or f"{text} is not one number")
            return
        if found[1]:
            self.skip(line, f"{text}: the type of the GPUs; name it by a constraint or a partition")
        (request or self.request).give(name, int(found[2]), line)

    def set_array(self, found: tuple[tuple[int, ...], int] | None, text: str, line: int) -> None:
        """The numbers of an array, and how many of them run at the same time."""
        if found is None:
            self.refuse("the command", line, gap(text) or f"{text} is not a list of numbers")
            return
        self.array, limit = found
        self.request.lines["array"] = line
        if limit:
            self.differ(line, f"{text}: bareboat submit --at-once {limit}")

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
        """`subject`: the command, the ranks, the GPUs, the image, …"""
        self.refused.setdefault(Note(line, f"{subject}: {gap(reason) or reason}"))

    def skip(self, line: int, text: str, last: int = 0) -> None:
        """Something that the job file does not have."""
        self.unread.setdefault(Note(line, text, last))

    def differ(self, line: int, text: str) -> None:
        if all(note.text != text for note in self.different):
            self.different.append(Note(line, text))

    @property
    def verdict(self) -> str:
        """ "wholly", "in part" or "refused"."""
        return "refused" if self.refused else "in part" if self.unread else "wholly"
