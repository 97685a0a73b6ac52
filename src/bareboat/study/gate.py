"""The gate: lets the ranks of one arm run up to a given step, and no further.

Every rank's meter connects over loopback, identifies itself, and blocks in a socket read whenever it has done
the steps that it was allowed. A blocked rank uses no CPU, so a waiting arm does not disturb the other. The
protocol is in bareboat_meter.py: `hello TOKEN RANK WORLD`, `at STEP`, `bye`; and back, `go STEP`.
"""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
import time
from dataclasses import dataclass, field

from bareboat.errors import RunError

#: Longer than any sane training step; a rank without a message for this long hangs.
SILENCE_S = 1800.0
#: More steps than any training has.
FOREVER = 10**15


@dataclass(slots=True)
class _Rank:
    connection: socket.socket
    number: int
    waiting_at: int | None = None
    done: bool = False
    buffer: bytes = field(default=b"")


class Gate:
    """The gate of one arm. Use as a context manager; after it, no rank may continue."""

    def __init__(self) -> None:
        self._token = secrets.token_hex(16)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._ranks: dict[int, _Rank] = {}
        self._strangers: dict[socket.socket, bytes] = {}
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
        return f"{host}:{port}:{self._token}"

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

    def open_until(self, step: int) -> None:
        """Let every rank run until it has done `step` steps in all."""
        for rank in self._ranks.values():
            if not rank.done:
                rank.waiting_at = None
                # A rank may have died; wait() sees the end of its job.
                with contextlib.suppress(ConnectionError):
                    rank.connection.sendall(f"go {step}\n".encode())

    def wait(self, pidfd: int) -> bool:
        """Block until every rank waits or has finished: True; or until the job script behind `pidfd`
        ends: False. Raises RunError after SILENCE_S seconds without a message from any rank."""
        self._selector.register(pidfd, selectors.EVENT_READ)
        try:
            deadline = time.monotonic() + SILENCE_S
            while not self._settled:
                ready = self._selector.select(deadline - time.monotonic())
                if not ready:
                    raise RunError(
                        f"no message from any rank for {SILENCE_S / 60:.0f} minutes: the job seems to hang",
                        remedy="run the job alone:  bareboat run …",
                        code=124,
                    )
                deadline = time.monotonic() + SILENCE_S
                ended = False
                for key, _ in ready:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj == pidfd:
                        ended = True
                    else:
                        assert isinstance(key.fileobj, socket.socket)
                        self._hear(key.fileobj)
                if ended and not self._settled:
                    return False
            return True
        finally:
            self._selector.unregister(pidfd)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._strangers[connection] = b""
        self._selector.register(connection, selectors.EVENT_READ)

    def _hear(self, connection: socket.socket) -> None:
        rank = next((r for r in self._ranks.values() if r.connection is connection), None)
        try:
            data = connection.recv(4096)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(connection)
            self._strangers.pop(connection, None)
            if rank is not None and not rank.done:
                # The rank died or disconnected. Its job script will exit with the reason.
                rank.waiting_at = None
            return
        *lines, rest = ((rank.buffer if rank else self._strangers[connection]) + data).split(b"\n")
        for line in lines:
            words = line.decode(errors="replace").split()
            if rank is None:
                rank = self._admit(connection, words)
                if rank is None:
                    return
            elif words[:1] == ["at"] and len(words) == 2:
                rank.waiting_at = int(words[1])
            elif words == ["bye"]:
                rank.done = True
        if rank is not None:
            rank.buffer = rest
        elif len(rest) > 200:
            self._refuse(connection)
        else:
            self._strangers[connection] = rest

    def _admit(self, connection: socket.socket, words: list[str]) -> _Rank | None:
        """Admit a rank that knows the token, which then runs its first step; disconnect others."""
        if len(words) != 4 or words[0] != "hello" or not secrets.compare_digest(words[1], self._token):
            self._refuse(connection)
            return None
        self._strangers.pop(connection)
        rank = _Rank(connection, int(words[2]))
        self._ranks[rank.number] = rank
        self.world_size = int(words[3])
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"go 1\n")
        return rank

    def _refuse(self, connection: socket.socket) -> None:
        self._strangers.pop(connection, None)
        self._selector.unregister(connection)
        connection.close()
