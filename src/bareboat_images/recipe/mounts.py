"""The mounts of RUN: `--mount=type=bind|cache|tmpfs|secret,…`.

Source: https://docs.docker.com/reference/dockerfile/#run---mount
"""

from __future__ import annotations

import csv
import posixpath
from collections.abc import Callable

from msgspec import Struct

from bareboat_base import units
from bareboat_base.nearest import nearest
from bareboat_base.printable import quoted
from bareboat_images.recipe.instructions import Instruction

_SHARED = ("target", "dst", "destination")
_KEYS = {
    "bind": (*_SHARED, "source", "src", "from", "rw", "readwrite", "ro", "readonly"),
    "cache": (
        *_SHARED, "id", "ro", "readonly", "rw", "readwrite", "sharing", "mode", "uid", "gid",
    ),
    "tmpfs": (*_SHARED, "size"),
    "secret": (*_SHARED, "id", "source", "src", "env", "required", "mode", "uid", "gid"),
}  # fmt: skip
_SWITCHES = ("rw", "readwrite", "ro", "readonly", "required")


class RunMount(Struct, frozen=True, kw_only=True):
    """One mount. `target`: as written, possibly relative to the working directory; `source`: a path in
    `stage` (empty: in the context); `variable`: of a secret; `size_bytes`: of a tmpfs, 0 for no limit."""

    kind: str
    target: str
    source: str = ""
    stage: str = ""
    id: str = ""
    writable: bool = False
    sharing: str = "shared"
    mode: int | None = None
    required: bool = False
    variable: str = ""
    size_bytes: int = 0


def read(instruction: Instruction, expand: Callable[[str], str]) -> tuple[RunMount, ...]:
    """The mounts of a RUN, with variables replaced by `expand`. Raises RecipeError."""
    mounts = (_fields(instruction, each) for each in instruction.all("mount"))
    # One by one: a value is no further field, whatever it contains.
    expanded = ({key: expand(value) for key, value in values.items()} for values in mounts)
    return tuple(_one(instruction, values) for values in expanded)


def stages(instruction: Instruction) -> tuple[str, ...]:
    """The stages and images of the mounts of a RUN. Raises RecipeError for what is wrong with any values of
    the variables."""
    found = []
    for each in instruction.all("mount"):
        values = _fields(instruction, each)
        known = not any("$" in value for value in values.values())
        found.append(_one(instruction, values).stage if known else values.get("from", ""))
    return tuple(found)


def _fields(instruction: Instruction, text: str) -> dict[str, str]:
    try:
        fields = next(csv.reader([text]), [])
    except csv.Error:  # a line break in the field
        raise instruction.fault(
            f"--mount: {quoted(text)} cannot be read", remedy="--mount=type=bind,target=/PATH"
        ) from None
    values: dict[str, str] = {}
    for field in fields:
        key, equals, value = field.partition("=")
        key = key.strip().lower()
        if key == "z" and not equals:  # Podman's, for SELinux
            continue
        if not equals and key not in _SWITCHES:
            raise instruction.fault(f"--mount: {quoted(field)} has no value", remedy=f"write {key}=VALUE")
        values[key] = value if equals else "true"
    if "$" in values.get("from", ""):
        raise instruction.fault(
            "--mount: from= does not take variables", remedy="FROM $NAME AS stage, and then from=stage"
        )
    return values


def _one(instruction: Instruction, values: dict[str, str]) -> RunMount:
    kind = values.pop("type", "bind").lower()
    if kind == "ssh":
        raise instruction.fault(
            "--mount=type=ssh is not supported: a recipe of somebody else could use your keys",
            remedy="fetch the files before the build, or give a token: --mount=type=secret,id=NAME",
        )
    if kind not in _KEYS:
        raise instruction.fault(
            f"--mount: the type {quoted(kind)} is not supported", remedy=f"use one of {', '.join(_KEYS)}"
        )
    for key in values:
        if key not in _KEYS[kind]:
            likely = nearest(key, _KEYS[kind])
            remedy = f"write {likely}" if likely else f"keys: {', '.join(_KEYS[kind])}"
            if kind == "cache" and key in _KEYS["bind"]:
                remedy = "mount the files with type=bind, and copy them to the cache in the RUN"
            raise instruction.fault(f"--mount: {quoted(key)} is not a key of type={kind}", remedy=remedy)
    target = next((values[key] for key in _SHARED if key in values), "")
    source = values.get("source", values.get("src", ""))
    name = values.get("id", "")
    writable = kind == "cache"
    for key in ("rw", "readwrite"):
        writable = _switch(instruction, key, values[key]) if key in values else writable
    for key in ("ro", "readonly"):
        writable = not _switch(instruction, key, values[key]) if key in values else writable
    variable = values.get("env", "")
    if kind == "secret":
        name = name or source or posixpath.basename(target)
        if not name:
            raise instruction.fault("--mount=type=secret has no id", remedy="--mount=type=secret,id=NAME")
        target = target or ("" if variable else f"/run/secrets/{posixpath.basename(name)}")
    elif kind == "bind":
        target = target or "."  # as in BuildKit: the working directory
    elif not target:
        raise instruction.fault(
            f"--mount=type={kind} has no target", remedy=f"--mount=type={kind},target=/DIR"
        )
    if kind == "cache":
        name = name or posixpath.normpath(target)
    sharing = values.get("sharing", "shared")
    if sharing not in ("shared", "locked"):
        raise instruction.fault(
            f"--mount: sharing={quoted(sharing)} is not supported", remedy="use shared or locked"
        )
    return RunMount(
        kind=kind,
        target=target,
        source=source if kind == "bind" else "",
        stage=values.get("from", ""),
        id=name,
        writable=writable,
        sharing=sharing,
        mode=_mode(instruction, values.get("mode")),
        required=_switch(instruction, "required", values.get("required", "false")),
        variable=variable,
        size_bytes=_size(instruction, values.get("size")),
    )


def _switch(instruction: Instruction, key: str, value: str) -> bool:
    if value.lower() not in ("true", "false", "1", "0"):
        raise instruction.fault(f"--mount: {key}={quoted(value)}", remedy=f"write {key}=true or {key}=false")
    return value.lower() in ("true", "1")


def _mode(instruction: Instruction, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        found = int(value, 8)
    except ValueError:
        found = -1
    if not 0 <= found <= 0o7777:
        raise instruction.fault(f"--mount: mode={quoted(value)} is not octal", remedy="write mode=0755")
    return found


def _size(instruction: Instruction, value: str | None) -> int:
    if value is None:
        return 0
    try:
        return int(value) if value.isascii() and value.isdigit() else int(units.parse(value, "bytes"))
    except ValueError:
        raise instruction.fault(
            f"--mount: size={quoted(value)} is not a size", remedy="write size=512m"
        ) from None
