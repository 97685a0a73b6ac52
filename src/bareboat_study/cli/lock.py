"""bareboat lock: write everything that made a run or a study to one file."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat.cli.status import find
from bareboat_base.errors import UsageError
from bareboat_base.files import outputs

if TYPE_CHECKING:
    from bareboat_study.reproduction.document import Lock

EXAMPLE = "bareboat lock digits-20261120-101500 > run.lock"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument(
        "run", metavar="RUN", nargs="?", help="run, point or study, or a job name (default: the newest run)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write (default: standard output)")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    parser.add_argument(
        "--data",
        metavar="PATH",
        action="append",
        help="data that the run read: its checksum is written, and checked by replay",
    )
    parser.add_argument(
        "--metric",
        metavar="NAME=PATTERN",
        action="append",
        help="number in the run's output: a regular expression with one group",
    )
    parser.add_argument(
        "--without",
        choices=("packages", "code"),
        action="append",
        help="leave this part out",
    )


def run(context: Context) -> int:
    from bareboat_study import listing, patterns
    from bareboat_study.reproduction import data, making

    options = context.options
    output = _output(options.output, force=options.force)
    name = find(context, options.run or None)
    if listing.is_study(context.store, name):
        return _write_study(context, name, output)
    for path in options.data or ():
        data.check(path)
    maker = making.Maker(
        context.store,
        declared=options.data or (),
        metrics=patterns.of_options(options.metric or []),
        without=options.without or (),
        say=context.progress.say,
        progress=context.progress.bytes,
    )
    try:
        lock = maker.lock(name)
    finally:
        context.progress.end()
    text = making.written(lock)
    if output is not None:
        outputs.write(output, text)
    if options.json:
        console.result_json(lock)
    elif output is None:
        console.script(text.decode().rstrip("\n"))
    _note(lock, output)
    return 0


def _write_study(context: Context, name: str, output: Path | None) -> int:
    """Write the study file of a study, with its images pinned."""
    from bareboat_study.reproduction import study_lock

    options = context.options
    for flag in ("data", "metric", "without", "json"):
        if getattr(options, flag):
            raise UsageError(
                f"--{flag} is for runs, and {name} is a study, whose lock is its study file",
                remedy=f"bareboat lock {name}",
            )
    text = study_lock.text(context.store, name)
    if output is None:
        console.script(text.rstrip("\n"))
    else:
        outputs.write(output, text.encode("utf-8", "surrogateescape"))
        console.note(f"wrote {output}; to measure it again: bareboat prove {shlex.quote(str(output))}")
    return 0


def _output(text: str | None, *, force: bool) -> Path | None:
    """The file to write, checked. A lock is not written over another file by chance."""
    if text is None:
        return None
    path = outputs.check(text, flag="--output")
    outputs.check_free(path, force=force)
    return path


def _note(lock: Lock, output: Path | None) -> None:
    from bareboat_base.printable import one_line

    for text in lock.not_recorded:
        console.note(f"not recorded: {one_line(text)}")
    if lock.withheld:
        console.note(f"not in the lock, since their names look like secrets: {', '.join(lock.withheld)}")
    for datum in lock.data:
        if datum.is_later:
            console.note(
                f"warning: {one_line(datum.path)} changed after the run began: "
                "its checksum may not be that of what the run read"
            )
    if output is not None:
        console.note(f"wrote {output}; to run it again: bareboat replay {shlex.quote(str(output))}")
    elif output is None and sys.stdout.isatty():
        console.note(f"to write a file: bareboat lock {lock.name} -o run.lock")
