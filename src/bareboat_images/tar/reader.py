"""Reads a tar once, front to back: of a layer, or of a whole image.

Formats: V7, POSIX.1-1988 ustar, POSIX.1-2001 pax, and GNU's long names, base-256 numbers and sparse files.
https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html#tag_20_92_13_01
https://www.gnu.org/software/tar/manual/html_node/Standard.html
https://github.com/opencontainers/image-spec/blob/main/layer.md
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from bareboat_base.expressions import expression
from bareboat_base.printable import file_name
from bareboat_images.tar.inflation import AGAIN, DamagedError

BLOCK = 512

#: Larger extended headers (names, attributes) are refused.
_LARGEST_EXTENSION = 1 << 20
#: Sparse files of more pieces are refused.
_MOST_SPANS = 1_000_000

FILE, LINK, SYMLINK, CHARACTER, BLOCK_DEVICE, FOLDER, FIFO = b"0", b"1", b"2", b"3", b"4", b"5", b"6"
#: GNU: the label of a volume, without content.
VOLUME = b"V"

_KINDS = frozenset({FILE, LINK, SYMLINK, CHARACTER, BLOCK_DEVICE, FOLDER, FIFO, VOLUME})
_EXTENSIONS = frozenset({b"x", b"X", b"g", b"L", b"K"})
_GNU_SPARSE = b"S"

#: name, mode, size (and its last byte), mtime (likewise), checksum, type, link, magic and version, prefix
_HEADER = struct.Struct("100s8s16x11sc11sc8sc100s8s80x155s12x")
#: https://www.gnu.org/software/tar/manual/html_node/Sparse-Formats.html
_SPAN = struct.Struct("12s12s")
_ZEROS = bytes(BLOCK)
_OCTAL = expression(rb"[0-7]+")
_DECIMAL = expression(rb"[0-9]{1,20}")
_SECONDS = expression(rb"(-?)([0-9]{1,20})(?:\.([0-9]*))?")
_PAX_RECORD = expression(rb"([0-9]{1,8}) ")
_XATTR = b"SCHILY.xattr."


class Sparse(NamedTuple):
    """The positions of a sparse file's stored bytes: offset, length, offset, length …; its size in bytes."""

    size: int
    spans: array[int]


class Entry(NamedTuple):
    """One entry, as in the layer. `size`: the stored bytes that follow; 0 for all but files."""

    kind: bytes
    name: bytes
    link: bytes
    mode: int
    size: int
    mtime_ns: int
    xattrs: tuple[tuple[bytes, bytes], ...]
    sparse: Sparse | None


class _Header(NamedTuple):
    """A header block of 512 bytes with its checked size, and the values of extended headers before it."""

    raw: bytes
    size: int
    pax: list[tuple[bytes, bytes]]
    long_name: bytes | None
    long_link: bytes | None


