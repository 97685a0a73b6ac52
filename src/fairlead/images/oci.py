"""OCI images: manifest and config of what is in the store, and its export as one archive file.

Source: OCI Image Format Specification 1.1, https://github.com/opencontainers/image-spec
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import IO

from fairlead import codec
from fairlead.errors import StoreError
from fairlead.images.layers import layer as layers
from fairlead.images.layers import rebuild
from fairlead.images.progress import Progress
from fairlead.images.sources.manifest import ARCHITECTURES, OCI_INDEX, OCI_MANIFEST, manifest
from fairlead.images.sources.source import Document
from fairlead.model import Image, Layer
from fairlead.store import Store

_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CREATED = "1980-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The two small documents that make layers an image."""

    manifest: bytes
    manifest_digest: str
    config: bytes
    config_digest: str


def metadata(content: tuple[Layer, ...], *, machine: str, environment: dict[str, str]) -> Metadata:
    """Manifest and config for uncompressed layers. Equal input gives equal bytes."""
    config = codec.to_json(
        {
            "architecture": ARCHITECTURES.get(machine, machine),
            "os": "linux",
            "created": _CREATED,
            "config": {
                "Env": [f"{name}={value}" for name, value in sorted(environment.items())],
                "Cmd": ["/bin/sh"],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in content]},
            "history": [
                {"created": _CREATED, "created_by": "fairlead capture", "comment": layer.comment}
                for layer in content
            ],
        }
    )
    return join(content, config=config)


def join(content: tuple[Layer, ...], *, config: bytes) -> Metadata:
    """The manifest that joins a config and uncompressed layers."""
    config_digest = _sha256(config)
    data = codec.to_json(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": {"mediaType": _CONFIG, "digest": config_digest, "size": len(config)},
            "layers": [
                {"mediaType": _LAYER, "digest": layer.diff_id, "size": layer.size_bytes} for layer in content
            ],
        }
    )
    return Metadata(
        manifest=data,
        manifest_digest=_sha256(data),
        config=config,
        config_digest=config_digest,
    )


def stored_config(store: Store, image: Image) -> bytes:
    """The config of an image of the store, as it was written by whoever built the image."""
    document = Document(data=stored_manifest(store, image), media_type="", digest=image.digest)
    return _stored(store, image, manifest(document, name=image.reference or image.digest).config.digest)


def stored_manifest(store: Store, image: Image) -> bytes:
    """The manifest that the image's digest is of. Raises StoreError when it is not in the store any more."""
    return _stored(store, image, image.digest)


def _stored(store: Store, image: Image, digest: str) -> bytes:
    with store.guarded():
        try:
            data = store.blob(digest).read_bytes()
        except FileNotFoundError:
            data = None
    if data is None or _sha256(data) != digest:
        raise StoreError(
            f"image {image.digest} lacks a document in the store, or it was changed there",
            context=digest,
            remedy=store.how_to_get(image),
        )
    return data


def save_archive(
    store: Store,
    image: Image,
    path: Path,
    *,
    name: str,
    extra: Mapping[str, bytes] = MappingProxyType({}),
    progress: Progress = lambda *_: None,
) -> str:
    """Write the image as an OCI archive that `podman load` and `skopeo` read; whole, or not at all.

    Its layers are uncompressed; so the manifest of an image that came compressed is another than the
    image's, and its digest is returned. `extra`: more files for the archive, which other tools ignore.
    Raises StoreError when a layer in the store is no longer what its digest says, or the file cannot be
    written.
    """
    described = join(image.layers, config=stored_config(store, image))
    total = image.size_bytes
    done = 0
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as stream, tarfile.open(fileobj=stream, mode="w") as archive:
            # Spelled out, because skopeo tries to give folders that are not to root, which only root can.
            others = {str(parent) for member in extra for parent in PurePosixPath(member).parents} - {"."}
            for folder in ("blobs", "blobs/sha256", *sorted(others)):
                archive.addfile(_header(folder, 0, tarfile.DIRTYPE, 0o755))
            _add(archive, "oci-layout", codec.to_json({"imageLayoutVersion": "1.0.0"}))
            _add(archive, "index.json", _index(described, name))
            _add(archive, _blob_path(described.manifest_digest), described.manifest)
            _add(archive, _blob_path(described.config_digest), described.config)
            for layer in {layer.diff_id: layer for layer in image.layers}.values():
                progress(f"writing {path.name}", done, total)
                _add_layer(archive, stream, store, layer, remedy=store.how_to_get(image))
                done += layer.size_bytes
            for member, data in extra.items():
                _add(archive, member, data)
        part.replace(path)
        return described.manifest_digest
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written; nothing half-made was kept",
            context=str(error),
            remedy="make room there, or name a file in another place",
        ) from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _index(described: Metadata, name: str) -> bytes:
    return codec.to_json(
        {
            "schemaVersion": 2,
            "mediaType": OCI_INDEX,
            "manifests": [
                {
                    "mediaType": OCI_MANIFEST,
                    "digest": described.manifest_digest,
                    "size": len(described.manifest),
                    "annotations": {"org.opencontainers.image.ref.name": f"localhost/fairlead/{name}:latest"},
                }
            ],
        }
    )


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    archive.addfile(_header(name, len(data)), io.BytesIO(data))


def _add_layer(
    archive: tarfile.TarFile, stream: IO[bytes], store: Store, layer: Layer, *, remedy: str
) -> None:
    """The layer's tar is made on the fly, straight into the archive, and checked at its end."""
    header = _header(_blob_path(layer.diff_id), layer.size_bytes).tobuf()
    stream.write(header)
    rebuild.write_tar(store, layer, stream.write, remedy=remedy)
    padding = bytes(-layer.size_bytes % tarfile.BLOCKSIZE)
    stream.write(padding)
    # addfile() would want the tar as a file object; what was written past it is told to the archive.
    archive.offset += len(header) + layer.size_bytes + len(padding)


def _header(name: str, size: int, kind: bytes = tarfile.REGTYPE, mode: int = 0o644) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.type, header.size, header.mtime, header.mode = kind, size, layers.EPOCH, mode
    return header


def _blob_path(digest: str) -> str:
    return "blobs/sha256/" + digest.removeprefix("sha256:")


def _sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()
