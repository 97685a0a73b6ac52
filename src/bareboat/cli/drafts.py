"""Show a file that was written from what a project and a site reveal: a job file, or a recipe."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bareboat.cli import console
from bareboat.cli.common import Context

if TYPE_CHECKING:
    from bareboat.project.draft import Drafted


def report(context: Context, drafted: Drafted, target: Path, following: str) -> None:
    """The file, or where it was written. `following`: the commands to use it with."""
    options = context.options
    if options.json:
        shown: dict[str, Any] = {**drafted.facts, "file": str(target), "written": not options.dry_run}
        console.result_json({**shown, "text": drafted.text})
    elif options.dry_run:
        console.result(drafted.text.rstrip("\n"))
    else:
        console.result(f"wrote {os.path.relpath(target)}: {drafted.summary}")
    for warning in drafted.warnings:
        console.note(f"warning: {warning}")
    if not (options.json or options.dry_run):
        console.note(f"next:\n  {following}")
