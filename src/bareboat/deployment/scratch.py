"""The entries of an image in directories that are scratch directories in a container (/tmp, the user's home).
They must be visible there, whether an overlay can be mounted or not.

A capture has environments there: ~/.pyenv, ~/miniconda3, an interpreter that is the target of a link in ~.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bareboat.model import ScratchEntry, Site
from bareboat.plan.container import scratch_folders
from bareboat_images.layers.view import View
from bareboat_images.model import Image
from bareboat_images.store import Store


def contents(store: Store, image: Image, site: Site) -> tuple[ScratchEntry, ...]:
    """The entries of the image in the scratch directories, sorted by path.

    A directory with only one subdirectory is replaced by that: for ~/.local/share/uv/python, the caller does
    not have to keep all of ~/.local. Not included: empty directories (/run/lock, which must be writable),
    dangling links, sockets and other special files.
    """
    view = store.view(image)
    folders = scratch_folders(site)
    found = {held.path: held for folder in folders for held in _in_folder(view, folder, folders)}
    return tuple(held for _, held in sorted(found.items()))


def _in_folder(view: View, folder: str, scratch: Sequence[str]) -> Iterator[ScratchEntry]:
    top = view.find(folder)
    if top is None or top.path != folder or top.node.kind != "folder":
        # The directory does not exist, or it is a link, whose target an engine mounts separately.
        return
    pending = [folder]
    while pending:
        here = pending.pop()
        for name, node in view.names(here).items():
            path = f"{here.rstrip('/')}/{name}"
            if path in scratch:
                continue  # handled separately
            if node.kind == "folder":
                if any(each.startswith(f"{path}/") for each in scratch):
                    pending.append(path)  # as a whole, it would hide the scratch directory in it
                else:
                    yield from _whole(view, path)
                continue
            leads_to = view.find(path)
            if leads_to is not None and leads_to.node.kind in ("file", "folder"):
                is_folder = leads_to.node.kind == "folder"
                yield ScratchEntry(path=path, leads_to=leads_to.path, is_folder=is_folder)


def _whole(view: View, path: str) -> Iterator[ScratchEntry]:
    while len(inside := view.names(path)) == 1:
        ((name, node),) = inside.items()
        if node.kind != "folder":
            break
        path = f"{path}/{name}"
    if inside:
        yield ScratchEntry(path=path, leads_to=path, is_folder=True)
