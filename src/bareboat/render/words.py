"""Words of a command -> bash. The only place that quotes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from msgspec import UNSET

from bareboat.model import (
    Command,
    ForwardEnv,
    Handing,
    IfSet,
    Joined,
    NodePath,
    Opened,
    Sealed,
    Variable,
    Word,
)
from bareboat.model.command import CARRIER


def values(**given: str | int | Sequence[str]) -> str:
    """A line of the script's head: variables with their values, and arrays with theirs."""
    found = []
    for name, value in given.items():
        if isinstance(value, str | int):
            found.append(f"{name}={shlex.quote(str(value))}")
        else:
            found.append(f"{name}=({shlex.join(value)})")
    return " ".join(found) + "\n"


def command(command: Command) -> str:
    """The command over several lines, one option per line."""
    lines: list[str] = []
    in_options = True
    for word in command.argv:
        text = quoted(word)
        starts_line = in_options and (text.startswith(("-", "${")) or "=" in text)
        if not lines or starts_line:
            lines.append(text)
        else:
            lines[-1] += " " + text
        if word == "--":
            in_options = False
            lines.append("")
    return " \\\n  ".join(line.strip() for line in lines if line.strip())


def joined(words: tuple[Word, ...]) -> str:
    """The words on one line."""
    return " ".join(map(quoted, words))


def passed(command: Command) -> str:
    """The loop that finds the variables to pass on; "" when the command has none."""
    found = next((word for word in command.argv if isinstance(word, ForwardEnv)), None)
    if found is None:
        return ""
    names = [*found.names, *(f'"${{!{prefix}@}}"' for prefix in found.prefixes)]
    words = " ".join(map(quoted, found.words))
    return _PASSED.format(names=" ".join(names), words=words)


_PASSED = """\
  passed=()
  for name in {names}; do
    [ -n "${{!name+set}}" ] || continue
    value=${{!name}}
    passed+=({words})
  done
"""


def exported(command: Command) -> str:
    """Lines that export the values for the command; "" when there are none."""
    if command.sealed is UNSET or command.sealed.by is not Handing.EXPORTED:
        return ""
    lines = [f"{CARRIER}{number}={quoted(value)}" for number, value in enumerate(command.sealed.values)]
    return "  export \\\n    " + " \\\n    ".join(lines) + "\n" if lines else ""


#: Capacity of a pipe, whatever limits the user has (pipe(7)).
_PIPE_BYTES = 4096


def opened(command: Command) -> str:
    """The lines that open the descriptor from which the engine reads the values; "" when there is none. They
    need the piece of bash `seal` or `seal_long`."""
    if command.sealed is UNSET or command.sealed.by is not Handing.DESCRIPTOR:
        return ""
    entries = [_entry(command.sealed, number) for number in range(len(command.sealed.names))]
    return " \\\n  ".join(["seal", *map(joined, entries)]) + "\n"


def is_small(command: Command) -> bool:
    """Whether the engine's input from the descriptor fits into an empty pipe, and contains no words that only
    the script knows."""
    sealed = command.sealed
    if sealed is UNSET:
        return True
    words = [word for number in range(len(sealed.names)) for word in _entry(sealed, number)]
    known = [word for word in words if isinstance(word, str)]
    size = sum(len(word.encode(errors="surrogateescape")) + 1 for word in known)
    return len(known) == len(words) and size <= _PIPE_BYTES


def _entry(sealed: Sealed, number: int) -> tuple[Word, ...]:
    values: dict[str, str | Variable | Joined] = {
        "name": sealed.names[number],
        "value": sealed.values[number],
    }
    return tuple(values[each.name] if isinstance(each, Variable) else each for each in sealed.form)


def quoted(word: Word) -> str:
    match word:
        case str():
            return shlex.quote(word)
        case Variable(name=name):
            return f'"${name}"'
        case NodePath(variable=variable, below=below):
            return f'"${variable}"' + (shlex.quote(below) if below else "")
        case Joined(parts=parts):
            return "".join(quoted(part) for part in parts)
        case IfSet(variable=variable, words=words):
            inner = " ".join(quoted(part) for part in words)
            return f"${{{variable}:+{inner}}}"
        case Opened(number=number, path=path):
            return f"{number}< {shlex.quote(path)}"
        case ForwardEnv():
            return '${passed[@]+"${passed[@]}"}'
