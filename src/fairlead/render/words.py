"""Words of a command -> bash. The only place that quotes."""

from __future__ import annotations

import shlex

from fairlead.model import Command, Joined, PassedOn, Variable, WhenSet, Word


def command(command: Command) -> str:
    """The command over several lines, one option a line."""
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
    """The loop that looks which variables there are to pass on; "" when the command has none."""
    found = next((word for word in command.argv if isinstance(word, PassedOn)), None)
    if found is None:
        return ""
    names = [*found.names, *(f'"${{!{prefix}@}}"' for prefix in found.prefixes)]
    words = " ".join(map(quoted, found.words))
    given = "".join(
        f"  name={shlex.quote(name)} value={quoted(value)}\n  passed+=({words})\n"
        for name, value in found.given
    )
    return _PASSED.format(names=" ".join(names), words=words) + given


_PASSED = """\
  passed=()
  for name in {names}; do
    [ -n "${{!name+set}}" ] || continue
    value=${{!name}}
    passed+=({words})
  done
"""


def quoted(word: Word) -> str:
    match word:
        case str():
            return shlex.quote(word)
        case Variable(name=name):
            return f'"${name}"'
        case Joined(parts=parts):
            return "".join(quoted(part) for part in parts)
        case WhenSet(variable=variable, words=words):
            inner = " ".join(quoted(part) for part in words)
            return f"${{{variable}:+{inner}}}"
        case PassedOn():
            return '${passed[@]+"${passed[@]}"}'
