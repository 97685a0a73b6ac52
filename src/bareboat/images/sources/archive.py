"""The members of a tar file that holds an image, read where they lie: nothing is ever unpacked by its name.

Formats: POSIX.1-2001 pax (https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html) and GNU tar
(https://www.gnu.org/software/tar/manual/html_node/Standard.html), of which an image archive needs little.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import posixpath
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import IO, Protocol, cast

from bareboat.errors import ImageError, StoreError

#: How much larger than itself a compressed file may become, once it is beyond the first 100 MB. gzip itself
#: cannot do more than 1032:1 (https://www.zlib.net/zlib_tech.html).
MAX_RATIO = 1000.0
_RATIO_FROM_BYTES = 100 * 10**6

_BLOCK = 512
_CHUNK = 1 << 20
_LONGEST_RECORD = 1 << 20
#: `docker save` of everything on a large machine has some ten thousand; a root file system has more.
_MOST_MEMBERS = 200_000
_MOST_LINKS = 16

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
_OTHER_PACKERS = {b"\xfd7zXZ\0": "xz", b"BZh": "bzip2"}


class Kind(Enum):
    """What a member is; SPARSE is a file whose bytes do not lie in one piece."""

    FILE = auto()
    FOLDER = auto()
    SYMBOLIC_LINK = auto()
    HARD_LINK = auto()
    SPARSE = auto()
    OTHER = auto()


_KINDS = {
    b"0": Kind.FILE, b"\0": Kind.FILE, b"7": Kind.FILE, b"1": Kind.HARD_LINK, b"2": Kind.SYMBOLIC_LINK,
    b"5": Kind.FOLDER, b"S": Kind.SPARSE,
}  # fmt: skip
#: Their size field counts no data, whatever it says.
_WITHOUT_DATA = b"123456"


@dataclass(frozen=True, slots=True)
class Member:
    """One entry: its data begins at `offset` in the (inflated) archive and has `size` bytes."""

    name: str
    kind: Kind
    offset: int
    size: int
    target: str = ""


class Section(io.RawIOBase):
    """A stretch of an open file as a file of its own; others may read the same file at the same time."""

    def __init__(self, descriptor: int, offset: int, size: int, *, name: str) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._at = offset
        self._end = offset + size
        self._begin = offset
        self._name = name

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at - self._begin

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")
        wanted = min(len(view), self._end - self._at)
        if wanted <= 0:
            return 0
        got = os.preadv(self._descriptor, [view[:wanted]], self._at)
        if got == 0:
            raise ImageError(
                f"{self._name} became shorter while it was read",
                remedy="wait until it is written, then again",
            )
        self._at += got
        return got


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...

    def skip(self, size: int, /) -> None: ...


class _Reader(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Inflated:
    """What a compressed file holds, from front to back. Raises ImageError when it is damaged, or swells
    beyond `max_ratio` times its own size."""

    def __init__(
        self, packed: io.RawIOBase | IO[bytes], magic: bytes, *, name: str, max_ratio: float
    ) -> None:
        self._packed = packed
        self._name = name
        self._max_ratio = max_ratio
        self._size = 0
        self._reader, self._errors = _reader(packed, magic, name)

    def read(self, size: int) -> bytes:
        """As many bytes as asked for, fewer only at the end."""
        parts = []
        left = size
        while left and (chunk := self._some(min(left, _CHUNK))):
            parts.append(chunk)
            left -= len(chunk)
        return b"".join(parts)

    def readinto(self, buffer: memoryview) -> int:
        chunk = self._some(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def skip(self, size: int) -> None:
        while size > 0 and (chunk := self._some(min(size, _CHUNK))):
            size -= len(chunk)

    def _some(self, size: int) -> bytes:
        try:
            chunk = self._reader.read(size)
        except self._errors as error:
            raise ImageError(
                f"{self._name} is damaged: its compressed data cannot be read on after {self._size:,} bytes",
                context=str(error),
                remedy="copy or make the file again; it may have been cut off",
            ) from None
        self._size += len(chunk)
        if self._size > _RATIO_FROM_BYTES and self._size > self._max_ratio * self._packed.tell():
            raise ImageError(
                f"{self._name} becomes more than {self._max_ratio:.0f} times as large when it is inflated; "
                "that is a decompression bomb, or very unusual",
                remedy=f"if you trust it: --max-ratio {10 * self._max_ratio:.0f}",
            )
        return chunk


def _reader(
    packed: io.RawIOBase | IO[bytes], magic: bytes, name: str
) -> tuple[_Reader, tuple[type[Exception], ...]]:
    """The library's reader for this kind of compression, and the errors that it raises."""
    if magic.startswith(GZIP):
        # Imported here, as below: most pulls need neither.
        from isal import igzip, isal_zlib

        damaged = cast(tuple[type[Exception], ...], (EOFError, gzip.BadGzipFile, isal_zlib.error, zlib.error))
        return igzip.IGzipFile(fileobj=packed, mode="rb"), damaged  # type: ignore[no-untyped-call]
    if magic.startswith(ZSTD):
        import zstandard

        return _Zstandard(packed), (EOFError, zstandard.ZstdError)
    for other, program in _OTHER_PACKERS.items():
        if magic.startswith(other):
            raise ImageError(
                f"{name} is compressed by {program}, which image archives are not",
                remedy=f"unpack it first: {program} -d FILE",
            )
    raise ImageError(f"{name} is not a tar file", context=f"it begins with {magic[:8].hex(' ')}")


