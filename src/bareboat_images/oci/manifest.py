"""Parses indexes, manifests and configs, of OCI and of Docker, as untrusted input.

Sources: OCI Image Format Specification 1.1 (https://github.com/opencontainers/image-spec) and Docker's
image manifest version 2, schema 2 (https://distribution.github.io/distribution/spec/manifest-v2-2/).
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from msgspec import Struct, field

from bareboat_base import architectures, codec, digests
from bareboat_base.argument_limits import fault
from bareboat_base.errors import ImageError
from bareboat_base.printable import plain, quoted
from bareboat_images.model import Process
from bareboat_images.oci import documents
from bareboat_images.oci.source import Descriptor, Document

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_DOCKER_V1 = (
    "application/vnd.docker.distribution.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v1+prettyjws",
)

#: The limit of overlayfs; Docker creates at most 127.
_MOST_LAYERS = 500
_MOST_MANIFESTS = 1000
_MOST_LISTED = 20
_MOST_LEFT_OUT = 8
#: No file system has larger files, and 64-bit byte counts must not overflow.
_LARGEST_BLOB = 2**63 - 1


class Platform(Struct, frozen=True, kw_only=True):
    """One architecture of an index."""

    descriptor: Descriptor
    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.os}/{self.architecture}" + (f"/{self.variant}" if self.variant else "")


class Manifest(Struct, frozen=True, kw_only=True):
    """One image: its config and its layers, bottom first; and the media type of its manifest."""

    config: Descriptor
    layers: tuple[Descriptor, ...]
    media_type: str


class Config(Struct, frozen=True, kw_only=True):
    """The parsed config of an image."""

    architecture: str
    os: str
    diff_ids: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    process: Process = field(default_factory=Process)
    comments: tuple[str, ...] = ()
    #: What was omitted.
    notes: tuple[str, ...] = ()


def make_manifest(config: Document, layers: Sequence[Descriptor]) -> Document:
    """The OCI manifest of a config and its layers. Equal input gives equal bytes."""
    data = codec.to_json(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": {"mediaType": config.media_type, "digest": config.digest, "size": len(config.data)},
            "layers": [
                {"mediaType": each.media_type, "digest": each.digest, "size": each.size}
                | ({"annotations": each.annotations} if each.annotations else {})
                for each in layers
            ],
        }
    )
    return document(data, OCI_MANIFEST)


def document(data: bytes, media_type: str) -> Document:
    """A document under the digest of its bytes."""
    return Document(data=data, media_type=media_type, digest=digests.of(data))


def platforms(document: Document, *, name: str) -> tuple[Platform, ...] | None:
    """The entries of an index; None for a document that is not an index. Raises ImageError."""
    read = decoded(document, name)
    if read.manifests is None:
        return None
    if len(read.manifests) > _MOST_MANIFESTS:
        raise ImageError(f"the index of {name} lists {len(read.manifests):,} manifests; that is not an image")
    found = []
    for each in read.manifests:
        platform = each.platform or documents.Platform()
        found.append(
            Platform(
                descriptor=_descriptor(each, name),
                os=platform.os,
                architecture=platform.architecture,
                variant=platform.variant,
            )
        )
    return tuple(found)


def choose(offered: Sequence[Platform], *, machine: str, name: str) -> Descriptor:
    """The manifest for this machine (as in `uname -m`). Raises ImageError that lists the available
    platforms."""
    wanted = architectures.oci(machine)
    # BuildKit writes "unknown" for the attestations stored with the images.
    real = [each for each in offered if each.os != "unknown" and each.architecture != "unknown"]
    fitting = [
        each for each in real if each.os in ("linux", "") and architectures.oci(each.architecture) == wanted
    ]
    if fitting:
        # A variant is a newer instruction set (amd64/v3, arm64/v8): the lowest runs everywhere.
        return min(fitting, key=lambda each: each.variant).descriptor
    if len(real) == 1 and not real[0].architecture:
        return real[0].descriptor
    listed = sorted({_plain(str(each)) for each in real if each.architecture})
    more = f" and {len(listed) - _MOST_LISTED} more" if len(listed) > _MOST_LISTED else ""
    raise ImageError(
        f"{name} has no image for linux/{wanted}; it has: "
        f"{', '.join(listed[:_MOST_LISTED]) or 'nothing with a platform'}{more}",
        remedy=_another(wanted, [each.architecture for each in real if each.os == "linux"]),
    )


def manifest(document: Document, *, name: str) -> Manifest:
    """One image's manifest. Raises ImageError for another kind of document and for impossible content."""
    read = decoded(document, name)
    if read.config is None or read.layers is None:
        raise ImageError(
            f"{name} is not an image: its manifest has no {'config' if read.config is None else 'layers'}",
            context=f"media type {document.media_type or read.media_type or 'unknown'}",
            remedy="it may be a chart, a signature or another artifact; check the reference",
        )
    if len(read.layers) > _MOST_LAYERS:
        raise ImageError(f"{name} has {len(read.layers):,} layers; no overlay file system takes so many")
    for number, each in enumerate(read.layers, 1):
        _check_layer(each, number, name)
    called = (read.media_type, document.media_type)
    return Manifest(
        config=_descriptor(read.config, name),
        layers=tuple(_descriptor(each, name) for each in read.layers),
        media_type=DOCKER_MANIFEST if DOCKER_MANIFEST in called else OCI_MANIFEST,
    )


