"""Patterns of .dockerignore, COPY --exclude and the sources of COPY.

Source: https://docs.docker.com/build/concepts/context/#dockerignore-files
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct, field

from bareboat_base.errors import UsageError

LARGEST_BYTES = 1 << 20


class _Rules(Struct):
    """Consecutive rules of one kind: paths as they are written, and patterns."""

    #: Exceptions (`!`): paths that match are not ignored.
    keeps: bool
    paths: set[str] = field(default_factory=set)
    patterns: list[Matcher] = field(default_factory=list)

    def match(self, paths: Sequence[str]) -> bool:
        """Whether a rule matches one of the paths."""
        return not self.paths.isdisjoint(paths) or any(
            pattern.fullmatch(path) for pattern in self.patterns for path in paths
        )


class Ignored:
    """Decides which paths are ignored: by the last rule that matches a path or a parent directory."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._rules: list[_Rules] = []
        for text in patterns:
            keeps = text.startswith("!")
            pattern = text.removeprefix("!").strip()
            pattern = posixpath.normpath(pattern).lstrip("/") if pattern else ""
            if not pattern or pattern == ".":
                continue
            if not self._rules or self._rules[-1].keeps != keeps:
                self._rules.append(_Rules(keeps))
            if has_wildcard(pattern) or "\\" in pattern:
                self._rules[-1].patterns.append(matcher(pattern))
            else:
                self._rules[-1].paths.add(pattern)
        self.has_exceptions = any(rules.keeps for rules in self._rules)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def ignores(self, path: str) -> bool:
        """Whether a relative path, without `.` and `..`, is ignored."""
        parts = path.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        left_out = False
        for rules in self._rules:
            if rules.keeps == left_out and rules.match(above):
                left_out = not rules.keeps
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


class Matcher(Protocol):
    def fullmatch(self, text: str, /) -> object: ...


def matcher(pattern: str) -> Matcher:
    """Convert a pattern to one for whole paths. `*` and `?` match within one name, `**` matches any number of
    directories; classes are those of Go's filepath.Match, where `!` has no meaning. Raises ValueError."""
    tokens = list(_tokens(pattern))
    if not any(each in _GLOBSTARS for each in tokens):
        return re.compile(_of_names(tokens), re.DOTALL)
    if sum(each in (_STAR, *_GLOBSTARS) for each in tokens) > _MOST_STARS:
        return _States(tokens)
    return re.compile("".join(tokens), re.DOTALL)


_STAR = "[^/]*"
#: Directories, with a slash at their end; and anything.
_FOLDERS, _ANYTHING = _GLOBSTARS = ("(?:.*/)?", ".*")
#: With more stars of several kinds, an expression may take exponential time.
_MOST_STARS = 3


def _tokens(pattern: str) -> Iterator[str]:
    """The expressions of a pattern's parts, each for one character or for a star."""
    at = 0
    last = ""
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            begun = at
            while pattern[at : at + 1] == "*":
                at += 1
            if at == begun:
                found = _STAR
            elif pattern[at : at + 1] == "/":
                found = _FOLDERS
                at += 1
            else:
                found = _ANYTHING
            if found == last:
                continue
        elif char == "?":
            found = "[^/]"
        elif char == "[":
            found, at = _class(pattern, at)
        else:
            if char == "\\":
                if at >= len(pattern):
                    raise ValueError(f"the pattern {pattern[:60]!r} ends in an escape")
                char = pattern[at]
                at += 1
            found = re.escape(char)
        last = found
        yield found


def _of_names(tokens: Sequence[str]) -> str:
    """The expression of a pattern without `**`. Of what is between two stars, the first place suffices, so it
    is atomic: a regular expression with several stars would try all combinations."""
    pieces = [""]
    for each in tokens:
        if each == _STAR:
            pieces.append("")
        else:
            pieces[-1] += each
    first, *others = pieces
    middle = "".join(f"(?>[^/]*?{piece})" for piece in others[:-1])
    return first + middle + (_STAR + others[-1] if others else "")


class _States:
    """A pattern as a machine of states, all of which are followed at once. The time is proportional to the
    length of the text."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens
        self._single = [
            None if each in (_STAR, *_GLOBSTARS) else re.compile(each, re.DOTALL) for each in tokens
        ]

    def fullmatch(self, text: str) -> bool:
        #: The number of a token, and whether it is a star that has matched something.
        states = self._reached({(0, False)})
        for char in text:
            after: set[tuple[int, bool]] = set()
            for number, _ in states:
                if number == len(self._tokens):
                    continue
                token, single = self._tokens[number], self._single[number]
                if single is not None:
                    if single.fullmatch(char):
                        after.add((number + 1, False))
                elif token == _ANYTHING or (token == _STAR and char != "/"):
                    after.add((number, False))
                elif token == _FOLDERS:
                    after.add((number, True))
                    if char == "/":
                        after.add((number + 1, False))
            states = self._reached(after)
        return (len(self._tokens), False) in states

    def _reached(self, states: set[tuple[int, bool]]) -> set[tuple[int, bool]]:
        """Add the states after stars that match nothing."""
        pending = list(states)
        while pending:
            number, begun = pending.pop()
            if number < len(self._tokens) and self._single[number] is None and not begun:
                following = (number + 1, False)
                if following not in states:
                    states.add(following)
                    pending.append(following)
        return states


def _class(pattern: str, at: int) -> tuple[str, int]:
    """The expression of a class whose bracket is before `at`, and where it ends. Raises ValueError."""
    negated = pattern[at : at + 1] == "^"
    at += negated
    found = ""
    while pattern[at : at + 1] != "]" or not found:
        low, at = _member(pattern, at)
        high = low
        if pattern[at : at + 1] == "-":
            high, at = _member(pattern, at + 1)
        if low > high:
            raise ValueError(f"the pattern {pattern[:60]!r} has a damaged class")
        found += re.escape(low) + (f"-{re.escape(high)}" if high != low else "")
    return f"[{'^' * negated}{found}]", at + 1


def _member(pattern: str, at: int) -> tuple[str, int]:
    """A character of a class, and where it ends."""
    if at >= len(pattern):
        raise ValueError(f"the pattern {pattern[:60]!r} has a bracket that does not end")
    if pattern[at] in "-]":
        raise ValueError(f"the pattern {pattern[:60]!r} has a damaged class")
    at += pattern[at] == "\\"
    if at >= len(pattern):
        raise ValueError(f"the pattern {pattern[:60]!r} ends in an escape")
    return pattern[at], at + 1


def has_wildcard(text: str) -> bool:
    """Whether a source of COPY is a pattern."""
    return any(char in text for char in "*?[")
