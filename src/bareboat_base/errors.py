"""The errors that users see, as data: what happened, where, and how to fix it.

Words are put together once, where they are shown. No code reads them: it compares `problem.code`.
"""

from __future__ import annotations

import re
import shlex
from typing import Any, NamedTuple, Self

from bareboat_base.toml_values import plain

#: Longest message in characters. A user's value in it may have any length.
_LONGEST = 2000


class SetKey(NamedTuple):
    """Give a key a value, which is TOML; "" takes the key away. `key`: with dots, or a flag, `--set KEY`, or
    an environment variable."""

    key: str
    value: str

    def __str__(self) -> str:
        table, _, last = self.key.rpartition(".")
        where = f" under [{table}]" if table else ""
        if not self.value:
            return f"remove {self.key if self.key.startswith('-') else last + where}"
        if self.key.startswith("--set "):
            return "--set " + shlex.quote(f"{self.key.removeprefix('--set ')}={plain(self.value)}")
        if self.key.startswith("-") or self.key.isupper():
            text = plain(self.value)
            word = f"~/{shlex.quote(text[2:])}" if text.startswith("~/") else shlex.quote(text)
            return f"{self.key} {word}" if self.key.startswith("-") else f"export {self.key}={word}"
        return f"set {last} = {self.value}{where}"


class Command(NamedTuple):
    """A command of Bareboat, with a comment behind it."""

    text: str

    def __str__(self) -> str:
        return self.text


class Words(NamedTuple):
    """What only words can say, such as an edit of a script or another program's command."""

    text: str

    def __str__(self) -> str:
        return self.text


Remedy = SetKey | Command | Words
_ONE_COMMAND = re.compile(r"bareboat [^,;]*(   #.*)?")


class Problem(NamedTuple):
    """What programs read of an error. `code`: its kind. `key`: the key of a job file or the setting that is
    wrong, with dots; `place`: where it is set; `value`, `allowed`: what it is, and what it may be."""

    code: str
    key: str
    place: str
    value: Any
    allowed: str
    remedy: Remedy | None


class BareboatError(Exception):
    """One clear error.

    `code` is the exit status, `message` one sentence of at most 2,000 characters, `context` the facts (the
    output of a tool), below the place (a file and line). `remedy` as text begins with `bareboat` for a
    command. The place of a `key` is added by who knows where the user set it.
    """

    code = 1
    #: The remedy of errors without their own.
    usual_remedy = ""

    def __init__(
        self,
        message: str,
        *,
        context: str = "",
        remedy: str | Remedy = "",
        code: int | None = None,
        key: str = "",
        value: Any = None,
        allowed: str = "",
    ) -> None:
        if len(message) > _LONGEST:
            half = _LONGEST // 2
            message = f"{message[:half]}…{message[half + 1 - _LONGEST :]}"
        super().__init__(message)
        self.message = message
        self.context = context
        kind = re.sub(r"(?<!^)(?=[A-Z])", "-", type(self).__name__.lstrip("_").removesuffix("Error")).lower()
        self.problem = Problem(kind, key, "", value, allowed, _remedy(remedy or self.usual_remedy))
        if code is not None:
            self.code = code

    @property
    def key(self) -> str:
        return self.problem.key

    @property
    def remedy(self) -> str:
        return "" if self.problem.remedy is None else str(self.problem.remedy)

    def but(
        self, *, message: str = "", context: str = "", remedy: str | Remedy = "", key: str | None = None
    ) -> Self:
        """The same error, also of a kind with facts of its own, with another message, context, remedy or
        key."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.message = message or self.message
        made.args = (made.message,)
        made.context = context or self.context
        if remedy:
            made.problem = made.problem._replace(remedy=_remedy(remedy))
        if key is not None:
            made.problem = made.problem._replace(key=key)
        return made

    def at(self, where: str) -> Self:
        """The same error with the place at which it occurred, above its context."""
        line = f"set by {where}" if where.startswith("-") or where.isupper() else where
        made = self.but(context="\n".join(filter(None, (line, self.context))))
        made.problem = made.problem._replace(place=where)
        return made

    def set_by(self, name: str) -> Self:
        """The same error whose remedy sets the key by this name: a flag, a variable, or the key."""
        remedy = self.problem.remedy
        return self.but(remedy=remedy._replace(key=name)) if isinstance(remedy, SetKey) else self

    def with_flag(self, flag: str) -> Self:
        """The same error whose remedy, if it is a command, has this flag after its verb and action."""
        remedy = self.problem.remedy
        words = remedy.text.split(" ") if isinstance(remedy, Command) else ["", "config"]
        if words[1] == "config" or not {"--help", flag.partition(" ")[0]}.isdisjoint(words):
            return self
        at = 3 if words[1] == "image" else 2
        return self.but(remedy=Command(" ".join((*words[:at], flag, *words[at:]))))

    def of(self, flag: str) -> Self:
        """The same error with the flag in front whose value it is about."""
        return self.but(message=f"{flag}: {self.message}") if flag and flag not in self.message else self

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]  # nobody adds to it
        """Python shows these below the message in a traceback (PEP 678)."""
        remedy = f"try: {self.remedy}" if self.remedy else ""
        return [text for text in (self.context, remedy) if text]

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows instead of the frames of this program (IPython calls it)."""
        return [f"{type(self).__name__}: {self.message}", *self.__notes__]


def _remedy(given: str | Remedy) -> Remedy | None:
    if not isinstance(given, str):
        return given
    if not given:
        return None
    return Command(given) if _ONE_COMMAND.fullmatch(given) else Words(given)


class UsageError(BareboatError):
    """The command line, a job file or a setting is wrong; nothing was done."""

    code = 2


class PlanError(BareboatError):
    """The job cannot run on this site as requested; detected before it starts."""

    code = 3


class NoEngineError(PlanError):
    """An engine cannot run the job; another one may."""


class ProgramError(PlanError):
    """The job's program is missing or cannot be executed. `status`: the exit code of a shell that
    runs it, 127 or 126."""

    def __init__(self, message: str, *, context: str = "", remedy: str = "", status: int) -> None:
        super().__init__(message, context=context, remedy=remedy, key="command")
        self.status = status


class StoreError(BareboatError):
    """The store cannot be read or written: no space, no permission, a damaged entry."""

    code = 4


class ToolError(BareboatError):
    """A tool's answer could not be parsed; the context holds its output."""

    code = 5
    usual_remedy = "repeat with --verbose to see the command, then run it by hand"


class ToolTimeoutError(ToolError):
    """A tool did not answer in time."""


class ImageError(BareboatError):
    """An image is not available or not valid: its source, manifest, config or layers."""

    code = 6
    usual_remedy = "pull or copy the image again; if the error persists, ask its publisher to rebuild it"


class RunError(BareboatError):
    """The workload failed. `code` is the exit status of the rank that failed first."""


class Terminated(BaseException):
    """SIGTERM or SIGHUP arrived. Like KeyboardInterrupt, never swallowed."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number
