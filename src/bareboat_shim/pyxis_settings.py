"""The container of a step or batch script, by the flags of Pyxis, its variables, and those of Enroot."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bareboat_shim import pyxis_mounts
from bareboat_shim.pyxis_table import ENROOT, FLAGS, OF_NAMES, OPPOSITES, TABLE
from bareboat_shim.table import Malformed, Mistake

#: The shim's flags: name -> whether it takes a value.
NAMES = {name: bool(flag.value) for flag in FLAGS for name in flag.names}
_BY_NAME = {name: flag for flag in FLAGS for name in flag.names}
#: Flags and variables that name an image or container; all others require one of them.
SUBJECTS = ("container-image", "container-name")
VARIABLES = tuple(f"{TABLE.prefixes[0]}CONTAINER_{name}" for name in ("IMAGE", "NAME"))
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,63}")
_NO = ("0", "n", "no", "false")
_YES = ("1", "y", "yes", "true")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMESPACES = ("net", "ipc", "uts")


class Settings(NamedTuple):
    """`image`: as it is written; None: not given. `names`: variables of the shell that override the image's.
    `name`, `name_flag`: of a kept container; `save`: a file."""

    image: str | None = None
    mounts: tuple[str, ...] = ()
    workdir: str | None = None
    names: tuple[str, ...] = ()
    mount_home: bool = False
    remap_root: bool = False
    writable: bool | None = None
    entrypoint: bool | None = None
    unshare: tuple[str, ...] = ()
    name: str = ""
    name_flag: str = OF_NAMES[0]
    save: str = ""

    @property
    def is_given(self) -> bool:
        return self.image is not None or bool(self.name)


def read(layers: Sequence[Sequence[tuple[str, str]]], environment: Mapping[str, str]) -> Settings:
    """The settings of flags (name, value), of which the first layer with a flag has priority: the command
    line, then a script. Variables come last. Raises Mistake."""
    values: dict[str, list[str]] = {}
    for flags in layers:
        layer = _layer(flags)
        values |= {key: each for key, each in layer.items() if not _is_given(key, values)}
    if values.keys().isdisjoint(SUBJECTS) and not any(environment.get(name) for name in VARIABLES):
        if values:
            raise Mistake(f"--{next(iter(values))} without --container-image", "--container-image=REFERENCE")
        return Settings()
    for key, value in _from_variables(environment).items():
        if not _is_given(key, values):
            values[key] = [value]
    _check(values)
    return _settings(values)


def _is_given(key: str, values: Mapping[str, object]) -> bool:
    return key in values or any(key in pair and not values.keys().isdisjoint(pair) for pair in OPPOSITES)


def _layer(flags: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """The values of one command line or script. Raises Malformed for flags that exclude each other."""
    values: dict[str, list[str]] = {}
    for name, value in flags:
        flag = _BY_NAME[name]
        if flag.refused:
            raise Mistake(f"{name}: {flag.refused}", "--container-image=REFERENCE")
        if flag.value and not value:
            raise Malformed(f"{name}: argument required", f"{name}={flag.value}")
        if not flag.several and values.get(flag.key, [value]) != [value]:
            raise Malformed(f"{name} specified multiple times", f"{name}={value}")
        values[flag.key] = [*(values.get(flag.key, ()) if flag.several else ()), value]
    for pair in OPPOSITES:
        if values.keys() >= set(pair):
            raise Malformed(f"both --{pair[0]} and --{pair[1]} were specified", f"--{pair[1]}")
    return values


def _from_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Key -> value. Raises Mistake for variables that are not supported."""
    found: dict[str, str] = {}
    for flag in FLAGS:
        for variable in flag.variables:
            name = f"{TABLE.prefixes[0]}{variable}"
            value = environment.get(name, "")
            if value and (flag.value or _truth(name, value)):
                found[flag.key] = value if flag.value else ""
            elif value and (other := _opposite(flag.key)) is not None:
                found.setdefault(other, "")
    return found | _from_enroot(environment, found)


def _from_enroot(environment: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for name in sorted(each for each in environment if each.startswith("ENROOT_")):
        if name not in ENROOT:
            raise Mistake(f"{name} is not supported", f"unset {name}")
        key = ENROOT[name]
        if not key or _is_given(key, found):
            continue
        if _truth(name, environment[name]):
            values[key] = ""
        elif (other := _opposite(key)) is not None:
            values[other] = ""
    return values


def _opposite(key: str) -> str | None:
    return next((pair[1 - pair.index(key)] for pair in OPPOSITES if key in pair), None)


def _truth(name: str, value: str) -> bool:
    if value.lower() not in (*_YES, *_NO):
        raise Malformed(f"{name}={value} is neither yes nor no", f"{name}=1")
    return value.lower() in _YES


def _check(values: Mapping[str, Sequence[str]]) -> None:
    for text in values.get("container-mounts", ()):
        pyxis_mounts.parse(text)
    for name in _names(values, "container-env"):
        if not _VARIABLE.fullmatch(name):
            raise Malformed(
                f"--container-env: {name!r} is no name of a variable", "--container-env=NAME[,NAME]"
            )
    for name in _names(values, "container-unshare"):
        if name not in _NAMESPACES:
            raise Malformed(
                f"--container-unshare: unknown namespace {name!r}", f"use: {', '.join(_NAMESPACES)}"
            )

    for text in values.get("container-name", ()):
        name, _, flag = text.partition(":")
        if not _NAME.fullmatch(name):
            raise Malformed(f"--container-name: invalid name {name!r}", "use letters and digits, and _ . -")
        if flag and flag not in OF_NAMES:
            raise Malformed(f"--container-name: unknown flag {flag!r}", f"use one of: {', '.join(OF_NAMES)}")
    for text in values.get("container-save", ()):
        if text.endswith("/"):
            raise Malformed(f"--container-save: {text} is a directory", f"{text}FILE.sqsh")


def _names(values: Mapping[str, Sequence[str]], key: str) -> tuple[str, ...]:
    return tuple(name for value in values.get(key, ()) for name in value.split(","))


def _settings(values: Mapping[str, Sequence[str]]) -> Settings:
    def either(yes: str, no: str) -> bool | None:
        return True if yes in values else False if no in values else None

    workdir = values.get("container-workdir")
    image = values.get("container-image")
    name, _, flag = values.get("container-name", ("",))[-1].partition(":")
    return Settings(
        image=image[-1] if image else None,
        mounts=tuple(values.get("container-mounts", ())),
        workdir=os.path.normpath(os.path.join("/", workdir[-1])) if workdir else None,
        names=_names(values, "container-env"),
        mount_home="container-mount-home" in values,
        remap_root="container-remap-root" in values,
        writable=either("container-writable", "container-readonly"),
        entrypoint=either("container-entrypoint", "no-container-entrypoint"),
        unshare=_names(values, "container-unshare"),
        name=name,
        name_flag=flag or OF_NAMES[0],
        save=values.get("container-save", ("",))[-1],
    )
