"""Which site layer a job needs: the one that its file requests, or an MPI that the site can start, where the
image's programs use MPI and no earlier rung of the ladder works. Pure."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from bareboat import registry
from bareboat.launchers import Launch, Surroundings, by_mpi
from bareboat.model import Decision, Image, Job, MpiFacts, Site
from bareboat.mpi import site_layer
from bareboat.mpi.site_layer import PREFIX, Contents, Offer, Wish
from bareboat.mpi.start_methods import MpiSite, Rung, Step, mpi_site_of, needs_mpi, walk
from bareboat.mpi.start_methods import users as users_of
from bareboat.plan.launcher import surroundings
from bareboat_base import digests
from bareboat_base.errors import PlanError

#: The ways to start an MPI that is added to the image.
_STARTS = (Rung.DIRECT, Rung.HOST_LAUNCHER, Rung.IMAGE_LAUNCHER)


class Needed(Struct, frozen=True, kw_only=True):
    """What is added, and why."""

    contents: Contents
    because: str


def needed_layer(job: Job, image: Image, site: Site, *, node: Site | None = None) -> Needed | None:
    """What must be added to the image before the job is planned; None: nothing.

    Raises PlanError for what cannot be added to this image, UsageError for what no layer can contain.
    """
    asked = job.site_layer or ()
    if not registry.contains(job.engine):
        return None
    around = surroundings(
        image,
        site,
        node or site,
        registry.scheduler(job.scheduler or registry.HERE),
        job.engine or "a container",
    )
    if asked:
        return _asked(asked, job, image, around)
    if image.site_layer is not None or job.topology.world_size == 1 or not needs_mpi(image):
        return None
    if job.launcher is not None or by_mpi.lacks_mpi(image):
        return None
    launchers = [registry.launcher(name) for name in registry.names("launchers")]
    verdicts = [each.judge(job, around) for each in launchers if each.RUNG is not None]
    if any(isinstance(each, Launch) for each in verdicts):
        return None
    offers = site_layer.offers(image)
    mpi_site = _mpi_site(around, tuple(each.facts for each in offers))
    found = walk(image, mpi_site, by_mpi.layout(job, around), only=frozenset({Rung.SITE_LAYER}))
    if not isinstance(found, Step) or found.library is None:
        return None
    offer = next(each for each in offers if each.facts == found.library)
    refused = "; ".join(dict.fromkeys(each.reason for each in verdicts))
    users = ", ".join(sorted(users_of(image)))
    return Needed(
        contents=Contents(mpi=offer.requirement),
        because=f"{users} need{'' if ',' in users else 's'} an MPI that can be started here: {refused}",
    )


def check_image(job: Job, image: Image) -> None:
    """Raise PlanError where the job's own variables would hide the layer that the image has."""
    if image.site_layer is None:
        return
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH"):
        folders = image.environment.get(name, "").split(":")
        own = next((each for each in folders if each.startswith(PREFIX + "/")), None)
        given = job.environment.get(name)
        if own is not None and given is not None and own not in given.split(":"):
            raise PlanError(
                f"{name} under [environment] would hide the site layer",
                remedy=f'{name} = "{own}:{given}"',
            )


def decisions(image: Image | None) -> tuple[Decision, ...]:
    layer = image.site_layer if image is not None else None
    if layer is None:
        return ()
    what = ", ".join(each.replace("==", " ") for each in layer.contents)
    on = f"image {digests.short(layer.base)}" if layer.base else "the captured environment"
    return (
        Decision(
            subject="site layer",
            choice=f"{what} on {on}" + ("" if layer.made else ", to be made first"),
            reason=layer.because or "the image has it",
        ),
    )


def _asked(asked: tuple[str, ...], job: Job, image: Image, around: Surroundings) -> Needed | None:
    wish = site_layer.read_wish(asked)
    has = image.site_layer.contents if image.site_layer is not None else ()
    if has:
        wanted = {each.partition("==")[0] for each in asked}
        if wanted <= {each.partition("==")[0] for each in has}:
            return None
        raise PlanError(
            f"the image has a site layer already, with {', '.join(has)}",
            remedy=f"name the image that it was made of: {digests.short(image.site_layer.base)}"
            if image.site_layer is not None
            else "",
        )
    offer = _choose(wish, job, image, around)
    if "horovod" in wish.contents and not site_layer.frameworks(image):
        raise PlanError(
            "Horovod is asked for in the site layer, and the image has neither PyTorch nor TensorFlow",
            remedy='leave "horovod" out of site_layer, or use an image with PyTorch or TensorFlow',
        )
    if wish.packages() and image.python_version is None:
        raise PlanError(
            f"{' and '.join(wish.packages())} cannot be added: the image has no Python",
            remedy="use an image with Python",
        )
    return Needed(
        contents=Contents(mpi=offer.requirement, packages=wish.packages()),
        because="asked for by site_layer",
    )


def _choose(wish: Wish, job: Job, image: Image, around: Surroundings) -> Offer:
    """The first MPI whose ranks the site can start; the first if there is nothing to start."""
    offers = site_layer.offers(image, wish)
    if not offers and site_layer.offers(image) and wish.mpi is not None:
        name, version = wish.mpi
        raise PlanError(
            f"{name} {version or ''} is not known to Bareboat",
            remedy=f'write "{name}" without a version',
        )
    if not offers:
        raise PlanError(
            f"no MPI can be added to the image {job.image}: its C library is {_libc(image)}",
            remedy="use an image with glibc 2.28 or later",
        )
    named = registry.launcher(job.launcher).RUNG if job.launcher is not None else None
    if job.topology.world_size == 1 or (job.launcher is not None and named not in _STARTS):
        return offers[0]
    rungs = _STARTS if named is None else (named,)
    reasons = []
    for offer in offers:
        added = site_layer.expected(image, Contents(mpi=offer.requirement, packages=wish.packages()))
        found = walk(
            msgspec.structs.replace(added, mpis=added.mpis[:1]),
            _mpi_site(around),
            by_mpi.layout(job, around),
            only=frozenset(rungs),
        )
        if isinstance(found, Step):
            return offer
        reasons += [f"{offer.facts.title}: {each.choice}: {each.reason}" for each in found.rejected]
    raise PlanError(
        "no MPI that could be added to the image can be started here",
        context="\n".join(reasons),
        remedy="ask for Slurm's PMIx plugin, or install an mpirun on the nodes   # srun --mpi=list",
    )


def _libc(image: Image) -> str:
    return f"glibc {image.glibc}" if image.glibc else "not glibc, or not known"


def _mpi_site(around: Surroundings, layers: tuple[MpiFacts, ...] = ()) -> MpiSite:
    return mpi_site_of(around.site, plugins=around.mpi_plugins, in_slurm=around.in_slurm, layers=layers)
