"""One complete request: follows redirects, retries after failures, and waits as the server requests.

Source: RFC 9110 (HTTP Semantics), https://www.rfc-editor.org/rfc/rfc9110
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from bareboat_base.errors import ImageError
from bareboat_base.printable import one_line, plain
from bareboat_images.registry.connection import Body
from bareboat_images.registry.failure import Broken, Closed
from bareboat_images.registry.http import Response, Transport
from bareboat_images.registry.location import Url, log_in_name
from bareboat_images.registry.options import Options

_MOST_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_TOO_MANY = 429
#: Status codes of a busy or restarting server; 408 and 425 explicitly request a retry.
_PASSING = (408, 425, 500, 502, 503, 504)
#: An unknown name, or a closed port, usually stays so.
_TRIES_UNREACHED = 3
_LONGEST_EXCERPT = 300
#: In read time-outs: a failure this long after the last progress is final, so that a silent or very slow
#: server costs at most two time-outs.
_LONGEST_SILENCE = 1.4
#: More than any allowed wait; larger values of Retry-After make no difference.
_LONGEST_RETRY_S = 10.0**9
_LONGEST_HEADER = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request. `authorization` is sent only to the origin of `url`; `subject`: the name of the content in
    messages. With `once` it is not retried: the caller gets the failure."""

    method: str
    url: Url
    subject: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body = field(default=None, repr=False)
    authorization: str | None = field(default=None, repr=False)
    once: bool = False


class Patience:
    """Limits retries, in number and time, for one item. `subject`: its name in messages."""

    def __init__(self, transport: Transport, subject: str) -> None:
        self._transport = transport
        self._options: Options = transport.options
        self._subject = subject
        self._failures = 0
        self._waited_s = 0.0
        self._progress_at = time.monotonic()

    def progressed(self) -> None:
        self._failures = 0
        self.heard(time.monotonic())

    def heard(self, at_s: float) -> None:
        """Note that data was moving until then, which may have been in vain."""
        self._progress_at = max(self._progress_at, at_s)

    def after(self, broken: Broken) -> None:
        """Pause before another try. Raises ImageError when the limit is reached."""
        if isinstance(broken, Closed):
            raise ImageError(f"{self._subject}: the transfer was cancelled") from None
        self._failures += 1
        most = self._options.attempts
        if broken.unreached:
            most = min(most, _TRIES_UNREACHED)
        silence_s = time.monotonic() - self._progress_at - self._waited_s
        if self._failures >= most or silence_s > _LONGEST_SILENCE * self._options.read_timeout_s:
            raise ImageError(
                f"{self._subject} is not available: {broken}",
                context=f"{self._failures} tries in {silence_s:.0f} s without progress",
                remedy=_REACH if broken.unreached else "try again: what has been transferred is kept",
            ) from None
        pause_s = self._backoff_s()
        self._options.say(f"{broken}; trying again in {pause_s:.1f} s")
        self._pause(pause_s)

    def after_status(self, response: Response, *, said: str) -> None:
        """Pause as a 429 or a 5xx requests. Raises ImageError when the wait is too long, or the limit is
        reached."""
        who, status = response.url.authority, response.status
        asked_s = retry_after_s(response)
        self._failures += 1
        # Without a Retry-After, wait longer for 429 than for a failure: the server works, but limits
        # requests.
        backoff_s = self._backoff_s() * (4 if status == _TOO_MANY else 1)
        wait_s = backoff_s if asked_s is None else asked_s
        if self._failures >= self._options.attempts or self._waited_s + wait_s > self._options.longest_wait_s:
            asks = "" if asked_s is None else f" and asks to wait {asked_s:.0f} s"
            if status == _TOO_MANY:
                raise ImageError(
                    f"{self._subject} is not available now: {who} limits its requests (429){asks}",
                    context=said,
                    remedy=f"log in, which usually raises the limit (podman login {log_in_name(who)}); use a "
                    "mirror (--mirrors REGISTRY=HOST); or try again later: what was downloaded is kept",
                )
            raise ImageError(
                f"{self._subject} is not available: {who} answers {status} each time{asks}",
                context=said,
                remedy="the registry is out of order: try again later, or use one of --mirrors REGISTRY=HOST",
            )
        self._waited_s += wait_s
        if asked_s is not None:
            self._options.say(f"waiting {wait_s:.0f} s: {who} asks for it ({status})")
        else:
            self._options.say(f"{who} answers {status}; trying again in {wait_s:.1f} s")
        self._pause(wait_s)

    def _backoff_s(self) -> float:
        """Doubled each time, with jitter, so that clients refused together do not return together."""
        most_s = min(self._options.backoff_s * 2 ** (self._failures - 1), self._options.longest_backoff_s)
        import random  # 3 ms that only failures cost

        return float(most_s * random.uniform(0.5, 1.0))

    def _pause(self, seconds: float) -> None:
        try:
            self._transport.pause(seconds)
        except Closed:
            raise ImageError(f"{self._subject}: the transfer was cancelled") from None


