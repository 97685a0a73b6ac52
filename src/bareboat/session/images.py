"""The image that a job names: from the store, from a registry, or from a file."""

from __future__ import annotations

import contextlib
import os
import shlex
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bareboat_base import digests
from bareboat_base.errors import BareboatError, ImageError, StoreError, UsageError

if TYPE_CHECKING:
    from bareboat.model import Image, Job
    from bareboat.session import Session
    from bareboat_images.oci.reference import Reference
    from bareboat_images.registry.access import Access
    from bareboat_images.store import Store
    from bareboat_images.transfer.current import Pulled
    from bareboat_images.transfer.options import PullOptions


def access(session: Session) -> Access:
    """How to reach this site's registries, from the settings."""
    from bareboat_images.registry.access import read_access

    settings = session.settings
    return read_access(
        plain_http=settings["plain_http"],
        mirrors=settings["mirrors"],
        ca_file=settings["ca_file"],
        policy=settings["policy"],
        say=session.reporter.warn,
    )


def of_job(session: Session, job: Job, machine: str) -> Image:
    """The image from the store, or pulled for this `machine` (uname -m) unless the session only looks."""
    try:
        return _of_job(session, job, machine)
    except BareboatError as error:
        error.key = error.key or "image"
        raise


def _of_job(session: Session, job: Job, machine: str) -> Image:
    from bareboat_images.transfer import locate

    image = locate.in_store(job.image, session.store, folder=session.folder)
    if session.settings["require_digest"]:
        _check_job_image(session, job.image, image, access(session))
    if image is not None:
        source = to_check(session, job.image, image)
        if source is None:
            return image
        if session.looks:
            raise ImageError(
                f"the signature policy has not accepted the stored image {job.image}",
                context="it was not checked against the current policy, or the policy rejects it",
                remedy=f"bareboat image pull {shlex.quote(str(source))}   # checks it",
            )
    else:
        source = locate.read(job.image, folder=session.folder)
        if session.looks:
            raise StoreError(
                f"image {job.image!r} not found in the store {session.store.root}",
                context=_to_pull(source, access(session), machine),
                remedy=f"bareboat image pull {shlex.quote(job.image)}  # run, submit and prove do this, too",
            )
    from bareboat_images.transfer.options import PullOptions

    return load(session, source, PullOptions(access=access(session), machine=machine)).image


def _to_pull(found: Reference, reach: Access, machine: str) -> str:
    """What a pull would download, from the image's manifest; why that is unknown, where it is."""
    from bareboat_images.oci.reference import Transport
    from bareboat_images.transfer.pull import layers_of

    if found.transport is not Transport.REGISTRY:
        return "to load: a file or directory of this machine"
    try:
        layers = layers_of(found, reach, machine)
    except BareboatError as error:
        return f"its size is unknown: {error.message}"
    size_bytes = sum(max(each.size, 0) for each in layers)
    return (
        f"to pull: {len(layers)} layers, {size_bytes / 1e6:,.0f} MB compressed, less those in the store\n"
        "the plan depends on the image's content: its Python, frameworks and MPI"
    )


def pull(session: Session, found: Reference, options: PullOptions) -> Pulled:
    """Load what the reference names, unless the store has it, if the settings admit it. Raises ImageError,
    StoreError, UsageError."""
    from bareboat_images.transfer.current import current

    store, access, machine = session.store, options.access, options.machine
    if session.settings["require_digest"]:
        check_reference(found, store, access, ask=True)
    pulled = None
    if not options.fresh and not options.keep_blobs and machine == os.uname().machine:
        pulled = current(found, store, access, machine=machine)
    return pulled if pulled is not None else load(session, found, options)


def load(session: Session, found: Reference, options: PullOptions) -> Pulled:
    """Load what the reference names into the store. Raises ImageError, StoreError, UsageError."""
    from bareboat_images.transfer.obtain import obtain

    try:
        return obtain(found, session.store, replace(options, progress=session.reporter.bytes))
    finally:
        session.reporter.end()


def to_check(session: Session, text: str, image: Image) -> Reference | None:
    """Where to pull a stored image from to check it against the signature policy; None when the policy has
    accepted it or the image was made here."""
    from bareboat_images.signatures import place

    if place.requires_nothing(session.settings["policy"], session.environment):
        return None
    from bareboat_images.signatures.check import holds
    from bareboat_images.transfer import locate

    if image.site_layer is not None:
        image = session.store.image(image.site_layer.base)
    names = [image.reference]
    if session.store.knows(text):
        # The image itself is meant: one reference under which it was accepted suffices.
        names += [
            pin.reference for pin in session.store.pins() if image.reference and pin.digest == image.digest
        ]
    else:
        with contextlib.suppress(UsageError):
            names = [str(locate.read(text, folder=session.folder))]
    found = [locate.read(name, folder=session.folder) for name in dict.fromkeys(names) if name]
    reach = access(session)
    if any(holds(each, session.store.pinned(str(each)), reach) for each in found):
        return None
    return next(iter(found), None)


def check_reference(found: Reference, store: Store, access: Access, *, ask: bool) -> None:
    """Raise UsageError for a reference without a digest. The remedy names the digest: with `ask`, from the
    registry, else from the store."""
    from bareboat_images.oci.reference import Transport

    if found.transport is not Transport.REGISTRY:
        if found.tag and digests.is_digest(found.tag):
            return
        raise UsageError(
            f"{found} has no digest, and digests are required here",
            remedy=f"bareboat image load {shlex.quote(str(found.path))}"
            "   # then name the image by the digest that this prints",
        )
    if found.digest is not None:
        return
    digest = (_digest_now(found, access) if ask else None) or _digest_then(found, store)
    name = f"{found.registry}/{found.repository}"
    raise UsageError(
        f"{found} has no digest, and digests are required here",
        remedy=f"write {name}@{digest}, its current digest"
        if digest
        else f"write {name}@sha256:…; skopeo inspect docker://{found} shows the digest",
    )


def _check_job_image(session: Session, text: str, image: Image | None, reach: Access) -> None:
    """Like `check_reference`, for a job's image, which may be a digest in the store. A name in the store is
    refused."""
    from bareboat_images.transfer import locate

    if digests.is_digest(text):
        return
    if image is not None and session.store.knows(text):
        raise UsageError(
            f"{text} has no digest, and digests are required here",
            remedy=f'write image = "{image.digest}", its current digest',
        )
    found = locate.read(text, folder=session.folder)
    check_reference(found, session.store, reach, ask=not session.looks)


def _digest_then(found: Reference, store: Store) -> str | None:
    pin = store.pinned(str(found))
    if pin is None:
        return None
    return pin.root if digests.is_digest(pin.root) else pin.digest


def _digest_now(found: Reference, access: Access) -> str | None:
    from bareboat_images.transfer import locate

    try:
        return locate.current_digest(found, access)
    except BareboatError:
        return None  # the refusal remains, only its remedy is less specific
