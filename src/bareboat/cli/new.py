"""bareboat new: list the examples of the gallery, or copy one."""

from __future__ import annotations

import argparse
import os
import shlex

from bareboat import gallery
from bareboat.cli import console
from bareboat.cli.common import Context, add_common, add_dry_run

EXAMPLE = "bareboat new pytorch-ddp my-training"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("example", metavar="EXAMPLE", nargs="?", help="example to copy; without it, list all")
    parser.add_argument(
        "folder",
        metavar="DIR",
        nargs="?",
        help="new directory to copy it to (default: the example's name)",
    )
    add_dry_run(parser)


def run(context: Context) -> int:
    options = context.options
    if options.example is None:
        _list(context)
        return 0
    example = gallery.find(options.example)
    target = gallery.check(options.folder or example.name, f"bareboat new {example.name} OTHER-DIR")
    names = list(gallery.files(example))
    if not options.dry_run:
        gallery.copy(example, target)
    if options.json:
        console.result_json(
            {"example": example.name, "directory": str(target), "files": names, "copied": not options.dry_run}
        )
    elif options.dry_run:
        console.result("\n".join(str(target / name) for name in names))
    else:
        console.result(f"copied {example.name} to {target}: {', '.join(names)}")
        if not options.quiet:
            console.note("\n".join(["next:", *(f"  {line}" for line in _next(example, str(target)))]))
    return 0


def _list(context: Context) -> None:
    if context.options.json:
        console.result_json(
            [{"name": each.name, "meaning": each.meaning, "needs": each.needs} for each in gallery.EXAMPLES]
        )
        return
    rows = [("example", "what it is", "needs")]
    rows += [(each.name, each.meaning, each.needs) for each in gallery.EXAMPLES]
    console.result(console.table(rows))
    if not context.options.quiet:
        console.note("copy one: bareboat new EXAMPLE [DIR]")


def _next(example: gallery.Example, target: str) -> list[str]:
    """The commands that follow: where, what is to be installed, and the plan and the run."""
    lines = [f"cd {shlex.quote(os.path.relpath(target))}"]
    if example.install:
        lines.append(example.install)
    return [*lines, "bareboat plan job.toml", "bareboat run job.toml"]
