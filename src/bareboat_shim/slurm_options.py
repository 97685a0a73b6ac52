"""Command lines of Slurm's programs. Their own help lists which options take a value."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from bareboat_shim.table import Malformed, Mistake, similar

#: An option of the help, its short form, and whether it takes a value.
_OPTION = re.compile(r" {1,8}(?:(-\w),?\s+)?(--[A-Za-z][\w-]*)(\[=|=|)")
#: Options that the help lists wrongly, or not at all.
_UNLISTED = {
    "--container": "=", "--wrap": "=", "--tasks-per-node": "=", "--help": "", "--usage": "", "--version": "",
}  # fmt: skip
_HELP_S = 60.0
_OURS = ("--container-", "--no-container-")


class Words(NamedTuple):
    """A command line. `slurm`: Slurm's options as (name, words); `flags`: (name, value) of the shim's, ""
    for flags without a value; `rest`: the command."""

    slurm: tuple[tuple[str, tuple[str, ...]], ...]
    flags: tuple[tuple[str, str], ...]
    rest: tuple[str, ...]

    @property
    def options(self) -> list[str]:
        return [word for _, words in self.slurm for word in words]

    def value(self, *names: str) -> str | None:
        """The last value of one of Slurm's options."""
        values = [words[-1] for name, words in self.slurm if name in names]
        return re.sub(r"^--[\w-]+=", "", values[-1]) if values else None


def known(program: str) -> dict[str, str]:
    """The options of a program: name -> "=" with a value, "[=" with an optional one, "" without. Raises
    Mistake and ToolTimeoutError."""
    from bareboat_base import execute

    done = execute.run((program, "--help"), timeout_s=_HELP_S)
    found = dict(_listed(done.stdout))
    if not done.ok or not found:
        raise Mistake(f"{program} --help lists no options: {done.stderr[-200:]}", f"{program} --help")
    return {**found, **_UNLISTED}


def _listed(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        match = _OPTION.match(line)
        if match is not None:
            yield from ((name, match[3]) for name in (match[1], match[2]) if name)


def read(words: Sequence[str], options: Mapping[str, str], ours: Mapping[str, bool]) -> Words:
    """Read a command line up to its command. `ours`: the shim's flags: name -> whether it takes a value.
    Raises Malformed."""
    left = list(words)
    slurm: list[tuple[str, tuple[str, ...]]] = []
    flags: list[tuple[str, str]] = []
    while left and left[0].startswith("-") and left[0] != "-":
        word = left.pop(0)
        if word == "--":
            break
        if not word.startswith("--"):
            slurm.append(_short(word, left, options))
            continue
        text, equals, value = word.partition("=")
        name = _full(text, (*options, *ours))
        if name not in ours:
            slurm.append((name, _long(word, name, left, options)))
        elif ours[name]:
            flags.append((name, value if equals else _next(name, left)))
        elif equals:
            raise Malformed(f"{name} takes no value", name)
        else:
            flags.append((name, ""))
    return Words(tuple(slurm), tuple(flags), tuple(left))


def _full(name: str, names: Sequence[str]) -> str:
    """The option that this unambiguous beginning of a name means, as getopt_long(3) reads it."""
    if name in names:
        return name
    found = [each for each in names if each.startswith(name)]
    if len(found) == 1:
        return found[0]
    if name.startswith(_OURS) and not found:
        ours = sorted(each for each in names if each.startswith(_OURS))
        raise Malformed(f"unknown flag: {name}", " or ".join(similar(name, ours, 0.0)))
    return name


def _long(word: str, name: str, left: list[str], options: Mapping[str, str]) -> tuple[str, ...]:
    if "=" in word or options.get(name) in ("", "[="):
        return (word,)
    if name in options:
        return (word, _next(name, left))
    if left and not left[0].startswith("-"):
        raise Malformed(f"{name} is not in Slurm's help, so {left[0]} may be its value", f"{name}={left[0]}")
    return (word,)


def _short(word: str, left: list[str], options: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """One word of short options, and the next word where it is the value of the last one."""
    for place, letter in enumerate(word[1:], 1):
        kind = options.get(f"-{letter}", "")
        if kind:
            is_attached = place + 1 < len(word) or kind == "[="
            return f"-{letter}", (word,) if is_attached else (word, _next(f"-{letter}", left))
    return word[:2], (word,)


def _next(name: str, left: list[str]) -> str:
    if not left:
        raise Malformed(f"option needs an argument: {name}", f"{name}=VALUE")
    return left.pop(0)


def mentions(words: Sequence[str], names: Container[str]) -> bool:
    """Whether one of the words may be a flag of the shim's; the word may belong to the command."""
    texts = (word.partition("=")[0] for word in words)
    return any(text in names or text.startswith(("--con", "--no-con", "--env")) for text in texts)
