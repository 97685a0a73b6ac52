"""Resolves what a user wrote to an image in the store, or to its source."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat_base.errors import BareboatError, UsageError
from bareboat_images.model import Image
from bareboat_images.oci import reference
from bareboat_images.oci.reference import Reference, Transport
from bareboat_images.store import Store

if TYPE_CHECKING:
    from bareboat_images.oci.source import Source
    from bareboat_images.registry.access import Access
    from bareboat_images.registry.client import RegistrySource

#: Endings of words that are more likely a file than an image of Docker Hub.
_SUFFIXES = (".sif", ".simg", ".sqsh", ".sqfs", ".squashfs", ".tar", ".tar.gz", ".tgz")


def read(text: str, *, folder: str) -> Reference:
    """Parse a reference; the kind of a path without a prefix is detected from its content.

    `torch.sif` is the file, if it exists in `folder`, else an image of Docker Hub.
    """
    if "\0" in text:
        raise UsageError(f"{text!r} holds a NUL byte, which no name does", remedy="write NAME:TAG, or a path")
    there = os.path.join(folder, text)
    if (
        reference.looks_like_path(text)
        or ("/" in text and os.path.exists(there))
        or (text.endswith(_SUFFIXES) and os.path.isfile(there))
    ):
        return file(os.path.join(folder, os.path.expanduser(text)))
    return reference.parse(text, folder=folder)


def file(path: str | Path) -> Reference:
    """The reference of a file or directory; its kind is detected from its content. Raises UsageError."""
    from bareboat_images.transfer import local

    return reference.at_path(local.sniff(path), os.fspath(path), folder="/")


def meant(text: str, store: Store, read: Callable[[str], Reference]) -> Reference:
    """What a text means that is not in the store. Raises UsageError, or ImageNotFound for a mere name."""
    try:
        return read(text)
    except UsageError:
        if any(mark in text for mark in "@:/"):  # names of images in the store have at most a colon
            raise
        raise store.no_image(text) from None


def in_store(text: str, store: Store, *, folder: str) -> Image | None:
    """The image in the store with this name, digest or pinned reference; None if it does not exist."""
    if store.knows(text):
        return store.image(text)
    pin = store.pinned(str(meant(text, store, lambda text: read(text, folder=folder))))
    # The pin of a removed image remains, without an image.
    return store.image(pin.digest) if pin is not None and store.knows(pin.digest) else None


def open_source(
    found: Reference, access: Access, *, scratch: Path | None = None, max_ratio: float = 1000.0
) -> Source:
    """Open the source of a reference. `scratch`: a directory for what must be decompressed or unpacked first,
    to at most `max_ratio` times its size."""
    if found.transport is Transport.REGISTRY:
        return _open_registry(found, access)
    from bareboat_images.transfer import local

    return local.open_local(found.path, found.transport, found.tag, scratch=scratch, max_ratio=max_ratio)


def open_origin(image: Image, reach: Callable[[str], Access]) -> Source | None:
    """Open what an image was pulled from; None if that is unknown or fails. `reach`: how a registry is
    reached."""
    if not image.reference:
        return None
    try:
        origin = reference.parse(image.reference, folder="/")
        return open_source(origin, reach(origin.registry))
    except BareboatError:
        return None


def current_digest(found: Reference, access: Access) -> str | None:
    """The digest of the image that a tag in a registry refers to now; None if it sends none."""
    with _open_registry(found, access) as source:
        return source.head_digest()


def _open_registry(found: Reference, access: Access) -> RegistrySource:
    from bareboat_images.registry import client
    from bareboat_images.registry.access import remote_options

    options = remote_options(found.registry, access)
    return client.open_registry(found.registry, found.repository, found.wanted, options=options)


def state_of_file(found: Reference) -> str | None:
    """A string that changes with the file of a reference; None for a directory, whose changes cannot be
    detected."""
    path = os.path.join(found.path, "index.json") if found.transport is Transport.OCI else found.path
    try:
        state = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISREG(state.st_mode):
        return None
    return f"{state.st_size} bytes, {state.st_mtime_ns}"
