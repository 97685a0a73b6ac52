"""Images of the store by the names that Docker and udocker give them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from bareboat.api import images as api
from bareboat_base import architectures
from bareboat_shim import images
from bareboat_shim.docker_options import Name, of_store
from bareboat_shim.table import Mistake

if TYPE_CHECKING:
    from bareboat.model import Image


_MOST_BYTES = 1 << 20
#: The name of an image in an OCI archive.
_NAME = "org.opencontainers.image.ref.name"


class Source(NamedTuple):
    """An image for Bareboat's verbs and API: its digest in the store, or `remote`, its reference in
    a registry. `plain_http`: the registry, if that has no TLS."""

    text: str
    plain_http: str
    remote: str


def source(name: Name, *, plain_http: str = "") -> Source:
    """An image that was built or tagged here has priority over one of a registry."""
    local, remote = api.find(*name.own), f"docker://{name.reference}"
    # A name could be that of a directory here, too.
    return Source(remote if local is None else local.digest, plain_http, remote)


def in_store(name: Name) -> Image | None:
    return api.find(*name.own, name.reference)


def needed(name: Name) -> Image:
    """Raises Mistake where the store lacks it."""
    found = in_store(name)
    if found is None:
        raise Mistake(f"image not found: {name.written}", f"pull {name.written}")
    return found


def pull(wanted: Source) -> Image:
    return api.pull(wanted.remote, plain_http=wanted.plain_http)


def listed() -> list[tuple[Name, str]]:
    """Each image by its names, with its digest."""
    found = {}
    for text, digest in api.names().items():
        name = of_store(text)
        if name is not None:
            found[name.written] = name, digest
    return [found[text] for text in sorted(found)]


def shown(reference: str) -> str:
    """A reference of Bareboat as Docker writes it."""
    name = of_store(reference.removeprefix("docker://"))
    return reference if name is None else name.written


def tag(name: Name, new: Name) -> None:
    tag_image(needed(name), new)


def tag_image(image: Image, name: Name) -> None:
    api.tag(image, name.local)


def remove(name: Name) -> int:
    """Remove the names of an image, and the image with its last one; return the exit code."""
    needed(name)
    texts = [text for text in (*name.own, name.reference) if api.find(text) is not None]
    return images.verb("rm", "--force", *texts)


def load(path: str) -> list[Name]:
    """Load the images of a file that Docker or Podman saved; return their names. Raises Mistake,
    BareboatError."""
    loaded = []
    kind, texts = _names_in(path)
    for text in texts:
        name = of_store(text) if "/" in text else of_store(f"docker.io/library/{text}")
        if name is not None:
            api.tag(api.pull(f"{kind}:{path}:{text}" if len(texts) > 1 else f"{kind}:{path}"), name.local)
            loaded.append(name)
    if not loaded:
        api.pull(f"{kind}:{path}")
    return loaded


def _names_in(path: str) -> tuple[str, list[str]]:
    """The kind of an archive, and the names of the images in it. Raises Mistake."""
    import json
    import tarfile

    try:
        with tarfile.open(path) as archive:
            is_docker = "manifest.json" in archive.getnames()
            member = archive.extractfile("manifest.json" if is_docker else "index.json")
            document = json.loads(member.read(_MOST_BYTES) if member is not None else b"")
        if is_docker:
            return "docker-archive", [str(tag) for each in document for tag in each.get("RepoTags") or ()]
        notes = (each.get("annotations") or {} for each in document.get("manifests", ()))
        return "oci-archive", [str(name) for each in notes if (name := each.get(_NAME)) is not None]
    except OSError as error:
        raise Mistake(f"cannot read {path}: {error.strerror}", f"ls -l {shlex.quote(path)}") from None
    except (tarfile.TarError, KeyError, ValueError, AttributeError, TypeError, RecursionError):
        raise Mistake(f"{path} is not an archive of images", f"docker save -o {path} IMAGE") from None


def save(names: Sequence[Name], target: str) -> None:
    """Write an image as a Docker archive. Raises Mistake, BareboatError."""
    if len(names) != 1:
        raise Mistake("one image is written to a file", "save each image to a file of its own")
    api.save_docker(needed(names[0]), target, name=names[0].written)


def verify(name: Name) -> int:
    return images.verb("verify", needed(name).digest)


def architecture() -> str:
    """This machine's, in the terms of OCI."""
    return architectures.oci(os.uname().machine)


def check_platform(text: str) -> None:
    """Raises Mistake for another architecture than this machine's."""
    if text.split("/")[:2] != ["linux", architecture()]:
        raise Mistake(
            f"--platform {text} is not supported: programs of other machines do not run here",
            f"--platform linux/{architecture()}",
        )


def configuration(image: Image) -> dict[str, object]:
    """What an image sets, as in OCI's documents."""
    process = image.process
    return {
        "architecture": architecture(),
        "os": "linux",
        "config": {
            "Env": [f"{name}={value}" for name, value in image.environment.items()],
            "Entrypoint": list(process.entrypoint) or None,
            "Cmd": list(process.command) or None,
            "WorkingDir": process.workdir,
            "User": process.user,
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in image.layers]},
    }
