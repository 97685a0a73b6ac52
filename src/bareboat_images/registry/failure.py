"""Classifies connection errors: Broken if a retry may succeed, else an ImageError.

Neither message contains a header, a query or a password.
"""

from __future__ import annotations

import http.client
import socket

from bareboat_base.errors import ImageError
from bareboat_images.registry.location import Url

#: OpenSSL's errors for a response that is not TLS: the first bytes of plain HTTP, read as a TLS record.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")


class Broken(Exception):
    """A network failure that a retry may fix. `unreached`: no server was reached."""

    def __init__(self, reason: str, *, unreached: bool = False) -> None:
        super().__init__(reason)
        self.unreached = unreached


class NotTls(ImageError):
    """The server does not support TLS. `origin`: of the URL."""

    origin = ""


class Closed(Broken):
    """The transport was closed on purpose: do not retry."""


def explained(error: Exception, url: Url, *, way: str, connecting: bool, known: bool) -> Exception:
    """A Broken or an ImageError for an exception of the socket, TLS or HTTP.

    `way`: the destination, for messages; `known`: the server has answered before, so it may be restarting,
    and
    deserves more retries than a mistyped name.
    """
    unreached = connecting and not known
    match error:
        case TimeoutError() if connecting:
            return Broken(f"{way} does not answer", unreached=unreached)
        case TimeoutError():
            return Broken(f"{way} has sent nothing for too long")
        case socket.gaierror():
            told = (error.strerror or "").lower()
            return Broken(f"the host name {way} cannot be resolved: {told}", unreached=unreached)
        case ConnectionRefusedError():
            return Broken(f"{way} refuses the connection", unreached=unreached)
        case http.client.IncompleteRead():
            missing = f"{error.expected:,} bytes" if error.expected else "some bytes"
            return Broken(f"{way} closed the connection {missing} early")
        case http.client.RemoteDisconnected():
            return Broken(f"{way} closed the connection without an answer")
        case http.client.BadStatusLine() if url.scheme == "http" and "\x15\x03" in str(error):
            return speaks_tls(url)
        case http.client.HTTPException():
            return Broken(f"{way} answers what is not HTTP ({type(error).__name__})")
        case OSError() if (tunnel := str(error)).startswith("Tunnel connection failed"):
            return _tunnel(tunnel, way)
        case OSError() if connecting and (final := _handshake(error, url)) is not None:
            return final
        case OSError():
            return Broken(f"{way}: {(error.strerror or str(error)).lower()}", unreached=unreached)
        case _:
            return Broken(f"the connection to {way} was lost")


def _handshake(error: OSError, url: Url) -> ImageError | None:
    """Errors that no retry fixes: certificates, versions, a response that is not TLS; else None."""
    if url.scheme != "https":
        return None
    import ssl  # 5 ms that plain HTTP does not need

    if not isinstance(error, ssl.SSLError) or isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        return ImageError(
            f"the certificate of {url.authority} is not trusted: {error.verify_message}",
            remedy="if its authority is your site's own: --ca-file FILE, or SSL_CERT_FILE=FILE "
            "with the authority's certificate in PEM",
        )
    if any(word in (error.reason or str(error)) for word in _NOT_TLS):
        found = NotTls(
            f"{url.authority} does not use TLS, but probably plain HTTP",
            context=error.reason or "",
            remedy="on a trusted network: --plain-http",
        )
        found.origin = url.origin
        return found
    return ImageError(
        f"no secure connection to {url.authority} can be made: {error.reason or error}",
        remedy="ask whoever runs it; TLS 1.2 or newer is needed",
    )


def speaks_tls(url: Url) -> ImageError:
    """The error for a plain HTTP request to a server that requires TLS."""
    return ImageError(
        f"{url.authority} uses TLS, but the request was plain HTTP", remedy="remove --plain-http"
    )


def _tunnel(text: str, where: str) -> Exception:
    status = text.removeprefix("Tunnel connection failed:").split()[:1]
    if status == ["407"]:
        return ImageError(
            f"{where}: the proxy requires a user name and password",
            remedy="export HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT",
        )
    if status and status[0].startswith("5"):
        return Broken(f"{where}: the proxy answers {status[0]}")
    return ImageError(
        f"{where}: the proxy refuses to connect ({' '.join(status)})",
        remedy="if no proxy is needed for it, name the host in NO_PROXY",
    )
