"""Protocols between the nodes of a run: what strangers send before the proof, and peers after it.

Connections are pairs of sockets, and the programs' functions are called in this process.
"""

import contextlib
import hashlib
import hmac
import io
import itertools
import os
import socket
import struct
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from bareboat.mpi import authentication, relay
from fuzzing import Finding, Reader

SECRET = bytes(range(32))
BETWEEN = b"\n=-=-=\n"
#: Between what one connection sends, and what it sends after the answer to it.
LATER = b"\n-.-.-\n"
_MOST_CONNECTIONS = 32
_HOST, _PORT = "10.0.0.1", 20000
_PLACE = f"{_HOST}:{_PORT}"


class _Listener:
    """A listening socket that has these callers."""

    def __init__(self) -> None:
        self._here, self._bell = socket.socketpair()
        self._waiting: list[socket.socket] = []

    def call(self) -> socket.socket:
        """The caller's end of a new connection."""
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self._waiting.append(ours)
        self._bell.send(b"x")
        return theirs

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if not self._waiting:
            raise BlockingIOError
        self._here.recv(1)
        return self._waiting.pop(0), ("10.0.0.2", 1)

    def fileno(self) -> int:
        return self._here.fileno()

    def setblocking(self, _: bool) -> None:
        pass

    def close(self) -> None:
        for each in (self._here, self._bell, *self._waiting):
            each.close()