class _Zstandard:
    """The frames of a zstd file. The library's stream_reader takes a file that was cut off for a whole one
    (seen with 0.25); its decompressobj knows whether a frame has ended.
    https://python-zstandard.readthedocs.io/en/latest/decompressor.html"""

    #: A block of 128 KiB may come from 4 bytes: no more than 64 MiB comes of this much input.
    _INPUT_BYTES = 2048

    def __init__(self, packed: io.RawIOBase | IO[bytes]) -> None:
        import zstandard

        self._packed = packed
        # It takes windows of up to 128 MiB, as `zstd --long` makes them.
        self._new_frame = zstandard.ZstdDecompressor().decompressobj
        self._frame = self._new_frame()
        self._begun = False
        self._ready = memoryview(b"")

    def read(self, size: int) -> bytes:
        while not self._ready:
            chunk = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = self._new_frame()
                self._begun = False
            chunk = chunk or self._packed.read(self._INPUT_BYTES) or b""
            if not chunk:
                if self._begun:
                    raise EOFError("the file ends in the middle of a zstd frame")
                return b""
            self._begun = True
            self._ready = memoryview(self._frame.decompress(chunk))
        taken = self._ready[:size]
        self._ready = self._ready[size:]
        return bytes(taken)


def is_compressed(magic: bytes) -> bool:
    """Whether a file that begins so is compressed by something that a tar may be compressed by."""
    return magic.startswith((GZIP, ZSTD, *_OTHER_PACKERS))


