"""OCI images: manifest and config of an image in the store, and its export as one archive file.

Source: OCI Image Format Specification 1.1, https://github.com/opencontainers/image-spec
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO

from msgspec import Struct, field
from msgspec.structs import replace

from bareboat_base import codec, digests
from bareboat_base.errors import ImageError
from bareboat_base.files import outputs
from bareboat_images.layers import layer as layers
from bareboat_images.model import Image, Layer
from bareboat_images.oci.manifest import (
    OCI_CONFIG,
    OCI_INDEX,
    OCI_LAYER,
    Manifest,
    document,
    make_manifest,
    manifest,
)
from bareboat_images.oci.reference import full_name
from bareboat_images.oci.source import Descriptor, Document
from bareboat_images.progress import Progress
from bareboat_images.registry.access import Access
from bareboat_images.store import Store
from bareboat_images.tar import writer as tarwriter
from bareboat_images.tar.reader import FILE, FOLDER
from bareboat_images.transfer import locate, rebuild
from bareboat_images.transfer.blobs import Blobs

REF_NAME = "org.opencontainers.image.ref.name"


class Metadata(Struct, frozen=True, kw_only=True):
    """Manifest and config, which turn layers into an image."""

    manifest: bytes
    manifest_digest: str
    config: bytes
    config_digest: str


def join(content: tuple[Layer, ...], *, config: bytes) -> Metadata:
    """The manifest for a config and uncompressed layers."""
    described = document(config, OCI_CONFIG)
    layers = [Descriptor(media_type=OCI_LAYER, digest=each.diff_id, size=each.size_bytes) for each in content]
    made = make_manifest(described, layers)
    return Metadata(
        manifest=made.data, manifest_digest=made.digest, config=config, config_digest=described.digest
    )


def keep(store: Store, image: Image, *, config: bytes) -> Image:
    """Store an image, whose layers are in place, with this config. Returns it with its digest."""
    described = join(image.layers, config=config)
    image = replace(image, digest=described.manifest_digest)
    store.put_image(image, manifest=described.manifest, config=config)
    return image


class Saved(Struct, frozen=True, kw_only=True):
    """The result of saving. `digest`: of the manifest in the archive; `tars`: the number of layers stored as
    uncompressed tars because their blobs are not available. Only Bareboat can read an archive with such
    layers."""

    digest: str
    tars: int


class LayerForm(Struct, frozen=True, kw_only=True):
    """How layers are written. `blobs`: the compressed ones that the manifest names. With `rewrite`, all are
    written uncompressed under a new manifest, with another digest if they were compressed. With `whole`, a
    blob that is not available is an error."""

    blobs: Blobs | None = None
    rewrite: bool = False
    whole: bool = False

    @property
    def reason(self) -> str:
        """Why the last blob is not available."""
        return self.blobs.reason if self.blobs else ""


class Additions(Struct, frozen=True, kw_only=True):
    """What an archive has beside the image. `documents`: digest -> index to store with the manifest; `files`,
    which other tools ignore; `annotations`: of the manifest in the index, such as another name."""

    documents: Mapping[str, bytes] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


_NO_ADDITIONS = Additions()
AS_STORED = LayerForm()


@contextlib.contextmanager
def layer_form(
    store: Store, image: Image, reach: Callable[[str], Access] | None, *, rewrite: bool
) -> Iterator[LayerForm]:
    """The form with the blobs that the store keeps and, with `reach`, those where the image came from."""
    blobs = Blobs(store, lambda: locate.open_origin(image, reach) if reach is not None else None)
    try:
        yield LayerForm(blobs=blobs, rewrite=rewrite)
    finally:
        blobs.close()


def save_archive(
    store: Store,
    image: Image,
    path: Path,
    *,
    name: str,
    form: LayerForm = AS_STORED,
    more: Additions = _NO_ADDITIONS,
    progress: Progress = lambda *_: None,
) -> Saved:
    """Write the image as an OCI archive that `podman load` and `skopeo` can read, atomically.

    Its manifest and config are the image's own, so it has the image's digest. Raises ImageError for a missing
    blob if the form is `whole`; StoreError when a layer in the store does not match its digest, or the file
    cannot be written.
    """
    described, read = _described(store, image, rewrite=form.rewrite)
    done = tars = 0
    with outputs.beside(path) as part, open(part, "wb") as stream:
        _add_folders(stream, more.files)
        _add(stream, "oci-layout", codec.to_json({"imageLayoutVersion": "1.0.0"}))
        _add(stream, "index.json", _index(described, read.media_type, name, more.annotations))
        small = {described.manifest_digest: described.manifest, described.config_digest: described.config}
        for digest, data in (small | dict(more.documents)).items():
            _add(stream, _blob_path(digest), data)
        written: set[str] = set()
        for descriptor, layer in zip(read.layers, image.layers, strict=True):
            if {descriptor.digest, layer.diff_id} & written:
                continue
            progress(f"writing {path.name}", done, image.size_bytes)
            if _add_blob(stream, descriptor, layer, form.blobs, fetch=not tars):
                written.add(descriptor.digest)
            else:
                tars += descriptor.digest != layer.diff_id
                if form.whole and tars:
                    raise _not_whole(image, descriptor, form.reason)
                _add_layer(stream, store, layer, remedy=store.how_to_get(image))
                written.add(layer.diff_id)
            done += layer.size_bytes
        for member, data in more.files.items():
            _add(stream, member, data)
        stream.write(tarwriter.END)
    return Saved(digest=described.manifest_digest, tars=tars)


def _add_folders(stream: IO[bytes], files: Iterable[str]) -> None:
    """Add explicit entries: skopeo tries to give missing directories to root, which only root can."""
    others = {str(parent) for member in files for parent in PurePosixPath(member).parents} - {"."}
    for folder in ("blobs", f"blobs/{digests.ALGORITHM}", *sorted(others)):
        stream.write(tarwriter.header(f"{folder}/".encode(), FOLDER, mode=0o755, mtime=layers.EPOCH))


def _described(store: Store, image: Image, *, rewrite: bool) -> tuple[Metadata, Manifest]:
    """Manifest and config for the archive, and the parsed manifest."""
    config = store.config(image)
    if rewrite:
        described = join(image.layers, config=config)
        document = Document(data=described.manifest, media_type="", digest=described.manifest_digest)
        return described, manifest(document, name=image.reference or image.digest)
    read = store.manifest(image)
    described = Metadata(
        manifest=store.manifest_data(image),
        manifest_digest=image.digest,
        config=config,
        config_digest=read.config.digest,
    )
    return described, read


def _not_whole(image: Image, descriptor: Descriptor, reason: str) -> ImageError:
    again = f"bareboat image pull --keep-blobs {shlex.quote(image.reference)}" if image.reference else ""
    return ImageError(
        f"the image's digest cannot be kept: the compressed layer {descriptor.digest} is neither in the "
        "store nor where the image came from",
        context=reason or image.digest,
        remedy="write another digest, for the same files: --rewrite"
        + (f"; or first: {again}" if again else ""),
    )


def _index(described: Metadata, media_type: str, name: str, annotations: Mapping[str, str]) -> bytes:
    return codec.to_json(
        {
            "schemaVersion": 2,
            "mediaType": OCI_INDEX,
            "manifests": [
                {
                    "mediaType": media_type,
                    "digest": described.manifest_digest,
                    "size": len(described.manifest),
                    "annotations": {REF_NAME: full_name(f"localhost/bareboat/{name}"), **annotations},
                }
            ],
        }
    )


def _add(stream: IO[bytes], name: str, data: bytes) -> None:
    stream.write(_header(name, len(data)) + data + tarwriter.padding(len(data)))


def _add_blob(
    stream: IO[bytes],
    descriptor: Descriptor,
    layer: Layer,
    blobs: Blobs | None,
    *,
    fetch: bool,
) -> bool:
    """Write the layer's blob as in the manifest, if it is compressed and available; else write nothing."""
    if blobs is None or descriptor.digest == layer.diff_id:
        return False
    make = blobs.begin(descriptor, fetch=fetch)
    if make is None:
        return False
    start = stream.tell()
    stream.write(_header(_blob_path(descriptor.digest), descriptor.size))
    try:
        for piece in make():
            stream.write(piece)
    except ImageError:  # the source failed, or returned wrong bytes
        stream.seek(start)
        stream.truncate()
        return False
    stream.write(tarwriter.padding(descriptor.size))
    return True


def _add_layer(stream: IO[bytes], store: Store, layer: Layer, *, remedy: str) -> None:
    """Write the layer's tar directly into the archive; it is verified at its end."""
    stream.write(_header(_blob_path(layer.diff_id), layer.size_bytes))
    rebuild.write_tar(store, layer, stream.write, remedy=remedy)
    stream.write(tarwriter.padding(layer.size_bytes))


def _header(name: str, size: int) -> bytes:
    return tarwriter.header(name.encode(), FILE, mode=0o644, size=size, mtime=layers.EPOCH)


def _blob_path(digest: str) -> str:
    return "blobs/" + digests.place(digest)
