"""Reads the members of a tar file that contains an image in place, without unpacking them by name."""

from __future__ import annotations

import contextlib
import io
import os
import posixpath
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from msgspec import Struct

from bareboat_base.errors import ImageError, StoreError
from bareboat_base.files import untrusted
from bareboat_base.printable import file_name
from bareboat_images.oci.source import LARGEST_DOCUMENT
from bareboat_images.tar import inflation
from bareboat_images.tar import reader as tarreader
from bareboat_images.tar.limits import MAX_RATIO, RATIO_FROM_BYTES, bomb

#: Read size for a compressed file: the uncompressed size is compared with the bytes read so far.
_PACKED_CHUNK = 1 << 16
#: Read size where a member's header is expected.
_HEADER_CHUNK = 1 << 12
#: `docker save` of all images of a large machine has some ten thousand; a root file system has more.
_MOST_MEMBERS = 200_000
_MOST_LINKS = 16
#: The kernel accepts no larger offset.
_BEYOND = 2**62

_AGAIN = "copy or make the file again; it may have been cut off"

#: The kind of a file that is not stored contiguously; other kinds are those of `tarreader`.
SPARSE = b"S"


class Member(Struct, frozen=True):
    """One entry: its data begins at `offset` in the uncompressed archive and has `size` bytes."""

    name: str
    kind: bytes
    offset: int
    size: int
    target: str = ""


class Section(io.RawIOBase):
    """A range of an open file as a file of its own; others may read the same file concurrently."""

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


def inflated(packed: io.RawIOBase | IO[bytes], *, name: str, max_ratio: float) -> Iterator[bytes]:
    """Decompress a file, front to back. Raises ImageError if it is damaged, or expands beyond `max_ratio`
    times its own size."""
    size = 0
    chunks = iter(lambda: packed.read(_PACKED_CHUNK) or b"", b"")
    for block in inflation.inflate(chunks, name=name, again=_AGAIN, other="unpack it first: PROGRAM -d FILE"):
        size += len(block)
        if size > RATIO_FROM_BYTES and size > max_ratio * packed.tell():
            raise bomb(name, max_ratio, packed.tell(), size)
        yield block


def open_regular(path: str | os.PathLike[str], *, name: str) -> IO[bytes]:
    """Open a file for reading. Raises ImageError if it does not exist or is not a regular file: a FIFO would
    block forever, /dev/zero never ends."""
    try:
        descriptor = untrusted.open_regular(os.fspath(path), follow=True)
    except OSError as error:
        fault = untrusted.unreadable(os.fspath(path), error)
        context = "" if name == os.fspath(path) else f"image {name}"
        raise ImageError(fault.message, context=context, remedy=fault.remedy) from None
    return open(descriptor, "rb", buffering=0)


class Archive:
    """An open tar file and the index of its members. A compressed one is decompressed once, into an unnamed
    file in `scratch` (default: the directory for temporary files) that cannot be left over."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str,
        scratch: Path | None = None,
        max_ratio: float = MAX_RATIO,
        keep: Callable[[str], bool] | None = None,
    ) -> None:
        """Index the archive; with `keep`, only members for whose names it is true. Raises ImageError."""
        self.name = name
        self.max_ratio = max_ratio
        self._file = open_regular(path, name=name)
        magic = os.pread(self._file.fileno(), 8, 0)
        if inflation.is_compressed(magic):
            self._file = _spool(self._file, scratch, name=name, max_ratio=max_ratio)
        self.size_bytes = os.fstat(self._file.fileno()).st_size
        self.members: dict[str, Member] = {}
        #: Names of files that occur more than once: fatal for a file whose digest is not known.
        self.repeated: set[str] = set()
        if not self.size_bytes:
            raise ImageError(f"{name} is empty", remedy="copy or make the file again")
        for member in _walk(self._file.fileno(), name=name):
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
        """The file of this name, through links between members; None if it does not exist.

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
                case tarreader.FILE:
                    return member
                case tarreader.SYMLINK:
                    name = _normal(posixpath.join(posixpath.dirname(name), member.target), self.name)
                case tarreader.LINK:
                    name = _normal(member.target, self.name)
                case _:
                    raise ImageError(f"{self.name}: the entry {_shown(name)} is not a plain file")
        raise ImageError(f"{self.name}: the entry {_shown(first)} is a link that leads in a circle")

    def refuse_repeated(self, path: str) -> None:
        """Raise ImageError if the archive has several files of this name."""
        if path in self.repeated:
            raise ImageError(
                f"{self.name} has two entries {path}",
                remedy="no tool writes such an archive; do not trust it",
            )

    def read(self, member: Member, *, largest: int) -> bytes:
        """The bytes of a small member. Raises ImageError if it is larger than `largest`."""
        if member.size > largest:
            raise ImageError(f"{self.name}: the entry {_shown(member.name)} has {member.size:,} bytes, "
                             f"more than the {largest:,} that such a document may have")  # fmt: skip
        data = os.pread(self._file.fileno(), member.size, member.offset)
        if len(data) < member.size:
            raise ImageError(f"{self.name} became shorter while it was read")
        return data

    def small_file(self, name: str, *, largest: int) -> bytes | None:
        """The bytes of a small regular file; None where there is none, or a link, which could refer to
        another file."""
        member = self.members.get(name)
        if member is None or member.kind != tarreader.FILE:
            return None
        return self.read(member, largest=largest)

    def document(self, digest: str) -> bytes | None:
        """The bytes stored under a digest among the blobs, not verified; None where there are none."""
        with contextlib.suppress(ImageError):
            return self.small_file("blobs/" + digest.replace(":", "/"), largest=LARGEST_DOCUMENT)
        return None

    def section(self, member: Member, offset: int = 0) -> Section:
        """The bytes of a member, starting at an offset."""
        left = max(member.size - offset, 0)
        return Section(self._file.fileno(), member.offset + offset, left, name=self.name)

    def whole(self) -> Section:
        """The whole tar, uncompressed."""
        return Section(self._file.fileno(), 0, self.size_bytes, name=self.name)

    def _add(self, member: Member) -> None:
        name = _normal(member.name, self.name)
        if member.kind != tarreader.FOLDER:
            if name in self.members:
                self.repeated.add(name)
            self.members[name] = member
        if len(self.members) > _MOST_MEMBERS:
            raise ImageError(
                f"{self.name} has more than {_MOST_MEMBERS:,} entries; it is no archive of an image",
                remedy="if it is a root file system: rootfs:FILE",
            )


