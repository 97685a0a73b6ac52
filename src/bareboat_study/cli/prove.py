"""bareboat prove: measure the container's cost for a job, compared with bare metal."""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path

from bareboat.cli import console
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
from bareboat_base.files import untrusted

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
    study = parser.add_argument_group("study")
    for name in ("repeats", "until_decided", "margin", "confidence", "seed", "within_s"):
        add_key(study, f"prove.{name}")
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


def run(context: Context) -> int:
    """Exit with 0 when the study is complete, whatever its verdict."""
    options = context.options
    from bareboat_study.cli import prove_study, report_export

    if options.list:
        return _show_list(context)
    from bareboat.cli.libraries import check_library

    options.output = report_export.claim_page(context, options.output)

    check_library(imports=False)
    _resolve(context)
    published = _read_published(context)
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


# --------------------------------------------------------------------------------------------------
# The built-in studies.


def _show_list(context: Context) -> int:
    """Print the built-in studies."""
    from bareboat_study import builtin

    if context.options.json:
        rows = [
            {"name": name, "measures": text, "scales": builtin.scales(name)}
            for name, text in builtin.NAMES.items()
        ]
        console.result_json(rows)
        return 0
    for name, text in builtin.NAMES.items():
        console.result(f"{name:<12} {text}")
    console.result("\nbareboat prove NAME [--scale laptop|cluster|paper]")
    return 0


def _resolve(context: Context) -> None:
    """Where FILE names a built-in study, copy it to the current directory, and let FILE be its study file.
    With --dry-run nothing is written."""
    from bareboat_study import builtin

    options = context.options
    name = options.file
    if options.command and options.scale is None:
        return  # reported with the command
    if name not in builtin.NAMES or os.path.isfile(name) or name in context.store.runs():
        if options.scale is not None:
            raise UsageError(
                "--scale is for built-in studies" + (f", and {name} is not one" if name else ""),
                remedy=f"bareboat prove {next(iter(builtin.NAMES))} --scale {options.scale}",
            )
        return
    study = builtin.packaged(name, options.scale or builtin.SCALES[0])
    if study.scale not in (there := builtin.scales(name)):
        raise UsageError(
            f"the study {name} has no scale '{study.scale}'",
            remedy=f"bareboat prove {name} --scale {there[0]}   # or {', '.join(there[1:])}",
        )
    if not options.dry_run:
        study, is_new = builtin.copied(study, Path(name))
        if is_new and not options.quiet:
            console.note(f"copied the study to ./{name}: its README.md describes it")
    options.file = str(study.file)


def _read_published(context: Context) -> str | None:
    """The publication's figures, as published.csv beside a study file has them; None: there is none.

    Raises UsageError for a table with other columns, before anything is measured.
    """
    from bareboat_base.toml import TomlFile
    from bareboat_study import published, studyfile

    options = context.options
    if not options.file or options.command or not os.path.isfile(options.file):
        return None
    if not studyfile.is_study(TomlFile(Path(options.file))):
        return None
    path = Path(context.options.file).parent / published.NAME
    try:
        text = untrusted.read_text(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise untrusted.unreadable(path, error) from None
    published.read(text, str(path))
    return text
