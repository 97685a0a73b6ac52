"""Pure: a table of a report, as text, CSV, LaTeX, Markdown and HTML. Text from data cannot become markup."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bareboat_base import page
from bareboat_base.page import Markup
from bareboat_base.printable import plain_line

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-](inf|nan)")
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''", "±": r"$\pm$", "≥": r"$\geq$",
    "…": r"\ldots{}", "`": r"\textasciigrave{}", "[": "{[}", "]": "{]}",
}  # fmt: skip


def latex(text: str) -> str:
    """The text as LaTeX prints it: each character is escaped that has a meaning, and dashes stay apart."""
    escaped = "".join(_LATEX.get(character, character) for character in plain_line(text))
    return re.sub(r"-(?=-)", "-{}", escaped)


def markdown(text: str) -> str:
    """The text as Markdown shows it, in one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|~&$!])", r"\\\1", plain_line(text))


def as_csv(rows: Iterable[Sequence[object]]) -> str:
    """The rows with one header; a number keeps all its digits. Carriage returns become newlines, since
    readers disagree about them."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str):
        return plain_cell(value.replace("\r\n", "\n").replace("\r", "\n"))
    return "" if value is None else value


def plain_cell(text: str) -> str:
    """Text that spreadsheets do not take for a formula: names of runs and units come from others' files."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) and not _NUMBER.fullmatch(text) else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`groups`: rows, which rules part in print. `texts`: the columns of text; the others hold numbers."""

    head: Sequence[str]
    groups: Sequence[Sequence[Sequence[str]]]
    texts: Sequence[int] = (0,)
    caption: str = ""

    @property
    def rows(self) -> list[Sequence[str]]:
        return [row for group in self.groups for row in group]

    def terminal(self) -> list[str]:
        """Columns as wide as their cells."""
        rows = [self.head, *self.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(len(self.head))]
        return [
            "  ".join(
                cell.ljust(width) if column in self.texts else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]

    def csv(self) -> str:
        return as_csv([self.head, *self.rows])

    def html(self) -> Markup:
        return page.table(self.caption, self.head, self.rows, texts=self.texts)

    def markdown(self) -> str:
        rule = [":--" if column in self.texts else "--:" for column in range(len(self.head))]
        lines = [[*map(markdown, self.head)], rule, *([*map(markdown, row)] for row in self.rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def tabular(self) -> list[str]:
        """A `tabular` of LaTeX, which requires the package booktabs; a rule parts the groups of rows."""
        columns = "".join("l" if column in self.texts else "r" for column in range(len(self.head)))
        lines = [f"\\begin{{tabular}}{{{columns}}}", r"  \toprule", _latex_row(self.head)]
        for group in self.groups:
            if group:
                lines += [r"  \midrule", *map(_latex_row, group)]
        return [*lines, r"  \bottomrule", r"\end{tabular}"]

    def latex(self, *, study: str, version: str) -> str:
        """A table of the page's width with its caption."""
        lines = [
            f"% Bareboat {version}, study {plain_line(study)}; requires \\usepackage{{booktabs}}",
            r"\begin{table*}",
            r"  \centering",
            f"  \\caption{{{latex(self.caption)}}}",
            f"  \\label{{tab:{re.sub(r'[^A-Za-z0-9-]', '-', study)}}}",
            *(f"  {line}" for line in self.tabular()),
            r"\end{table*}",
        ]
        return "\n".join(lines) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return "  " + " & ".join(map(latex, cells)) + r" \\"
