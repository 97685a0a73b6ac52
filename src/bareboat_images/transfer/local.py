"""Images on this machine: detects the kind of a path, and opens it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from bareboat_base.errors import ImageError, UsageError
from bareboat_base.sif import MAGIC, MAGIC_OFFSET
from bareboat_images.formats import squash
from bareboat_images.formats.rootfs import FolderSource, TarballSource
from bareboat_images.oci.reference import EXAMPLES, Transport
from bareboat_images.oci.source import (
    Source,
)
from bareboat_images.sources.archive import Archive, first_names, open_regular
from bareboat_images.sources.docker_archive import DockerSource
from bareboat_images.sources.layouts import LayoutArchive, LayoutFolder, LayoutSource
from bareboat_images.tar.inflation import is_compressed
from bareboat_images.tar.limits import MAX_RATIO

_IMAGES = "name a file of `docker save`, `apptainer build` or `bareboat image save`, or REGISTRY/NAME:TAG"
#: How many bytes of a compressed archive are searched to detect its kind.
_SNIFFED_BYTES = 256 << 20


def open_local(
    path: str | os.PathLike[str],
    transport: Transport,
    tag: str | None = None,
    *,
    scratch: Path | None = None,
    max_ratio: float = MAX_RATIO,
) -> Source:
    """Open an image on this machine.

    `tag` selects one of several images: its name in the layout, `NAME:TAG` in a docker-archive, `@N` for the
    N-th, or a digest. `scratch`: the caller's directory for what must be decompressed or unpacked first
    (compressed archives, squashfs, SIF); default: a directory for temporary files. `max_ratio`: how many
    times its own size a compressed file may expand to. Raises ImageError, UsageError.
    """
    name = f"{transport.value}:{os.fspath(path)}" + (f":{tag}" if tag else "")
    match transport:
        case Transport.OCI:
            return LayoutSource(LayoutFolder(path, name=name), tag, name=name, path=os.fspath(path))
        case Transport.OCI_ARCHIVE | Transport.DOCKER_ARCHIVE:
            archive = Archive(path, name=name, scratch=scratch, max_ratio=max_ratio)
            if transport is Transport.OCI_ARCHIVE:
                return LayoutSource(LayoutArchive(archive), tag, name=name, path=os.fspath(path))
            return DockerSource(archive, tag, name=name, path=os.fspath(path))
        case Transport.SIF | Transport.SQUASHFS:
            is_sif = transport is Transport.SIF
            return squash.SquashSource(path, name=name, is_sif=is_sif, scratch=scratch, max_ratio=max_ratio)
        case Transport.ROOTFS if not os.path.isdir(path):
            return TarballSource(path, name=name, scratch=scratch, max_ratio=max_ratio)
        case Transport.ROOTFS:
            return FolderSource(path, name=name, max_ratio=max_ratio)
        case _:
            raise UsageError(f"{name} does not exist on this machine", remedy=EXAMPLES)


def sniff(path: str | os.PathLike[str]) -> Transport:
    """Detect the kind of image of a path by its content. Raises ImageError for an unknown one."""
    name = os.path.normpath(path)
    if os.path.isdir(path):
        return _sniff_folder(name)
    with open_regular(path, name=name) as stream:
        head = os.pread(stream.fileno(), 512, 0)
    if not head:
        raise ImageError(f"{name} is empty, and not an image", remedy=_IMAGES)
    if head[MAGIC_OFFSET : MAGIC_OFFSET + len(MAGIC)] == MAGIC:
        return Transport.SIF
    if head.startswith(squash.MAGIC):
        return Transport.SQUASHFS
    if is_compressed(head) or head[257:262] == b"ustar" or not head.strip(b"\0"):
        return _sniff_tar(name, head)
    raise ImageError(
        f"{name} is not an image: it is neither a tar archive nor a SIF nor a SquashFS file", remedy=_IMAGES
    )


def _sniff_folder(name: str) -> Transport:
    def there(*names: str) -> bool:
        return all(os.path.lexists(os.path.join(name, each)) for each in names)

    if there("oci-layout") or there("index.json", "blobs"):
        return Transport.OCI
    if any(there(each) for each in ("bin", "usr", "sbin", ".singularity.d")):
        return Transport.ROOTFS
    raise ImageError(
        f"{name} is not an image: it has neither oci-layout nor the directories of a root file system",
        remedy=_IMAGES,
    )


def _sniff_tar(name: str, head: bytes) -> Transport:
    """An OCI layout takes precedence over a docker-archive: files of Docker since version 25 are both, and
    the layout has the manifest, and so the image's real digest."""
    seen: set[str] = set()
    for each in first_names(name, head, name=name, most_bytes=_SNIFFED_BYTES):
        plain = each.removeprefix("./").strip("/")
        seen.add(plain)
        if {"oci-layout", "index.json"} <= seen:
            return Transport.OCI_ARCHIVE
        top = plain.partition("/")[0]
        if top in ("usr", "etc", "bin", "lib", "sbin", "var", ".singularity.d"):
            return Transport.ROOTFS
    if "manifest.json" in seen or "repositories" in seen:
        return Transport.DOCKER_ARCHIVE
    # Of a large compressed archive only the beginning was read.
    if "oci-layout" in seen or "index.json" in seen or "blobs" in {each.partition("/")[0] for each in seen}:
        return Transport.OCI_ARCHIVE
    if any(re.match(r"(?:[0-9a-f]{64}){1,2}(\.tar|\.json|/|$)", each) for each in seen):
        return Transport.DOCKER_ARCHIVE
    raise ImageError(
        f"{name} is a tar file, but not of an image: it has neither oci-layout nor manifest.json",
        remedy=_IMAGES,
    )
