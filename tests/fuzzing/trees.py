"""Trees that strangers fill, made from an input; and the readers of what an image's package managers left.

An input is several files: `KIND PATH`, a line feed, the content; between them `BETWEEN`. KIND is `file`,
`link` (the content is its target), `folder`, `fifo`, `hole` (the content is its size) or `closed` (mode 000).
"""

import contextlib
import json
import os
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


READERS: tuple[Reader, ...] = (
    Reader(
        name="sbom",
        read=read_software,
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
