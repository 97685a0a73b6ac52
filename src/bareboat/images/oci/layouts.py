"""Images that are on this machine: OCI layouts, archives, SIF, squashfs, root file systems.

Sources: OCI Image Layout (https://github.com/opencontainers/image-spec/blob/main/image-layout.md), and what
`docker save` writes (https://github.com/moby/docker-image-spec). Archives are indexed, never unpacked:
layers are read where they lie.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from bareboat import codec, digests
from bareboat.errors import ImageError, UsageError
from bareboat.images.formats import sif, squash
from bareboat.images.formats.rootfs import FolderSource, TarballSource
from bareboat.images.layers.limits import MAX_RATIO
from bareboat.images.oci import manifest
from bareboat.images.oci.archive import Archive, Member, Section, first_names, inflated, open_regular
from bareboat.images.oci.inflation import is_compressed
from bareboat.images.oci.manifest import (
    OCI_CONFIG,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
    Platform,
    check_digest,
    document,
    make_manifest,
)
from bareboat.images.oci.reference import Transport
from bareboat.images.oci.source import (
    LARGEST_DOCUMENT,
    Blob,
    Descriptor,
    Document,
    Joined,
    LocalSource,
    Source,
)

_BLOB = re.compile(r"(?:.*/)?blobs/([a-z0-9]+)/([0-9a-f]+)")
_HEX = re.compile(r"([0-9a-f]+)(\.json)?")
_NAMES = ("org.opencontainers.image.ref.name", "io.containerd.image.name")
_ATTESTATION = "vnd.docker.reference.type"
_MOST_SHOWN = 20
#: A compressed archive is looked into so far before it is called one.
_SNIFFED_BYTES = 256 << 20


def open_layout(
    path: str | os.PathLike[str],
    transport: Transport,
    tag: str | None = None,
    *,
    scratch: Path | None = None,
    max_ratio: float = MAX_RATIO,
) -> Source:
    """Open an image on this machine.

    `tag` chooses among several: what the layout calls it, `NAME:TAG` in a docker-archive, `@N` for the
    N-th, or a digest. `scratch` is a folder, of the caller's, for what must be inflated or unpacked first:
    compressed archives, squashfs, SIF; without it, a folder for temporary files serves. `max_ratio`
    is how many times its own size a compressed file may become. Raises ImageError, UsageError.
    """
    name = f"{transport.value}:{os.fspath(path)}" + (f":{tag}" if tag else "")
    match transport:
        case Transport.OCI:
            return LayoutSource(_Folder(path, name=name), tag, name=name, path=os.fspath(path))
        case Transport.OCI_ARCHIVE | Transport.DOCKER_ARCHIVE:
            archive = Archive(path, name=name, scratch=scratch, max_ratio=max_ratio)
            if transport is Transport.OCI_ARCHIVE:
                return LayoutSource(_Archived(archive), tag, name=name, path=os.fspath(path))
            return DockerSource(archive, tag, name=name, path=os.fspath(path))
        case Transport.SIF | Transport.SQUASHFS:
            is_sif = transport is Transport.SIF
            return squash.SquashSource(path, name=name, is_sif=is_sif, scratch=scratch, max_ratio=max_ratio)
        case Transport.ROOTFS if not os.path.isdir(path):
            return TarballSource(path, name=name, scratch=scratch, max_ratio=max_ratio)
        case Transport.ROOTFS:
            return FolderSource(path, name=name, max_ratio=max_ratio)
        case _:
            raise UsageError(f"{name} does not exist on this machine", remedy=_EXAMPLES)


# --------------------------------------------------------------------------------------------------
# What a path is.

_EXAMPLES = "write oci:DIR, oci-archive:FILE, docker-archive:FILE, sif:FILE, squashfs:FILE or rootfs:DIR"


def sniff(path: str | os.PathLike[str]) -> Transport:
    """What kind of image a path is, by its content. Raises ImageError when it is none that is known."""
    name = os.fspath(path)
    if os.path.isdir(path):
        return _sniff_folder(name)
    with open_regular(path, name=name) as stream:
        head = os.pread(stream.fileno(), 512, 0)
    if head[sif.MAGIC_OFFSET : sif.MAGIC_OFFSET + len(sif.MAGIC)] == sif.MAGIC:
        return Transport.SIF
    if head.startswith(squash.MAGIC):
        return Transport.SQUASHFS
    if is_compressed(head) or head[257:262] == b"ustar" or not head.strip(b"\0"):
        return _sniff_tar(name, head)
    raise ImageError(f"{name} is no image that Bareboat knows", remedy=_EXAMPLES)


def _sniff_folder(name: str) -> Transport:
    def there(*names: str) -> bool:
        return all(os.path.lexists(os.path.join(name, each)) for each in names)

    if there("oci-layout") or there("index.json", "blobs"):
        return Transport.OCI
    if any(there(each) for each in ("bin", "usr", "sbin", ".singularity.d")):
        return Transport.ROOTFS
    quoted = shlex.quote(name)
    if there("version", "manifest.json"):
        raise ImageError(
            f"{name} is a directory in skopeo's own format (dir:)",
            remedy=f"skopeo copy dir:{quoted} oci-archive:IMAGE.tar",
        )
    if there("rootfs", "config.json"):
        raise ImageError(f"{name} is a runtime bundle", remedy=f"name its root: rootfs:{quoted}/rootfs")
    if there("manifest.json"):
        raise ImageError(
            f"{name} is an unpacked docker-archive",
            remedy=f"tar -C {quoted} -cf IMAGE.tar .   # pack it again",
        )
    raise ImageError(
        f"{name} is not an image: it has neither oci-layout nor the directories of a root file system",
        remedy=_EXAMPLES,
    )


def _sniff_tar(name: str, head: bytes) -> Transport:
    """An OCI layout goes before a docker-archive: where both are in one file, as in those of Docker since
    version 25, the layout has the manifest, and so the digest, that the image really has."""
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
    # Of a large compressed archive only the beginning was seen.
    if "oci-layout" in seen or "index.json" in seen or "blobs" in {each.partition("/")[0] for each in seen}:
        return Transport.OCI_ARCHIVE
    if any(re.match(r"(?:[0-9a-f]{64}){1,2}(\.tar|\.json|/|$)", each) for each in seen):
        return Transport.DOCKER_ARCHIVE
    raise ImageError(
        f"{name} is a tar file, but not of an image: it has neither oci-layout nor manifest.json",
        remedy=_EXAMPLES,
    )


# --------------------------------------------------------------------------------------------------
# OCI layouts.


class _Place(Protocol):
    """Where the files of a layout are."""

    def read(self, path: str) -> bytes | None:
        """A small file; None when it is not there."""
        ...

    def open(self, path: str, offset: int) -> tuple[Section, int] | None:
        """A file from an offset on, and its whole size."""
        ...


class _Folder:
    def __init__(self, folder: str | os.PathLike[str], *, name: str) -> None:
        self._folder = os.fspath(folder)
        self._name = name
        if not os.path.isdir(self._folder):
            there = os.path.lexists(self._folder)
            raise ImageError(
                f"{name} is not {'a folder' if there else 'there'}",
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
    """A section that closes its file with itself."""

    def __init__(self, stream: Any, offset: int, size: int, *, name: str) -> None:
        super().__init__(stream.fileno(), offset, size, name=name)
        self._stream = stream

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


class _Archived:
    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def read(self, path: str) -> bytes | None:
        member = self._archive.find(path)
        if member is None:
            return None
        if path == "index.json":
            _refuse_repeated(self._archive, path)
        return self._archive.read(member, largest=LARGEST_DOCUMENT)

    def open(self, path: str, offset: int) -> tuple[Section, int] | None:
        member = self._archive.find(path)
        return None if member is None else (self._archive.section(member, offset), member.size)


class LayoutSource(LocalSource):
    """One image of an OCI layout, in a folder or an archive. Satisfies `Source`."""

    def __init__(self, place: _Place, tag: str | None, *, name: str, path: str) -> None:
        """Read the index and choose. Raises ImageError that lists the images when the choice is open."""
        self.name = name
        self._place = place
        data = place.read("index.json")
        if data is None:
            other = place.read("manifest.json") is not None
            raise ImageError(
                f"{name} is no OCI layout: it has no index.json",
                remedy=f"it is a docker-archive: docker-archive:{shlex.quote(path)}" if other else _EXAMPLES,
            )
        index = document(data, OCI_INDEX)
        entries = manifest.platforms(index, name=name)
        if entries is None:
            raise ImageError(f"the index of {name} lists no manifests", remedy="make the layout again")
        #: What the descriptors call the documents that they point to.
        self._media_types = {
            each.descriptor.digest: each.descriptor.media_type
            for each in entries
            if each.descriptor.media_type
        }
        self._root = self._choose(index, entries, tag)

    def document(self, digest: str | None = None) -> Document:
        """The manifest or index of the image, or the document of a digest. Verified."""
        if digest in (None, self._root.digest):
            return self._root
        return self._document(digest or "")

    @contextlib.contextmanager
    def blob(self, descriptor: Descriptor, offset: int = 0) -> Iterator[Blob]:
        """Open a blob. Raises ImageError when it is not there, or has another size than it should."""
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
        """The manifest's blob; its tar where the layout has that and not the blob."""
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
            if _ATTESTATION not in each.descriptor.annotations  # who built it, not what
        ]
        chosen = [number for at, number in enumerate(real) if _is_called(entries[number], tag, at)]
        plain = self.name.removesuffix(f":{tag}")
        if not chosen:
            raise ImageError(
                f"image {tag!r} not found in {plain}" if tag else f"{self.name} holds no image",
                context=self._listed(entries, real),
                remedy="name one of those that are listed" if real else "make the layout again",
            )
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
        lines = [
            f"@{position}  {', '.join(_called(entries[number])) or entries[number].descriptor.digest}"
            for position, number in enumerate(numbers[:_MOST_SHOWN])
        ]
        return "\n".join(lines + ["…"] * (len(numbers) > _MOST_SHOWN))

    def _document(self, digest: str) -> Document:
        data = self._place.read(_blob_path(digest, self.name))
        if data is None:
            raise self._missing(digest)
        found = document(data, self._media_types.get(digest) or _media_type(data), digests.algorithm(digest))
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


