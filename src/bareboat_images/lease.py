"""Leases: one process does the work, the others wait; on any file system, across nodes.

A lease is a file created by link(2), which is atomic on NFS too; flock and POSIX locks are not used, since
sites mount file systems without them. Its holder touches it every two seconds. A waiter breaks it after
seeing no touch for `_PATIENCE_S`, by its own monotonic clock, or when it knows that the holder is dead.

Breaking the lease of a live holder does no harm: everything made under a lease is named by its digest
and published by one rename. Leases only save work.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from bareboat_base.files import untrusted
from bareboat_images.store import is_dead, owner

_BEAT_S = 2.0
#: Longer than an NFS client's attribute cache keeps an old time stamp after a fresh open.
_PATIENCE_S = 20.0
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


@contextlib.contextmanager
def hold(
    path: Path, *, until: Callable[[], bool], waiting: Callable[[str], None] = lambda _owner: None
) -> Iterator[bool]:
    """Hold the lease (True), or return once `until()` reports that the work is done (False).

    `waiting` is called once with the holder's name if there is something to wait for.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    mine = _new_mark()
    if not _take(path, mine, until, waiting):
        yield False
        return
    ended = threading.Event()
    beat = threading.Thread(target=_beat, args=(path, mine, ended), name="lease", daemon=True)
    try:
        beat.start()
        yield True
    finally:
        ended.set()
        if beat.ident is not None:
            beat.join()
        _release(path, mine)


def clear(folder: Path, prefix: str) -> None:
    """Remove the leases of dead holders: of work that was published before its lease was released."""
    with contextlib.suppress(OSError):
        for path in sorted([*folder.glob(f".{prefix}*"), *folder.glob(f"{prefix}*")]):
            lease, breaking = _Watch(path), _Watch(path.with_name(f".{path.name}.breaking"))
            lease.look()
            if lease.found is None or not is_dead(lease.found.holder):
                continue
            if path.name.startswith("."):  # only this function creates or breaks a lease by this file
                path.unlink(missing_ok=True)
            else:
                _break(lease, breaking, _new_mark())


class _Seen(Struct, frozen=True):
    """One observation of a lease. A touch changes `mark` or `touched_ns`."""

    mark: str
    touched_ns: int

    @property
    def holder(self) -> str:
        return self.mark.partition("\n")[0]


def _new_mark() -> str:
    """The content of a lease: its holder, and a unique token. An inode number cannot identify the lease,
    since a file system reuses it for the next file."""
    return f"{owner()}\n{secrets.token_hex(8)}\n"


class _Watch:
    """Observes a lease repeatedly."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._since = 0.0
        self.found: _Seen | None = None

    def look(self) -> None:
        found, now = _look(self.path), time.monotonic()
        if found != self.found:
            self.found, self._since = found, now

    def abandoned(self) -> bool:
        """Whether the holder is dead or has stopped touching the lease."""
        if self.found is None:
            return False
        return is_dead(self.found.holder) or time.monotonic() - self._since > _PATIENCE_S


def _take(path: Path, mine: str, until: Callable[[], bool], waiting: Callable[[str], None]) -> bool:
    """Whether this process took the lease; False when the work is done."""
    lease, breaking = _Watch(path), _Watch(path.with_name(f".{path.name}.breaking"))
    pause_s = 0.0
    told = False
    while not until():
        if _try(path, mine):
            try:
                done = until()
            except BaseException:
                _release(path, mine)
                raise
            if done:
                _release(path, mine)
            return not done
        lease.look()
        if lease.abandoned() and _break(lease, breaking, mine):
            continue
        if lease.found is not None and not told:
            told = True
            waiting(lease.found.holder)
        pause_s = min(max(pause_s * 1.5, 0.01), 0.25)
        time.sleep(pause_s * random.uniform(0.5, 1.0))
    return False


def _try(path: Path, mine: str) -> bool:
    """Create the lease; False if it is held."""
    candidate = path.with_name(f".{path.name}.{owner()}-{threading.get_ident()}")
    try:
        _write(candidate, mine)
        try:
            os.link(candidate, path)
        except FileExistsError:
            # NFS can lose the reply to link() and repeat the request: the link count shows whether the link
            # was made (open(2)).
            return os.stat(candidate).st_nlink > 1
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return _create(path, mine)
        return True
    finally:
        candidate.unlink(missing_ok=True)


def _create(path: Path, mine: str) -> bool:
    """Create the lease on a file system without hard links."""
    try:
        _write(path, mine)
    except FileExistsError:
        return False
    return True


def _write(path: Path, mine: str) -> None:
    """Write a new file: in a group's store another member may have put a link in its place."""
    with open(path, "x") as stream:
        stream.write(mine)


def _look(path: Path) -> _Seen | None:
    """The current lease; None if there is none. Opening makes an NFS client ask the server."""
    try:
        with untrusted.stream(path) as stream:
            mark = stream.read(500).decode(errors="replace")
            return _Seen(mark, os.fstat(stream.fileno()).st_mtime_ns)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ESTALE:
            return None
        # Another user's lease, unreadable: its touches are still visible.
        with contextlib.suppress(FileNotFoundError):
            return _Seen("another user", path.lstat().st_mtime_ns)
        return None


def _break(lease: _Watch, breaking: _Watch, mine: str) -> bool:
    """Remove an abandoned lease; whether this process removed it.

    Many waiters find the same holder dead at the same moment. Only one at a time may check again and
    remove, under a second lease: otherwise a slow waiter would remove the lease that a faster one just took.
    """
    if not _try(breaking.path, mine):
        breaking.look()
        if breaking.abandoned():
            breaking.path.unlink(missing_ok=True)
        return False
    try:
        if _look(lease.path) != lease.found:
            return False
        lease.path.unlink(missing_ok=True)
        return True
    finally:
        _release(breaking.path, mine)


def _beat(path: Path, mine: str, ended: threading.Event) -> None:
    while not ended.wait(_BEAT_S):
        with contextlib.suppress(OSError):
            if _is_mine(path, mine):
                os.utime(path)


def _release(path: Path, mine: str) -> None:
    with contextlib.suppress(OSError):
        if _is_mine(path, mine):
            path.unlink()


def _is_mine(path: Path, mine: str) -> bool:
    found = _look(path)
    return found is not None and found.mark == mine
