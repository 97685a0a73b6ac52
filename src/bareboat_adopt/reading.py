"""What is known of an old job while it is read: values with their lines, and what no key can hold."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import Struct, field


class Note(NamedTuple):
    """A remark on a line of the old job; line 0 is none in particular."""

    line: int
    text: str


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
    memory_per_node: int | None = None
    memory_per_cpu: int | None = None
    memory_per_gpu: int | None = None
    memory_per_task: int | None = None
    starts_in: str = ""
    lines: dict[str, int] = field(default_factory=dict)

    def give(self, name: str, value: int, line: int) -> None:
        setattr(self, name, value)
        self.lines[name] = line


class Reading(Struct):
    """`values`: keys of the job file with their values; `unread`: what was not understood; `different`: what
    the job file does otherwise, and why; `left`: lines that print or check only; `refusals`: why the command,
    the ranks, the GPUs or the image are not clear, by that subject; `shifter`: the options that Shifter
    adds to sbatch and srun."""

    request: Request = field(default_factory=Request)
    values: dict[str, Value] = field(default_factory=dict)
    environment: dict[str, Value] = field(default_factory=dict)
    mounts: list[Value] = field(default_factory=list)
    modules: list[Value] = field(default_factory=list)
    options: list[Value] = field(default_factory=list)
    unread: list[Note] = field(default_factory=list)
    different: list[Note] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    refusals: dict[str, list[Note]] = field(default_factory=dict)
    array: tuple[int, ...] = ()
    shifter: dict[str, Value] = field(default_factory=dict)

    def set(self, key: str, value: Any, line: int) -> None:
        self.values[key] = Value(value, line)

    def refuse(self, subject: str, line: int, reason: str) -> None:
        notes = self.refusals.setdefault(subject, [])
        if Note(line, reason) not in notes:
            notes.append(Note(line, reason))

    def skip(self, line: int, text: str) -> None:
        """Something that was not understood."""
        if Note(line, text) not in self.unread:
            self.unread.append(Note(line, text))

    def differ(self, line: int, text: str) -> None:
        if all(note.text != text for note in self.different):
            self.different.append(Note(line, text))

    @property
    def verdict(self) -> str:
        """ "wholly", "in part" or "refused"."""
        return "refused" if self.refusals else "in part" if self.unread else "wholly"
