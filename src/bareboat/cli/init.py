"""bareboat init: write a job file from what a project and this site reveal, without running its code."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bareboat.cli import console
from bareboat.cli.common import Context, add_common, add_dry_run
from bareboat.errors import UsageError

if TYPE_CHECKING:
    from bareboat.session.drafting import Drafted

EXAMPLE = "bareboat init train.py\n  bareboat init -- torchrun --nproc-per-node 4 train.py --epochs 3"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument(
        "script", metavar="SCRIPT", nargs="?", help="Python script (default: the project's only one)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="job file to write (default: SCRIPT.toml)")
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    add_dry_run(parser)


def run(context: Context) -> int:
    from bareboat.files import outputs
    from bareboat.session import drafting

    options = context.options
    if options.script and options.command:
        raise UsageError("a script and a command were both given", remedy="give one: SCRIPT, or -- COMMAND")
    request = drafting.choose(options.script, options.command, Path.cwd())
    target = Path(os.path.abspath(options.output or request.default_name))
    outputs.check(target)
    if not options.dry_run:
        _check_free(target, force=options.force)
    context.progress.say("reading the project and this site")
    try:
        drafted = drafting.draft(context.session, request, target)
    finally:
        context.progress.end()
    if not options.dry_run:
        _write(target, drafted.text.encode(), force=options.force)
    _report(context, drafted, target)
    return 0


def _check_free(target: Path, *, force: bool) -> None:
    if os.path.lexists(target) and not force:
        raise UsageError(
            f"{target} already exists",
            remedy="name another: -o OTHER.toml; or replace it: --force",
        )


def _write(target: Path, data: bytes, *, force: bool) -> None:
    """Write the file completely or not at all; without `force` only where there is none."""
    from bareboat.files import outputs

    if force:
        outputs.write(target, data)
        return
    with outputs.beside(target) as part:
        part.write_bytes(data)
        _check_free(target, force=False)


def _report(context: Context, drafted: Drafted, target: Path) -> None:
    options = context.options
    shown: dict[str, Any] = {**drafted.facts, "file": str(target), "written": not options.dry_run}
    if options.json:
        console.result_json({**shown, "text": drafted.text})
    elif options.dry_run:
        console.result(drafted.text.rstrip("\n"))
    else:
        console.result(f"wrote {os.path.relpath(target)}: {drafted.summary}")
    if options.quiet:
        return
    for warning in drafted.warnings:
        console.note(f"warning: {warning}")
    if not (options.json or options.dry_run):
        file = shlex.quote(os.path.relpath(target))
        console.note(f"next:\n  bareboat plan {file}\n  bareboat run {file}")
