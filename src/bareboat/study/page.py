"""HTML in which text from the data cannot become markup."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

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


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1) -> Markup:
    """A table that scrolls sideways on a narrow screen. The first `texts` columns are text, the rest numbers.

    The first cell of each row is its heading.
    """

    def classed(place: int) -> str | None:
        return None if place < texts else "n"

    heads = (tag("th", cell, scope="col", class_=classed(i)) for i, cell in enumerate(head))
    lines = (
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(tag("td", cell, class_=classed(i)) for i, cell in enumerate(row[1:], start=1)),
        )
        for row in rows
    )
    # The caption stays outside of the scrolling part; without a tab stop, the keyboard could not reach
    # columns beyond the screen's edge.
    cells = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *lines), aria_label=caption)
    scroll = tag("div", cells, class_="scroll", tabindex="0", role="region", aria_label=caption)
    return tag("div", tag("p", caption, class_="caption"), scroll, class_="table")


def facts(title: str, pairs: Iterable[tuple[str, str]]) -> Markup:
    """A card with a definition list; empty facts are omitted."""
    rows = (tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs if value)
    return tag("section", tag("h4", title), tag("dl", *rows, class_="facts"), class_="card")


def document(title: str, body: Markup) -> str:
    """A whole page. Its policy forbids all requests, so that it opens without a network."""
    head = join(
        (
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag(
                "meta",
                http_equiv="Content-Security-Policy",
                content="default-src 'none'; style-src 'unsafe-inline'",
            ),
            tag("title", title),
            Markup(f"<style>{_STYLE}</style>"),
        )
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n<body>{body}</body>\n</html>\n'


_STYLE = """
:root { --ink:#1c2329; --muted:#5b6670; --rule:#dfe4e8; --page:#f4f6f8; --card:#fff;
  --equivalent:#17694a; --different:#8f2d66; --not-enough:#59626b; }
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
.not-enough-evidence { --tone:var(--not-enough) }
.word { font-size:2.1rem; line-height:1.1; font-weight:700; color:var(--tone); margin:0 }
.big { font-size:1.75rem; font-weight:600; margin:0; line-height:1.25; font-variant-numeric:tabular-nums }
.big small { display:block; font-size:.9rem; font-weight:400; color:var(--muted) }
.sentence { margin:0; font-size:1.05rem; overflow-wrap:anywhere }
.tiles { display:grid; grid-template-columns:repeat(auto-fit,minmax(118px,1fr)); gap:10px 18px;
  margin:auto 0 0; border-top:1px solid var(--rule); padding-top:12px }
.tiles dt { font-size:.8rem; color:var(--muted) } .tiles dd { margin:0; font-variant-numeric:tabular-nums }
figure { background:#fff; color:#1c2329 }
figure svg { display:block; width:100%; height:auto }
figure svg * { stroke-linejoin:round; stroke-linecap:butt }
figure svg text { font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif
  !important }
figcaption { font-size:.84rem; line-height:1.4; color:#5b6670; margin-top:10px }
figure h4 { color:#1c2329 }
a { color:inherit }
.table { background:var(--card); border:1px solid var(--rule); border-radius:8px; overflow:hidden }
.scroll { overflow-x:auto } .caption { color:var(--muted); font-size:.84rem; margin:0; padding:10px 14px 4px }
table { border-collapse:collapse; width:100%; font-size:.9rem; font-variant-numeric:tabular-nums }
th, td { padding:7px 14px; text-align:left; border-top:1px solid var(--rule); vertical-align:top }
th { font-weight:600 } thead th { border-top:0; color:var(--muted); font-size:.84rem; white-space:nowrap }
td.n, th.n { text-align:right; white-space:nowrap }
td small, th small { display:block; font-weight:400; color:var(--muted); font-size:.82em }
tr:has(.first) { background:color-mix(in srgb, var(--rule) 40%, transparent) }
.facts { margin:0 } .card .facts > div { display:grid; grid-template-columns:9.5em minmax(0,1fr); gap:10px;
  padding:3px 0; font-size:.9rem }
.card dt { color:var(--muted) } .card dd { margin:0; overflow-wrap:anywhere }
.notes { margin:0; padding-left:1.2em } .notes li { margin:4px 0 }
details { background:var(--card); border:1px solid var(--rule); border-radius:8px; margin-top:10px }
summary { cursor:pointer; padding:11px 16px; font-weight:600 }
details td, details th { white-space:nowrap }
details > .table { border-width:1px 0 0; border-radius:0 }
pre { margin:0; padding:14px 16px; overflow-x:auto; font:12.5px/1.5 ui-monospace,Menlo,Consolas,monospace;
  border-top:1px solid var(--rule); white-space:pre }
code { font:.9em ui-monospace,Menlo,Consolas,monospace; overflow-wrap:anywhere }
footer { color:var(--muted); font-size:.84rem; padding-bottom:32px }
@media (max-width:820px) { .grid { grid-template-columns:minmax(0,1fr) } .masonry { columns:1 } }
@media (max-width:520px) { table { min-width:600px } th, td { padding:6px 12px }
  header, main, footer { padding-left:12px; padding-right:12px }
  .card, figure { padding:14px 12px } .word { font-size:1.8rem } .big { font-size:1.4rem }
  .card .facts > div { grid-template-columns:7.5em minmax(0,1fr) } }
@media (prefers-color-scheme:dark) { :root { --ink:#e7ebee; --muted:#a3adb6; --rule:#343c44; --page:#14181b;
  --card:#1d2227; --equivalent:#6fd3a8; --different:#f09cc6; --not-enough:#c2cad1 } }
@media print { body { background:#fff } .card, figure, table { break-inside:avoid } }
"""
