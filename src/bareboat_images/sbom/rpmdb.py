"""Reads rpm's database, if it is SQLite: in Fedora 33, RHEL 9 and later.

Source: https://rpm-software-management.github.io/rpm/manual/hregions.html, format of a header
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator

from bareboat_images.sbom.package import Package, plain

_NAME, _VERSION, _RELEASE, _EPOCH, _ARCH = 1000, 1001, 1002, 1003, 1022
_INT32, _STRING, _I18N = 4, 6, 9
_LARGEST_HEADER = 64 << 20
_MOST_ENTRIES = 1 << 16
_MOST_PACKAGES = 100_000
#: Of SQLite's virtual machine; a real database of 5,000 packages takes some 100,000 steps.
_STEPS = 1000
_MOST_CALLS = 100_000


def packages(descriptor: int, path: str, *, distribution: str, version: str) -> Iterator[Package]:
    """The packages in an open database. Raises ValueError for a damaged one."""
    for header in _headers(descriptor):
        yield _package(header, path, distribution, version)


def _headers(descriptor: int) -> Iterator[bytes]:
    calls = 0

    def count() -> int:
        nonlocal calls
        calls += 1
        return calls > _MOST_CALLS

    try:
        # By the descriptor, so that it is the file that was checked; immutable, so that nothing is written.
        base = sqlite3.connect(f"file:/proc/self/fd/{descriptor}?mode=ro&immutable=1", uri=True)
        try:
            base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_HEADER)
            base.set_progress_handler(count, _STEPS)
            base.execute("PRAGMA trusted_schema=OFF")
            base.execute("PRAGMA cell_size_check=ON")
            kind = base.execute("SELECT type FROM sqlite_master WHERE name='Packages'").fetchone()
            if kind != ("table",):
                raise ValueError("it has no table of packages")
            rows = base.execute("SELECT blob FROM Packages ORDER BY hnum LIMIT ?", (_MOST_PACKAGES,))
            for (header,) in rows:
                if isinstance(header, bytes):
                    yield header
        finally:
            base.close()
    except (sqlite3.Error, MemoryError, OverflowError) as error:
        raise ValueError(str(error)) from None


def _package(header: bytes, path: str, distribution: str, version: str) -> Package:
    found = _fields(header)
    release = plain(found.get(_RELEASE))
    return Package(
        kind="rpm",
        namespace=distribution,
        name=plain(found.get(_NAME)) or "unknown",
        version=plain(found.get(_VERSION)) + (f"-{release}" if release else ""),
        path=path,
        qualifiers=(
            ("arch", plain(found.get(_ARCH))),
            ("epoch", plain(found.get(_EPOCH))),
            ("distro", f"{distribution}-{version}" if version else distribution),
        ),
    )


def _fields(header: bytes) -> dict[int, str]:
    """The strings and first integers in a header. Raises ValueError."""
    try:
        entries, size = struct.unpack_from(">II", header)
        if entries > _MOST_ENTRIES or 8 + entries * 16 + size > len(header):
            raise ValueError("a header of a package is cut off")
        data = memoryview(header)[8 + entries * 16 : 8 + entries * 16 + size]
        found = {}
        for number in range(entries):
            tag, kind, offset, _ = struct.unpack_from(">IIII", header, 8 + number * 16)
            if tag not in (_NAME, _VERSION, _RELEASE, _EPOCH, _ARCH):
                continue
            if kind in (_STRING, _I18N) and offset < len(data):
                text = bytes(data[offset : offset + 4096]).partition(b"\0")[0]
                found[tag] = text.decode("utf-8", "replace")
            elif kind == _INT32:
                found[tag] = str(struct.unpack_from(">I", data, offset)[0])
    except struct.error as error:
        raise ValueError(f"a header of a package is damaged: {error}") from None
    return found
