"""The forms in which a report is written: tables, figures and pages, to a directory, a file or stdout."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat_base.errors import UsageError
from bareboat_base.files import failures, outputs, untrusted

if TYPE_CHECKING:
    from bareboat_study.study_report import StudyReport

#: Flag -> its content.
FORMATS = {
    "csv": "samples and summary as comma-separated values",
    "svg": "figures as SVG, at the width of a column and of a page",
    "pdf": "figures as PDF, at the same widths",
    "html": "page that loads nothing from the network",
}
#: Format -> the file that is printed, or written to FILE, where no directory is named: the first with rows.
_ALONE = {
    "csv": ("summary.csv", "runs.csv", "points.csv", "series.csv"),
    "html": ("report.html",),
}
#: The page of a study, unless the user names another, whose path is in this file of the study.
_PAGE = "report.html"
PAGE_PATH = "page"
#: More files are only counted; the directory has a list.
_MOST_NAMES = 8
_DRAWN = {"svg", "pdf"}


class Request(Struct, frozen=True):
    """`folder`: where the files go; `file`: where one of them goes. Without either, one text is printed."""

    formats: tuple[str, ...]
    folder: str | None
    file: str | None
    force: bool

    @property
    def is_printed(self) -> bool:
        return bool(self.formats) and self.folder is None and self.file is None


def add(parser: argparse.ArgumentParser) -> None:
    for name, meaning in FORMATS.items():
        parser.add_argument(f"--{name}", metavar="DIR", nargs="?", const="", help=meaning)
    parser.add_argument("--force", action="store_true", help="overwrite existing files")


def read(options: argparse.Namespace, is_run: Callable[[str], bool]) -> Request:
    """What the flags request. The value of a format's flag is the directory; without a run before it, as in
    `report --csv RUN`, one that names a run is that run."""
    asked = {name: value for name in FORMATS if (value := getattr(options, name, None)) is not None}
    formats = list(asked)
    given = list(dict.fromkeys(value for value in asked.values() if value))
    runs = [value for value in given if not options.runs and "/" not in value and is_run(value)]
    options.runs += runs
    folders = [value for value in given if value not in runs]
    if len(folders) > 1:
        raise UsageError(
            f"two directories are named: {folders[0]} and {folders[1]}",
            remedy=f"name one, after the last format: {_flags(formats)} {shlex.quote(folders[0])}",
        )
    folder = folders[0] if folders else None
    file = options.output
    if file is None and folder is not None and formats == ["html"] and folder.endswith(".html"):
        file, folder = folder, None
    if file is not None and folder is not None:
        raise UsageError(
            f"--output names a file, and {folder} is a directory", remedy="remove --output, or the directory"
        )
    if file is not None and not formats:
        formats = ["html"]
    if file is not None and (len(formats) > 1 or formats[0] not in _ALONE):
        raise UsageError(
            f"--output names one file, and {_flags(formats)} writes several",
            remedy=f"name a directory instead: {_flags(formats)} report-files",
        )
    if formats and folder is None and file is None and (len(formats) > 1 or formats[0] != "csv"):
        raise UsageError(
            f"{_flags(formats)} requires a directory",
            remedy=f"{_flags(formats)} {_PAGE if formats == ['html'] else 'report-files'}",
        )
    return Request(tuple(formats), folder, file, bool(getattr(options, "force", False)))


def _flags(formats: Sequence[str]) -> str:
    return " ".join(f"--{name}" for name in formats)


def check(context: Context, request: Request) -> None:
    """Raise UsageError where the files cannot be written, before any of them is made."""
    from bareboat_study import report_files

    if request.file is not None:
        report_files.claim(request.file, context.store, force=request.force, flag="--output")
    elif request.folder is not None:
        flag = _flags(request.formats)
        report_files.claim_folder(request.folder, (), context.store, force=request.force, flag=flag)


def check_formats(request: Request, made: Sequence[str], what: str) -> None:
    """Raise UsageError for a format that is not made for this kind of run."""
    for name in request.formats:
        if name not in made:
            raise UsageError(f"--{name} is not available for {what}", remedy=f"one of: {_flags(list(made))}")


def write(context: Context, request: Request, files: Mapping[str, bytes], runs: Sequence[str]) -> str:
    """Write or print the files; return where they are, or "" for printed text."""
    from bareboat_study import report_files

    if request.folder is not None:
        flag = _flags(request.formats)
        path = report_files.claim_folder(request.folder, files, context.store, force=request.force, flag=flag)
        with failures.at(path):
            path.mkdir(exist_ok=True)
        for name, data in files.items():
            outputs.write(path / name, data)
        return f"{path}: " + (", ".join(files) if len(files) <= _MOST_NAMES else f"{len(files)} files")
    known = [name for name in _ALONE[request.formats[0]] if name in files]
    alone = next((name for name in known if files[name].count(b"\n") > 1), known[0])
    if request.file is not None:
        path = report_files.claim(request.file, context.store, force=request.force)
        earlier = [name for name in report_files.reported(path) if name not in runs]
        outputs.write(path, files[alone])
        if earlier and not context.options.quiet:
            console.note(
                f"replaced the report of {earlier[0]}; write it again: bareboat report {earlier[0]} -o FILE"
            )
        return str(path)
    console.result(files[alone].decode("utf-8", "surrogateescape").rstrip("\n"))
    return ""


def study_files(shown: StudyReport, formats: Sequence[str]) -> dict[str, bytes]:
    """File name -> content; figures in both widths in each format asked for."""
    from bareboat_study import drawing, forest, method, plots, report, report_tables

    texts = dict[str, str]()
    if "csv" in formats:
        texts |= {**report_tables.csv_files(shown), "methods.txt": method.text(shown) + "\n"}
    if "html" in formats:
        texts["report.html"] = report.render(shown)
    files = encoded(texts)
    if kinds := sorted(_DRAWN & set(formats), reverse=True):
        drawn = {each.name: each for each in report.all_figures(shown)}
        for number, each in enumerate(shown.compared if shown.is_one_point else (), start=1):
            suffix = "" if shown.only is not None else f"-{number}"
            own = (forest.of_metrics(each.study, each.analysis), *plots.figures(each.study, each.analysis))
            drawn |= {f"{figure.name}{suffix}": figure for figure in own}
        for kind in kinds:
            for name, figure in drawn.items():
                files[f"{name}.{kind}"] = drawing.vector(figure, kind, drawing.COLUMN)
                files[f"{name}-wide.{kind}"] = drawing.vector(figure, kind, drawing.FULL)
    return files


def encoded(texts: Mapping[str, str]) -> dict[str, bytes]:
    """File name -> content."""
    return {name: text.encode("utf-8", "surrogateescape") for name, text in texts.items()}


def claim_page(context: Context, path: str | None) -> Path | None:
    """The path of a study's page, checked before the study is measured; None: it is named when the study
    is."""
    from bareboat_study import report_files

    if path is None:
        outputs.check(_PAGE)
        return None
    return report_files.claim(path, context.store, force=context.options.force, flag="--output")


def page_of(context: Context, study: str) -> Path:
    """Where the page of a study goes that was measured. Without a name from the user, no file is replaced
    that cannot be written again: a page of a study that is gone gets that study's name."""
    from bareboat_study import report_files

    options, usual = context.options, Path(os.path.abspath(_PAGE))
    if options.output is not None:
        return Path(options.output)
    if os.path.lexists(named := context.store.run(study) / PAGE_PATH):
        with failures.at(named):
            return Path(os.fsdecode(untrusted.read_bytes(named)))
    if options.force or not os.path.lexists(usual) or report_files.can_be_replaced(usual, context.store):
        return usual
    earlier = report_files.reported(usual)
    if earlier and not os.path.lexists(kept := usual.with_name(f"{os.path.basename(earlier[0])}.html")):
        usual.rename(kept)
        console.note(f"the page of {earlier[0]}, which is not in this store, is {kept.name} now")
        return usual
    console.note(f"{_PAGE} is kept: it is no page of a study in this store")
    return usual.with_name(f"{study}.html")
