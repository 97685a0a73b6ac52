"""Commands: their words, where they run, and what they said."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from msgspec import UNSET, Struct, UnsetType, field


class Variable(Struct, frozen=True):
    """A value known only when the job runs. The renderer writes it as a shell variable."""

    name: str


class Joined(Struct, frozen=True):
    """Parts that make one word."""

    parts: tuple[str | Variable, ...]


class WhenSet(Struct, frozen=True):
    """Words that are there only when the variable is set and not empty."""

    variable: str
    words: tuple[str | Variable | Joined, ...]


class PassedOn(Struct, frozen=True, omit_defaults=True):
    """Variables of the job script that the command is to see: those of these names and those whose names
    begin with these prefixes, as far as they are set when the command starts. `words` are there once for
    each, with its name and value as the variables `name` and `value`. The values stand in an argv."""

    names: tuple[str, ...]
    prefixes: tuple[str, ...]
    words: tuple[str | Variable | Joined, ...]


#: Under this name and a number a value is exported.
CARRIER = "BAREBOAT_ENV_"


class Handing(StrEnum):
    """How the values of environment variables reach an engine. Every user of the machine can read an argv."""

    DESCRIPTOR = "by a file descriptor"
    EXPORTED = "by the environment of its process"


class Sealed(Struct, frozen=True, kw_only=True):
    """Environment variables of the command whose values stand in no argv.

    DESCRIPTOR: `form`, words that end with NUL bytes, once for each variable, with its name and value as the
    variables `name` and `value`, is read from the descriptor whose number is the variable `sealed`. EXPORTED:
    each value is exported, under a name of its own (`bareboat.engines.sealed`)."""

    by: Handing
    names: tuple[str, ...]
    values: tuple[str | Variable | Joined, ...]
    form: tuple[str | Variable, ...] = ()


class Opened(Struct, frozen=True):
    """Not a word: the command starts with this file open for reading, as the descriptor of this number."""

    number: int
    path: str


Word = str | Variable | Joined | WhenSet | PassedOn | Opened


class Start(StrEnum):
    """Who starts the ranks: the launcher, once on every node and inside the one container of that node; the
    job script itself one by one; or a program that the first node runs (mpirun, srun) and that reaches the
    other nodes by its own ways. In the latter two each rank has a container."""

    NODES = "once per node"
    RANKS = "rank by rank, by the job script"
    PROGRAM = "by a program on the first node"


class Command(Struct, frozen=True, kw_only=True):
    """An argv that nobody has quoted yet. `environment` is all that the workload sees of it; an engine turns
    it into `sealed`."""

    argv: tuple[Word, ...]
    environment: dict[str, str] = field(default_factory=dict)
    sealed: Sealed | UnsetType = UNSET
    workdir: str = "/"


class Executable(Struct, frozen=True, kw_only=True):
    """What a command's first word starts, looked up before the job starts. `code`: 127 or 126 where it cannot
    be executed, for the `reason`, which follows the word. `place`: of a file that is the host's and not the
    image's, where it is or should be. Not `known`: only the start will show. `lacks`: programs by which
    engines start commands and that the image does not have."""

    word: str
    code: int = 0
    reason: str = ""
    context: str = ""
    remedy: str = ""
    place: str = ""
    known: bool = True
    lacks: tuple[str, ...] = ()


#: A variable of what an engine starts outside of the container: the run that it is for. By it a process is
#: found that the engine leaves behind, such as Podman's pause process, to which no signal of the run goes.
HELPER_VARIABLE = "BAREBOAT_HELPER_OF"


class Outcome(Struct, frozen=True, kw_only=True):
    """What a finished command said. `exit_code` is negative for a signal, 127 for no such program, and
    NO_ANSWER for one that was stopped because it hung or printed too much; then `stderr` holds the error."""

    NO_ANSWER: ClassVar[int] = 124

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str
    wall_s: float

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def unanswered(self) -> bool:
        return self.exit_code == self.NO_ANSWER
