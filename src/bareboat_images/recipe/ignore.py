"""Patterns of .dockerignore, COPY --exclude and the sources of COPY.

Source: https://docs.docker.com/build/concepts/context/#dockerignore-files
"""

from __future__ import annotations

import bisect
import posixpath
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from bareboat_base.errors import UsageError
from bareboat_base.printable import quoted

LARGEST_BYTES = 1 << 20


class Ignored:
    """Decides which paths are ignored: by the last rule that matches a path or a parent directory."""

    def __init__(self, patterns: Iterable[str]) -> None:
        #: Per rule: exceptions (`!`) keep the paths that match.
        self._keeps: list[bool] = []
        #: A path -> the last rule that has it as it is.
        self._paths: dict[str, int] = {}
        globs: dict[int, str] = {}
        for text in patterns:
            pattern = _pattern(text)
            if not pattern:
                continue
            rule = len(self._keeps)
            self._keeps.append(text.startswith("!"))
            if has_wildcard(pattern) or "\\" in pattern:
                globs[rule] = pattern
            else:
                self._paths[pattern] = rule
        self._rules = list(globs)
        self._patterns = Patterns(globs.values())
        self.has_exceptions = any(self._keeps)
        #: The directories of the latest path, from the top: name, state after it, the last rule that matches.
        self._above: list[tuple[str, _State, int]] = []

    def __bool__(self) -> bool:
        return bool(self._keeps)

    def ignores(self, path: str) -> bool:
        """Whether a relative path, without `.` and `..`, is ignored."""
        parts = path.split("/")
        state, rule = self._patterns.start, -1
        above: list[tuple[str, _State, int]] = []
        for part, known in zip(parts[:-1], self._above, strict=False):
            if part != known[0]:
                break
            above.append(known)
            _, state, rule = known
        for number in range(len(above), len(parts)):
            state = self._patterns.follow(state, f"/{parts[number]}" if number else parts[number])
            matched = self._patterns.last(state)
            rule = max(
                rule,
                self._paths.get("/".join(parts[: number + 1]), -1),
                -1 if matched is None else self._rules[matched],
            )
            if number < len(parts) - 1:
                above.append((parts[number], state, rule))
        self._above = above
        return rule >= 0 and not self._keeps[rule]


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
            list(_tokens(_pattern(pattern)))
        except ValueError as error:
            raise UsageError(
                f"{name}:{number}: {error}", remedy="close the bracket, or escape it: \\["
            ) from None
        patterns.append(pattern)
    return Ignored(patterns)


def _pattern(text: str) -> str:
    """The pattern of a rule; empty if it has none."""
    pattern = text.removeprefix("!").strip()
    pattern = posixpath.normpath(pattern).lstrip("/") if pattern else ""
    return "" if pattern == "." else pattern


class _Class(Struct, frozen=True):
    """`[a-z]`, or `[^a-z]`."""

    negated: bool
    ranges: tuple[tuple[str, str], ...]

    def has(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges) != self.negated


#: Within a name; directories, with a slash at their end; anything. `?` is a class.
_STAR, _FOLDERS, _ANYTHING = "*", "**/", "**"
_ONE = _Class(True, (("/", "/"),))


def _tokens(pattern: str) -> Iterator[str | _Class]:
    """The parts of a pattern, each for one character or for a star. Raises ValueError."""
    at = 0
    last: str | _Class = ""
    while at < len(pattern):
        char = pattern[at]
        at += 1
        found: str | _Class = char
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
            found = _ONE
        elif char == "[":
            found, at = _class(pattern, at)
        elif char == "\\":
            if at >= len(pattern):
                raise ValueError(f"the pattern {quoted(pattern)} ends in an escape")
            # A class, since an escaped star is none.
            found = _Class(False, ((pattern[at], pattern[at]),))
            at += 1
        last = found
        yield found


class _State:
    """Which places of all patterns a text has reached, one bit for each, and the states that follow it."""

    __slots__ = ("bits", "following", "last")

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.following: dict[str, _State] = {}
        #: The last pattern that matches; -1: not known yet.
        self.last: int | None = -1


