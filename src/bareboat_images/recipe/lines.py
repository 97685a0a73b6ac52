"""Splits a Dockerfile's text into logical lines: directives, comments, continuations and heredocs.

Source: https://docs.docker.com/reference/dockerfile/#format
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from bareboat_base.expressions import expression
from bareboat_base.printable import quoted
from bareboat_images.recipe.faults import RecipeError
from bareboat_images.recipe.words import json_list, split_words, unquoted

#: Larger Dockerfiles are refused.
LARGEST_BYTES = 4 << 20
_DIRECTIVE = expression(r"#\s*([a-zA-Z][a-zA-Z0-9]*)\s*=(.+)")
_KNOWN = ("syntax", "escape", "check")
_HEREDOC = expression(r"(\d*)<<(-?)([^<]*)")
TAKES_HEREDOCS = ("RUN", "COPY", "ADD")
_MOST_LINES = 100_000


class Heredoc(Struct, frozen=True, kw_only=True):
    """A heredoc's content, as written. `expands`: its delimiter has no quotes; `chomps`: `<<-`, which removes
    leading tabs."""

    name: str
    content: str
    expands: bool
    chomps: bool

    @property
    def data(self) -> str:
        """The content, without leading tabs after `<<-`."""
        return re.sub(r"(?m)^\t+", "", self.content) if self.chomps else self.content


class Line(Struct, frozen=True, kw_only=True):
    """One instruction: its word in upper case, and the rest of its logical line. `number`, `last`: its first
    and last line in the file; `text`: as written, for messages."""

    word: str
    rest: str
    number: int
    last: int
    text: str
    heredocs: tuple[Heredoc, ...] = ()


class Lines(Struct, frozen=True, kw_only=True):
    """All instructions of a Dockerfile, and its escape character."""

    lines: tuple[Line, ...]
    escape: str = "\\"


def read(text: str) -> Lines:
    """Split a Dockerfile. Raises RecipeError."""
    rows = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if rows and rows[-1] == "":
        rows.pop()
    if len(rows) > _MOST_LINES:
        raise RecipeError(f"the Dockerfile has more than {_MOST_LINES:,} lines", line=_MOST_LINES)
    if "\0" in text:
        number = text[: text.index("\0")].count("\n") + 1
        raise RecipeError("the Dockerfile has a NUL byte", line=number, remedy="write it as plain text")
    directives = _directives(rows)
    escape = directives.get("escape", "\\")
    return Lines(lines=tuple(_logical(rows, escape)), escape=escape)


def _directives(rows: list[str]) -> dict[str, str]:
    """Parse the directives, which precede everything else, other comments included."""
    found: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        match = _DIRECTIVE.fullmatch(row.strip())
        name, value = (match[1].lower(), match[2].strip()) if match else ("", "")
        if match is None or name not in _KNOWN:
            break
        if name in found:
            raise RecipeError(
                f"the directive {name} is given twice", line=number, text=row, remedy="remove one"
            )
        if name == "escape" and value not in ("\\", "`"):
            raise RecipeError(
                f"the escape character {quoted(value)} is not supported",
                line=number,
                text=row,
                remedy="# escape=\\   # or: # escape=`",
            )
        found[name] = value
    return found


def _logical(rows: list[str], escape: str) -> Iterator[Line]:
    continued = re.compile(rf"(^|[^{re.escape(escape)}]){re.escape(escape)}[ \t]*$")
    at = 0
    while at < len(rows):
        number = at + 1
        row = rows[at].lstrip()
        at += 1
        if not row or row.startswith("#"):
            continue
        parts = [row]
        more = continued.search(row)
        while more is not None and at < len(rows):
            parts[-1] = parts[-1][: more.end(1)]
            row = rows[at]
            at += 1
            if not row.strip() or row.lstrip().startswith("#"):
                parts.append("")
                continue
            parts.append(row)
            more = continued.search(row)
        if more is not None:  # the file ends in a continuation
            parts[-1] = parts[-1][: more.end(1)] if continued.search(parts[-1]) else parts[-1]
        whole = "".join(parts).rstrip()
        if not whole:
            continue
        word, _, rest = re.sub(r"\s+", " ", whole, count=1).partition(" ")
        line = Line(word=word.upper(), rest=rest.strip(), number=number, last=at, text=whole)
        openings = list(_openings(line, escape))
        heredocs = []
        for opening in openings:
            content, at = _content(rows, at, opening, line)
            heredocs.append(
                Heredoc(name=opening.name, content=content, expands=opening.expands, chomps=opening.chomps)
            )
        if heredocs:
            text = "\n".join([whole, *(rows[number_] for number_ in range(line.last, at))])
            line = Line(
                word=line.word, rest=line.rest, number=number, last=at, text=text, heredocs=tuple(heredocs)
            )
        yield line


def _openings(line: Line, escape: str) -> Iterator[Heredoc]:
    """The heredocs that a line starts, without content."""
    word, rest = line.word, line.rest
    if word.upper() not in TAKES_HEREDOCS or "<<" not in rest:
        return
    try:
        if json_list(rest) is not None:
            return
    except ValueError:  # the instruction is refused later
        return
    for each in split_words(rest, escape):
        if (found := opening(each, escape)) is not None:
            yield found


def opening(word: str, escape: str) -> Heredoc | None:
    """The heredoc that a word starts; None for other words."""
    match = _HEREDOC.fullmatch(word)
    if match is None or not match[3]:
        return None
    name = unquoted(match[3], escape)
    if not name or any(each.isspace() for each in name):
        return None
    return Heredoc(name=name, content="", expands=name == match[3], chomps=bool(match[2]))


def _content(rows: list[str], at: int, begun: Heredoc, line: Line) -> tuple[str, int]:
    kept: list[str] = []
    for end in range(at, len(rows)):
        row = rows[end].lstrip("\t") if begun.chomps else rows[end]
        if row == begun.name:
            return "".join(kept), end + 1
        kept.append(rows[end] + "\n")
    raise RecipeError(
        f"the heredoc {begun.name} does not end",
        line=line.number,
        text=line.text,
        remedy=f"end it with a line that is only {begun.name}",
    )
