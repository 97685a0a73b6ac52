"""The surroundings of a session: the settings in force, and the store that may be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bareboat import config, store_access
from bareboat_base.errors import BareboatError, UsageError
from bareboat_base.files import failures
from bareboat_images.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from bareboat.config import Settings
    from bareboat.session import Reporter, Session


def open_session(
    flags: Mapping[str, Any],
    *,
    folder: Path,
    environment: Mapping[str, str],
    reporter: Reporter,
    looks: bool = False,
) -> Session:
    """A session with the settings in force in the directory `folder`. Raises UsageError, StoreError."""
    from bareboat.session import Session

    settings = config.resolve(flags, folder=folder, environment=environment)
    return Session(
        store=open_store(settings, environment),
        settings=settings,
        reporter=reporter,
        environment=environment,
        looks=looks,
    )


def open_store(settings: Settings, environment: Mapping[str, str], *, admits: bool = True) -> Store:
    """The store of the settings, after checking who may use it. `admits`: False for commands that only name
    or set up the store. Raises StoreError."""
    own = settings.store
    if admits:
        own = store_access.admit(settings.store, environment, lambda: config.default_store(environment))
    store = Store(settings.store, chosen_because=settings.settings["store"].source, own=own)
    if admits:
        with store.guarded():
            store.check_version()
    return store


def explain(error: BaseException) -> BareboatError | None:
    """What the system, the locale or the interpreter refused, for the user; None for other exceptions."""
    if isinstance(error, RecursionError):
        return UsageError("a value contains itself, or is nested too deeply", remedy="correct it")
    if not isinstance(error, UnicodeEncodeError):
        return failures.explain(error)
    part = ascii(error.object[error.start : error.end][:20])
    return UsageError(
        f"a text contains {part}, which no path, variable or argument can hold here",
        remedy="correct the text; or, where the locale lacks the character: export LC_ALL=C.UTF-8",
    )
