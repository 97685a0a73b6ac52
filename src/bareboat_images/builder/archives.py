"""Tar archives for ADD, plain or compressed."""

from __future__ import annotations

import bz2
import contextlib
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path

from bareboat_base.errors import ImageError
from bareboat_base.files import untrusted
from bareboat_images.layers.unpack import unpack
from bareboat_images.tar.inflation import inflate
from bareboat_images.tar.limits import Limits

_CHUNK = 1 << 20


def is_archive(path: str) -> bool:
    """Whether a file is a tar archive, plain or compressed with gzip, bzip2, xz or zstd."""
    with contextlib.suppress(OSError, EOFError, ImageError, lzma.LZMAError, StopIteration):
        head = b""
        for chunk in _inflated(path, "an archive"):
            head += chunk
            if len(head) >= 512:
                break
        if len(head) < 512:
            return False
        with contextlib.suppress(tarfile.TarError):
            tarfile.TarInfo.frombuf(head[:512], "utf-8", "surrogateescape")
            return True
    return False


def _inflated(path: str, name: str) -> Iterator[bytes]:
    with open(untrusted.open_regular(path), "rb") as stream:
        head = stream.read(6)
        stream.seek(0)
        if head.startswith(b"BZh"):
            with bz2.open(stream) as inner:
                yield from iter(lambda: inner.read(_CHUNK), b"")
        elif head.startswith(b"\xfd7zXZ\0"):
            with lzma.open(stream) as inner:
                yield from iter(lambda: inner.read(_CHUNK), b"")
        else:
            yield from inflate(iter(lambda: stream.read(_CHUNK), b""), name=name)


def unpacked(path: str, name: str, folder: Path) -> None:
    """Unpack an archive into an empty directory. Raises ImageError."""
    try:
        unpack(_inflated(path, name), folder, name=name, limits=Limits(), recipe=None)
    except (EOFError, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ImageError(f"{name} is damaged: {error}", remedy="copy or download the archive again") from None