def open_regular(path: str | os.PathLike[str], *, name: str) -> IO[bytes]:
    """Open a file for reading. Raises ImageError when it is not there, or is not a file: a fifo would block
    for ever, /dev/zero never end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ImageError(f"{name} is not there", context=str(path), remedy="check the path") from None
    except OSError as error:
        raise ImageError(f"{name} cannot be read: {error.strerror}", context=str(path)) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ImageError(f"{name} is not a file", context=str(path), remedy="check the path")
    return open(descriptor, "rb", buffering=0)


class Archive:
    """An open tar file and the index of its members. A compressed one is inflated once, into a file in
    `scratch` (else in the folder for temporary files) that has no name and so cannot be left over."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str,
        scratch: Path | None = None,
        max_ratio: float = MAX_RATIO,
        keep: Callable[[str], bool] | None = None,
    ) -> None:
        """Index the archive; with `keep`, only the members that it names. Raises ImageError."""
        self.name = name
        self.max_ratio = max_ratio
        self._file = open_regular(path, name=name)
        magic = os.pread(self._file.fileno(), 8, 0)
        if is_compressed(magic):
            self._file = _spool(self._file, magic, scratch, name=name, max_ratio=max_ratio)
        self.size_bytes = os.fstat(self._file.fileno()).st_size
        self.members: dict[str, Member] = {}
        #: Files that are there more than once: fatal for a document whose digest nobody has written down.
        self.repeated: set[str] = set()
        for member in walk(_Positioned(self._file.fileno()), name=name):
            if member.offset + member.size > self.size_bytes:
                raise ImageError(
                    f"{name} ends in the middle of its entry {_shown(member.name)}",
                    context=f"{self.size_bytes:,} of at least {member.offset + member.size:,} bytes",
                    remedy="copy or make the file again; it was cut off",
                )
            if keep is not None and not keep(member.name):
                continue
            self._add(member)

    def find(self, path: str) -> Member | None:
        """The file of that name, through links between members; None when there is none.

        Raises ImageError for a link that leads outside or nowhere.
        """
        first = name = _normal(path, self.name)
        for _ in range(_MOST_LINKS):
            member = self.members.get(name)
            if member is None and name == first:
                return None
            if member is None:
                raise ImageError(f"{self.name}: the entry {_shown(first)} is a link to {_shown(name)}, "
                                 "which is not in the archive")  # fmt: skip
            match member.kind:
                case Kind.FILE:
                    return member
                case Kind.SYMBOLIC_LINK:
                    name = _normal(posixpath.join(posixpath.dirname(name), member.target), self.name)
                case Kind.HARD_LINK:
                    name = _normal(member.target, self.name)
                case _:
                    raise ImageError(f"{self.name}: the entry {_shown(name)} is not a plain file")
        raise ImageError(f"{self.name}: the entry {_shown(first)} is a link that leads in a circle")

    def read(self, member: Member, *, largest: int) -> bytes:
        """The bytes of a small member. Raises ImageError when it is larger than `largest`."""
        if member.size > largest:
            raise ImageError(f"{self.name}: the entry {_shown(member.name)} has {member.size:,} bytes, "
                             f"more than the {largest:,} that such a document may have")  # fmt: skip
        data = os.pread(self._file.fileno(), member.size, member.offset)
        if len(data) < member.size:
            raise ImageError(f"{self.name} became shorter while it was read")
        return data

    def section(self, member: Member, offset: int = 0) -> Section:
        """The bytes of a member, from an offset on."""
        left = max(member.size - offset, 0)
        return Section(self._file.fileno(), member.offset + offset, left, name=self.name)

    def whole(self) -> Section:
        """The tar itself, inflated."""
        return Section(self._file.fileno(), 0, self.size_bytes, name=self.name)

    def _add(self, member: Member) -> None:
        name = _normal(member.name, self.name)
        if member.kind is not Kind.FOLDER:
            if name in self.members:
                self.repeated.add(name)
            self.members[name] = member
        if len(self.members) > _MOST_MEMBERS:
            raise ImageError(
                f"{self.name} has more than {_MOST_MEMBERS:,} entries; it is no archive of an image",
                remedy="if it is a root file system: rootfs:FILE",
            )


def first_names(path: str | os.PathLike[str], magic: bytes, *, name: str, most_bytes: int) -> Iterator[str]:
    """The names in a tar file, compressed or not, in their order; of a compressed one, only those that lie
    in the first `most_bytes`."""
    with open_regular(path, name=name) as stream:
        if not is_compressed(magic):
            yield from (member.name for member in walk(_Positioned(stream.fileno()), name=name))
            return
        inflated = Inflated(stream, magic, name=name, max_ratio=MAX_RATIO)
        for member in walk(inflated, name=name):
            yield member.name
            if member.offset + member.size > most_bytes:
                return


_BEYOND = 2**62


