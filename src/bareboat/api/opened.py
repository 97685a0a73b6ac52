"""The session behind each call: the settings and the store in force at that moment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat.api import boundary
from bareboat.session import Session
from bareboat.session.opening import open_session
from bareboat_base.files import failures

if TYPE_CHECKING:
    from logging import Logger


def _logger() -> Logger:
    import logging  # here: most calls write nothing

    return logging.getLogger("bareboat")


class _Log:
    """Reports to the logger `bareboat`: steps at DEBUG, notes at INFO, warnings at WARNING."""

    def say(self, text: str) -> None:
        _logger().debug("%s", text)

    def bytes(self, what: str, done: int, total: int) -> None:
        _logger().debug("%s: %d of %d bytes", what, done, total)

    def end(self) -> None:
        pass

    def note(self, text: str) -> None:
        _logger().info("%s", text)

    def warn(self, text: str) -> None:
        _logger().warning("%s", text)


def session(*, looks: bool = False, plain_http: str = "") -> Session:
    """A session in the working directory. `plain_http`: the registries without TLS, besides those of the
    settings. Raises UsageError, StoreError."""
    flags = {"plain_http": plain_http} if boundary.text("plain_http", plain_http) else {}
    folder = failures.working_directory() or Path("/")
    return open_session(flags, folder=folder, environment=os.environ, reporter=_Log(), looks=looks)
