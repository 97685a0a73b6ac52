"""The reference pages of the site as Markdown: verbs, job file keys, settings, exit codes, the Python API."""

from __future__ import annotations

import inspect
import itertools
import re
import sys
from pathlib import Path
from typing import Any

import reference
from reference import Command

import bareboat

ROOT = Path(__file__).parents[2]


def pages() -> dict[str, str]:
    """Path below the site's source directory -> text."""
    commands = reference.commands()
    found = {f"reference/bareboat-{each.name}.md": _command_page(each) for each in commands}
    found["reference/commands.md"] = _commands_page(commands)
    found["reference/keys.md"] = _keys_page()
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


def _keys_page() -> str:
    meanings = key_meanings((ROOT / "docs" / "job-file.md").read_text(encoding="utf-8"))
    lines = [
        "# Job file keys",
        "",
        "Every key of a job file, with its type, its default and the allowed values, as the program checks"
        " them. [The job file](../job-file.md) explains the keys; sizes and times"
        " [may have units](../job-file.md#sizes-and-times).",
        "",
    ]
    tables: dict[str, list[reference.Key]] = {}
    for key in reference.job_keys():
        tables.setdefault(key.name.rpartition(".")[0], []).append(key)
    for table, keys in tables.items():
        lines += [f"## [{table}]" if table else "## Without a table", ""]
        for key in keys:
            allowed = key.allowed.removeprefix("a whole number ").removeprefix("a number, ")
            kind = ", ".join(filter(None, (key.kind, allowed.removeprefix("a number "))))
            lines += [f"### {_code(key.name)}", "", f"{kind}; default: {key.default}", ""]
            lines += [meanings.get(key.name, ""), ""]
    return "\n".join(lines)


def key_meanings(page: str) -> dict[str, str]:
    """Key -> the last column of its row on the page of the job file, whose links lead from here."""
    rows = re.findall(r"^\| `([\w.]+)` \|.*\| (.*) \|$", page, re.MULTILINE)
    return {
        key: re.sub(
            r"\]\((#[^)]*)\)", r"](../job-file.md\1)", re.sub(r"\]\((\w[\w-]*\.md)", r"](../\1", text)
        )
        for key, text in rows
    }


def _settings_page() -> str:
    lines = [
        "# Settings and environment variables",
        "",
        "A setting comes from a flag, its environment variable, the job file, the project's `bareboat.toml`,"
        " the site file, or its default, in this order. `bareboat config` shows each value and its source."
        " A project's file may set those marked *consent* only after `bareboat config trust`.",
        "",
        "| setting | environment variable | type | allowed | meaning | |",
        "|---|---|---|---|---|---|",
    ]
    for each in reference.settings():
        consent = "*consent*" if each.guarded else ""
        lines.append(
            f"| {_code(each.name)} | {_code(each.variable)} | {each.kind} | {_cell(each.allowed)} "
            f"| {_cell(each.meaning)} | {consent} |"
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
    lines = [f"## {name}", "", "```text", f"{name}{_signature(what)}", "```", "", _doc(what), ""]
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
        lines += ["```text", f"{method}{shown}", "```", "", _doc(kind), ""]
    return lines


def _signature(what: Any) -> str:
    try:
        signature = str(inspect.signature(what))
    except (TypeError, ValueError):
        return ""
    signature = re.sub(r"\bself, |\bself\b|\bcls, |\bcls\b", "", signature)
    return signature.replace("'", "").replace("Unpack[JobKeys]", "JobKeys")


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
