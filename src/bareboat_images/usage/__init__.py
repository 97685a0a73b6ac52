"""What takes space in an image: its directories and its packages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from bareboat_images.usage import folders

if TYPE_CHECKING:
    from bareboat_images.model import Image
    from bareboat_images.store import Store


class PackageUse(Struct, frozen=True, kw_only=True):
    """The files of one package; of no package where `name` is empty. `title`: the usual name of its kind."""

    kind: str
    title: str
    name: str
    weight: folders.Weight


class ImageUse(Struct, frozen=True, kw_only=True):
    """`root`: the tree of directories; `packages`: those with most bytes first; `warnings`: what is not
    known."""

    root: folders.Folder
    packages: list[PackageUse]
    warnings: list[str]


def measure(store: Store, image: Image, say: Callable[[str], None]) -> ImageUse:
    """Measure an image of the store; `say` is called with what is being read. Raises StoreError."""
    from bareboat_images.sbom.owners import Owner, Owners
    from bareboat_images.sbom.package import KINDS

    weights: dict[Owner, folders.Weight] = {}
    with store.guarded():
        view = store.view(image)
        say("reading lists of packages")
        owners = Owners(view)

        def count(file: str, size: int) -> None:
            weight = weights.setdefault(owners.of(file), folders.Weight())
            weight.size_bytes += size
            weight.files += 1

        root = folders.weigh(view, each_file=count, progress=say)
    return ImageUse(
        root=root,
        packages=[
            PackageUse(kind=kind, title=KINDS.get(kind, kind), name=name, weight=weight)
            for (kind, name), weight in sorted(
                weights.items(), key=lambda each: (-each[1].size_bytes, each[0])
            )
        ],
        warnings=[*owners.warnings, *(f"{folder} cannot be read by this user" for folder in view.unreadable)],
    )
