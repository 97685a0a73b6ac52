"""Opens the image that a text names, for whoever runs or builds on it: the one door, which asks the policy.

A name or digest of the store is that image or an error, never one of a registry with the same name.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable

from bareboat_base import digests
from bareboat_base.errors import ImageError, UsageError
from bareboat_images.model import Image, Pin, Process
from bareboat_images.oci.reference import Reference, Transport, parse
from bareboat_images.registry.access import Access
from bareboat_images.signatures import place
from bareboat_images.store import Store
from bareboat_images.transfer import locate
from bareboat_images.transfer.options import PullOptions


def open_image(
    text: str,
    store: Store,
    options: PullOptions,
    *,
    read: Callable[[str], Reference],
    pull: Callable[[Reference, PullOptions], Image],
) -> Image:
    """The image of the store, or pulled: if the store lacks it, its file has changed, or the signature policy
    has not accepted it. `read`: what the text means that is no name of the store.

    Raises ImageError, StoreError, UsageError.
    """
    image, source = look(text, store, options.access, read=read)
    if source is None:
        assert image is not None
        return image
    pulled = pull(source, options)
    if image is not None and store.knows(text) and pulled.digest != image.digest:
        raise ImageError(
            f"the signature policy has not accepted {text}, the image {digests.short(image.digest)}",
            context=f"{source} is another image now",
            remedy=f"bareboat image tag {digests.short(pulled.digest)} {text}   # if that is meant",
        )
    return pulled


def look(
    text: str, store: Store, access: Access, *, read: Callable[[str], Reference]
) -> tuple[Image | None, Reference | None]:
    """The image in the store, if any, and what must be pulled before it may be used, if anything."""
    if store.knows(text):
        image = store.image(text)
        return image, _to_check(image, store, access)
    found = locate.meant(text, store, read)
    pin = store.pinned(str(found))
    # The pin of a removed image remains, without an image.
    if pin is None or not store.knows(pin.digest) or _has_changed(found, pin):
        return None, found
    image = store.image(pin.digest)
    if image.site_layer is not None:
        return image, _to_check(image, store, access)
    return image, None if _accepts([found], store, access) else found


def open_base(
    name: str,
    local: Reference | None,
    store: Store,
    options: PullOptions,
    *,
    pull: Callable[[Reference, PullOptions], Image],
    fresh: bool = False,
) -> Image:
    """A base image of a recipe, checked as `open_image` does. `local`: the file or directory of this machine
    that holds it: a name is never the path of one. `fresh`: ask registries for one that the store has."""

    def read(text: str) -> Reference:
        return parse(text, folder="/")

    named = _for_recipe(name, store)
    if local is not None or (fresh and not store.knows(named)):
        return pull(local or read(name), options)
    return open_image(named, store, options, read=read, pull=pull)


def _for_recipe(name: str, store: Store) -> str:
    """The name in the store of what a recipe names: also NAME for NAME:latest, and the reverse."""
    other = name.removesuffix(":latest") if name.endswith(":latest") else f"{name}:latest"
    if re.fullmatch(r"[\w.-]+(:latest)?", name) and not store.knows(name) and store.knows(other):
        return other
    return name


def open_directory(path: str, access: Access) -> Image:
    """A directory of this machine as an image. Raises ImageError for one that the policy does not accept."""
    from bareboat_images.formats.rootfs import read_facts

    _check_directory(path, access)
    facts = read_facts(path, made_from=path, architecture=os.uname().machine)
    process = Process(entrypoint=facts.entrypoint, command=facts.command, workdir=facts.workdir)
    return Image(digest="", layers=(), environment=facts.environment, process=process, reference=path)


def _check_directory(path: str, access: Access) -> None:
    """Raise ImageError for a directory that the policy does not accept as an image."""
    if place.requires_nothing(access.policy, os.environ):
        return
    from bareboat_images.signatures.check import check

    check(Reference(transport=Transport.ROOTFS, path=path), (), access)


def check_kept(image: Image, store: Store, access: Access) -> None:
    """Raise ImageError where the policy does not accept an image of which a container is a copy."""
    if not image.digest:
        _check_directory(image.reference, access)
    elif (source := _to_check(image, store, access)) is not None:
        raise refused(image.reference, str(source))


def refused(text: str, source: str) -> ImageError:
    """The error for an image that the policy has not accepted, and that is not to be pulled now."""
    return ImageError(
        f"the signature policy has not accepted the stored image {text}",
        context="it was not checked against the current policy, or the policy rejects it",
        remedy=f"bareboat image pull {shlex.quote(source)}   # checks it",
    )


def _has_changed(found: Reference, pin: Pin) -> bool:
    """Whether a file is not the one that was loaded. Changes of a directory cannot be seen."""
    if found.transport is Transport.REGISTRY:
        return False
    state = locate.state_of_file(found)
    return state is not None and state != pin.root


def _to_check(image: Image, store: Store, access: Access) -> Reference | None:
    """Where to pull an image from to check it; None for an image that was made here, and where it was
    accepted under one of its references. Raises ImageError where none can be read."""
    if place.requires_nothing(access.policy, os.environ):
        return None
    if image.site_layer is not None:
        image = store.image(image.site_layer.base)
    if not image.reference:
        return None
    pinned = (pin.reference for pin in store.pins() if pin.digest == image.digest)
    found = []
    for each in dict.fromkeys((image.reference, *pinned)):
        with contextlib.suppress(UsageError, ImageError):  # a file that is not there any more
            found.append(locate.read(each, folder="/"))
    if not found:
        raise refused(image.reference, image.reference)
    return None if _accepts(found, store, access) else found[0]


def _accepts(found: list[Reference], store: Store, access: Access) -> bool:
    if place.requires_nothing(access.policy, os.environ):
        return True
    from bareboat_images.signatures.check import holds

    return any(holds(each, store.pinned(str(each)), access) for each in found)
