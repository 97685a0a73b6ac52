"""The environment scripts of Apptainer: `%environment` of a definition file, and those in an image. Pure.

Nothing is executed: of shell code, assignments are evaluated, and everything else is named.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping

from msgspec import Struct

from bareboat_base.expressions import expression
from bareboat_images.recipe import expansion, words

NAME = expression(r"[A-Za-z_]\w*")
#: Variables of the user, the job and the container.
_RUN_TIME = expression(
    r"HOME|USER|LOGNAME|E?UID|PPID|(?:OLD)?PWD|HOST(?:NAME)?|SHELL|TMPDIR|RANDOM|SECONDS"
    r"|(?:SLURM|PBS|LSB|FLUX|SGE|APPTAINER|SINGULARITY)_\w*"
)
#: How Apptainer writes the variables of an image that it builds from.
_OF_BASE = expression(r'export ([A-Za-z_]\w*)=("\$\{\1:-".*"\}")')
_BEGINS, _ENDS = ("if", "for", "while", "until", "case", "{"), ("fi", "done", "esac", "}")


class CommandError(ValueError):
    """A line is more than assignments."""


class RunTimeError(ValueError):
    """A value is known only when the container runs; the text is the part that is."""


class Assignment(Struct, frozen=True):
    """One assignment. `value`: not expanded; None for `export NAME` of a variable that is set."""

    name: str
    value: str | None


def assignments(row: str, assigned: Container[str]) -> tuple[bool, list[Assignment]]:
    """Whether a line exports, and what it assigns. `assigned`: variables that are set. Raises CommandError,
    RunTimeError."""
    if (base := _OF_BASE.fullmatch(row.strip())) is not None:
        return True, [Assignment(base[1], base[2])]
    found = words.split_words(row.rstrip("; \t"), "\\")
    comment = next((at for at, word in enumerate(found) if word.startswith("#")), len(found))
    found = found[:comment]
    exports = found[:1] == ["export"]
    made = []
    for word in found[1:] if exports else found:
        name, equals, value = word.partition("=")
        if not NAME.fullmatch(name) or re.search(r"\$\(|`|[;&|<>(]", value) or not (equals or exports):
            raise CommandError
        if (unknown := _of_the_run(value, assigned)) is not None:
            raise RunTimeError(unknown)
        if equals or name in assigned:
            made.append(Assignment(name, value if equals else None))
    return exports, made


def _of_the_run(value: str, assigned: Container[str]) -> str | None:
    """What a shell would replace in a value at the start of the container: `~`, `$$`, $HOME …"""
    plain = re.sub(r"\\.|'[^']*'", "", value)
    if (tilde := re.search(r"(?:^|:)(~[\w/.-]*)", re.sub(r'"[^"]*"', '""', plain))) is not None:
        return tilde[1]
    for found in re.finditer(r"\$\{?([A-Za-z_]\w*|[0-9$@*#!?-])", plain):
        name = found[1]
        if not NAME.fullmatch(name) or (_RUN_TIME.fullmatch(name) and name not in assigned):
            return f"${name}"
    return None


def evaluated(text: str, environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The variables that a script of an image sets in an environment, and its lines that were not understood.
    An assignment without `export` sets a variable of the environment, or one for later values."""
    exported: dict[str, str] = {}
    unread: list[str] = []
    values = dict(environment)
    depth = 0
    for row in _rows(text):
        first = re.split(r"[\s;(]", row, maxsplit=1)[0]
        begins = first in _BEGINS or re.match(r"\w+\s*\(\)", row) is not None
        if begins or depth:
            ends = sum(each.rstrip(";") in _ENDS for each in row.split())
            depth = max(depth + begins - ends, 0)
            unread.append(row)
            continue
        try:
            exports, found = assignments(row, values)
            for each in found:
                value = values[each.name] if each.value is None else expansion.expand(each.value, values)
                values[each.name] = value
                if exports or each.name in environment or each.name in exported:
                    exported[each.name] = value
        except ValueError:  # of an expansion, too
            unread.append(row)
    return exported, unread


def _rows(text: str) -> Iterator[str]:
    """The lines that are neither empty nor comments; those that end in a backslash are joined."""
    for row in re.sub(r"\\\n", "", text).split("\n"):
        if row.strip() and not row.lstrip().startswith("#"):
            yield row.strip()
