"""Reads OCI layouts, in a directory or in an archive, which is indexed and never unpacked.

Source: https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from bareboat_base import codec, digests
from bareboat_base.errors import ImageError
from bareboat_images.oci import manifest
from bareboat_images.oci.manifest import (
    OCI_INDEX,
    OCI_LAYER,
    Platform,
    check_digest,
    document,
)
from bareboat_images.oci.reference import EXAMPLES, full_name
from bareboat_images.oci.source import (
    LARGEST_DOCUMENT,
    Blob,
    Descriptor,
    Document,
    LocalSource,
)
from bareboat_images.sources.archive import Archive, Section, open_regular

_NAMES = ("org.opencontainers.image.ref.name", "io.containerd.image.name")
_ATTESTATION = "vnd.docker.reference.type"
#: At most this many images are listed in a message.
_MOST_SHOWN = 20


class _Place(Protocol):
    """The files of a layout."""

    def read(self, path: str) -> bytes | None:
        """A small file; None if it does not exist."""
        ...

    def open(self, path: str, offset: int) -> tuple[Section, int] | None:
        """A file, starting at an offset, and its whole size; None if it does not exist."""
        ...


class LayoutFolder:
    """A layout in a directory."""

    def __init__(self, folder: str | os.PathLike[str], *, name: str) -> None:
        self._folder = os.fspath(folder)
        self._name = name
        if not os.path.isdir(self._folder):
            there = os.path.lexists(self._folder)
            raise ImageError(
                f"{name} {'is not a directory' if there else 'does not exist'}",
                remedy=f"oci-archive:{shlex.quote(self._folder)}, if it is an archive"
                if there
                else "check the path",
            )

    def read(self, path: str) -> bytes | None:
        found = self.open(path, 0)
        if found is None:
            return None
        section, size = found
        with contextlib.closing(section):
            if size > LARGEST_DOCUMENT:
                raise _too_large(self._name, path, size)
            return section.read(size) if size else b""

    def open(self, path: str, offset: int) -> tuple[Section, int] | None:
        full = os.path.join(self._folder, path)
        if not os.path.lexists(full):
            return None
        stream = open_regular(full, name=f"{path} of {self._name}")
        size = os.fstat(stream.fileno()).st_size
        return _Owning(stream, offset, max(size - offset, 0), name=f"{path} of {self._name}"), size


class _Owning(Section):
    """A section that also closes its file."""

    def __init__(self, stream: Any, offset: int, size: int, *, name: str) -> None:
        super().__init__(stream.fileno(), offset, size, name=name)
        self._stream = stream

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


class LayoutArchive:
    """A layout in a tar."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def read(self, path: str) -> bytes | None:
        member = self._archive.find(path)
        if member is None:
            return None
        if path == "index.json":
            self._archive.refuse_repeated(path)
        return self._archive.read(member, largest=LARGEST_DOCUMENT)

    def open(self, path: str, offset: int) -> tuple[Section, int] | None:
        member = self._archive.find(path)
        return None if member is None else (self._archive.section(member, offset), member.size)


