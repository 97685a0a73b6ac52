"""Pure: a table of a report, as text, CSV and HTML. Text from data cannot become markup or a formula."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bareboat_base import page
from bareboat_base.page import Markup

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-](inf|nan)")


def as_csv(rows: Iterable[Sequence[object]]) -> str:
    """The rows with one header; a number keeps all its digits. Carriage returns become newlines, since
    readers disagree about them."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    """Text that spreadsheets do not take for a formula: names of runs and units come from others' files."""
    if not isinstance(value, str):
        return "" if value is None else value
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) and not _NUMBER.fullmatch(text) else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`texts`: the columns of text; the others hold numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: Sequence[int] = (0,)
    caption: str = ""

    def terminal(self, width: int | None = None) -> list[str]:
        """Columns as wide as their cells; where that is too wide for a terminal, a paragraph for each row."""
        rows = [self.head, *self.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(len(self.head))]
        if width is not None and sum(widths) + 2 * (len(widths) - 1) > width:
            return [line for row in self.rows for line in self._folded(row, width)]
        return [
            "  ".join(
                cell.ljust(most) if column in self.texts else cell.rjust(most)
                for column, (cell, most) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]

    def _folded(self, row: Sequence[str], width: int) -> list[str]:
        width = max(width, 40)
        cells = "; ".join(f"{name} {cell}" for name, cell in zip(self.head[1:], row[1:], strict=True) if cell)
        text = textwrap.wrap(cells, width - 2, break_on_hyphens=False)
        return [*textwrap.wrap(row[0], width, subsequent_indent="  "), *(f"  {line}" for line in text)]

    def html(self) -> Markup:
        return page.table(self.caption, self.head, self.rows, texts=self.texts)