class Tar:
    """Reads entries. Passes all bytes except files' content to `keep`, or to a caller of `literal` first.

    `blocks` returns the next uncompressed bytes, None at the end; with `to_the_end`, also those after the end
    of
    the archive. Raises ImageError with `name`, and `again` as the remedy, for damage.
    """

    def __init__(
        self,
        blocks: Callable[[], bytes | None],
        keep: Callable[[bytes], object],
        *,
        name: str,
        again: str = AGAIN,
        to_the_end: bool = True,
    ) -> None:
        self._to_the_end = to_the_end
        self._blocks = blocks
        self._keep = keep
        self._name = name
        self._again = again
        self._block = b""
        self._view = memoryview(b"")
        self._pos = self._end = 0
        #: Bytes of the block from here to the position have not been kept or taken yet.
        self._mark = 0
        self._padding = 0
        self._ended = False
        self._global: dict[bytes, bytes] = {}
        self._modes: dict[bytes, int] = {}
        #: The name of the last entry, for messages.
        self.entry = b""

    def next(self) -> Entry | None:
        """The next entry, None at the end of the archive. The last one's content must have been read to its
        end."""
        # Fast path for most entries: a regular file with canonical numbers, whole in this block. `_next`
        # handles all others, and all errors.
        pos = self._pos + self._padding
        if self._end - pos >= BLOCK and not self._global:
            raw = self._view[pos : pos + BLOCK]
            name, mode8, size11, _, mtime11, _, sum8, kind, _, _, prefix = _HEADER.unpack(raw)
            digits = sum8[:6]
            if kind == FILE and not prefix[0] and size11.isdigit() and mtime11.isdigit() and digits.isdigit():
                mode = self._modes.get(mode8)
                try:
                    size = int(size11, 8)
                    mtime_s = int(mtime11, 8)
                    # zlib's Adler-32 has the sum of all bytes in its low half: ten times as fast as sum().
                    # The checksum field itself counts as eight spaces.
                    off = (zlib.adler32(raw) & 0xFFFF) - int(digits, 8) + 255 - sum(sum8)
                except ValueError:  # an 8 or a 9
                    off = 1
                if mode is not None and sum8[6] in b"\0 " and not off % 65521:
                    self._padding = -size % BLOCK
                    self._pos = pos + BLOCK
                    self.entry = name = name.partition(b"\0")[0]
                    # Same as Entry(…), but faster.
                    return tuple.__new__(
                        Entry, (kind, name, b"", mode, size, mtime_s * 1_000_000_000, (), None)
                    )
        return self._next()

    def _next(self) -> Entry | None:
        if self._padding:
            self.skip(self._padding)
            self._padding = 0
        found = self._extended_header()
        if found is None:
            return None
        raw, size, pax, long_name, long_link = found
        kind = raw[156:157]
        name, mode8, _, _, mtime11, mtime1, _, kind, link, magic, prefix = _HEADER.unpack(raw)
        name = name.partition(b"\0")[0]
        link = link.partition(b"\0")[0]
        if prefix[0] and magic.startswith(b"ustar\0"):
            if raw[508:] == b"tar\0":  # star's variant has times after a shorter prefix
                prefix = prefix[:131]
            name = prefix.partition(b"\0")[0] + b"/" + name
        fields = {**self._global, **dict(pax)}
        name = fields.get(b"path") or (name if long_name is None else long_name)
        link = fields.get(b"linkpath") or (link if long_link is None else long_link)
        self.entry = name
        if b"\0" in name or b"\0" in link:
            self.fail("a name holds a zero byte")
        mode = self._modes.get(mode8)
        if mode is None:
            if len(self._modes) > 4096:
                self._modes.clear()
            mode = self._modes[mode8] = self._number(mode8, "mode") & 0o7777
        if b"mtime" in fields:
            mtime_ns = self._nanoseconds(fields[b"mtime"])
        else:
            mtime_ns = _possible(self._number(mtime11 + mtime1, "time") * 1_000_000_000)
        if b"size" in fields:
            size = self._decimal(fields[b"size"], "size")
        xattrs = tuple((key[len(_XATTR) :], value) for key, value in fields.items() if key.startswith(_XATTR))
        kind, sparse = self._known_kind(kind, name, raw, size)
        if kind == FILE and sparse is None and any(key.startswith(b"GNU.sparse.") for key in fields):
            name = self.entry = fields.get(b"GNU.sparse.name", name)
            sparse, size = self._pax_sparse(pax, fields, size)
        if kind != FILE:
            size = 0  # like Go's reader, whatever the header claims: these types have no content
        self._padding = -size % BLOCK
        return Entry(kind, name, link, mode, size, mtime_ns, xattrs, sparse)

    def _extended_header(self) -> _Header | None:
        """The next header of an entry, with the values of extended headers before it; None at the end."""
        long_name = long_link = None
        pax: list[tuple[bytes, bytes]] = []
        extended = False
        while (raw := self._gather(BLOCK, partial=True)) and raw != _ZEROS:
            kind, size = raw[156:157], self._checked_size(raw)
            if kind not in _EXTENSIONS:
                return _Header(raw, size, pax, long_name, long_link)
            extended = True
            data = self._extension(size)
            if kind == b"L":
                long_name = data.partition(b"\0")[0]
            elif kind == b"K":
                long_link = data.partition(b"\0")[0]
            elif kind == b"g":
                self._set_global(self._pax(data))
                extended = False
            else:
                pax = self._pax(data)
        if extended:
            self.fail("it ends after an extended header")
        if raw:
            self._finish()
        return None

    def _known_kind(self, kind: bytes, name: bytes, raw: bytes, size: int) -> tuple[bytes, Sparse | None]:
        """The kind of an entry as layers have it, and the holes of a file in GNU's old format."""
        if kind == b"\0" and name.endswith(b"/"):
            return FOLDER, None  # V7 has no directories, only files with names that end in a slash
        if kind in (b"\0", b"7"):
            return FILE, None
        if kind == _GNU_SPARSE:
            return FILE, self._old_sparse(raw, size)
        if kind not in _KINDS:
            self.fail(f"the entry is of a type that no layer has ({file_name(kind)})")
        return kind, None

    def _checked_size(self, raw: bytes) -> int:
        """The size in a header. Fails on a wrong checksum."""
        told = self._number(raw[148:156], "checksum")
        total = sum(raw) - sum(raw[148:156]) + 256
        if told != total and told != total - 256 * sum(value > 127 for value in raw[:148] + raw[156:]):
            # The second is the sum of signed bytes, as written by some historical tars.
            self.fail("a header's checksum is wrong, or this is no tar")
        size = self._number(raw[124:136], "size")
        if size < 0:
            self.fail("an entry claims a negative size")
        return size

    def literal(self) -> bytes:
        """The bytes before the next content: headers and padding since the last ones were kept."""
        data = self._block[self._mark : self._pos]
        self._mark = self._pos
        return data

    def take(self, most_bytes: int) -> memoryview:
        """Some of the entry's content, at least one byte. Call `literal` before the first time."""
        pos = self._pos
        if pos == self._end:
            if not self._more():
                self.fail("it ends in the middle of a file")
            pos = 0
        stop = pos + most_bytes
        if stop > self._end:
            stop = self._end
        self._pos = self._mark = stop
        return self._view[pos:stop]

    def skip(self, size_bytes: int) -> None:
        """Skip bytes; they are kept, like headers."""
        left = size_bytes
        while True:
            step = min(left, self._end - self._pos)
            self._pos += step
            left -= step
            if not left:
                return
            if not self._more():
                self.fail("it ends in the middle of a file")

    @property
    def at_hand(self) -> int:
        """How many bytes of the current block are unused."""
        return self._end - self._pos

    def drop(self, size_bytes: int) -> int:
        """Discard up to `size_bytes` of the current block, without keeping them; return how many remain."""
        step = min(size_bytes, self._end - self._pos)
        self._pos = self._mark = self._pos + step
        return size_bytes - step

    def fail(self, reason: str) -> NoReturn:
        """Raise ImageError: the layer is damaged at the current entry."""
        where = f" at or after the entry {file_name(self.entry)}" if self.entry else ""
        raise DamagedError(f"{self._name} is damaged{where}: {reason}", remedy=self._again)

    # -- bytes -------------------------------------------------------------------------------------

    def _more(self) -> bool:
        """Replace the used block by the next one. False at the end."""
        if self._mark < self._end:
            self._keep(self._block[self._mark :] if self._mark else self._block)
        block = None if self._ended else self._blocks()
        self._ended = block is None
        self._block = block or b""
        self._view = memoryview(self._block)
        self._pos = self._mark = 0
        self._end = len(self._block)
        return block is not None

    def _gather(self, size: int, *, partial: bool = False) -> bytes:
        """Read `size` bytes, also across blocks; with `partial`, nothing where the archive ends cleanly."""
        data = b""
        while True:
            piece = self._block[self._pos : self._pos + size - len(data)]
            data += piece
            self._pos += len(piece)
            if len(data) == size:
                return data
            if not self._more():
                if partial and data.count(0) == len(data):
                    return b""
                self.fail("it ends in the middle of a header")

    def _finish(self) -> None:
        """After the first block of zeros: require a second one, or the end; keep what follows, unread."""
        if self._gather(BLOCK, partial=True).strip(b"\0"):
            self.fail("data follow a single block of zeros")
        self._pos = self._end
        while self._to_the_end and self._more():
            self._pos = self._end

    # -- numbers and extensions --------------------------------------------------------------------

    def _number(self, field: bytes, what: str) -> int:
        if field[0] & 0x80:  # GNU's base-256: two's complement, big-endian, below the marking bit
            value = int.from_bytes(field, "big") - (0x80 << 8 * (len(field) - 1))
            return value if field[0] == 0x80 else value - (1 << 8 * len(field) - 1)
        text = field.strip(b"\0 ").partition(b"\0")[0].rstrip(b" ")
        if not text:
            return 0
        if not _OCTAL.fullmatch(text):
            self.fail(f"a header's {what} is no number")
        return int(text, 8)

    def _decimal(self, text: bytes, what: str) -> int:
        if not _DECIMAL.fullmatch(text):
            self.fail(f"an extended header's {what} is no number")
        return int(text)

    def _nanoseconds(self, text: bytes) -> int:
        found = _SECONDS.fullmatch(text)
        if not found:
            self.fail("an extended header's mtime is no time")
        value = int(found[2]) * 1_000_000_000 + int((found[3] or b"")[:9].ljust(9, b"0"))
        return _possible(-value if found[1] else value)

    def _extension(self, size: int) -> bytes:
        if size > _LARGEST_EXTENSION:
            self.fail(f"an extended header claims {size:,} bytes")
        data = self._gather(size)
        self.skip(-size % BLOCK)
        return data

    def _pax(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Parse `LENGTH KEY=VALUE\\n`, repeated, in order: GNU's sparse maps repeat keys."""
        records = []
        pos = 0
        while pos < len(data):
            found = _PAX_RECORD.match(data, pos)
            stop = pos + int(found[1]) if found else 0
            key, equals, value = data[found.end() if found else 0 : stop - 1].partition(b"=")
            if not found or stop <= found.end() or data[stop - 1 : stop] != b"\n" or not equals or not key:
                if not data[pos:].strip(b"\0"):
                    break
                self.fail("an extended header is not written as pax writes it")
            records.append((key, value))
            pos = stop
        return records

    def _set_global(self, records: list[tuple[bytes, bytes]]) -> None:
        for key, value in records:
            if key in (b"path", b"linkpath", b"size") or key.startswith((b"GNU.sparse.", _XATTR)):
                self.fail(f"a header for all entries sets {file_name(key)}")
            # `git archive` writes its commit as a comment; only keys that change entries must be remembered.
            if key == b"mtime":
                self._global[key] = value

    # -- sparse files ------------------------------------------------------------------------------

    def _sparse(self, real_size: int, spans: array[int], stored: int) -> Sparse:
        end = total = 0
        for at in range(0, len(spans), 2):
            if spans[at] < end:
                self.fail("the pieces of a sparse file overlap")
            end = spans[at] + spans[at + 1]
            total += spans[at + 1]
        if end > real_size or total != stored or real_size >= 1 << 63:
            self.fail("the pieces of a sparse file do not fit its size")
        return Sparse(real_size, spans)

    def _append(self, spans: array[int], *numbers: int) -> None:
        if len(spans) >= 2 * _MOST_SPANS:
            self.fail(f"a sparse file has more than {_MOST_SPANS:,} pieces")
        for number in numbers:
            if not 0 <= number < 1 << 63:
                self.fail("a sparse file has an impossible piece")
            spans.append(number)

    def _old_sparse(self, raw: bytes, stored: int) -> Sparse:
        """Parse the map in the header itself, at offset 386, and in further blocks."""
        spans = array("Q")
        real_size = self._number(raw[483:495], "size")
        table, more = raw[386:482], raw[482]
        while True:
            for offset, length in _SPAN.iter_unpack(table):
                if length[0]:  # the unused rest is zero bytes
                    self._append(spans, self._number(offset, "map"), self._number(length, "map"))
            if not more:
                break
            raw = self._gather(BLOCK)
            table, more = raw[:504], raw[504]
        return self._sparse(real_size, spans, stored)

    def _pax_sparse(
        self, pax: list[tuple[bytes, bytes]], fields: dict[bytes, bytes], stored: int
    ) -> tuple[Sparse, int]:
        """Parse formats 0.0 (repeated keys), 0.1 (one key) and 1.0 (the map before the content)."""
        spans = array("Q")
        if fields.get(b"GNU.sparse.major") == b"1":
            stored -= self._map_before_content(spans, stored)
        elif b"GNU.sparse.map" in fields:
            numbers = fields[b"GNU.sparse.map"].split(b",") if fields[b"GNU.sparse.map"] else []
            if len(numbers) % 2:
                self.fail("the map of a sparse file has an odd number of numbers")
            for number in numbers:
                self._append(spans, self._decimal(number, "sparse map"))
        else:
            for key, value in pax:
                if key == b"GNU.sparse.offset":
                    if len(spans) % 2:
                        self.fail("the map of a sparse file lacks a length")
                    self._append(spans, self._decimal(value, "sparse map"))
                elif key == b"GNU.sparse.numbytes":
                    if not len(spans) % 2:
                        self.fail("the map of a sparse file lacks an offset")
                    spans.append(self._decimal(value, "sparse map") % (1 << 63))
            if len(spans) % 2:
                self.fail("the map of a sparse file lacks a length")
        claimed = fields.get(b"GNU.sparse.realsize", fields.get(b"GNU.sparse.size"))
        if claimed is None:
            self.fail("a sparse file has no size")
        return self._sparse(self._decimal(claimed, "sparse size"), spans, stored), stored

    def _map_before_content(self, spans: array[int], stored: int) -> int:
        """Read `COUNT\\nOFFSET\\nLENGTH\\n…`, padded to whole blocks; return the number of bytes."""
        read = 0
        rest = b""
        expected = -1  # the first number is the count of the pairs that follow
        while expected < 0 or len(spans) < expected:
            if read + BLOCK > stored + -stored % BLOCK:
                self.fail("the map of a sparse file is longer than its content")
            *lines, rest = (rest + self._gather(BLOCK)).split(b"\n")
            read += BLOCK
            if len(rest) > BLOCK:
                self.fail("the map of a sparse file is not written as GNU tar writes it")
            for line in lines:
                if expected < 0:
                    expected = 2 * self._decimal(line, "sparse map")
                elif len(spans) < expected:
                    self._append(spans, self._decimal(line, "sparse map"))
        return read


def _possible(mtime_ns: int) -> int:
    """A time that fits into 64 bits; others become the epoch, as in Go's unpackers."""
    return mtime_ns if -(1 << 63) <= mtime_ns < 1 << 63 else 0
