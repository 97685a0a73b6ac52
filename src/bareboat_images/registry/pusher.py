"""Uploads content to a registry: only what it does not have yet.

Source: OCI Distribution Specification 1.1, "Push", https://github.com/opencontainers/distribution-spec
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from urllib.parse import quote, urlencode

from bareboat_base import digests
from bareboat_base.errors import ImageError
from bareboat_images.registry.endpoint import Endpoint
from bareboat_images.registry.exchange import Patience, excerpt, passing
from bareboat_images.registry.failure import Broken
from bareboat_images.registry.http import Response, Transport
from bareboat_images.registry.location import Url, registry_url
from bareboat_images.registry.options import Options

__all__ = ["Options", "Pusher", "open_pusher"]

#: Bytes per call of the socket: its time-out is for the whole call.
_CHUNK = 1 << 20


def open_pusher(registry: str, repository: str, *, options: Options) -> Pusher:
    """A repository to push to. Sends no request yet; mirrors are not used. Raises UsageError."""
    transport = Transport(options)
    endpoint = Endpoint(
        registry=registry,
        repository=repository,
        url=registry_url(registry, plain_http=options.plain_http),
        name=f"{registry}/{repository}",
        transport=transport,
    )
    return Pusher(endpoint, transport)


class Pusher:
    """One repository to push to. Thread-safe."""

    def __init__(self, endpoint: Endpoint, transport: Transport) -> None:
        self.name = endpoint.name
        self._endpoint = endpoint
        self._transport = transport
        self._scopes = (endpoint.scope("pull,push"),)

    def has_blob(self, digest: str) -> bool:
        """Whether the repository has the blob already. Raises ImageError."""
        response = self._endpoint.ask(
            "HEAD",
            f"/blobs/{quote(digest, safe=':')}",
            subject=self._blob(digest),
            scopes=self._scopes,
            accepted=(200, 404),
        )
        with response:
            self._check_registry(response)
            return response.status == 200

    def upload(self, digest: str, size: int, chunks: Iterable[bytes | memoryview]) -> None:
        """Upload a blob of `size` bytes. The registry verifies the digest.

        A failed upload is repeated if `chunks` can be iterated again (a list, or an object with `__iter__`),
        not
        if it is an iterator. Raises ImageError.
        """
        subject = self._blob(digest)
        again = iter(chunks) is not chunks
        patience = Patience(self._transport, subject)
        is_first = True
        while True:
            sent = _Counted(chunks, size, subject)
            try:
                response = self._endpoint.ask(
                    "PUT",
                    _with_query(self._begin(subject), digest),
                    subject=subject,
                    scopes=self._scopes,
                    headers={"Content-Type": "application/octet-stream", "Content-Length": str(size)},
                    body=sent,
                    # All are accepted here; below is decided which of them another upload may fix.
                    accepted=(201, 204, 400, 404, 408, 416, 425, 429, 500, 502, 503, 504),
                )
            except Broken as broken:
                if not again:
                    raise ImageError(
                        f"{subject} was not sent whole: {broken}",
                        remedy="push again: what is there is not sent twice",
                    ) from None
                patience.heard(sent.moved_at_s)
                patience.after(broken)
                continue
            status, said = response.status, excerpt(response)
            if status in (201, 204):
                return
            if again and passing(response):
                patience.after_status(response, said=said)
            elif again and (status in (404, 416) or (status == 400 and is_first)):
                is_first = False
                lost = "received other bytes" if status == 400 else "lost the upload"
                patience.after(Broken(f"the registry has {lost} ({status})"))
            else:
                raise ImageError(
                    f"{self.name} does not take {digest}: the registry answers {status}",
                    context=said,
                    remedy="push again; if it stays so, the copy in the store may be damaged: "
                    "bareboat image verify",
                )

    def put_manifest(self, reference: str, data: bytes, media_type: str) -> str:
        """Upload a manifest or an index under a tag or its digest; return its digest. Raises
        ImageError."""
        digest = digests.of(data)
        subject = f"{self.name}{'@' if ':' in reference else ':'}{reference}"
        response = self._endpoint.ask(
            "PUT",
            f"/manifests/{quote(reference, safe=':')}",
            subject=subject,
            scopes=self._scopes,
            headers={"Content-Type": media_type},
            body=data,
            accepted=(200, 201, 202),
        )
        excerpt(response)
        self._check_registry(response)
        told = response.headers.get("Docker-Content-Digest")
        if told is None and response.status != 201 and not response.headers.get("Location"):
            raise ImageError(
                f"{subject} may not be stored: {response.url.authority} answers {response.status}, without "
                "a place or a digest",
                remedy="check that the host and the port are those of a registry",
            )
        if told is not None and not digests.is_of(told, data):
            raise ImageError(
                f"{subject} is not what was sent: the registry has made it {told}",
                context=f"sent {len(data):,} bytes with {digest}",
                remedy="push again; if it stays so, the registry or a proxy changes manifests on the way",
            )
        return digest

    def close(self) -> None:
        """Close all connections; an upload that blocks in another thread raises ImageError at once."""
        self._transport.close()

    def __enter__(self) -> Pusher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _blob(self, digest: str) -> str:
        return f"{digest} in {self.name}"

    def _check_registry(self, response: Response) -> None:
        """Raise ImageError for a web page: of a proxy that requires a log-in, or of another server."""
        kind = (response.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
        if response.status in (200, 202) and kind in ("text/html", "application/xhtml+xml"):
            raise ImageError(
                f"{response.url.authority} answers {response.status} with a web page: it is no registry, or "
                "a proxy answers in its place",
                context=f"asked for {response.url.path}",
                remedy="check the host and the port; name a host that needs no proxy in NO_PROXY",
            )

    def _begin(self, subject: str) -> Url:
        """Start an upload; return its URL."""
        response = self._endpoint.ask(
            "POST", "/blobs/uploads/", subject=subject, scopes=self._scopes, accepted=(202,)
        )
        excerpt(response)
        return self._location(response)

    def _location(self, response: Response) -> Url:
        try:
            return response.url.joined(response.headers.get("Location") or "")
        except ValueError as error:
            raise ImageError(
                f"{self.name} cannot be pushed to: the registry returned no valid upload URL: {error}",
                remedy="the registry is misconfigured; contact its administrator",
            ) from None


class _Counted:
    """The chunks of a body with a declared length. Raises ImageError when there are more or fewer bytes.
    `moved_at_s`: when the last one was taken, by the monotonic clock."""

    def __init__(self, chunks: Iterable[bytes | memoryview], size: int, subject: str) -> None:
        self._chunks = chunks
        self._size = size
        self._subject = subject
        self.moved_at_s = 0.0

    def __iter__(self) -> Iterator[memoryview]:
        left = self._size
        for chunk in self._chunks:
            left -= len(chunk)
            if left < 0:
                break
            view = memoryview(chunk)
            for at in range(0, len(view), _CHUNK):
                self.moved_at_s = time.monotonic()
                yield view[at : at + _CHUNK]
        if left:
            raise ImageError(
                f"{self._subject} has {'more' if left < 0 else 'fewer'} bytes than it should",
                context=f"expected {self._size:,} bytes",
                remedy="bareboat image verify IMAGE   # checks the copy in the store",
            )


def _with_query(url: Url, digest: str) -> Url:
    target = url.target + ("&" if "?" in url.target else "?") + urlencode({"digest": digest})
    return Url(scheme=url.scheme, host=url.host, port=url.port, target=target)
