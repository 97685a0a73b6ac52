"""Pure: what of a lock may be a secret. A lock is made to be shared, so none may be in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from bareboat.model import looks_secret
from bareboat.runs import withheld
from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line
from bareboat_study.reproduction.document import Lock

#: Part of a lock -> how it is made without a secret.
_REMEDIES = {
    "code": "bareboat lock … --without code",
    "patterns": "use another pattern: --metric NAME=PATTERN",
    "data": "remove --data, or move the data to another path",
}
#: Flags whose names look like secrets and whose values are not.
_HARMLESS = re.compile(
    r"--?(max[-_].*|n[-_].*|num[-_].*|.*[-_]tokens?[-_](len|length|count|size)|keys?|.*tokenizer.*)",
    re.IGNORECASE,
)


def found_in(command: Sequence[str]) -> str | None:
    """What looks like a secret, named without its value; None: nothing."""
    for at, word in enumerate(command):
        if (what := withheld.form(word)) is not None:
            return f"word {at + 1} of the command has {what}"
        flag, equals, value = word.partition("=")
        value = value if equals else (command[at + 1] if at + 1 < len(command) else "")
        if not flag.startswith("-") or not value or value.startswith("-"):
            continue
        name = flag.lstrip("-").replace("-", "_")
        if looks_secret(name) and not _HARMLESS.fullmatch(flag) and not value.isdecimal():
            return f"{flag} of the command has the name of a secret"
    return None


def apart(environment: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The variables that are no secrets, and the names of those that may be."""
    hidden = withheld.names(environment)
    return {name: value for name, value in environment.items() if name not in hidden}, hidden


def without(lock: Lock) -> Lock:
    """The lock without the values of variables and the texts that can be left out."""
    notes: list[str] = []
    job = lock.job
    left_out = {name for name, value in job.environment.items() if withheld.form(value)}
    kept = {name: value for name, value in job.environment.items() if name not in left_out}
    code = lock.code
    if code is not None:
        code = withheld.of_code(code)
        notes += code.notes
    results = lock.results
    if withheld.form(results.ended_because):
        notes.append("the reason of the end: it has a secret")
        results = msgspec.structs.replace(results, ended_because="")
    return msgspec.structs.replace(
        lock,
        job=msgspec.structs.replace(job, environment=kept),
        withheld=tuple(sorted({*lock.withheld, *left_out})),
        code=code,
        results=results,
        not_recorded=tuple(dict.fromkeys((*lock.not_recorded, *notes))),
    )


def refuse(document: Any, commands: Iterable[Sequence[str]]) -> None:
    """Raise UsageError for a document, of plain values, in which a text has the form of a secret, and for a
    secret in one of the commands."""
    if (secret := next(filter(None, map(found_in, commands)), None)) is not None:
        raise UsageError(
            f"{secret}, and a lock is made to be shared",
            remedy="pass it by an environment variable of environment_from, and run the job again",
        )
    for place, text in _texts(document, ""):
        if (what := withheld.form(text)) is not None:
            part = place.partition(".")[0].partition("[")[0]
            raise UsageError(
                f"{one_line(place, limit=100)} of the lock has {what}, and a lock is made to be shared",
                remedy=_REMEDIES.get(part, "run the job again without it"),
            )


def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Every text, with its place; of a name in a table, the table's."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield place, str(key)
            own = key if not withheld.form(str(key)) else "…"
            yield from _texts(inner, f"{place}.{own}" if place else str(own))
    elif isinstance(value, list | tuple):
        for at, inner in enumerate(value):
            yield from _texts(inner, f"{place}[{at}]")
