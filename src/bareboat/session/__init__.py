"""What the program does, from a job to its plan, run, submission or study.

The command line and the Python API are its two faces: they read what the user asks for, and show what came of
it.

This package imports nothing heavy: `bareboat --help` does not need it, and each step imports what it uses.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from bareboat.config import Settings
    from bareboat.model import Image, Job, Site
    from bareboat_images.store import Store


class Purpose(Enum):
    """What a job is prepared for."""

    PLAN = auto()
    RUN = auto()
    SUBMIT = auto()
    PROVE = auto()


class Reporter(Protocol):
    """Shows what a session does while it does it."""

    def say(self, text: str) -> None:
        """Show the current step as `subject: detail`."""

    def bytes(self, what: str, done: int, total: int) -> None:
        """Show the progress of a step in bytes."""

    def end(self) -> None:
        """The step is over."""

    def note(self, text: str) -> None:
        """Show something that may be of use to the user."""

    def warn(self, text: str) -> None:
        """Show something that the user must know."""


class Session(Struct, frozen=True, kw_only=True):
    """The surroundings of all steps. `looks`: whether nothing may be changed, neither captured nor pulled nor
    built."""

    store: Store
    settings: Settings
    reporter: Reporter
    environment: Mapping[str, str]
    looks: bool = False

    @property
    def folder(self) -> str:
        """The working directory, to which paths are relative. Raises OSError where it is gone, which matters
        only to what needs it."""
        return os.getcwd()


class Prepared(NamedTuple):
    """The inputs of a plan: the job with what this machine adds to it, the machine, the job's image, and what
    is known of its nodes, where those are others. `to_capture`: what a run
    would capture first, in words."""

    job: Job
    site: Site
    image: Image
    node: Site | None
    to_capture: tuple[str, ...] = ()
