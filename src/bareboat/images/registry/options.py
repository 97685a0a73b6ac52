"""What a user may set about the way to a registry."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

_log = logging.getLogger("bareboat")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to reach a registry, and how patiently.

    `environment` gives proxies, certificates and the places of credentials; it is never the process's own
    unless the caller says so. `plain_http` is for the registry itself; a mirror asks for it by `http://`.
    """

    environment: Mapping[str, str] = field(repr=False)
    plain_http: bool = False
    #: Certificates of authorities to trust besides the system's, in PEM.
    ca_file: str | None = None
    #: Asked in this order before the registry itself: `[http://]HOST[:PORT][/PREFIX]`.
    mirrors: tuple[str, ...] = ()
    #: Tries without any progress before giving up.
    attempts: int = 6
    connect_timeout_s: float = 20.0
    #: A transfer that brings nothing for so long has stalled. Two of them are less than 90 s.
    read_timeout_s: float = 44.0
    #: Before the second try; doubled for each one after it.
    backoff_s: float = 0.5
    #: The longest single pause between tries, unless the registry asks for a longer one.
    longest_backoff_s: float = 20.0
    #: All that one request may wait because the registry says so (429, Retry-After).
    longest_wait_s: float = 180.0
    #: Told in one line what takes time.
    say: Callable[[str], None] = _log.info
