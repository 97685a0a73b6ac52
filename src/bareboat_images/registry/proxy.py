"""Chooses the proxy for a host from the environment, like curl and Go programs.

Source: https://pkg.go.dev/golang.org/x/net/http/httpproxy, https://curl.se/docs/manpage.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bareboat_base.errors import UsageError
from bareboat_images.registry.location import Url


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """An HTTP proxy; `authorization`: the value of its Proxy-Authorization header, a secret."""

    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def choose(url: Url, environment: Mapping[str, str]) -> Proxy | None:
    """The proxy for a URL, or None for a direct connection. Raises UsageError for an unusable one."""
    variable = next(
        (name for name in (f"{url.scheme.upper()}_PROXY", f"{url.scheme}_proxy", "ALL_PROXY", "all_proxy")
         if environment.get(name)),
        None,
    )  # fmt: skip
    if variable is None or _straight(url, environment.get("NO_PROXY") or environment.get("no_proxy") or ""):
        return None
    return _read(environment[variable], variable)


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


def _read(text: str, variable: str) -> Proxy:
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
