"""The mounts of Pyxis: `SRC[:DST[:FLAGS]]`, `tmpfs:DST` and `umount:DST`."""

from __future__ import annotations

import os
import posixpath
import shlex
from collections.abc import Iterable
from typing import NamedTuple

from bareboat.model import Mount
from bareboat_base.paths import lies_in
from bareboat_shim.table import Malformed, Mistake

#: Flags of every bind mount here, or without a meaning for one.
_PLAIN = frozenset((
    "rw", "bind", "rbind", "private", "rprivate", "slave", "rslave", "nosuid", "nodev",
    "x-create=auto", "x-create=dir", "x-create=file",
))  # fmt: skip
_USE = "SRC:/DST[:ro]"


class Spec(NamedTuple):
    """One mount as it is written. `source` is "tmpfs", "umount" or a path."""

    source: str
    target: str
    is_read_only: bool


class Shown(NamedTuple):
    """What a container shows of the machine. `empty`: directories in memory."""

    mounts: tuple[Mount, ...]
    empty: tuple[str, ...]


def parse(text: str) -> list[Spec]:
    """The mounts of one value. Raises Malformed."""
    return [_spec(part) for part in text.split(",")]


def _spec(text: str) -> Spec:
    source, colon, rest = text.partition(":")
    target, _, flags = rest.partition(":") if colon else (source, "", "")
    if not source or not target:
        raise Malformed(f"--container-mounts: invalid format: {text!r}", _USE)
    if source not in ("tmpfs", "umount") and not source.startswith(("/", ".")):
        raise Malformed(
            f"--container-mounts: the source {source!r} is no path, and neither tmpfs nor umount",
            f"./{source}:{target}",
        )
    if target.startswith("."):
        target = posixpath.join("/", target) if ".." not in target.split("/") else target
    if not target.startswith("/"):
        raise Malformed(f"--container-mounts: the target {target!r} is not an absolute path", _USE)
    names = [each for each in flags.split("+") if each]
    unknown = [each for each in names if each not in _PLAIN and each != "ro"]
    if unknown or (names and source in ("tmpfs", "umount")):
        what = (unknown or names)[0]
        raise Mistake(f"--container-mounts {text}: the flag {what} is not supported", "use ro or rw")
    return Spec(source, posixpath.normpath(target), "ro" in names)


def shown(specs: Iterable[Spec], *, home: Mount | None, needed: Iterable[str]) -> Shown:
    """`home`: the mount of the home directory; `needed`: directories of the machine that Slurm's tasks use.
    Raises Mistake for a source that does not exist."""
    mounts = {path: Mount(source=path, target=path, writable=True) for path in needed}
    if home is not None:
        mounts[home.target] = home
    empty: list[str] = []
    for spec in specs:
        if spec.source == "umount":
            if spec.target not in mounts:
                raise Mistake(f"--container-mounts: {spec.target} is not mounted", "leave out the umount")
            del mounts[spec.target]
        elif spec.source == "tmpfs":
            empty.append(spec.target)
        else:
            _add(spec, mounts)
    return Shown(tuple(sorted(mounts.values(), key=lambda each: each.target.split("/"))), tuple(empty))


def _add(spec: Spec, mounts: dict[str, Mount]) -> None:
    source = os.path.abspath(spec.source)
    if not os.path.exists(source):
        raise Mistake(
            f"source path does not exist: {spec.source} (on {os.uname().nodename})",
            f"ls -ld {shlex.quote(str(source))}",
        )
    if lies_in(spec.target, "/dev") and not spec.is_read_only and source == spec.target:
        return  # every container has the machine's /dev
    if any(lies_in(source, each) for each in ("/dev", "/proc", "/sys")):
        raise Mistake(
            f"--container-mounts {spec.source}:{spec.target}: devices have their own paths only",
            f"--container-mounts={spec.source}:{spec.source}",
        )
    mounts[spec.target] = Mount(source=source, target=spec.target, writable=not spec.is_read_only)
