"""The persistent connections of a pull or push, with bodies read directly into the caller's buffer."""

from __future__ import annotations

import dataclasses
import glob
import http.client
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from email.message import Message
from typing import TYPE_CHECKING

from bareboat_base.errors import UsageError
from bareboat_base.files import untrusted
from bareboat_images.registry import failure
from bareboat_images.registry.connection import Body, Connection, ContentError, shut
from bareboat_images.registry.failure import Broken, Closed
from bareboat_images.registry.location import Url
from bareboat_images.registry.options import Options

if TYPE_CHECKING:
    import ssl

_log = logging.getLogger("bareboat")

#: Fewer bytes within the read time-out mean that a transfer has stalled.
_TRICKLE_BYTES = 64 * 1024
#: A read returns after this many bytes: large enough to be cheap, small enough to overlap with processing.
_ENOUGH_BYTES = 256 * 1024
_LARGEST_CERTIFICATES = 16 * 2**20


class Response:
    """A response whose body is still to be read. Closing it early costs only the connection."""

    def __init__(
        self, transport: Transport, connection: Connection, raw: http.client.HTTPResponse, url: Url
    ) -> None:
        self._transport = transport
        self._connection: Connection | None = connection
        self._raw = raw
        self.url = url
        self.status = raw.status
        self.headers: Message = raw.headers
        #: Remaining bytes of the body; None if the server does not report the length.
        self.left = raw.length
        #: Bytes of the body that were read with the headers; None before the first check.
        self._ahead: int | None = None
        self._empty = True
        self._error: Exception | None = None

    def readinto(self, view: memoryview) -> int:
        """Read the next bytes of the body; 0 at its end.

        Returns when the view is full, after `_ENOUGH_BYTES`, or at the end. Bytes received before a failure
        are
        returned first. Raises Broken.
        """
        got = 0
        began = time.monotonic()
        try:
            while self._error is None and got < min(len(view), _ENOUGH_BYTES):
                count = self._receive(view[got:])
                if count == 0:
                    break
                got += count
                passed_s = time.monotonic() - began
                if passed_s > self._transport.options.read_timeout_s:
                    if got < _TRICKLE_BYTES:
                        self._error = Broken(
                            f"{self.url.authority} sent only {got} bytes in {passed_s:.0f} s"
                        )
                        self._drop()
                    break
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._drop()
            self._error = self._transport.explained(error, self.url)
        if got == 0 and self._error is not None:
            raise self._error from None
        return got

    def read(self, limit: int) -> bytes:
        """The whole body. Raises Broken, and ValueError when it has more than `limit` bytes."""
        buffer = bytearray(min(limit, 64 * 1024) if self.left is None else min(limit, self.left) + 1)
        got = 0
        deadline = time.monotonic() + 2 * self._transport.options.read_timeout_s
        while (count := self.readinto(memoryview(buffer)[got:])) > 0:
            got += count
            if got > limit:
                raise ValueError(f"more than {limit:,} bytes")
            if time.monotonic() > deadline:
                self._drop()
                raise Broken(f"{self.url.authority} sends too slowly: {got:,} bytes so far")
            if got == len(buffer):
                buffer.extend(bytes(min(got, limit + 1 - got)))
        return bytes(memoryview(buffer)[:got])

    def without_secrets(self, text: str) -> str:
        """Remove secrets from a server's text for a message: a server may repeat what was sent to it."""
        return self._transport.without_secrets(text)

    def close(self) -> None:
        """Return the connection to the pool if the response has been read to its end, else close it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self.left == 0:
            self._raw.close()  # closes the file, not the connection, which is reusable
        if self._raw.isclosed():
            self._transport.keep(connection)
        else:
            self._transport.drop(connection)

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive(self, view: memoryview) -> int:
        """Read from the socket once, without an intermediate copy."""
        if self._raw.isclosed():
            self.close()
            return 0
        if self._raw.chunked:
            data = self._raw.read1(len(view))
            view[: len(data)] = data
            count = len(data)
        elif self.left is None:
            count = self._raw.readinto(view)
            if count == 0 and self._empty:
                # A truncated header without a length ends like this, too.
                raise http.client.IncompleteRead(b"")
        else:
            count = self._receive_plain(view[: self.left]) if self.left else 0
            self.left -= count
            if count == 0 and self.left:
                raise http.client.IncompleteRead(b"", self.left)
            if self.left == 0:
                self.close()
        self._empty = False
        return count

    def _receive_plain(self, view: memoryview) -> int:
        """Read bytes that came with the headers, then directly from the socket.

        HTTPResponse.readinto and BufferedReader.readinto1 are unsuitable: they may wait for more when they
        have some
        bytes already; if the connection breaks meanwhile, these are lost, and fetched twice.
        """
        file = self._raw.fp
        if self._ahead is None:
            self._ahead = len(file.peek(1))
            if self._ahead == 0:  # the end
                return 0
        if self._ahead:
            count = file.readinto1(view[: self._ahead])
            self._ahead -= count
            return count
        return file.raw.readinto(view) or 0

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.drop(connection)


class Transport:
    """All connections of one pull or push. Thread-safe."""

    def __init__(self, options: Options) -> None:
        self.options = self._given = options
        self._lock = threading.Lock()
        self._idle: dict[str, list[Connection]] = {}
        self._busy: set[Connection] = set()
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._secrets: set[str] = set()
        self._reached: set[str] = set()
        self._closed = threading.Event()

    def share(self, places: int) -> None:
        """Divide the time-outs of one server among `places` servers, from now on."""
        self.options = dataclasses.replace(
            self._given,
            connect_timeout_s=self._given.connect_timeout_s / places,
            read_timeout_s=self._given.read_timeout_s / places,
        )

    def send(self, method: str, url: Url, headers: Mapping[str, str], body: Body = None) -> Response:
        """Send one request and read the headers of its response. Raises Broken, ImageError, UsageError."""
        while True:
            connection = self._take(url)
            reused = connection.used
            connection.used = True
            began = time.monotonic()
            try:
                connecting = not reused
                if connecting:
                    connection.connect()
                connecting = False
                raw = connection.send(method, url, headers, body)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.drop(connection)
                gone = isinstance(error, (http.client.RemoteDisconnected, ConnectionError))
                if reused and gone and (body is None or isinstance(body, bytes)):
                    continue  # closed while writing: the server processed nothing, so send it again
                raise self.explained(error, url, way=connection.way, connecting=connecting) from None
            except ContentError as error:
                self.drop(connection)
                raise error.cause from None
            except BaseException:
                self.drop(connection)
                raise
            self._reached.add(url.origin)
            _log.debug(
                "%s %s%s: %d after %.3f s",
                method, url.origin, url.path, raw.status, time.monotonic() - began,
            )  # fmt: skip
            return Response(self, connection, raw, url)

    def hide(self, *secrets: str) -> None:
        """Remove these texts from all messages."""
        with self._lock:
            self._secrets.update(secret for secret in secrets if len(secret) > 3)

    def without_secrets(self, text: str) -> str:
        with self._lock:
            longest_first = sorted(self._secrets, key=len, reverse=True)
        for secret in longest_first:
            text = text.replace(secret, "***")
        return text

    def pause(self, seconds: float) -> None:
        """Wait, unless the transport is closed meanwhile. Raises Closed."""
        if self._closed.wait(seconds):
            raise Closed("closed")

    def keep(self, connection: Connection) -> None:
        with self._lock:
            self._busy.discard(connection)
            if connection.raw.sock is not None and not self._closed.is_set():
                self._idle.setdefault(connection.url.origin, []).append(connection)
                return
        connection.raw.close()

    def drop(self, connection: Connection) -> None:
        with self._lock:
            self._busy.discard(connection)
        connection.raw.close()

    def close(self) -> None:
        """Close all connections: readers in other threads get Broken at once."""
        self._closed.set()
        with self._lock:
            idle = [connection for kept in self._idle.values() for connection in kept]
            self._idle.clear()
            busy = list(self._busy)
        for connection in idle:
            connection.raw.close()
        for connection in busy:
            if connection.sock is not None:
                shut(connection.sock)

    def explained(self, error: Exception, url: Url, *, way: str = "", connecting: bool = False) -> Exception:
        """Classify a connection error for the layers above."""
        if self._closed.is_set():
            return Closed("closed")
        return failure.explained(
            error, url, way=way or url.authority, connecting=connecting, known=url.origin in self._reached
        )

    def _take(self, url: Url) -> Connection:
        if self._closed.is_set():
            raise Closed("closed")
        while True:
            with self._lock:
                kept = self._idle.get(url.origin)
                connection = kept.pop() if kept else None
                if connection is not None:
                    self._busy.add(connection)
            if connection is None:
                connection = Connection(url, self.options, self._context(url))
                self.hide(*connection.secrets)
                with self._lock:
                    self._busy.add(connection)
                return connection
            if not connection.stale():
                connection.options = self.options
                return connection
            self.drop(connection)

    def _context(self, url: Url) -> ssl.SSLContext | None:
        if url.scheme != "https":
            return None
        with self._lock:
            if url.origin not in self._contexts:
                self._contexts[url.origin] = tls_context(url, self.options)
            return self._contexts[url.origin]


def tls_context(url: Url, options: Options) -> ssl.SSLContext:
    """The TLS context for one host. Private authorities are also read from the directories of podman and
    Docker, so that registries that work with them work here. Raises UsageError for unreadable certificates.

    Source: https://github.com/containers/image/blob/main/docs/containers-certs.d.5.md
    """
    import ssl  # 5 ms that plain HTTP does not need

    # SSL_CERT_FILE replaces the system's authorities, as for every program that uses OpenSSL.
    chosen = options.environment.get("SSL_CERT_FILE")
    try:
        if chosen:
            _check_regular(chosen)
        made = ssl.create_default_context(cafile=chosen or None)
    except OSError as error:
        raise _unreadable("SSL_CERT_FILE", str(chosen), error) from None
    # Python 3.13 refuses authorities without extensions of RFC 5280, which many sites' own lack; podman,
    # Docker and curl accept them: https://docs.python.org/3/library/ssl.html#ssl.create_default_context
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    made.set_alpn_protocols(["http/1.1"])
    if options.ca_file is not None:
        try:
            _check_regular(options.ca_file)
            made.load_verify_locations(options.ca_file)
        except OSError as error:
            raise _unreadable("--ca-file", options.ca_file, error) from None
    for file in _kept_for(url, options):
        try:
            _check_regular(file)
            made.load_verify_locations(file)
        except OSError as error:
            raise _unreadable("the directory of certificates", file, error) from None
    return made


def _kept_for(url: Url, options: Options) -> Iterator[str]:
    """The authorities that the user or the administrator has installed for this registry."""
    home = options.environment.get("HOME")
    folders = ["/etc/docker/certs.d", "/etc/containers/certs.d"]
    if home:
        folders.append(os.path.join(home, ".config/containers/certs.d"))
    for folder in folders:
        if os.path.isdir(folder):  # usually missing
            for name in {url.authority, f"{url.host}:{url.port}"}:
                yield from sorted(glob.glob(os.path.join(glob.escape(os.path.join(folder, name)), "*.crt")))


def _check_regular(file: str) -> None:
    """Raise OSError for a FIFO or device: OpenSSL would block on it, or read without end."""
    untrusted.read_bytes(file, limit=_LARGEST_CERTIFICATES, follow=True)


def _unreadable(setting: str, file: str, error: OSError) -> UsageError:
    return UsageError(
        f"{setting} names {file}, which holds no certificates that can be read",
        context=error.strerror or str(error),
        remedy="give a readable file of certificates in PEM",
    )
