"""The image, copied to node-local storage by the job script (runtime/image.sh).

A kernel lock (flock) on one file per image controls it. A user of the tree holds it shared, as long as its
shell or any descendant lives: no killed job has to be detected. Unpacking and removing hold it exclusively.
The file is removed with the tree: after locking, check that it still exists.
"""

from __future__ import annotations

from msgspec import UNSET

from bareboat.model import Delivery
from bareboat.render import words


def values(delivery: Delivery) -> str:
    """For the script's head."""
    return (
        words.values(image_archive=delivery.archive)
        + words.values(image_name=delivery.name)
        + words.values(image_shared=delivery.shared)
        + words.values(image_own="" if delivery.own is UNSET else delivery.own)
        + words.values(BAREBOAT_TREES=delivery.folder, image_inodes=delivery.inodes)
    )
