"""Requests to one repository of one registry, and the meaning of refusals.

Source: OCI Distribution Specification 1.1, https://github.com/opencontainers/distribution-spec
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from msgspec import structs

from bareboat_base.errors import ImageError
from bareboat_images.registry.connection import Body
from bareboat_images.registry.exchange import Request, excerpt, exchange, writes
from bareboat_images.registry.failure import Broken, NotTls, speaks_tls
from bareboat_images.registry.http import Response, Transport
from bareboat_images.registry.location import Url, is_loopback

if TYPE_CHECKING:
    from bareboat_images.registry.auth import Authorizer

_NONE: Mapping[str, str] = {}


class Missing(ImageError):
    """The registry does not have the requested content: it answers 404."""


class Endpoint:
    """A repository at a URL. `registry`: the name under which log-ins are stored; `name`: the image's name in
    messages."""

    def __init__(self, *, registry: str, repository: str, url: Url, name: str, transport: Transport) -> None:
        self.name = name
        self.url = url
        self.transport = transport
        self._registry = registry
        # A mirror's prefix is part of the repository's name there.
        self._full = "/".join(part for part in (url.path.strip("/"), repository) if part)
        self._base = Url(scheme=url.scheme, host=url.host, port=url.port, target="/")
        self._anonymous = False
        self._authorizer: Authorizer | None = None
        self._lock = threading.Lock()

    def scope(self, actions: str) -> str:
        """The scope of a token: `pull` or `pull,push` of this repository."""
        return f"repository:{self._full}:{actions}"

    def place(self, path: str) -> Url:
        """The URL of a path in the repository; `path` begins with a slash and is already quoted."""
        return self._base.at(f"/v2/{quote(self._full)}{path}")

    def ask(
        self,
        method: str,
        where: str | Url,
        *,
        subject: str,
        scopes: tuple[str, ...] = (),
        headers: Mapping[str, str] = _NONE,
        body: Body = None,
        accepted: tuple[int, ...] = (200,),
    ) -> Response:
        """Send a request, logging in if necessary. `where`: a path in the repository, or a URL from the
        registry.

        Raises Missing for a 404 that is not accepted, ImageError for every other refusal.
        """
        scopes = scopes or (self.scope("pull"),)
        while True:
            request = Request(
                method=method,
                url=self.place(where) if isinstance(where, str) else where,
                subject=subject,
                headers=headers,
                body=body,
                once=body is not None and not isinstance(body, bytes),
            )
            try:
                return self._ask(request, scopes, accepted)
            except NotTls as error:
                if error.origin != self._base.origin or not is_loopback(self._base.host):
                    raise
            self._use_plain_http()

    def _use_plain_http(self) -> None:
        """Switch to plain HTTP. On this machine nobody can intercept the traffic, so no option is required.
        But any user may listen on the port: no log-in is sent."""
        with self._lock:
            if self._base.scheme == "https":
                self._base = structs.replace(self._base, scheme="http")
                self.url = structs.replace(self.url, scheme="http")
                self._anonymous, self._authorizer = True, None
                self.transport.options.say(
                    f"{self.url.authority} does not use TLS: plain HTTP on this machine, without a log-in"
                )

    def _ask(self, request: Request, scopes: tuple[str, ...], accepted: tuple[int, ...]) -> Response:
        own = request.url.origin == self._base.origin
        authorization = self._authorizer.header(scopes) if own and self._authorizer is not None else None
        for fresh in (False, True):
            response = exchange(self.transport, replace(request, authorization=authorization))
            if response.status in accepted:
                return response
            if response.status != 401 or response.url.origin != self._base.origin:
                raise self._refused(response, request.subject, scopes)
            if fresh:  # refused with new credentials: retrying would not end
                break
            authorization = self._log_in(response, scopes, authorization, request.subject)
            if request.once:
                raise Unsent("the registry asks for a new log-in") from None
        raise self._denied(request.subject, excerpt(response), scopes)

    def _log_in(self, response: Response, scopes: tuple[str, ...], refused: str | None, subject: str) -> str:
        from bareboat_images.registry.auth import Denied

        try:
            return self._authority().answer(response, scopes, refused=refused)
        except Denied as denied:
            raise self._denied(subject, str(denied), scopes) from None

    def _authority(self) -> Authorizer:
        """The authorizer, created on first use: public images are available some milliseconds sooner."""
        from bareboat_images.registry.auth import Authorizer

        with self._lock:
            if self._authorizer is None:
                self._authorizer = Authorizer(
                    registry=self._registry,
                    repository=self._full,
                    url=self._base,
                    transport=self.transport,
                    anonymous=self._anonymous,
                )
            return self._authorizer

    def _denied(self, subject: str, said: str, scopes: tuple[str, ...]) -> ImageError:
        tried = self._authority().tried()
        if writes(scopes):
            message = f"{self._registry} does not let us write {subject}"
        else:
            message = f"{self._registry} refuses {subject}: it is private, or it does not exist"
        return ImageError(
            message,
            context="; ".join(part for part in (tried, said and f"the registry's message: {said}") if part),
            remedy=self._authority().remedy(),
        )

    def _refused(self, response: Response, subject: str, scopes: tuple[str, ...]) -> ImageError:
        status, who = response.status, response.url.authority
        own = response.url.origin == self._base.origin
        said = excerpt(response)
        if status == 403 and own:
            return self._denied(subject, said, scopes)
        if status == 404:
            return Missing(
                f"{who} has no {subject}", context=said, remedy="check the name and the tag of the image"
            )
        if status == 400 and response.url.scheme == "http" and "HTTPS server" in said:
            return speaks_tls(response.url)
        where = who if own else f"{who}, where {self._registry} keeps its content,"
        return ImageError(
            f"{subject} cannot be {'written' if writes(scopes) else 'had'}: {where} answers {status}",
            context=said,
            remedy="try again later; if the error persists, contact the registry's administrator",
        )


class Unsent(Broken):
    """A body that cannot be read twice was refused for lack of a log-in, which is available now."""
