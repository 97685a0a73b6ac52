"""Containers on a command line: apptainer, singularity, docker, podman, udocker, and the flags of Pyxis. The
tables of the shims are the only place that knows their flags."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from bareboat_adopt import amounts
from bareboat_adopt.reading import Reading, Value
from bareboat_adopt.values import Scope, gap
from bareboat_shim import apptainer_table, docker_table, pyxis_mounts, pyxis_table, udocker_table
from bareboat_shim.table import Line, Mistake, Table, parse

_TABLES = {
    **dict.fromkeys(("apptainer", "singularity"), apptainer_table.TABLE),
    **dict.fromkeys(("docker", "podman", "nvidia-docker"), docker_table.TABLE),
    "udocker": udocker_table.TABLE,
}
_VERBS = ("exec", "run")
#: Flags whose effect a job has anyway, or that change nothing here.
_NEEDLESS = {
    "cleanenv", "contain", "containall", "compat", "no-home", "pid", "ipc", "uts", "userns", "no-eval", "rm",
    "interactive", "tty", "a", "hostenv", "hostauth", "nobanner", "no-init", "no-privs", "no-umask",
    "network", "net", "disable-cache", "unsquash", "underlay", "quiet", "pull", "user", "containerauth",
    "bindhome",
}  # fmt: skip
_HOME = 'the home directory of the container is empty; for the real one: mounts = ["~:~:rw"]'
_USER = "the program runs as you, and not as root or another user"
_ENV = "the job gets no variables of your shell but those that the file names"


class Container(Struct):
    """`image`: as a job file names it; `gpus`: whether it shows the GPUs, or how many; `workdir`: in the
    container, None for the image's, "." for that outside; `entrypoint`: whether the image's own precedes the
    command."""

    image: str
    line: int
    gpus: bool | int = False
    workdir: str | None = None
    entrypoint: bool | tuple[str, ...] = False
    mounts: list[tuple[str, str, bool]] = field(default_factory=list)
    writable: bool = False


def is_tool(name: str) -> bool:
    return name in _TABLES


def is_one(words: Sequence[str]) -> bool:
    """Whether the command starts a container."""
    return posixpath.basename(words[0]) in _TABLES and any(verb in words[1:8] for verb in _VERBS)


def read(
    words: Sequence[str], line: int, scope: Scope, reading: Reading, names: Mapping[str, str]
) -> tuple[Container, list[str]]:
    """The container of a command line, and the command in it. Raises Mistake and Unknown."""
    program = posixpath.basename(words[0])
    table: Table = _TABLES[program]
    found = parse(table, words[1:], _variables(scope))
    image, *command = found.words
    container = Container(image="", line=line)
    if program in ("apptainer", "singularity"):
        _apptainer(found, image, container, scope, reading)
    else:
        _docker(found, image, container, scope, reading, names=names if program == "udocker" else None)
    if program == "nvidia-docker":
        container.gpus = True
    _flags(found, container, line, reading)
    return container, command or _own_command(container)


def _own_command(container: Container) -> list[str]:
    """The placeholder of the image's own command."""
    container.entrypoint = True
    return [IMAGES_COMMAND]


#: In place of a program: the image's own.
IMAGES_COMMAND = "\x00image\x00"


def _variables(scope: Scope) -> Mapping[str, str]:
    """The variables by which a script sets Apptainer's flags."""
    return {
        name: text for name, text in scope.exported.items() if name.startswith(("APPTAINER_", "SINGULARITY_"))
    }


def _apptainer(found: Line, image: str, container: Container, scope: Scope, reading: Reading) -> None:
    if found.has("overlay"):
        raise Mistake("--overlay adds files, which a job cannot", "build an image with these files")
    container.image = _apptainer_image(image)
    container.workdir = found.value("pwd") or "."
    container.entrypoint = found.verb.name == "run"
    container.gpus = found.has("nv") or found.has("rocm")
    for spec in found.mounts("bind"):
        source, _, rest = spec.partition(":")
        target, _, options = rest.partition(":")
        _mount(container, source, target or source, options.split(","), scope)
    for value in found.values("env"):
        for each in re.split(r",(?=[A-Za-z_]\w*=)", value):
            _set(each, container.line, reading)
    if not (found.has("no-home") or found.has("containall") or found.has("contain") or found.has("home")):
        reading.differ(container.line, _HOME)
    if not (found.has("cleanenv") or found.has("containall")):
        reading.differ(container.line, _ENV)