_REACH = (
    "check the name; if this machine has no internet access (compute nodes often have none), pull on a login "
    "node, or name a proxy: export HTTPS_PROXY=http://HOST:PORT"
)


def exchange(transport: Transport, request: Request) -> Response:
    """Send a request until there is a final response: not a redirect, a busy server or a broken connection.
    Raises ImageError; Broken only with `once`."""
    patience = Patience(transport, request.subject)
    while True:
        try:
            response = _follow(transport, request)
        except Broken as broken:
            if request.once:
                raise
            patience.after(broken)
            continue
        if request.once or not passing(response):
            return response
        patience.after_status(response, said=excerpt(response))


def passing(response: Response) -> bool:
    """Whether a later retry may get a different response."""
    return response.status == _TOO_MANY or response.status in _PASSING


def _follow(transport: Transport, request: Request) -> Response:
    url = request.url
    for _ in range(_MOST_REDIRECTS + 1):
        headers = dict(request.headers)
        # Credentials are only for the host they were issued for; a redirect may lead anywhere.
        if request.authorization is not None and url.origin == request.url.origin:
            headers["Authorization"] = request.authorization
        response = transport.send(request.method, url, headers, request.body)
        location = response.headers.get("Location")
        if response.status not in _REDIRECTS or location is None:
            return response
        excerpt(response)
        if request.body:
            raise ImageError(
                f"{request.subject}: {url.authority} redirects it to another host, which is not supported",
                remedy="name the registry by the host that it redirects to",
            )
        url = _next(url, location, request)
    raise ImageError(
        f"{request.subject} is not available: {request.url.authority} redirects in a circle",
        context=f"{_MOST_REDIRECTS} redirects, the last to {url.authority}",
        remedy="the registry or a proxy is misconfigured; contact its administrator",
    )


def _next(url: Url, location: str, request: Request) -> Url:
    try:
        found = url.joined(location)
    except ValueError as error:
        raise ImageError(
            f"{request.subject} cannot be downloaded: {url.authority} redirects to an invalid URL: {error}",
            remedy="the registry or a proxy is misconfigured; contact its administrator",
        ) from None
    if url.scheme == "https" and found.scheme == "http":
        raise ImageError(
            f"{request.subject} is not available: {url.authority} redirects from HTTPS to plain HTTP "
            f"({found.authority})",
            remedy="the registry or a proxy is misconfigured; contact its administrator",
        )
    return found


def excerpt(response: Response, limit: int = 16 * 1024) -> str:
    """A refusal's message, in one printable line; reads and closes the response."""
    with response:
        try:
            data = response.read(limit)
        except (Broken, ValueError):
            return ""
    # Before and after parsing the JSON: a server may repeat secrets that were sent, quoted in any way.
    said = response.without_secrets(_messages(response.without_secrets(data.decode(errors="replace"))))
    return one_line(plain(said), limit=_LONGEST_EXCERPT)


def _messages(text: str) -> str:
    """The messages of an error document, or the text if it is not one.

    Source: Distribution Specification, "Error Codes".
    """
    import json

    try:
        return "; ".join(
            ": ".join(str(part) for part in (each.get("code"), each.get("message")) if part)
            for each in json.loads(text)["errors"]
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        if "<" in text:  # a proxy's HTML page
            import re

            text = re.sub(r"<[^>]*>", " ", text)
        return text


def retry_after_s(response: Response) -> float | None:
    """The delay in seconds that Retry-After requests; None without it. A date is compared with the server's
    own clock, because the local clock may be wrong."""
    text = (response.headers.get("Retry-After") or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:_LONGEST_HEADER]), _LONGEST_RETRY_S)
    if not text or len(text) > _LONGEST_HEADER:
        return None
    from email.utils import parsedate_to_datetime

    try:
        until = parsedate_to_datetime(text)
        now = parsedate_to_datetime(response.headers.get("Date") or "")
        return min(max(0.0, (until - now).total_seconds()), _LONGEST_RETRY_S)
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError):
        return None  # the standard library raises each of these for some text


def writes(scopes: tuple[str, ...]) -> bool:
    """Whether the scopes include write access."""
    return any("push" in scope.rpartition(":")[2] for scope in scopes)
