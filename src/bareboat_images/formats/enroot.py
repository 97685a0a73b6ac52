"""What `enroot import` writes into a root file system: /etc/rc, which starts the image's process, and
/etc/environment. Neither is executed.

https://github.com/NVIDIA/enroot/blob/master/doc/image-format.md
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from msgspec import Struct

from bareboat_base.expressions import expression
from bareboat_base.files.root import Root
from bareboat_images.model import Image

_LARGEST = 1 << 20
#: Of a variable in a file with a line `NAME=VALUE` for each.
NAME = expression(r"[^\s=]+")
_WORKDIR = expression(r'cd "(.*)" && unset OLDPWD \|\| exit 1')
_START = expression(r"exec\s+(.*?)\s*(\"\$@\")?")
#: The other lines of /etc/rc.
_FIXED = frozenset((
    "", "if [ -s /etc/rc.local ]; then", ". /etc/rc.local", "fi", "if [ $# -gt 0 ]; then", "else",
))  # fmt: skip
_MADE = expression(r'mkdir -p ".*" 2> /dev/null')

_RC = """\
mkdir -p "{workdir}" 2> /dev/null
cd "{workdir}" && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    exec {entrypoint} "$@"
else
    exec {whole}
fi
"""


class Process(Struct, frozen=True, kw_only=True):
    """`unread`: lines without effect."""

    environment: dict[str, str]
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    workdir: str
    unread: tuple[str, ...] = ()


def read(root: Root) -> Process | None:
    """The process of an image; None for a root file system that Enroot did not write."""
    rows = [row.strip() for row in _rows(root, "etc/rc")]
    workdir = next((match[1] for row in rows if (match := _WORKDIR.fullmatch(row))), None)
    if workdir is None:
        return None
    unread = [f"/etc/rc.local: {row}" for row in map(str.strip, _rows(root, "etc/rc.local")) if _is_code(row)]
    starts: dict[bool, tuple[str, ...]] = {}
    for row in rows:
        match = _START.fullmatch(row)
        words = None if match is None else _words(match[1])
        if match is not None and words is not None:
            starts[match[2] is not None] = words
        elif _is_code(row) and not (_WORKDIR.fullmatch(row) or _MADE.fullmatch(row) or row in _FIXED):
            unread.append(f"/etc/rc: {row}")
    entrypoint = starts.get(True, ())
    whole = starts.get(False, ("/bin/sh",))
    pairs = (row.partition("=") for row in _rows(root, "etc/environment"))
    return Process(
        environment={name: value for name, equals, value in pairs if equals and NAME.fullmatch(name)},
        entrypoint=entrypoint,
        command=whole[len(entrypoint) :] if whole[: len(entrypoint)] == entrypoint else (),
        workdir=workdir or "/",
        unread=tuple(unread),
    )


def write(tree: Path, image: Image) -> None:
    """Write the process of an image into its root file system, unless Enroot's is there."""
    root = Root(str(tree))
    etc = root.real("etc")
    if read(root) is not None or etc is None:
        return
    process = image.process
    whole = (*process.entrypoint, *process.command) or ("/bin/sh",)
    text = _RC.format(
        workdir=process.workdir or "/", entrypoint=shlex.join(process.entrypoint), whole=shlex.join(whole)
    )
    variables = "".join(f"{name}={value}\n" for name, value in image.environment.items())
    for name, content in (("rc", text), ("environment", variables)):
        path = Path(etc, name)
        path.unlink(missing_ok=True)  # a link may lead out of the tree
        path.write_text(content, errors="surrogateescape")


def _rows(root: Root, path: str) -> list[str]:
    return root.read(path, _LARGEST).decode(errors="surrogateescape").split("\n")


def _is_code(row: str) -> bool:
    return bool(row) and not row.startswith("#")


def _words(text: str) -> tuple[str, ...] | None:
    """The quoted words of a command; None where bash would expand something."""
    if re.search(r"\$|`", re.sub(r"'[^']*'", "", text)):
        return None
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return None
