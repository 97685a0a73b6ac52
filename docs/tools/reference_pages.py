"""The reference pages of the site as Markdown: verbs, job file keys, settings, exit codes, the Python API."""

from __future__ import annotations

import inspect
import itertools
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import reference
from reference import Command

import bareboat
from bareboat import registry

ROOT = Path(__file__).parents[2]
#: Of a line of code.
_WIDEST = 80


def pages() -> dict[str, str]:
    """Path below the site's source directory -> text."""
    commands = reference.commands()
    found = {f"reference/bareboat-{each.name}.md": _command_page(each) for each in commands}
    found["reference/commands.md"] = _commands_page(commands)
    found["reference/settings.md"] = _settings_page()
    found["reference/exit-codes.md"] = _exit_codes_page()
    found["reference/python.md"] = _python_page()
    return found


def _commands_page(commands: tuple[Command, ...]) -> str:
    lines = [
        "# Commands",
        "",
        "Every verb of `bareboat`, as in `bareboat VERB --help` and `man bareboat-VERB`.",
        "",
    ]
    for title, verbs in itertools.groupby(commands, lambda each: each.group):
        lines += [f"## {title.capitalize()}", "", "| command | effect |", "|---|---|"]
        lines += [
            f"| [bareboat {each.name}](bareboat-{each.name}.md) | {_cell(each.meaning)} |" for each in verbs
        ]
        lines.append("")
    return "\n".join(lines)


def _command_page(command: Command) -> str:
    lines = [f"# bareboat {command.name}", "", f"{_sentence(command.meaning)}", ""]
    for leaf in command.actions or (command,):
        if command.actions:
            lines += [f"## bareboat {leaf.name}", "", _sentence(leaf.meaning), ""]
        arguments = " ".join(each.value for each in leaf.arguments if not each.names)
        lines += ["```text", f"bareboat {leaf.name} [FLAG ...] {arguments}".rstrip(), "```", ""]
        if leaf.example:
            lines += [
                "For example:",
                "",
                "```sh",
                *(line.strip() for line in leaf.example.splitlines()),
                "```",
                "",
            ]
        lines += ["| argument | meaning |", "|---|---|"]
        for each in leaf.arguments:
            lines.append(f"| {_code(each.written)} | {_cell(each.meaning)} |")
        lines.append("")
    return "\n".join(lines)


def keys() -> str:
    """A section for each table of a job file, with its keys."""
    lines: list[str] = []
    tables: dict[str, list[reference.Key]] = {}
    for key in reference.job_keys():
        tables.setdefault(key.name.rpartition(".")[0], []).append(key)
    for table, keys in tables.items():
        lines += [f"## [{table}]: {reference.table_meaning(table)}" if table else "## Without a table", ""]
        for key in keys:
            allowed = key.allowed.removeprefix("a whole number ").removeprefix("a number")
            kind = ", ".join(filter(None, (key.kind, allowed.removeprefix(", ").strip())))
            ways = [f"flag: {_code(key.flag)}"] * bool(key.flag)
            ways += [f"[setting](reference/settings.md): {_code(key.setting)}"] * bool(key.setting)
            lines += [f"### {_code(key.name)}", "", "; ".join((kind, f"default: {key.default}", *ways)), ""]
            meaning = key.meaning + _built_in(key.name)
            lines += [*textwrap.wrap(meaning, 120, break_long_words=False, break_on_hyphens=False), ""]
    return "\n".join(lines)


def _built_in(key: str) -> str:
    """The names that the key of an engine, a launcher or a scheduler may have."""
    names = registry.BUILT_IN.get(f"{key}s", ())
    return f"; built in: {', '.join(map(_code, names))}" if names else ""


