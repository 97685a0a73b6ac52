"""Pull, build and push images: what a program calls that has none of the command line's settings."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from bareboat_base.errors import ImageError, UsageError
from bareboat_images import argument_types
from bareboat_images.model import Image
from bareboat_images.oci.reference import Reference, Transport, parse
from bareboat_images.progress import Progress
from bareboat_images.registry.access import remote_options
from bareboat_images.store import Store
from bareboat_images.transfer import locate
from bareboat_images.transfer.options import PullOptions

if TYPE_CHECKING:
    from bareboat_images.oci.source import Source
    from bareboat_images.transfer.push import Pushed

P = ParamSpec("P")
T = TypeVar("T")
_TYPES: dict[str, tuple[type, ...]] = {
    "reference": (str,),
    "target": (str,),
    "dockerfile": (str, Path),
    "context": (str, Path, NoneType),
    "image": (Image,),
    "store": (Store,),
    "options": (PullOptions, NoneType),
    "rewrite": (bool,),
}


def _checked(function: Callable[P, T]) -> Callable[P, T]:
    """The function, with arguments of the right types. Raises UsageError."""

    @functools.wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> T:
        for name, value in inspect.signature(function).bind(*given, **named).arguments.items():
            argument_types.check(name, value, *_TYPES[name])
        return function(*given, **named)

    return call


@_checked
def pull(reference: str, store: Store, *, options: PullOptions | None = None) -> Image:
    """Pull an image of a registry, or load a file, into the store, if the signature policy accepts it.

    Raises UsageError, ImageError and StoreError.
    """
    return _obtained(locate.read(reference, folder=os.getcwd()), store, options or PullOptions())


def _obtained(found: Reference, store: Store, options: PullOptions) -> Image:
    from bareboat_images.transfer.pull import obtain

    return obtain(found, store, options).image


@_checked
def build(
    dockerfile: str | Path, *, context: str | Path | None, store: Store, options: PullOptions | None = None
) -> Image:
    """Build the image of a Dockerfile. Base images that the store lacks are pulled. RUN requires bubblewrap.

    Raises UsageError, ImageError and StoreError.
    """
    from bareboat_images.builder import solver
    from bareboat_images.builder.options import Machine, Options
    from bareboat_images.transfer import opening

    chosen = options or PullOptions()

    def base(name: str, local: Reference | None) -> Image:
        return opening.open_base(
            name, local, store, chosen, pull=lambda found, how: _obtained(found, store, how)
        )

    asked = Options.read(Path(dockerfile), None if context is None else Path(context).resolve())
    machine = Machine(name=chosen.machine, image=base, engine=_engine)
    return solver.build(store, asked, machine, _Reporter(chosen.progress)).image


@_checked
def push(image: Image, store: Store, reference: str, *, options: PullOptions | None = None) -> Pushed:
    """Push an image to a registry, with its digest if its layers' blobs can be had.

    Raises UsageError and ImageError.
    """
    from bareboat_images.registry import pusher
    from bareboat_images.transfer.push import push as send

    chosen = options or PullOptions()
    to = parse(reference, folder=os.getcwd())
    if to.transport is not Transport.REGISTRY:
        raise UsageError(f"{reference!r} is not a registry reference", remedy="write HOST/REPOSITORY:TAG")
    target = pusher.open_pusher(
        to.registry, to.repository, options=remote_options(to.registry, chosen.access)
    )

    def source() -> Source | None:
        return locate.open_origin(image, lambda _registry: chosen.access)

    return send(image, store, target, to, source=source, progress=chosen.progress)


@_checked
def save(
    image: Image, store: Store, target: str, *, options: PullOptions | None = None, rewrite: bool = False
) -> str:
    """Write an image as KIND:PATH, such as oci-archive:image.tar; return the digest of its manifest there.
    `rewrite`: under a new digest if its layers' blobs cannot be had.

    Raises UsageError, ImageError, StoreError and ToolError.
    """
    from bareboat_images.transfer import save as forms
    from bareboat_images.transfer.export import layer_form

    kind, _, place = target.partition(":")
    if kind not in forms.KINDS or not place:
        kinds = ", ".join(forms.KINDS)
        raise UsageError(f"{target!r} is not KIND:PATH", remedy=f"the kinds are {kinds}")
    chosen = options or PullOptions()
    with layer_form(store, image, lambda _registry: chosen.access, rewrite=rewrite) as form:
        return forms.save(store, image, kind, forms.checked(kind, place), form=form, progress=chosen.progress)


def _engine(works: Callable[[str], bool]) -> str:
    """The bubblewrap on PATH."""
    from bareboat_base import execute

    path = execute.which("bwrap")
    if path is None or not works(path):
        raise ImageError(
            "RUN requires a bubblewrap that works here",
            context="not installed" if path is None else path,
            remedy="apt-get install bubblewrap",
        )
    return path


class _Reporter:
    """The progress of a build in bytes, and nothing else of it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def begin(self, title: str, text: str) -> None:
        self._progress(f"{title} {text}", 0, 0)

    def output(self, title: str, data: bytes) -> None:
        """Omit the output of a RUN; a failed one has its end in the error."""

    def end(self, title: str, text: str, wall_s: float, *, cached: bool) -> None:
        """Omit the end of a step."""

    def bytes(self, what: str, done: int, total: int) -> None:
        self._progress(what, done, total)

    def warn(self, text: str) -> None:
        self._progress(f"warning: {text}", 0, 0)
