"""bareboat attach: a shell in the container of a running job, on its first node."""

from __future__ import annotations

import argparse

from bareboat.cli.common import Context, add_common
from bareboat.cli.status import add_run, newest
from bareboat_base.errors import UsageError

EXAMPLE = "bareboat attach digits-20261120-101500"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_run(parser)
    parser.add_argument("--host", action="store_true", help="open the node's own shell instead")


def run(context: Context) -> int:
    """Exit with the shell's exit code."""
    from bareboat.runs import interaction, sweeps

    if context.options.json:
        raise UsageError("attach opens a shell and has no JSON output", remedy="leave --json out")
    run_id = newest(context)
    if sweeps.find(context.store, run_id) is not None:
        raise UsageError(
            f"cannot attach to the sweep {run_id}",
            remedy=f"name one of its points: bareboat attach {run_id}.0",
        )
    return interaction.attach(context.store, run_id, host=context.options.host)
