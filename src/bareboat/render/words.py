"""Words of a command -> bash. The only place that quotes."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Iterator, Sequence

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

#: Maximum length of a line of a job script.
WIDTH = 110

#: A text of several lines that is longer than this is in the library, as the variable `text_name`.
_LONG_TEXT = 300


def value(name: str, given: str | int | Sequence[str]) -> str:
    """An assignment in the script's head."""
    if isinstance(given, str | int):
        return f"{name}={literal(str(given))}"
    first, *rest = map(literal, given) if given else ("",)
    return _filled([f"{name}=({first}", *rest], "  ", "\n") + ")"


def values(**given: str | int | Sequence[str]) -> Iterator[str]:
    """Assignments in the script's head: variables with their values, and arrays with theirs."""
    for name, found in given.items():
        yield value(name, found)


def assignments(found: Iterable[str]) -> str:
    """As few lines as possible."""
    lines: list[str] = []
    for each in found:
        if lines and "\n" not in lines[-1] + each and len(lines[-1]) + 1 + len(each) <= WIDTH:
            lines[-1] += " " + each
        else:
            lines.append(each)
    return "".join(f"{line}\n" for line in lines)


def lines(groups: Sequence[str]) -> str:
    """A command of a function's body, over as few lines as possible: a group of words stays on one."""
    return "  " + _filled(groups, "    ", " \\\n", first=2)


def _filled(groups: Sequence[str], indent: str, end: str, first: int = 0) -> str:
    text, column = "", first
    for group in groups:
        head, _, rest = group.partition("\n")
        if text and column + 1 + len(head) > WIDTH - len(end):
            text, column = f"{text}{end}{indent}", len(indent)
        elif text:
            text, column = f"{text} ", column + 1
        text += group
        column = len(group) - group.rindex("\n") - 1 if rest else column + len(head)
    return text


def groups(command: Command) -> list[str]:
    """The words of a command; an option is in a group with its values."""
    found: list[str] = []
    in_options = True
    for word in command.argv:
        text = quoted(word)
        starts = not found or not in_options or text.startswith(("-", "${")) or "=" in text
        if starts or max(map(len, f"{found[-1]} {text}".split("\n"))) > WIDTH - 6:
            found.append(text)
        else:
            found[-1] += " " + text
        in_options = in_options and word != "--"
    return found


def joined(words: tuple[Word, ...]) -> str:
    """The words on one line."""
    return " ".join(map(quoted, words))


def text_of(command: Command) -> str:
    """All words of the command, with the values that its engine gets."""
    return " ".join([joined(command.argv), *sealed_entries(command), *exports(command)])


def _passed(command: Command) -> ForwardEnv | None:
    return next((word for word in command.argv if isinstance(word, ForwardEnv)), None)


def passed_names(command: Command) -> list[str] | None:
    """The names of the variables to pass on; None when the command has none."""
    if (found := _passed(command)) is None:
        return None
    return [*found.names, *(f'"${{!{prefix}@}}"' for prefix in found.prefixes)]


def passed_words(command: Command) -> str | None:
    """The words for each variable that is passed on."""
    found = _passed(command)
    return None if found is None else joined(found.words)


def exports(command: Command) -> list[str]:
    """Assignments that export the values for the command."""
    if command.sealed is UNSET or command.sealed.by is not Handing.EXPORTED:
        return []
    return [f"{CARRIER}{number}={quoted(value)}" for number, value in enumerate(command.sealed.values)]


#: Capacity of a pipe, whatever limits the user has (pipe(7)).
_PIPE_BYTES = 4096


def opens(command: Command) -> bool:
    """Whether the engine reads values from a descriptor."""
    return command.sealed is not UNSET and command.sealed.by is Handing.DESCRIPTOR


def sealed_entries(command: Command) -> list[str]:
    """What it reads there, an entry for each variable, as words of the functions `seal` and `seal_long`."""
    if command.sealed is UNSET or not opens(command):
        return []
    return [joined(_entry(command.sealed, number)) for number in range(len(command.sealed.names))]


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
            return f'"${text_name(word)}"' if _is_long(word) else literal(word)
        case Variable(name=name):
            return f'"${name}"'
        case NodePath(variable=variable, below=below):
            return _continued([f'"${variable}"', literal(below) if below else ""])
        case Joined(parts=parts):
            return _continued(map(quoted, parts))
        case IfSet(variable=variable, words=words):
            inner = " ".join(quoted(part) for part in words)
            return _continued([f"${{{variable}:+", f"{inner}}}"])
        case Opened(number=number, path=path):
            return f"{number}< {literal(path)}"
        case ForwardEnv():
            return '${passed[@]+"${passed[@]}"}'


def literal(text: str) -> str:
    """The text as a word. A long one goes on at the beginning of the next lines."""
    whole = shlex.quote(text)
    if len(whole) <= _CHUNK or "\n" in text:
        return whole
    size = _CHUNK - 2 if "'" not in text else _CHUNK // 6
    chunks = (text[at : at + size] for at in range(0, len(text), size))
    return "\\\n".join(map(shlex.quote, chunks))


def _continued(parts: Iterable[str]) -> str:
    """Parts of one word, over several lines where they are long."""
    text = ""
    for part in parts:
        if text and len(text) - text.rfind("\n") + len(part) > _CHUNK:
            text += "\\\n"
        text += part
    return text


#: Characters of a word on one line, beside the option before it.
_CHUNK = 88


def text_name(text: str) -> str:
    """The variable of the library that holds a long text."""
    return f"text_{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()[:12]}"


def texts(*commands: Command, more: tuple[Word, ...] = ()) -> dict[str, str]:
    """The long texts in the commands, by their variables."""
    found: dict[str, str] = {}

    def look(word: Word) -> None:
        match word:
            case str():
                if _is_long(word):
                    found[text_name(word)] = word
            case Joined(parts=parts):
                for part in parts:
                    look(part)
            case IfSet(words=inner) | ForwardEnv(words=inner):
                for inner_word in inner:
                    look(inner_word)
            case Variable() | NodePath() | Opened():
                pass

    for command in commands:
        values = () if command.sealed is UNSET else command.sealed.values
        for word in (*command.argv, *values):
            look(word)
    for word in more:
        look(word)
    return found


def _is_long(text: str) -> bool:
    return len(text) > _LONG_TEXT and "\n" in text
