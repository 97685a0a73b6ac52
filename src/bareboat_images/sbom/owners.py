"""The package of each file in an image, from the package managers' file lists in the image.

A file listed by a distribution's package and by a Python distribution belongs to the former; one listed by a
conda package and a Python distribution belongs to the conda package.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator

import msgspec

from bareboat_base import codec
from bareboat_images.layers.view import View
from bareboat_images.sbom import files, rpmdb, stanzas
from bareboat_images.sbom.package import plain

_LARGEST_LIST = 64 << 20
_MOST_PATHS = 10_000_000

#: Type of a package URL, and the package's name; both empty for a file without a package.
Owner = tuple[str, str]
NOBODY: Owner = ("", "")


class Owners:
    """Maps the paths of files to packages, with links in parent directories resolved."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._files: dict[str, Owner] = {}
        self._folders: dict[str, Owner] = {}
        self._real: dict[str, str] = {}
        #: Lists that could not be read, with the reason.
        self.warnings: list[str] = []
        for source in (self._dpkg, self._apk, self._rpm):
            for owner, paths in source():
                self._take(owner, paths)
        found: dict[str, list[tuple[Owner, list[str]]]] = {"conda": [], "pypi": []}
        for owner, paths in self._anywhere():
            found[owner[0]].append((owner, paths))
        for owner, paths in (*found["conda"], *found["pypi"]):
            self._take(owner, paths)

    def of(self, path: str) -> Owner:
        """The package of a file, by its path without links. Bytecode belongs to its source's package."""
        owner = self._files.get(path)
        if owner is not None:
            return owner
        folder, _, name = path.rpartition("/")
        if folder.endswith("/__pycache__") and name.endswith(".pyc"):
            source = f"{folder.removesuffix('/__pycache__')}/{name.partition('.')[0]}.py"
            if (owner := self._files.get(source)) is not None:
                return owner
        while self._folders and folder:
            if (owner := self._folders.get(folder)) is not None:
                return owner
            folder = folder.rpartition("/")[0]
        return NOBODY

    def _take(self, owner: Owner, paths: Iterable[str]) -> None:
        for path in paths:
            if len(self._files) >= _MOST_PATHS:
                return
            folder, _, name = path.rpartition("/")
            if not name or name in (".", ".."):
                continue
            real = self._real.get(folder)
            if real is None:
                found = self._view.find(folder or "/")
                real = self._real[folder] = found.path.rstrip("/") if found is not None else folder
            self._files.setdefault(f"{real}/{name}", owner)

    def _warn(self, text: str) -> None:
        self.warnings.append(plain(text))

    def _read(self, path: str) -> bytes:
        return files.read(self._view, path, most=_LARGEST_LIST, warn=self._warn) or b""

    def _text(self, path: str) -> str:
        return self._read(path).decode("utf-8", "surrogateescape")

    def _dpkg(self) -> Iterator[tuple[Owner, Iterable[str]]]:
        info, status = "/var/lib/dpkg/info", "/var/lib/dpkg/status.d"
        for name in sorted(self._view.names(info)):
            if name.endswith(".list"):
                package = plain(name.removesuffix(".list").partition(":")[0])
                yield ("deb", package), self._text(f"{info}/{name}").split("\n")
        for name in sorted(self._view.names(status)):
            if name.endswith(".md5sums"):
                lines = self._text(f"{status}/{name}").split("\n")
                yield ("deb", plain(name.removesuffix(".md5sums"))), ("/" + line[34:] for line in lines)

    def _apk(self) -> Iterator[tuple[Owner, Iterable[str]]]:
        text = next(filter(None, map(self._text, files.APK)), "")
        package = folder = ""
        paths: list[str] = []
        for line in text.split("\n"):
            kind, value = line[:2], line[2:]
            if not line:
                yield ("apk", plain(package)), paths
                package, folder, paths = "", "", []
            elif kind == "P:":
                package = value
            elif kind == "F:":
                folder = value
            elif kind == "R:":
                paths.append(f"/{folder}/{value}" if folder else f"/{value}")
        if paths:
            yield ("apk", plain(package)), paths

    def _rpm(self) -> Iterator[tuple[Owner, Iterable[str]]]:
        for path in files.RPM:
            with self._view.open(path) as descriptor:
                if descriptor is None:
                    continue
                try:
                    for name, paths in rpmdb.files(descriptor):
                        yield ("rpm", name), paths
                except ValueError as error:
                    self._warn(f"{path} is damaged: {error}")
                return

    def _anywhere(self) -> Iterator[tuple[Owner, list[str]]]:
        """Yield conda's records and Python's; R's packages are whole directories."""
        for folder, path, node in files.walk(self._view, self._warn):
            name = path.rpartition("/")[2]
            if node.kind == "folder":
                if name.endswith(".dist-info"):
                    yield ("pypi", _distribution(name)), self._record(folder, path)
            elif node.kind != "file":
                continue
            elif name == "DESCRIPTION":
                if (package := stanzas.description(self._text(path), path)) is not None:
                    self._folders[folder] = ("cran", package.name)
            elif name.endswith(".json") and folder.endswith("/conda-meta"):
                yield from self._conda(folder.removesuffix("/conda-meta"), path)

    def _record(self, folder: str, path: str) -> list[str]:
        """https://packaging.python.org/en/latest/specifications/recording-installed-packages/"""
        paths = []
        try:
            for row in csv.reader(self._text(f"{path}/RECORD").splitlines()):
                if row and row[0]:
                    paths.append(os.path.normpath(os.path.join(folder, row[0])))
        except csv.Error as error:
            self._warn(f"{path}/RECORD is damaged: {error}")
        return paths

    def _conda(self, prefix: str, path: str) -> Iterator[tuple[Owner, list[str]]]:
        try:
            read = codec.decode(self._read(path), _Conda)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            self._warn(f"{path} is damaged: {error}")
            return
        if read.name:
            yield (
                ("conda", plain(read.name)),
                [path, *(os.path.normpath(f"{prefix}/{name}") for name in read.files)],
            )


class _Conda(msgspec.Struct):
    name: str = ""
    files: list[str] = []


def _distribution(folder: str) -> str:
    """The name in NAME-VERSION.dist-info, as in package URLs."""
    return plain(folder.removesuffix(".dist-info").partition("-")[0]).lower().replace("_", "-")
