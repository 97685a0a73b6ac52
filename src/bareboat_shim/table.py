"""What a tool's command line understands: one table per tool. Parser, refusals and docs follow it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_LARGEST = 1 << 20


class Flag(NamedTuple):
    """A flag. `names`: its spellings, the first one identifies it; `value`: the placeholder of its value, or
    ""; `meaning`: what it does here; `refused`: why it is refused, or ""; `variables`: environment variables
    without the tool's prefix that set it, too; `several`: it may be repeated."""

    names: tuple[str, ...]
    value: str = ""
    meaning: str = ""
    refused: str = ""
    variables: tuple[str, ...] = ()
    several: bool = False

    @property
    def key(self) -> str:
        return self.names[0].lstrip("-")

    @property
    def written(self) -> str:
        """How it is written: `--bind, -B SRC`."""
        return f"{', '.join(self.names)} {self.value}".rstrip()


class Verb(NamedTuple):
    """A verb. `own`: the number of its arguments before those of the command in the container, None for
    all; `least`: the number that it requires."""

    name: str
    usage: str = ""
    meaning: str = ""
    refused: str = ""
    flags: tuple[Flag, ...] = ()
    own: int | None = None
    least: int = 0


class Table(NamedTuple):
    """A tool. `names`: those of its programs; `prefixes`: of its environment variables, the one that applies
    first; `flags`: those before the verb; `code`: its exit code for mistakes on the command line, `fatal`:
    for all others; `error`: what its messages begin with."""

    names: tuple[str, ...]
    version: str
    prefixes: tuple[str, ...]
    flags: tuple[Flag, ...]
    verbs: tuple[Verb, ...]
    code: int
    fatal: int
    error: str = "FATAL:   "

    def flag(self, name: str) -> str:
        """The key of a flag before the verb; "" for an unknown one."""
        return next((flag.key for flag in self.flags if name in flag.names), "")

    def verb(self, name: str) -> Verb | None:
        return next((verb for verb in self.verbs if verb.name == name), None)


class Line(NamedTuple):
    """A command line. `options`: key -> values, "" for flags without one; `words`: the arguments."""

    verb: Verb
    options: Mapping[str, Sequence[str]]
    words: Sequence[str]

    def has(self, key: str) -> bool:
        return key in self.options

    def value(self, key: str) -> str | None:
        """The last value."""
        values = self.options.get(key)
        return values[-1] if values else None

    def values(self, key: str) -> Sequence[str]:
        return self.options.get(key, ())

    def mounts(self, key: str) -> list[str]:
        """The specifications in lists with commas: an option such as `ro` belongs to the one before it."""
        found: list[str] = []
        for value in self.values(key):
            last = len(found)
            for part in value.split(","):
                if part in ("ro", "rw") and found[last:] and found[-1].count(":") >= 2:
                    found[-1] += f",{part}"
                elif part:
                    found.append(part)
        return found


