"""The words that a command line may go on with: argcomplete's, with the names that only Bareboat knows.

https://kislyuk.github.io/argcomplete/
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import argcomplete
from argcomplete.completers import BaseCompleter, DirectoriesCompleter, FilesCompleter
from argcomplete.lexers import split_line

if TYPE_CHECKING:
    from bareboat_images.store import Store


def answer() -> None:
    """Answer the shell, which asks by environment variables, and end the process."""
    from bareboat.cli.main import _parser

    line = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", "0"))]
    argcomplete.autocomplete(_parser(split_line(line)[3][1:]), default_completer=_Values())


class _Values(BaseCompleter):
    """What a flag's or a place's value may become, by its name and its placeholder."""

    def __call__(
        self, *, prefix: str, action: argparse.Action, parser: object, parsed_args: argparse.Namespace
    ) -> Iterable[str]:
        del parser
        metavar = str(action.metavar)
        if action.dest in ("engine", "launcher", "scheduler"):
            from bareboat import registry

            return registry.names(f"{action.dest}s")
        if metavar == "EXAMPLE":
            from bareboat.gallery import EXAMPLES

            return {example.name: example.meaning for example in EXAMPLES}
        if metavar == "RUN":
            return _store(parsed_args).runs()
        if metavar in ("IMAGE", "REF") or action.dest in ("image", "other_image"):
            return _store(parsed_args).names()
        completer = DirectoriesCompleter if metavar == "DIR" else FilesCompleter
        return list[str](completer()(prefix))


def _store(options: argparse.Namespace) -> Store:
    from bareboat import config
    from bareboat_images.store import Store

    flags = {"store": vars(options).get("store")}
    return Store(config.resolve(flags, folder=Path.cwd(), environment=os.environ).store)
