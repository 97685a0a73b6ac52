"""Downloads a blob: one thread fetches it into a part file, another reads it from there as it grows.

The file allows a failed pull to resume. Two processes may write the same part file: the digest determines
its bytes, so both write the same ones at the same offset.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from bareboat_base import digests
from bareboat_base.errors import ImageError
from bareboat_base.files import untrusted
from bareboat_images.oci.source import Blob, Descriptor, Source, expected
from bareboat_images.tar.inflation import DamagedError

_CHUNK = 1 << 20


class Interrupted(Exception):
    """The other thread of the spool has failed, and reports the reason itself."""


class Spool:
    """One blob. `fetch` runs in one thread, `chunks` in another; `name`: the layer's, for messages."""

    def __init__(self, source: Source, descriptor: Descriptor, part: Path, *, name: str) -> None:
        self._source = source
        self._descriptor = descriptor
        self._part = part
        self._name = name
        self._reading: BinaryIO | None = None
        self._arrived = 0
        self._whole = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def fetch(self, count: Callable[[int], None]) -> None:
        """Fetch the blob, from where an earlier attempt stopped; `count` gets the number of bytes as they
        arrive.

        Errors are raised in the reader of `chunks`.
        """
        try:
            self._fetch(count)
        except BaseException as error:
            self._tell(error=error)

    def chunks(self) -> Iterator[bytes]:
        """The blob from its first byte to its last; ends only after its digest was verified."""
        at = 0
        try:
            while True:
                with self._changed:
                    while self._arrived == at and not self._whole and self._error is None:
                        self._changed.wait()
                    arrived, whole, error = self._arrived, self._whole, self._error
                if error is not None:
                    raise error
                if at == arrived and whole:
                    return
                assert self._reading is not None
                chunk = os.pread(self._reading.fileno(), min(_CHUNK, arrived - at), at)
                if not chunk:
                    raise ImageError(
                        f"the part file of {self._name} was cut short while it was read",
                        context=str(self._part),
                        remedy="pull again, and let nothing but Bareboat write into the store",
                    )
                at += len(chunk)
                yield chunk
        finally:
            if self._reading is not None:
                self._reading.close()

    def interrupt(self) -> None:
        """Stop fetching at the next chunk, since the reader has given up."""
        self._tell(error=Interrupted())

    def remove(self) -> None:
        """Remove the part file, since the blob was used."""
        self._part.unlink(missing_ok=True)

    def keep(self, path: Path) -> None:
        """Move the verified blob from the part file to the path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self._part, path)

    def _fetch(self, count: Callable[[int], None]) -> None:
        self._part.parent.mkdir(parents=True, exist_ok=True)
        right = False
        with self._open() as part:
            kept = os.fstat(part.fileno()).st_size
            fits = kept <= self._descriptor.size or self._descriptor.size < 0
            if not kept or fits:
                right = self._verify(part, kept, count)
        if kept and not right:
            # The part of an earlier attempt was damaged, for example by a crash of the machine: retry once.
            # In a new file, because another process may still be using this one.
            self.remove()
            with self._open() as part:
                right = self._verify(part, 0, count)
        if not right:
            self.remove()
            raise DamagedError(
                f"{self._name} of {self._source.name} does not match its digest: it was "
                "changed on the way or at the source",
                context="expected " + expected(self._descriptor),
                remedy="pull again; if it stays so, the registry's or a proxy's copy is damaged",
            )
        self._tell(whole=True)

    def _open(self) -> BinaryIO:
        """The part file. In a group's store another member may have put anything in its place, also a file
        that they go on writing to: then another name is used, which an interrupted pull does not resume."""
        try:
            return self._own_part()
        except (untrusted.UntrustedFileError, PermissionError, IsADirectoryError):
            self._part = self._part.with_name(f"{self._part.name}-{secrets.token_hex(8)}")
            return self._own_part()

    def _own_part(self) -> BinaryIO:
        descriptor = untrusted.open_regular(self._part, flags=os.O_RDWR | os.O_CREAT)
        if os.fstat(descriptor).st_uid != os.geteuid():
            os.close(descriptor)
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(self._part))
        return open(descriptor, "r+b", buffering=0)

    def _verify(self, part: BinaryIO, kept: int, count: Callable[[int], None]) -> bool:
        """Hash the existing part, fetch and hash the rest; whether the whole matches the digest.

        The reader gets existing bytes only with the whole: if they are damaged, they are fetched again, and
        the
        reader must not have seen them.
        """
        hashed = digests.hasher()
        size = self._descriptor.size
        wanted = digests.hexed(self._descriptor.digest)
        at = 0
        while at < kept and (chunk := os.pread(part.fileno(), min(_CHUNK, kept - at), at)):
            self._check_wanted()
            hashed.update(chunk)
            at += len(chunk)
            count(len(chunk))
        if not kept:
            self._show(part)
        # With an unknown size, only the digest shows that nothing is left to fetch.
        if at != size and not (size < 0 and kept and hashed.hexdigest() == wanted):
            self._check_wanted()
            with self._source.blob(self._descriptor, at) as blob:
                at = self._receive(blob, part.fileno(), at, hashed.update, count, shown=not kept)
        right = hashed.hexdigest() == wanted and size in (-1, at)
        if right:
            self._show(part)
            self._tell(arrived=at)
        else:
            count(-at)
        return right

    def _show(self, part: BinaryIO) -> None:
        """Give the reader the open file, whatever another process does to its name."""
        if self._reading is None:  # closed by the reader, in another thread
            self._reading = open(os.dup(part.fileno()), "rb", buffering=0)  # noqa: SIM115

    def _check_wanted(self) -> None:
        if self._error is not None:
            raise Interrupted

    def _receive(
        self,
        blob: Blob,
        descriptor: int,
        at: int,
        update: Callable[[memoryview], None],
        count: Callable[[int], None],
        *,
        shown: bool,
    ) -> int:
        buffer = memoryview(bytearray(_CHUNK))
        while (got := blob.readinto(buffer)) > 0:
            self._check_wanted()
            if 0 <= self._descriptor.size < at + got:
                raise ImageError(
                    f"{self._name} of {self._source.name} is larger than in its manifest "
                    f"({self._descriptor.size:,} bytes)",
                    context=self._descriptor.digest,
                    remedy="the registry's copy is damaged; the image must be pushed again",
                )
            update(buffer[:got])
            written = 0
            while written < got:
                written += os.pwrite(descriptor, buffer[written:got], at + written)
            at += got
            count(got)
            if shown:
                self._tell(arrived=at)
        return at

    def _tell(
        self, *, arrived: int | None = None, whole: bool = False, error: BaseException | None = None
    ) -> None:
        with self._changed:
            if arrived is not None:
                self._arrived = arrived
            self._whole = self._whole or whole
            if self._error is None:
                self._error = error
            self._changed.notify_all()