def _apptainer_image(text: str) -> str:
    kind, colon, rest = text.partition("://")
    if not colon:
        return text if text.startswith(("/", "./", "../", "~")) else f"./{text}"
    if kind != "docker":
        raise Mistake(f"{kind}:// is not supported", "name a SIF file, a directory, or docker://NAME:TAG")
    return rest


def _docker(
    found: Line,
    image: str,
    container: Container,
    scope: Scope,
    reading: Reading,
    *,
    names: Mapping[str, str] | None,
) -> None:
    """`names`: of udocker's containers; None for Docker."""
    container.image = image if names is None else names.get(image, image)
    if names is not None and container.image == image and not re.search(r"[:/]", image):
        raise Mistake(f"{image} may be a container of udocker that this file does not create")
    container.workdir = found.value("workdir")
    entry = found.value("entrypoint")
    container.entrypoint = True if entry is None else (entry,) if entry else False
    gpus = found.value("gpus")
    container.gpus = found.has("gpus") or found.value("runtime") == "nvidia"
    if gpus and (number := amounts.count(gpus)) is not None:
        container.gpus = number
    elif gpus and (listed := re.fullmatch(r'"?device=(\d+(?:,\d+)*)"?', gpus)):
        container.gpus = len(listed[1].split(","))
    for value in found.values("volume"):
        source, _, rest = value.partition(":")
        target, _, options = rest.partition(":")
        if not source.startswith(("/", ".", "~")):
            raise Mistake(f"{source} is a volume of Docker, and no directory")
        _mount(container, source, target or source, options.split(","), scope)
    for value in found.values("mount"):
        keys = dict(part.partition("=")[::2] for part in value.split(","))
        source = keys.get("source", keys.get("src", ""))
        target = keys.get("destination", keys.get("dst", keys.get("target", "")))
        if keys.get("type") != "bind" or not source or not target:
            raise Mistake(f"--mount {value} is not read")
        _mount(container, source, target, ["ro"] if {"ro", "readonly"} & set(keys) else [], scope)
    for value in found.values("env"):
        _set(value, container.line, reading)
    if not found.value("user") or found.value("user") in ("root", "0"):
        reading.differ(container.line, _USER)


def _mount(container: Container, source: str, target: str, options: Sequence[str], scope: Scope) -> None:
    if source.startswith("~"):
        source = scope.value("HOME") + source[1:]
    source = posixpath.normpath(posixpath.join(scope.folder, source))
    if not target.startswith("/"):
        target = posixpath.join(scope.folder, target)
    if unknown := [
        each for each in options if each not in ("", "ro", "rw", "z", "Z", "shared", "rslave", "cached")
    ]:
        raise Mistake(f"{source}:{target}: the option {unknown[0]} is not supported")
    container.mounts.append((source, posixpath.normpath(target), "ro" not in options))


def _set(text: str, line: int, reading: Reading) -> None:
    name, equals, value = text.partition("=")
    if equals and gap(value) != f"{name} is not set here":
        reading.environment[name] = Value(value, line)
    elif name == "CUDA_VISIBLE_DEVICES":
        reading.differ(line, "CUDA_VISIBLE_DEVICES is set for each rank")
    elif name not in reading.environment:
        reading.skip(line, f"--env {name}: its value is your shell's; write environment_from")


def _flags(found: Line, container: Container, line: int, reading: Reading) -> None:
    """List the other flags that no key of the job file has."""
    read_here = {
        "bind",
        "env",
        "pwd",
        "nv",
        "rocm",
        "volume",
        "mount",
        "workdir",
        "gpus",
        "runtime",
        "entrypoint",
    }
    if found.verb.name == "exec" and "workdir" in found.options:
        read_here.discard("workdir")
    meanings = {flag.key: flag for flag in found.verb.flags}
    for key in found.options:
        flag = meanings.get(key)
        if key == "writable-tmpfs" or key == "writable":
            container.writable = True
        elif key in read_here or key in _NEEDLESS or flag is None or flag.meaning.startswith("no effect"):
            continue
        else:
            reading.skip(
                line,
                f"{flag.names[0]} {found.value(key) or ''}: the job file has nothing like it".replace(
                    " :", ":"
                ),
            )


