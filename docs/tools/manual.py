"""The man pages: `bareboat(1)` and one page for each verb, written from the program's own parsers.

python docs/tools/manual.py DIR writes them; the wheel has them under share/man/man1.
"""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path

import reference
from reference import Argument, Command

from bareboat_base import __version__


def pages() -> dict[str, str]:
    """File name -> text."""
    commands = reference.commands()
    found = {"bareboat.1": _overview(commands)}
    for command in commands:
        found[f"bareboat-{command.name}.1"] = _verb(command)
    return found


def write(directory: Path) -> list[Path]:
    """Write all pages into a directory; return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in pages().items():
        path = directory / name
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def _overview(commands: tuple[Command, ...]) -> str:
    meaning = "run any environment on any cluster, rootless, and measure the container's cost"
    parts = [_head("bareboat", meaning), _synopsis([r"\fBbareboat\fR \fIVERB\fR [\fIFLAG\fR ...]"])]
    parts.append(".SH DESCRIPTION")
    parts.append(
        _text(
            "Bareboat captures the active Python environment, or takes a container image, and runs it on any "
            "cluster without root. It measures what the container costs compared with bare metal."
        )
    )
    parts.append(".SH VERBS")
    for title, verbs in itertools.groupby(commands, lambda each: each.group):
        parts.append(f".SS {title.capitalize()}")
        parts += [_item(rf"\fBbareboat-{_escape(each.name)}\fR(1)", each.meaning) for each in verbs]
    parts.append(".SH EXIT STATUS")
    parts += [_item(rf"\fB{code}\fR", meaning) for code, meaning in reference.exit_codes().items()]
    parts.append(".SH ENVIRONMENT")
    for each in reference.settings():
        parts.append(_item(rf"\fB{each.variable}\fR", each.meaning))
    parts += [_item(rf"\fB{_escape(name)}\fR", meaning) for name, meaning in reference.ENVIRONMENT.items()]
    parts.append(".SH FILES")
    for name, meaning in _FILES.items():
        parts.append(_item(rf"\fI{_escape(name)}\fR", meaning))
    return _joined(parts)


_FILES = {
    "~/.config/bareboat/site.toml": "settings of this cluster",
    "/etc/bareboat/site.toml": "the same for all users of the machine, where theirs sets nothing else",
    "bareboat.toml": "settings of a project, in the working directory or above it",
}


def _verb(command: Command) -> str:
    parts = [_head(f"bareboat-{command.name}", command.meaning)]
    leaves = command.actions or (command,)
    parts.append(_synopsis([_usage(each) for each in leaves]))
    parts.append(".SH DESCRIPTION")
    parts.append(_text(command.meaning[:1].upper() + command.meaning[1:] + "."))
    if command.actions:
        shared = [each for each in leaves[0].arguments if all(each in leaf.arguments for leaf in leaves)]
        parts.append(".SH ACTIONS")
        for each in leaves:
            parts.append(rf".SS {_escape(each.name)}")
            parts.append(_text(each.meaning[:1].upper() + each.meaning[1:] + "."))
            parts += [_argument(each) for each in each.arguments if each not in shared]
            parts += _examples(each)
        parts.append(".SH FLAGS OF EVERY ACTION")
        parts += [_argument(each) for each in shared]
    else:
        arguments = [each for each in command.arguments if not each.names]
        if arguments:
            parts.append(".SH ARGUMENTS")
            parts += [_argument(each) for each in arguments]
        parts.append(".SH FLAGS")
        group = ""
        for flag in (each for each in command.arguments if each.names):
            if flag.group != group:
                parts.append(f".SS {_escape(flag.group)}")
                group = flag.group
            parts.append(_argument(flag))
        if command.example:
            parts.append(".SH EXAMPLES")
            parts += _examples(command)
    parts.append(".SH SEE ALSO")
    parts.append(r"\fBbareboat\fR(1)")
    return _joined(parts)


def _head(name: str, meaning: str) -> str:
    title = f'.TH {name.upper()} 1 "" "Bareboat {__version__}" "Bareboat"'
    # No hyphenation and no adjustment, so that commands can be copied.
    return "\n".join((title, ".nh", ".ad l", ".SH NAME", rf"{_escape(name)} \- {_escape(meaning)}"))


def _synopsis(lines: list[str]) -> str:
    return "\n.br\n".join([".SH SYNOPSIS\n" + lines[0], *lines[1:]])


def _usage(command: Command) -> str:
    words = [rf"\fBbareboat {_escape(command.name)}\fR", r"[\fIFLAG\fR ...]"]
    words += [_escape(each.value) for each in command.arguments if not each.names]
    return " ".join(words)


def _argument(argument: Argument) -> str:
    meaning = argument.meaning
    if argument.choices and not argument.value.startswith("{"):
        meaning += f" (one of: {', '.join(argument.choices)})"
    if not argument.names:
        return _item(rf"\fI{_escape(argument.value)}\fR", meaning)
    value = rf" \fI{_escape(argument.value)}\fR" if argument.value else ""
    return _item(", ".join(rf"\fB{_escape(name)}\fR{value}" for name in argument.names), meaning)


def _examples(command: Command) -> list[str]:
    if not command.example:
        return []
    lines = [_escape(line.strip()) for line in command.example.splitlines()]
    return [".nf\n.RS 4\n" + "\n".join(rf"\fB{line}\fR" for line in lines) + "\n.RE\n.fi"]


def _item(term: str, meaning: str) -> str:
    return f".TP\n{term}\n{_escape(meaning)}"


def _text(text: str) -> str:
    return _escape(text)


def _escape(text: str) -> str:
    """Text as roff: backslashes, hyphens that are copied, and no control line by accident."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace("`", r"\(ga")
    return re.sub(r"^([.])", r"\\&\1", text, flags=re.MULTILINE)


def _joined(parts: list[str]) -> str:
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    for path in write(Path(sys.argv[1])):
        print(path)
