"""One connection to a registry: HTTP/1.1 over TLS and proxies, with a limit for every wait.

Source: RFC 9112 (HTTP/1.1), https://www.rfc-editor.org/rfc/rfc9112
"""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bareboat_base import __version__
from bareboat_base.errors import UsageError
from bareboat_images.registry.location import Url
from bareboat_images.registry.options import Options

if TYPE_CHECKING:
    import ssl

Body = bytes | Iterable[bytes | memoryview] | None
"""What is sent with a request. Only bytes can be sent again."""

#: The registry stores a body before it answers: the time-out is added once more per this many bytes, up to
#: `_STORING` times in total.
_STORED_BYTES = 1 << 30
_STORING = 10
_AGENT = f"bareboat/{__version__}"


class Connection:
    """One connection to the origin of a URL, directly or through a proxy."""

    def __init__(self, url: Url, options: Options, context: ssl.SSLContext | None) -> None:
        self.url = url
        self.used = False
        self.sock: socket.socket | None = None
        self.options = options
        self._proxy = choose_proxy(url, options.environment)
        host, port = (self._proxy.host, self._proxy.port) if self._proxy else (url.host, url.port)
        timeout_s = options.connect_timeout_s
        self.raw: http.client.HTTPConnection
        if url.scheme == "https":
            self.raw = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
            if self._proxy:
                self.raw.set_tunnel(url.host, url.port, headers=self._for_proxy())
        else:
            self.raw = http.client.HTTPConnection(host, port, timeout=timeout_s)
        # Otherwise each address of the host would get the whole time-out.
        self.raw._create_connection = self._open  # type: ignore[attr-defined]

    @property
    def way(self) -> str:
        """The destination, with the proxy, for messages."""
        return f"{self.url.authority} through the proxy {self._proxy}" if self._proxy else self.url.authority

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not appear in messages."""
        return tuple(value.partition(" ")[2] for value in self._for_proxy().values())

    def _for_proxy(self) -> dict[str, str]:
        known = self._proxy.authorization if self._proxy else None
        return {"Proxy-Authorization": known} if known else {}

    def connect(self) -> None:
        with self._within(2 * self.options.connect_timeout_s):
            self.raw.connect()
        self.sock = self.raw.sock  # http.client drops it when the server will close
        self.sock.settimeout(self.options.read_timeout_s)

    def _open(self, address: tuple[str, int], timeout_s: float, _source: object) -> socket.socket:
        """A socket to the first address of a host that accepts; the time-out is for all of them together."""
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
        """Limit the total time of reads. A socket's time-out is per read: a server or a proxy could send a
        header byte by byte, or "100 Continue" repeatedly, and block forever. Raises TimeoutError."""
        too_late = threading.Event()

        def end() -> None:
            too_late.set()
            if self.sock is not None:
                shut(self.sock)

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
        if too_late.is_set():  # http.client accepts a truncated header as complete
            raise TimeoutError

    def stale(self) -> bool:
        """Whether the other side has closed it, or has sent unexpected data."""
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
        # Blobs are identified by the digest of their exact bytes: they must not be compressed in transit.
        fixed = {"Host": url.authority, "User-Agent": _AGENT, "Accept-Encoding": "identity"}
        for name, value in {**fixed, **extra, **headers}.items():
            self.raw.putheader(name, value)
        try:
            self.raw.endheaders(body if isinstance(body, bytes) else None)
            if body is not None and not isinstance(body, bytes):
                for chunk in _content(body):
                    self.raw.send(chunk)
        except (BrokenPipeError, ConnectionResetError):
            # A server that refuses a body answers before it has read it all, and closes: read its reason.
            with contextlib.suppress(OSError, http.client.HTTPException):
                return self._hear(self.options.read_timeout_s)
            raise
        size = 0 if body is None or isinstance(body, bytes) else int(headers.get("Content-Length", 0))
        return self._hear(self.options.read_timeout_s * min(1 + size / _STORED_BYTES, _STORING))

    def _hear(self, limit_s: float) -> http.client.HTTPResponse:
        """Read the status line and headers of the response."""
        connected = self.sock
        assert connected is not None
        connected.settimeout(limit_s)
        with self._within(2 * limit_s):
            answer = self.raw.getresponse()
        connected.settimeout(self.options.read_timeout_s)
        return answer


def shut(connected: socket.socket) -> None:
    """Shut down a connection on which another thread blocks: close() would not wake that thread."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connected, socket.SHUT_RDWR)  # not SSLSocket's, which removes TLS first


class ContentError(Exception):
    """The content to send cannot be read: not a network failure."""

    def __init__(self, cause: Exception) -> None:
        super().__init__()
        self.cause = cause


def _content(body: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    try:
        yield from body
    except Exception as error:
        raise ContentError(error) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """An HTTP proxy; `authorization`: the value of its Proxy-Authorization header, a secret."""

    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def choose_proxy(url: Url, environment: Mapping[str, str]) -> Proxy | None:
    """The proxy for a URL from the environment, like curl and Go programs; None for a direct connection.
    Raises UsageError for an unusable one.
    https://pkg.go.dev/golang.org/x/net/http/httpproxy, https://curl.se/docs/manpage.html"""
    variable = next(
        (name for name in (f"{url.scheme.upper()}_PROXY", f"{url.scheme}_proxy", "ALL_PROXY", "all_proxy")
         if environment.get(name)),
        None,
    )  # fmt: skip
    if variable is None or _straight(url, environment.get("NO_PROXY") or environment.get("no_proxy") or ""):
        return None
    return _proxy_of(environment[variable], variable)


def _straight(url: Url, exceptions: str) -> bool:
    """Whether to connect directly: to this machine itself, and to hosts in NO_PROXY."""
    if url.host == "localhost" or url.host == "::1" or url.host.startswith("127."):
        return True
    for entry in exceptions.replace(",", " ").split():
        name, _, port = entry.rpartition(":") if entry.rpartition(":")[2].isdigit() else (entry, "", "")
        if ":" in name and not name.startswith("["):  # an IPv6 address without a port
            name, port = entry, ""
        if port and int(port) != url.port:
            continue
        if name == "*" or _names(name.strip("[]").lower(), url.host):
            return True
    return False


def _names(entry: str, host: str) -> bool:
    if host[-1].isdigit() or ":" in host:  # an address: no domain ends in a digit
        return _holds(entry, host)
    domain = entry.removeprefix("*").removeprefix(".")
    return bool(domain) and (host == domain or host.endswith("." + domain))


def _holds(entry: str, host: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return entry == host


def _proxy_of(text: str, variable: str) -> Proxy:
    from base64 import b64encode
    from urllib.parse import unquote, urlsplit

    unusable = UsageError(
        f"the proxy that {variable} names cannot be used",
        context="its value is not repeated here, because it may hold a password",
        remedy=f"export {variable}=http://HOST:PORT   # or with a log-in: http://USER:PASSWORD@HOST:PORT",
    )
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise unusable from None
    if not host:
        raise unusable
    if parts.scheme != "http":
        raise UsageError(
            f"{variable} names a proxy with the scheme {parts.scheme}, which is not supported",
            remedy=f"export {variable}=http://HOST:PORT   # an HTTP proxy; what goes through it may be HTTPS",
        )
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + b64encode(pair.encode()).decode()
    return Proxy(host=host, port=port or 80, authorization=authorization)
