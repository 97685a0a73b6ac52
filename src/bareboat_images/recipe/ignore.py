"""Patterns of .dockerignore, COPY --exclude and the sources of COPY.

Source: https://docs.docker.com/build/concepts/context/#dockerignore-files
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from msgspec import Struct

from bareboat_base.errors import UsageError

LARGEST_BYTES = 1 << 20


class _Rule(Struct, frozen=True):
    pattern: re.Pattern[str]
    #: An exception (`!`): paths that match are not ignored.
    keeps: bool


class Ignored:
    """Decides which paths are ignored: by the last rule that matches a path or a parent directory."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._rules: list[_Rule] = []
        for text in patterns:
            keeps = text.startswith("!")
            pattern = text.removeprefix("!").strip()
            pattern = posixpath.normpath(pattern).lstrip("/") if pattern else ""
            if pattern and pattern != ".":
                self._rules.append(_Rule(matcher(pattern), keeps))
        self.has_exceptions = any(rule.keeps for rule in self._rules)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def ignores(self, path: str) -> bool:
        """Whether a relative path, without `.` and `..`, is ignored."""
        parts = path.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        left_out = False
        for rule in self._rules:
            if rule.keeps == left_out and any(rule.pattern.fullmatch(each) for each in above):
                left_out = not rule.keeps
        return left_out


def read(text: str, *, name: str = ".dockerignore") -> Ignored:
    """The rules of a .dockerignore. Raises UsageError."""
    patterns = []
    for number, row in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        pattern = row.strip()
        if not pattern or row.startswith("#"):
            continue
        if pattern == "!":
            raise UsageError(f"{name}:{number}: ! has no pattern", remedy="write !PATTERN")
        try:
            Ignored([pattern])
        except ValueError as error:
            raise UsageError(
                f"{name}:{number}: {error}", remedy="close the bracket, or escape it: \\["
            ) from None
        patterns.append(pattern)
    return Ignored(patterns)


def matcher(pattern: str) -> re.Pattern[str]:
    """Convert a pattern to an expression for whole paths: `*` and `?` match within one name, `**` matches any
    number of directories. Raises ValueError."""
    found: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            if pattern[at : at + 1] == "*":
                while pattern[at : at + 1] == "*":
                    at += 1
                if pattern[at : at + 1] == "/":
                    at += 1
                    piece = "(?:.*/)?"
                else:
                    piece = ".*"
            else:
                piece = "[^/]*"
            if found[-1:] != [piece]:
                found.append(piece)
        elif char == "?":
            found.append("[^/]")
        elif char == "\\":
            if at >= len(pattern):
                raise ValueError(f"the pattern {pattern[:60]!r} ends in an escape")
            found.append(re.escape(pattern[at]))
            at += 1
        elif char == "[":
            end = _class_end(pattern, at)
            inner = pattern[at:end]
            negated = inner[:1] in ("^", "!")
            body = inner[1:] if negated else inner
            body = re.sub(r"([\[\]&~|^]|(?<=-)-)", r"\\\1", body.replace("\\", "\\\\"))
            try:
                piece = f"[{'^/' if negated else ''}{body}]"
                re.compile(piece)
            except re.error:
                raise ValueError(f"the pattern {pattern[:60]!r} has a damaged class") from None
            found.append(piece)
            at = end + 1
        else:
            found.append(re.escape(char))
    if sum(each in (".*", "(?:.*/)?", "[^/]*") for each in found) > _MOST_STARS:
        raise ValueError(f"the pattern {pattern[:60]!r} has more than {_MOST_STARS} stars")
    return re.compile("".join(found), re.DOTALL)


#: Expressions with many stars take exponential time.
_MOST_STARS = 12


def _class_end(pattern: str, at: int) -> int:
    end = pattern.find("]", at + 1)
    if end < 0:
        raise ValueError(f"the pattern {pattern[:60]!r} has a bracket that does not end")
    return end


def has_wildcard(text: str) -> bool:
    """Whether a source of COPY is a pattern."""
    return any(char in text for char in "*?[")
