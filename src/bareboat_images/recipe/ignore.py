"""Patterns of .dockerignore, COPY --exclude and the sources of COPY.

Source: https://docs.docker.com/build/concepts/context/#dockerignore-files
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator

from bareboat_base.errors import UsageError
from bareboat_base.printable import quoted

LARGEST_BYTES = 1 << 20
#: Each is compared with each path.
_MOST_GLOBS = 500
#: Characters of a pattern.
_LONGEST = 4000


class Ignored:
    """Decides which paths are ignored: by the last rule that matches a path or a parent directory."""

    def __init__(self, patterns: Iterable[str]) -> None:
        rules = [(text.startswith("!"), pattern) for text in patterns if (pattern := _pattern(text))]
        #: Per rule: exceptions (`!`) keep the paths that match.
        self._keeps = [keeps for keeps, _ in rules]
        self.has_exceptions = any(self._keeps)
        #: A path -> the last rule that has it as it is; and the expressions of the others, last first.
        self._paths = {pattern: rule for rule, (_, pattern) in enumerate(rules) if not _is_glob(pattern)}
        globs = [(rule, pattern) for rule, (_, pattern) in enumerate(rules) if _is_glob(pattern)]
        if len(globs) > _MOST_GLOBS:
            raise ValueError(f"there are more than {_MOST_GLOBS} patterns with wildcards")
        self._globs = [(rule, compiled(pattern)) for rule, pattern in reversed(globs)]
        #: A directory -> the last rule that matches it.
        self._above: dict[str, int] = {"": -1}

    def __bool__(self) -> bool:
        return bool(self._keeps)

    def ignores(self, path: str) -> bool:
        """Whether a relative path, without `.` and `..`, is ignored."""
        rule = self._last(path)
        return rule >= 0 and not self._keeps[rule]

    def _last(self, path: str) -> int:
        """The last rule that matches a path or a directory above it; -1 without one."""
        unknown = [path]
        while (above := unknown[-1].rpartition("/")[0]) not in self._above:
            unknown.append(above)
        for folder in reversed(unknown[1:]):
            self._above[folder] = self._of(folder)
        return self._of(path)

    def _of(self, path: str) -> int:
        """As `_last`, where the rule of the directory above is known."""
        least = max(self._above[path.rpartition("/")[0]], self._paths.get(path, -1))
        for rule, glob in self._globs:
            if rule < least:
                break
            if glob.match(path):
                return rule
        return least


def read(text: str, *, name: str = ".dockerignore") -> Ignored:
    """The rules of a .dockerignore. Raises UsageError."""
    patterns = []
    for number, row in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        pattern = row.strip()
        if not pattern or row.startswith("#"):
            continue
        if pattern == "!":
            raise UsageError(f"{name}:{number}: ! has no pattern", remedy="write !PATTERN")
        try:
            compiled(_pattern(pattern))
        except ValueError as error:
            raise UsageError(
                f"{name}:{number}: {error}",
                remedy="write a shorter pattern with fewer stars; a bracket that is a character is \\[",
            ) from None
        patterns.append(pattern)
    try:
        return Ignored(patterns)
    except ValueError as error:
        raise UsageError(f"{name}: {error}", remedy="name directories instead of patterns") from None


def _is_glob(pattern: str) -> bool:
    return has_wildcard(pattern) or "\\" in pattern


def _pattern(text: str) -> str:
    """The pattern of a rule; empty if it has none."""
    pattern = text.removeprefix("!").strip()
    pattern = posixpath.normpath(pattern).lstrip("/") if pattern else ""
    return "" if pattern == "." else pattern


#: Within a name; directories, with a slash at their end; anything: as expressions.
_STAR, _FOLDERS, _ANYTHING = "[^/]*?", "(?:.*?/)??", ".*?"
_STARS = (_STAR, _FOLDERS, _ANYTHING)
#: Of patterns that need all combinations of their stars.
_MOST_STARS = 3


def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern for whole paths: `*` and `?` match within one name, `**` matches any number of directories;
    classes are those of Go's filepath.Match, where `!` has no meaning. Raises ValueError.

    The text between two stars is matched at its first place, once, so that a pattern takes no exponential
    time: a later place is never better, unless a class matches a slash or `**/` begins within a name.
    """
    if len(pattern) > _LONGEST:
        raise ValueError(f"a pattern has {len(pattern):,} characters, and at most {_LONGEST:,} are read")
    tokens = list(_tokens(pattern))
    plain = "".join(tokens)
    before = ["/", *tokens]
    classes = [each for each in tokens if each[0] == "[" and each not in (_STAR, _ONE)]
    if any(re.fullmatch(each, "/") for each in classes) or any(
        each == _FOLDERS and not last.endswith("/") for last, each in zip(before, tokens, strict=False)
    ):
        if sum(each in _STARS for each in tokens) > _MOST_STARS:
            raise ValueError(f"the pattern {quoted(pattern)} has too many stars")
        return re.compile(f"(?:{plain})\\Z", re.DOTALL)
    found = end = ""
    for token in reversed([*tokens, "\\Z"]):
        end = token + end
        if token in (_FOLDERS, _ANYTHING):
            found, end = f"(?>{end}){found}", ""
        elif token == _STAR:
            end = _once(end)
    return re.compile(end + found, re.DOTALL)


