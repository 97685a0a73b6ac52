"""What a container of Apptainer shows of the machine: by default, and by flags."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bareboat.model import Mount
from bareboat_base.paths import lies_in, to_make
from bareboat_shim.table import Line, Malformed, Mistake

#: Where Apptainer never mounts the working directory.
#: https://apptainer.org/docs/user/main/bind_paths_and_mounts.html#system-defined-bind-paths
_NO_WORKDIR = frozenset(("/", "/etc", "/bin", "/mnt", "/usr", "/var", "/opt", "/sbin", "/lib", "/lib64"))
_NEEDED = frozenset(("proc", "sys", "dev", "devpts"))
_NAMES = frozenset(("home", "tmp", "cwd", "hostfs", "bind-paths"))


class Shown(NamedTuple):
    """`mounts`; `empty`: directories in memory; `home`: the home directory in the container; `workdir`: that
    of the command, which `is_asked` for by a flag."""

    mounts: tuple[Mount, ...]
    empty: tuple[str, ...]
    home: str
    workdir: str | None
    is_asked: bool


def overlays(line: Line) -> tuple[list[str], str | None]:
    """The read-only directories of --overlay, and the one that keeps changes. Raises Mistake."""
    fixed: list[str] = []
    changes: str | None = None
    for value in (part for each in line.values("overlay") for part in each.split(",")):
        path, colon, option = value.rpartition(":")
        if not colon:
            path, option = value, ""
        if option not in ("", "ro", "rw"):
            raise Malformed(f"--overlay {value}: the option is ro or rw", "--overlay DIR:ro")
        if os.path.isfile(path):
            raise Mistake(f"--overlay {path}: image files are not supported", "mkdir DIR; and --overlay DIR")
        if not os.path.isdir(path):
            raise Mistake(f"--overlay {path}: no such directory", f"mkdir {shlex.quote(str(path))}")
        if option == "ro":  # without changes, it has no layer yet
            fixed += [os.path.abspath(path)] if os.path.isdir(os.path.join(path, "upper")) else []
        elif changes is not None:
            raise Mistake("only one --overlay may be writable", f"--overlay {path}:ro")
        else:
            changes = os.path.abspath(path)
    if changes is not None and (line.has("writable-tmpfs") or line.has("compat")):
        raise Mistake(f"--writable-tmpfs and --overlay {changes} exclude each other", "--overlay DIR:ro")
    return fixed, changes


def shown(line: Line, *, user_home: str, needed: Iterable[str] = ()) -> Shown:
    """`needed`: directories of the machine that its variables name. Raises Mistake for a mount that cannot
    be."""
    contained = any(line.has(key) for key in ("contain", "containall", "compat"))
    omitted = _omitted(line)
    here = _working_directory()
    source, home = _home(line, user_home)
    mounts = {path: Mount(source=path, target=path, writable=True) for path in needed}
    empty: list[str] = []
    base = line.value("workdir")
    if base is not None and not os.path.isdir(base):
        raise Mistake(f"workdir {base} is not a directory", f"mkdir -p {shlex.quote(str(base))}")

    def private(target: str, name: str) -> None:
        if base is None:
            empty.append(target)
            return
        place = os.path.join(os.path.abspath(base), name)
        os.makedirs(place, mode=0o700, exist_ok=True)
        mounts[target] = Mount(source=place, target=target, writable=True)

    for target, name in (("/tmp", "tmp"), ("/var/tmp", "var_tmp")):
        if "tmp" not in omitted:
            if contained:
                private(target, name)
            elif os.path.isdir(target):
                mounts[target] = Mount(source=target, target=target, writable=True)
    if contained and not line.has("home"):
        private(home, "home")
    elif (line.has("home") or not ("home" in omitted or line.has("no-home"))) and os.path.isdir(source):
        mounts[home] = Mount(source=source, target=home, writable=True)
    for target in (part for value in line.values("scratch") for part in value.split(",")):
        private(os.path.normpath(target), os.path.join("scratch", os.path.basename(target)))
    binds: dict[str, Mount] = {}
    for each in (*_binds(line.mounts("bind")), *map(_mount, line.values("mount"))):
        binds.setdefault(each.target, each)
    mounts |= binds
    is_shown = here is None or any(lies_in(here, target) for target in (*mounts, *empty))
    if here is not None and not (is_shown or contained or "cwd" in omitted or here in _NO_WORKDIR):
        mounts[here] = Mount(source=here, target=here, writable=True)
    found = tuple(sorted(mounts.values(), key=lambda mount: mount.target.split("/")))
    _check_points(found, empty)
    workdir = line.value("pwd")
    start = workdir or (None if contained else here)
    return Shown(found, tuple(empty), home, start, is_asked=workdir is not None)


def _working_directory() -> str | None:
    with contextlib.suppress(OSError):
        return os.getcwd()
    return None


def _omitted(line: Line) -> set[str]:
    names = {name for value in line.values("no-mount") for name in value.split(",") if name}
    if needed := sorted(names & _NEEDED):
        raise Mistake(f"--no-mount {needed[0]} is not supported: every container has it")
    if unknown := sorted(name for name in names - _NAMES if not name.startswith("/")):
        raise Mistake(f"--no-mount {unknown[0]} is not supported", f"use: {', '.join(sorted(_NAMES))}")
    return names


def _home(line: Line, user_home: str) -> tuple[str, str]:
    """The source of the home directory, and its path in the container."""
    value = line.value("home")
    if value is None:
        return user_home, user_home
    source, colon, target = value.partition(":")
    if not source:
        raise Mistake(f"--home {value} names no directory", "--home SRC:DEST")
    target = target if colon else source
    source = os.path.abspath(os.path.expanduser(source))
    if not target.startswith("/"):
        raise Mistake(f"--home {value}: {target} is not an absolute path", "--home SRC:/DEST")
    if not os.path.isdir(source):
        raise Mistake(f"the home directory {source} does not exist", f"mkdir -p {shlex.quote(str(source))}")
    return source, os.path.normpath(target)


def _binds(specs: Sequence[str]) -> list[Mount]:
    found: list[Mount] = []
    for spec in specs:
        source, _, rest = spec.partition(":")
        target, _, options = rest.partition(":")
        found.append(_checked(source, target or source, options.split(",") if options else [], spec))
    return found


def _mount(value: str) -> Mount:
    """`--mount type=bind,source=SRC,destination=DEST[,ro]`."""
    keys: dict[str, str] = {}
    for part in value.split(","):
        key, _, text = part.partition("=")
        keys[
            {"src": "source", "dst": "destination", "target": "destination", "readonly": "ro"}.get(key, key)
        ] = text
    unknown = sorted(set(keys) - {"type", "source", "destination", "ro"})
    if unknown or keys.get("type") != "bind" or not keys.get("source") or not keys.get("destination"):
        what = (
            f"{unknown[0]} is not supported" if unknown else "type=bind, source and destination are required"
        )
        raise Mistake(f"--mount {value}: {what}", "--mount type=bind,src=SRC,dst=DEST")
    return _checked(keys["source"], keys["destination"], ["ro"] if "ro" in keys else [], value)


def _checked(source: str, target: str, options: Sequence[str], spec: str) -> Mount:
    if unknown := [each for each in options if each not in ("ro", "rw")]:
        raise Mistake(f"bind {spec}: the option {unknown[0]} is not supported", "use ro or rw")
    place = os.path.abspath(os.path.expanduser(source))
    if not os.path.exists(place):
        raise Mistake(f"mount source {source} doesn't exist", f"ls -ld {shlex.quote(str(source))}")
    if not target.startswith("/"):
        raise Mistake(f"bind {spec}: the destination must be an absolute path", f"--bind {place}")
    target = os.path.normpath(target)
    return Mount(source=place, target=target.replace("//", "/"), writable="ro" not in options)


def _check_points(mounts: Sequence[Mount], empty: Sequence[str]) -> None:
    """Raise Mistake for a mount on a path that another mount lacks, or has as a link: it would be created on
    this machine."""
    for inner in (*(each.target for each in mounts), *empty):
        if inner == "/proc" or (inner.startswith(("/proc/", "/dev/", "/sys/")) and not os.path.exists(inner)):
            raise Mistake(f"nothing can be mounted at {inner}", "mount it elsewhere")
        around = [each for each in mounts if each.target != inner and lies_in(inner, each.target)]
        outer = max(around, key=lambda each: len(each.target), default=None)
        if outer is None or any(
            inner != each and len(each) > len(outer.target) and lies_in(inner, each) for each in empty
        ):
            continue
        place = outer.source.rstrip("/") + inner[len(outer.target.rstrip("/")) :]
        if os.path.islink(place):
            raise Mistake(f"destination {inner} is a link", f"name its target: {os.path.realpath(place)}")
        if not os.path.lexists(place):
            is_directory = any(each.target == inner and os.path.isdir(each.source) for each in mounts)
            raise Mistake(f"destination {inner} doesn't exist in the mounted {outer.source}",
                          to_make(place, is_directory=is_directory or inner in empty))  # fmt: skip
