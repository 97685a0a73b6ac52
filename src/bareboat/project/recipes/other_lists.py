"""Package lists of conda, R and Julia.

Formats: https://conda.github.io/conda-lock/output/ , https://pixi.prefix.dev/latest/workspace/lockfile/ ,
https://rstudio.github.io/renv/articles/lockfile.html and https://pkgdocs.julialang.org/v1/toml-files/ . Pure.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from bareboat.project.recipes import python_lists
from bareboat.project.recipes.listed import Listed, normal, outside, tables, text, unique, version, word
from bareboat_base.printable import one_line

_PLATFORMS = ("linux-64", "linux-aarch64")


def pixi(content: str, _companion: str) -> Listed:
    data = _yaml(content)
    default = (data.get("environments") or {}).get("default") or {}
    by_platform = default.get("packages") or {}
    mine = next((by_platform[name] for name in _PLATFORMS if name in by_platform), None)
    left_out = [] if mine is not None else ["the environment default is not locked for linux-64"]
    packages: dict[str, str] = {}
    for each in tables(mine):
        location = text(each.get("conda") or each.get("pypi"))
        name, version = _of_file(location)
        packages[normal(name)] = version
        left_out += outside(name or location, location)
    python = packages.get("python", "")
    return Listed(kind="pixi", packages=packages, version=python, hashed=True,
                  left_out=unique(left_out))  # fmt: skip


def conda_lock(content: str, _companion: str) -> Listed:
    data = _yaml(content)
    packages: dict[str, str] = {}
    left_out: list[str] = []
    platforms: set[str] = set()
    for each in tables(data.get("package")):
        platforms.add(text(each.get("platform")))
        if each.get("platform") not in _PLATFORMS:
            continue
        packages[normal(word(each, "name"))] = text(each.get("version"))
        if each.get("manager") == "pip":
            left_out.append(f"{each['name']}: from pip, which micromamba leaves out of a conda-lock.yml")
    if platforms and not platforms & set(_PLATFORMS):
        left_out.append(f"it is locked for {', '.join(sorted(platforms))}, not for linux-64")
    return Listed(kind="conda-lock", packages=packages, hashed=True,
                  version=packages.get("python", ""), left_out=unique(left_out))  # fmt: skip


def conda_explicit(content: str, _companion: str) -> Listed:
    if "@EXPLICIT" not in content:
        raise ValueError("it has no line @EXPLICIT")
    packages: dict[str, str] = {}
    for line in content.splitlines():
        if line.startswith(("http://", "https://")):
            name, version = _of_file(line.partition("#")[0])
            packages[normal(name)] = version
    return Listed(kind="conda-explicit", packages=packages, hashed="#" in content,
                  version=packages.get("python", ""))  # fmt: skip


def conda(content: str, _companion: str) -> Listed:
    data = _yaml(content)
    packages: dict[str, str] = {}
    left_out: list[str] = []
    for each in _listed(data, "dependencies"):
        if isinstance(each, dict):
            for line in _listed(each, "pip"):
                packages |= python_lists.requirements(text(line)).packages
                left_out += python_lists.requirements(text(line)).left_out
            continue
        name, version = _of_spec(text(each))
        packages[normal(name)] = version
    if data.get("prefix"):
        left_out.append(f"prefix: {one_line(text(data['prefix']))}: a directory of this machine; ignored")
    return Listed(kind="conda", packages=packages,
                  version=packages.get("python", ""), left_out=unique(left_out))  # fmt: skip


def _listed(data: dict[str, Any], key: str) -> list[Any]:
    """Raises ValueError for one text, whose letters would be taken for packages."""
    value = data.get(key) or []
    if not isinstance(value, list):
        raise ValueError(f"{key}: is not a list; each entry is a line that begins with a dash")
    return value


def _of_spec(spec: str) -> tuple[str, str]:
    """A package of environment.yml: its name, and its version where that is fixed."""
    found = re.match(r"(?:[\w/.-]+::)?([\w.-]+)\s*(?:={1,2}\s*([\w.+!]+)(?:=\S+)?)?\s*$", spec)
    if found is None:
        return re.split(r"[\s<>=!~\[]", spec.rpartition("::")[2], maxsplit=1)[0], ""
    return found[1], found[2] or ""


def _of_file(location: str) -> tuple[str, str]:
    """Name and version of a conda package or wheel, by its file name."""
    name = location.rpartition("/")[2]
    if name.endswith(".whl"):
        parts = name.split("-")
        return (parts[0], parts[1]) if len(parts) > 1 else (name, "")
    stem = re.sub(r"\.(conda|tar\.bz2|tar\.gz|zip)$", "", name)
    parts = stem.rsplit("-", 2)
    return (parts[0], parts[1]) if len(parts) == 3 else (stem, "")


def renv(content: str, _companion: str) -> Listed:
    import json

    data = json.loads(content)
    packages: dict[str, str] = {}
    left_out: list[str] = []
    for name, each in (data.get("Packages") or {}).items():
        packages[name] = str(each.get("Version") or "")
        if each.get("Source") in ("Local", "unknown"):
            left_out.append(f"{name}: its source is {each['Source']}, which is not in the lock file")
    found = version((data.get("R") or {}).get("Version"))
    if not found:
        left_out.append("it does not name the version of R; without --base, the recipe has Debian's")
    return Listed(kind="renv", packages=packages, version=found, left_out=unique(left_out))


def julia(content: str, _companion: str) -> Listed:
    data = tomllib.loads(content)
    packages: dict[str, str] = {}
    left_out: list[str] = []
    # Before format 2, each package was a table of its own at the top.
    old = {name: value for name, value in data.items() if isinstance(value, list)}
    for name, entries in (data.get("deps") or old).items():
        for each in tables(entries):
            packages[name] = str(each.get("version") or "stdlib")
            if place := each.get("path"):
                left_out.append(f"{name}: a package in development at {one_line(str(place))}")
    return Listed(kind="julia", packages=packages,
                  version=version(data.get("julia_version")), left_out=unique(left_out))  # fmt: skip


def _yaml(content: str) -> dict[str, Any]:
    import yaml

    try:
        data = yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    if not isinstance(data, dict):
        raise ValueError("it is not a mapping")
    return data
