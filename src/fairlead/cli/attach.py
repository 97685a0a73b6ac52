"""fairlead attach: a shell on the first node of a running job."""

from __future__ import annotations

import argparse

from fairlead.cli.common import Context, add_common
from fairlead.cli.status import add_run, newest

EXAMPLE = "fairlead attach digits-20261120-101500"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_run(parser)


def run(context: Context) -> int:
    """The exit code is that of the shell."""
    from fairlead import submission

    return submission.attach(context.store, newest(context))
