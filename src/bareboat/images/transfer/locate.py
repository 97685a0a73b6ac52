"""From what a user wrote for an image to the image in the store, or to the source that has it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from bareboat.errors import StoreError, UsageError
from bareboat.files import untrusted
from bareboat.images.oci import reference
from bareboat.images.oci.reference import Reference, Transport
from bareboat.images.oci.source import Source
from bareboat.model import Image
from bareboat.store import Store

if TYPE_CHECKING:
    from bareboat.images.registry.options import Options


#: What a bare word ends in that is rather a file than an image of Docker Hub.
_SUFFIXES = (".sif", ".simg", ".sqsh", ".sqfs", ".squashfs", ".tar", ".tar.gz", ".tgz")


class Access(Struct, frozen=True, kw_only=True):
    """How this site's registries are reached. `plain_http`: those that are spoken to without TLS;
    `mirrors`: registry -> the places that are asked before it; `policy`: the signature policy, where another
    is asked for than the user's or the machine's; `say` reports what takes time."""

    plain_http: frozenset[str] = frozenset()
    ca_file: str | None = None
    mirrors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    policy: str | None = None
    say: Callable[[str], None] = lambda _text: None


def read_access(
    *,
    plain_http: str,
    mirrors: str,
    ca_file: str,
    policy: str | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> Access:
    """The settings as users write them: names with commas between, REGISTRY=HOST with commas between.

    Raises UsageError.
    """
    places: dict[str, tuple[str, ...]] = {}
    for entry in _listed(mirrors):
        name, equals, place = entry.partition("=")
        if not equals or not name or not place:
            raise UsageError(
                f"{entry!r} is no mirror", remedy="write mirrors as docker.io=mirror.example.org:5000"
            )
        places[name] = (*places.get(name, ()), place)
    if ca_file:
        try:
            os.close(untrusted.open_regular(ca_file, follow=True))
        except OSError as error:
            raise untrusted.unreadable(ca_file, error) from None
    return Access(
        plain_http=frozenset(_listed(plain_http)),
        ca_file=ca_file or None,
        mirrors=places,
        policy=policy or None,
        say=say,
    )


def _listed(text: str) -> list[str]:
    return [part for part in (part.strip() for part in text.split(",")) if part]


def read(text: str, *, folder: str) -> Reference:
    """What the text refers to; a path without a prefix is looked at to see what it is.

    `torch.sif` is the file, if there is one of that name here, and else an image of Docker Hub.
    """
    if "\0" in text:
        raise UsageError(f"{text!r} holds a NUL byte, which no name does", remedy="write NAME:TAG, or a path")
    there = os.path.join(folder, text)
    if (
        reference.looks_like_path(text)
        or ("/" in text and os.path.exists(there))
        or (text.endswith(_SUFFIXES) and os.path.isfile(there))
    ):
        from bareboat.images.transfer import local

        path = os.path.join(folder, os.path.expanduser(text))
        return reference.at_path(local.sniff(path), path, folder=folder)
    return reference.parse(text, folder=folder)


def in_store(text: str, store: Store, *, folder: str) -> Image | None:
    """The image of the store that has this name, digest or pinned reference; None when there is none."""
    try:
        return store.image(text)
    except (StoreError, UsageError) as error:
        if store.knows(text):
            raise  # it is there, and damaged
        missing = error
    try:
        pin = store.pinned(str(read(text, folder=folder)))
    except UsageError:
        if any(mark in text for mark in "@:/"):  # no name of an image in the store has these
            raise
        raise missing from None
    # The pin of an image that was removed says what the reference stood for, and nothing is there.
    return store.image(pin.digest) if pin is not None and store.knows(pin.digest) else None


def remote_options(registry: str, access: Access) -> Options:
    """How one registry is reached, with this process's proxies and credentials."""
    from bareboat.images.registry.options import Options

    return Options(
        environment=os.environ,
        plain_http=registry in access.plain_http,
        ca_file=access.ca_file,
        mirrors=access.mirrors.get(registry, ()),
        say=access.say,
    )


def open_source(
    found: Reference, access: Access, *, scratch: Path | None = None, max_ratio: float = 1000.0
) -> Source:
    """The source of a reference. `scratch`: a folder for what must be inflated or unpacked first, to no
    more than `max_ratio` times its size."""
    if found.transport is Transport.REGISTRY:
        from bareboat.images.registry import client

        return client.open_registry(
            found.registry, found.repository, found.wanted, options=remote_options(found.registry, access)
        )
    from bareboat.images.transfer import local

    return local.open_local(found.path, found.transport, found.tag, scratch=scratch, max_ratio=max_ratio)


def open_briefly(found: Reference, access: Access) -> Source:
    """A registry's image for a look at its manifest: a registry that does not answer at once is not waited
    for."""
    import dataclasses

    from bareboat.images.registry import client

    options = dataclasses.replace(
        remote_options(found.registry, access),
        attempts=1, connect_timeout_s=5.0, read_timeout_s=5.0, longest_wait_s=0.0,
    )  # fmt: skip
    return client.open_registry(found.registry, found.repository, found.wanted, options=options)


def state_of_file(found: Reference) -> str | None:
    """What changes when the file of a reference does; None for a folder, whose change cannot be told."""
    path = os.path.join(found.path, "index.json") if found.transport is Transport.OCI else found.path
    try:
        state = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISREG(state.st_mode):
        return None
    return f"{state.st_size} bytes, {state.st_mtime_ns}"
