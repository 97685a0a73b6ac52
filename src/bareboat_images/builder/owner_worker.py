"""A program that changes owners of files in a user namespace with the user's subordinate IDs. It imports only
the standard library. It reads requests, one line of JSON each, and answers each with one line of JSON.

    {"do": "seed", "top": PATH, "entries": [[PATH, FILE, UID, GID], …]}     -> {}
    {"do": "collect", "top": PATH, "entries": …}                            -> {"owners": …, "kept": …}
    {"do": "own", "top": PATH}, {"do": "remove", "top": PATH}               -> {}

Paths are bytes, as text with surrogates. An error is {"error": TEXT}. The program exits at the end of input.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import stat
import sys
from typing import Any

_CLONE_NEWUSER = 0x10000000
_CAPABILITY = "security.capability"
#: Path -> inode and ctime, to detect changes.
_Marks = dict[str, tuple[int, int]]


def main() -> int:
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUSER) != 0:
        _answer({"error": f"unshare(CLONE_NEWUSER): {os.strerror(ctypes.get_errno())}"})
        return 1
    _answer({})
    sys.stdin.readline()  # the IDs are mapped
    os.umask(0o022)
    marks: dict[str, _Marks] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        top = asked["top"]
        try:
            match asked["do"]:
                case "seed":
                    marks[top] = _seed(top, asked["entries"])
                    _answer({})
                case "collect":
                    _answer(_collect(top, asked["entries"], marks.pop(top)))
                case "own":
                    _own(top)
                    _answer({})
                case "remove":
                    shutil.rmtree(top, ignore_errors=True)
                    _answer({})
        except OSError as error:
            _answer({"error": f"{error.strerror or error}: {os.path.basename(str(error.filename or top))}"})
    return 0


def _answer(data: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(data) + "\n")
    sys.stdout.flush()


def _seed(top: str, entries: list[list[Any]]) -> _Marks:
    """Copy files of other owners, as overlayfs copies up changed files. Parents come first."""
    folders = []
    for path, real, uid, gid in entries:
        full, state = os.path.join(top, path), os.lstat(real)
        if stat.S_ISDIR(state.st_mode):
            with contextlib.suppress(FileExistsError):
                os.mkdir(full)
            folders.append((full, state))
        elif stat.S_ISLNK(state.st_mode):
            os.symlink(os.readlink(real), full)
        elif stat.S_ISFIFO(state.st_mode):
            os.mkfifo(full)
        else:
            shutil.copyfile(real, full, follow_symlinks=False)
        os.chown(full, uid, gid, follow_symlinks=False)
        if not stat.S_ISLNK(state.st_mode):
            os.chmod(full, stat.S_IMODE(state.st_mode))
            _copy_attributes(real, full)
        os.utime(full, ns=(state.st_atime_ns, state.st_mtime_ns), follow_symlinks=False)
    for full, state in reversed(folders):
        os.utime(full, ns=(state.st_atime_ns, state.st_mtime_ns))
    found: _Marks = {}
    for path, real, _, _ in entries:
        if not os.path.isdir(real) or os.path.islink(real):
            state = os.lstat(os.path.join(top, path))
            found[path] = (state.st_ino, state.st_ctime_ns)
    return found


def _copy_attributes(source: str, target: str) -> None:
    for name in os.listxattr(source, follow_symlinks=False):
        if name.startswith("user.") and not name.startswith("user.overlay."):
            with contextlib.suppress(OSError):
                os.setxattr(target, name, os.getxattr(source, name))


def _collect(top: str, entries: list[list[Any]], marks: _Marks) -> dict[str, Any]:
    """Remove unchanged copies, return the owners of all other files, and make this user their owner. `kept`:
    directories whose owner changed."""
    for path, mark in marks.items():
        full = os.path.join(top, path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            state = os.lstat(full)
            if (state.st_ino, state.st_ctime_ns) == mark:
                parent = os.path.dirname(full)
                before = os.lstat(parent)
                os.unlink(full)
                os.utime(parent, ns=(before.st_atime_ns, before.st_mtime_ns))
    given = {path: (uid, gid) for path, _, uid, gid in entries}
    owners: dict[str, tuple[int, int]] = {}
    kept = []
    for path, full, state in list(_below(top)):  # before changes: hard links share an owner
        owner = (state.st_uid, state.st_gid)
        if owner != (0, 0) and not stat.S_ISCHR(state.st_mode):
            owners[path] = owner
        if stat.S_ISDIR(state.st_mode) and path and owner != given.get(path, (0, 0)):
            kept.append(path)
        _take(full, state)
    return {"owners": owners, "kept": kept}


def _own(top: str) -> None:
    for _, full, state in _below(top):
        _take(full, state)


def _below(top: str) -> Any:
    """All entries, parents first."""
    pending = [""]
    while pending:
        path = pending.pop()
        full = os.path.join(top, path) if path else top
        state = os.lstat(full)
        yield path, full, state
        if stat.S_ISDIR(state.st_mode):
            pending += [os.path.join(path, name) for name in os.listdir(full)]


def _take(full: str, state: os.stat_result) -> None:
    """Make this user, who is root here, the owner of a file. Restores setuid and setgid bits and
    capabilities, which the kernel removes with the owner."""
    if (state.st_uid, state.st_gid) == (0, 0):
        return
    capability = None
    if stat.S_ISREG(state.st_mode):
        with contextlib.suppress(OSError):
            capability = os.getxattr(full, _CAPABILITY)
    os.chown(full, 0, 0, follow_symlinks=False)
    if stat.S_ISREG(state.st_mode) and state.st_mode & 0o6000:
        os.chmod(full, stat.S_IMODE(state.st_mode))
    if capability is not None:
        with contextlib.suppress(OSError):
            os.setxattr(full, _CAPABILITY, capability)


if __name__ == "__main__":
    sys.exit(main())
