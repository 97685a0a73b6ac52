"""The environment file of CSCS' container engine. https://docs.cscs.ch/software/container-engine/edf"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bareboat_shim import pyxis_mounts, pyxis_settings
from bareboat_shim.table import Malformed, Mistake

#: Key -> its type, and its name in messages.
_KEYS: dict[str, tuple[type, str]] = {
    "image": (str, "text"), "workdir": (str, "text"), "entrypoint": (bool, "true or false"),
    "writable": (bool, "true or false"), "mounts": (list, "a list of texts"), "env": (dict, "a table"),
    "annotations": (dict, "a table"), "base_environment": (list, "a text or a list of texts"),
}  # fmt: skip
_MOST_LEVELS = 10
_REFERENCE = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)(:-([^}]*))?\}")


class File(NamedTuple):
    """What a file and those that it inherits from set. Values are not expanded."""

    image: str = ""
    workdir: str | None = None
    entrypoint: bool | None = None
    writable: bool | None = None
    mounts: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


def read(path: str, environment: Mapping[str, str], *, level: int = 0) -> File:
    """Raises Mistake, with the file and the key."""
    if level > _MOST_LEVELS:
        raise Mistake(f"{path}: base_environment has more than {_MOST_LEVELS} levels", "shorten the chain")
    try:
        with open(path, "rb") as stream:
            table = tomllib.load(stream)
    except (OSError, ValueError, RecursionError) as error:
        raise Mistake(f"{path} cannot be read: {error}", f"correct {path}") from None
    if isinstance(bases := table.get("base_environment"), str):
        table["base_environment"] = [bases] if bases else []
    _check(path, table)
    bases = table.pop("base_environment", [])
    found = File()
    for base in bases:
        found = _over(found, read(pyxis_settings.find_file(base, environment), environment, level=level + 1))
    table["annotations"] = dict(_flat(table.get("annotations", {})))
    return _over(found, File(**{**table, "mounts": tuple(table.get("mounts", ()))}))


def _check(path: str, table: Mapping[str, Any]) -> None:
    for key, value in table.items():
        kind, name = _KEYS.get(key, (None, ""))
        if kind is None:
            raise Mistake(f"{path}: the key {key} is not supported", f"use: {', '.join(_KEYS)}")
        texts = value if kind is list else value.values() if key == "env" and kind is dict else ()
        if not isinstance(value, kind) or not all(isinstance(each, str) for each in texts):
            raise Mistake(f"{path}: {key} must be {name}", f"correct {key} in {path}")


def _over(base: File, top: File) -> File:
    """The values of a file over those that it inherits."""
    return File(
        image=top.image or base.image,
        workdir=base.workdir if top.workdir is None else top.workdir,
        entrypoint=base.entrypoint if top.entrypoint is None else top.entrypoint,
        writable=base.writable if top.writable is None else top.writable,
        mounts=(*base.mounts, *top.mounts),
        env={**base.env, **top.env},
        annotations={**base.annotations, **top.annotations},
    )


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def hooks(file: File) -> list[str]:
    """The hooks that the annotations enable, which only CSCS' installation has."""
    return sorted(
        name.removesuffix(".enabled")
        for name, value in file.annotations.items()
        if name.endswith(".enabled") and value.lower() == "true"
    )


def expanded(text: str, variables: Mapping[str, str], what: str) -> str:
    """The text with ${NAME} and ${NAME:-DEFAULT} replaced; $$ is a dollar sign. Raises Mistake."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        if match[1] not in variables and match[2] is None:
            raise Mistake(f"{what}: the variable {match[1]} is not set", f"${{{match[1]}:-}}")
        return variables.get(match[1]) or match[3] or ""

    return _REFERENCE.sub(value, text)


def check(file: File) -> None:
    """Raise Malformed for mounts without the right form."""
    for text in file.mounts:
        if text.endswith(":sqsh"):
            raise Malformed(
                f"mounts: {text}: SquashFS files are not mounted", "unpack it, and mount the directory"
            )
        if "${" not in text:
            pyxis_mounts.parse(text)
