"""HTML in which text from the data cannot become markup."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Sequence

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


def table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    texts: int = 1,
    is_sortable: bool = False,
) -> Markup:
    """A table that scrolls sideways where it is too wide; on a telephone each row is a list. The first
    `texts` columns are text, the rest numbers.

    The first cell of each row is its heading. `is_sortable`: by the page's script (`SORTING`).
    """

    def classed(place: int) -> str | None:
        return None if place < texts else "n"

    heads = (tag("th", cell, scope="col", class_=classed(i)) for i, cell in enumerate(head))
    lines = (
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(
                tag("td", tag("span", cell), class_=classed(i), data_label=head[i])
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
        class_="sortable" if is_sortable else None,
    )
    scroll = tag("div", cells, class_="scroll", tabindex="0", role="region", aria_label=caption)
    return tag("div", tag("p", caption, class_="caption"), scroll, class_="table")


def facts(title: str, pairs: Iterable[tuple[str, str]]) -> Markup:
    """A card with a definition list; empty facts are omitted."""
    rows = (tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs if value)
    return tag("section", tag("h4", title), tag("dl", *rows, class_="facts"), class_="card")


def in_notebook(shown: str) -> str:
    """The same in a notebook, whose own style would align every cell to the right."""
    return re.sub(r"<(t[dh])\b", r'<\1 style="text-align:left"', shown)


def document(title: str, body: Markup, *, runs: Iterable[str] = (), script: str = "") -> str:
    """A whole page. Its policy forbids all requests, so that it opens without a network, and all scripts but
    `script`, which is ours. `runs`: the runs that it reports, by which it is found to be a report."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
    head = join(
        (
            tag("meta", charset="utf-8"),
            tag("meta", name="generator", content=f"Bareboat {__version__}"),
            tag("meta", name=RUNS, content=" ".join(runs)),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            tag("title", title),
            Markup(f"<style>{_STYLE}</style>"),
        )
    )
    last = Markup(f"<script>{script}</script>") if script else ""
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n<body>{body}{last}</body>\n</html>\n'


#: Sorts the tables that are sortable: numbers as numbers, empty cells last.
SORTING = """
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const values = (column) => [...body.rows].map((row) => {
    const text = row.cells[column].textContent.trim();
    const number = Number(text.replaceAll(",", ""));
    return { row, text, number, none: text === "" || text === "\u2013" };
  });
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      const found = values(column);
      const numeric = found.every((each) => each.none || !Number.isNaN(each.number));
      found.sort((a, b) => (a.none - b.none) || (down ? -1 : 1) *
        (numeric ? a.number - b.number : a.text.localeCompare(b.text, "en", { numeric: true })));
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...found.map((each) => each.row));
    });
  });
}
"""