class Mistake(Exception):
    """What the tool, or the shim, cannot do. `code`: the exit code, if it is not the table's."""

    def __init__(self, message: str, remedy: str = "", code: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy


def lines_of_file(path: str) -> list[str]:
    """The lines of a file that a flag names. Raises Mistake where it is none, or too large."""
    from bareboat_base.files import untrusted

    try:
        data = untrusted.read_bytes(path, limit=_LARGEST, follow=True)
    except OSError as error:
        remedy = f"ls -l {shlex.quote(path)}"
        if not error.errno:  # a pipe, a device or a directory, or too large
            remedy = "write the lines to a regular file of at most 1 MiB first, and name that file"
        raise Mistake(f"cannot read the file {path}: {error.strerror}", remedy) from None
    return data.decode(errors="surrogateescape").split("\n")


class Malformed(Mistake):
    """A command line that does not have the tool's form."""


def parse(table: Table, argv: Sequence[str], environment: Mapping[str, str]) -> Line:
    """Read a command line by the table. Raises Mistake: no flag is ignored."""
    options: dict[str, list[str]] = {}
    words = _flags(table.flags, list(argv), options, own=0, verb="")
    if not words:
        raise Malformed("no command is given", f"use one of: {', '.join(_usable(table))}")
    verb = table.verb(words[0])
    if verb is None:
        raise Malformed(
            f'unknown command "{words[0]}" for "{table.names[0]}"', f"use one of: {', '.join(_usable(table))}"
        )
    if verb.refused:
        raise Mistake(f"{words[0]} is not supported: {verb.refused}")
    rest = _flags((*verb.flags, *table.flags), words[1:], options, own=verb.own, verb=verb.name)
    if len(rest) < verb.least:
        raise Malformed(
            f"{verb.name} requires more arguments", f"usage: {table.names[0]} {verb.name} {verb.usage}"
        )
    for flag in verb.flags:
        _from_environment(table, flag, options, environment)
    return Line(verb, options, rest)


def _usable(table: Table) -> list[str]:
    return [verb.name for verb in table.verbs if not verb.refused]


def _flags(
    flags: Sequence[Flag], argv: list[str], options: dict[str, list[str]], *, own: int | None, verb: str
) -> list[str]:
    """Read flags up to the argument after the first `own` ones, or `--`; return the arguments."""
    names = {name: flag for flag in reversed(flags) for name in flag.names}  # the first one applies
    words: list[str] = []
    while argv:
        word = argv.pop(0)
        if word == "--":
            return words + argv
        if not word.startswith("-") or word == "-":
            words.append(word)
            if own is not None and len(words) >= max(own, 1):
                return words + argv
            continue
        for flag, value in _read(names, word, argv, verb):
            if flag.refused:
                raise Mistake(f"{flag.names[0]} is not supported: {flag.refused}")
            options[flag.key] = [*(options.get(flag.key, ()) if flag.several else ()), value]
    return words


def _read(names: Mapping[str, Flag], word: str, argv: list[str], verb: str) -> list[tuple[Flag, str]]:
    """The flag of a word, or several short ones in it, with their values."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        flag = _known(names, name, verb)
        if not flag.value:
            if equals and value.lower() not in ("true", "1"):
                raise Malformed(f"{name} takes no value", name)
            return [(flag, "")]
        return [(flag, value if equals else _next(flag, name, argv))]
    found: list[tuple[Flag, str]] = []
    letters = word[1:]
    while letters:
        name, letters = f"-{letters[0]}", letters[1:]
        flag = _known(names, name, verb)
        if flag.value:
            found.append((flag, letters.removeprefix("=") if letters else _next(flag, name, argv)))
            break
        found.append((flag, ""))
    return found


def _known(names: Mapping[str, Flag], name: str, verb: str) -> Flag:
    if name not in names:
        # The whole list is about 700 characters for Docker.
        of = f" of {verb}" if verb else ""
        alike = similar(name, _supported(names), 0.7)
        raise Malformed(f"unknown flag{of}: {name}", " or ".join((*alike, "--help")))
    return names[name]


def similar(name: str, supported: Sequence[str], likeness: float) -> list[str]:
    """The flags that an unknown one may mean, the likeliest first."""
    import difflib  # here, because every start imports this module

    return difflib.get_close_matches(name, supported, cutoff=likeness)


def _supported(names: Mapping[str, Flag]) -> list[str]:
    return sorted(name for name, flag in names.items() if not flag.refused and name.startswith("--"))


def _next(flag: Flag, name: str, argv: list[str]) -> str:
    if not argv:
        raise Malformed(f"flag needs an argument: {name}", f"{name} {flag.value}")
    return argv.pop(0)


def _from_environment(
    table: Table, flag: Flag, options: dict[str, list[str]], environment: Mapping[str, str]
) -> None:
    """The value of a flag's variable: added to a repeated flag, else used where the flag is not given."""
    for name in flag.variables:
        found = next((environment[p + name] for p in table.prefixes if environment.get(p + name)), None)
        if found is None or (flag.key in options and not flag.several):
            continue
        if not flag.value and found.lower() in ("0", "false", "f", "no"):
            continue
        if flag.refused:
            raise Mistake(
                f"{table.prefixes[0]}{name} is not supported: {flag.refused}",
                f"unset {table.prefixes[0]}{name}",
            )
        options[flag.key] = [found if flag.value else "", *(options.get(flag.key, ()))]
