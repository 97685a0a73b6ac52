"""The Python interpreters of an image, and what each can import."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from bareboat_base.elf import binary
from bareboat_base.versions import numbers
from bareboat_images.inside.search import FRAMEWORKS, Package, Search, normal, package

#: conda's name of a package -> its name in Python.
_CONDA_NAMES = {
    "pytorch": "torch",
    "pytorch-gpu": "torch",
    "pytorch-cpu": "torch",
    "tensorflow-base": "tensorflow",
}

#: What shows that a package is installed. setuptools writes a directory or a file (Debian, conda).
_METADATA = (".dist-info/METADATA", ".egg-info/PKG-INFO", ".egg-info")


class Python(Struct, frozen=True, kw_only=True):
    """One Python interpreter. `frameworks`: those that it can import."""

    path: str
    version: str
    frameworks: dict[str, str]


def packages(paths: Iterable[str]) -> Iterator[Package]:
    """The packages of which these files are metadata."""
    for path in paths:
        if path.endswith(_METADATA):
            place = path.removesuffix("/METADATA").removesuffix("/PKG-INFO")
            if (found := package(place.rpartition("/")[2])) is not None:
                yield found


def find(search: Search) -> Iterator[Python]:
    """The interpreters on PATH, in its order, then those in other installations."""
    seen = set()
    for folder in (*search.path, *(f"{prefix}/bin" for prefix in search.prefixes)):
        found = search.view.find(folder)
        if found is None or found.path in seen:
            continue
        seen.add(found.path)
        for name in ("python3", "python"):
            python = _python(search, folder.rstrip("/"), name)
            if python is not None:
                yield python
                break


def _python(search: Search, folder: str, name: str) -> Python | None:
    path = f"{folder}/{name}"
    found = search.view.find(path)
    real_folder = search.view.find(folder)
    if found is None or found.node.kind != "file" or real_folder is None:
        return None
    prefix = real_folder.path.rpartition("/")[0]
    config = {
        key.strip().lower(): value.strip()
        for key, _, value in (
            line.partition("=") for line in (search.text(f"{prefix}/pyvenv.cfg") or "").splitlines()
        )
    }
    minor = _minor(search, found.path, prefix, config)
    if minor is None:
        return None
    version = (
        search.conda.get(prefix, {}).get("python")
        or _full_version(search, found.path, minor)
        or re.sub(r"\.final\.\d+$", "", config.get("version_info", config.get("version", minor)))
    )
    roots = [prefix]
    if config.get("include-system-site-packages", "").lower() == "true":
        roots.append(config.get("home", "/usr/bin").rstrip("/").rpartition("/")[0])
    versions: dict[str, str] = {}
    for conda_name, conda_version in search.conda.get(prefix, {}).items():
        versions[normal(_CONDA_NAMES.get(conda_name, conda_name))] = conda_version
    for folder in _package_folders(search, roots, minor):
        for each in map(package, search.view.names(folder)):
            if each is not None and each.is_framework:
                versions[each.name] = each.version
    return Python(
        path=path,
        version=version,
        frameworks={name: versions[name] for name in sorted(versions) if name in FRAMEWORKS},
    )


def _minor(search: Search, real: str, prefix: str, config: Mapping[str, str]) -> str | None:
    """The language version, such as 3.11; None for Python 2 and for other programs."""
    for text in (real.rpartition("/")[2], config.get("version", ""), config.get("version_info", "")):
        named = re.match(r"(?:python)?(3\.\d{1,2})", text)
        if named:
            return named[1]
    folders = [re.fullmatch(r"python(3\.\d{1,2})", name) for name in search.view.names(f"{prefix}/lib")]
    return max((named[1] for named in folders if named), key=numbers, default=None)


def _full_version(search: Search, real: str, minor: str) -> str | None:
    """The version with the patch level, from the interpreter's file or its library."""
    # The linker may merge the version with the end of a path such as /opt/python/3.11.7.
    pattern = rb"[\0/-](" + re.escape(minor).encode() + rb"\.\d{1,3}(?:(?:a|b|rc)\d{1,2})?)\+?\0"
    folder = real.rpartition("/")[0].rpartition("/")[0] + "/lib"
    libraries = [folder, f"{folder}64", *(f"{folder}/{triplet}" for triplet in search.triplets)]
    for path in (
        real,
        *(f"{library}/libpython{minor}{m}.so.1.0" for library in libraries for m in ("", "m")),
    ):
        with search.view.open(path) as descriptor, binary.read(descriptor) as found:
            version = found.search(pattern) if found is not None else None
            if version is not None:
                return version
    return None


def _package_folders(search: Search, roots: Sequence[str], minor: str) -> list[str]:
    """The package directories of the Python with these prefixes; later ones take precedence. Debian has two
    additional ones: https://wiki.debian.org/Python#Deviations_from_upstream"""
    folders = []
    for root in reversed(roots):
        if root == "/usr":
            folders += ["/usr/lib/python3/dist-packages"]
            for local in ("/usr/local/lib", "/usr/local/lib64"):
                folders += [f"{local}/python{minor}/{name}-packages" for name in ("site", "dist")]
        folders += [f"{root}/{lib}/python{minor}/site-packages" for lib in ("lib64", "lib")]
    folders += [f for f in search.environment.get("PYTHONPATH", "").split(":") if f.startswith("/")]
    search.package_folders += folders
    return folders
