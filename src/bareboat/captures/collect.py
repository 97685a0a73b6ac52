"""Collects the paths of an environment, their kinds and layers. Copies nothing."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from bareboat_base.errors import UsageError
from bareboat_base.expressions import expression
from bareboat_base.files.links import follow


class Part(IntEnum):
    """The layers of a captured image, bottom first. More images share the lower ones."""

    SYSTEM = 0
    PYTHON = 1
    PACKAGES = 2


class Item(NamedTuple):
    """One path of the image. `data`: the content, for files that Bareboat writes."""

    part: Part
    kind: str  # `file`, `link` or `folder`
    mode: int
    size: int = 0
    mtime_ns: int = 0
    link: str = ""
    data: bytes | None = None


#: The item for a path that is not in the collection.
NOTHING = Item(Part.PACKAGES, "nothing", 0)

#: Directories that no program needs at run time.
_LEFT_OUT = frozenset({".git", ".hg", ".svn", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"})

#: Libraries of the GPU driver. They must match the kernel module of the machine that runs the job, so they
#: are mounted from that machine. https://docs.nvidia.com/deploy/cuda-compatibility/
_DRIVER = expression(r"lib(cuda|cudadebugger|nvidia-[a-z]+|nvcuvid|nvoptix)\.so(\.|$)")


#: Directories that contain more than an environment.
_TOO_WIDE = (
    "/", "/proc", "/sys", "/dev", "/run", "/tmp", "/home", "/etc", "/var", "/var/lib", "/var/tmp", "/mnt",
    "/media", "/opt", "/srv", "/usr", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/share", "/usr/local",
)  # fmt: skip

#: Directories and files of a home with keys and passwords.
_OF_KEYS = frozenset({
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".git-credentials", ".pypirc",
    ".vault-token", ".huggingface", ".bash_history", ".password-store", ".pki", ".globus",
})  # fmt: skip

#: Entries of the kernel's file systems cannot be copied.
_KERNEL = ("/proc/", "/sys/", "/dev/")


def changed(path: str) -> UsageError:
    """The error for a file that was changed or removed since it was collected."""
    return UsageError(
        f"{shown(path)} changed or vanished while the environment was captured",
        remedy="capture again, when nothing installs into it or writes to it",
    )


def read(path: str) -> bytes:
    """The content of a collected file. Raises UsageError if it can no longer be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError as error:
        raise changed(path) from error


def shown(path: str) -> str:
    """A path as text for messages and notes; names need not be UTF-8."""
    return os.fsencode(path).decode(errors="backslashreplace")


class Collection:
    """The collected paths. A path stays in the first layer that it was added to."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.left_out: list[str] = []
        self._unreadable: list[str] = []
        self._uid = os.geteuid() or -1  # root may read files whatever their modes
        #: The directories that were collected with their content.
        self.walked: set[str] = set()
        #: The targets of links that are no part of the collection now.
        self.passed_over: list[str] = []
        self._outward: list[tuple[str, Part]] = []
        home = self._home = os.path.realpath(os.path.expanduser("~"))
        #: Directories that are never part of an environment; links and sys.path entries to them are skipped.
        self._too_wide = {*_TOO_WIDE, home}
        while home != "/":
            home = os.path.dirname(home)
            self._too_wide.add(home)

    @property
    def size_bytes(self) -> int:
        return sum(item.size for item in self.items.values())

    def states(self) -> list[str]:
        """What changes when a path does, each with its path, sorted by it."""
        return sorted(
            f"{path}\0{item.kind}\0{item.mode:o}\0{item.size}\0{item.mtime_ns}\0{item.link}"
            for path, item in self.items.items()
        )

    def write(self, path: str, data: bytes, part: Part = Part.SYSTEM) -> None:
        """Add a file that Bareboat writes, unless its path was collected."""
        self.items.setdefault(path, Item(part, "file", 0o644, len(data), data=data))

    def folder(self, path: str, mode: int = 0o755, part: Part = Part.SYSTEM) -> None:
        self.items.setdefault(path, Item(part, "folder", mode))

    def add(self, path: str, part: Part, *, without: frozenset[str] = frozenset()) -> str:
        """Add a file or a directory with its content, and all symbolic links in its path; return its real
        path. `without`: names of subdirectories to exclude."""
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
            elif self._has_keys(real):  # a line of a .pth file, or PYTHONPATH
                self.left_out.append(f"{shown(real)}: a directory of keys or passwords")
            elif real not in self.walked:
                self._walk(real, part, without)
        elif stat.S_ISREG(state.st_mode):
            self._file(real, os.path.basename(real), state, part)
        else:
            self.left_out.append(f"{shown(real)}: not a file, directory or symbolic link")
        return real

    def gather(self, folder: str, part: Part) -> None:
        """Move everything below a directory into one layer, so that it can be mounted separately."""
        for path, item in self.items.items():
            if item.part != part and path.startswith(folder + "/"):
                self.items[path] = item._replace(part=part)

    def has_walked(self, path: str) -> bool:
        """Whether this directory was collected with its content."""
        return path in self.walked

    def follow_links(self) -> None:
        """Add the targets of symbolic links in collected directories that are outside of them."""
        while self._outward:
            target, part = self._outward.pop()
            if target in self.items:
                continue
            if not os.path.exists(target):
                self.passed_over.append(os.path.realpath(target))
            elif self._is_private(target):
                self.passed_over.append(os.path.realpath(target))
                reason = "private to you; a link in the environment leads to it"
                self.left_out.append(f"{shown(target)}: {reason}")
            else:
                self.add(target, part)

    def _is_private(self, target: str) -> bool:
        """Whether a link's target outside of the environment is a file that only its owner may read, or lies
        in a hidden directory of the home that has keys: whoever made the link may not have been the user."""
        real = os.path.realpath(target)
        if self._has_keys(real):
            return True
        try:
            state = os.stat(real)
        except OSError:
            return False
        is_private = stat.S_ISREG(state.st_mode) and not state.st_mode & 0o077
        return is_private and os.path.dirname(real) not in self.walked

    def _has_keys(self, real: str) -> bool:
        return os.path.relpath(real, self._home).split("/")[0] in _OF_KEYS

    def check_readable(self) -> None:
        """Raise UsageError if a path of the environment cannot be read."""
        if self._unreadable:
            count = len(self._unreadable)
            first = sorted(self._unreadable)[0]
            raise UsageError(
                f"the capture cannot read {shown(first)}" + (f" and {count - 1} more" if count > 1 else ""),
                context="\n".join(map(shown, sorted(self._unreadable)[1:5])) + ("\n…" if count > 5 else ""),
                remedy=f"chmod -R u+rX {shlex.quote(shown(first))}   # as its owner",
            )

    def files(self) -> Iterator[tuple[str, Item]]:
        return ((path, item) for path, item in self.items.items() if item.kind == "file")

    def _walk(self, top: str, part: Part, without: frozenset[str]) -> None:
        pending = [top]
        while pending:
            folder = pending.pop()
            self.walked.add(folder)
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
        # For the owner, the mode decides; for others, an access control list may apply.
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
        # Not normalised: `..` after another link does not refer to the parent in the text.
        self._outward.append((os.path.join(os.path.dirname(path), target), part))

    def link(self, path: str, part: Part) -> str:
        """Add all symbolic links in a path, and return its real path."""

        def target(step: str) -> str | None:
            if not os.path.islink(step):
                return None
            target = kept = os.readlink(step)
            if target.startswith("/") and os.path.isdir(step) and ".." not in target.split("/"):
                # bwrap makes mount points from outside, where an absolute link would lead out of the image.
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
