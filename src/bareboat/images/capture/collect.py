"""Collects the files of an environment: which paths, of what kind, for which layer. Copies nothing."""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from bareboat.errors import UsageError
from bareboat.files.links import follow


class Part(IntEnum):
    """The layers of a captured image, bottom first: the lower, the more images share it."""

    SYSTEM = 0
    PYTHON = 1
    PACKAGES = 2


class Item(NamedTuple):
    """One path of the image. `data` is given for files that Bareboat writes itself."""

    part: Part
    kind: str  # "file", "link" or "folder"
    mode: int
    size: int = 0
    mtime_ns: int = 0
    link: str = ""
    data: bytes | None = None


#: What is asked for a path that is not there.
NOTHING = Item(Part.PACKAGES, "nothing", 0)

#: Folders that no program needs at run time.
_LEFT_OUT = frozenset({".git", ".hg", ".svn", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"})

#: The GPU driver's own libraries: they must match the kernel module of the machine that runs, and come
#: from there. https://docs.nvidia.com/deploy/cuda-compatibility/
_DRIVER = re.compile(r"lib(cuda|cudadebugger|nvidia-[a-z]+|nvcuvid|nvoptix)\.so(\.|$)")


#: The places in which everything of a machine lies.
_TOO_WIDE = (
    "/", "/proc", "/sys", "/dev", "/run", "/tmp", "/home", "/etc", "/var", "/var/lib", "/var/tmp", "/mnt",
    "/media", "/opt", "/srv", "/usr", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/share", "/usr/local",
)  # fmt: skip

#: What the kernel shows there is no file that could be kept.
_KERNEL = ("/proc/", "/sys/", "/dev/")


def changed(path: str) -> UsageError:
    """The error for a file that is no longer what it was when it was collected."""
    return UsageError(
        f"{shown(path)} changed or vanished while the environment was captured",
        remedy="capture again, when nothing installs into it or writes to it",
    )


def read(path: str) -> bytes:
    """All of a collected file. Raises UsageError when it cannot be read any more."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError as error:
        raise changed(path) from error


def shown(path: str) -> str:
    """A path as text for messages and notes; names need not be UTF-8."""
    return os.fsencode(path).decode(errors="backslashreplace")


class Collection:
    """Paths gathered so far; a path keeps the first layer that it was given to."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.left_out: list[str] = []
        self._unreadable: list[str] = []
        self._uid = os.geteuid() or -1  # root may read what a mode forbids
        self._walked: set[str] = set()
        self._outward: list[tuple[str, Part]] = []
        home = os.path.realpath(os.path.expanduser("~"))
        #: Folders that are never an environment: a link or a sys.path entry to one of them is not followed.
        self._too_wide = {*_TOO_WIDE, home}
        while home != "/":
            home = os.path.dirname(home)
            self._too_wide.add(home)

    def write(self, path: str, data: bytes, part: Part = Part.SYSTEM) -> None:
        """A file that Bareboat writes itself; one that was collected goes before it."""
        self.items.setdefault(path, Item(part, "file", 0o644, len(data), data=data))

    def folder(self, path: str, mode: int = 0o755, part: Part = Part.SYSTEM) -> None:
        self.items.setdefault(path, Item(part, "folder", mode))

    def add(self, path: str, part: Part, *, without: frozenset[str] = frozenset()) -> str:
        """Add a file or a whole folder, with every symbolic link on the way to it; return its real path.

        `without` names folders directly below a folder that are left out.
        """
        real = self.link(os.path.join(os.getcwd(), path), part)
        try:
            state = os.lstat(real)
        except FileNotFoundError:
            raise changed(real) from None
        except PermissionError:
            self._unreadable.append(real)
            return real
        if real.startswith(_KERNEL):
            self.left_out.append(f"{shown(path)}: {shown(real)} is the kernel's")
        elif stat.S_ISDIR(state.st_mode):
            if real in self._too_wide:
                self.left_out.append(f"{shown(path)}: {shown(real)} is too wide to be part of an environment")
            elif real not in self._walked:
                self._walk(real, part, without)
        elif stat.S_ISREG(state.st_mode):
            self._file(real, os.path.basename(real), state, part)
        else:
            self.left_out.append(f"{shown(real)}: not a file, directory or symbolic link")
        return real

    def gather(self, folder: str, part: Part) -> None:
        """Put everything below a folder into one layer, from which it can then be mounted alone."""
        for path, item in self.items.items():
            if item.part != part and path.startswith(folder + "/"):
                self.items[path] = item._replace(part=part)

    def has_walked(self, path: str) -> bool:
        """Whether this folder was taken with what is in it."""
        return path in self._walked

    def follow_links(self) -> None:
        """Add what symbolic links in the collected folders point to, outside of them."""
        while self._outward:
            target, part = self._outward.pop()
            if target not in self.items and os.path.exists(target):
                self.add(target, part)

    def check_readable(self) -> None:
        """Raise UsageError when something that belongs to the environment cannot be read."""
        if self._unreadable:
            count = len(self._unreadable)
            first = sorted(self._unreadable)[0]
            raise UsageError(
                f"{count} path{'s' if count > 1 else ''} of the environment cannot be read",
                context="\n".join(map(shown, sorted(self._unreadable)[:5])) + ("\n…" if count > 5 else ""),
                remedy=f"ls -ld {shlex.quote(shown(first))}   # then chmod u+r, or capture as the owner",
            )

    def files(self) -> Iterator[tuple[str, Item]]:
        return ((path, item) for path, item in self.items.items() if item.kind == "file")

    def _walk(self, top: str, part: Part, without: frozenset[str]) -> None:
        pending = [top]
        while pending:
            folder = pending.pop()
            self._walked.add(folder)
            self.items.setdefault(folder, Item(part, "folder", 0o755))
            try:
                with os.scandir(folder) as entries:
                    found = list(entries)
            except PermissionError:
                self._unreadable.append(folder)
                continue
            except (FileNotFoundError, NotADirectoryError):
                raise changed(folder) from None
            for entry in found:
                path = f"{folder}/{entry.name}"
                if entry.is_symlink():
                    self._link(path, part)
                elif entry.is_dir(follow_symlinks=False):
                    if entry.name not in _LEFT_OUT and not (folder == top and entry.name in without):
                        pending.append(path)
                else:
                    try:
                        state = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        raise changed(path) from None
                    self._file(path, entry.name, state, part)

    def _file(self, path: str, name: str, state: os.stat_result, part: Part) -> None:
        mode = state.st_mode
        if not stat.S_ISREG(mode):
            self.left_out.append(f"{shown(path)}: not a file, directory or symbolic link")
        elif name.startswith("lib") and _DRIVER.match(name):
            self.left_out.append(f"{shown(path)}: the GPU driver's libraries come from the machine that runs")
        # An owner's right is in the mode; others may have an access control list.
        elif not (mode & stat.S_IRUSR if state.st_uid == self._uid else os.access(path, os.R_OK)):
            self._unreadable.append(path)
        elif path not in self.items:
            kept = 0o755 if mode & 0o111 else 0o644
            self.items[path] = Item(part, "file", kept, state.st_size, state.st_mtime_ns)

    def _link(self, path: str, part: Part) -> None:
        try:
            target = os.readlink(path)
        except OSError:
            raise changed(path) from None
        self.items.setdefault(path, Item(part, "link", 0o777, link=target))
        # Not normalised: `..` behind another link leads elsewhere than the text says.
        self._outward.append((os.path.join(os.path.dirname(path), target), part))

    def link(self, path: str, part: Part) -> str:
        """Walk down the path, keep each symbolic link met, and return where it ends."""

        def target(step: str) -> str | None:
            if not os.path.islink(step):
                return None
            target = kept = os.readlink(step)
            if target.startswith("/") and os.path.isdir(step) and ".." not in target.split("/"):
                # bwrap makes mount points from outside, where an absolute link leads out of the image.
                kept = os.path.relpath(target, os.path.dirname(step))
            if not step.startswith(_KERNEL):
                self.items.setdefault(step, Item(part, "link", 0o777, link=kept))
            return target

        real = follow(path, target)
        if real is None:
            raise UsageError(
                f"{path} leads through too many symbolic links", remedy=f"ls -l {shlex.quote(path)}"
            )
        return real