class _Positioned:
    """An open file, read from where it was last left; what is skipped costs nothing."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._at = 0

    def read(self, size: int) -> bytes:
        data = os.pread(self._descriptor, size, self._at)
        self._at += len(data)
        return data

    def skip(self, size: int) -> None:
        self._at = min(self._at + size, _BEYOND)  # where no file has anything; the kernel takes no more


def walk(stream: _Stream, *, name: str) -> Iterator[Member]:
    """Every entry of a tar. Raises ImageError, naming the byte, for what is no tar."""
    at = 0
    count = 0
    long_name = long_link = b""
    records: dict[bytes, bytes] = {}
    while True:
        header = stream.read(_BLOCK)
        if not header.strip(b"\0"):
            if not count and not header:
                raise ImageError(f"{name} is empty", remedy="copy or make the file again")
            return
        if len(header) < _BLOCK or not _is_header(header):
            raise ImageError(
                f"{name} is not a tar file" if not count else f"{name} is damaged at byte {at:,}",
                context="there is no tar header where one must be",
                remedy="copy or make the file again",
            )
        count += 1
        at += _BLOCK
        flag = header[156:157]
        size = _number(header[124:136], name, at)
        if flag in (b"L", b"K", b"x", b"g"):
            if size > _LONGEST_RECORD:
                raise ImageError(f"{name}: the entry at byte {at:,} has a name of {size:,} bytes")
            data = stream.read(size + -size % _BLOCK)
            at += len(data)
            if len(data) < size:
                raise ImageError(f"{name} ends in the middle of a header", remedy="copy or make it again")
            match flag:
                case b"L":
                    long_name = data[:size].rstrip(b"\0")
                case b"K":
                    long_link = data[:size].rstrip(b"\0")
                case b"x":
                    records = _records(data[:size], name, at)
            continue
        kind = _KINDS.get(flag, Kind.OTHER)
        raw = records.get(b"path") or long_name or _name(header)
        link = records.get(b"linkpath") or long_link or header[157:257].partition(b"\0")[0]
        if b"size" in records:
            size = _decimal(records[b"size"], name, at)
        if any(key.startswith(b"GNU.sparse.") for key in records):
            kind = Kind.SPARSE
        if flag == b"S":
            more = header[482]
            while more:
                block = stream.read(_BLOCK)
                at += len(block)
                more = block[504] if len(block) == _BLOCK else 0
        if flag in _WITHOUT_DATA:
            size = 0
        if kind is Kind.FILE and raw.endswith(b"/"):  # how tars of before 1988 say "folder"
            kind = Kind.FOLDER
        yield Member(os.fsdecode(raw), kind, at, size, os.fsdecode(link))
        skipped = size + -size % _BLOCK
        stream.skip(skipped)
        at += skipped
        long_name = long_link = b""
        records = {}


def _is_header(header: bytes) -> bool:
    field = header[148:156].split(b"\0")[0].strip()
    try:
        claimed = int(field, 8) if field else -1
    except ValueError:
        return False
    blanked = header[:148] + b" " * 8 + header[156:]
    # Some old tars summed signed characters.
    signed = sum(byte - 256 if byte > 127 else byte for byte in blanked) if max(blanked) > 127 else None
    return claimed in (sum(blanked), signed)


def _number(field: bytes, name: str, at: int) -> int:
    """A size: octal digits, or GNU's base 256 for the large ones."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    try:
        size = int(field.split(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        size = -1
    if size < 0:
        raise ImageError(f"{name} is damaged at byte {at:,}: the size of an entry cannot be read")
    return size


def _decimal(value: bytes, name: str, at: int) -> int:
    if not value.isdigit() or len(value) > 18:
        raise ImageError(f"{name} is damaged at byte {at:,}: the size of an entry cannot be read")
    return int(value)


def _records(data: bytes, name: str, at: int) -> dict[bytes, bytes]:
    """The records of a pax header: `LENGTH KEY=VALUE\\n`, where LENGTH counts itself."""
    found = {}
    position = 0
    while position < len(data) and data[position : position + 1] != b"\0":
        digits, blank, _ = data[position : position + 20].partition(b" ")
        length = int(digits) if blank and digits.isdigit() else 0
        record = data[position + len(digits) + 1 : position + length - 1]
        key, equals, value = record.partition(b"=")
        if length <= len(digits) + 2 or position + length > len(data) or not equals:
            raise ImageError(f"{name} is damaged at byte {at:,}: a header's records cannot be read")
        found[key] = value
        position += length
    return found


def _name(header: bytes) -> bytes:
    name = header[:100].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0]
    # Where POSIX has a prefix, GNU ("ustar  ") has times.
    return prefix + b"/" + name if prefix and header[257:263] == b"ustar\0" else name


def _normal(path: str, name: str) -> str:
    """The path without what changes nothing. Raises ImageError when it leads out of the archive."""
    normal = posixpath.normpath(path)
    if path.startswith("/") or normal == ".." or normal.startswith("../") or "\0" in path:
        raise ImageError(
            f"{name}: the entry {_shown(path)} lies outside of the archive",
            remedy="no tool writes such an archive; do not trust it",
        )
    return normal


def _shown(name: str) -> str:
    text = os.fsencode(name).decode(errors="backslashreplace").encode("unicode_escape").decode()
    return repr(text if len(text) <= 200 else text[:200] + "…")


def _spool(
    packed: IO[bytes], magic: bytes, scratch: Path | None, *, name: str, max_ratio: float
) -> IO[bytes]:
    """The inflated archive, in a file without a name."""
    inflated = Inflated(packed, magic, name=name, max_ratio=max_ratio)
    try:
        spooled = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115  (it is what the caller asks for)
        while chunk := inflated.read(_CHUNK):
            spooled.write(chunk)
        spooled.flush()
    except OSError as error:
        if scratch is not None:
            raise  # the store that it is part of explains it
        raise StoreError(
            f"{name} cannot be inflated into {tempfile.gettempdir()}: {error.strerror}",
            remedy="name a folder with more room: TMPDIR=DIR",
        ) from None
    finally:
        with contextlib.suppress(OSError):
            packed.close()
    return spooled
