"""Lists all packages of an image, and what could not be read."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from bareboat_base import codec
from bareboat_base.expressions import expression
from bareboat_images.layers.view import Node, View
from bareboat_images.sbom import rpmdb, stanzas
from bareboat_images.sbom.package import Package, plain

_LARGEST_DATABASE = 256 << 20
_LARGEST_RECORD = 32 << 20
_LARGEST_METADATA = 4 << 20
_MOST_PACKAGES = 200_000
_MOST_WARNINGS = 100
_RPM_OTHERS = {
    "/var/lib/rpm/Packages": "Berkeley DB", "/usr/lib/sysimage/rpm/Packages": "Berkeley DB",
    "/var/lib/rpm/Packages.db": "ndb", "/usr/lib/sysimage/rpm/Packages.db": "ndb",
}  # fmt: skip

RPM = ("/var/lib/rpm/rpmdb.sqlite", "/usr/lib/sysimage/rpm/rpmdb.sqlite")
APK = ("/lib/apk/db/installed", "/usr/lib/apk/db/installed")
_MOST_FOLDERS = 2_000_000
_DEEPEST = 256
#: Never part of an image, whatever they contain.
_SKIPPED = ("/proc", "/sys", "/dev")

Warn = Callable[[str], None]


def read(view: View, path: str, *, most: int, warn: Warn) -> bytes | None:
    """A whole file; None if it does not exist, or, with a warning, if it is too large."""
    with view.open(path) as descriptor:
        if descriptor is None:
            return None
        if os.fstat(descriptor).st_size > most:
            warn(f"{path} is not read: it is larger than {most:,} bytes")
            return None
        with open(descriptor, "rb", closefd=False) as stream:
            return stream.read(most)


def walk(view: View, warn: Warn) -> Iterator[tuple[str, str, Node]]:
    """The directory, the path and the node of every entry; a directory before its entries."""
    pending = ["/"]
    folders = 0
    while pending:
        folder = pending.pop()
        folders += 1
        if folders > _MOST_FOLDERS:
            warn(f"only the first {_MOST_FOLDERS:,} directories were searched")
            return
        for name, node in sorted(view.names(folder).items()):
            path = f"{folder.rstrip('/')}/{name}"
            if node.kind == "folder" and path not in _SKIPPED and path.count("/") < _DEEPEST:
                pending.append(path)
            yield folder, path, node


@dataclass(slots=True, kw_only=True)
class Inventory:
    """The packages, in order of their package URLs, and warnings."""

    distribution: str = ""
    distribution_version: str = ""
    packages: list[Package] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def warn(self, text: str) -> None:
        if len(self.warnings) < _MOST_WARNINGS:
            self.warnings.append(plain(text))


def take(trees: Sequence[Path]) -> Inventory:
    """List the software of an image. `trees`: its unpacked layers, bottom first."""
    view = View(trees)
    found = Inventory()
    release = _os_release(view)
    found.distribution = plain(release.get("ID")).lower()
    found.distribution_version = plain(release.get("VERSION_ID"))
    every = itertools.chain.from_iterable(source(view, found) for source in (_dpkg, _apk, _rpm, _tree))
    packages = list(itertools.islice(every, _MOST_PACKAGES))
    if next(every, None) is not None:
        found.warn(f"only the first {_MOST_PACKAGES:,} packages are listed")
    for folder in view.unreadable:
        found.warn(f"{folder} cannot be read by this user")
    found.packages = sorted(set(packages), key=lambda each: (each.purl, each.path))
    return found


def _text(view: View, path: str, most: int, found: Inventory) -> str | None:
    data = read(view, path, most=most, warn=found.warn)
    return None if data is None else data.decode("utf-8", "replace")


def _os_release(view: View) -> dict[str, str]:
    text = _text(view, "/etc/os-release", 1 << 16, Inventory()) or ""
    text = text or _text(view, "/usr/lib/os-release", 1 << 16, Inventory()) or ""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip().strip("\"'") for name, equals, value in pairs if equals}


def _dpkg(view: View, found: Inventory) -> Iterator[Package]:
    status = "/var/lib/dpkg/status.d"
    names = sorted(name for name in view.names(status) if not name.endswith(".md5sums"))
    for path in ("/var/lib/dpkg/status", *(f"{status}/{name}" for name in names)):
        text = _text(view, path, _LARGEST_DATABASE, found)
        yield from stanzas.dpkg(
            text or "", plain(path), distribution=found.distribution, version=found.distribution_version
        )


def _apk(view: View, found: Inventory) -> Iterator[Package]:
    for path in APK:
        text = _text(view, path, _LARGEST_DATABASE, found) or ""
        yield from stanzas.apk(
            text, path, distribution=found.distribution, version=found.distribution_version
        )
        if text:
            return


def _rpm(view: View, found: Inventory) -> Iterator[Package]:
    for path in RPM:
        with view.open(path) as descriptor:
            if descriptor is None:
                continue
            if os.fstat(descriptor).st_size > 4 * _LARGEST_DATABASE:
                found.warn(f"{path} is not read: it is too large")
                continue
            try:
                yield from rpmdb.packages(
                    descriptor, path, distribution=found.distribution, version=found.distribution_version
                )
            except ValueError as error:
                found.warn(f"{path} is damaged, and its packages are not all listed: {error}")
            return
    for path, form in _RPM_OTHERS.items():
        if view.is_file(path):
            found.warn(f"{path} is not read: rpm's packages are in a database of the form {form}")
            return


def _tree(view: View, found: Inventory) -> Iterator[Package]:
    """Search all directories for Python distributions, conda's records and R's packages."""
    for folder, path, node in walk(view, found.warn):
        name = path.rpartition("/")[2]
        if node.kind == "folder":
            yield from _folder(view, found, name, path)
        elif node.kind == "file":
            yield from _file(view, found, folder, name, path)


def _folder(view: View, found: Inventory, name: str, path: str) -> Iterator[Package]:
    for ending, file in ((".dist-info", "METADATA"), (".egg-info", "PKG-INFO")):
        if name.endswith(ending):
            yield from _read(_python_distribution, view, found, f"{path}/{file}")


def _file(view: View, found: Inventory, folder: str, name: str, path: str) -> Iterator[Package]:
    if name.endswith(".egg-info"):
        yield from _read(_python_distribution, view, found, path)
    elif name == "DESCRIPTION":
        yield from _read(stanzas.description, view, found, path)
    elif name.endswith(".json") and folder.endswith("/conda-meta"):
        data = read(view, path, most=_LARGEST_RECORD, warn=found.warn)
        try:
            package = _conda_package(data, plain(path)) if data is not None else None
        except ValueError as error:
            found.warn(f"{path} is damaged: {error}")
            return
        if package is not None:
            yield package


def _read(
    reader: Callable[[str, str], Package | None], view: View, found: Inventory, path: str
) -> Iterable[Package]:
    text = _text(view, path, _LARGEST_METADATA, found)
    package = reader(text, plain(path)) if text is not None else None
    return () if package is None else (package,)


_FIELD = expression(r"^(Name|Version):[ \t]*([^\n]*)", re.MULTILINE)
_MD5, _SHA256 = expression(r"[0-9a-f]{32}"), expression(r"[0-9a-f]{64}")


def _python_distribution(text: str, path: str) -> Package | None:
    """Parse METADATA or PKG-INFO; None for a file without a name.
    https://packaging.python.org/en/latest/specifications/core-metadata/"""
    head = text.replace("\r\n", "\n").partition("\n\n")[0]
    found = dict(reversed(_FIELD.findall(head)))
    name = plain(found.get("Name"))
    if not name:
        return None
    return Package(kind="pypi", name=name, version=plain(found.get("Version")), path=path)


class _Conda(msgspec.Struct):
    name: str = ""
    version: str = ""
    build: str = ""
    channel: Any = None
    subdir: Any = None
    md5: Any = None
    sha256: Any = None


def _conda_package(data: bytes, path: str) -> Package | None:
    """Parse a file of conda-meta; None for a file without a name. Raises ValueError for a damaged one.
    https://docs.conda.io/projects/conda-build/en/stable/resources/package-spec.html"""
    try:
        read = codec.decode(data, _Conda)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if not read.name:
        return None
    channel = plain(read.channel).rstrip("/")
    subdir = plain(read.subdir)
    channel = channel.removesuffix("/" + subdir).rpartition("/")[2]
    hashes = []
    if isinstance(read.sha256, str) and _SHA256.fullmatch(read.sha256):
        hashes.append(("SHA256", read.sha256))
    if isinstance(read.md5, str) and _MD5.fullmatch(read.md5):
        hashes.append(("MD5", read.md5))
    return Package(
        kind="conda",
        name=plain(read.name),
        version=plain(read.version),
        path=path,
        qualifiers=(("build", plain(read.build)), ("channel", channel), ("subdir", subdir)),
        hashes=tuple(hashes),
    )
