"""The index of the site's search: every section, and every key, flag and command of a table, with its text.

A script that the page of the search loads, because browsers let a page that is opened as a file fetch
nothing.
"""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

#: Elements whose text is no content.
_LEFT_OUT = ("script", "style", "nav", "button")
_LONGEST = 1500


class _Page(HTMLParser):
    """The entries of a page: [anchor, title, text], where a row of a table has the anchor of its section."""

    def __init__(self) -> None:
        super().__init__()
        self.title = ""
        self.entries: list[list[str]] = []
        self._sections: list[list[str]] = []
        self._open: list[str] = []
        self._row: list[list[str]] | None = None
        self._has_code = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("br", "img", "input", "meta", "link", "hr", "path", "use", "circle", "line"):
            return
        self._open.append(tag)
        if tag == "section":
            self._sections.append([dict(attrs).get("id") or "", "", ""])
        elif tag == "tr":
            self._row, self._has_code = [], False
        elif tag == "td" and self._row is not None:
            self._row.append([])
        elif tag == "code" and self._row is not None and len(self._row) == 1:
            self._has_code = True

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass
        if tag == "section" and self._sections:
            self.entries.append(self._sections.pop())
        elif tag == "tr" and self._row is not None:
            self._end_row(["".join(cell).strip() for cell in self._row])
            self._row = None

    def handle_data(self, data: str) -> None:
        if not self._sections or any(tag in self._open for tag in _LEFT_OUT):
            return
        if any(tag in ("h1", "h2", "h3", "h4") for tag in self._open):
            if data != "#" and not data.startswith("¶"):
                self._sections[-1][1] += data
                if "h1" in self._open:
                    self.title += data
        elif self._row is not None:
            if self._row:
                self._row[-1].append(data)
        else:
            self._sections[-1][2] += data

    def _end_row(self, cells: list[str]) -> None:
        if self._has_code and len(cells) > 1 and self._sections:
            self.entries.append([self._sections[-1][0], cells[0], " · ".join(filter(None, cells[1:]))])
        elif self._sections:
            self._sections[-1][2] += " ".join(cells) + " "


def entries(site: Path) -> list[list[str]]:
    """[address, title of the page, title, text] of each section and row of the site."""
    found = []
    for path in sorted(site.rglob("*.html")):
        if path.name in ("search.html", "genindex.html"):
            continue
        page = _Page()
        page.feed(path.read_text(encoding="utf-8"))
        address = path.relative_to(site).as_posix()
        found += [
            [f"{address}#{anchor}", page.title.strip(), title.strip(), " ".join(text.split())[:_LONGEST]]
            for anchor, title, text in page.entries
        ]
    return found


def write(site: Path) -> None:
    """Write the index beside the site's scripts."""
    data = json.dumps(entries(site), ensure_ascii=False, separators=(",", ":"))
    (site / "_static" / "sections.js").write_text(f"setSections({data})\n", encoding="utf-8")
