"""The download of one blob, resumed after interruptions.

Every byte is fetched once, if the server supports Range (RFC 9110, section 14): after an interruption the
request continues from that offset, at the same place or, when that fails permanently, at the next.
"""

from __future__ import annotations

from collections.abc import Callable

from bareboat_base.errors import ImageError
from bareboat_base.expressions import expression
from bareboat_base.printable import quoted
from bareboat_images.oci.source import Descriptor
from bareboat_images.registry.endpoint import Endpoint
from bareboat_images.registry.exchange import Patience, excerpt
from bareboat_images.registry.failure import Broken
from bareboat_images.registry.http import Response

#: Less between two interruptions is no progress: otherwise a server could delay a pull forever, byte by byte.
_PROGRESS_BYTES = 64 * 1024
_CONTENT_RANGE = expression(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")


class RemoteBlob:
    """The bytes of a blob, starting at an offset; satisfies `source.Blob`.

    `places`: the endpoints, the best first; `failed` is called with one that is useless from now on.
    """

    def __init__(
        self,
        descriptor: Descriptor,
        offset: int,
        *,
        places: tuple[Endpoint, ...],
        failed: Callable[[Endpoint, ImageError], None],
    ) -> None:
        self._digest = descriptor.digest
        self._size = descriptor.size
        self._at = offset
        self._places = list(places)
        self._failed = failed
        self._response: Response | None = None
        self._over = 0 <= self._size <= offset
        self._patience = self._new_patience()
        self._progress_from = offset

    def open(self) -> None:
        """Request the first bytes, so that a missing blob is detected at once. Raises ImageError."""
        if not self._over:
            self._response = self._opened()

    def readinto(self, buffer: memoryview) -> int:
        """Fill the buffer with the bytes available; 0 at the end. Raises ImageError."""
        if self._size >= 0:
            buffer = buffer[: self._size - self._at]
        while not self._over and buffer:
            try:
                if self._response is None:
                    self._response = self._opened()
                if self._response is None:
                    break
                got = self._response.readinto(buffer)
                if got == 0 and self._size > self._at:
                    raise Broken(f"the transfer ended {self._size - self._at:,} bytes early")
            except Broken as broken:
                self.close()
                self._broke(broken)
                continue
            self._at += got
            if got == 0 or self._at == self._size:
                self._over = True
                self.close()
            return got
        return 0

    def close(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            response.close()

    @property
    def _subject(self) -> str:
        return f"{self._digest} of {self._places[0].name}"

    def _new_patience(self) -> Patience:
        return Patience(self._places[0].transport, self._subject)

    def _broke(self, broken: Broken) -> None:
        if self._at - self._progress_from >= _PROGRESS_BYTES:
            self._patience.progressed()
        self._progress_from = self._at
        try:
            self._patience.after(broken)
        except ImageError as error:
            self._next_place(error)

    def _next_place(self, error: ImageError) -> None:
        """Continue at the next place. Raises the error when there is none."""
        if len(self._places) == 1:
            raise error
        self._failed(self._places.pop(0), error)
        self._patience = self._new_patience()

    def _opened(self) -> Response | None:
        while True:
            try:
                return self._asked(self._places[0])
            except ImageError as error:
                self._next_place(error)

    def _asked(self, place: Endpoint) -> Response | None:
        """The response whose next byte is the one at `_at`; None when the blob ends there."""
        headers = {"Range": f"bytes={self._at}-"} if self._at else {}
        response = place.ask(
            "GET", f"/blobs/{self._digest}", subject=self._subject, headers=headers, accepted=(200, 206, 416)
        )
        try:
            if response.status == 416:
                excerpt(response)
                if self._size < 0:
                    return None  # the size is unknown: the blob ends here
                raise self._wrong_size(f"it has no byte at {self._at:,}")
            if (response.headers.get("Content-Encoding") or "identity").lower() != "identity":
                raise ImageError(
                    f"{self._subject} comes packed once more, though we asked for it as it is",
                    context=f"{response.url.authority}: Content-Encoding",
                    remedy="a proxy on the way changes the content: leave it out (NO_PROXY), or use a mirror",
                )
            starts_at, total = self._begin(response)
            if self._size >= 0 and total is not None and total != self._size:
                raise self._wrong_size(f"it has {total:,} bytes at {response.url.authority}")
            if starts_at < self._at:
                self._skip(response, self._at - starts_at)
        except BaseException:
            response.close()
            raise
        return response

    def _begin(self, response: Response) -> tuple[int, int | None]:
        """The offset in the blob of the body's first byte, and the blob's size if the server reports it."""
        if response.status == 200:  # the server does not support Range
            return 0, response.left
        text = response.headers.get("Content-Range") or ""
        found = _CONTENT_RANGE.fullmatch(text.strip())
        if found is None or int(found[1]) > self._at:
            raise ImageError(
                f"{self._subject} is not available: {response.url.authority} sends a part not requested",
                context=f"asked for bytes from {self._at:,}; Content-Range: {quoted(text)}",
                remedy="the registry, or a proxy before it, is out of order: try --mirrors REGISTRY=HOST",
            )
        return int(found[1]), None if found[3] == "*" else int(found[3])

    def _skip(self, response: Response, count: int) -> None:
        scratch = memoryview(bytearray(256 * 1024))
        while count:
            got = response.readinto(scratch[:count])
            if got == 0:
                raise Broken("the transfer ended before the requested part")
            count -= got

    def _wrong_size(self, fact: str) -> ImageError:
        return ImageError(
            f"{self._subject} does not match its manifest: {fact}",
            context=f"size in the manifest: {self._size:,} bytes",
            remedy="the registry's copy is damaged: the image must be pushed again",
        )
