"""The machine that an ELF file requires by its notes: x86-64 levels, and the oldest kernel.

Sources: the x86-64 psABI, "Program Property" (GNU_PROPERTY_X86_ISA_1_NEEDED), and the LSB's ABI tag
(https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/noteabitag.html).
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

_NOTE = 4
_ABI_TAG, _PROPERTIES = 1, 5
_ISA_NEEDED = 0xC0008002
_MOST_HEADERS, _MOST_NOTES, _LARGEST_NOTES = 256, 64, 1 << 16


class Needs(NamedTuple):
    """`level`: of x86-64, from 1; 0 when the file states none. `kernel`: "" when it states none."""

    level: int = 0
    kernel: str = ""


def read(descriptor: int) -> Needs:
    """The needs of an open file. Nothing is raised for bad content; only 64-bit little-endian files are
    read."""
    try:
        return _read(descriptor)
    except (OSError, struct.error):
        return Needs()


def _read(descriptor: int) -> Needs:
    head = os.pread(descriptor, 64, 0)
    if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
        return Needs()
    table, size, count = *struct.unpack_from("<Q", head, 32), *struct.unpack_from("<HH", head, 54)
    if size < 56:
        return Needs()
    data = os.pread(descriptor, size * min(count, _MOST_HEADERS), table)
    level, kernel = 0, ""
    for at in range(0, len(data) - size + 1, size):
        if struct.unpack_from("<I", data, at)[0] != _NOTE:
            continue
        offset = struct.unpack_from("<Q", data, at + 8)[0]
        length = min(struct.unpack_from("<Q", data, at + 32)[0], _LARGEST_NOTES)
        align = 8 if struct.unpack_from("<Q", data, at + 48)[0] == 8 else 4
        if offset > 1 << 40:
            continue
        found = _notes(os.pread(descriptor, length, offset), align)
        level, kernel = max(level, found.level), kernel or found.kernel
    return Needs(level, kernel)


def _notes(data: bytes, align: int) -> Needs:
    at, level, kernel = 0, 0, ""
    for _ in range(_MOST_NOTES):
        if at + 12 > len(data):
            break
        name_size, size, kind = struct.unpack_from("<III", data, at)
        begin = at + 12 + -(-name_size // 4) * 4
        content = data[begin : begin + size]
        if data[at + 12 : at + 16] == b"GNU\0" and len(content) == size:
            if kind == _ABI_TAG and size >= 16 and content[:4] == bytes(4):
                kernel = ".".join(map(str, struct.unpack_from("<III", content, 4)))
            elif kind == _PROPERTIES:
                level = max(level, _level(content))
        at = begin + -(-size // align) * align
    return Needs(level, kernel)


def _level(content: bytes) -> int:
    at = 0
    while at + 8 <= len(content):
        kind, size = struct.unpack_from("<II", content, at)
        if kind == _ISA_NEEDED and size == 4 and at + 12 <= len(content):
            return min(int(struct.unpack_from("<I", content, at + 8)[0]).bit_length(), 4)
        at += 8 + -(-size // 8) * 8
    return 0
