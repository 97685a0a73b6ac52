"""Small images and the files that hold them, made by hand: as tools write them, and as none ever would."""

import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registries import INDEX, MANIFEST, Packed, pack, sha256

from bareboat_images.oci import manifest
from bareboat_images.oci.source import Descriptor, Source

DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
REF_NAME = "org.opencontainers.image.ref.name"

Files = dict[str, bytes]


def hex_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def member(name: str, *, kind: bytes = tarfile.REGTYPE, size: int = 0, target: str = "") -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.type, header.size, header.linkname = kind, size, target
    return header


def tar_of(
    files: Mapping[str, bytes] | Iterable[tuple[str, bytes]],
    *links: tarfile.TarInfo,
    format: int = tarfile.PAX_FORMAT,
) -> bytes:
    """A tar of files, names as given; then of what has no content."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for name, data in files.items() if isinstance(files, Mapping) else files:
            archive.addfile(member(name, size=len(data)), io.BytesIO(data))
        for header in links:
            archive.addfile(header)
    return out.getvalue()


def handmade(*contents: str, packed: bool = True, architecture: str = "amd64") -> Packed:
    """An image with a layer for each text."""
    tars = (tar_of({"etc/hello": text.encode()}) for text in contents or ("hello",))
    return pack(*tars, compressed=packed, architecture=architecture, Env=["PATH=/usr/bin:/bin"])


def entry(image: Packed, name: str | None = None, **more: Any) -> dict[str, Any]:
    """The image's line in an index."""
    made: dict[str, Any] = {"mediaType": MANIFEST, "digest": image.digest, "size": len(image.manifest)}
    if name is not None:
        made["annotations"] = {REF_NAME: name}
    return made | more


def oci_files(images: Iterable[Packed], entries: Iterable[dict[str, Any]]) -> Files:
    """The files of an OCI layout."""
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": list(entries)}
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    for image in images:
        files |= {"blobs/" + digest.replace(":", "/"): data for digest, data in image.blobs.items()}
    return files


def docker_files(*images: tuple[Packed, list[str] | None]) -> Files:
    """The files of a docker-archive."""
    files: Files = {}
    saved = []
    for image, tags in images:
        config = hex_of(image.config) + ".json"
        names = [f"{hex_of(layer)}.tar" for layer in image.tars]
        files |= {config: image.config} | dict(zip(names, image.tars, strict=True))
        saved.append({"Config": config, "RepoTags": tags, "Layers": names})
    return files | {"manifest.json": json.dumps(saved).encode()}


def put(folder: Path, files: Files) -> Path:
    """Write files into a folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def read_blob(source: Source, descriptor: Descriptor, offset: int = 0) -> bytes:
    parts = []
    buffer = memoryview(bytearray(7919))  # no power of two: pieces are cut where nobody expects it
    with source.blob(descriptor, offset) as blob:
        while got := blob.readinto(buffer):
            parts.append(bytes(buffer[:got]))
    return b"".join(parts)


@dataclass(frozen=True)
class Whole:
    """An image read to its last byte."""

    digest: str
    config: manifest.Config
    layers: tuple[Descriptor, ...]
    blobs: tuple[bytes, ...]


def read_whole(source: Source, machine: str = "x86_64") -> Whole:
    """Read everything as a pull does; what is not what its digest says fails."""
    document = source.document()
    while (offered := manifest.platforms(document, name=source.name)) is not None:
        chosen = manifest.choose(offered, machine=machine, name=source.name)
        document = source.document(chosen.digest)
    assert sha256(document.data) == document.digest
    read = manifest.manifest(document, name=source.name)
    described = source.document(read.config.digest)
    assert sha256(described.data) == described.digest == read.config.digest
    blobs = tuple(read_blob(source, layer) for layer in read.layers)
    for layer, blob in zip(read.layers, blobs, strict=True):
        assert (sha256(blob), len(blob)) == (layer.digest, layer.size if layer.size >= 0 else len(blob))
        for offset in (1, len(blob) // 2, len(blob)):
            assert read_blob(source, layer, offset) == blob[offset:]
    config = manifest.config(described, name=source.name)
    return Whole(digest=document.digest, config=config, layers=read.layers, blobs=blobs)


# -- SIF and squashfs ------------------------------------------------------------------------------------

DATA_PARTITION = 0x4004
DATA_JSON = 0x4006


def sif_part(
    kind: int = DATA_PARTITION,
    *,
    offset: int,
    size: int,
    number: int = 1,
    used: int = 1,
    name: bytes = b"",
    file_system: int = 1,
    role: int = 2,
    architecture: bytes = b"02",
) -> bytes:
    """A descriptor."""
    extra = struct.pack("<ii3s", file_system, role, architecture) if kind == DATA_PARTITION else b""
    return struct.pack(
        "<iBIII7q128s384s", kind, used, number, 0xF0000001, 0, offset, size, size, 0, 0, 0, 0, name, extra
    )


def sif_header(
    *, descriptors: int, offset: int = 4096, magic: bytes = b"SIF_MAGIC", version: bytes = b"01"
) -> bytes:
    launch = b"#!/usr/bin/env run-singularity\n"
    numbers = (0, 0, 0, descriptors, offset, descriptors * 585, 32768, 0)
    return struct.pack("<32s10s3s3s16s8q", launch, magic, version, b"02", bytes(16), *numbers)


def sif_of(*parts: bytes, data: bytes = b"", at: int = 32768, **header: Any) -> bytes:
    """A SIF with these descriptors, and data at an offset."""
    made = sif_header(**{"descriptors": len(parts)} | header)
    made += bytes(4096 - len(made)) + b"".join(parts)
    return made + bytes(max(at - len(made), 0)) + data


def superblock(
    *,
    inodes: int = 1,
    block_size: int = 131072,
    block_log: int = 17,
    version: tuple[int, int] = (4, 0),
    bytes_used: int = 96,
    magic: bytes = b"hsqs",
) -> bytes:
    """The first 96 bytes of a squashfs; nothing follows."""
    head = struct.pack(
        "<4sIIIIHHHHHHQQ",
        magic, inodes, 0, block_size, 0, 1, block_log, 0, 1, *version, 0, bytes_used,
    )  # fmt: skip
    return head + bytes(96 - len(head))
