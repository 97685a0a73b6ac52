"""HTML in which text from the data cannot become markup."""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Iterable, Sequence
from importlib import resources

from bareboat_base import __version__

#: The name of a page's list of the runs that it reports.
RUNS = "bareboat-runs"

_VOID = frozenset({"meta", "br"})
# HTML cannot represent most control characters, so they are replaced.
_CONTROLS = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (9, 10, 13)}


class Markup(str):
    """Text that is HTML already. Every other string is escaped where it enters."""

    __slots__ = ()


def escape(text: str) -> Markup:
    """Text as HTML; characters that cannot be encoded (lone surrogates, controls) are replaced."""
    clean = text.encode("utf-8", "replace").decode("utf-8").translate(_CONTROLS)
    return Markup(html.escape(clean))


def join(parts: Iterable[str]) -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))


def tag(name: str, /, *children: str, **attributes: str | None) -> Markup:
    """An element. `class_` stands for `class`, other underscores for dashes; None omits an attribute."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>" if name in _VOID else f"<{name}{given}>{join(children)}</{name}>")


#: Characters of a word, such as a path, that a column of a table need not be as wide as.
_LONGEST_WORD = 40


def table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    texts: int | Sequence[int] = 1,
) -> Markup:
    """A table that scrolls sideways where it is too wide; on a telephone each row is a list. `texts`: the
    columns of text, or how many are before the numbers.

    The first cell of each row is its heading.
    """

    of_text = range(texts) if isinstance(texts, int) else texts

    def classed(place: int, cell: str = "") -> str | None:
        if place not in of_text:
            return "n"
        words = re.sub("<[^>]*>", " ", cell) if isinstance(cell, Markup) else cell
        return "long" if any(len(word) > _LONGEST_WORD for word in words.split()) else None

    heads = (tag("th", cell, scope="col", class_=classed(i)) for i, cell in enumerate(head))
    lines = (
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(
                tag("td", tag("span", cell), class_=classed(i, cell), data_label=head[i])
                for i, cell in enumerate(row[1:], start=1)
            ),
        )
        for row in rows
    )
    # The caption stays outside of the scrolling part; without a tab stop, the keyboard could not reach
    # columns beyond the screen's edge.
    cells = tag(
        "table",
        tag("thead", tag("tr", *heads)),
        tag("tbody", *lines),
        aria_label=caption,
    )
    scroll = tag("div", cells, class_="scroll", tabindex="0", role="region", aria_label=caption)
    return tag("div", tag("p", caption, class_="caption"), scroll, class_="table")


def facts(title: str, pairs: Iterable[tuple[str, str]]) -> Markup:
    """A card with a definition list; empty facts are omitted."""
    rows = (tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs if value)
    return tag("section", tag("h4", title), tag("dl", *rows, class_="facts"), class_="card")


def document(title: str, body: Markup, *, runs: Iterable[str] = ()) -> str:
    """A whole page. Its policy forbids all requests, so that it opens without a network, and all scripts.
    `runs`: the runs that it reports, by which it is found to be a report."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = join(
        (
            tag("meta", charset="utf-8"),
            tag("meta", name="generator", content=f"Bareboat {__version__}"),
            tag("meta", name=RUNS, content=" ".join(runs)),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            tag("title", title),
            Markup(f"<style>\n{_style()}</style>"),
        )
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n<body>{body}</body>\n</html>\n'


@functools.cache
def _style() -> str:
    return resources.files("bareboat_base").joinpath("page.css").read_text("utf-8")
