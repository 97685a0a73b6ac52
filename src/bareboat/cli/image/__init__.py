"""bareboat image ACTION: manage the store's images. One module per action."""

from __future__ import annotations

import argparse
import importlib
from typing import Any

from bareboat.cli.common import Context

EXAMPLE = "bareboat image pull docker.io/library/python:3.12-slim"

#: In the order in which new users need them. Each module has `EXAMPLE`, `add(parser)` and `run(context)`.
ACTIONS = {
    "pull": "pull an image into the store from a registry, archive, SIF or directory",
    "init": "write a Dockerfile for a project and a site",
    "build": "build an image from a Dockerfile, without root",
    "lint": "find what makes a Dockerfile or an image large, unsafe, or fail on clusters",
    "ls": "list the store's images",
    "show": "show what an image contains, from its files",
    "history": "show the steps by which an image was made, with the size of each layer",
    "tree": "show what takes space in an image, by directory and package",
    "diff": "compare the packages, files and configuration of two images",
    "tag": "give an image another name",
    "sbom": "list the software in an image as CycloneDX or SPDX",
    "push": "push an image to a registry",
    "save": "save an image and Bareboat itself to one file, for offline machines",
    "load": "load a file that save wrote",
    "convert": "write an image as SIF, squashfs, OCI archive or directory",
    "verify": "compare an image's files with their digests",
    "du": "show the space and inodes that images use and share",
    "rm": "remove an image",
    "gc": "remove unused data",
}


def add(parser: argparse.ArgumentParser, asked: str | None = None) -> None:
    """`asked`: the only action whose flags are needed; None: those of all."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, meaning in ACTIONS.items():
        action = actions.add_parser(
            name,
            help=meaning,
            description=meaning[:1].upper() + meaning[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if asked in (None, name):
            module = _module(name)
            action.epilog = f"example:\n  {module.EXAMPLE}"
            module.add(action)


def run(context: Context) -> int:
    code: int = _module(context.options.action).run(context)
    return code


def _module(action: str) -> Any:
    return importlib.import_module(f"bareboat.cli.image.{action}")
