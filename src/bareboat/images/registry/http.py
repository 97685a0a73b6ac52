"""Connections: HTTP/1.1 over TLS and proxies, kept alive, with bodies read straight into the reader's buffer.

Source: RFC 9112 (HTTP/1.1), https://www.rfc-editor.org/rfc/rfc9112
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import logging
import select
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from email.message import Message
from typing import TYPE_CHECKING

from bareboat import __version__
from bareboat.images.registry import failure, proxy
from bareboat.images.registry.failure import Broken, Closed
from bareboat.images.registry.location import Url
from bareboat.images.registry.options import Options

if TYPE_CHECKING:
    import ssl

_log = logging.getLogger("bareboat")

Body = bytes | Iterable[bytes | memoryview] | None
"""What is sent with a request. Only bytes can be sent again."""

#: Fewer bytes than this within the time for reading, and a transfer has stalled.
_TRICKLE_BYTES = 64 * 1024
#: A read returns once it has so much: large enough to be cheap, small enough to overlap with what follows.
_ENOUGH_BYTES = 256 * 1024
#: While a registry stores what it was sent, we wait once more as long for each so many bytes, up to a limit.
_STORED_BYTES = 1 << 30
_STORING = 10
_AGENT = f"bareboat/{__version__}"


class Response:
    """An answer whose body is still to be read. Closing it early costs the connection, no more."""

    def __init__(
        self, transport: Transport, connection: _Connection, raw: http.client.HTTPResponse, url: Url
    ) -> None:
        self._transport = transport
        self._connection: _Connection | None = connection
        self._raw = raw
        self.url = url
        self.status = raw.status
        self.headers: Message = raw.headers
        #: Bytes of the body that are still to come; None where the server does not tell.
        self.left = raw.length
        #: Bytes of the body that have been read with the head; None before anybody has looked.
        self._ahead: int | None = None
        self._empty = True
        self._error: Exception | None = None

    def readinto(self, view: memoryview) -> int:
        """Read the next bytes of the body; 0 at its end.

        Returns when the view is full, when there is enough to be worth it, or at the end. What had come
        before a break is returned first. Raises Broken.
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
        """A text of the server's for a message: a server may repeat what we have sent to it."""
        return self._transport.without_secrets(text)

    def close(self) -> None:
        """Give the connection back if the answer has been read to its end, else close it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self.left == 0:
            self._raw.close()  # the file, not the connection, which can be used again
        if self._raw.isclosed():
            self._transport.keep(connection)
        else:
            self._transport.drop(connection)

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive(self, view: memoryview) -> int:
        """One read of the socket, without a copy in between."""
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
                # So ends a head that broke off before it told the length, too.
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
        """What has come with the head, then straight from the socket.

        Neither HTTPResponse.readinto nor BufferedReader.readinto1 will do: they may wait for more when they
        have some already, and that is lost when the connection breaks meanwhile, and fetched twice.
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


