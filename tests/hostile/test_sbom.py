"""The list of an image's software: right for real databases, valid, the same each time, and whole when the
image is hostile."""

import json
import os
import sqlite3
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tools import tool

from bareboat.model import Image
from bareboat_images.sbom import inventory, spdx
from bareboat_images.sbom.package import Package

_IMAGE = Image(digest="sha256:" + "1" * 64, layers=(), reference="docker.io/library/debian:12")
_RELEASE = 'ID=debian\nVERSION_ID="12"\n'


def _tree(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def _purls(folder: Path) -> list[str]:
    return [each.purl for each in inventory.take([folder]).packages]


def _header(fields: dict[int, str | int]) -> bytes:
    """An rpm header, as rpm keeps it in its database."""
    index, data = b"", b""
    for tag, value in fields.items():
        if isinstance(value, int):
            data += bytes(-len(data) % 4)
            index += struct.pack(">IIII", tag, 4, len(data), 1)
            data += struct.pack(">I", value)
        else:
            index += struct.pack(">IIII", tag, 6, len(data), 1)
            data += value.encode() + b"\0"
    return struct.pack(">II", len(fields), len(data)) + index + data


def _rpmdb(
    path: Path, *headers: bytes, table: str = "CREATE TABLE Packages (hnum INTEGER, blob BLOB)"
) -> None:
    path.parent.mkdir(parents=True)
    base = sqlite3.connect(path)
    base.execute(table)
    for number, header in enumerate(headers):
        base.execute("INSERT INTO Packages VALUES (?, ?)", (number, header))
    base.commit()
    base.close()


_RPM: dict[int, str | int] = {
    1000: "bash", 1001: "5.2.26", 1002: "3.fc40", 1003: 1, 1014: "GPL-3.0-or-later", 1022: "x86_64",
}  # fmt: skip
_CONDA = {
    "name": "libgcc", "version": "14.1.0", "build": "h77fa898_1", "channel": "https://conda.org/conda-forge",
    "subdir": "linux-64", "sha256": "a" * 64, "md5": "b" * 32, "license": "GPL-3.0-only",
}  # fmt: skip


@pytest.fixture
def varied(tmp_path: Path) -> Path:
    """A tree with something of every kind."""
    folder = _tree(
        tmp_path / "tree",
        {
            "etc/os-release": _RELEASE,
            "var/lib/dpkg/status": "Package: libc6\nStatus: install ok installed\nVersion: 2:2.36-9+deb12u9\n"
            "Architecture: amd64\nMaintainer: GNU Libc <a@b>\nDescription: x\n more\n\n"
            "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n",
            "var/lib/dpkg/status.d/base": "Package: base-files\nVersion: 12.4\nArchitecture: all\n",
            "usr/share/doc/libc6/copyright": "Format: https://www.debian.org/doc/packaging-manuals/"
            "copyright-format/1.0/\n\nFiles: *\nLicense: LGPL-2.1+\n",
            "lib/apk/db/installed": "C:Q1x=\nP:musl\nV:1.2.4-r2\nA:x86_64\nL:MIT\n\n",
            "usr/lib/python3/dist-packages/Some_Thing-1.0.dist-info/METADATA": "Name: Some_Thing\n"
            "Version: 1.0+local\nLicense-Expression: MIT\n\nName: not this\n",
            "opt/env/lib/python3.11/site-packages/old.egg-info": "Name: old\nVersion: 0.1\n"
            "Classifier: License :: OSI Approved :: BSD License\n",
            "opt/conda/conda-meta/libgcc.json": json.dumps(_CONDA),
            "usr/lib/R/library/ncdf4/DESCRIPTION": "Package: ncdf4\nVersion: 1.21\nLicense: GPL (>= 3)\n"
            "Built: R 4.2.2\n",
            "home/me/DESCRIPTION": "This is a description.\n",
        },
    )
    _rpmdb(folder / "var/lib/rpm/rpmdb.sqlite", _header(_RPM))
    return folder


def test_packages_of_every_kind(varied: Path) -> None:
    assert _purls(varied) == [
        "pkg:apk/debian/musl@1.2.4-r2?arch=x86_64&distro=debian-12",
        "pkg:conda/libgcc@14.1.0?build=h77fa898_1&channel=conda-forge&subdir=linux-64",
        "pkg:cran/ncdf4@1.21",
        "pkg:deb/debian/base-files@12.4?arch=all&distro=debian-12",
        "pkg:deb/debian/libc6@2:2.36-9%2Bdeb12u9?arch=amd64&distro=debian-12",
        "pkg:pypi/old@0.1",
        "pkg:pypi/some-thing@1.0%2Blocal",
        "pkg:rpm/debian/bash@5.2.26-3.fc40?arch=x86_64&distro=debian-12&epoch=1",
    ]


def test_package_urls_are_those_of_the_reference_library(varied: Path) -> None:
    purl = pytest.importorskip("packageurl")
    for each in inventory.take([varied]).packages:
        read = purl.PackageURL.from_string(each.purl)
        assert read.to_string() == each.purl
        assert (read.version, read.type) == (each.version, each.kind)


def test_dpkg_lists_the_same(tmp_path: Path) -> None:
    with open("/var/lib/dpkg/status", "rb") as stream:
        tree = _tree(tmp_path, {"var/lib/dpkg/status": stream.read()})
    form = "${db:Status-Status} ${Package} ${Version} ${Architecture}\n"
    lines = subprocess.run([tool("dpkg-query"), "-W", "-f", form], capture_output=True, text=True, check=True)
    told = {tuple(each.split()[1:]) for each in lines.stdout.splitlines() if each.startswith("installed ")}
    found = inventory.take([tree]).packages
    assert {(each.name, each.version, dict(each.qualifiers)["arch"]) for each in found} == told


def _spdx(document: dict[str, Any], path: Path) -> None:
    parser = pytest.importorskip("spdx_tools.spdx.parser.parse_anything")
    validator = pytest.importorskip("spdx_tools.spdx.validation.document_validator")
    path.write_text(json.dumps(document))
    messages = validator.validate_full_spdx_document(parser.parse_file(str(path)))
    assert not messages, messages[:3]


@pytest.mark.parametrize("created", ["", "2026-01-02T03:04:05Z"])
def test_documents_are_valid_and_the_same_each_time(varied: Path, created: str, tmp_path: Path) -> None:
    found, again = inventory.take([varied]), inventory.take([varied])
    one, other = (json.dumps(spdx.document(_IMAGE, each, created=created)) for each in (found, again))
    assert one == other
    _spdx(spdx.document(_IMAGE, found, created=created), tmp_path / "x.spdx.json")


# -- hostile images ----------------------------------------------------------------------------------------

_NASTY = (
    "\x1b]0;x\x07",
    "a\x00b",
    "\u202eevil",
    "x" * 100_000,
    "../../etc/passwd",
    "\ud800",
    "%0a?x=1#y",
    "",
)
_TEMPLATES = {
    "var/lib/dpkg/status": "Package: {}\nStatus: install ok installed\nVersion: {}\nArchitecture: {}\n",
    "lib/apk/db/installed": "P:{}\nV:{}\nL:{}\n",
    "a/x.dist-info/METADATA": "Name: {}\nVersion: {}\nLicense: {}\n",
    "a/x.egg-info": "Name: {}\nVersion: {}\nAuthor: {}\n",
    "R/x/DESCRIPTION": "Package: {}\nVersion: {}\nLicense: {}\nBuilt: R\n",
    "etc/os-release": "ID={}\nVERSION_ID={}\nX={}\n",
}


@pytest.mark.parametrize("text", _NASTY, ids=range(len(_NASTY)))
@pytest.mark.parametrize("name", _TEMPLATES)
def test_nasty_fields(name: str, text: str, tmp_path: Path) -> None:
    data = _TEMPLATES[name].format(text, text, text).encode("utf-8", "surrogatepass")
    tree = _tree(tmp_path / "tree", {"etc/os-release": "ID=x\n", name: data})
    found = inventory.take([tree])
    _plain(spdx.document(_IMAGE, found, created=""))
    for each in found.packages:
        assert len(each.purl) < 20_000
        assert not set(each.purl) - set(map(chr, range(33, 127)))


def _plain(value: Any) -> None:
    """No text of a document has a control character."""
    match value:
        case dict():
            for each in (*value.keys(), *value.values()):
                _plain(each)
        case list():
            for each in value:
                _plain(each)
        case str():
            assert value.isprintable() or "\n" in value, value
            value.encode()


def _sparse(path: Path) -> None:
    with open(path, "wb") as stream:
        stream.truncate(1 << 40)


_PLACES = (
    "var/lib/dpkg/status", "var/lib/dpkg/status.d/x", "lib/apk/db/installed", "var/lib/rpm/rpmdb.sqlite",
    "a/x.dist-info/METADATA", "a/x.egg-info", "a/conda-meta/x.json", "R/x/DESCRIPTION", "etc/os-release",
)  # fmt: skip
_DAMAGE = (
    "fifo", "folder", "sparse", "garbage", "empty", "zeros", "loop", "outside", "one line", "deep", "socket",
)  # fmt: skip


@pytest.mark.parametrize("damage", _DAMAGE)
@pytest.mark.parametrize("place", _PLACES)
def test_damaged_databases(place: str, damage: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("Package: secret\nName: secret\nVersion: 1\nBuilt: x\nP:secret\nID=secret\n")
    tree = _tree(tmp_path / "tree", {"other.dist-info/METADATA": "Name: other\nVersion: 1\n"})
    path = tree / place
    path.parent.mkdir(parents=True)
    match damage:
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "sparse":
            _sparse(path)
        case "garbage":
            path.write_bytes(bytes(range(256)) * 100)
        case "zeros":
            path.write_bytes(bytes(1 << 20))
        case "loop":
            path.symlink_to(path.name)
        case "outside":
            path.symlink_to(secret)
        case "one line":
            path.write_bytes(b"Package:" * 100_000)
        case "deep":
            path.write_bytes(b"[" * 1_000_000)
        case "socket":
            os.mknod(path, 0o140644)
        case _:
            path.touch()
    begun = time.monotonic()
    found = inventory.take([tree])
    assert time.monotonic() - begun < 20
    assert "pkg:pypi/other@1" in [each.purl for each in found.packages]
    assert "secret" not in str(found)
    _plain(spdx.document(_IMAGE, found, created=""))


@pytest.mark.parametrize(
    "table",
    [
        "CREATE VIEW Packages AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) "
        "SELECT i AS hnum, randomblob(1000) AS blob FROM n",
        "CREATE TABLE Packages (hnum INTEGER)",
        "CREATE TABLE Others (hnum INTEGER, blob BLOB)",
        "CREATE TABLE Packages (hnum INTEGER, blob TEXT)",
        "CREATE TABLE Packages (hnum INTEGER, blob AS (zeroblob(1000000000)))",
    ],
)
def test_a_database_that_is_a_trap(table: str, tmp_path: Path) -> None:
    _rpmdb(tmp_path / "var/lib/rpm/rpmdb.sqlite", table=table)
    begun = time.monotonic()
    found = inventory.take([tmp_path])
    assert time.monotonic() - begun < 20
    assert not found.packages


_WHOLE = _header(_RPM)


@pytest.mark.parametrize(
    "header",
    [b"", b"\0" * 7, b"\xff" * 8, b"\xff" * 64, _WHOLE[:20], _WHOLE[:-1],
     struct.pack(">II", 1, 0) + b"\0" * 16,
     struct.pack(">II", 1, 4) + struct.pack(">IIII", 1003, 4, 0xFFFFFFFF, 1) + b"\0" * 4,
     struct.pack(">II", 1, 4) + struct.pack(">IIII", 1000, 6, 0xFFFFFFFF, 1) + b"\0" * 4],
)  # fmt: skip
def test_headers_of_rpm_that_are_damaged(header: bytes, tmp_path: Path) -> None:
    _rpmdb(tmp_path / "var/lib/rpm/rpmdb.sqlite", _WHOLE, header)
    found = inventory.take([tmp_path])
    assert "pkg:rpm/bash" in found.packages[0].purl
    assert found.warnings or len(found.packages) == 2


@pytest.mark.parametrize("name", ["var/lib/rpm/Packages", "usr/lib/sysimage/rpm/Packages.db"])
def test_databases_that_are_not_read_are_named(name: str, tmp_path: Path) -> None:
    found = inventory.take([_tree(tmp_path, {name: b"x"})])
    assert "is not read" in found.warnings[0]


def test_a_deep_tree(tmp_path: Path) -> None:
    path = tmp_path
    for _ in range(400):
        path = path / "d"
    os.makedirs(path)
    assert inventory.take([tmp_path]).packages == []


@pytest.mark.parametrize("kind", ["deb", "rpm", "apk", "pypi", "conda", "cran"])
@pytest.mark.parametrize("text", ["a b", "a/b", "a?b", "a#b", "a@b", "a%b", "é", "a+b", "a:b"])
def test_package_urls_are_quoted(kind: str, text: str) -> None:
    purl = pytest.importorskip("packageurl")
    made = Package(kind=kind, name=text, version=text, path="/", namespace="x", qualifiers=(("arch", text),))
    read = purl.PackageURL.from_string(made.purl)
    assert (read.name, read.version, read.qualifiers) == (text, text, {"arch": text})
