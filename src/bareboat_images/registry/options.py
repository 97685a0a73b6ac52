"""User settings for access to registries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

_log = logging.getLogger("bareboat")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to reach a registry, and how often to retry.

    `environment`: proxies, certificates and the files with credentials; the caller must pass the process's
    own
    environment explicitly. `plain_http`: for the registry itself; a mirror uses `http://` instead.
    """

    environment: Mapping[str, str] = field(repr=False)
    plain_http: bool = False
    #: Certificates of additional trusted authorities, in PEM.
    ca_file: str | None = None
    #: Tried in this order before the registry itself: `[http://]HOST[:PORT][/PREFIX]`.
    mirrors: tuple[str, ...] = ()
    #: Tries without any progress before giving up.
    attempts: int = 6
    connect_timeout_s: float = 20.0
    #: A transfer without data for this long has stalled. Twice the value is less than 90 s.
    read_timeout_s: float = 44.0
    #: Delay before the second try; doubled for each further one.
    backoff_s: float = 0.5
    #: The longest single pause between tries, unless the registry requests a longer one.
    longest_backoff_s: float = 20.0
    #: Total wait of one request at the registry's demand (429, Retry-After).
    longest_wait_s: float = 180.0
    #: Receives a one-line message about each delay.
    say: Callable[[str], None] = _log.info
