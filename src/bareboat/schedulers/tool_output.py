"""The output of schedulers' commands: parsing it, and showing what cannot be parsed. Pure."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from bareboat.model import Outcome, SchedulerFacts
from bareboat_base.errors import PlanError, ToolError
from bareboat_base.printable import one_line

T = TypeVar("T")

#: The number of unparsable lines that are shown.
_MOST_REMARKS = 3
_MOST_SAID_LINES = 20
_MOST_UNANSWERED = 400
#: Limit of the text searched for a version, since a search may take quadratic time.
_MOST_VERSION = 4000
_LONGEST_LINE = 100_000


def output_tail(outcome: Outcome) -> str:
    """The end of a command's output, for an error's context."""
    lines = [line for text in (outcome.stderr, outcome.stdout) for line in text.strip().splitlines()]
    return "\n".join(map(one_line, lines[-_MOST_SAID_LINES:])) or f"exit code {outcome.exit_code}"


def unresponsive(name: str, title: str, outcome: Outcome, *, version: str = "") -> SchedulerFacts:
    """The facts about a scheduler that is installed and does not answer; the tool's output from the second
    line on."""
    detail = f"{title} does not answer:\n{output_tail(outcome)}"
    return SchedulerFacts(name=name, version=version, works=False, detail=detail)


def unanswered(*outcomes: Outcome) -> list[str]:
    """Remarks on unanswered questions, which the job may not need."""
    return [one_line(outcome.stderr, limit=_MOST_UNANSWERED) for outcome in outcomes if outcome.unanswered]


def each_line(tool: str, text: str, read: Callable[[str], T], remarks: list[str]) -> list[T]:
    """Parse each line that is not empty with `read`. Lines for which it raises ValueError or LookupError get
    a remark."""
    found, odd = [], []
    for line in text.splitlines():
        try:
            if len(line) > _LONGEST_LINE:
                odd.append(line)
            elif line.strip():
                found.append(read(line))
        except (ValueError, LookupError):
            odd.append(line)
    remarks += odd_lines(tool, odd)
    return found


def odd_lines(tool: str, lines: Sequence[str]) -> list[str]:
    """Remarks on unparsable lines of a tool's output."""
    shown = [
        f"{tool} printed a line that cannot be parsed: {one_line(line)}" for line in lines[:_MOST_REMARKS]
    ]
    more = len(lines) - len(shown)
    return [*shown, f"{tool} printed {more} more such lines"] if more else shown


def number(text: str) -> int:
    """A count in a tool's output. Raises ValueError for other text and for implausible counts."""
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise ValueError(text)
    return int(text)


def number_or_none(text: str) -> int | None:
    """Like `number`; None for other text."""
    try:
        return number(text)
    except ValueError:
        return None


def name_in(text: str) -> str:
    """A name in a tool's output. Raises ValueError for invalid names."""
    if not re.fullmatch(r"[\w.@:+/-]{1,255}", text):
        raise ValueError(text)
    return text


def version_in(text: str, pattern: str = r"(\d[\w.+-]{0,40})") -> str:
    """The first group of the pattern's first match; "" without one."""
    found = re.search(pattern, text[:_MOST_VERSION])
    return found[1][:60] if found else ""


def moment(text: str, *forms: str) -> int | None:
    """A time that a scheduler's command prints, in this machine's time zone, in seconds since 1970. `forms`:
    of `strptime`, the first that fits; None for other text."""
    for form in forms:
        with contextlib.suppress(ValueError, OverflowError):
            return int(time.mktime(time.strptime(text, form)))
    return None


def pairs(text: str, separator: str | None = None) -> dict[str, str]:
    """The first word of each line, or the text before the separator, and the text after it."""
    parts = (line.strip().split(separator, 1) for line in text.splitlines())
    return {part[0]: part[1].strip() for part in parts if len(part) == 2}


def check_answered(outcome: Outcome, forgotten: str) -> None:
    """Raise ToolError for a failed query about jobs. `forgotten`: the pattern of a command's message about
    unknown jobs."""
    failed = not outcome.ok and not outcome.stdout.strip() and outcome.stderr.strip()
    if failed and not re.search(forgotten, outcome.stderr[:_MOST_VERSION], re.IGNORECASE):
        raise ToolError(
            f"{outcome.argv[0]} does not answer",
            context=output_tail(outcome),
            remedy=" ".join(outcome.argv[:2]),
        )


def rejected(title: str, outcome: Outcome, remedies: Sequence[tuple[str, str]]) -> PlanError:
    """The error for a job that a scheduler rejected, with the remedy of the first pattern in what it printed.
    The last pattern fits everything."""
    remedy = next(fix for pattern, fix in remedies if re.search(pattern, outcome.stderr, re.IGNORECASE))
    return PlanError(f"{title} rejected the job", context=output_tail(outcome), remedy=remedy)


def found_job_id(outcome: Outcome, pattern: str) -> str:
    """The first group of the pattern's last match in a submission's output, which may start with a site's
    notices. Raises ToolError when there is none."""
    found = re.findall(pattern, outcome.stdout, re.MULTILINE)
    if not found:
        raise ToolError(f"{outcome.argv[0]} returned no job ID", context=output_tail(outcome))
    return str(found[-1])
