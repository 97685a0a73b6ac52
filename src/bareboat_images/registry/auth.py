"""Authorization: parses a registry's challenges, and obtains the tokens that they require.

Source: RFC 9110 section 11 (challenges), https://distribution.github.io/distribution/spec/auth/token/ and
https://distribution.github.io/distribution/spec/auth/oauth/ (token services)
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from msgspec import Struct

from bareboat_base.errors import ImageError
from bareboat_base.expressions import expression
from bareboat_images.registry import credentials
from bareboat_images.registry.credentials import Credential, Search
from bareboat_images.registry.exchange import Request, excerpt, exchange, writes
from bareboat_images.registry.failure import Broken
from bareboat_images.registry.http import Response, Transport
from bareboat_images.registry.location import DOCKER_HUB, Url, parse_url

_LARGEST_ANSWER = 1 << 20
#: Servers refuse longer headers.
_LONGEST_TOKEN = 1 << 15
_LONGEST_LIFE_S = 86400.0
#: The lifetime of a token when its service does not state one, by the specification.
_DEFAULT_LIFE_S = 60.0
#: A token is replaced when this share of its lifetime is left, so that it does not expire in transit.
_MARGIN = 0.1

_TOKEN_CHARACTERS = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER = expression(rf'\s*({_TOKEN_CHARACTERS})\s*=\s*("((?:[^"\\]|\\.)*)"|[^\s,"]+)\s*')
_SCHEME = expression(rf"[\s,]*({_TOKEN_CHARACTERS})(?=\s|,|$)")
#: Characters that a header can carry (RFC 6750 allows fewer, but services use others).
_BEARER = expression(r"[!-~]+")


class Challenge(Struct, frozen=True, kw_only=True):
    """One authentication method that a server offers: a scheme, in lower case, and its parameters."""

    scheme: str
    parameters: dict[str, str]


def challenges(headers: Sequence[str]) -> tuple[Challenge, ...]:
    """Parse WWW-Authenticate headers. Unknown parts are ignored."""
    found = []
    for header in headers:
        at = 0
        while scheme := _SCHEME.match(header, at):
            at = scheme.end()
            parameters = {}
            while parameter := _PARAMETER.match(header, at):
                name, word, quoted = parameter.groups()
                parameters[name.lower()] = word if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
                at = parameter.end()
                if header[at : at + 1] == ",":
                    at += 1
            found.append(Challenge(scheme=scheme[1].lower(), parameters=parameters))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    header: str = field(repr=False)
    ends_at: float  # of the monotonic clock, so that setting the clock does not expire tokens


class Denied(Exception):
    """The registry, or its token service, denies access. The text is its message."""


class Authorizer:
    """Authorizes one user at one registry. Thread-safe."""

    def __init__(
        self, *, registry: str, repository: str, url: Url, transport: Transport, anonymous: bool = False
    ) -> None:
        self._registry = registry
        self._repository = repository
        self._url = url
        self._transport = transport
        self._anonymous = anonymous
        self._lock = threading.Lock()
        self._search: Search | None = None
        self._basic: str | None = None
        self._tokens: dict[tuple[str, ...], _Token] = {}

    def header(self, scopes: tuple[str, ...]) -> str | None:
        """The Authorization header for a request, if one is known already."""
        if self._basic is not None:
            return self._basic
        token = self._tokens.get(scopes)
        return token.header if token is not None and time.monotonic() < token.ends_at else None

    def answer(self, response: Response, scopes: tuple[str, ...], *, refused: str | None) -> str:
        """The Authorization header that a 401 requires, kept for later requests. `refused`: the one that was
        refused.

        Raises Denied, and ImageError when the token service cannot be reached.
        """
        offered = challenges(response.headers.get_all("WWW-Authenticate") or [])
        said = excerpt(response)
        with self._lock:
            newer = self.header(scopes)
            if newer is not None and newer != refused:
                return newer  # another thread was faster
            by_scheme = {challenge.scheme: challenge for challenge in reversed(offered)}
            if "bearer" in by_scheme:
                self._basic = None
                self._tokens[scopes] = self._token(by_scheme["bearer"].parameters, scopes)
                return self._tokens[scopes].header
            if "basic" in by_scheme and refused is None and (known := self._credential()) is not None:
                if not known.password:
                    raise Denied("it takes no identity token, only a password")
                self._basic = f"Basic {known.basic}"
                return self._basic
            raise Denied(said)

    def tried(self) -> str:
        """The log-in that was used, for messages: a user name and a file, never a secret."""
        if self._anonymous:
            return "no log-in was sent: none is sent over plain HTTP unless --plain-http is given"
        with self._lock:
            self._credential()
            search = self._search
        assert search is not None
        known = search.credential
        if known is None:
            looked = f" (none in {', '.join(search.looked)})" if search.looked else ""
            return "; ".join((f"no log-in was sent{looked}", *search.failures))
        user = "the identity token" if known.identity_token else f"user {known.user!r}"
        return f"the log-in was {user} of {known.origin}"

    def remedy(self) -> str:
        """How to log in to this registry."""
        if self._registry == "nvcr.io":
            return "export NGC_API_KEY=…   # or: podman login --username '$oauthtoken' nvcr.io"
        if self._registry == DOCKER_HUB:
            return "podman login docker.io   # or: docker login; and check that the name is right"
        shown = self._registry
        return f"podman login {shown}   # or: docker login {shown}; and check that the name is right"

    def _credential(self) -> Credential | None:
        """Searched for once, and only when a registry requires it: helpers are slow."""
        if self._anonymous:
            return None
        if self._search is None:
            self._search = credentials.find(
                self._registry, self._repository, self._transport.options.environment
            )
            for failure in self._search.failures:
                self._transport.options.say(f"{failure}; going on without it")
            if (known := self._search.credential) is not None:
                self._transport.hide(known.password, known.identity_token, known.basic)
        return self._search.credential

    def _token(self, parameters: dict[str, str], scopes: tuple[str, ...]) -> _Token:
        realm = self._realm(parameters)
        # Prefer the challenge's scope, but it may not include write access yet.
        offered = parameters.get("scope")
        wanted = tuple(dict.fromkeys((offered, *(scopes if writes(scopes) else ())))) if offered else scopes
        known = self._credential()
        fields = [("service", parameters["service"])] if "service" in parameters else []
        asked_at = time.monotonic()
        subject = f"a token for {self._registry}/{self._repository}"
        if known is not None and known.identity_token:
            form = [
                ("grant_type", "refresh_token"),
                *fields,
                ("client_id", "bareboat"),
                ("scope", " ".join(wanted)),
                ("refresh_token", known.identity_token),
            ]
            request = Request(
                method="POST",
                url=realm,
                subject=subject,
                headers={"Content-Type": "application/x-www-form-urlencoded"},
                body=urlencode(form).encode(),
            )
        else:
            query = urlencode([*fields, *(("scope", scope) for scope in wanted)])
            target = realm.target + ("&" if "?" in realm.target else "?") + query
            request = Request(
                method="GET",
                url=Url(scheme=realm.scheme, host=realm.host, port=realm.port, target=target),
                subject=subject,
                authorization=None if known is None else f"Basic {known.basic}",
            )
        response = exchange(self._transport, request)
        if response.status in (400, 401, 403, 404):
            raise Denied(excerpt(response))
        if response.status != 200:
            raise self._no_token(response, f"it answers {response.status}", excerpt(response))
        with response:
            try:
                data = response.read(_LARGEST_ANSWER)
            except (Broken, ValueError) as error:
                raise self._no_token(response, str(error)) from None
        return self._read(data, response, asked_at)

    def _realm(self, parameters: dict[str, str]) -> Url:
        try:
            realm = parse_url(parameters.get("realm", ""))
        except ValueError as error:
            raise ImageError(
                f"{self._registry} names a token service that cannot be asked: {error}",
                remedy="the registry is misconfigured; contact its administrator",
            ) from None
        if realm.scheme == "http" and self._url.scheme == "https":
            raise ImageError(
                f"{self._registry} names a token service over plain HTTP ({realm.authority}), "
                "where anyone on the way could read the log-in",
                remedy="the registry is misconfigured; contact its administrator",
            )
        return realm

    def _read(self, data: bytes, response: Response, asked_at: float) -> _Token:
        try:
            answer = json.loads(data)
            value = answer.get("token") or answer.get("access_token")
            life_s = float(answer.get("expires_in") or _DEFAULT_LIFE_S)
            if life_s != life_s:
                life_s = _DEFAULT_LIFE_S
        except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            raise self._no_token(response, "its answer is not understood") from None
        if not isinstance(value, str) or not _BEARER.fullmatch(value) or len(value) > _LONGEST_TOKEN:
            raise self._no_token(response, "its answer holds no token")
        self._transport.hide(value)
        life_s = min(life_s, _LONGEST_LIFE_S)
        return _Token(header=f"Bearer {value}", ends_at=asked_at + life_s * (1 - _MARGIN))

    def _no_token(self, response: Response, reason: str, said: str = "") -> ImageError:
        return ImageError(
            f"{response.url.authority} gives no token for {self._registry}/{self._repository}: {reason}",
            context=said,
            remedy="try again later; if the error persists, the registry is misconfigured",
        )
