"""SBOM: a list of the software in an image, from the databases of its package managers.

    inventory    all packages of an image, and what could not be read
    package      one package, and its package URL
    stanzas      dpkg, apk and R: files of fields
    rpmdb        rpm's database, if it is SQLite
    python       Python distributions, conda packages
    spdx         the list as SPDX 2.3

All input is untrusted: it is read through `View`, which follows links inside the image only, with limits on
sizes, and control characters are removed. A damaged database becomes one warning in the list.
"""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import TYPE_CHECKING, Any

from bareboat_base.errors import BareboatError
from bareboat_base.expressions import expression

if TYPE_CHECKING:
    from bareboat_images.model import Image
    from bareboat_images.sbom.inventory import Inventory
    from bareboat_images.store import Store

_DATE = expression(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


def document(store: Store, image: Image) -> tuple[dict[str, Any], Inventory]:
    """The software of an image as SPDX 2.3, and as it was read. Raises StoreError."""
    from bareboat_images.sbom import inventory, spdx

    with store.guarded():
        found = inventory.take(store.trees(image))
    return spdx.document(image, found, created=_created(store, image)), found


def _created(store: Store, image: Image) -> str:
    """When the image was made, from its config, to the second in UTC; else an empty string."""
    with contextlib.suppress(BareboatError, ValueError):
        found = _DATE.match(store.read_config(image).created or "")
        if found and datetime.fromisoformat(found[0]):
            return found[0] + "Z"
    return ""
