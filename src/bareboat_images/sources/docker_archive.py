"""Reads images written by `docker save`: a tar with layers and a config, without an OCI manifest.

Source: https://github.com/moby/docker-image-spec
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator

import msgspec

from bareboat_base import codec, digests
from bareboat_base.errors import ImageError
from bareboat_base.expressions import expression
from bareboat_base.printable import quoted
from bareboat_images.oci import manifest
from bareboat_images.oci.manifest import (
    OCI_CONFIG,
    OCI_LAYER,
    document,
    make_manifest,
)
from bareboat_images.oci.reference import full_name
from bareboat_images.oci.source import (
    LARGEST_DOCUMENT,
    Blob,
    Descriptor,
    Document,
    Joined,
    LocalSource,
)
from bareboat_images.sources.archive import Archive, Member, inflated
from bareboat_images.sources.layouts import listed
from bareboat_images.tar.inflation import is_compressed

_BLOB = expression(r"(?:.*/)?blobs/sha256/([0-9a-f]+)")
_HEX = expression(r"([0-9a-f]+)(\.json)?")


class _Saved(msgspec.Struct, rename="pascal"):
    config: str
    repo_tags: list[str] | None = None
    layers: list[str] = []


class DockerSource(LocalSource):
    """One image of a docker-archive. Satisfies `Source`.

    Such an archive has no OCI manifest; one is made, always the same for the same content. A layer's digest
    is
    its diff-id, except for a compressed layer whose file name is its digest.
    """

    def __init__(self, archive: Archive, tag: str | None, *, name: str, path: str) -> None:
        """Read the archive's manifest.json and choose an image. Raises ImageError, listing the images, when
        the choice is ambiguous."""
        self.name = name
        self._archive = archive
        saved = self._choose(self._read(path), tag)
        self._config = self._read_config(saved)
        read = manifest.config(self._config, name=name)
        if len(read.diff_ids) != len(saved.layers):
            raise ImageError(
                f"{name} contradicts itself: {len(saved.layers)} layers in its manifest.json, "
                f"{len(read.diff_ids)} in its config",
                remedy="make the archive again",
            )
        self._members: dict[str, Member] = {}
        layers = []
        for number, (entry, diff_id) in enumerate(zip(saved.layers, read.diff_ids, strict=True), 1):
            layers.append(self._layer(number, entry, diff_id))
        self._manifest = make_manifest(self._config, layers)

    def document(self, digest: str | None = None) -> Document:
        """The manifest, or the config."""
        return self.one_of((self._manifest, self._config), digest)

    @contextlib.contextmanager
    def blob(self, descriptor: Descriptor, offset: int = 0) -> Iterator[Blob]:
        """Open a layer."""
        member = self._members.get(descriptor.digest)
        if member is None:
            raise ImageError(f"{self.name} has no layer {descriptor.digest}")
        if descriptor.size != -1:
            with contextlib.closing(self._archive.section(member, offset)) as section:
                yield section
            return
        with contextlib.closing(self._archive.section(member)) as section:
            what = f"the entry {member.name} of {self.name}"
            stream = Joined(inflated(section, name=what, max_ratio=self._archive.max_ratio))
            stream.skip(offset)
            yield stream

    def _layer(self, number: int, entry: str, diff_id: str) -> Descriptor:
        member = self._archive.find(entry)
        if member is None:
            raise ImageError(
                f"{self.name} lacks its layer {number}, {quoted(entry, limit=200)}",
                remedy="make the archive again",
            )
        packed = is_compressed(self._magic(member))
        blob = _BLOB.fullmatch(entry)
        named = digests.of_digits(blob[1]) if blob else None
        if packed and named is None:
            # The archive does not contain its digest; use the diff-id, the digest of its uncompressed
            # content.
            self._members[diff_id] = member
            return Descriptor(media_type=OCI_LAYER, digest=diff_id, size=-1)
        digest = named if packed and named else diff_id
        media_type = OCI_LAYER
        if packed:
            media_type += "+zstd" if self._magic(member).startswith(b"\x28\xb5\x2f\xfd") else "+gzip"
        self._members[digest] = member
        return Descriptor(media_type=media_type, digest=digest, size=member.size)

    def _magic(self, member: Member) -> bytes:
        with contextlib.closing(self._archive.section(member)) as section:
            return section.read(min(8, member.size)) if member.size else b""

    def _read(self, path: str) -> list[_Saved]:
        member = self._archive.find("manifest.json")
        if member is None:
            raise self._no_manifest(path)
        self._archive.refuse_repeated("manifest.json")
        data = self._archive.read(member, largest=LARGEST_DOCUMENT)
        try:
            saved = codec.decode(data, list[_Saved])
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise ImageError(
                f"the manifest.json of {self.name} cannot be read: {error}", remedy="make the archive again"
            ) from None
        if not saved:
            raise ImageError(f"{self.name} holds no image", remedy="make the archive again")
        return saved

    def _no_manifest(self, path: str) -> ImageError:
        quoted = shlex.quote(path)
        if self._archive.find("index.json") is not None:
            return ImageError(
                f"{self.name} is not a docker-archive but an OCI archive", remedy=f"oci-archive:{quoted}"
            )
        return ImageError(
            f"{self.name} is not a docker-archive: it has no manifest.json",
            remedy=f"if it is a root file system: rootfs:{quoted}",
        )

    def _choose(self, saved: list[_Saved], tag: str | None) -> _Saved:
        chosen = [
            each
            for number, each in enumerate(saved)
            if tag is None
            or tag == f"@{number}"
            or any(full_name(tag) == full_name(called) for called in each.repo_tags or ())
        ]
        images = listed([", ".join(each.repo_tags or ()) or each.config for each in saved])
        plain = self.name.removesuffix(f":{tag}")
        if not chosen:
            raise ImageError(
                f"image {tag!r} not found in {plain}",
                context=images,
                remedy="name one of those that are listed",
            )
        if len({each.config for each in chosen}) > 1:
            example = ((chosen[0].repo_tags or []) + ["@0"])[0]
            raise ImageError(
                f"{self.name} holds {len(chosen)} images",
                context=images,
                remedy=f"name one: {plain}:{example}",
            )
        self.called = tuple(chosen[0].repo_tags or ())
        return chosen[0]

    def _read_config(self, saved: _Saved) -> Document:
        member = self._archive.find(saved.config)
        if member is None:
            raise ImageError(
                f"{self.name} lacks the config of its image, {quoted(saved.config, limit=200)}",
                remedy="make the archive again",
            )
        last = _HEX.fullmatch(saved.config.rpartition("/")[2])
        named = digests.of_digits(last[1]) if last else None
        data = self._archive.read(member, largest=LARGEST_DOCUMENT)
        config = document(data, OCI_CONFIG)
        if named and config.digest != named:
            raise ImageError(
                f"{self.name} is damaged: its config does not match its digest",
                context=f"expected {named}, found {config.digest}",
                remedy="copy or make the archive again",
            )
        return config
