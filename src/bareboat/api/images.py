"""Images: captured from the environment, pulled from a registry."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bareboat.api import boundary, opened
from bareboat.api.boundary import translated
from bareboat.session import images

if TYPE_CHECKING:
    from bareboat.model import Image
    from bareboat_images.oci.reference import Reference


@translated()
def capture(
    *,
    python: str | os.PathLike[str] | None = None,
    include: Sequence[str | os.PathLike[str]] = (),
    compiler: bool = False,
    programs: Sequence[str] = (),
    name: str | None = None,
) -> Image:
    """Store the active Python environment as an image, or that of the interpreter `python`. `include`: more
    files; `compiler`: this machine's; `programs`: of this machine; `name`: of the image in the store."""
    from bareboat.model import CaptureRequest
    from bareboat.session import preparation

    session = opened.session()
    if name is not None:
        session.store.check_name(boundary.text("name", name))
    request = CaptureRequest(
        python=None if python is None else boundary.absolute("python", python),
        include=tuple(boundary.absolute("include", path) for path in boundary.several("include", include)),
        compiler=boundary.one("compiler", compiler, bool) or None,
        programs=tuple(boundary.several("programs", programs, str)) or None,
    )
    image, _ = preparation.capture(session, request)
    if name is not None:
        session.store.name_image(name, image.digest)
    return image


@translated()
def save_sif(
    image: str,
    path: str | os.PathLike[str],
    *,
    machine: str | None = None,
    plain_http: str = "",
    fresh: bool = False,
) -> None:
    """Write an image as a SIF file that Apptainer runs, too. `image`: as for `pull`, or a name in the store;
    `machine`: its architecture (uname -m); `plain_http`: the registries without TLS; `fresh`: ask
    the registry for the present image. Requires mksquashfs."""
    from bareboat.session import containers
    from bareboat_images.transfer import locate, save
    from bareboat_images.transfer.options import PullOptions

    session = opened.session(plain_http=plain_http)
    text, machine = boundary.text("image", image), machine or os.uname().machine
    if fresh:
        found = locate.read(text, folder=session.folder)
        options = PullOptions(access=images.access(session), machine=machine)
        stored = images.pull(session, found, options).image
    else:
        stored = containers.stored(session, text)
    save.save(session.store, stored, "sif", boundary.absolute("path", path))


@translated()
def pull(reference: str, *, name: str | None = None, plain_http: str = "") -> Image:
    """Bring an image into the store, if the signature policy accepts it: `debian:12`, `oci-archive:FILE` and
    what else `bareboat image pull` takes. `plain_http`: the registries without TLS."""
    from bareboat_images.transfer import locate
    from bareboat_images.transfer.options import PullOptions

    session = opened.session(plain_http=plain_http)
    if name is not None:
        session.store.check_name(boundary.text("name", name))
    found = locate.read(boundary.text("reference", reference), folder=session.folder)
    image = images.pull(session, found, PullOptions(access=images.access(session))).image
    if name is not None:
        session.store.name_image(name, image.digest)
    return image


@translated()
def parse(reference: str) -> Reference:
    """The parts of a reference to an image in a registry. Raises UsageError."""
    from bareboat_images.oci.reference import parse

    return parse(f"docker://{boundary.text('reference', reference)}", folder="/")


@translated()
def find(*texts: str) -> Image | None:
    """The image of the store with the first of these names or digests that it has, or else of the
    references."""
    store = opened.session(looks=True).store
    if (known := next(filter(store.knows, texts), None)) is not None:
        return store.image(known)
    for text in texts:
        pin = store.pinned(text)
        if pin is not None and store.knows(pin.digest):
            return store.image(pin.digest)
    return None


@translated()
def names() -> dict[str, str]:
    """The names of images in the store, and the references by which they were pulled -> digest."""
    store = opened.session(looks=True).store
    return {**{pin.reference: pin.digest for pin in store.pins()}, **store.names()}


@translated()
def tag(image: Image, name: str) -> None:
    """Give an image of the store another name. Raises UsageError."""
    opened.session().store.name_image(name, image.digest)


@translated()
def save_docker(image: Image, path: str | os.PathLike[str], *, name: str) -> None:
    """Write an image of the store as an archive that `docker load` reads. `name`: in the archive."""
    from bareboat_images.transfer import save

    place = save.checked("docker-archive", boundary.path("path", path))
    save.save(opened.session().store, image, "docker-archive", place, name=name)