class LayoutSource(LocalSource):
    """One image of an OCI layout, in a directory or an archive. Satisfies `Source`."""

    def __init__(self, place: _Place, tag: str | None, *, name: str, path: str) -> None:
        """Read the index and choose an image. Raises ImageError, listing the images, when the choice is
        ambiguous."""
        self.name = name
        self._place = place
        data = place.read("index.json")
        if data is None:
            other = place.read("manifest.json") is not None
            raise ImageError(
                f"{name} is not an OCI layout: it has no index.json",
                remedy=f"it is a docker-archive: docker-archive:{shlex.quote(path)}" if other else EXAMPLES,
            )
        index = document(data, OCI_INDEX)
        entries = manifest.platforms(index, name=name)
        if entries is None:
            raise ImageError(f"the index of {name} lists no manifests", remedy="make the layout again")
        self._sizes = {each.descriptor.digest: each.descriptor.size for each in entries}
        self._root = self._choose(index, entries, tag)

    def document(self, digest: str | None = None) -> Document:
        """The manifest or index of the image, or the document with a digest. Verified."""
        if digest in (None, self._root.digest):
            return self._root
        return self._document(digest or "")

    @contextlib.contextmanager
    def blob(self, descriptor: Descriptor, offset: int = 0) -> Iterator[Blob]:
        """Open a blob. Raises ImageError if it does not exist or has the wrong size."""
        path = _blob_path(descriptor.digest, self.name)
        found = self._place.open(path, offset)
        if found is None:
            raise self._missing(descriptor.digest)
        section, size = found
        with contextlib.closing(section):
            if descriptor.size not in (-1, size):
                raise ImageError(
                    f"{self.name} is damaged: {descriptor.digest} has {size:,} bytes and should have "
                    f"{descriptor.size:,}",
                    remedy="copy or make the image again",
                )
            yield section

    def held(self, descriptor: Descriptor, diff_id: str) -> Descriptor:
        """The manifest's blob; its tar if the layout has only that."""
        if self._has(descriptor.digest) or not self._has(diff_id):
            return descriptor
        return Descriptor(media_type=OCI_LAYER, digest=diff_id, size=-1)

    def _has(self, digest: str) -> bool:
        found = self._place.open(_blob_path(digest, self.name), 0)
        if found is not None:
            found[0].close()
        return found is not None

    def _choose(self, index: Document, entries: Sequence[Platform], tag: str | None) -> Document:
        real = [
            number
            for number, each in enumerate(entries)
            if _ATTESTATION not in each.descriptor.annotations  # describes the build, is not an image
        ]
        chosen = [number for at, number in enumerate(real) if _is_called(entries[number], tag, at)]
        plain = self.name.removesuffix(f":{tag}")
        if not chosen:
            raise ImageError(
                f"image {tag!r} not found in {plain}" if tag else f"{self.name} holds no image",
                context=self._listed(entries, real),
                remedy="name one of those that are listed" if real else "make the layout again",
            )
        self.called = tuple(name for number in chosen for name in _called(entries[number]))
        if len({entries[number].descriptor.digest for number in chosen}) == 1:
            return self._document(entries[chosen[0]].descriptor.digest)
        platforms = {str(entries[number]) for number in chosen if entries[number].architecture}
        if len(platforms) == len(chosen) and len({_called(entries[number]) for number in chosen}) == 1:
            return _part_of(index, chosen, len(entries))
        raise ImageError(
            f"{self.name} holds {len(chosen)} images",
            context=self._listed(entries, chosen),
            remedy=f"name one: {plain}:{(_called(entries[chosen[0]]) or ('@0',))[0]}",
        )

    @staticmethod
    def _listed(entries: Sequence[Platform], numbers: Sequence[int]) -> str:
        chosen = [entries[number] for number in numbers]
        return listed([", ".join(_called(each)) or each.descriptor.digest for each in chosen])

    def _document(self, digest: str) -> Document:
        data = self._place.read(_blob_path(digest, self.name))
        if data is None:
            raise self._missing(digest)
        if (size := self._sizes.get(digest, -1)) not in (-1, len(data)):
            raise ImageError(
                f"{self.name} is damaged: {digest} has {len(data):,} bytes and should have {size:,}",
                remedy="copy or make the image again",
            )
        found = document(data, "")
        if found.digest != digest:
            raise ImageError(
                f"{self.name} is damaged: a document does not match its digest",
                context=f"expected {digest}, found {found.digest}",
                remedy="copy or make the image again",
            )
        return found

    def _missing(self, digest: str) -> ImageError:
        return ImageError(
            f"{self.name} lacks {digest}, which its image needs",
            remedy="copy or make the image again; it was perhaps made without all of its platforms or layers",
        )


def listed(names: Sequence[str]) -> str:
    """The images of an archive, each with its number."""
    lines = [f"@{number}  {name}" for number, name in enumerate(names[:_MOST_SHOWN])]
    return "\n".join(lines + ["…"] * (len(names) > _MOST_SHOWN))


def _called(entry: Platform) -> tuple[str, ...]:
    names = (entry.descriptor.annotations.get(each) for each in _NAMES)
    return tuple(dict.fromkeys(each for each in names if each))


def _is_called(entry: Platform, tag: str | None, position: int) -> bool:
    if tag is None:
        return True
    if digests.is_digest(tag):  # an image's name in the layout cannot be a digest
        return tag == entry.descriptor.digest
    if tag == f"@{position}":
        return True
    return any(tag == each or full_name(tag) == full_name(each) for each in _called(entry))


def _part_of(index: Document, numbers: Sequence[int], entries: int) -> Document:
    """The index with only these entries: several architectures of one image."""
    if len(numbers) == entries:
        return index
    read = codec.from_json(index.data, dict[str, Any], what="the index", remedy="copy the image again")
    kept = [read["manifests"][number] for number in numbers]
    data = codec.to_json({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": kept})
    return document(data, OCI_INDEX)


def _blob_path(digest: str, name: str) -> str:
    check_digest(digest, name)
    return "blobs/" + digests.place(digest)


def _too_large(name: str, path: str, size: int) -> ImageError:
    return ImageError(f"{path} of {name} has {size:,} bytes, more than the {LARGEST_DOCUMENT:,} that such "
                      "a document may have")  # fmt: skip
