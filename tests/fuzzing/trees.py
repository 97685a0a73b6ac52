"""Trees that strangers fill, made from an input; and the readers of what an image's package managers left.

An input is several files: `KIND PATH`, a line feed, the content; between them `BETWEEN`. KIND is `file`,
`link` (the content is its target), `folder`, `fifo`, `hole` (the content is its size) or `closed` (mode 000).
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bareboat.model import Image
from bareboat_base import codec
from bareboat_base.printable import printable
from bareboat_images.sbom import inventory, spdx
from fuzzing import Finding, Reader

BETWEEN = b"\n=-=-=\n"
_MOST_FILES = 64
#: Below the limit that the fuzzer sets for files.
_LARGEST_HOLE = 200 << 20


def make(data: bytes, top: Path) -> None:
    """The tree of an input. What cannot be made is left out; nothing is made outside of `top`."""
    top.mkdir(parents=True, exist_ok=True)
    real = os.path.realpath(top)
    for part in data.split(BETWEEN)[:_MOST_FILES]:
        head, _, content = part.partition(b"\n")
        kind, _, name = head.decode("utf-8", "replace").strip().partition(" ")
        if not name or "\0" in name or name.startswith("/") or ".." in name.split("/"):
            continue
        path = os.path.join(real, name)
        with contextlib.suppress(OSError, ValueError):
            folder = os.path.dirname(path)
            if os.path.commonpath([os.path.realpath(folder), real]) != real:
                continue
            os.makedirs(folder, exist_ok=True)
            if os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path)):
                os.unlink(path)
            _put(kind, path, content)


def _put(kind: str, path: str, content: bytes) -> None:
    match kind:
        case "link":
            os.symlink(content.strip(b"\n"), os.fsencode(path))
        case "folder":
            os.makedirs(path, exist_ok=True)
        case "fifo":
            os.mkfifo(path)
        case "hole":
            with open(path, "xb") as stream:
                stream.truncate(min(int(content[:20]), _LARGEST_HOLE))
        case _:
            with open(path, "xb") as stream:
                stream.write(content)
            if kind == "closed":
                os.chmod(path, 0)


def packed(files: Mapping[str, str | bytes]) -> bytes:
    """An input with these files. A name may begin with a kind: `link a/b`."""
    parts = []
    for name, content in files.items():
        head = name if " " in name else f"file {name}"
        parts.append(head.encode() + b"\n" + (content.encode() if isinstance(content, str) else content))
    return BETWEEN.join(parts)


# --------------------------------------------------------------------------------------------------
# The list of an image's software.

_IMAGE = Image(digest="sha256:" + "1" * 64, layers=(), reference="docker.io/library/debian:12")


def read_software(data: bytes, scratch: Path) -> None:
    """`a/…` and `b/…` are the image's layers, the bottom one first."""
    make(data, scratch)
    layers = [scratch / name for name in ("a", "b") if (scratch / name).is_dir()]
    found = inventory.take(layers)
    for package in found.packages:
        fields = (
            package.kind,
            package.name,
            package.version,
            package.path,
        )
        for text in (*fields, package.purl):
            if printable(text) != text or "\n" in text:
                raise Finding(f"a package with a control character: {text!r:.300}")
    for text in found.warnings:
        if printable(text) != text or "\n" in text:
            raise Finding(f"a warning with a control character: {text!r:.300}")
    document = codec.to_json(spdx.document(_IMAGE, found, created=""))
    json.loads(document)
    if b"root:x:0" in document and b"root:x:0" not in data:
        raise Finding("a file of this machine is listed")


def _rpm_header(fields: Mapping[int, str | int]) -> bytes:
    index, values = b"", b""
    for tag, value in fields.items():
        values += bytes(-len(values) % 4)
        index += struct.pack(">IIII", tag, 4 if isinstance(value, int) else 6, len(values), 1)
        values += struct.pack(">I", value) if isinstance(value, int) else value.encode() + b"\0"
    return struct.pack(">II", len(fields), len(values)) + index + values


def _rpm_database(*headers: bytes, table: str = "CREATE TABLE Packages (hnum INTEGER, blob BLOB)") -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rpmdb.sqlite"
        base = sqlite3.connect(path)
        base.execute("PRAGMA page_size=512")
        base.execute(table)
        for number, header in enumerate(headers):
            base.execute("INSERT INTO Packages VALUES (?, ?)", (number, header))
        base.commit()
        base.close()
        return path.read_bytes()


