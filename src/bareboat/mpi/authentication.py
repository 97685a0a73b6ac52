"""Mutual authentication of a run's nodes by its secret, and the connections on which both sides have passed
it.

Anyone on the network can connect to the first node, or listen in its place. So each side proves to the other
that it knows the run's secret, which is never sent, before either reads more than a few bytes:

    other node -> first    "FLR2", a nonce of 32 bytes
    first -> other         a nonce of 32 bytes, HMAC-SHA256(secret; "lead", place, both nonces)
    other -> first         HMAC-SHA256(secret; "follow", place, both nonces)

The place is ADDRESS:PORT. After this a message is its length in 4 bytes, its HMAC by a key of this connection
(with the direction and the message's number), and a JSON object. Nothing is encrypted.

Part of programs that run as text in images (bareboat.mpi.text): only the standard library of Python 3.6.
"""

import contextlib
import hashlib
import hmac
import json
import os
import selectors
import socket
import struct
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Contains the secret, in hexadecimal digits.
SECRET = "BAREBOAT_SECRET"
#: Time limit of a connection's authentication.
PROOF_S = 10.0
#: Maximum number of connections that are not yet authenticated.
MOST_CALLERS = 256
#: A message is a command with its environment, a few kB.
_MOST_BYTES = 2**22
#: If a port is in use, the next is tried; only processes with the secret know which.
_MORE_PORTS = 7
_MAGIC = b"FLR2"
_NONCE, _MAC = 32, 32


class Line:
    """A connection for JSON objects. With a key each is signed, with its direction and number."""

    def __init__(
        self, connection: socket.socket, key: bytes = b"", ours: bytes = b"", theirs: bytes = b""
    ) -> None:
        self.connection = connection
        self._key = key
        self._ours = ours
        self._theirs = theirs
        self._sent = 0
        self._received = 0
        self._lock = threading.Lock()

    def send(self, **message: "Any") -> None:
        data = json.dumps(message).encode()
        with self._lock:
            signature = self._sign(self._ours, self._sent, data)
            self._sent += 1
            self.connection.sendall(struct.pack(">I", len(data)) + signature + data)

    def receive(self) -> "dict[str, Any] | None":
        """The next message; None at the end of the connection, and for anything invalid."""
        try:
            (size,) = struct.unpack(">I", exactly(self.connection, 4))
            if size > _MOST_BYTES:
                return None
            signature = exactly(self.connection, _MAC if self._key else 0)
            data = exactly(self.connection, size)
            if not hmac.compare_digest(signature, self._sign(self._theirs, self._received, data)):
                return None
            self._received += 1
            found = json.loads(data.decode())
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    def _sign(self, direction: bytes, number: int, data: bytes) -> bytes:
        if not self._key:
            return b""
        return hmac.new(self._key, direction + struct.pack(">Q", number) + data, hashlib.sha256).digest()


def exactly(connection: socket.socket, size: int, end: "float | None" = None) -> bytes:
    """Read `size` bytes until `end` on the monotonic clock. Raises OSError."""
    found = bytearray()
    while len(found) < size:
        if end is not None:
            connection.settimeout(max(end - time.monotonic(), 0.001))
        data = connection.recv(min(size - len(found), 65536))
        if not data:
            raise OSError("the connection ended")
        found += data
    return bytes(found)


def _proof(secret: bytes, what: bytes, place: str, follower: bytes, lead: bytes) -> bytes:
    return hmac.new(
        secret, b"\0".join((b"relay", what, place.encode(), follower + lead)), hashlib.sha256
    ).digest()


def read_secret() -> bytes:
    try:
        found = bytes.fromhex(os.environ.get(SECRET, ""))
    except ValueError:
        found = b""
    if len(found) < 16:
        raise SystemExit("bareboat: the run's secret is missing: " + SECRET)
    return found


def ports(secret: bytes, first: int) -> "list[int]":
    """The ports on which the first node may listen. A process that occupies the first cannot know the
    others."""
    found = hmac.new(secret, b"ports", hashlib.sha256).digest()
    more = struct.unpack(">16H", found)[:_MORE_PORTS]
    return [first, *(20000 + number % 12000 for number in more)]


def join(secret: bytes, master: str, port: int, patience_s: float, hello: "dict[str, Any]") -> Line:
    """Connect to the first node with mutual authentication; `hello` is the first message."""
    end = time.monotonic() + patience_s
    first, *others = ports(secret, port)
    turn = 0
    while True:
        reason, taken = "", False
        # The other ports only where another process has the first: do not disturb other listeners.
        for each in [first] if turn % 20 else [first, *others]:
            try:
                return _call(secret, master, each, hello)
            except _Stranger:
                taken = True
            except OSError as error:
                reason = str(error)
        if time.monotonic() > end:
            where = f"{master}:{first}"
            if taken:
                raise SystemExit(f"bareboat: who listens on the first node ({where}) is not of this run")
            raise SystemExit(f"bareboat: the first node ({where}) does not answer: {reason}")
        turn = 0 if taken else turn + 1
        time.sleep(0.1)


class _Stranger(Exception):
    """The process that answered does not know the secret."""


