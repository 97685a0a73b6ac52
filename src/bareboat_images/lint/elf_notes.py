"""The x86-64 level that an ELF file requires by its notes.

Source: the x86-64 psABI, "Program Property" (GNU_PROPERTY_X86_ISA_1_NEEDED).
"""

from __future__ import annotations

import os
import struct

_NOTE = 4
_PROPERTIES = 5
_ISA_NEEDED = 0xC0008002
_MOST_HEADERS, _MOST_NOTES, _LARGEST_NOTES = 256, 64, 1 << 16


def level(descriptor: int) -> int:
    """The level, from 1, that an open file requires; 0 if it states none. Nothing is raised for bad content;
    only 64-bit little-endian files are read."""
    try:
        return _read(descriptor)
    except (OSError, struct.error):
        return 0


def _read(descriptor: int) -> int:
    head = os.pread(descriptor, 64, 0)
    if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
        return 0
    table, size, count = *struct.unpack_from("<Q", head, 32), *struct.unpack_from("<HH", head, 54)
    if size < 56:
        return 0
    data = os.pread(descriptor, size * min(count, _MOST_HEADERS), table)
    found = 0
    for at in range(0, len(data) - size + 1, size):
        if struct.unpack_from("<I", data, at)[0] != _NOTE:
            continue
        offset = struct.unpack_from("<Q", data, at + 8)[0]
        length = min(struct.unpack_from("<Q", data, at + 32)[0], _LARGEST_NOTES)
        align = 8 if struct.unpack_from("<Q", data, at + 48)[0] == 8 else 4
        if offset > 1 << 40:
            continue
        found = max(found, _notes(os.pread(descriptor, length, offset), align))
    return found


def _notes(data: bytes, align: int) -> int:
    at = found = 0
    for _ in range(_MOST_NOTES):
        if at + 12 > len(data):
            break
        name_size, size, kind = struct.unpack_from("<III", data, at)
        begin = at + 12 + -(-name_size // 4) * 4
        content = data[begin : begin + size]
        is_gnu = data[at + 12 : at + 16] == b"GNU\0" and len(content) == size
        if is_gnu and kind == _PROPERTIES:
            found = max(found, _level(content))
        at = begin + -(-size // align) * align
    return found


def _level(content: bytes) -> int:
    at = 0
    while at + 8 <= len(content):
        kind, size = struct.unpack_from("<II", content, at)
        if kind == _ISA_NEEDED and size == 4 and at + 12 <= len(content):
            return min(int(struct.unpack_from("<I", content, at + 8)[0]).bit_length(), 4)
        at += 8 + -(-size // 8) * 8
    return 0
