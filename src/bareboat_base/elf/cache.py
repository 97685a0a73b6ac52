"""/etc/ld.so.cache, as the dynamic loader reads it: library names and their files.

Only glibc's own format is read, alone (since 2.32) or after the old one, which ldconfig wrote first until
then. Source: sysdeps/generic/dl-cache.h, https://sourceware.org/git/?p=glibc.git
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from bareboat_base import architectures

_OLD, _NEW = b"ld.so-1.7.0\0", b"glibc-ld.so.cache1.1"
_OLD_ENTRY_BYTES = 12
#: Magic, count, bytes of strings, byte order, 3 of padding, offset of extensions, 3 unused.
_HEADER = struct.Struct("=20sIIB3xI12x")
#: Flags, name, path, an unused one, capabilities of the processor.
_ENTRY = struct.Struct("=iIIIQ")


class Entry(NamedTuple):
    """A line of `ldconfig -p`."""

    name: str
    path: str


def parse(data: bytes, machine: str) -> tuple[Entry, ...]:
    """The entries for programs of this machine, in the cache's order, without those for special processors.

    Raises ValueError for data that cannot be parsed.
    """
    start = 0
    if data.startswith(_OLD):
        (count,) = struct.unpack_from("=I", data, len(_OLD))
        start = len(_OLD) + 4 + count * _OLD_ENTRY_BYTES
        start += -start % 8
    if len(data) < start + _HEADER.size:
        raise ValueError(f"it ends before its header of {_HEADER.size} bytes")
    magic, count, _, _, _ = _HEADER.unpack_from(data, start)
    if magic != _NEW:
        raise ValueError(f"it starts with {data[start : start + 20]!r}, not with {_NEW!r}")
    own = architectures.find(machine)
    kind = own.ldcache if own is not None else 0
    found = []
    for number in range(count):
        at = start + _HEADER.size + number * _ENTRY.size
        if at + _ENTRY.size > len(data):
            raise ValueError(f"it names {count} libraries and ends in number {number}")
        flags, name, path, _, capabilities = _ENTRY.unpack_from(data, at)
        if (not kind or flags == kind) and not capabilities:
            found.append(Entry(_string(data, start + name), _string(data, start + path)))
    return tuple(found)


def _string(data: bytes, start: int) -> str:
    end = data.find(b"\0", start)
    if end < 0:
        raise ValueError(f"the string at {start} is not terminated")
    return os.fsdecode(data[start:end])
