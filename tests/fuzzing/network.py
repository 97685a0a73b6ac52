"""Readers of what comes over the network."""

import contextlib
import hashlib
import re
import socket
from pathlib import Path
from unittest import mock

from bareboat_base.errors import BareboatError
from bareboat_images.registry import client
from bareboat_images.registry.options import Options
from bareboat_images.store import Store
from bareboat_images.transfer.options import PullOptions
from bareboat_images.transfer.pull import pull
from fuzzing import Finding, Reader, check_message
from fuzzing.images import LIMITS

# A registry: each connection gets the next answer of the input.

_BETWEEN = b"\n=-=-=\n"
_MOST_CONNECTIONS = 200


class _Socket(socket.socket):
    """One end of a pair, which is asked for what only TCP can."""

    def setsockopt(self, *_: object) -> None:
        pass


def read_answers(data: bytes, scratch: Path) -> None:
    """Pull from a registry that answers so, and ask it for its digest and its tags."""
    answers = iter(data.split(_BETWEEN))
    calls = 0
    said: list[str] = []

    def connect(*_: object, **__: object) -> socket.socket:
        nonlocal calls
        calls += 1
        if calls > _MOST_CONNECTIONS:
            raise Finding(f"more than {_MOST_CONNECTIONS} connections")
        pair, theirs = socket.socketpair()
        ours = _Socket(fileno=pair.detach())
        theirs.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            theirs.sendall(next(answers, b""))
        theirs.shutdown(socket.SHUT_WR)
        _open.append(theirs)
        return ours

    _open: list[socket.socket] = []
    options = Options(
        environment={"PATH": "/nonexistent"},
        plain_http=True,
        attempts=3,
        read_timeout_s=5.0,
        backoff_s=0.0,
        longest_backoff_s=0.0,
        longest_wait_s=0.0,
        say=said.append,
    )
    refused: BareboatError | None = None
    try:
        with (
            mock.patch.object(socket, "create_connection", connect),
            client.open_registry("registry.example", "a/b", "1", options=options) as source,
        ):
            try:
                source.head_digest()
            except BareboatError as error:
                check_message(error)
            try:
                pull(
                    source,
                    Store(scratch / "store"),
                    reference="registry.example/a/b:1",
                    options=PullOptions(machine="x86_64", limits=LIMITS),
                )
            except BareboatError as error:
                refused = error
    finally:
        for each in _open:
            each.close()
    for line in said:
        check_message(BareboatError(line))
    if refused is not None:
        raise refused


def mend_answers(data: bytes) -> bytes:
    """Right lengths and, from one answer to the next, right digests."""
    answers = data.split(_BETWEEN)
    for number in range(len(answers) - 1, -1, -1):
        head, blank, body = answers[number].partition(b"\n\n")
        if not blank or b"hunked" in head:
            continue
        if number + 1 < len(answers):
            following = answers[number + 1].partition(b"\n\n")[2]
            right = b"sha256:" + hashlib.sha256(following).hexdigest().encode()
            body = re.sub(rb'("config":[^}]{0,200}?"digest": ?")[^"]*"', rb"\1" + right + b'"', body, count=1)
        head = re.sub(rb"(?im)^content-length:.*$", b"Content-Length: %d" % len(body), head)
        answers[number] = head + blank + body
    return _BETWEEN.join(answers)


READERS: tuple[Reader, ...] = (
    Reader(
        name="answers",
        read=read_answers,
        mend=mend_answers,
        words=(
            _BETWEEN, b"Retry-After: 99999999999", b"Transfer-Encoding: chunked\n", b"Content-Length: -1",
            b"WWW-Authenticate: Bearer realm=\"", b"HTTP/1.1 100 Continue\n\n", b"Location: //",
            b"HTTP/1.1 401 No\n", b"Docker-Content-Digest: sha256:",
        ),
        modules=("http.client", "email"),
    ),
)  # fmt: skip