class Patterns:
    """Patterns for whole paths as one machine of states, all of which are followed at once.

    `*` and `?` match within one name, `**` matches any number of directories; classes are those of Go's
    filepath.Match, where `!` has no meaning. The time is proportional to the length of the text.
    https://en.wikipedia.org/wiki/Bitap_algorithm
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        """Raises ValueError."""
        #: A token -> the bits of its places.
        places: dict[str | _Class, list[int]] = {_STAR: [], _FOLDERS: [], _ANYTHING: []}
        begins, self._ends = [], []
        bit = 0
        for pattern in patterns:
            begins.append(bit)
            for token in _tokens(pattern):
                places.setdefault(token, []).append(bit)
                # After `**/`, one that has matched a part of a path.
                bit += 2 if token == _FOLDERS else 1
            self._ends.append(bit)
            bit += 1
        self._folders, star, anything = (_mask(places.pop(each)) for each in (_FOLDERS, _STAR, _ANYTHING))
        self._stars, self._within, self._everywhere = star | anything, star, anything | self._folders << 1
        self._characters = places
        self._end = _mask(self._ends)
        self._most = min(_MOST_STATES, _MOST_BITS // (bit + 1))
        self._masks: dict[str, int] = {}
        self._states: dict[int, _State] = {}
        self.start = self._state(_mask(begins))

    def matches(self, text: str) -> bool:
        """Whether one of the patterns matches."""
        return self.last(self.follow(self.start, text)) is not None

    def follow(self, state: _State, text: str) -> _State:
        """The state after more text."""
        for char in text:
            state = state.following.get(char) or self._after(state, char)
        return state

    def last(self, state: _State) -> int | None:
        """The number of the last pattern that matches the text of a state."""
        if state.last == -1:
            end = (state.bits & self._end).bit_length() - 1
            state.last = bisect.bisect_left(self._ends, end) if end >= 0 else None
        return state.last

    def _after(self, state: _State, char: str) -> _State:
        kept = self._everywhere if char == "/" else self._everywhere | self._within
        moved = state.bits & self._mask_of(char)
        found = self._state(moved << 1 | state.bits & kept)
        state.following[char] = found
        return found

    def _mask_of(self, char: str) -> int:
        """The places that a character leaves."""
        found = self._masks.get(char)
        if found is None:
            places = list(self._characters.get(char, ()))
            for token, at in self._characters.items():
                if isinstance(token, _Class) and token.has(char):
                    places += at
            found = _mask(places) | (self._folders << 1 if char == "/" else 0)
            self._masks[char] = found
        return found

    def _state(self, bits: int) -> _State:
        """The state of places and of those after stars that match nothing."""
        folders = bits & self._folders
        bits |= folders << 1 | folders << 2
        bits |= (bits & self._stars) << 1
        found = self._states.get(bits)
        if found is None:
            if self._states and len(self._states) + len(self._masks) >= self._most:
                self._forget()
            found = self._states[bits] = _State(bits)
        return found

    def _forget(self) -> None:
        for state in list(self._states.values()):
            state.following.clear()
        self._masks = {}
        self._states = {self.start.bits: self.start}


#: Of the states and masks that are kept: 32 MiB.
_MOST_BITS = 1 << 28
_MOST_STATES = 20_000


def _mask(places: Sequence[int]) -> int:
    """The number with these bits."""
    data = bytearray(max(places, default=0) // 8 + 1)
    for each in places:
        data[each >> 3] |= 1 << (each & 7)
    return int.from_bytes(data, "little")


def _class(pattern: str, at: int) -> tuple[_Class, int]:
    """The class whose bracket is before `at`, and where it ends. Raises ValueError."""
    negated = pattern[at : at + 1] == "^"
    at += negated
    ranges: list[tuple[str, str]] = []
    while pattern[at : at + 1] != "]" or not ranges:
        low, at = _member(pattern, at)
        high = low
        if pattern[at : at + 1] == "-":
            high, at = _member(pattern, at + 1)
        if low > high:
            raise ValueError(f"the pattern {quoted(pattern)} has a damaged class")
        ranges.append((low, high))
    return _Class(negated, tuple(ranges)), at + 1


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
