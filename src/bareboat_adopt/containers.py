"""Containers on a command line: apptainer, singularity, udocker, and the flags of Pyxis. The tables of the
shims are the only place that knows their flags."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from bareboat_adopt.reading import Reading
from bareboat_adopt.values import Scope
from bareboat_shim import apptainer_table, pyxis_mounts, pyxis_table, udocker_table
from bareboat_shim.table import Flag, Mistake, Table, parse

_TABLES: dict[str, Table] = {
    "apptainer": apptainer_table.TABLE, "singularity": apptainer_table.TABLE, "udocker": udocker_table.TABLE,
}  # fmt: skip
TOOLS = tuple(_TABLES)
#: Prefixes of variables for the container, and of those that stand for flags.
VALUES = ("SINGULARITYENV_", "APPTAINERENV_")
FLAGS = frozenset(
    f"{prefix}{name}"
    for prefix in apptainer_table.TABLE.prefixes
    for flag in apptainer_table.TABLE.verbs[0].flags
    for name in flag.variables
)
#: Flags whose effect a job has anyway, or that change nothing here.
_DONE = {
    "cleanenv", "contain", "containall", "compat", "no-home", "pid", "ipc", "uts", "userns", "no-eval", "rm",
    "hostenv", "hostauth", "no-umask", "user", "containerauth", "bindhome", "quiet", "silent", "workdir",
    "no-container-mount-home", "container-readonly", "no-container-entrypoint", "no-container-remap-root",
}  # fmt: skip
_HOME = 'the home directory of the container is empty; for the real one: mounts = ["~:~:rw"]'
_ENV = "the job gets no variables of your shell but those that the file names"
#: In place of a program: the image's own.
IMAGES_COMMAND = "\x00image\x00"


class Container(Struct):
    """`image`: as a job file names it; `workdir`: in the container, None for the image's, "." for that
    outside; `entrypoint`: whether the image's own precedes the command."""

    image: str
    line: int
    gpus: bool = False
    workdir: str | None = None
    entrypoint: bool | tuple[str, ...] = False
    mounts: list[tuple[str, str, bool]] = field(default_factory=list)
    writable: bool = False


def read(
    words: Sequence[str], line: int, scope: Scope, reading: Reading, names: Mapping[str, str]
) -> tuple[Container, list[str]]:
    """The container of a command line, and the command in it. Raises Mistake and Unclear."""
    program = posixpath.basename(words[0])
    is_udocker = program == "udocker"
    flags = {name: scope.value(name) for name in scope.exported if name in FLAGS and not is_udocker}
    found = parse(_TABLES[program], words[1:], flags)
    if not found.words:
        raise Mistake(f"{program} {found.verb.name} without an image")
    image, *command = found.words
    kind, colon, rest = image.partition("://")
    container = Container(image=rest if colon else image, line=line)
    container.entrypoint = is_udocker or found.verb.name == "run" or not command
    if is_udocker:
        container.image = names.get(image, image)
        if container.image == image and not re.search(r"[:/]", image):
            raise Mistake(f"{image} may be a container of udocker that this file does not create")
    elif colon and kind != "docker":
        raise Mistake(f"{kind}:// is not supported", "name a SIF file, a directory, or docker://NAME:TAG")
    else:
        container.workdir = "."
        if not colon and not image.startswith(("/", "./", "../", "~")):
            container.image = f"./{image}"
        if not any(found.has(key) for key in ("no-home", "containall", "contain", "home")):
            reading.differ(line, _HOME)
        if not (found.has("cleanenv") or found.has("containall")):
            reading.differ(line, _ENV)
    for flag in found.verb.flags:
        if found.has(flag.key):
            values = found.mounts("bind") if flag.key == "bind" else found.values(flag.key)
            _give(container, flag, values, scope, reading, is_workdir=is_udocker)
    return container, command or [IMAGES_COMMAND]


def of_pyxis(flags: Sequence[tuple[str, str]], line: int, scope: Scope, reading: Reading) -> Container | None:
    """The container of Pyxis' flags; None without an image. Raises Mistake and Unclear."""
    known = {name: flag for flag in pyxis_table.FLAGS for name in flag.names}
    container = Container(image="", line=line)
    for name, value in flags:
        if known[name].refused:
            raise Mistake(f"{name}: {known[name].refused}")
        _give(container, known[name], [value], scope, reading)
    if not container.image and any(name == "--container-name" for name, _ in flags):
        raise Mistake("a container by its name, without an image")
    return container if container.image else None


def _give(
    container: Container, flag: Flag, values: Sequence[str], scope: Scope, reading: Reading, *,
    is_workdir: bool = False,
) -> None:  # fmt: skip
    """Read a flag. `is_workdir`: --workdir is the working directory, and not one for temporary files."""
    value = values[-1]
    match flag.key:
        case "nv" | "rocm":
            container.gpus = True
        case "writable-tmpfs" | "container-writable":
            container.writable = True
        case "overlay":
            raise Mistake("--overlay adds files, which a job cannot", "build an image with these files")
        case "pwd" | "container-workdir":
            container.workdir = value
        case "workdir" if is_workdir:
            container.workdir = value
        case "entrypoint":
            container.entrypoint = (value,) if value else False
        case "container-entrypoint":
            container.entrypoint = True
        case "bind" | "volume":
            for spec in values:
                _mount(container, spec, scope)
        case "container-mounts":
            for mount in pyxis_mounts.parse(value):
                if mount.source in ("tmpfs", "umount"):
                    reading.skip(container.line, f"{flag.names[0]} {value}")
                else:
                    _mount(
                        container,
                        f"{mount.source}:{mount.target}:{'ro' if mount.is_read_only else 'rw'}",
                        scope,
                    )
        case "container-mount-home":
            _mount(container, "~", scope)
        case "container-image":
            host, hash_, rest = value.removeprefix("docker://").partition("#")
            container.image = f"{host.rpartition('@')[2]}/{rest}" if hash_ else host
        case "env":
            parts = [part for each in values for part in re.split(r",(?=[A-Za-z_]\w*=)", each)]
            reading.pass_on(values if is_workdir else parts, container.line)
        case key if key not in _DONE and not flag.meaning.startswith("no effect"):
            reading.skip(container.line, f"{flag.names[0]} {value}".rstrip())


def _mount(container: Container, spec: str, scope: Scope) -> None:
    source, _, rest = spec.partition(":")
    target, _, options = rest.partition(":")
    if options not in ("", "ro", "rw"):
        raise Mistake(f"{spec}: the option {options} is not supported")
    if source.startswith("~"):
        source = scope.value("HOME") + source[1:]
    source = posixpath.normpath(posixpath.join(scope.directory, source))
    target = posixpath.normpath(posixpath.join(scope.directory, target or source))
    container.mounts.append((source, target, options != "ro"))
