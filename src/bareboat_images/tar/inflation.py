"""Decompresses layers and archives of images, block by block: gzip and zstd."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from typing import IO, cast

from bareboat_base.errors import ImageError

#: The largest block of output. Blocks pass between threads: large enough to make that cheap, small enough
#: that a few dozen need little memory.
STEP_BYTES = 1 << 20
#: The most compressed bytes per step once a gzip has several members: at the end of each member, the rest of
#: the step's input is copied.
_MEMBERS_BYTES = 1 << 15

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_OTHERS = {b"\xfd7zXZ\0": "xz", b"BZh": "bzip2", b"\x04\x22\x4d\x18": "lz4", b"LZIP": "lzip"}
_LONGEST_MAGIC = 6
#: The window of `zstd -22 --ultra` and `--long`; a frame with a larger one is refused.
_ZSTD_WINDOW_BYTES = 1 << 27

AGAIN = "bareboat image pull --fresh …   # downloads it again; if it fails, ask the publisher to rebuild it"


_OTHER = "make it again with gzip or zstd layers: skopeo copy --dest-compress-format gzip …"


class DamagedError(ImageError):
    """Content is not what it should be: another copy may be."""


def is_compressed(head: bytes) -> bool:
    """Whether a file's first bytes are those of a compressed file, also in an unsupported format."""
    return head.startswith((_GZIP, _ZSTD, *_OTHERS)) or _is_skippable(head)


def _is_skippable(head: bytes) -> bool:
    """Whether the bytes start a zstd frame without data."""
    return head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5


def inflate(
    chunks: Iterator[bytes | memoryview], *, name: str, again: str = AGAIN, other: str = _OTHER
) -> Iterator[bytes]:
    """The uncompressed bytes of a layer, in blocks of at most STEP_BYTES. The first bytes determine the
    format: gzip (also with several members), zstd (also with several frames), or a plain tar.

    A chunk may be reused when the next one is requested. Raises ImageError, with `name`, for damage; the
    remedies are `again`, and `other` for another compression.
    """
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= _LONGEST_MAGIC:
            break
    for magic, program in _OTHERS.items():
        if head.startswith(magic):
            raise ImageError(
                f"{name} is compressed by {program}, which no image specification knows",
                remedy=other.replace("PROGRAM", program),
            )
    if head.startswith(_GZIP):
        return _gunzip(head, chunks, name, again)
    if head.startswith(_ZSTD) or _is_skippable(head):
        return _unzstd(head, chunks, name, again)
    return _plain(head, chunks)


def _plain(head: bytes, chunks: Iterator[bytes | memoryview]) -> Iterator[bytes]:
    return map(bytes, _slices(head, chunks, STEP_BYTES))


def _slices(head: bytes, chunks: Iterator[bytes | memoryview], size: int) -> Iterator[memoryview]:
    for chunk in itertools.chain((head,), chunks):
        view = memoryview(chunk)
        for start in range(0, len(view), size):
            yield view[start : start + size]


def _gunzip(head: bytes, chunks: Iterator[bytes | memoryview], name: str, again: str) -> Iterator[bytes]:
    from isal import igzip_lib

    member: igzip_lib.IgzipDecompressor | None = None
    between = b""  # bytes after a member, until their kind is known
    step_bytes = STEP_BYTES
    for chunk in itertools.chain((head,), chunks):
        view = memoryview(chunk)
        while view:
            data: bytes | memoryview = view[:step_bytes]
            view = view[step_bytes:]
            while True:
                if member is None:
                    # https://www.rfc-editor.org/rfc/rfc1952: members follow each other directly, but tapes
                    # and some tools pad with zeros, which gzip ignores.
                    between = (between + bytes(data)).lstrip(b"\0")
                    if len(between) < len(_GZIP) and _GZIP.startswith(between):
                        break
                    if not between.startswith(_GZIP):
                        raise _broken(name, again, "something other than gzip follows its compressed data")
                    member = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
                    data, between = between, b""
                try:
                    block = member.decompress(data, STEP_BYTES)
                except igzip_lib.IsalError as error:  # type: ignore[misc]  # its stub forgets the base
                    raise _broken(name, again, f"its gzip data do not inflate ({error})") from None
                if block:
                    yield block
                data = b""
                if member.eof:
                    data, member = member.unused_data, None
                    step_bytes = _MEMBERS_BYTES
                    if not data:
                        break
                elif member.needs_input:
                    break
    if member is not None or between:
        raise _broken(name, again, "its gzip data end too early")


class _Feed(io.RawIOBase):
    """The input of zstandard: pieces one after another, then `end`."""

    def __init__(self, head: bytes, chunks: Iterator[bytes | memoryview], end: bytes) -> None:
        super().__init__()
        self._left = memoryview(head)
        self._chunks = itertools.chain(chunks, (end,))

    def read(self, size: int = -1) -> bytes:
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return b""
            self._left = memoryview(chunk)
        data = bytes(self._left[:size])
        self._left = self._left[size:]
        return data

    def close(self) -> None:
        # After damaged data zstandard's reader is never freed, and would keep all objects referenced here.
        self._left, self._chunks = memoryview(b""), itertools.chain()
        super().close()


def _unzstd(head: bytes, chunks: Iterator[bytes | memoryview], name: str, again: str) -> Iterator[bytes]:
    import zstandard

    # The reader does not report whether its last frame was complete. An additional frame after it does: it
    # comes out, last and unchanged, only if everything before it was complete.
    mark = b"-- the end of the layer, as Bareboat marks it --"
    with _Feed(head, chunks, zstandard.compress(mark)) as feed:
        yield from _marked(feed, mark, name, again)


def _marked(feed: _Feed, mark: bytes, name: str, again: str) -> Iterator[bytes]:
    import zstandard

    reader = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).stream_reader(
        cast(IO[bytes], feed), read_size=STEP_BYTES, read_across_frames=True
    )
    held = b""
    while True:
        try:
            block = reader.read(STEP_BYTES)
        except zstandard.ZstdError as error:
            raise _broken(name, again, f"its zstd data do not inflate, or end too early ({error})") from None
        if not block:
            break
        if len(block) < len(mark):
            held += block
            continue
        if held:
            yield held
        held = block
    if not held.endswith(mark):
        raise _broken(name, again, "its zstd data end too early")
    if len(held) > len(mark):
        yield held[: -len(mark)]


def _broken(name: str, again: str, reason: str) -> ImageError:
    return DamagedError(f"{name} is damaged: {reason}", remedy=again)