def _once(text: str) -> str:
    """A star and the text up to the next one, without another try."""
    star, rest = text[: len(_STAR)], text[len(_STAR) :]
    at = rest.find("(?>")
    return f"(?>{star}{rest})" if at < 0 else f"(?>{star}{rest[:at]}){rest[at:]}"


_ONE = "[^/]"


def _tokens(pattern: str) -> Iterator[str]:
    """The parts of a pattern as expressions, each for one character or for a star. Raises ValueError."""
    at = 0
    last = ""
    while at < len(pattern):
        char = pattern[at]
        at += 1
        found = re.escape(char)
        if char == "*":
            begun = at
            while pattern[at : at + 1] == "*":
                at += 1
            found = _STAR if at == begun else _ANYTHING
            if found == _ANYTHING and pattern[at : at + 1] == "/":
                found = _FOLDERS
                at += 1
            if found == last:
                continue
        elif char == "?":
            found = _ONE
        elif char == "[":
            found, at = _class(pattern, at)
        elif char == "\\":
            if at >= len(pattern):
                raise ValueError(f"the pattern {quoted(pattern)} ends in an escape")
            found = re.escape(pattern[at])
            at += 1
        last = found
        yield found


def _class(pattern: str, at: int) -> tuple[str, int]:
    """The class whose bracket is before `at`, and where it ends. Raises ValueError."""
    negated = pattern[at : at + 1] == "^"
    at += negated
    ranges = ""
    while pattern[at : at + 1] != "]" or not ranges:
        low, at = _member(pattern, at)
        high = low
        if pattern[at : at + 1] == "-":
            high, at = _member(pattern, at + 1)
        if low > high:
            raise ValueError(f"the pattern {quoted(pattern)} has a damaged class")
        ranges += f"{re.escape(low)}-{re.escape(high)}"
    return f"[{'^' * negated}{ranges}]", at + 1


def _member(pattern: str, at: int) -> tuple[str, int]:
    """A character of a class, and where it ends."""
    if at >= len(pattern):
        raise ValueError(f"the pattern {quoted(pattern)} has a bracket that does not end")
    if pattern[at] in "-]":
        raise ValueError(f"the pattern {quoted(pattern)} has a damaged class")
    at += pattern[at] == "\\"
    if at >= len(pattern):
        raise ValueError(f"the pattern {quoted(pattern)} ends in an escape")
    return pattern[at], at + 1


def has_wildcard(text: str) -> bool:
    """Whether a source of COPY is a pattern."""
    return any(char in text for char in "*?[")
