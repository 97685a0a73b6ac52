"""Read an old job and write its job file. Nothing of it is run here."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bareboat_adopt import bash, containers, job, schedulers, sources, text, topology
from bareboat_adopt.containers import Container
from bareboat_adopt.job import Job, Place
from bareboat_adopt.layers import Launch
from bareboat_adopt.reading import Note, Reading
from bareboat_adopt.sources import Source
from bareboat_adopt.steps import Script
from bareboat_adopt.values import Scope, Unknown
from bareboat_base.printable import one_line
from bareboat_shim.table import Mistake

#: The exit code for an old job of which no complete job file follows.
REFUSED = 9
_OTHER = re.compile(r"#!.*\b(csh|tcsh|fish|python[\d.]*|perl|ruby|Rscript|julia|awk|expect)\b")


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
    """The old job that a path means. Raises UsageError."""
    return sources.choose(named, here)


def default_name(source: Source) -> str:
    stem = source.path.stem if source.kind == "script" else source.path.parent.name
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.") or "job"
    return f"{name}-job.toml" if name in ("bareboat", "pyproject") else f"{name}.toml"


def read(source: Source, target: Path, environment: Mapping[str, str]) -> Adopted:
    """The job file for `target`. `environment`: of the shell that would submit the old job."""
    made = _of_script(source, target, environment) if source.kind == "script" else _of_recipe(source, target)
    made.different += [Note(0, f"{name} beside it was not read") for name in source.others]
    return Adopted(
        text=text.write(made, name=os.path.relpath(target)),
        summary=text.summary(made),
        notes=tuple(text.notes(made)),
        verdict=made.verdict,
        facts=made.facts(),
    )


def _of_script(source: Source, target: Path, environment: Mapping[str, str]) -> Job:
    reading = Reading()
    base = os.path.realpath(source.path.parent)
    folder = os.path.realpath(target.parent)
    outside = job.plain_environment(environment)
    pyxis = schedulers.read(source.text, reading)
    scope = Scope(outside, base)
    for name, value in topology.variables(reading, base).items():
        scope.set(name, value)
    script = Script(scope, reading, base)
    _start(scope, reading, outside, base)
    if (other := _OTHER.match(source.text)) is not None:
        reading.refuse("the command", 1, f"a script of {other[1]}, and not of bash")
    else:
        try:
            script.read(bash.parse(source.text))
        except bash.Unreadable as fault:
            reading.refuse("the command", fault.line, f"not bash: {fault.reason}")
    launch = script.launch
    if scope.used:
        names = ", ".join(sorted(scope.used))
        reading.differ(0, f"the values of {names} are those of your shell when this file was written")
    if launch is not None and (pyxis or "CONTAINER_IMAGE" in reading.environment):
        _around(pyxis, launch, scope, reading)
    for name, given in reading.shifter.items():
        reading.skip(given.line, f"{name} {given.value}: without shifter before the program")
    if launch is not None and launch.container is not None and source.recipes:
        reading.differ(
            script.line, f"{source.recipes[0]} lies beside it: bareboat image build makes the image of it"
        )
    place = Place(base, scope.folder, folder)
    return job.made(launch, script.line, reading, place, source.path.name)


def _start(scope: Scope, reading: Reading, outside: Mapping[str, str], base: str) -> None:
    """The directory in which the script starts."""
    given = reading.request.starts_in
    if given == "~":
        scope.folder = outside.get("HOME", "/")
        reading.request.lines.setdefault("starts_in", 0)
    elif given and not re.search(r"[%$]", given):
        scope.folder = posixpath.normpath(posixpath.join(base, given))
    elif given:
        reading.refuse("the working directory", reading.request.lines.get("starts_in", 0), given)


def _around(pyxis: tuple[tuple[str, str, int], ...], launch: Launch, scope: Scope, reading: Reading) -> None:
    """The whole script runs in a container: that of `#SBATCH --container-image`, or of `#PBS -v
    CONTAINER_IMAGE=`, by Altair's hook for containers."""
    if not pyxis and reading.request.scheduler != "pbs":
        return
    if pyxis:
        line = pyxis[0][2]
        try:
            container = containers.of_pyxis([(name, value) for name, value, _ in pyxis], line, scope, reading)
        except (Mistake, Unknown) as fault:
            reading.refuse("the image", line, fault.message if isinstance(fault, Mistake) else fault.reason)
            return
    else:
        image, line = reading.environment.pop("CONTAINER_IMAGE")
        container = Container(image=image, line=line, workdir=".")
        reading.differ(line, "the directories that the site mounts in containers are yours to add: mounts")
    if container is None:
        return
    if launch.container is not None:
        reading.refuse("the image", line, "a container in a container")
    launch.container = container
    _activated(launch, reading)


def _activated(launch: Launch, reading: Reading) -> None:
    """An environment that the script activates in its container is one of the image."""
    python = reading.values.pop("capture.python", None)
    program = launch.program[:1]
    by_name = next((note for note in reading.different if note.text.startswith("conda activate")), None)
    if python is not None and program and re.fullmatch(r"python[\d.]*", program[0]):
        launch.program[0] = posixpath.join(posixpath.dirname(python.value), program[0])
    elif (at := python or by_name) is not None:
        reading.refuse(
            "the command", at.line, "an environment of the image is activated: name the program by its path"
        )


def _of_recipe(source: Source, target: Path) -> Job:
    """A Dockerfile or definition file: the image's own command, once the image is built."""
    reading = Reading()
    folder = source.path.parent
    name = re.sub(r"[^a-z0-9._-]+", "-", folder.name.lower()).strip("-._") or "image"
    launch = Launch(
        program=[containers.IMAGES_COMMAND], container=Container(image=name, line=0, entrypoint=True)
    )
    reading.set("topology.nodes", 1, 0)
    reading.set("topology.ranks_per_node", 1, 0)
    where = shlex.quote(os.path.relpath(folder, target.parent))
    file = "" if source.path.name == "Dockerfile" else f" -f {shlex.quote(source.path.name)}"
    reading.differ(
        0,
        f"the {source.kind} is an image, and no job: bareboat image build{file} -t {name} {one_line(where)}",
    )
    reading.differ(0, "without a command, the job runs the image's own; ranks and GPUs are yours to add")
    place = Place(str(folder), str(folder), str(target.parent))
    return job.made(launch, 0, reading, place, source.path.name)
