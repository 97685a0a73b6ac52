"""Batch scripts with `#SBATCH --container-…` lines, and the scripts that Slurm gets instead of them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bareboat_base.files import untrusted
from bareboat_shim import slurm_options
from bareboat_shim.table import Malformed, Mistake

#: Before the user's script in the one that Slurm gets.
MARK = "# The batch script of the job:\n"
_DIRECTIVE = "#SBATCH"
_MOST_BYTES = 4 << 20  # Slurm's own limit
_WRAPPED = "#!/bin/sh\n# Written by sbatch --wrap.\n\n{}\n"


class Script(NamedTuple):
    """`text`: the whole; `lines`: its directives without the shim's flags; `flags`: those."""

    text: str
    lines: tuple[str, ...]
    flags: tuple[tuple[str, str], ...]
    names: frozenset[str]


def load(path: str) -> str:
    """Raises Mistake."""
    try:
        data = untrusted.read_bytes(path, limit=_MOST_BYTES, follow=True)
    except OSError as error:
        raise Mistake(f"Unable to open file {path}: {error.strerror}", f"ls -l {shlex.quote(path)}") from None
    return data.decode(errors="surrogateescape")


def wrapped(command: str) -> str:
    return _WRAPPED.format(command)


def read(text: str, options: Mapping[str, str], ours: Mapping[str, bool]) -> Script:
    """Read the directives: comments before the first command. Raises Malformed, with the line."""
    lines: list[str] = []
    flags: list[tuple[str, str]] = []
    names: set[str] = set()
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            break
        if not line.startswith(_DIRECTIVE) or line[len(_DIRECTIVE) :][:1] not in (" ", "\t"):
            continue
        words = _words(line[len(_DIRECTIVE) :], number)
        if slurm_options.mentions(words, ours):
            found = slurm_options.read(words, options, ours)
            flags += found.flags
            words = found.options
            line = f"{_DIRECTIVE} {' '.join(map(shlex.quote, words))}"
        names |= {word.partition("=")[0] for word in words} | {word[:2] for word in words}
        if words:
            lines.append(line)
    return Script(text, tuple(lines), tuple(flags), frozenset(names))


def _words(text: str, number: int) -> list[str]:
    """The words of a directive: with quotes, escapes, and a comment from the first `#` that has neither."""
    lexer = shlex.shlex(_without_comment(text), posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:
        raise Malformed(f"#SBATCH, line {number}: a quote is not closed", "close it") from None


def _without_comment(text: str) -> str:
    quote, escaped = "", False
    for place, letter in enumerate(text):
        if escaped:
            escaped = False
        elif letter == "\\":
            escaped = True
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#":
            return text[:place]
    return text


def composed(script: Script, start: Sequence[str]) -> str:
    """The script that Slurm gets: the directives, a start of the container, and the user's script, which the
    container's start reads. `start`: the words before the script's path and its arguments."""
    head = "\n".join(("#!/bin/sh", *script.lines))
    command = " ".join(map(shlex.quote, start))
    return f'{head}\nexec {command} "$0" "$@"\n{MARK}{script.text}'


def extracted(path: str) -> str:
    """The user's script in one that Slurm got. Raises Mistake."""
    _, mark, text = load(path).partition(MARK)
    if not mark:
        raise Mistake(f"{path} holds no batch script", "sbatch SCRIPT")
    return text


def interpreter(text: str, path: str) -> tuple[str, ...]:
    """The words of the script's first line, and the script."""
    first = text.partition("\n")[0]
    if not first.startswith("#!"):
        raise Mistake(
            "This does not look like a batch script: the first line must start with #!", "#!/bin/sh"
        )
    return (*first[2:].strip().split(maxsplit=1), path)


def name_of(path: str | None, *, is_wrapped: bool) -> str:
    """The job's name where none is given, as Slurm chooses it."""
    return os.path.basename(path) if path else "wrap" if is_wrapped else "sbatch"