def _settings_page() -> str:
    lines = [
        "# Settings and environment variables",
        "",
        "A setting comes from a flag, its environment variable, the job file, the project's `bareboat.toml`,"
        " the site file, or its default, in this order. `bareboat config` shows each value and its source."
        " A project's file may not set those marked *personal*.",
        "",
        "| setting | environment variable | type | allowed | meaning | |",
        "|---|---|---|---|---|---|",
    ]
    for each in reference.settings():
        personal = "*personal*" if each.is_personal else ""
        lines.append(
            f"| {_code(each.name)} | {_code(each.variable)} | {each.kind} | {_cell(each.allowed)} "
            f"| {_cell(each.meaning)} | {personal} |"
        )
    lines += [
        "",
        "## Other environment variables that Bareboat reads",
        "",
        "| variable | effect |",
        "|---|---|",
    ]
    for name, meaning in reference.ENVIRONMENT.items():
        lines.append(f"| {_code(name)} | {_cell(meaning)} |")
    lines += ["", "What a job finds: [job files](../job-file.md#what-the-command-finds).", ""]
    return "\n".join(lines)


def _exit_codes_page() -> str:
    lines = ["# Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {_cell(meaning)} |" for code, meaning in reference.exit_codes().items()]
    return "\n".join([*lines, ""])


def _python_page() -> str:
    """From the docstrings and signatures of what `import bareboat` exports, and of the meter."""
    sys.path.append(str(ROOT / "src"))
    import bareboat_meter

    lines = ["# Python API reference", "", "[Python API](../python-api.md) is the introduction.", ""]
    for name in sorted(bareboat.__all__, key=str.lower):
        if not name.startswith("_"):
            lines += _documented(f"bareboat.{name}", getattr(bareboat, name))
    lines += _documented("bareboat_meter.Meter", bareboat_meter.Meter)
    return "\n".join(lines)


def _documented(name: str, what: Any) -> list[str]:
    lines = [f"## {name}", "", "```text", _folded(f"{name}{_signature(what)}"), "```", "", _doc(what), ""]
    if not isinstance(what, type):
        return lines
    for method, value in vars(what).items():
        if method.startswith("_"):
            continue
        kind = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if isinstance(value, property):
            shown = f": {_type(value.fget)}"
            kind = value.fget
        elif callable(kind):
            shown = _signature(kind)
        else:
            continue
        if not inspect.getdoc(kind):
            continue
        lines += [f"### {name.rpartition('.')[2]}.{method}", ""]
        lines += ["```text", _folded(f"{method}{shown}"), "```", "", _doc(kind), ""]
    return lines


def _signature(what: Any) -> str:
    try:
        signature = str(inspect.signature(what))
    except (TypeError, ValueError):
        return ""
    signature = re.sub(r"\bself, |\bself\b|\bcls, |\bcls\b", "", signature)
    # Annotations are shown as strings; defaults that are strings keep their quotes.
    signature = re.sub(r"(: |-> )(['\"])(.*?)\2", r"\1\3", signature)
    return signature.replace("Unpack[JobKeys]", "JobKeys")


def _folded(signature: str) -> str:
    """One line, or one for each parameter where it would be too wide."""
    if len(signature) <= _WIDEST:
        return signature
    lines, depth = [""], 0
    for character in signature:
        if character in ")]":
            depth -= 1
            if not depth:
                lines[-1] += ","
                lines.append("")
        if not (character == " " and lines[-1] == ""):
            lines[-1] += character
        if character in "([":
            depth += 1
        if depth == 1 and character in "(,":
            lines.append("")
    return "\n".join(
        ("    " if 0 < number < len(lines) - 1 else "") + line for number, line in enumerate(lines)
    )


def _type(getter: Any) -> str:
    return str(inspect.signature(getter).return_annotation).replace("'", "")


def _doc(what: Any) -> str:
    return re.sub(r"(?<!`)\b(\w+_s|None|True|False)\b(?!`)", r"`\1`", inspect.getdoc(what) or "")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _code(text: str) -> str:
    return f"`{text}`".replace("|", r"\|")


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;").replace("*", r"\*").replace("_", r"\_")
