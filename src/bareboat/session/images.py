"""The image that a job names: from the store, from a registry, or from a file."""

from __future__ import annotations

import functools
import os
import shlex
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bareboat_base import digests
from bareboat_base.errors import BareboatError, UsageError

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
    from bareboat_images.registry.access import Access

    settings = session.settings
    return Access.read(
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
        raise error.but(key=error.key or "image") from error.__cause__


def _of_job(session: Session, job: Job, machine: str) -> Image:
    from bareboat_images.transfer import locate, opening
    from bareboat_images.transfer.options import PullOptions

    reach, store = access(session), session.store
    read = functools.partial(locate.read, folder=session.folder)
    if session.settings["require_digest"]:
        _check_job_image(session, job.image, reach)
    if not session.looks:
        options = PullOptions(access=reach, machine=machine)
        return opening.open_image(
            job.image, store, options, read=read, pull=lambda found, how: load(session, found, how).image
        )
    image, source = opening.look(job.image, store, reach, read=read)
    if source is not None and image is not None:
        raise opening.refused(job.image, str(source))
    if image is None:
        raise store.no_image(job.image).but(
            context="the plan depends on the image's content: its Python, frameworks and MPI",
            remedy=f"bareboat image pull {shlex.quote(job.image)}   # run, submit and prove do this, too",
        )
    return image


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
    from bareboat_images.transfer.pull import obtain

    try:
        return obtain(found, session.store, replace(options, progress=session.reporter.bytes))
    finally:
        session.reporter.end()


def check_reference(found: Reference, store: Store, access: Access, *, ask: bool) -> None:
    """Raise UsageError for a reference without a digest. The remedy names the digest: with `ask`, from the
    registry, else from the store."""
    if not found.registry:
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


def _check_job_image(session: Session, text: str, reach: Access) -> None:
    """Like `check_reference`, for a job's image, which may be a digest in the store. A name in the store is
    refused."""
    from bareboat_images.transfer import locate

    if digests.is_digest(text):
        return
    if session.store.knows(text):
        raise UsageError(
            f"{text} has no digest, and digests are required here",
            remedy=f'write image = "{session.store.image(text).digest}", its current digest',
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