def _called(entry: Platform) -> tuple[str, ...]:
    names = (entry.descriptor.annotations.get(each) for each in _NAMES)
    return tuple(dict.fromkeys(each for each in names if each))


def _is_called(entry: Platform, tag: str | None, position: int) -> bool:
    if tag is None:
        return True
    if digests.is_digest(tag):  # which a name in the layout cannot claim
        return tag == entry.descriptor.digest
    if tag == f"@{position}":
        return True
    return any(tag == each or _full(tag) == _full(each) for each in _called(entry))


def _full(name: str) -> str:
    """A name as Docker means it: `debian` is `docker.io/library/debian:latest`."""
    first, slash, _ = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif "." not in first and ":" not in first and first != "localhost":
        name = f"docker.io/{name}"
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


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


class _Shape(msgspec.Struct, rename="camel"):
    media_type: str = ""
    manifests: msgspec.Raw | None = None
    layers: msgspec.Raw | None = None


def _media_type(data: bytes) -> str:
    """What a document says that it is, or else looks like."""
    try:
        read = msgspec.json.decode(data, type=_Shape)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ""
    if read.media_type:
        return read.media_type
    return OCI_INDEX if read.manifests else OCI_MANIFEST if read.layers else OCI_CONFIG


# --------------------------------------------------------------------------------------------------
# What `docker save` writes.


