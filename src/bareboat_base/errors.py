"""The errors that users see: what happened, where, and how to fix it."""

from __future__ import annotations

from typing import Self

#: Longest message in characters. A user's value in it may have any length.
_LONGEST = 2000


class BareboatError(Exception):
    """One clear error.

    `code` is the exit status, `message` one sentence of at most 2,000 characters, `context` the facts
    (a file and line, the output of a tool), `remedy` a command or an edit that the user can make. `key`: the
    job file's key that is wrong, with dots; the place where the user set it is added by who knows it.
    """

    code = 1
    #: The remedy of errors without their own.
    usual_remedy = ""

    def __init__(
        self, message: str, *, context: str = "", remedy: str = "", code: int | None = None, key: str = ""
    ) -> None:
        if len(message) > _LONGEST:
            half = _LONGEST // 2
            message = f"{message[:half]}…{message[half + 1 - _LONGEST :]}"
        super().__init__(message)
        self.message = message
        self.context = context
        self.remedy = remedy or self.usual_remedy
        self.key = key
        if code is not None:
            self.code = code

    def but(self, *, message: str = "", context: str = "", remedy: str = "") -> Self:
        """The same error, also of a kind with facts of its own, with another message, context or remedy."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.message = message or self.message
        made.args = (made.message,)
        made.context = context or self.context
        made.remedy = remedy or self.remedy
        return made

    def at(self, where: str) -> Self:
        """The same error with the place at which it occurred, above its context."""
        return self.but(context="\n".join(filter(None, (where, self.context))))

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
