"""bareboat image ACTION: images from anywhere into the store, and out of it again. One module per action."""

from __future__ import annotations

import argparse
import importlib
from typing import Any

from bareboat.cli.common import Context

EXAMPLE = "bareboat image pull docker.io/library/python:3.12-slim"

#: In the order in which a newcomer meets them. Each module has `EXAMPLE`, `add(parser)` and `run(context)`.
ACTIONS = {
    "pull": "bring an image into the store: from a registry, an archive, a SIF or a folder",
    "ls": "the images of the store",
    "show": "what is inside an image, found by reading its files",
    "sbom": "list the software in an image as CycloneDX or SPDX",
    "push": "send an image to a registry",
    "save": "one file with an image, its pins and Bareboat itself, for a machine without a network",
    "load": "take in a file that save wrote",
    "convert": "write an image as SIF, squashfs, OCI archive or plain folder",
    "verify": "read every file of an image again and compare it with the digests",
    "du": "how much space and how many inodes images take, and which of them they share",
    "rm": "remove an image",
    "gc": "remove what no image needs",
}


def add(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, meaning in ACTIONS.items():
        module = _module(name)
        action = actions.add_parser(
            name,
            help=meaning,
            description=meaning[:1].upper() + meaning[1:] + ".",
            epilog=f"example:\n  {module.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add(action)


def run(context: Context) -> int:
    code: int = _module(context.options.action).run(context)
    return code


def _module(action: str) -> Any:
    return importlib.import_module(f"bareboat.cli.image.{action}")
