"""Pure: the page of a sweep, a table of its points that is sorted by a click, without a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bareboat_base import __version__
from bareboat_base.page import document, facts, join, sorting, table, tag


def render_sweep(
    run_id: str, name: str, command: str, head: Sequence[str], rows: Sequence[Sequence[str]], texts: int
) -> str:
    """The page. `head`, `rows`: the table; its first `texts` columns are text, of which the last is the
    state."""
    states = Counter(row[texts - 1] for row in rows)
    summary = facts(
        "The sweep",
        (
            ("command", tag("code", command)),
            ("points", str(len(rows))),
            *((state, str(count)) for state, count in states.most_common()),
        ),
    )
    caption = "One row per point. Select a column's name to sort by it."
    body = (
        tag("header", tag("h1", "A sweep")),
        tag(
            "main",
            tag(
                "article",
                tag("h2", name),
                tag("p", run_id, class_="sub"),
                summary,
                tag("h3", "Points"),
                table(caption, head, rows, texts=texts, is_sortable=True),
            ),
        ),
        tag("footer", f"Written by Bareboat {__version__}. This page loads nothing from the network."),
    )
    return document(f"{name}: sweep", join(body), runs=[run_id], script=sorting())
