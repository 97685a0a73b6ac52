"""bareboat lock: write everything that made a run or a study to one file."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat.cli.status import find, newest
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
        choices=("packages", "code", "curves"),
        action="append",
        help="leave this part out",
    )
    parser.add_argument(
        "--ro-crate",
        metavar="PATH",
        help="also write a Research Object Crate: a directory, or a file with the suffix .zip",
    )
    parser.add_argument("--license", metavar="ID", help="licence of the crate, such as CC-BY-4.0")
    parser.add_argument(
        "--author",
        metavar="NAME",
        action="append",
        help='author of the crate, such as "Ada Lovelace <https://orcid.org/0000-0000-0000-0000>"',
    )
    parser.add_argument("--title", metavar="TEXT", help="title of the crate (default: the run's name)")


def run(context: Context) -> int:
    from bareboat_study import patterns
    from bareboat_study.reproduction import crate, data, making

    options = context.options
    output = _output(options.output, force=options.force)
    for name in ("license", "author", "title"):
        if getattr(options, name) and not options.ro_crate:
            raise UsageError(
                f"--{name} is for a crate, and there is no --ro-crate", remedy="--ro-crate DIRECTORY"
            )
    described = crate.Description.read(options.title, options.license, options.author or ())
    target = crate.check(options.ro_crate, force=options.force) if options.ro_crate else None
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
        lock = maker.lock(find(context, options.run) if options.run else newest(context))
        if target is not None:
            crate.write(context.store, lock, described, target)
    finally:
        context.progress.end()
    text = making.written(lock)
    if output is not None:
        outputs.write(output, text)
    if options.json:
        console.result_json(lock)
    elif output is None and target is None:
        console.script(text.decode().rstrip("\n"))
    if not options.quiet:
        _note(lock, output, target)
    return 0


def _output(text: str | None, *, force: bool) -> Path | None:
    """The file to write, checked. A lock is not written over another file by chance."""
    if text is None:
        return None
    path = outputs.check(text, flag="--output")
    outputs.check_free(path, force=force)
    return path


def _note(lock: Lock, output: Path | None, target: Path | None) -> None:
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
    if target is not None:
        console.note(f"wrote the crate {target}")
    elif output is None and sys.stdout.isatty():
        console.note(f"to write a file: bareboat lock {lock.name} -o run.lock")