class _Connection:
    """One connection to the origin of a URL, through a proxy or not."""

    def __init__(self, url: Url, options: Options, context: ssl.SSLContext | None) -> None:
        self.url = url
        self.used = False
        self.sock: socket.socket | None = None
        self.options = options
        self._proxy = proxy.choose(url, options.environment)
        host, port = (self._proxy.host, self._proxy.port) if self._proxy else (url.host, url.port)
        timeout_s = options.connect_timeout_s
        self.raw: http.client.HTTPConnection
        if url.scheme == "https":
            self.raw = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
            if self._proxy:
                self.raw.set_tunnel(url.host, url.port, headers=self._for_proxy())
        else:
            self.raw = http.client.HTTPConnection(host, port, timeout=timeout_s)
        # Else each address of the host would be given the whole time.
        self.raw._create_connection = self._open  # type: ignore[attr-defined]

    @property
    def way(self) -> str:
        """How messages call where it leads."""
        return f"{self.url.authority} through the proxy {self._proxy}" if self._proxy else self.url.authority

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no message may hold."""
        return tuple(value.partition(" ")[2] for value in self._for_proxy().values())

    def _for_proxy(self) -> dict[str, str]:
        known = self._proxy.authorization if self._proxy else None
        return {"Proxy-Authorization": known} if known else {}

    def connect(self) -> None:
        with self._within(2 * self.options.connect_timeout_s):
            self.raw.connect()
        self.sock = self.raw.sock  # http.client forgets it when the server will close
        self.sock.settimeout(self.options.read_timeout_s)

    def _open(self, address: tuple[str, int], timeout_s: float, _source: object) -> socket.socket:
        """A socket to the first address of a host that answers; the time is for all of them together."""
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
        end = time.monotonic() + timeout_s
        failed: OSError = socket.gaierror(socket.EAI_NONAME, "it has no address")
        for number, (family, kind, protocol, _, place) in enumerate(found):
            opened = None
            try:
                opened = socket.socket(family, kind, protocol)
                opened.settimeout(max((end - time.monotonic()) / (len(found) - number), 0.01))
                opened.connect(place)
            except OSError as error:
                failed = error
                if opened is not None:
                    opened.close()
            else:
                opened.settimeout(timeout_s)
                self.sock = opened
                return opened
        raise failed

    @contextlib.contextmanager
    def _within(self, limit_s: float) -> Iterator[None]:
        """The time-out of a socket is for each read of it: a server or a proxy could send a head letter by
        letter, or "100 Continue" again and again, and keep us for ever. Raises TimeoutError."""
        too_late = threading.Event()

        def end() -> None:
            too_late.set()
            if self.sock is not None:
                _shut(self.sock)

        watch = threading.Timer(limit_s, end)
        watch.daemon = True
        watch.start()
        try:
            yield
        except (OSError, http.client.HTTPException, ValueError):
            if too_late.is_set():
                raise TimeoutError from None
            raise
        finally:
            watch.cancel()
        if too_late.is_set():  # http.client takes a head that breaks off for one that ends
            raise TimeoutError

    def stale(self) -> bool:
        """Whether the other side has closed it, or talks out of turn."""
        if self.raw.sock is None:
            return True
        poll = select.poll()
        poll.register(self.raw.sock, select.POLLIN)
        return bool(poll.poll(0))

    def send(self, method: str, url: Url, headers: Mapping[str, str], body: Body) -> http.client.HTTPResponse:
        plain_proxy = self._proxy is not None and url.scheme == "http"
        self.raw.putrequest(
            method, str(url) if plain_proxy else url.target, skip_host=True, skip_accept_encoding=True
        )
        extra = self._for_proxy() if plain_proxy else {}
        if isinstance(body, bytes) or (body is None and method in ("POST", "PUT")):
            extra["Content-Length"] = str(len(body or b""))
        # Blobs are named by the digest of their bytes as they are: no one may compress them on the way.
        fixed = {"Host": url.authority, "User-Agent": _AGENT, "Accept-Encoding": "identity"}
        for name, value in {**fixed, **extra, **headers}.items():
            self.raw.putheader(name, value)
        try:
            self.raw.endheaders(body if isinstance(body, bytes) else None)
            if body is not None and not isinstance(body, bytes):
                for chunk in _content(body):
                    self.raw.send(chunk)
        except (BrokenPipeError, ConnectionResetError):
            # A server that refuses a body answers before it has read it all, and closes: hear its reason.
            with contextlib.suppress(OSError, http.client.HTTPException):
                return self._hear(self.options.read_timeout_s)
            raise
        size = 0 if body is None or isinstance(body, bytes) else int(headers.get("Content-Length", 0))
        return self._hear(self.options.read_timeout_s * min(1 + size / _STORED_BYTES, _STORING))

    def _hear(self, limit_s: float) -> http.client.HTTPResponse:
        """Read the head of the answer."""
        connected = self.sock
        assert connected is not None
        connected.settimeout(limit_s)
        with self._within(2 * limit_s):
            answer = self.raw.getresponse()
        connected.settimeout(self.options.read_timeout_s)
        return answer


class Transport:
    """All connections of one pull or push; any number of threads may use it."""

    def __init__(self, options: Options) -> None:
        self.options = self._given = options
        self._lock = threading.Lock()
        self._idle: dict[str, list[_Connection]] = {}
        self._busy: set[_Connection] = set()
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._secrets: set[str] = set()
        self._reached: set[str] = set()
        self._closed = threading.Event()

    def share(self, places: int) -> None:
        """From now on so many places have together the time that one has to answer."""
        self.options = dataclasses.replace(
            self._given,
            connect_timeout_s=self._given.connect_timeout_s / places,
            read_timeout_s=self._given.read_timeout_s / places,
        )

    def send(self, method: str, url: Url, headers: Mapping[str, str], body: Body = None) -> Response:
        """Send one request and read the head of its answer. Raises Broken, ImageError, UsageError."""
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
                    continue  # closed as we wrote: nothing was done there, and nothing is wrong
                raise self.explained(error, url, way=connection.way, connecting=connecting) from None
            except _ContentError as error:
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
        """Never let these stand in a message."""
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

    def keep(self, connection: _Connection) -> None:
        with self._lock:
            self._busy.discard(connection)
            if connection.raw.sock is not None and not self._closed.is_set():
                self._idle.setdefault(connection.url.origin, []).append(connection)
                return
        connection.raw.close()

    def drop(self, connection: _Connection) -> None:
        with self._lock:
            self._busy.discard(connection)
        connection.raw.close()

    def close(self) -> None:
        """End everything: who is reading in another thread gets Broken at once."""
        self._closed.set()
        with self._lock:
            idle = [connection for kept in self._idle.values() for connection in kept]
            self._idle.clear()
            busy = list(self._busy)
        for connection in idle:
            connection.raw.close()
        for connection in busy:
            if connection.sock is not None:
                _shut(connection.sock)

    def explained(self, error: Exception, url: Url, *, way: str = "", connecting: bool = False) -> Exception:
        """What a failure of the connection is for the layers above."""
        if self._closed.is_set():
            return Closed("closed")
        return failure.explained(
            error, url, way=way or url.authority, connecting=connecting, known=url.origin in self._reached
        )

    def _take(self, url: Url) -> _Connection:
        if self._closed.is_set():
            raise Closed("closed")
        while True:
            with self._lock:
                kept = self._idle.get(url.origin)
                connection = kept.pop() if kept else None
                if connection is not None:
                    self._busy.add(connection)
            if connection is None:
                connection = _Connection(url, self.options, self._context(url))
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
        from bareboat.images.registry import tls  # 5 ms that plain HTTP does not need

        with self._lock:
            if url.origin not in self._contexts:
                self._contexts[url.origin] = tls.context(url, self.options)
            return self._contexts[url.origin]


def _shut(connected: socket.socket) -> None:
    """End a connection that another thread waits in: close() would not wake it."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connected, socket.SHUT_RDWR)  # not SSLSocket's, which takes TLS away first


class _ContentError(Exception):
    """What is to be sent cannot be read: that is no failure of the network."""

    def __init__(self, cause: Exception) -> None:
        super().__init__()
        self.cause = cause


def _content(body: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    try:
        yield from body
    except Exception as error:
        raise _ContentError(error) from error
