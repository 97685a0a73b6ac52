"""How an image is pulled."""

from __future__ import annotations

import os

from msgspec import Struct, field

from bareboat_images import argument_types
from bareboat_images.progress import Progress
from bareboat_images.registry.access import Access
from bareboat_images.tar.limits import Limits


def _silent(*_: object) -> None:
    """Show no progress."""


class PullOptions(Struct, frozen=True, kw_only=True):
    """How an image is pulled. `access`: how registries are reached; `machine`: the architecture, as
    `uname -m` prints it; `fresh`: also what the store has; `keep_blobs`: keep layers also in the form that
    the manifest names; `progress`: what, bytes done, bytes in all."""

    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)
    machine: str = field(default_factory=lambda: os.uname().machine)
    fresh: bool = False
    keep_blobs: bool = False
    progress: Progress = _silent

    def __post_init__(self) -> None:
        argument_types.check("access", self.access, Access)
        argument_types.check("limits", self.limits, Limits)
        argument_types.check("machine", self.machine, str)
        argument_types.check("fresh", self.fresh, bool)
        argument_types.check("keep_blobs", self.keep_blobs, bool)
