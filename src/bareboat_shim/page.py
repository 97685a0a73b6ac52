"""The tables of a tool's shim for its page of the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bareboat_shim.table import Flag, Table

#: What follows in the page is written by this module.
MARK = "<!-- written by docs/tools/shim_page.py -->"


def reference(table: Table) -> str:
    """The verbs, the flags of each and their environment variables, and what is refused."""
    lines = ["| verb | arguments | what it does |", "|---|---|---|"]
    for verb in table.verbs:
        if not verb.refused:
            lines.append(f"| `{verb.name}` | {_code(verb.usage)} | {_cell(verb.meaning)} |")
    lines += ["", "Refused, with the reason:", "", "| verb | reason |", "|---|---|"]
    lines += [f"| `{verb.name}` | {_cell(verb.refused)} |" for verb in table.verbs if verb.refused]
    shown: set[tuple[Flag, ...]] = set()
    for verb in table.verbs:
        if verb.flags and verb.flags not in shown:
            also = [each.name for each in table.verbs if set(verb.flags) & set(each.flags) == set(verb.flags)]
            shown.add(verb.flags)
            lines += ["", f"### Flags of {' and '.join(f'`{name}`' for name in also)}", ""]
            lines += _flags(table, verb.flags)
    lines += ["", "### Flags before the verb", "", *_flags(table, table.flags)]
    return "\n".join(lines) + "\n"


def _flags(table: Table, flags: Iterable[Flag]) -> Iterator[str]:
    flags = tuple(flags)
    yield "| flag | what it does | environment variable |"
    yield "|---|---|---|"
    for flag in flags:
        if not flag.refused:
            names = ", ".join(f"`{table.prefixes[0]}{name}`" for name in flag.variables)
            yield f"| {_code(flag.written)} | {_cell(flag.meaning)} | {names} |"
    if any(flag.refused for flag in flags):
        yield ""
        yield "| refused flag | reason |"
        yield "|---|---|"
        for flag in flags:
            if flag.refused:
                yield f"| {_code(', '.join(flag.names))} | {_cell(flag.refused)} |"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
