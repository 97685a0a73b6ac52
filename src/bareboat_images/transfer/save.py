"""An image of the store in the form of another tool: a file, a directory, or in the storage of Docker or
Podman."""

from __future__ import annotations

import shlex
from pathlib import Path

from msgspec.structs import replace

from bareboat_base.errors import UsageError
from bareboat_base.files import outputs
from bareboat_images.model import Image
from bareboat_images.progress import Progress
from bareboat_images.store import Store
from bareboat_images.transfer import docker, export

KINDS = ("sif", "squashfs", "oci-archive", "docker-archive", "rootfs", *docker.STORAGES)


def checked(kind: str, place: str) -> str:
    """The absolute path, or the full name in a storage. Raises UsageError for one that is impossible."""
    if not place:
        what = "NAME" if kind in docker.STORAGES else "DIR" if kind == "rootfs" else "FILE"
        raise UsageError(f"{kind}: has no {what.lower()}", remedy=f"write {kind}:{what}")
    if kind not in docker.STORAGES:
        return str(
            outputs.check(place, is_folder=kind == "rootfs", other=f"write {kind}:{shlex.quote(place)}-2")
        )
    name = docker.check_name(place)
    # Podman's own names; it would take others for those of Docker Hub.
    return f"localhost/{name}" if kind == "containers-storage" and "/" not in name else name


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
    """Write the image to a `checked` place; return the digest of its manifest there. `name`: with a tag, for
    docker-archive. `form`: of oci-archive. Raises ImageError, StoreError, ToolError."""
    from bareboat_images.formats import apptainer, flatten, squash

    title = image.reference.rpartition("/")[2].partition(":")[0].partition("@")[0] or "image"
    path = Path(place)
    if kind in ("oci-archive", "docker-archive", "rootfs"):  # the size of the others is unknown in advance
        outputs.check_room(path, image.size_bytes)
    with store.guarded():
        match kind:
            case "oci-archive":
                form = replace(form, whole=True)
                return export.save_archive(
                    store, image, path, name=title, form=form, progress=progress
                ).digest
            case "docker-archive":
                docker.save(store, image, path, name=name, progress=progress)
            case "sif":
                progress("unpacking the image", 0, 0)
                apptainer.save(store, image, path, progress=progress)
            case "squashfs":
                progress("unpacking the image", 0, 0)
                squash.make_squashfs(flatten.make_flat(store, image), path, progress=progress)
            case "rootfs":
                progress("copying files", 0, 0)
                with outputs.beside(path) as part:
                    flatten.copy(store.trees(image), part)
            case _:
                with store.scratch() as scratch:
                    file = scratch / "image.tar"
                    outputs.check_room(file, image.size_bytes)
                    docker.save(store, image, file, name=place, progress=progress)
                    progress(f"{docker.STORAGES[kind]} loads the image", 0, 0)
                    docker.load(kind, file)
    return image.digest
