"""The gate: lets the ranks of one arm run up to a given step, and no further.

Every rank's meter connects over loopback, identifies itself, and blocks in a socket read whenever it has done
the steps that it was allowed. What else the arm has running, such as data loaders, is stopped by the study.
The protocol is in bareboat_meter.py: `hello TOKEN RANK WORLD`, `at STEP`, `bye`; and back, `go STEP`.

Every user of the machine can connect. A connection that does not send the token at once is closed: it can
neither end the study nor delay its time limit.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bareboat_base.errors import RunError

#: Longer than any sane training step; a rank without a message for this long hangs.
SILENCE_S = 1800.0
#: More steps than any training has.
FOREVER = 10**15
#: A rank sends its token right after it connects. Others are closed after this many seconds; where there are
#: more of them, the oldest first.
HELLO_S = 30.0
MOST_STRANGERS = 64
_LONGEST_LINE = 200
_MOST_RANKS = 10**7
_MOST_NAMED = 8


@dataclass(slots=True)
class _Rank:
    connection: socket.socket
    number: int
    waiting_at: int | None = None
    done: bool = False
    buffer: bytes = field(default=b"")

    def read(self, line: bytes) -> bool:
        """Read a line of the rank; whether it is one of the protocol."""
        words = line.split()
        if words == [b"bye"]:
            self.done = True
            return True
        step = _number(words[1]) if len(words) == 2 and words[0] == b"at" else None
        if step is not None:
            self.waiting_at = step
        return step is not None


@dataclass(slots=True)
class _Stranger:
    """A connection that has not sent the token."""

    since_s: float
    buffer: bytes = b""


class Gate:
    """The gate of one arm. Use as a context manager; after it, no rank may continue."""

    def __init__(self) -> None:
        self._token = secrets.token_hex(16).encode()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._ranks: dict[int, _Rank] = {}
        self._strangers: dict[socket.socket, _Stranger] = {}
        self.world_size: int | None = None

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in [*self._strangers, *(rank.connection for rank in self._ranks.values())]:
            connection.close()
        self._listener.close()
        self._selector.close()

    @property
    def address(self) -> str:
        """The value of BAREBOAT_GATE for the ranks of this arm."""
        host, port = self._listener.getsockname()
        return f"{host}:{port}:{self._token.decode()}"

    @property
    def metered(self) -> bool:
        """Whether any rank has connected."""
        return bool(self._ranks)

    @property
    def step(self) -> int:
        """The step at which the ranks wait."""
        return max((rank.waiting_at or 0 for rank in self._ranks.values()), default=0)

    @property
    def finished(self) -> bool:
        """Whether every rank has finished."""
        return self._complete and all(rank.done for rank in self._ranks.values())

    @property
    def _complete(self) -> bool:
        return self.world_size is not None and len(self._ranks) == self.world_size

    @property
    def _settled(self) -> bool:
        return self._complete and all(r.done or r.waiting_at is not None for r in self._ranks.values())

    @property
    def _late_text(self) -> str:
        """Which ranks neither wait nor have finished."""
        if not self._ranks:
            return "no rank connected"
        silent = [r.number for r in self._ranks.values() if not r.done and r.waiting_at is None]
        missing = sorted(set(range(self.world_size or 0)) - self._ranks.keys())
        parts = [
            f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:_MOST_NAMED]))} {what}"
            for ranks, what in ((missing, "did not connect"), (sorted(silent), "sent no message"))
            if ranks
        ]
        return " and ".join(parts)

    def open_until(self, step: int) -> None:
        """Let every rank run until it has done `step` steps in all."""
        for rank in self._ranks.values():
            if not rank.done:
                rank.waiting_at = None
                # A rank may have died; wait() sees the end of its job.
                with contextlib.suppress(OSError):
                    rank.connection.sendall(b"go %d\n" % step)

    def wait(self, pidfd: int, watch: Callable[[], float] = lambda: SILENCE_S) -> bool:
        """Block until every rank waits or has finished: True; or until the job script behind `pidfd`
        ends: False. `watch`: called until a rank connects; returns the seconds until its next call. Raises
        RunError after SILENCE_S seconds without a message from any rank."""
        self._selector.register(pidfd, selectors.EVENT_READ)
        try:
            deadline = time.monotonic() + SILENCE_S
            while not self._settled:
                now = time.monotonic()
                if now >= deadline:
                    raise RunError(
                        f"{self._late_text} for {SILENCE_S / 60:.0f} minutes: the job seems to hang",
                        remedy="run the job alone:  bareboat run …",
                        code=124,
                    )
                ended = False
                expiry = min((each.since_s + HELLO_S for each in self._strangers.values()), default=deadline)
                pause_s = SILENCE_S if self._ranks else watch()
                for key, _ in self._selector.select(min(deadline - now, expiry - now, pause_s)):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj == pidfd:
                        ended = True
                    else:
                        assert isinstance(key.fileobj, socket.socket)
                        if self._receive(key.fileobj):
                            deadline = time.monotonic() + SILENCE_S
                oldest_s = time.monotonic() - HELLO_S
                for late in [own for own, each in self._strangers.items() if each.since_s <= oldest_s]:
                    self._close(late)
                if ended and not self._settled:
                    return False
            return True
        finally:
            self._selector.unregister(pidfd)

    def _accept(self) -> None:
        if len(self._strangers) >= MOST_STRANGERS:
            self._close(next(iter(self._strangers)))
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                return  # it is gone again
            if not self._strangers:
                raise RunError(
                    f"the gate cannot accept a rank's connection: {error.strerror}", remedy="ulimit -n 4096"
                ) from None
            self._close(next(iter(self._strangers)))
            return
        connection.setblocking(True)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._strangers[connection] = _Stranger(time.monotonic())
        self._selector.register(connection, selectors.EVENT_READ)

    def _receive(self, connection: socket.socket) -> bool:
        """Read what a connection sent; whether it is a rank's."""
        rank = next((r for r in self._ranks.values() if r.connection is connection), None)
        stranger = self._strangers.get(connection)
        sender = rank or stranger
        if sender is None:
            return False  # closed since the selector returned it
        try:
            data = connection.recv(4096, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        *lines, rest = (sender.buffer + data).split(b"\n")
        for line in lines:
            if rank is None:
                rank = self._admit(connection, line)
                if rank is None:
                    return False
            elif not rank.read(line):
                data = b""
        if not data or len(rest) > _LONGEST_LINE:
            self._close(connection, rank)
        elif rank is not None:
            rank.buffer = rest
        elif stranger is not None:
            stranger.buffer = rest
        return rank is not None

    def _admit(self, connection: socket.socket, line: bytes) -> _Rank | None:
        """Admit a rank that knows the token, which then runs its first step; disconnect others.

        Raises RunError for a second process of one rank."""
        found = self._hello(line)
        if found is None:
            self._close(connection)
            return None
        number, world_size = found
        earlier = self._ranks.get(number)
        if earlier is not None and not _has_closed(earlier.connection):
            raise RunError(
                f"two processes of the job connected as rank {number} of {world_size}",
                remedy="create one meter in each rank, and none in its child processes",
            )
        del self._strangers[connection]
        rank = self._ranks[number] = _Rank(connection, number)
        self.world_size = world_size
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"go 1\n")
        return rank

    def _hello(self, line: bytes) -> tuple[int, int] | None:
        """Rank and world size of a greeting with the token; None for anything else."""
        words = line.split()
        if len(words) != 4 or words[0] != b"hello" or not secrets.compare_digest(words[1], self._token):
            return None
        number, world_size = _number(words[2]), _number(words[3])
        if number is None or world_size is None or not number < world_size <= _MOST_RANKS:
            return None
        return number, world_size

    def _close(self, connection: socket.socket, rank: _Rank | None = None) -> None:
        if rank is not None and not rank.done:
            # The rank died or disconnected. Its job script will exit with the reason.
            rank.waiting_at = None
        self._strangers.pop(connection, None)
        self._selector.unregister(connection)
        connection.close()


def _number(word: bytes) -> int | None:
    return int(word) if word.isdigit() and len(word) <= len(str(FOREVER)) else None


def _has_closed(connection: socket.socket) -> bool:
    """Whether the other end of a connection is closed."""
    try:
        return not connection.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