def _call(secret: bytes, master: str, port: int, hello: "dict[str, Any]") -> Line:
    connection = socket.create_connection((master, port), timeout=PROOF_S)
    try:
        end = time.monotonic() + PROOF_S
        place = f"{master}:{port}"
        ours = os.urandom(_NONCE)
        connection.sendall(_MAGIC + ours)
        try:
            answer = exactly(connection, _NONCE + _MAC, end)
        except OSError:
            raise _Stranger from None
        theirs, proof = answer[:_NONCE], answer[_NONCE:]
        if not hmac.compare_digest(proof, _proof(secret, b"lead", place, ours, theirs)):
            raise _Stranger
        connection.sendall(_proof(secret, b"follow", place, ours, theirs))
        line = Line(connection, _proof(secret, b"key", place, ours, theirs), b"follow", b"lead")
        line.send(**hello)
        if line.receive() is None:  # dropped because of too many connections
            raise OSError("the connection ended")
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return line
    except BaseException:
        connection.close()
        raise


def of_the_most(callers: "Any") -> "Any":
    """The connection to drop when too many are not authenticated: the oldest from the address with the most
    connections. `callers`: oldest first."""
    counts: dict[str, int] = {}
    for caller in callers:
        counts[caller.address] = counts.get(caller.address, 0) + 1
    most = max(counts, key=lambda address: counts[address])
    return next(caller for caller in callers if caller.address == most)


class _Caller:
    """A connection that is not yet authenticated."""

    def __init__(self, connection: socket.socket, address: str) -> None:
        self.connection = connection
        self.address = address
        self.end = time.monotonic() + PROOF_S
        self.buffer = b""
        self.theirs = b""
        self.ours = b""

    @property
    def missing(self) -> int:
        return (_MAC if self.ours else len(_MAGIC) + _NONCE) - len(self.buffer)


class Door:
    """Accepts connections with the secret in any order; others block nobody."""

    def __init__(self, secret: bytes, master: str, port: int) -> None:
        self._secret = secret
        self._listener, found = listen(secret, master, port)
        self._place = f"{master}:{found}"
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._callers: dict[int, _Caller] = {}  # by descriptor, the oldest first

    def next(self, end: float) -> "Line | None":
        """The next authenticated connection; None after `end`."""
        while True:
            now = time.monotonic()
            if now >= end:
                return None
            for caller in [each for each in self._callers.values() if each.end <= now]:
                self._drop(caller)
            first = min([end, *(caller.end for caller in self._callers.values())])
            ready = [key.data for key, _ in self._selector.select(max(first - now, 0.001))]
            # Existing connections before new ones.
            for caller in [each for each in ready if each is not None]:
                line = self._hear(caller) if caller.connection.fileno() >= 0 else None
                if line is not None:
                    return line
            if None in ready:
                line = self._accept()
                if line is not None:
                    return line

    def close(self) -> None:
        for caller in list(self._callers.values()):
            self._drop(caller)
        self._selector.close()
        self._listener.close()

    def _accept(self) -> "Line | None":
        try:
            connection, address = self._listener.accept()
        except OSError:  # no descriptors are left, or the caller has disconnected
            if self._callers:
                self._drop(of_the_most(self._callers.values()))
            return None
        connection.setblocking(False)
        caller = _Caller(connection, str(address[0]))
        self._callers[connection.fileno()] = caller
        self._selector.register(connection, selectors.EVENT_READ, caller)
        if len(self._callers) > MOST_CALLERS:
            self._drop(of_the_most(self._callers.values()))
        return self._hear(caller) if connection.fileno() >= 0 else None

    def _drop(self, caller: _Caller) -> None:
        self._let_go(caller)
        caller.connection.close()

    def _let_go(self, caller: _Caller) -> None:
        del self._callers[caller.connection.fileno()]
        self._selector.unregister(caller.connection)

    def _hear(self, caller: _Caller) -> "Line | None":
        """Read at most the next message of the authentication."""
        try:
            data = caller.connection.recv(caller.missing)
            if not data:
                raise OSError("the connection ended")
            caller.buffer += data
            if caller.missing:
                return None
            if caller.ours:
                return self._check(caller)
            if not caller.buffer.startswith(_MAGIC):
                raise OSError("no node")
            caller.theirs, caller.buffer = caller.buffer[len(_MAGIC) :], b""
            caller.ours = os.urandom(_NONCE)
            answer = caller.ours + self._sign(caller, b"lead")
            if caller.connection.send(answer) != len(answer):
                raise OSError("no room")
        except BlockingIOError:
            return None
        except OSError:
            self._drop(caller)
        return None

    def _check(self, caller: _Caller) -> Line:
        if not hmac.compare_digest(caller.buffer, self._sign(caller, b"follow")):
            raise OSError("no proof")
        self._let_go(caller)
        caller.connection.settimeout(PROOF_S)
        caller.connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return Line(caller.connection, self._sign(caller, b"key"), b"lead", b"follow")

    def _sign(self, caller: _Caller, what: bytes) -> bytes:
        return _proof(self._secret, what, self._place, caller.theirs, caller.ours)


def listen(secret: bytes, master: str, port: int) -> "tuple[socket.socket, int]":
    """Listen on the first free port of the run."""
    reason = ""
    for each in ports(secret, port):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((master, each))
            listener.listen(4096)
            return listener, each
        except OSError as error:
            reason = str(error)
            listener.close()
    raise SystemExit(f"bareboat: the first node cannot listen on {master}:{port}: {reason}")
