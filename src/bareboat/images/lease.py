"""Leases: one process does the work, the others wait; on any file system, over any number of nodes.

A lease is a file made by link(2), which is atomic on NFS too; flock and POSIX locks are not used, since
sites mount without them. Its holder touches it every two seconds. Who waits and has seen no touch for a
while, by the waiter's own monotonic clock, or knows that the holder is dead, breaks it.

A broken lease of a holder who lives after all does no harm: everything that is made under a lease is
named by its digest and published by one rename. Leases only save work.
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

from bareboat.store import is_dead, owner

_BEAT_S = 2.0
#: Longer than the attribute caches of NFS clients hold on to an old time stamp after a fresh open.
_PATIENCE_S = 20.0
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


@contextlib.contextmanager
def hold(
    path: Path, *, until: Callable[[], bool], waiting: Callable[[str], None] = lambda _owner: None
) -> Iterator[bool]:
    """Hold the lease (True), or come back when `until()` says that the work is done (False).

    `waiting` is called, once, with the holder's name when there is something to wait for.
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
    """Take away the leases of dead holders: of work that was published, but whose lease was not released."""
    with contextlib.suppress(OSError):
        for path in sorted([*folder.glob(f".{prefix}*"), *folder.glob(f"{prefix}*")]):
            lease, breaking = _Watch(path), _Watch(path.with_name(f".{path.name}.breaking"))
            lease.look()
            if lease.found is None or not is_dead(lease.found.holder):
                continue
            if path.name.startswith("."):  # nobody else makes or breaks a lease by this file
                path.unlink(missing_ok=True)
            else:
                _break(lease, breaking, _new_mark())


class _Seen(Struct, frozen=True):
    """A lease at one look. `mark` and `touched_ns` tell one touch from the next."""

    mark: str
    touched_ns: int

    @property
    def holder(self) -> str:
        return self.mark.partition("\n")[0]


def _new_mark() -> str:
    """What a lease holds: its holder, and what no other lease of the same holder has. Not its inode
    number tells whose it is, since a file system gives that to the next file."""
    return f"{owner()}\n{secrets.token_hex(8)}\n"


class _Watch:
    """Looks at a lease from time to time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._since = 0.0
        self.found: _Seen | None = None

    def look(self) -> None:
        found, now = _look(self.path), time.monotonic()
        if found != self.found:
            self.found, self._since = found, now

    def abandoned(self) -> bool:
        """Whether nobody keeps the lease up any more."""
        if self.found is None:
            return False
        return is_dead(self.found.holder) or time.monotonic() - self._since > _PATIENCE_S


def _take(path: Path, mine: str, until: Callable[[], bool], waiting: Callable[[str], None]) -> bool:
    """Whether the lease is ours; False when the work is done."""
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
    """Make the lease; False when somebody has it."""
    candidate = path.with_name(f".{path.name}.{owner()}-{threading.get_ident()}")
    try:
        candidate.write_text(mine)
        try:
            os.link(candidate, path)
        except FileExistsError:
            # The answer to link() can get lost on NFS, and the question come twice: the count of links
            # tells whether it was done (open(2)).
            return os.stat(candidate).st_nlink > 1
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return _create(path, mine)
        return True
    finally:
        candidate.unlink(missing_ok=True)


def _create(path: Path, mine: str) -> bool:
    """The same where the file system has no hard links."""
    try:
        with open(path, "x") as stream:
            stream.write(mine)
    except FileExistsError:
        return False
    return True


def _look(path: Path) -> _Seen | None:
    """The lease as it is now; None when there is none. Opening makes an NFS client ask the server."""
    try:
        with open(path, errors="replace") as stream:
            return _Seen(stream.read(500), os.fstat(stream.fileno()).st_mtime_ns)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ESTALE:
            return None
        # Another user's, and not ours to read: its touches can be seen all the same.
        with contextlib.suppress(FileNotFoundError):
            return _Seen("another user", os.stat(path).st_mtime_ns)
        return None


def _break(lease: _Watch, breaking: _Watch, mine: str) -> bool:
    """Take away a lease that nobody keeps up; whether that was done, by us.

    Many waiters find the same holder dead at the same moment. Only one at a time may look again and
    remove, under a lease for that: else a slow one would remove what a quick one has got by then.
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
