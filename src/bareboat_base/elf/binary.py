"""The facts in an ELF file, with every offset checked, since the file may be hostile.

Source: the System V ABI (https://gabi.xinuos.com/) and, for the hash table that finds a symbol without
reading all of them, https://sourceware.org/gnu-gabi/.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from bareboat_base import architectures
from bareboat_base.expressions import expression
from bareboat_base.versions import numbers

if TYPE_CHECKING:
    import mmap

_LOAD, _DYNAMIC, _INTERPRETER = 1, 2, 3
_NEEDED, _STRTAB, _SYMTAB, _STRSZ, _SONAME, _GNU_HASH = 1, 5, 6, 10, 14, 0x6FFFFEF5
#: The versions of symbols:
#: https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/symversion.html
_VERDEF, _VERDEF_COUNT, _VERNEED, _VERNEED_COUNT = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_RPATH, _RUNPATH = 15, 29

#: No real file has more program headers, dynamic entries or sections than these.
_MOST_SEGMENTS, _MOST_TAGS, _MOST_SECTIONS, _MOST_VERSIONS = 256, 4096, 4096, 4096
#: The number of first bytes searched for strings in a file without a section table.
_MOST_SEARCHED = 64 * 2**20


_GLIBC = expression(r"GLIBC_(\d+(?:\.\d+)+)")


class SearchPath(NamedTuple):
    """Where a file has its libraries searched: before LD_LIBRARY_PATH (DT_RPATH), or after it (DT_RUNPATH,
    with which a DT_RPATH is ignored)."""

    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


class Binary:
    """An ELF file. Nothing here raises for bad content."""

    def __init__(self, data: mmap.mmap | bytes) -> None:
        self._data = data
        head = data[:64]
        self.is_elf = len(head) == 64 and head[:4] == b"\x7fELF" and head[5] in (1, 2)
        self._order = "<" if self.is_elf and head[5] == 1 else ">"
        self._is_64 = self.is_elf and head[4] == 2
        self._segments = self._read_segments()
        self._tags = self._read_tags()

    @property
    def machine(self) -> str | None:
        """The machine as printed by `uname -m`."""
        found = architectures.of_elf(self._data[: architectures.ELF_BYTES])
        return found.name if found is not None else None

    @property
    def interpreter(self) -> str | None:
        """The program loader that the file requires."""
        for segment in self._segments:
            if segment.kind == _INTERPRETER:
                return os.fsdecode(
                    self._data[segment.offset : segment.offset + min(segment.size, 4096)].rstrip(b"\0")
                )
        return None

    @property
    def needed(self) -> tuple[str, ...]:
        """The sonames of the libraries that the loader must find."""
        return tuple(os.fsdecode(self._string(value)) for tag, value in self._tags if tag == _NEEDED)

    @property
    def search_path(self) -> SearchPath:
        """The file's own search path, with $ORIGIN unexpanded."""
        runpath = self._folders(_RUNPATH)
        return SearchPath((), runpath) if runpath else SearchPath(self._folders(_RPATH), ())

    def _folders(self, wanted: int) -> tuple[str, ...]:
        found = (os.fsdecode(self._string(value)) for tag, value in self._tags if tag == wanted)
        return tuple(folder for paths in found for folder in paths.split(":") if folder)

    @property
    def soname(self) -> str | None:
        """The library's own name."""
        at = self._tag(_SONAME)
        return os.fsdecode(self._string(at)) if at else None

    @property
    def asks(self) -> dict[str, tuple[str, ...]]:
        """Library -> the versions of its symbols that the file requires."""
        return {
            os.fsdecode(self._string(self.number("I", at + 4))): tuple(
                os.fsdecode(self._string(self.number("I", aux + 8)))
                for aux in self._chain(at + self.number("I", at + 8), self.number("H", at + 2), 12)
            )
            for at in self._chain(self._offset(self._tag(_VERNEED)), self._tag(_VERNEED_COUNT), 12)
        }

    @property
    def gives(self) -> tuple[str, ...]:
        """The versions of symbols that the file defines."""
        defined = self._chain(self._offset(self._tag(_VERDEF)), self._tag(_VERDEF_COUNT), 16)
        names = (self.number("I", at + self.number("I", at + 12)) for at in defined)
        return tuple(os.fsdecode(self._string(name)) for name in names)

    @property
    def glibc(self) -> str | None:
        """The newest glibc whose symbols the file requires."""
        told = (_GLIBC.fullmatch(name) for names in self.asks.values() for name in names)
        return max((each[1] for each in told if each is not None), key=numbers, default=None)

    def names(self, name: str) -> bool:
        """Whether a symbol or library of this name is in the table of dynamic strings."""
        start, end = self._strings()
        return self._data.find(b"\0" + name.encode() + b"\0", start, end) >= 0

    def text(self, symbol: str) -> str | None:
        """The string that an exported variable holds, such as `ompi_version_string`."""
        address = self._address(symbol.encode())
        offset = self._offset(address) if address else None
        if offset is None:
            return None
        end = self._data.find(b"\0", offset, offset + 256)
        found = self._data[offset:end] if end > offset else b""
        return found.decode("ascii") if found.isascii() and found else None

    def search(self, pattern: bytes, *, group: int = 1) -> str | None:
        """The first match of a regular expression among the file's constants."""
        start, end = self._constants()
        found = re.compile(pattern).search(self._data, start, end)
        return found[group].decode("ascii", "replace") if found else None

    def holds(self, text: bytes) -> bool:
        """Whether the bytes occur among the file's constants."""
        start, end = self._constants()
        return self._data.find(text, start, end) >= 0

    # -- the tables --------------------------------------------------------------------------------

    def number(self, kind: str, offset: int) -> int:
        """One number of the file; 0 beyond its end."""
        size = struct.calcsize("=" + kind)
        if offset < 0 or offset + size > len(self._data):
            return 0
        return int(struct.unpack_from(self._order + kind, self._data, offset)[0])

    def _read_segments(self) -> tuple[_Segment, ...]:
        if self._is_64:
            table, size, count = self.number("Q", 32), self.number("H", 54), self.number("H", 56)
            word, offset, address, length, least = "Q", 8, 16, 32, 56
        else:
            table, size, count = self.number("I", 28), self.number("H", 42), self.number("H", 44)
            word, offset, address, length, least = "I", 4, 8, 16, 32
        if size < least or not self.is_elf:
            return ()
        return tuple(
            _Segment(
                kind=self.number("I", at),
                offset=self.number(word, at + offset),
                address=self.number(word, at + address),
                size=self.number(word, at + length),
            )
            for at in range(table, table + size * min(count, _MOST_SEGMENTS), size)
        )

    def _read_tags(self) -> tuple[tuple[int, int], ...]:
        word, size = ("Q", 8) if self._is_64 else ("I", 4)
        for segment in self._segments:
            if segment.kind == _DYNAMIC:
                tags = []
                end = segment.offset + min(segment.size, 2 * size * _MOST_TAGS)
                for at in range(segment.offset, end, 2 * size):
                    tag, value = self.number(word, at), self.number(word, at + size)
                    if tag == 0:
                        break
                    tags.append((tag, value))
                return tuple(tags)
        return ()

    def _tag(self, wanted: int) -> int:
        return next((value for tag, value in self._tags if tag == wanted), 0)

    def _offset(self, address: int) -> int | None:
        """The file offset of the bytes that are loaded at an address."""
        for segment in self._segments:
            if segment.kind == _LOAD and segment.address <= address < segment.address + segment.size:
                offset = segment.offset + address - segment.address
                return offset if offset < len(self._data) else None
        return None

    def _chain(self, at: int | None, count: int, step: int) -> Iterator[int]:
        """The offsets of the records of a linked table; each has the distance to the next at `step`."""
        for _ in range(min(count, _MOST_VERSIONS)):
            if at is None:
                return
            yield at
            if not (further := self.number("I", at + step)):
                return
            at += further

    def _strings(self) -> tuple[int, int]:
        start = self._offset(self._tag(_STRTAB))
        if start is None:
            return 0, 0
        return start, min(start + self._tag(_STRSZ), len(self._data))

    def _string(self, index: int) -> bytes:
        start, end = self._strings()
        if not 0 <= index < end - start:
            return b""
        stop = self._data.find(b"\0", start + index, min(end, start + index + 4096))
        return self._data[start + index : stop] if stop >= 0 else b""

    def _address(self, name: bytes) -> int:
        """The value of an exported symbol, from the GNU hash table; 0 when missing."""
        table, symbols = self._offset(self._tag(_GNU_HASH)), self._offset(self._tag(_SYMTAB))
        if table is None or symbols is None or not self._is_64:
            return 0
        buckets, first, blooms = (self.number("I", table + at) for at in (0, 4, 8))
        if buckets == 0:
            return 0
        hashed = 5381
        for byte in name:
            hashed = (hashed * 33 + byte) & 0xFFFFFFFF
        start = table + 16 + 8 * blooms
        index = self.number("I", start + 4 * (hashed % buckets))
        if index < first:
            return 0
        chains = start + 4 * buckets
        for at in range(index, index + 4096):
            chained = self.number("I", chains + 4 * (at - first))
            entry = symbols + 24 * at
            if chained | 1 == hashed | 1 and self._string(self.number("I", entry)) == name:
                return self.number("Q", entry + 8)
            if chained & 1:
                break
        return 0

    def _constants(self) -> tuple[int, int]:
        """The section of read-only data; without a section table the beginning of the file."""
        if self._is_64 and self.number("Q", 40):
            start, length = self.section(b".rodata")
            if length:
                return start, start + length
        return 0, min(len(self._data), _MOST_SEARCHED)

    def section(self, wanted: bytes) -> tuple[int, int]:
        """Where a section lies in the file, and its length; no length where there is none."""
        table, size = self.number("Q", 40), self.number("H", 58)
        count, names = self.number("H", 60), self.number("H", 62)
        if not self._is_64 or not table or size < 64:
            return 0, 0
        names_at = self.number("Q", table + size * names + 24)
        for at in range(table, table + size * min(count, _MOST_SECTIONS), size):
            name = names_at + self.number("I", at)
            if self._data[name : name + len(wanted) + 1] == wanted + b"\0":
                start, length = self.number("Q", at + 24), self.number("Q", at + 32)
                if start + length <= len(self._data):
                    return start, length
        return 0, 0


@contextlib.contextmanager
def read(descriptor: int | None) -> Iterator[Binary | None]:
    """The open ELF file; None for other files."""
    if descriptor is None or os.fstat(descriptor).st_size < 64:
        yield None
        return
    import mmap

    try:
        data = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        yield None
        return
    with contextlib.closing(data):
        binary = Binary(data)
        yield binary if binary.is_elf else None


@contextlib.contextmanager
def opened(path: str) -> Iterator[Binary]:
    """The file at a path that is not a link; empty for other or unreadable files."""
    with contextlib.ExitStack() as stack:
        found = None
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            found = stack.enter_context(read(descriptor))
        yield found or Binary(b"")