def config(document: Document, *, name: str) -> Config:
    """One image's config. Raises ImageError."""
    read = documents.config(document.data, name=name)
    if read.rootfs is None or read.rootfs.diff_ids is None:
        raise ImageError(
            f"{name} is not an image: its config names no layers",
            remedy="it may be a chart, a signature or another artifact; check the reference",
        )
    for diff_id in read.rootfs.diff_ids:
        check_digest(diff_id, f"the config of {name}")
    execution = read.config or documents.Execution()
    words = (*(execution.entrypoint or ()), *(execution.cmd or ()))
    if any("\0" in text for text in (*words, execution.working_dir or "", execution.user or "")):
        raise ImageError(f"the config of {name} holds a NUL byte, which no program can be given")
    environment: dict[str, str] = {}
    left_out: dict[str, None] = {}
    for entry in execution.env or ():
        variable, equals, value = entry.partition("=")
        if equals and variable.isprintable() and variable and "\0" not in value:
            environment[variable] = value
        else:
            left_out[_plain(entry[:40])] = None
    if (reason := fault(words, environment)) is not None:
        raise ImageError(
            f"{name} cannot be run: its config {_plain(reason)}",
            remedy="ask the image's publisher to rebuild it with less in ENV, ENTRYPOINT and CMD",
        )
    notes: tuple[str, ...] = ()
    if left_out:
        shown = ", ".join(repr(each) for each in list(left_out)[:_MOST_LEFT_OUT])
        more = f", … ({len(left_out):,} in all)" if len(left_out) > _MOST_LEFT_OUT else ""
        notes = (f"environment variables were left out that no program can be given: {shown}{more}",)
    return Config(
        architecture=read.architecture or "",
        os=read.os or "",
        diff_ids=tuple(read.rootfs.diff_ids),
        environment=environment,
        process=Process(
            entrypoint=tuple(execution.entrypoint or ()),
            command=tuple(execution.cmd or ()),
            workdir="/" + posixpath.normpath(f"/{execution.working_dir or ''}").lstrip("/"),
            user=execution.user or "",
        ),
        comments=tuple(_plain(each.created_by or "") for each in read.history or () if not each.empty_layer),
        notes=notes,
    )


def check_machine(architecture: str, *, os: str = "linux", machine: str, name: str) -> None:
    """Raise ImageError for an image of another architecture (as in `uname -m`) or operating system.

    With an index this is known before anything is fetched; with a single manifest only from the config.
    """
    wanted = architectures.oci(machine)
    if os not in ("linux", "") or architectures.oci(architecture) not in (wanted, "", "unknown"):
        raise ImageError(
            f"{name} is an image for {_plain(f'{os}/{architecture}')}, not for linux/{wanted}",
            remedy=_another(wanted, [architecture] if os in ("linux", "") else []),
        )


def _another(wanted: str, offered: Sequence[str]) -> str:
    """The remedy without an image for this machine; `offered`: architectures of the available images."""
    known = next((found.name for each in offered if (found := architectures.find(each)) is not None), None)
    choose = f"choose an image or tag that is built for linux/{wanted}"
    if known is None:
        return choose
    return f"{choose}; for {known} nodes: bareboat image pull --arch {known} REFERENCE"


def _check_layer(read: documents.Descriptor, number: int, name: str) -> None:
    """Refuse, before any download, a descriptor that cannot be a layer."""
    if read.urls and ("foreign" in read.media_type or "nondistributable" in read.media_type):
        raise ImageError(f"{name} has layers that its registry may not give out: it is a Windows image")
    if read.media_type.endswith("+encrypted"):
        raise ImageError(
            f"layer {number} of {name} is encrypted, and only its owner's keys open it",
            context=_plain(read.media_type),
            remedy="decrypt it first: skopeo copy --decryption-key KEY docker://… oci:DIR",
        )
    if read.media_type and "tar" not in read.media_type:
        raise ImageError(
            f"{name} is not an image of files: its layer {number} is of the type {_plain(read.media_type)}",
            remedy="it may be a signature, a model or another artifact; check the reference",
        )


def decoded(document: Document, name: str) -> documents.Manifest:
    """A manifest or an index with checked types. Raises ImageError."""
    if document.media_type in _DOCKER_V1:
        raise _too_old(name)
    read = documents.manifest(document.data, name=name, media_type=document.media_type)
    if read.schema_version == 1:
        raise _too_old(name)
    if read.manifests is not None and (read.config is not None or read.layers is not None):
        # Two readers could see two images under one digest (CVE-2021-41190).
        raise ImageError(f"the manifest of {name} is an index and an image at once")
    return read


def _too_old(name: str) -> ImageError:
    return ImageError(
        f"{name} is in Docker's format of before 2016 (schema 1), which no tool of today writes",
        remedy="pull and push it once with a current Docker or podman",
    )


def _descriptor(read: documents.Descriptor, name: str) -> Descriptor:
    check_digest(read.digest, f"the manifest of {name}")
    if read.size is None:
        raise ImageError(
            f"the manifest of {name} does not give the size of {read.digest}",
            context="a descriptor without the field size",
            remedy="OCI requires it; ask the image's publisher to push it again",
        )
    if not -1 <= read.size <= _LARGEST_BLOB:  # -1: of a docker-archive, made by Bareboat
        raise ImageError(f"the manifest of {name} gives the size {read.size} bytes for {read.digest}")
    return Descriptor(
        media_type=read.media_type, digest=read.digest, size=read.size, annotations=read.annotations or {}
    )


def check_digest(digest: str, where: str) -> None:
    """Raise ImageError for a digest that Bareboat cannot compute, or that is unsafe in a path or URL."""
    if not digests.is_digest(digest):
        raise ImageError(
            f"{where} names content by {quoted(digest, limit=100)}, which is not a SHA-256 digest",
            remedy="all content is verified by SHA-256; the image must be pushed again with it",
        )


def _plain(text: str) -> str:
    """A document's text made safe for a terminal: no control characters, one line, at most 1000
    characters."""
    return plain(text[:1000])
