"""Runs hadolint (https://github.com/hadolint/hadolint), if installed, and converts its findings."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Sequence

from bareboat_base import execute
from bareboat_base.errors import ToolError
from bareboat_base.printable import one_line
from bareboat_images.lint.rule import Finding, Severity

_TIMEOUT_S = 60.0
_LEVELS = {"error": Severity.ERROR, "warning": Severity.WARNING}
#: hadolint's code for a parse error.
_UNREAD = "DL1000"
_PAGE = "https://github.com/hadolint/hadolint/wiki/"


def find() -> str | None:
    """The path of hadolint: beside this Python, in its scripts directory, or on PATH."""
    for folder in (os.path.dirname(sys.executable), sysconfig.get_path("scripts"), None):
        if (found := execute.which("hadolint", path=folder)) is not None:
            return found
    return None


def run(program: str, text: str, *, heredocs: Sequence[int] = ()) -> list[Finding]:
    """hadolint's findings in a Dockerfile. `heredocs`: the last lines of instructions with heredocs; hadolint
    requires an empty line after them, which is inserted. Raises ToolError."""
    rows = text.split("\n")
    for last in sorted(heredocs, reverse=True):
        rows.insert(last, "")
    done = execute.run(
        [program, "--no-fail", "--no-color", "--format", "json", "-"],
        stdin="\n".join(rows),
        timeout_s=_TIMEOUT_S,
    )
    # The line numbers of the inserted empty lines.
    added = [last + 1 + number for number, last in enumerate(sorted(heredocs))]
    try:
        listed = json.loads(done.stdout)
        return [_finding(each, added) for each in listed]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ToolError(
            f"hadolint's output cannot be read (exit code {done.exit_code})",
            context=one_line(done.stderr or done.stdout, limit=400),
            remedy=f"{program} FILE   # by hand; or: bareboat image lint --no-hadolint FILE",
        ) from None


def _finding(entry: dict[str, object], added: Sequence[int]) -> Finding:
    code, line = str(entry["code"])[:20], entry["line"]
    number = line if isinstance(line, int) and 0 < line < 1 << 31 else 1
    number -= sum(each < number for each in added)
    message = one_line(str(entry["message"]), limit=400)
    if code == _UNREAD:
        message = f"hadolint cannot parse this line, and checked nothing: {message}"
    return Finding(
        code=code,
        # Syntax that hadolint does not support is not a fault of the file, which Bareboat's parser accepted.
        severity=Severity.INFO if code == _UNREAD else _LEVELS.get(str(entry["level"]), Severity.INFO),
        message=message,
        remedy=page(code),
        source="hadolint",
        line=number,
        last=number,
    )


def page(code: str) -> str:
    """The URL of the page that explains a code."""
    return f"https://www.shellcheck.net/wiki/{code}" if code.startswith("SC") else f"{_PAGE}{code}"
