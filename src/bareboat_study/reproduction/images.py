"""The image of a lock, from the store, which never changes what it holds by a digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from bareboat.model import Image
from bareboat_base.errors import StoreError, UsageError
from bareboat_images.layers.view import View
from bareboat_images.sbom import inventory
from bareboat_images.sbom.package import Package
from bareboat_images.store import Store
from bareboat_study.reproduction.document import LockedImage, LockedPackage

_LARGEST_RECORD = 32 << 20


def of_digest(
    store: Store, digest: str, *, packages: bool, say: Callable[[str], None]
) -> tuple[LockedImage, str]:
    """The image, and what of it is not recorded: "" for nothing."""
    try:
        image = store.image(digest)
    except (StoreError, UsageError):
        gone = "the image's contents: it is no longer in the store"
        return LockedImage(digest=digest, origin=""), gone
    return of_image(store, image, packages=packages, say=say), ""


def of_image(store: Store, image: Image, *, packages: bool, say: Callable[[str], None]) -> LockedImage:
    """The image with its packages, where they are asked for and its layers are in the store."""
    distribution, found = "", None
    if packages and image.digest and store.has_image(image.digest):
        say("reading the image's packages")
        trees = store.trees(image)
        listed = inventory.take(trees)
        view = View(trees)
        distribution = f"{listed.distribution} {listed.distribution_version}".strip()
        unique = {each.purl: _digest(view, each) for each in listed.packages}
        found = tuple(LockedPackage(purl=purl, sha256=digest) for purl, digest in sorted(unique.items()))
    layer = image.site_layer
    return LockedImage(
        digest=image.digest,
        origin="site layer" if layer is not None else "pulled" if image.reference else "captured",
        reference=image.reference,
        base=layer.base if layer is not None else "",
        added=layer.contents if layer is not None else (),
        architecture=image.architecture,
        python_version=image.python_version or "",
        glibc=image.glibc or "",
        cuda=image.cuda or "",
        rocm=image.rocm or "",
        mpis=tuple(mpi.title for mpi in image.mpis),
        distribution=distribution,
        packages=found,
    )


def _digest(view: View, package: Package) -> str:
    for algorithm, digits in package.hashes:
        if algorithm == "SHA256":
            return digits
    if package.path.endswith(".dist-info/METADATA"):
        data = view.read(package.path.removesuffix("METADATA") + "RECORD", most=_LARGEST_RECORD)
        if data is not None:
            return hashlib.sha256(data).hexdigest()
    return ""
