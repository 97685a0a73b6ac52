"""The tables of docs/shims.md: the verbs and flags of each tool that a shim replaces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bareboat_shim.table import Flag, Table


def reference(table: Table) -> str:
    """The verbs, the flags of each and their environment variables, and what is refused."""
    lines = ["| verb | arguments | what it does |", "|---|---|---|"]
    for verb in table.verbs:
        if not verb.refused:
            lines.append(f"| `{verb.name}` | {_code(verb.usage)} | {_cell(verb.meaning)} |")
    refused = [f"| `{verb.name}` | {_cell(verb.refused)} |" for verb in table.verbs if verb.refused]
    lines += (
        ["", "Refused, with the reason:", "", "| verb | reason |", "|---|---|", *refused] if refused else []
    )
    shown: dict[tuple[Flag, ...], str] = {}
    for verb in table.verbs:
        if not verb.flags or verb.flags in shown:
            continue
        # A verb with all flags of another one, and more.
        base = next((flags for flags in shown if set(flags) < set(verb.flags)), ())
        names = " and ".join(f"`{each.name}`" for each in table.verbs if each.flags == verb.flags)
        lines += ["", f"### Flags of {names}", ""]
        lines += [f"Those of {shown[base]}, and:", ""] if base else []
        lines += _flags(table, (flag for flag in verb.flags if flag not in base))
        shown[verb.flags] = names
    lines += ["", "### Flags before the verb" if shown else "### Flags", "", *_flags(table, table.flags)]
    return "\n".join(lines) + "\n"


def _flags(table: Table, flags: Iterable[Flag]) -> Iterator[str]:
    flags = tuple(flags)
    with_variables = any(flag.variables for flag in flags)
    yield "| flag | what it does |" + (" environment variable |" if with_variables else "")
    yield "|---|---|" + ("---|" if with_variables else "")
    for flag in flags:
        if not flag.refused:
            names = "".join(f" {_code(table.prefixes[0] + name)}," for name in flag.variables).rstrip(",")
            end = f"{names} |" if with_variables else ""
            yield f"| {_code(flag.written)} | {_cell(flag.meaning)} |{end}"
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
