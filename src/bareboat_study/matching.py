"""Search a program's output for the regular expressions of study files, locks and options.

Python's engine backtracks: `(x+x+)+y` takes exponential time on a line of x, and a study file or a lock may
be a stranger's. A search therefore runs in a process of its own, with limits of time and memory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import cast

from bareboat_base import execute
from bareboat_base.errors import ToolError, ToolTimeoutError, UsageError
from bareboat_base.printable import one_line
from bareboat_study import patterns

#: A search of 64 MiB takes at most seconds.
LIMIT_S = 30.0
_MOST_MEMORY = 4 << 30
#: A longer match is no number. It is cut, and then refused as any other text.
_LONGEST_MATCH = 400
_MOST_OUTPUT = 1 << 28
_NO_MEMORY = 3

#: Reads one line of JSON and then the output; prints a list of the groups' texts.
_PROGRAM = """
import json, re, resource, sys, warnings
pattern, groups, most, longest, seconds, memory, code = json.loads(sys.stdin.buffer.readline())
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
warnings.simplefilter("ignore")
found = []
try:
    output = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    for match in re.finditer(pattern, output, re.MULTILINE):
        found.append([(match[group] or "")[:longest] for group in groups])
        if len(found) == most:
            break
    json.dump(found, sys.stdout)
except MemoryError:
    sys.exit(code)
"""


def texts(name: str, pattern: str, output: str) -> list[str]:
    """What the group of the pattern of a metric matches, in order. Errors as `search`."""
    return [text for (text,) in search(name, pattern, (1,), output)]


def search(name: str, pattern: str, groups: Sequence[int | str], output: str) -> list[list[str]]:
    """The texts of these groups in each match of the pattern of a metric. Raises UsageError for a search that
    does not end."""
    limits = (patterns.MOST_POINTS + 1, _LONGEST_MATCH, int(LIMIT_S) + 1, _MOST_MEMORY, _NO_MEMORY)
    request = json.dumps([pattern, groups, *limits])
    try:
        outcome = execute.run(
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            stdin=f"{request}\n{output}",
            timeout_s=LIMIT_S,
            watch=execute.Watch(most_bytes=_MOST_OUTPUT),
        )
    except ToolTimeoutError:
        raise _endless(name, pattern, f"within {LIMIT_S:g} s") from None
    if outcome.exit_code == _NO_MEMORY:
        raise _endless(name, pattern, f"in {_MOST_MEMORY >> 30} GiB of memory")
    if outcome.exit_code:
        raise ToolError(
            f"metrics.{name}: Python cannot search the output (exit code {outcome.exit_code})",
            context=one_line(outcome.stderr, limit=400),
            remedy=f"{sys.executable} -I -c pass   # must work",
        )
    return cast("list[list[str]]", json.loads(outcome.stdout))


def _endless(name: str, pattern: str, limit: str) -> UsageError:
    return UsageError(
        f"metrics.{name}: the search for the pattern does not end {limit}",
        context=f"pattern: {one_line(pattern)}",
        remedy="repeat no group that is a repetition itself: x+ instead of (x+x+)+",
    )