def _send(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(data)


def _received(connection: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(OSError):
        while data := connection.recv(65536):
            found += data
    return found


@contextlib.contextmanager
def _fixed_numbers() -> Iterator[None]:
    """Nonces that inputs can be made for."""
    with mock.patch("os.urandom", lambda size: b"\x07" * size):
        yield


# The relay.


def read_relay(data: bytes, scratch: Path) -> None:
    """A part of the input is a connection: `stranger`, `peer` or `node` to the first node; `listener` or
    `lead` answers a node that calls it; then a line feed. What a peer and a lead send is in frames with their
    signature: each line is a message. What a node sends after its proof is taken as it is."""
    with _fixed_numbers():
        for part in data.split(BETWEEN)[:_MOST_CONNECTIONS]:
            kind, _, content = part.partition(b"\n")
            if kind in (b"listener", b"lead"):
                _answer_a_node(content, proved=kind == b"lead")
        _call_the_first_node(data, scratch)


def _call_the_first_node(data: bytes, scratch: Path) -> None:
    listener = _Listener()
    with mock.patch.object(authentication, "listen", return_value=(listener, _PORT)):
        made = authentication.Door(SECRET, _HOST, _PORT)
    callers = []
    lead = _lead(scratch)
    found: dict[int, tuple[str, authentication.Line]] = {}
    proved = 0
    try:
        for part in data.split(BETWEEN)[:_MOST_CONNECTIONS]:
            kind, _, content = part.partition(b"\n")
            if kind in (b"listener", b"lead"):
                continue
            theirs = listener.call()
            callers.append(theirs)
            knows = kind in (b"peer", b"node")
            proved += knows
            if not knows:
                for piece in content.split(LATER):
                    _send(theirs, piece)
                    if made.next(time.monotonic() + 0.002) is not None:
                        raise Finding("a connection without the secret is let in")
                if (answer := _received(theirs)) and len(answer) != 64:
                    raise Finding(f"a stranger is sent {len(answer)} bytes")
                continue
            ours = b"\x08" * 32
            _send(theirs, b"FLR2" + ours)
            made.next(time.monotonic() + 0.002)
            answer = _received(theirs)
            if len(answer) != 64:  # on a busy machine the time was over before anything was read
                made.next(time.monotonic() + 0.5)
                answer += _received(theirs)
            if len(answer) != 64:
                raise Finding("a peer gets no answer")
            nonces = (ours, answer[:32])
            _send(theirs, authentication._proof(SECRET, b"follow", _PLACE, *nonces))
            key = authentication._proof(SECRET, b"key", _PLACE, *nonces)
            _send(theirs, _frames(content, key, b"follow") if kind == b"peer" else content)
            with contextlib.suppress(OSError):
                theirs.shutdown(socket.SHUT_WR)
            line = made.next(time.monotonic() + 0.5)
            if line is None:
                raise Finding("a peer is not let in")
            lead._welcome(line, found)
            if line.connection.fileno() >= 0:
                lead._waiting[1] = ("c2", authentication.Line(socket.socketpair()[0]))
                lead._hear("c2", line)
                if not lead._lost:
                    raise Finding("a node that has gone is not missed")
        if len(made._callers) > authentication.MOST_CALLERS:
            raise Finding("more connections without proof than are allowed")
    finally:
        made.close()
        for _, line in found.values():
            line.close()
        for each in callers:
            each.close()


def _lead(scratch: Path) -> relay._Lead:
    lead = relay._Lead.__new__(relay._Lead)
    lead.__dict__.update(
        _options=Namespace(nodes=4), _secret=SECRET, _folder=os.fspath(scratch), _followers={}, _hosts=["c1"],
        _waiting={}, _numbers=itertools.count(1), _lock=contextlib.nullcontext(), _child=None, _lost="",
    )  # fmt: skip
    return lead


class _Child:
    """A program that a node was told to start."""

    pid = 0

    def __init__(self, words: list[str], **_: object) -> None:
        if words[:2] != ["/bin/sh", "-c"] or len(words) != 3 or not isinstance(words[2], str):
            raise Finding(f"a node starts {words!r:.200}")

    def wait(self) -> int:
        return 0

    def poll(self) -> int:
        return 0


class _Thread:
    """Runs at once."""

    def __init__(self, *, target: Callable[..., None], args: tuple[Any, ...], **_: object) -> None:
        self.start = lambda: target(*args)


def _answer_a_node(content: bytes, *, proved: bool) -> None:
    """A node calls the first node, and this answers."""
    ours, theirs = socket.socketpair()
    started = 0

    def start(words: list[str], **more: object) -> _Child:
        nonlocal started
        started += 1
        return _Child(words, **more)

    try:
        if proved:
            nonces = (b"\x07" * 32, b"\x09" * 32)
            key = authentication._proof(SECRET, b"key", _PLACE, *nonces)
            answer = nonces[1] + authentication._proof(SECRET, b"lead", _PLACE, *nonces)
            content = answer + _frames(b'{"welcome": true}\n' + content, key, b"lead")
        _send(theirs, content)
        with contextlib.suppress(OSError):
            theirs.shutdown(socket.SHUT_WR)
        with (
            mock.patch("socket.create_connection", return_value=ours),
            mock.patch("subprocess.Popen", start),
            mock.patch("threading.Thread", _Thread),
            mock.patch("time.sleep", return_value=None),
            mock.patch.object(relay, "read_secret", return_value=SECRET),
            mock.patch.object(relay, "_leave_to_the_ranks"),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.suppress(SystemExit),
        ):
            # One call, which is not made again.
            with mock.patch.object(relay, "_PATIENCE_S", -1.0):
                code = relay._obey(Namespace(node=1, master=_HOST, port=_PORT), SECRET, "/")
            if code not in (0, 1):
                raise Finding(f"a node ends with {code}")
        if started and not proved:
            raise Finding("a node obeys who has not proved the secret")
    finally:
        ours.close()
        theirs.close()


def _frames(content: bytes, key: bytes, direction: bytes) -> bytes:
    made = b""
    for number, data in enumerate(content.split(b"\n")):
        signed = hmac.new(key, direction + struct.pack(">Q", number) + data, hashlib.sha256).digest()
        made += struct.pack(">I", len(data)) + signed + data
    return made


READERS = (
    Reader(
        name="relay",
        read=read_relay,
        words=(
            BETWEEN, LATER, b"stranger\nFLR2", b"peer\n", b"node\n", b"lead\n", b"listener\n", b'{"start": ',
            b'{"ended": 1, "code": ', b'"words": [', b'{"bye": 1}\n', b'{"end": ', b'"host": ', b"null",
            b"1e400",            b'{"welcome": 1}\n', b"true", b'"\\ud800"', b"\\u0000",
        ),
        modules=("bareboat.mpi",),
    ),
)  # fmt: skip
