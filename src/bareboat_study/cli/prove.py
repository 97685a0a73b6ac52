"""bareboat prove: measure the container's cost for a job, compared with bare metal."""

from __future__ import annotations

import argparse
import contextlib
import os

from bareboat.cli.common import (
    Context,
    add_common,
    add_dry_run,
    add_engine,
    add_environment,
    add_job,
    add_key,
    add_scheduling,
)
from bareboat.model import Matrix
from bareboat_base.errors import UsageError

EXAMPLE = (
    "bareboat prove examples/digits.toml\n  bareboat prove --repeats 20 train.py"
    "\n  bareboat prove --scheduler slurm -N 2 -t 2h study.toml"
)


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_job(parser)
    add_scheduling(parser)
    add_engine(parser)
    add_environment(parser)
    _add_design(parser.add_argument_group("study"))
    parser.add_argument(
        "--resume",
        action="store_true",
        help="resume STUDY, or the newest unfinished study (of FILE)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="path of the report (default: report.html; STUDY.html if that is a file of yours)",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace a file that is no report of a run in the store"
    )
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help="with a scheduler: print the study's name and do not follow its jobs",
    )
    parser.add_argument("--list", action="store_true", help="list the built-in studies, which FILE can name")
    parser.add_argument(
        "--scale",
        choices=("laptop", "cluster", "paper"),
        help="size of a built-in study: two cores and 15 minutes (default), several nodes, or as published",
    )
    add_dry_run(parser)


def _add_design(parser: argparse._ArgumentGroup) -> None:
    """Add the flags of a study's design."""
    for name in ("repeats", "until_decided", "margin", "confidence", "seed", "within_s"):
        add_key(parser, f"prove.{name}")


def run(context: Context) -> int:
    """Exit with 0 when the study is complete, whatever its verdict."""
    options = context.options
    from bareboat_study.cli import prove_builtin, prove_study, report_export

    if options.list:
        return prove_builtin.show_list(context)
    from bareboat.cli.libraries import check_library

    options.output = report_export.claim_page(context, options.output)

    check_library(imports=False)
    builtin = prove_builtin.resolve(context)
    published = prove_builtin.read_published(context, builtin=builtin)
    named = _study_to_resume(context)
    if named is not None:
        return prove_study.resume(context, named)
    return prove_study.run(context, prove_study.request_of(context), published)


def _study_to_resume(context: Context) -> Matrix | None:
    """The study that --resume names, or the newest one where it names no job; else None."""
    from bareboat.cli.status import find
    from bareboat_study import listing, matrix

    options, store = context.options, context.store
    if not options.resume:
        return None
    if options.file and not os.path.exists(options.file):
        with contextlib.suppress(UsageError):  # it is no run's name
            named = find(context, options.file, lambda run: listing.is_study(store, run))
            options.file = named if listing.is_study(store, named) else options.file
    if options.file and options.file in store.runs():
        return matrix.read(store, options.file)
    is_any = not options.file and not options.command and not options.image
    return matrix.find(store) if is_any else None