def first_names(path: str | os.PathLike[str], head: bytes, *, name: str, most_bytes: int) -> Iterator[str]:
    """The names in a tar file, compressed or not, in order; for a compressed one, only those in about the
    first `most_bytes`. `head`: the file's first bytes."""
    with open_regular(path, name=name) as stream:
        if not inflation.is_compressed(head):
            yield from (member.name for member in _walk(stream.fileno(), name=name))
            return
        blocks = inflated(stream, name=name, max_ratio=MAX_RATIO)
        tar = tarreader.Tar(lambda: next(blocks, None), _drop, name=name, again=_AGAIN, to_the_end=False)
        passed = 0
        while passed <= most_bytes and (entry := tar.next()) is not None:
            yield os.fsdecode(entry.name)
            tar.skip(entry.size)
            passed += entry.size


def open_plain(path: Path) -> Archive | None:
    """Open an archive that is not compressed; None for another file, or one that cannot be read."""
    try:
        with open_regular(path, name=str(path)) as stream:
            packed = inflation.is_compressed(stream.read(8))
        return None if packed else Archive(path, name=str(path))
    except ImageError:
        return None


def _walk(descriptor: int, *, name: str) -> Iterator[Member]:
    """Every entry of a tar. Raises ImageError for a file that is not a tar; contents are not read."""
    at = 0

    def read() -> bytes | None:
        nonlocal at
        data = os.pread(descriptor, _HEADER_CHUNK, at)
        at += len(data)
        return data or None

    tar = tarreader.Tar(read, _drop, name=name, again=_AGAIN, to_the_end=False)
    while (entry := tar.next()) is not None:
        kind = entry.kind if entry.sparse is None else SPARSE
        offset = at - tar.at_hand
        yield Member(os.fsdecode(entry.name), kind, offset, entry.size, os.fsdecode(entry.link))
        at = min(at + tar.drop(entry.size), _BEYOND)


def _drop(_data: bytes) -> None:
    pass


def _normal(path: str, name: str) -> str:
    """The normalized path. Raises ImageError if it leads out of the archive."""
    normal = posixpath.normpath(path)
    if path.startswith("/") or normal == ".." or normal.startswith("../") or "\0" in path:
        raise ImageError(
            f"{name}: the entry {_shown(path)} lies outside of the archive",
            remedy="no tool writes such an archive; do not trust it",
        )
    return normal


def _shown(name: str) -> str:
    return repr(file_name(os.fsencode(name)))


def _spool(packed: IO[bytes], scratch: Path | None, *, name: str, max_ratio: float) -> IO[bytes]:
    """Decompress the archive into an unnamed file."""
    try:
        spooled = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115  (it is what the caller asks for)
        for block in inflated(packed, name=name, max_ratio=max_ratio):
            spooled.write(block)
        spooled.flush()
    except OSError as error:
        if scratch is not None:
            raise  # the caller knows the store that contains `scratch`
        raise StoreError(
            f"{name} cannot be inflated into {tempfile.gettempdir()}: {error.strerror}",
            remedy="use a directory with more space: TMPDIR=DIR",
        ) from None
    finally:
        with contextlib.suppress(OSError):
            packed.close()
    return spooled
