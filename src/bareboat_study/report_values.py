"""Pure: rows and text of a report as CSV, LaTeX and Markdown. Text from data cannot become markup."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

from bareboat_base.printable import plain, plain_line

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


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, texts: Sequence[int]) -> str:
    """A table of escaped cells; columns not in `texts` hold numbers."""
    rule = [":--" if column in texts else "--:" for column in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def latex_table(
    columns: str,
    head: Sequence[str],
    parts: Iterable[Sequence[Sequence[str]]],
    *,
    caption: str,
    study: str,
    version: str,
) -> str:
    """The rows as a table of the page's width, which requires the package booktabs. `caption` is LaTeX."""
    lines = [
        f"% Bareboat {version}, study {plain(study)}; requires \\usepackage{{booktabs}}",
        r"\begin{table*}",
        r"  \centering",
        f"  \\caption{{{caption}}}",
        f"  \\label{{tab:{re.sub(r'[^A-Za-z0-9-]', '-', study)}}}",
        *(f"  {row}" for row in latex_rows(columns, head, parts)),
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def latex_rows(columns: str, head: Sequence[str], parts: Iterable[Sequence[Sequence[str]]]) -> list[str]:
    """A `tabular` of booktabs with these columns; a rule parts the groups of rows. Every cell is escaped."""

    def row(cells: Sequence[str]) -> str:
        return "  " + " & ".join(map(latex, cells)) + r" \\"

    lines = [f"\\begin{{tabular}}{{{columns}}}", r"  \toprule", row(head)]
    for part in parts:
        if part:
            lines += [r"  \midrule", *map(row, part)]
    return [*lines, r"  \bottomrule", r"\end{tabular}"]
