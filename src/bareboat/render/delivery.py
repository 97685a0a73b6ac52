"""The image, copied to node-local storage by the job script (runtime/image.sh).

A lock of the kernel's (flock) on one file for each image does all of it. Who uses the tree has it shared, as
long as its shell lives or anything that this started: nothing has to be found out about killed jobs. Who
unpacks or removes has it alone. The file goes with the tree: who got the lock looks whether it is there.
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
