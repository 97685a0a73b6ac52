"""Parses metadata of Python distributions and conda packages.

Sources: https://packaging.python.org/en/latest/specifications/core-metadata/, and
https://docs.conda.io/projects/conda-build/en/stable/resources/package-spec.html
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from bareboat_base import codec
from bareboat_base.expressions import expression
from bareboat_images.sbom.package import Package, plain

_FIELD = expression(r"^(Name|Version):[ \t]*([^\n]*)", re.MULTILINE)
_MD5, _SHA256 = expression(r"[0-9a-f]{32}"), expression(r"[0-9a-f]{64}")


def distribution(text: str, path: str) -> Package | None:
    """Parse METADATA or PKG-INFO; None for a file without a name."""
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


def conda(data: bytes, path: str) -> Package | None:
    """Parse a file of conda-meta; None for a file without a name. Raises ValueError for a damaged one."""
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