_SHIFTER = {
    "-i": "--image", "-V": "--volume", "-m": "--module", "-w": "--workdir", "-e": "--env",
    **{name: name for name in ("--image", "--volume", "--module", "--workdir", "--env")},
}  # fmt: skip


def of_shifter(
    words: Sequence[str], line: int, scope: Scope, reading: Reading
) -> tuple[Container, list[str]]:
    """The container of `shifter`, whose options sbatch has, too, and the command in it. Raises Mistake and
    Unknown. https://docs.nersc.gov/development/containers/shifter/how-to-use/"""
    given = [(name, value.value) for name, value in reading.shifter.items()]
    reading.shifter.clear()
    container, left = Container(image="", line=line, workdir="."), list(words[1:])
    while left and left[0].startswith("-"):
        word = left.pop(0)
        name, equals, value = word.partition("=") if word.startswith("--") else (word[:2], word[2:], word[2:])
        if name in ("--entrypoint", "--clearenv") and not equals:
            container.entrypoint = container.entrypoint or name == "--entrypoint"
        elif name not in _SHIFTER or not (equals or left):
            raise Mistake(f"shifter {word} is not read")
        else:
            given.append((_SHIFTER[name], value if equals else left.pop(0)))
    for name, value in given:
        if name == "--image":
            container.image = value.removeprefix("docker:")
        elif name == "--workdir":
            container.workdir = value
        elif name == "--env":
            _set(value, line, reading)
        elif name == "--module":
            container.gpus = "gpu" in value.split(",")
        else:
            for source, target, *options in (spec.split(":") for spec in value.split(";") if ":" in spec):
                _mount(container, source, target, options, scope)
    if not container.image or container.image.startswith(("id:", "custom:")):
        raise Mistake("shifter without the name of an image")
    if not left:
        raise Mistake("shifter without a command starts a shell")
    reading.differ(line, _HOME)
    reading.differ(line, _ENV)
    return container, left


def of_pyxis(flags: Sequence[tuple[str, str]], line: int, scope: Scope, reading: Reading) -> Container | None:
    """The container of Pyxis' flags; None without an image. Raises Mistake."""
    known = {name: flag for flag in pyxis_table.FLAGS for name in flag.names}
    container = Container(image="", line=line)
    for name, value in flags:
        flag = known[name]
        if flag.key == "container-name":
            reading.skip(
                line, f"{name} {value}: a container that is kept; build an image with what changes in it"
            )
        elif flag.refused:
            raise Mistake(f"{name}: {flag.refused}")
        elif flag.key == "container-image":
            container.image = _pyxis_image(value)
        elif flag.key == "container-mounts":
            for spec in pyxis_mounts.parse(value):
                if spec.source in ("tmpfs", "umount"):
                    reading.skip(line, f"{name} {value}")
                else:
                    _mount(container, spec.source, spec.target, ["ro"] if spec.is_read_only else [], scope)
        elif flag.key == "container-workdir":
            container.workdir = value
        elif flag.key == "container-entrypoint":
            container.entrypoint = True
        elif flag.key == "container-writable":
            container.writable = True
        elif flag.key == "container-mount-home":
            home = scope.value("HOME")
            container.mounts.append((home, home, True))
        elif flag.key == "environment":
            raise Mistake(f"the environment file {value} is not read")
        elif flag.key not in ("no-container-mount-home", "container-readonly", "no-container-entrypoint",
                              "no-container-remap-root", "container-entrypoint-log"):  # fmt: skip
            reading.skip(line, f"{name} {value}".rstrip())
    if not container.image:
        if any(name == "--container-name" for name, _ in flags):
            raise Mistake("a container by its name, without an image")
        return None
    return container


def _pyxis_image(text: str) -> str:
    text = text.removeprefix("docker://")
    if text.startswith(("/", "./")):
        return text
    host, hash_, rest = text.partition("#")
    return f"{host.rpartition('@')[2]}/{rest}" if hash_ else text
