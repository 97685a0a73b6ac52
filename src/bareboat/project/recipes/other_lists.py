"""Package lists of conda, R and Julia.

Formats: https://conda.github.io/conda-lock/output/ , https://pixi.prefix.dev/latest/workspace/lockfile/ ,
https://rstudio.github.io/renv/articles/lockfile.html and https://pkgdocs.julialang.org/v1/toml-files/ . Pure.
"""

from __future__ import annotations

import re

from bareboat.project.recipes import foreign, python_lists
from bareboat.project.recipes.foreign import Table
from bareboat.project.recipes.listed import Listed, normal, outside, unique, version
from bareboat_base.printable import one_line

_PLATFORMS = ("linux-64", "linux-aarch64")


def pixi(content: str, _companion: str) -> Listed:
    data = foreign.yaml(content)
    by_platform = data.table("environments").table("default").table("packages")
    mine = next((name for name in _PLATFORMS if name in by_platform), None)
    left_out = [] if mine is not None else ["the environment default is not locked for linux-64"]
    packages: dict[str, str] = {}
    for each in by_platform.tables(mine or ""):
        location = each.text("conda") or each.text("pypi")
        name, version = _of_file(location)
        packages[normal(name)] = version
        left_out += outside(name or location, location)
    python = packages.get("python", "")
    return Listed(kind="pixi", packages=packages, version=python, hashed=True,
                  left_out=unique(left_out))  # fmt: skip


def conda_lock(content: str, _companion: str) -> Listed:
    packages: dict[str, str] = {}
    left_out: list[str] = []
    platforms: set[str] = set()
    for each in foreign.yaml(content).tables("package"):
        platforms.add(each.text("platform"))
        if each.text("platform") not in _PLATFORMS:
            continue
        name = each.word("name")
        packages[normal(name)] = each.scalar("version")
        if each.text("manager") == "pip":
            left_out.append(f"{name}: from pip, which micromamba leaves out of a conda-lock.yml")
    if platforms and not platforms & set(_PLATFORMS):
        left_out.append(f"it is locked for {one_line(', '.join(sorted(platforms)))}, not for linux-64")
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
    data = foreign.yaml(content)
    packages: dict[str, str] = {}
    left_out: list[str] = []
    for each in data.texts_and_tables("dependencies"):
        if isinstance(each, Table):
            for line in each.texts("pip"):
                found = python_lists.requirements(line)
                packages |= found.packages
                left_out += found.left_out
            continue
        name, version = _of_spec(each)
        packages[normal(name)] = version
    if prefix := data.text("prefix"):
        left_out.append(f"prefix: {one_line(prefix)}: a directory of this machine; ignored")
    return Listed(kind="conda", packages=packages,
                  version=packages.get("python", ""), left_out=unique(left_out))  # fmt: skip


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
    data = foreign.from_json(content)
    packages: dict[str, str] = {}
    left_out: list[str] = []
    listed = data.table("Packages")
    for name in listed:
        each = listed.table(name)
        packages[name] = each.text("Version")
        if (source := each.text("Source")) in ("Local", "unknown"):
            left_out.append(f"{one_line(name)}: its source is {source}, which is not in the lock file")
    found = version(data.table("R").text("Version"))
    if not found:
        left_out.append("it does not name the version of R; without --base, the recipe has Debian's")
    return Listed(kind="renv", packages=packages, version=found, left_out=unique(left_out))


def julia(content: str, _companion: str) -> Listed:
    data = foreign.toml(content)
    packages: dict[str, str] = {}
    left_out: list[str] = []
    # Before format 2, each package was a list of tables at the top.
    listed = data.table("deps") if "deps" in data else data
    for name in listed:
        if listed is data and not listed.is_list(name):
            continue
        for each in listed.tables(name):
            packages[name] = each.text("version") or "stdlib"
            if place := each.text("path"):
                left_out.append(f"{one_line(name)}: a package in development at {one_line(place)}")
    return Listed(kind="julia", packages=packages,
                  version=version(data.text("julia_version")), left_out=unique(left_out))  # fmt: skip
