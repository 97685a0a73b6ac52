"""Detect absolute symbolic links in an image in the paths that are mounted in every container.

An engine that mounts before it changes its root to the image would follow them out of the image.
"""

from __future__ import annotations

import os

from bareboat.engines import HOST_FILES
from bareboat.model import Site
from bareboat.plan.container import scratch_folders
from bareboat_base.files.links import follow
from bareboat_images.layers.view import View
from bareboat_images.model import Image
from bareboat_images.store import Store

_SYSTEM = ("/dev", "/proc", "/sys", "/etc/passwd", "/etc/group")


def on_the_way(store: Store, image: Image, site: Site) -> bool:
    view = store.view(image)
    return any(_is_absolute(view, path) for path in (*_SYSTEM, *HOST_FILES, *scratch_folders(site)))


def _is_absolute(view: View, path: str) -> bool:
    found: list[str] = []

    def target(step: str) -> str | None:
        parent, _, name = step.rpartition("/")
        node = view.names(parent or "/").get(name)
        if node is None or node.kind != "link":
            return None
        found.append(os.readlink(node.places[0]))
        return found[-1]

    # A dangling link is replaced by the mount point.
    follow(path if view.find(path) is not None else os.path.dirname(path), target)
    return any(leads.startswith("/") for leads in found)