_STYLE = """
:root { --ink:#1c2329; --muted:#5b6670; --rule:#dfe4e8; --page:#f4f6f8; --card:#fff;
  --equivalent:#17694a; --different:#8f2d66; --better:#0b5f8a; --undecided:#59626b; --warning:#8a4b00;
  --band:#e6ebf0; --axis:#9aa4ad; --stripe:#f4f6f8; --block:#6b5b95; --arm-1:#0072b2; --arm-2:#d55e00 }
* { box-sizing:border-box }
body { margin:0; background:var(--page); color:var(--ink);
  font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif }
header, main, footer { max-width:1180px; margin:0 auto; padding:0 20px }
header { padding-top:28px }
h1 { font-size:1.05rem; font-weight:600; margin:0; color:var(--muted) }
h2 { font-size:1.35rem; line-height:1.25; margin:0 0 6px; overflow-wrap:anywhere }
h3 { font-size:1.08rem; margin:40px 0 12px }
h4 { font-size:.95rem; margin:0 0 8px }
article { margin:18px 0 72px }
.sub { color:var(--muted); margin:0 0 18px; font-size:.92rem; overflow-wrap:anywhere }
.card, figure { background:var(--card); border:1px solid var(--rule); border-radius:8px; padding:16px 18px;
  margin:0; min-width:0 }
.grid { display:grid; gap:18px; grid-template-columns:repeat(2,minmax(0,1fr)); align-items:stretch }
.masonry { columns:2; column-gap:18px } .masonry > * { break-inside:avoid; margin-bottom:18px }
.verdict { border-top:6px solid var(--tone); display:flex; flex-direction:column; gap:14px }
.equivalent { --tone:var(--equivalent) } .different, .training-diverged { --tone:var(--different) }
.better { --tone:var(--better) }
.undecided { --tone:var(--undecided) }
.word { font-size:2.1rem; line-height:1.1; font-weight:700; color:var(--tone); margin:0 }
.big { font-size:1.75rem; font-weight:600; margin:0; line-height:1.25; font-variant-numeric:tabular-nums }
.big small { display:block; font-size:.9rem; font-weight:400; color:var(--muted) }
.sentence { margin:0; font-size:1.05rem; overflow-wrap:anywhere }
.sentence + .sentence { margin-top:10px }
.warning { margin:0; font-weight:600; color:var(--warning); overflow-wrap:anywhere }
.tiles { display:grid; grid-template-columns:repeat(auto-fit,minmax(118px,1fr)); gap:10px 18px;
  margin:auto 0 0; border-top:1px solid var(--rule); padding-top:12px }
.tiles dt { font-size:.8rem; color:var(--muted) } .tiles dd { margin:0; font-variant-numeric:tabular-nums }
figure svg { display:block; width:100%; height:auto }
figure svg * { stroke-linejoin:round; stroke-linecap:butt }
figure svg text { font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif
  !important }
svg.key { width:.8em; height:.8em; display:inline-block !important }
figcaption { font-size:.84rem; line-height:1.4; color:var(--muted); margin-top:10px }
a { color:inherit }
.table { background:var(--card); border:1px solid var(--rule); border-radius:8px; overflow:hidden }
.scroll { overflow-x:auto } .caption { color:var(--muted); font-size:.84rem; margin:0; padding:10px 14px 4px }
table { border-collapse:collapse; width:100%; font-size:.9rem; font-variant-numeric:tabular-nums }
th, td { padding:7px 14px; text-align:left; border-top:1px solid var(--rule); vertical-align:top }
th { font-weight:600 } thead th { border-top:0; color:var(--muted); font-size:.84rem; white-space:nowrap }
td.n, th.n { text-align:right; white-space:nowrap }
td small, th small { display:block; font-weight:400; color:var(--muted); font-size:.82em }
th button { all:unset; cursor:pointer } th button:focus-visible { outline:2px solid var(--arm-1) }
th button::after { content:"\\00a0\\2195"; opacity:.45 }
th[aria-sort=ascending] button::after { content:"\\00a0\\2191"; opacity:1 }
th[aria-sort=descending] button::after { content:"\\00a0\\2193"; opacity:1 }
tr:has(.first) { background:color-mix(in srgb, var(--rule) 40%, transparent) }
.stack { display:flex; flex-direction:column; gap:18px } .stack > .card { flex:1 }
.stack .word { font-size:1.5rem } .definitions { margin-top:18px }
.definitions .facts { columns:2; column-gap:28px } .definitions .facts > div { break-inside:avoid }
.facts { margin:0 } .card .facts > div { display:grid; grid-template-columns:9.5em minmax(0,1fr); gap:10px;
  padding:3px 0; font-size:.9rem }
.card dt { color:var(--muted) } .card dd { margin:0; overflow-wrap:anywhere }
.notes { margin:0; padding-left:1.2em } .notes li { margin:4px 0 }
details { background:var(--card); border:1px solid var(--rule); border-radius:8px; margin-top:10px }
summary { cursor:pointer; padding:11px 16px; font-weight:600; overflow-wrap:anywhere }
details td, details th { white-space:nowrap }
details > .table { border-width:1px 0 0; border-radius:0 }
pre { margin:0; padding:14px 16px; overflow-x:auto; font:12.5px/1.5 ui-monospace,Menlo,Consolas,monospace;
  border-top:1px solid var(--rule); white-space:pre }
.card > pre { border-top:0; padding:0 }
code { font:.9em ui-monospace,Menlo,Consolas,monospace; overflow-wrap:anywhere }
footer { color:var(--muted); font-size:.84rem; padding-bottom:32px }
@media screen and (max-width:820px) { .definitions .facts { columns:1 } }
@media screen and (max-width:820px) { .grid { grid-template-columns:minmax(0,1fr) } .masonry { columns:1 } }
@media screen and (max-width:520px) { header, main, footer { padding-left:12px; padding-right:12px }
  .card, figure { padding:14px 12px } .word { font-size:1.8rem } .big { font-size:1.4rem }
  .card .facts > div { grid-template-columns:7.5em minmax(0,1fr) }
  table, tbody, tr, tbody th { display:block } thead { display:none }
  table.sortable thead, table.sortable thead tr { display:flex; flex-wrap:wrap }
  table.sortable thead th { white-space:normal }
  th, td { padding:3px 12px; border-top:0 } tr { border-top:1px solid var(--rule); padding:7px 0 }
  tbody td, tbody td.n, details td { display:grid; grid-template-columns:minmax(0,1fr) minmax(0,1.3fr);
    gap:10px; text-align:left; white-space:normal; overflow-wrap:anywhere }
  td::before { content:attr(data-label); color:var(--muted) }
  td.n > span { text-align:right }
  tbody th, details th { white-space:normal; overflow-wrap:anywhere } }
@media screen and (prefers-color-scheme:dark) { :root { --ink:#e7ebee; --muted:#a3adb6; --rule:#343c44;
  --page:#14181b; --card:#1d2227; --equivalent:#6fd3a8; --different:#f09cc6; --better:#7cc4ea;
  --undecided:#c2cad1; --warning:#f0b775; --band:#2b333b; --axis:#6b7680; --stripe:#23292f; --block:#a99bd6;
  --arm-1:#4aa8e0; --arm-2:#f58a3c } }
@page { size:A4; margin:12mm } @page wide { size:A4 landscape; margin:12mm }
@media print { :root { color-scheme:light; font-size:11.5px } body { background:#fff; font-size:1rem }
  header, main, footer { max-width:none; padding:0 } header { padding-top:0 } h3 { margin:16px 0 8px }
  h2, h3, h4, .caption, summary { break-after:avoid } article { margin:8px 0 }
  article + article { break-before:page } .part + .part { break-before:auto } .masonry { column-gap:12px }
  .masonry > * { margin-bottom:12px } .masonry > .card { break-inside:auto }
  figure, .verdict, tr, .facts > div { break-inside:avoid } .table, details { overflow:visible }
  article.flows { break-before:auto } .flows .grid > figure { display:none }
  .flows .grid { grid-template-columns:minmax(0,1fr) } .part.flows .masonry { columns:4 }
  .part.flows :is(.sentence, h3) { display:none } .part.flows .word { font-size:1.3rem }
  .part.flows .big { font-size:1rem } .part.flows .tiles { grid-template-columns:repeat(6,1fr) }
  .notes { font-size:.88rem }
  .card, figure { padding:9px 11px } .scroll { overflow:visible }
  th, td { padding:3px 6px; overflow-wrap:anywhere } details td, details th { white-space:normal }
  td.n, details td.n { white-space:nowrap; overflow-wrap:normal }
  thead th, thead th.n, details thead th { white-space:normal; overflow-wrap:normal }
  .raw, main:has(.raw) + footer { page:wide }
  .raw table { font-size:.78rem } .raw thead th { font-size:.74rem }
  .raw th, .raw td { padding:1px 4px } .raw details:first-of-type tbody * { white-space:nowrap }
  .flows .raw :is(th, td) { padding:0 4px } .flows .raw td { font-size:.72rem }
  details { border:0; margin-top:12px }
  .card .facts > div { font-size:.8rem; padding:1px 0 } figcaption { font-size:.78rem }
  .definitions { margin-top:8px } .definitions .facts { columns:3 }
  .definitions .facts > div { grid-template-columns:7em minmax(0,1fr) } .notes li { margin:1px 0 }
  .script pre { display:none } .script summary { font-weight:400; font-size:.8rem; padding:2px 0 }
  details.script { margin-top:2px } summary { list-style:none; padding:6px 0 }
  details::details-content { content-visibility:visible; display:block; height:auto; opacity:1 }
  pre { white-space:pre-wrap; overflow-wrap:anywhere; font-size:.8rem; overflow:visible }
  th button::after { content:"" } }
"""
