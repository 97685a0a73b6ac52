"""The job's image with what is known of its command and with this site's layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bareboat import commands, registry
from bareboat_base import digests, execute

if TYPE_CHECKING:
    from bareboat.model import Image, Job, Site
    from bareboat.mpi.site_layer import Contents
    from bareboat.session import Session


def with_site_layer(session: Session, job: Job, image: Image, site: Site, node: Site | None) -> Image:
    """The image with this site's layer; only a description of it where nothing may be changed, and for an
    image that is itself a description, without a digest."""
    seen = with_linked(session, job, image, site)
    if not (job.site_layer or seen.mpi_users or seen.program):
        return seen
    from bareboat import site_layer
    from bareboat.mpi.site_layer import expected
    from bareboat.plan.site_layer import needed_layer

    if not image.digest:
        image = seen = msgspec.structs.replace(seen, glibc=site.glibc)
    needed = needed_layer(job, seen, site, node=node)
    if needed is None:
        return seen
    because = needed.because
    made = site_layer.find(session.store, image, needed.contents)
    if made is None and (session.looks or not image.digest):
        made = expected(image, needed.contents)
        if image.digest:
            because += f"; {site_layer.how_long(session.store, image, needed.contents)}"
    if made is None:
        made = make_site_layer(session, image, needed.contents, site)
    assert made.site_layer is not None
    layer = msgspec.structs.replace(made.site_layer, because=because)
    return msgspec.structs.replace(made, site_layer=layer, program=seen.program)


def make_site_layer(
    session: Session,
    image: Image,
    contents: Contents,
    site: Site,
    *,
    fresh: bool = False,
) -> Image:
    """Make the layer, report it, and return the image with it."""
    from bareboat import site_layer

    try:
        made = site_layer.provide(session.store, image, contents, site, fresh=fresh, say=session.reporter.say)
    finally:
        session.reporter.end()
    added = ", ".join(each.replace("==", " ") for each in contents.requirements)
    session.reporter.note(
        f"site layer: {digests.short(made.digest)} is {digests.short(image.digest)} with {added}"
    )
    return made


def with_linked(session: Session, job: Job, image: Image, site: Site) -> Image:
    """The image with MPI facts from the files of the job's command; needed only for several ranks. Warns of
    programs that shell code starts and the container lacks."""
    is_alone, words = job.topology.world_size == 1, commands.target(job.command)
    if is_alone and (not image.digest or not words or commands.is_python(words[0])):
        return image
    from bareboat.plan.process import command_of
    from bareboat.program_analysis.executable import sight_of
    from bareboat.program_analysis.linked import look

    sight = sight_of(session.store, image, job)
    if sight is None:
        return image
    contains = image.digest and registry.contains(job.engine)
    around = image.environment if contains else {"PATH": session.environment.get("PATH", "")}
    found, absent = look(
        command_of(job, image),
        sight,
        environment={**around, **job.environment},
        workdir=job.workdir or image.process.workdir,
        machine=site.architecture,
    )
    if contains and (names := [each for each in absent if execute.which(each)]):
        cure = f"set programs = {json.dumps(names)} under [capture]"
        cure = cure if job.image == "capture" else "use an image that has them"
        session.reporter.note(f"warning: the command starts {', '.join(names)}, not in the container: {cure}")
    if is_alone:
        return image
    linked = msgspec.structs.replace(image, program=found)
    if found is None or not found.mpi or linked.mpis or contains:
        return linked
    # It finds this machine's library, which no package of the environment uses, and a capture will have.
    from bareboat.captures import facts

    return msgspec.structs.replace(linked, **facts.searched([Path("/")], around, mpi=True, cuda=image.cuda))
