"""Parses image references.

    debian:12, quay.io/org/name@sha256:…, docker://nvcr.io/nvidia/pytorch:24.05-py3    a registry
    oci:DIR[:TAG], oci-archive:FILE[:TAG], docker-archive:FILE[:NAME:TAG]               a layout
    sif:FILE, squashfs:FILE, rootfs:DIR, or any path, whose content determines its kind

Source of the grammar: https://github.com/distribution/reference
"""

from __future__ import annotations

import os
from enum import StrEnum

from msgspec import Struct

from bareboat_base import digests
from bareboat_base.errors import UsageError
from bareboat_base.expressions import expression
from bareboat_base.printable import quoted

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN = expression(rf"(?:\[[0-9A-Fa-f:.]+\]|{_LABEL}(?:\.{_LABEL})*)(?::(?P<port>[0-9]{{1,5}}))?")
_REPOSITORY = expression(r"[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*)*")
_TAG = expression(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_EXAMPLE = "write REGISTRY/NAME:TAG, such as docker.io/library/debian:12 or nvcr.io/nvidia/pytorch:24.05-py3"
#: Characters of the longest name in a registry.
_LONGEST = 255
EXAMPLES = "write oci:DIR, oci-archive:FILE, docker-archive:FILE, sif:FILE, squashfs:FILE or rootfs:DIR"
#: Prefixes of other tools for an image in their own store -> the tool.
DAEMONS = {"containers-storage": "podman", "docker-daemon": "docker"}


class Transport(StrEnum):
    """Where an image is, by the prefix of its reference."""

    REGISTRY = "docker"
    OCI = "oci"
    OCI_ARCHIVE = "oci-archive"
    DOCKER_ARCHIVE = "docker-archive"
    SIF = "sif"
    SQUASHFS = "squashfs"
    ROOTFS = "rootfs"


#: Transports where one file or directory can contain several images.
_TAGGED = (Transport.OCI, Transport.OCI_ARCHIVE, Transport.DOCKER_ARCHIVE)


class Reference(Struct, frozen=True, kw_only=True):
    """One image in one place: in a registry (`registry`, `repository`, `tag` or `digest`), or at an absolute
    `path`, with the `tag` of an image in it."""

    transport: Transport
    registry: str = ""
    repository: str = ""
    tag: str | None = None
    digest: str | None = None
    path: str = ""

    def __str__(self) -> str:
        if self.transport in _TAGGED and ":" in self.path and not self.tag:
            return self.path  # with the prefix, the part after the colon would be a tag
        if self.transport is not Transport.REGISTRY:
            return f"{self.transport.value}:{self.path}" + (f":{self.tag}" if self.tag else "")
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.registry}/{self.repository}{tag}{digest}"

    @property
    def wanted(self) -> str:
        """What to request from a registry: the digest if there is one, else the tag."""
        return self.digest or self.tag or "latest"


def looks_like_path(text: str) -> bool:
    """Whether the text can only be a path."""
    return text.startswith(("/", "./", "../", "~")) or text in (".", "..")


def parse(text: str, *, folder: str) -> Reference:
    """Parse a reference; a path requires a prefix, and is relative to `folder`.

    Raises UsageError, with an example, for an invalid one.
    """
    prefix, colon, rest = text.partition(":")
    # docker://NAME; but docker:24 is the tag 24 of an image called docker.
    if prefix == Transport.REGISTRY and rest.startswith("//"):
        return _registry(rest[2:], text)
    if colon and prefix != Transport.REGISTRY and prefix in set(Transport):
        return _path(Transport(prefix), rest, text, folder)
    if colon and prefix in DAEMONS:
        raise UsageError(
            f"{quoted(text)}: images in the store of {DAEMONS[prefix]} are not read",
            remedy=f"write docker-archive:FILE, after {DAEMONS[prefix]} save -o FILE NAME",
        )
    return _registry(text, text)


def at_path(transport: Transport, path: str, *, folder: str) -> Reference:
    """The reference of a path whose kind is known."""
    full = os.path.normpath(os.path.join(folder, os.path.expanduser(path)))
    return Reference(transport=transport, path=full)


def _path(transport: Transport, rest: str, text: str, folder: str) -> Reference:
    path, tag = rest, None
    if transport in _TAGGED:
        path, colon, named = rest.partition(":")
        tag = named if colon else None
    if not path or "\0" in path:
        raise UsageError(f"{text!r} names no path", remedy=f"write {transport.value}:PATH")
    found = at_path(transport, path, folder=folder)
    return Reference(transport=transport, path=found.path, tag=tag or None)


def _registry(rest: str, text: str) -> Reference:
    name, at, digest = rest.partition("@")
    if at and not digests.is_digest(digest):
        raise UsageError(
            f"{quoted(digest)} in {quoted(text)} is not a digest", remedy=f"write NAME@{digests.EXAMPLE}"
        )
    first, slash, remainder = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, repository = first, remainder
    else:
        registry, repository = "docker.io", name
    repository, colon, tag = repository.partition(":")
    if registry in ("index.docker.io", "registry-1.docker.io"):
        registry = "docker.io"
    if registry == "docker.io" and "/" not in repository:
        repository = f"library/{repository}"
    domain = _DOMAIN.fullmatch(registry)
    if domain is None or int(domain["port"] or 443) not in range(1, 65536):
        raise UsageError(
            f"{quoted(registry)} in {quoted(text)} is not the name of a registry", remedy=_EXAMPLE
        )
    if colon and not _TAG.fullmatch(tag):
        raise UsageError(f"{quoted(tag)} in {quoted(text)} is not a tag", remedy=_EXAMPLE)
    if not _REPOSITORY.fullmatch(repository) or len(repository) > _LONGEST:
        raise UsageError(
            f"{quoted(text)} is not a reference to an image{why_none(repository)}", remedy=_EXAMPLE
        )
    return Reference(
        transport=Transport.REGISTRY,
        registry=registry,
        repository=repository,
        tag=tag or (None if digest else "latest"),
        digest=digest or None,
    )


def why_none(repository: str) -> str:
    """Why no image can have this name, as the end of a sentence; "" where that is not known."""
    if not repository.isprintable():
        return ": it has a control character or bytes that are not UTF-8"
    if len(repository) > _LONGEST:
        return f": it has more than {_LONGEST} characters"
    return ": names of images are in lower case" if repository != repository.lower() else ""


def familiar(name: str) -> str:
    """A name without what Docker and Bareboat add to it: `debian` for `docker.io/library/debian:latest`."""
    for prefix in ("docker.io/library/", "localhost/bareboat/", "localhost/"):
        name = name.removeprefix(prefix)
    return name.removesuffix(":latest")


def full_name(name: str) -> str:
    """A name in Docker's full form: `debian` is `docker.io/library/debian:latest`."""
    first, slash, _ = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif "." not in first and ":" not in first and first != "localhost":
        name = f"docker.io/{name}"
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"