class _Saved(msgspec.Struct, rename="pascal"):
    config: str
    repo_tags: list[str] | None = None
    layers: list[str] = []


class DockerSource(LocalSource):
    """One image of a docker-archive. Satisfies `Source`.

    Such an archive has no manifest; one is made, always the same for the same content. Its layers' digests
    are the config's diff-ids, because the archive holds the layers uncompressed, or else is inflated.
    """

    def __init__(self, archive: Archive, tag: str | None, *, name: str, path: str) -> None:
        """Read the archive's manifest and choose. Raises ImageError that lists the images when the choice
        is open."""
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
        for each in (self._manifest, self._config):
            if digest in (None, each.digest):
                return each
        raise ImageError(f"{self.name} has no document {digest}")

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
                f"{self.name} lacks its layer {number}, {entry[:200]!r}", remedy="make the archive again"
            )
        packed = is_compressed(self._magic(member))
        blob = _BLOB.fullmatch(entry)
        named = digests.at(blob[1], blob[2]) if blob else None
        if packed and named is None:
            # Its digest, which nothing in the archive tells, is that of what it inflates to.
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
        _refuse_repeated(self._archive, "manifest.json")
        data = self._archive.read(member, largest=LARGEST_DOCUMENT)
        try:
            saved = msgspec.json.decode(data, type=list[_Saved])
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
                f"{self.name} is no docker-archive but an OCI archive", remedy=f"oci-archive:{quoted}"
            )
        if self._archive.find("repositories") is not None:
            return ImageError(
                f"{self.name} was written by a Docker of before 1.10 (2016): it has no manifest.json",
                remedy=f"docker load -i {quoted}, and docker save again with a current Docker",
            )
        return ImageError(
            f"{self.name} is no docker-archive: it has no manifest.json",
            remedy=f"if it is a root file system: rootfs:{quoted}",
        )

    def _choose(self, saved: list[_Saved], tag: str | None) -> _Saved:
        chosen = [
            each
            for number, each in enumerate(saved)
            if tag is None
            or tag == f"@{number}"
            or any(_full(tag) == _full(called) for called in each.repo_tags or ())
        ]
        listed = "\n".join(
            f"@{number}  {', '.join(each.repo_tags or ()) or each.config}"
            for number, each in enumerate(saved[:_MOST_SHOWN])
        ) + ("\n…" if len(saved) > _MOST_SHOWN else "")
        plain = self.name.removesuffix(f":{tag}")
        if not chosen:
            raise ImageError(
                f"image {tag!r} not found in {plain}",
                context=listed,
                remedy="name one of those that are listed",
            )
        if len({each.config for each in chosen}) > 1:
            example = ((chosen[0].repo_tags or []) + ["@0"])[0]
            raise ImageError(
                f"{self.name} holds {len(chosen)} images",
                context=listed,
                remedy=f"name one: {plain}:{example}",
            )
        return chosen[0]

    def _read_config(self, saved: _Saved) -> Document:
        member = self._archive.find(saved.config)
        if member is None:
            raise ImageError(
                f"{self.name} lacks the config of its image, {saved.config[:200]!r}",
                remedy="make the archive again",
            )
        last = _HEX.fullmatch(saved.config.rpartition("/")[2])
        named = digests.of_digits(last[1]) if last else None
        data = self._archive.read(member, largest=LARGEST_DOCUMENT)
        config = document(data, OCI_CONFIG, digests.algorithm(named) if named else "sha256")
        if named and config.digest != named:
            raise ImageError(
                f"{self.name} is damaged: its config does not match its digest",
                context=f"expected {named}, found {config.digest}",
                remedy="copy or make the archive again",
            )
        return config


def _refuse_repeated(archive: Archive, path: str) -> None:
    if path in archive.repeated:
        raise ImageError(
            f"{archive.name} has two entries {path}",
            remedy="no tool writes such an archive; do not trust it",
        )


def _too_large(name: str, path: str, size: int) -> ImageError:
    return ImageError(f"{path} of {name} has {size:,} bytes, more than the {LARGEST_DOCUMENT:,} that such "
                      "a document may have")  # fmt: skip
