"""Opens and copies single entries of a tree, never through a symbolic link."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from bareboat_base.files import untrusted

NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Errors of link(2) where a copy works: too many links, another file system or another directory (on some
#: cluster file systems), a file of another user (fs.protected_hardlinks), no hard links at all.
NO_LINK = frozenset({errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})

_MIB = 1 << 20


def tree_mode(mode: int, *, is_folder: bool) -> int:
    """The mode that an entry of a layer has in its tree: without privileges, and readable for its owner. The
    owner may lack the right to write to a directory; what adds to it or removes it takes that first."""
    return mode & 0o1777 | 0o500 if is_folder else mode & 0o777 | 0o400


def make_writable(folder: int) -> int:
    """Let the owner of an open directory add and remove entries; return its mode before."""
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        os.fchmod(folder, mode | stat.S_IRWXU)
    return mode


@contextlib.contextmanager
def writable(folder: int) -> Iterator[None]:
    """Make an open directory writable inside the context, then restore its mode."""
    mode = make_writable(folder)
    try:
        yield
    finally:
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            os.fchmod(folder, mode)


def copy_entry(source_fd: int, source: bytes, target_fd: int, target: bytes) -> int:
    """Copy a file (holes stay holes), symbolic link or pipe with its mode, times and `user.*` attributes;
    return its size in bytes if it is a file, else 0."""
    state = os.lstat(source, dir_fd=source_fd)
    times = (state.st_mtime_ns, state.st_mtime_ns)
    if not stat.S_ISREG(state.st_mode):
        if stat.S_ISLNK(state.st_mode):
            os.symlink(os.readlink(source, dir_fd=source_fd), target, dir_fd=target_fd)
        else:
            os.mkfifo(target, 0o600, dir_fd=target_fd)
            os.chmod(target, stat.S_IMODE(state.st_mode), dir_fd=target_fd)  # independent of the umask
        os.utime(target, ns=times, dir_fd=target_fd, follow_symlinks=False)
        return 0
    given = untrusted.open_regular(source, dir_fd=source_fd)
    try:
        made = os.open(target, NEW_FILE, 0o600, dir_fd=target_fd)
        try:
            _copy_data(given, made, state.st_size)
            for key in os.listxattr(given):
                if key.startswith("user."):
                    with contextlib.suppress(OSError):
                        os.setxattr(made, key, os.getxattr(given, key))
            os.fchmod(made, stat.S_IMODE(state.st_mode))
            os.utime(made, ns=times)
        finally:
            os.close(made)
    finally:
        os.close(given)
    return state.st_size


def _copy_data(given: int, made: int, size: int) -> None:
    position = 0
    while position < size:
        try:
            position = os.lseek(given, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole remains
                break
            raise
        stop = os.lseek(given, position, os.SEEK_HOLE)
        while position < stop and (data := os.pread(given, min(_MIB, stop - position), position)):
            view = memoryview(data)
            while view:
                done = os.pwrite(made, view, position)
                position += done
                view = view[done:]
    os.ftruncate(made, size)
