"""OCI images: manifest and config of a captured image, and its export as one archive file.

Source: OCI Image Format Specification 1.1, https://github.com/opencontainers/image-spec
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fairlead import codec
from fairlead.errors import StoreError
from fairlead.images import layer as layers
from fairlead.model import Image, Layer
from fairlead.store import Store

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CREATED = "1980-01-01T00:00:00Z"

#: The names OCI gives to the machines that `uname -m` names.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le"}


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
    config_digest = _sha256(config)
    manifest = codec.to_json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "digest": config_digest, "size": len(config)},
            "layers": [
                {"mediaType": _LAYER, "digest": layer.diff_id, "size": layer.size_bytes} for layer in content
            ],
        }
    )
    return Metadata(
        manifest=manifest,
        manifest_digest=_sha256(manifest),
        config=config,
        config_digest=config_digest,
    )


def save_archive(store: Store, image: Image, path: Path, *, name: str) -> None:
    """Write the image as an OCI archive that `podman load` and `skopeo` read; whole, or not at all.

    Raises StoreError when a layer in the store is no longer what its digest says.
    """
    part = path.with_name(path.name + ".part")
    try:
        with store.guarded(), open(part, "wb") as stream, tarfile.open(fileobj=stream, mode="w") as archive:
            manifest = store.blob(image.digest).read_bytes()
            config_digest = codec.from_json(manifest, dict[str, Any], what="the manifest")["config"]["digest"]
            # Spelled out, because skopeo tries to give folders that are not to root, which only root can.
            for folder in ("blobs", "blobs/sha256"):
                archive.addfile(_header(folder, 0, tarfile.DIRTYPE, 0o755))
            _add(archive, "oci-layout", codec.to_json({"imageLayoutVersion": "1.0.0"}))
            _add(archive, "index.json", _index(image, manifest, name))
            _add(archive, _blob_path(image.digest), manifest)
            _add(archive, _blob_path(config_digest), store.blob(config_digest).read_bytes())
            for layer in image.layers:
                _add_layer(archive, stream, store, layer)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _index(image: Image, manifest: bytes, name: str) -> bytes:
    return codec.to_json(
        {
            "schemaVersion": 2,
            "mediaType": _INDEX,
            "manifests": [
                {
                    "mediaType": _MANIFEST,
                    "digest": image.digest,
                    "size": len(manifest),
                    "annotations": {"org.opencontainers.image.ref.name": f"localhost/fairlead/{name}:latest"},
                }
            ],
        }
    )


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    archive.addfile(_header(name, len(data)), io.BytesIO(data))


def _add_layer(archive: tarfile.TarFile, stream: IO[bytes], store: Store, layer: Layer) -> None:
    """The layer's tar is made on the fly, straight into the archive, and checked at its end."""
    hashed = hashlib.sha256()

    def put(data: bytes) -> None:
        hashed.update(data)
        stream.write(data)

    header = _header(_blob_path(layer.diff_id), layer.size_bytes).tobuf()
    stream.write(header)
    size = layers.write_tar(str(store.layer(layer.diff_id)), put)
    found = "sha256:" + hashed.hexdigest()
    if found != layer.diff_id or size != layer.size_bytes:
        raise StoreError(
            f"layer {layer.diff_id} ({layer.comment}) was changed in the store: it is now {found}",
            remedy="fairlead capture --fresh",
        )
    padding = bytes(-size % tarfile.BLOCKSIZE)
    stream.write(padding)
    # addfile() would want the tar as a file object; what was written past it is told to the archive.
    archive.offset += len(header) + size + len(padding)


def _header(name: str, size: int, kind: bytes = tarfile.REGTYPE, mode: int = 0o644) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.type, header.size, header.mtime, header.mode = kind, size, layers.EPOCH, mode
    return header


def _blob_path(digest: str) -> str:
    return "blobs/sha256/" + digest.removeprefix("sha256:")


def _sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()
