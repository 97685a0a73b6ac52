"""Expands variables in a Dockerfile: $NAME, ${NAME}, and the forms with `-`, `+` and `?`.

Source: https://docs.docker.com/reference/dockerfile/#environment-replacement
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from bareboat_base.expressions import expression

#: Limit in characters: nested expansions can multiply.
LONGEST = 1 << 20
#: The same for all texts of a build together, without what was written.
LONGEST_TOGETHER = 16 << 20
_DEEPEST = 50
_NAME = expression(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#!?-]")


class ExpansionError(ValueError):
    """A variable cannot be replaced; the text is the reason."""


class Growth:
    """How much longer the texts of a build become by their variables, together: an image's configuration has
    them all."""

    def __init__(self) -> None:
        self._characters = 0

    def add(self, text: str, found: str) -> None:
        """Count one text and what it becomes. Raises ExpansionError beyond the limit."""
        self._characters += max(0, len(found) - len(text))
        if self._characters > LONGEST_TOGETHER:
            raise ExpansionError("with the variables before it, it becomes longer than 16 megabytes")


def expand(text: str, values: Mapping[str, str], escape: str = "\\", *, quotes: bool = True) -> str:
    """Replace the variables and remove quotes and escapes. Without `quotes`, as in a heredoc, quotes are
    ordinary characters. Raises ExpansionError."""
    found = _Expansion(text, values, escape, quotes=quotes).run("")
    if len(found) > LONGEST:
        raise ExpansionError("it becomes longer than a megabyte")
    return found


def words(text: str, values: Mapping[str, str], escape: str = "\\") -> list[str]:
    """The words after replacement; white space in a variable separates words, except in quotes."""
    return [each for each in _Expansion(text, values, escape, splits=True).words() if each]


class _Expansion:
    def __init__(
        self,
        text: str,
        values: Mapping[str, str],
        escape: str,
        *,
        quotes: bool = True,
        splits: bool = False,
        depth: int = 0,
    ) -> None:
        if depth > _DEEPEST:
            raise ExpansionError("its variables are nested too deeply")
        self._text = text
        self._values = values
        self._escape = escape
        self._quotes = quotes
        self._splits = splits
        self._depth = depth
        self._at = 0
        self._found: list[str] = []

    def words(self) -> list[str]:
        return self.run("").split("\0")

    def run(self, end: str) -> str:
        """Expand up to the character `end`, which is not consumed, or to the end of the text."""
        found: list[str] = []
        size = 0
        text = self._text
        while self._at < len(text):
            char = text[self._at]
            if end and char == end:
                break
            if char == "'" and self._quotes:
                piece = self._single()
            elif char == '"' and self._quotes:
                piece = self._double()
            elif char == "$":
                piece = self._variable()
                if self._splits:
                    piece = re.sub(r"\s+", "\0", piece)
            elif char == self._escape:
                self._at += 1
                piece = text[self._at : self._at + 1]
                if not self._quotes and piece not in ("$", self._escape):
                    piece = char + piece
                self._at += 1
            else:
                piece = "\0" if self._splits and char.isspace() else char
                self._at += 1
            found.append(piece)
            size += len(piece)
            if size > LONGEST:
                raise ExpansionError("it becomes longer than a megabyte")
        return "".join(found)

    def _single(self) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise ExpansionError("a single quote does not end")
        found = self._text[self._at + 1 : end]
        self._at = end + 1
        return found

    def _double(self) -> str:
        text = self._text
        self._at += 1
        found: list[str] = []
        while self._at < len(text):
            char = text[self._at]
            if char == '"':
                self._at += 1
                return "".join(found)
            if char == "$":
                found.append(self._variable())
                continue
            if char == self._escape and text[self._at + 1 : self._at + 2] in ('"', "$", self._escape):
                self._at += 1
                char = text[self._at]
            found.append(char)
            self._at += 1
        raise ExpansionError("a double quote does not end")

    def _variable(self) -> str:
        self._at += 1
        text = self._text
        if text[self._at : self._at + 1] != "{":
            match = _NAME.match(text, self._at)
            if match is None:
                return "$"
            self._at = match.end()
            return self._values.get(match[0], "")
        match = _NAME.match(text, self._at + 1)
        if match is None:
            raise ExpansionError(f"{text[self._at - 1 : self._at + 20]!r} names no variable")
        name = match[0]
        self._at = match.end()
        value = self._values.get(name)
        char = text[self._at : self._at + 1]
        if char == "}":
            self._at += 1
            return value or ""
        if char == ":" or char in ("-", "+", "?"):
            return self._default(name, value, colon=char == ":")
        if not char:
            raise ExpansionError(f"${{{name} does not end")
        raise ExpansionError(f"the modifier {char!r} of ${{{name}…}} is not supported")

    def _default(self, name: str, value: str | None, *, colon: bool) -> str:
        self._at += colon
        kind = self._text[self._at : self._at + 1]
        if kind not in ("-", "+", "?"):
            raise ExpansionError(f"the modifier {(':' + kind)!r} of ${{{name}…}} is not supported")
        self._at += 1
        word = self._inner(name)
        is_set = bool(value) if colon else value is not None
        if kind == "-":
            return (value or "") if is_set else word
        if kind == "+":
            return word if is_set else ""
        if not is_set:
            raise ExpansionError(f"{name}: {word or 'it is not set'}")
        return value or ""

    def _inner(self, name: str) -> str:
        """The expanded word of a modifier; consumes its end."""
        inner = _Expansion(self._text, self._values, self._escape, quotes=self._quotes, depth=self._depth + 1)
        inner._at = self._at
        found = inner.run("}")
        self._at = inner._at
        if self._at >= len(self._text):
            raise ExpansionError(f"${{{name}… does not end")
        self._at += 1
        return found
