"""Images for Docker and Podman: an archive as written by `docker save`, and their own storage.

Source: https://github.com/moby/docker-image-spec
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from bareboat_base import codec, digests, execute
from bareboat_base.errors import ImageError, ToolError, UsageError
from bareboat_base.execute.guarded_command import run_step
from bareboat_base.expressions import expression
from bareboat_images.model import Image
from bareboat_images.oci.reference import full_name
from bareboat_images.progress import Progress
from bareboat_images.store import Store
from bareboat_images.transfer import export

#: Target -> the program with this storage.
STORAGES = {"docker-daemon": "docker", "containers-storage": "podman"}
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATTERN = expression(
    rf"(?:{_PART}(?::\d{{1,5}})?/)?{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?"
)
_REF_NAME = "org.opencontainers.image.ref.name"
_LAST_LINES = 5


def check_name(name: str) -> str:
    """The name with a tag, `latest` by default. Raises UsageError for an invalid image name."""
    if not _PATTERN.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a name for an image", remedy="use NAME:TAG, in lower case, such as myapp:1.0"
        )
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def save(store: Store, image: Image, path: Path, *, name: str, progress: Progress = lambda *_: None) -> None:
    """Write an image named `name` as `docker save` does; the archive is an OCI archive too. The config is not
    changed, so the image ID is the same as in Docker and Podman. Raises StoreError."""
    config = store.config(image)
    entry = {
        "Config": f"blobs/{digests.place(digests.of(config, 'sha256'))}",
        "RepoTags": [name],
        "Layers": [f"blobs/{digests.place(layer.diff_id)}" for layer in image.layers],
    }
    title = name.rpartition("/")[2].partition(":")[0]
    # Podman, and Docker with containerd's store, read it as an OCI archive and use these names.
    names = {_REF_NAME: name, "io.containerd.image.name": full_name(name)}
    export.save_archive(
        store, image, path, name=title, form=export.LayerForm(rewrite=True), progress=progress,
        more=export.Additions(files={"manifest.json": codec.to_json([entry])}, annotations=names),
    )  # fmt: skip


def load(kind: str, file: Path, *, show: Callable[[bytes], None] = lambda _data: None) -> None:
    """Load an archive into a storage of `STORAGES`. Raises ToolError and ImageError."""
    program = STORAGES[kind]
    if execute.which(program) is None:
        raise ToolError(
            f"{kind}: requires {program}, which is not installed",
            remedy="write a file instead, and load it elsewhere: docker-archive:FILE",
        )
    tail = bytearray()

    def keep(data: bytes) -> None:
        show(data)
        tail.extend(data)
        del tail[:-4096]

    words = [program, "load", "--input", str(file)]
    code = run_step(words, environment=os.environ, show=keep, is_sandbox=False)
    if code:
        last = tail.decode(errors="replace").strip().splitlines()[-_LAST_LINES:]
        raise ImageError(
            f"{program} load exited with code {code}",
            context="\n".join(last),
            remedy=f"{program} info   # shows whether it works"
            + ("; docker requires its daemon" if program == "docker" else ""),
        )
