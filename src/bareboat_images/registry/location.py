"""URLs, registries and mirrors, parsed once and strictly.

Source: RFC 3986 (URI), https://www.rfc-editor.org/rfc/rfc3986
"""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

from msgspec import Struct

from bareboat_base.errors import UsageError
from bareboat_base.expressions import expression

#: Docker Hub has one name, serves its API under a second and stores credentials under a third.
DOCKER_HUB = "docker.io"
_DOCKER_HUB_HOST = "registry-1.docker.io"

_PORTS = {"http": 80, "https": 443}
_AUTHORITY = expression(
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)(:(?P<port>\d{1,5}))?"
)
_PRINTABLE = expression(r"[!-~]*")


class Url(Struct, frozen=True, kw_only=True):
    """An absolute HTTP URL. `target`: its path with the query, which may contain secrets: only `origin` and
    `path` are for messages."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """Host and port as in a Host header: without the scheme's default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    def __str__(self) -> str:
        return self.origin + self.target

    def __repr__(self) -> str:
        return f"Url({self.origin}{self.path})"

    def at(self, path: str) -> Url:
        """A URL below this one; `path` begins with a slash and is already quoted."""
        target = self.target.rstrip("/") + path
        return Url(scheme=self.scheme, host=self.host, port=self.port, target=target)

    def joined(self, location: str) -> Url:
        """The URL of a Location header, relative to this one. Raises ValueError if it is not an HTTP URL."""
        return parse_url(urljoin(str(self), location))


def parse_url(text: str) -> Url:
    """Parse an absolute URL. Raises ValueError, which repeats nothing of the text, for any other.

    A user name and password in it are refused: they would end up in logs, and a server must not choose the
    user's log-in.
    """
    if not _PRINTABLE.fullmatch(text):
        raise ValueError("it holds characters that no URL may")
    parts = urlsplit(text)
    found = _AUTHORITY.fullmatch(parts.netloc)
    if parts.scheme not in _PORTS or found is None:
        raise ValueError("it is not an http or https URL of a host")
    port = int(found["port"] or _PORTS[parts.scheme])
    if not 0 < port < 65536:
        raise ValueError("its port is out of range")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Url(scheme=parts.scheme, host=found["host"].strip("[]").lower(), port=port, target=target)


def registry_url(registry: str, *, plain_http: bool) -> Url:
    """The URL of the registry with this name. Raises UsageError if it is not a host name."""
    if not _AUTHORITY.fullmatch(registry):
        raise UsageError(
            f"{registry!r} is not the name of a registry", remedy="write HOST or HOST:PORT, such as quay.io"
        )
    host = _DOCKER_HUB_HOST if registry == DOCKER_HUB else registry
    try:
        return parse_url(f"{'http' if plain_http else 'https'}://{host}/")
    except ValueError as error:
        raise UsageError(
            f"{registry!r} is not the name of a registry: {error}",
            remedy="write HOST or HOST:PORT, such as quay.io",
        ) from None


def is_loopback(host: str) -> bool:
    """Whether the host can only be this machine: no name except localhost is resolved."""
    if host == "localhost":
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def log_in_name(authority: str) -> str:
    """The name of the registry at this authority, as users write it."""
    return DOCKER_HUB if authority == _DOCKER_HUB_HOST else authority


def mirror_url(mirror: str) -> Url:
    """The URL of a mirror, `[http://]HOST[:PORT][/PREFIX]`; the prefix precedes each repository's name, as
    proxy projects require. Raises UsageError."""
    try:
        return parse_url(mirror if "://" in mirror else f"https://{mirror}")
    except ValueError as error:
        shown = mirror.rpartition("@")[2]  # omit a password before the @
        raise UsageError(
            f"{shown!r} is not a mirror: {error}",
            remedy="write HOST, HOST:PORT or HOST/PREFIX; http:// before it for plain HTTP",
        ) from None
