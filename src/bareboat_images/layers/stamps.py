"""Modes and times of directories, kept until all entries are written."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from isal import isal_zlib

_MIB = 1 << 20


class Stamps:
    """Modes and times of directories: kept compressed, as a layer may have a million."""

    _RECORD = struct.Struct("<HHq")

    def __init__(self) -> None:
        self._open = bytearray()
        self._packed: list[bytes] = []

    def add(self, path: bytes, mode: int, mtime_ns: int) -> None:
        self._open += self._RECORD.pack(len(path), mode, mtime_ns)
        self._open += path
        if len(self._open) > _MIB:
            self._packed.append(isal_zlib.compress(self._open, 1))
            self._open = bytearray()

    def __iter__(self) -> Iterator[tuple[bytes, int, int]]:
        """Yield in order of addition: the last entry of a directory applies."""
        for data in (*map(isal_zlib.decompress, self._packed), bytes(self._open)):
            pos = 0
            while pos < len(data):
                length, mode, mtime_ns = self._RECORD.unpack_from(data, pos)
                pos += self._RECORD.size + length
                yield data[pos - length : pos], mode, mtime_ns