def software_seeds() -> dict[str, bytes]:
    release = {"a/etc/os-release": 'ID=debian\nVERSION_ID="12"\n'}
    header = _rpm_header(
        {1000: "bash", 1001: "5.2.26", 1002: "3.fc40", 1003: 1, 1011: "Fedora", 1014: "GPL", 1022: "x86_64"}
    )
    conda = {
        "name": "libgcc", "version": "14.1.0", "build": "h1", "channel": "https://conda.org/conda-forge",
        "subdir": "linux-64", "sha256": "a" * 64, "md5": "b" * 32, "license": "GPL-3.0-only",
    }  # fmt: skip
    status = "Package: libc6\nStatus: install ok installed\nVersion: 2:2.36-9\nArchitecture: amd64\n"
    status += (
        "Maintainer: GNU <a@b>\nDescription: x\n more\n .\n\nPackage: gone\nStatus: deinstall ok config\n"
    )
    site = "a/usr/lib/python3/site-packages"
    return {
        "dpkg": packed(
            {
                **release,
                "a/var/lib/dpkg/status": status,
                "a/var/lib/dpkg/status.d/base": "Package: base\nVersion: 1\n",
                "a/usr/share/doc/libc6/copyright": "Format: x/copyright-format/1.0/\n\nLicense: MIT\n",
            }
        ),
        "apk": packed(
            {"a/lib/apk/db/installed": "C:Q1x=\nP:musl\nV:1.2.4-r2\nA:x86_64\nL:MIT\nm:A <b>\n\nP:x\nV:1\n"}
        ),
        "rpm": packed({"a/var/lib/rpm/rpmdb.sqlite": _rpm_database(header, header), **release}),
        "rpm-view": packed(
            {
                "a/var/lib/rpm/rpmdb.sqlite": _rpm_database(
                    table="CREATE VIEW Packages AS WITH RECURSIVE n(hnum) AS "
                    "(SELECT 1 UNION ALL SELECT hnum+1 FROM n) "
                    "SELECT hnum, zeroblob(9) AS blob FROM n"
                )
            }
        ),
        "rpm-others": packed({"a/var/lib/rpm/Packages": "x", "a/usr/lib/sysimage/rpm/Packages.db": "RpmP"}),
        "python": packed(
            {
                f"{site}/A_b-1.0.dist-info/METADATA": "Name: A_b\r\nVersion: 1\r\n"
                "License-Expression: MIT\r\n\r\nName: c",
                f"{site}/old.egg-info": "Name: old\nVersion: 0.1\nClassifier: License :: BSD\n",
                f"{site}/d.egg-info/PKG-INFO": "Name: d\nAuthor: \x1b[2J\nLicense: UNKNOWN\n",
            }
        ),
        "conda": packed({"a/opt/conda/conda-meta/libgcc.json": json.dumps(conda)}),
        "r": packed(
            {"a/usr/lib/R/library/x/DESCRIPTION": "Package: x\nVersion: 1\nLicense: GPL (>= 3)\nBuilt: R 4\n"}
        ),
        "layers": packed(
            {
                **release,
                "a/var/lib/dpkg/status": status,
                "b/var/lib/dpkg/.wh.status": "",
                "b/opt/.wh..wh..opq": "",
                "link b/etc/os-release": "../../../../etc/passwd",
                "link b/lib": "/usr/lib",
                "link b/opt/loop": "loop",
            }
        ),
        "odd": packed(
            {
                "fifo a/var/lib/dpkg/status": "",
                "hole a/lib/apk/db/installed": "20000000",
                "folder a/etc/os-release": "",
                "closed a/usr/lib/os-release": "ID=x\n",
                "link a/var/lib/rpm/rpmdb.sqlite": "/etc/passwd",
            }
        ),
    }


READERS: tuple[Reader, ...] = (
    Reader(
        name="sbom",
        read=read_software,
        seeds=software_seeds,
        words=(
            BETWEEN,
            BETWEEN + b"file a/",
            BETWEEN + b"link a/",
            BETWEEN + b"link b/",
            b"fifo ",
            b"hole ",
            b"closed ",
            b"a/var/lib/dpkg/status",
            b"a/lib/apk/db/installed",
            b"a/var/lib/rpm/rpmdb.sqlite",
            b".dist-info/METADATA",
            b"/conda-meta/x.json\n",
            b"/DESCRIPTION\n",
            b"\nPackage: ",
            b"\nStatus: ",
            b"\nBuilt: ",
            b"\nLicense: ",
            b"/proc/self/fd/0",
            b"\x1b]0;x\x07",
            b"\xe2\x80\xae",
            b"\n\n",
        ),
    ),
)
