"""bareboat config store: show or create a store of images and runs, and set who may use it."""

from __future__ import annotations

import argparse
import grp
import os
import shlex
import stat
from pathlib import Path

from bareboat import config, store_access
from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat_base.errors import BareboatError, UsageError
from bareboat_base.files import ownership
from bareboat_base.printable import quoted
from bareboat_images.store import Store

_FACTS = ("store", "owner", "group", "mode", "runs")
EXAMPLE = "bareboat config store --group physics /project/physics/images"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument(
        "folder", metavar="DIR", nargs="?", help="path of the store (default: the one in use)"
    )
    parser.add_argument(
        "--group", metavar="GROUP", help="make DIR an image store for the members of this group"
    )


def run(context: Context) -> int:
    try:
        return _run(context)
    except BareboatError as error:
        if context.options.folder is None or error.key != "store":
            raise
        raise error.but(remedy="bareboat config store ~/bareboat", key="") from None  # not about the setting


def _run(context: Context) -> int:
    options = context.options
    if options.folder is not None:
        config.KNOWN["store"].check("store", options.folder, called="DIR")
    root = Path(os.path.abspath(options.folder)) if options.folder else context.store.root
    if options.group:
        group = _group(options.group)
        if not options.folder:
            raise UsageError(
                "--group requires the directory of the store",
                remedy=f"bareboat config store --group {shlex.quote(options.group)} DIR",
            )
        store_access.make_group_store(root, group, Store.VERSION)
    elif not os.path.isdir(root):
        store_access.check_place(root)
        if options.json:
            console.result_json({**dict.fromkeys(_FACTS), "store": str(root)})
        else:
            console.result(f"no store at {root} yet; the first image or run creates it")
        return 0
    shared = store_access.is_group_store(root)
    own = store_access.admit(root, os.environ, lambda: config.default_store(os.environ))
    Store(root, own=own).check_version()
    state = os.stat(root)
    values = (
        str(root),
        ownership.name_of(state.st_uid),
        ownership.group_of(state.st_gid) if shared else None,
        f"{stat.S_IMODE(state.st_mode):04o}",
        str(own),
    )
    facts = dict(zip(_FACTS, values, strict=True))
    if options.json:
        console.result_json(facts)
        return 0
    if shared:
        console.result(f"{root}: image store of the group {facts['group']}, owned by {facts['owner']}")
        console.result(f"{own}: your own store, with your runs")
    else:
        console.result(f"{root}: your own store, mode {facts['mode']}")
    return 0


def _group(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        if name.isascii() and name.isdigit():
            return int(name)
        raise UsageError(
            f"--group is {quoted(name)}, which is not a group of this machine",
            remedy="id   # lists your groups",
        ) from None
