"""passwd and group of an image with lines for the user.

Programs query the user's name and home directory (getpwuid), and many fail without them. The two files are
made once for each image and user, in a directory that is stacked on the image's layers.
"""

from __future__ import annotations

import grp
from collections.abc import Mapping
from pathlib import Path

from bareboat.deployment import small_layers
from bareboat.model import Image, Site
from bareboat_images.layers.view import View
from bareboat_images.store import Store

_MOST_BYTES = 1 << 20
_APT = b'APT::Sandbox::User "root";\n'


def provide(store: Store, image: Image, site: Site) -> str | None:
    """The directory with etc/passwd and etc/group; None if those of the image are sufficient.

    Raises StoreError if it cannot be made.
    """
    return provide_for(store, store.view(image), site)


def provide_for(store: Store, view: View, site: Site) -> str | None:
    """The same for trees, of the store or not."""
    user = f"{site.user}:x:{site.uid}:{site.gid}::{site.home}:/bin/sh"
    group = f"{_group_name(site)}:x:{site.gid}:"
    passwd = _with(view, "/etc/passwd", user, number=2, value=site.uid)
    groups = _with(view, "/etc/group", group, number=2, value=site.gid)
    if passwd is None and groups is None:
        return None
    files = {
        "etc/passwd": passwd or _read(view, "/etc/passwd"),
        "etc/group": groups or _read(view, "/etc/group"),
    }
    return str(_stored(store, files))


def has_user(view: View, uid: int) -> bool:
    """Whether the image has a user with this ID."""
    lines = _read(view, "/etc/passwd").decode(errors="surrogateescape").split("\n")
    return any(line.split(":")[2:3] == [str(uid)] for line in lines)


def apt_settings(store: Store) -> str:
    """The file with which apt stays root. Raises StoreError."""
    return str(_stored(store, {"apt.conf": _APT}) / "apt.conf")


def _stored(store: Store, files: Mapping[str, bytes]) -> Path:
    """The directory of the store with these files."""
    entries = {name: (small_layers.FILE, data) for name, data in files.items()}
    return small_layers.provide(store, b"\0".join(files.values()), entries)


def _with(view: View, path: str, line: str, *, number: int, value: int) -> bytes | None:
    """The file with the line before all others, so it is found first; None if the file has it already."""
    data = _read(view, path)
    name = line.partition(":")[0]
    for own in data.decode(errors="surrogateescape").split("\n"):
        fields = own.split(":")
        if len(fields) > number and (fields[number] == str(value) or fields[0] == name):
            if fields[0] == name and fields[number] == str(value) and fields[4:6] == line.split(":")[4:6]:
                return None
            break
    return (line + "\n").encode(errors="surrogateescape") + data


def _read(view: View, path: str) -> bytes:
    return view.read(path, most=_MOST_BYTES) or b""


def _group_name(site: Site) -> str:
    try:
        return grp.getgrgid(site.gid).gr_name
    except KeyError:
        return site.user
