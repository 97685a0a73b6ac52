"""bareboat image ACTION: manage the store's images. One module per action."""

from __future__ import annotations

import argparse
import importlib
from typing import Any

from bareboat.cli.common import Context, add_actions

EXAMPLE = "bareboat image pull docker.io/library/python:3.12-slim"

#: In the order in which new users need them. Each module has `EXAMPLE`, `add(parser)` and `run(context)`.
ACTIONS = {
    "pull": "pull an image into the store from a registry, archive, SIF or directory",
    "capture": "store the active environment as an image, without Docker",
    "init": "write a Dockerfile for a project and a site",
    "build": "build an image from a Dockerfile, without root",
    "lint": "find what makes a Dockerfile or an image large, unsafe, or fail on clusters",
    "layer": "add what this cluster requires to an image",
    "ls": "list the store's images",
    "show": "show what an image contains, its steps, or its software for other tools",
    "tag": "give an image another name",
    "push": "push an image to a registry",
    "save": "save an image to a file for offline machines, or in another tool's format",
    "load": "load a file that save wrote",
    "verify": "compare an image's files with their digests",
    "du": "show the space that images use and share",
    "rm": "remove images, or unused data",
}


def add(parser: argparse.ArgumentParser, requested: str | None = None) -> None:
    """`requested`: the only action whose flags are needed; None: those of all."""
    add_actions(parser, ACTIONS, _module, requested)


def run(context: Context) -> int:
    code: int = _module(context.options.action).run(context)
    return code


def _module(action: str) -> Any:
    return importlib.import_module(f"bareboat.cli.image.{action}")
