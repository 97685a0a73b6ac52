"""bareboat image lint: what makes a Dockerfile or an image large, unsafe, or fail on clusters."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bareboat.cli import console
from bareboat.cli.argument_parser import Parser, number
from bareboat.cli.common import Context, add_common
from bareboat.cli.folding import folded
from bareboat.cli.image.common import find
from bareboat_base.errors import StoreError, UsageError
from bareboat_base.files import outputs, untrusted
from bareboat_base.printable import quoted

if TYPE_CHECKING:
    from bareboat.model import Site

EXAMPLE = "bareboat image lint Dockerfile"

_NAMES = ("Dockerfile", "Containerfile")
_HERE, _NONE = "here", "none"
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
    from bareboat.lint.registry import RULES
    from bareboat_images.lint.check import Lint

    options = context.options
    if options.json and options.format == "sarif":
        raise UsageError("--json and --format sarif cannot be used together", remedy="remove one of them")
    path = outputs.check_new(options.output, flag="--output")
    ignored = _ignored(options.ignore)
    file = _file(options.subject, context)
    lint = Lint(name=_name(options.subject, file), rules=RULES, ignore=ignored)
    try:
        if file is not None:
            site = _site(context, default=_NONE)
            report = lint.file(file, site, with_others=not options.no_hadolint)
        else:
            image, site = find(context, options.subject), _site(context, default=_HERE)
            report = lint.stored(
                context.store, image, site, inode_quota=options.inode_quota, say=context.progress.say
            )
            report = replace(report, notes=(*report.notes, *_compared(site)))
    finally:
        context.progress.end()
    form = "json" if options.json else options.format
    text = report.written(form, RULES)
    if form == "text":
        text = folded(text, console.width() if path is None else None)
        for note in report.notes:
            context.progress.note(f"note: {note}")
    if path is None:
        console.result(text)
    else:
        outputs.write_new(path, f"{text}\n".encode("utf-8", "surrogateescape"))
        console.result(f"{path}: {report.summary}")
    if report.unread:
        raise StoreError(
            f"not all of {options.subject} was checked: {report.unread[0]}",
            remedy=f"bareboat image verify {shlex.quote(options.subject)}",
        )
    return FOUND if report.fails(options.fail_on) else 0


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


def _compared(site: Site | None) -> tuple[str, ...]:
    """What an image was compared with, for the user."""
    if site is None:
        return ()
    return (f"compared with {site.hostname} ({site.distribution}, {site.cpu_model}); others: --for SITE",)
