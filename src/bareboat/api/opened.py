"""The session behind each call: the settings and the store in force at that moment."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bareboat.session import Session
from bareboat.session.opening import open_session
from bareboat_base.files import failures

log = logging.getLogger("bareboat")


class _Log:
    """Reports to the logger `bareboat`: steps at DEBUG, notes at INFO, warnings at WARNING."""

    def say(self, text: str) -> None:
        log.debug("%s", text)

    def bytes(self, what: str, done: int, total: int) -> None:
        log.debug("%s: %d of %d bytes", what, done, total)

    def end(self) -> None:
        pass

    def note(self, text: str) -> None:
        log.info("%s", text)

    def warn(self, text: str) -> None:
        log.warning("%s", text)


def session(*, looks: bool = False, flags: Mapping[str, Any] | None = None, plain_http: str = "") -> Session:
    """A session in the working directory. `plain_http`: the registries without TLS, besides those of the
    settings. Raises UsageError, StoreError."""
    if plain_http:
        flags = {**(flags or {}), "plain_http": plain_http}
    folder = failures.working_directory() or Path("/")
    return open_session(flags or {}, folder=folder, environment=os.environ, reporter=_Log(), looks=looks)
