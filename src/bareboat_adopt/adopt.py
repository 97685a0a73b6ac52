"""Read an old job and write its job file. Nothing of it is run here."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bareboat_adopt import bash, directives, job, text, topology
from bareboat_adopt.reading import Reading
from bareboat_adopt.steps import Script
from bareboat_adopt.values import Scope
from bareboat_base.errors import UsageError
from bareboat_base.files import untrusted
from bareboat_base.printable import one_line

#: The exit code for an old job of which no complete job file follows.
REFUSED = 9
_LARGEST = 1 << 20
_SHEBANG = re.compile(r"#!\s*(?:/usr/bin/env\s+(?:-S\s+)?)?(?:\S*/)?(\S+)([^\n]*)")
_BASH = ("bash", "sh", "dash", "ksh")
_RECIPE = re.compile(r"^\s*(?:FROM\s+\S|bootstrap\s*:)", re.IGNORECASE | re.MULTILINE)
_RECIPES = re.compile(r"(Dockerfile|Containerfile)(\..*)?|Singularity(\..*)?|Apptainer(\..*)?|.*\.def")


class Source(NamedTuple):
    """A script, and its text."""

    path: Path
    text: str


class Adopted(NamedTuple):
    """`notes`: what the user should read; `verdict`: "wholly", "in part" or "refused"."""

    text: str
    summary: str
    notes: tuple[str, ...]
    verdict: str
    facts: dict[str, Any]

    @property
    def exit_code(self) -> int:
        return REFUSED if self.verdict == "refused" else 0


def choose(named: str, here: Path) -> Source:
    """The script that a path means. Raises UsageError."""
    path = Path(os.path.abspath(here / os.path.expanduser(named)))
    if path.is_dir():
        raise UsageError(f"{one_line(named)} is a directory", remedy="bareboat init --from SCRIPT")
    data = untrusted.read_bytes(path, limit=_LARGEST, follow=True)
    found = data.decode(errors="surrogateescape")
    if not found.strip() or re.search(r"[\0-\x08]", found):
        raise UsageError(f"{one_line(path.name)} is not a script", remedy="bareboat init --from SCRIPT")
    if _RECIPES.fullmatch(path.name) and _RECIPE.search(found) and not found.startswith("#!"):
        folder = shlex.quote(os.path.relpath(path.parent, here))
        remedy = f"bareboat image build -f {shlex.quote(path.name)} -t NAME {one_line(folder)}"
        raise UsageError(f"{one_line(path.name)} is an image, and no job", remedy=remedy)
    return Source(path, found)


def default_name(source: Source) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", source.path.stem).strip("-.") or "job"
    return f"{name}-job.toml" if name in ("bareboat", "pyproject") else f"{name}.toml"


def read(source: Source, target: Path, environment: Mapping[str, str]) -> Adopted:
    """The job file for `target`. `environment`: of the shell that would submit the old job, of which only
    HOME and USER are read."""
    reading = Reading()
    rows = source.text.replace("\r\n", "\n").split("\n")
    base = os.path.realpath(source.path.parent)
    pyxis = directives.read(rows, reading)
    account = {name: environment[name] for name in ("HOME", "USER") if name in environment}
    scope = Scope({**account, **topology.variables(reading, base)}, base)
    script = Script(scope, reading, rows, pyxis)
    _start(scope, reading, base)
    _read(source.text, script, reading)
    if "CONTAINER_IMAGE" in reading.environment and reading.request.scheduler == "pbs":
        at = reading.environment["CONTAINER_IMAGE"].line
        reading.refuse("the image", at, "CONTAINER_IMAGE: the site's hook of PBS starts the container")
    job.complete(script.launch, script.line, reading, scope.directory, os.path.realpath(target.parent))
    old = source.path.name
    return Adopted(
        text=text.write(reading, rows, name=os.path.relpath(target), old=old),
        summary=text.summary(reading),
        notes=tuple(text.notes(reading)),
        verdict=reading.verdict,
        facts=text.facts(reading, old),
    )


def _read(written: str, script: Script, reading: Reading) -> None:
    """Read the commands of the script; where it is not bash, no line is understood."""
    first = _SHEBANG.match(written)
    try:
        if first is not None and first[1] not in _BASH:
            raise bash.Unreadable(1, f"a script of {one_line(first[1], limit=40)}")
        script.read(bash.parse(written))
    except bash.Unreadable as fault:
        reading.refuse("the command", fault.line, f"not bash: {fault.reason}")
        reading.skip(1, "the script", written.count("\n") + 1)
    if first is not None and first[2].strip() not in ("", "-l", "--login"):
        reading.skip(1, one_line(first[0], limit=80))


def _start(scope: Scope, reading: Reading, base: str) -> None:
    """The directory in which the script starts."""
    given, lines = reading.request.starts_in, reading.request.lines
    if given == "~":
        scope.directory = scope.value("HOME")
        lines.setdefault("starts_in", 0)
    elif given and not re.search(r"[%$]", given):
        scope.directory = posixpath.normpath(posixpath.join(base, given))
    elif given:
        reading.refuse("the working directory", lines.get("starts_in", 0), given)
