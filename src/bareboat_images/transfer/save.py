"""An image of the store in the form of another tool: a file or a directory."""

from __future__ import annotations

import shlex
from pathlib import Path

from msgspec.structs import replace

from bareboat_base import codec, digests
from bareboat_base.errors import UsageError
from bareboat_base.files import outputs
from bareboat_base.nearest import nearest
from bareboat_base.printable import quoted
from bareboat_images.model import Image
from bareboat_images.oci.reference import DAEMONS, full_name
from bareboat_images.progress import Progress
from bareboat_images.store import Store
from bareboat_images.transfer import export

KINDS = ("sif", "squashfs", "oci-archive", "docker-archive", "rootfs")


def target(text: str) -> tuple[str, str] | None:
    """Kind and place of KIND:PATH; None for a path. Raises UsageError for a kind that is not written."""
    kind, colon, place = text.partition(":")
    if colon and kind in DAEMONS:
        raise UsageError(
            f"{quoted(text)}: images are not written to the store of {DAEMONS[kind]}",
            remedy=f"write docker-archive:FILE, and then {DAEMONS[kind]} load -i FILE",
        )
    near = "oci-archive" if kind == "oci" else nearest(kind, KINDS)
    if colon and kind not in KINDS and near:
        raise UsageError(
            f"{quoted(text)} has the unknown format {quoted(kind)}; did you mean {near}?",
            context=f"formats: {', '.join(KINDS)}",
            remedy=f"write {near}:{shlex.quote(place)}",
        )
    return (kind, place) if colon and kind in KINDS else None


def checked(kind: str, place: str) -> str:
    """The absolute path. Raises UsageError for one that is impossible."""
    is_folder = kind == "rootfs"
    if not place:
        what = "DIR" if is_folder else "FILE"
        raise UsageError(f"{kind}: has no {what.lower()}", remedy=f"write {kind}:{what}")
    other = f"write {kind}:{shlex.quote(place)}-2"
    path = outputs.check(place, is_folder=is_folder, other=other)
    outputs.check_free(path, other=other)
    return str(path)


def save(
    store: Store,
    image: Image,
    kind: str,
    place: str,
    *,
    name: str = "image:latest",
    form: export.LayerForm = export.AS_STORED,
    progress: Progress = lambda *_: None,
) -> str:
    """Write the image to a `checked` place; return the digest of its manifest there. `name`: with a tag.
    `form`: of oci-archive. Raises ImageError, StoreError, ToolError."""
    from bareboat_images.formats import apptainer, flatten, squash

    path = Path(place)
    if kind in ("oci-archive", "docker-archive", "rootfs"):  # the size of the others is unknown in advance
        outputs.check_room(path, image.size_bytes)
    with store.guarded():
        match kind:
            case "oci-archive":
                form = replace(form, whole=True)
                return export.save_archive(store, image, path, name=name, form=form, progress=progress).digest
            case "docker-archive":
                _save_docker(store, image, path, name=name, progress=progress)
            case "sif":
                progress("unpacking the image", 0, 0)
                apptainer.save(store, image, path, progress=progress)
            case "squashfs":
                progress("unpacking the image", 0, 0)
                squash.make_squashfs(flatten.make_flat(store, image), path, progress=progress)
            case _:
                progress("copying files", 0, 0)
                with outputs.beside(path) as part:
                    flatten.copy(store.trees(image), part)
    return image.digest


def _save_docker(store: Store, image: Image, path: Path, *, name: str, progress: Progress) -> None:
    """Write an image named `name` as `docker save` does; the archive is an OCI archive too. The config is not
    changed, so the image ID is the same as in Docker and Podman. Raises StoreError.

    Source: https://github.com/moby/docker-image-spec
    """
    config = store.config(image)
    entry = {
        "Config": f"blobs/{digests.place(digests.of(config))}",
        "RepoTags": [name],
        "Layers": [f"blobs/{digests.place(layer.diff_id)}" for layer in image.layers],
    }
    # Podman, and Docker with containerd's store, read it as an OCI archive and use these names.
    names = {export.REF_NAME: name, "io.containerd.image.name": full_name(name)}
    export.save_archive(
        store, image, path, name=name, form=export.LayerForm(rewrite=True), progress=progress,
        more=export.Additions(files={"manifest.json": codec.to_json([entry])}, annotations=names),
    )  # fmt: skip
