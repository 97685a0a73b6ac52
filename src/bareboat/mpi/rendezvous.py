"""Rendezvous of Horovod's ranks over Gloo, without MPI and without ssh. A program: one text without
dependencies, for the Python 3.7 or newer of any image; the text of bareboat.mpi.authentication precedes this
one.

    BAREBOAT_SECRET=HEX python rendezvous.py COMMAND…

with HOROVOD_RANK, HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT set. Rank 0 starts a small key-value store beside
itself, which supports the protocol of `horovodrun` (horovod/runner/http/http_server.py); every rank waits for
the store and then executes the command.

Anyone on the network can connect to the store, or listen in its place, and Horovod's client cannot
authenticate. But it copies the store's address into its URLs unchanged (horovod/common/gloo/http_store.h): so
the ranks get ADDRESS:PORT/TOKEN/ as the address, and the store answers no other requests. The token is
derived from the run's secret. Before a rank executes the command, the store must prove that it knows the
secret:

    GET /bareboat/NONCE    the answer is HMAC-SHA256(secret; "store", place, nonce), in hexadecimal digits

The store ends by itself, a little after rank 0.
"""

import hashlib
import hmac
import os
import re
import resource
import selectors
import socket
import sys
import time

from bareboat.mpi.authentication import MOST_CALLERS, PROOF_S, SECRET, listen, of_the_most, ports, read_secret

#: Seconds to wait for rank 0; its container may first have to be unpacked.
_PATIENCE_S = 300.0
#: After rank 0's end other ranks still send requests: seconds to wait after the last of them, and in total.
_QUIET_S, _LONGEST_QUIET_S = 3.0, 30.0
#: Horovod's requests have a few hundred bytes, and its values some 150 bytes for each rank.
_MOST_HEAD = 8192
_MOST_VALUE, _MOST_VALUES, _MOST_TOTAL = 2**24, 2**20, 2**29
#: Seconds for a request with the token.
_REQUEST_S = 60.0
_REQUEST = re.compile(rb"(GET|PUT|DELETE) /([0-9a-z]{1,64})/([!-~]{1,2000}) HTTP/1\.[01]\r?\n")
_LENGTH = re.compile(rb"\ncontent-length:[ \t]*([0-9]{1,9})[ \t]*\r?\n", re.IGNORECASE)
_HEX = re.compile(rb"[0-9a-f]{64}")


def main(command: "list[str]") -> int:
    address = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"]
    first = int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    secret = read_secret()
    port: int | None
    if os.environ["HOROVOD_RANK"] == "0":
        listener, port = listen(secret, address, first)
        _detach(_Store(listener, secret, f"{address}:{port}"))
    else:
        port = _find(secret, address, first)
        if port is None:
            return 3
    os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = f"{address}:{port}/{_token(secret)}/"
    os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"] = str(port)
    del os.environ[SECRET]
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"bareboat: {command[0]}: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


def _token(secret: bytes) -> str:
    return hmac.new(secret, b"rendezvous\0token", hashlib.sha256).hexdigest()[:32]


def _answer(secret: bytes, place: str, nonce: str) -> str:
    said = "\0".join(("rendezvous", "store", place, nonce))
    return hmac.new(secret, said.encode(), hashlib.sha256).hexdigest()


def _find(secret: bytes, address: str, first: int) -> "int | None":
    """The port of the store, after it has proved that it is this run's; None on timeout."""
    end = time.monotonic() + _PATIENCE_S
    turn, taken = 0, False
    while time.monotonic() < end:
        # The other ports only where another process has the first: do not disturb other listeners.
        taken = False
        for port in ports(secret, first) if turn % 20 == 0 else [first]:
            try:
                if _is_store(secret, address, port):
                    return port
                taken = True
            except OSError:
                pass
        turn = 0 if taken else turn + 1
        time.sleep(0.1)
    said = "who listens there is not of this run" if taken else "does not answer"
    sys.stderr.write(f"bareboat: rank 0 ({address}:{first}): {said}\n")
    return None


def _is_store(secret: bytes, address: str, port: int) -> bool:
    """Whether the listener proves that it is this run's store. Raises OSError where nobody listens."""
    nonce = os.urandom(32).hex()
    expected = _answer(secret, f"{address}:{port}", nonce).encode()
    with socket.create_connection((address, port), timeout=PROOF_S) as connection:
        end = time.monotonic() + PROOF_S
        data = b""
        try:
            connection.sendall(b"GET /bareboat/" + nonce.encode() + b" HTTP/1.0\r\n\r\n")
            while len(data) < 1024 and time.monotonic() < end:
                connection.settimeout(max(end - time.monotonic(), 0.001))
                more = connection.recv(1024)
                if not more:
                    break
                data += more
        except OSError:
            return False
    return hmac.compare_digest(data[-len(expected) :], expected)


class _Call:
    """One connection, with one request."""

    def __init__(self, connection: socket.socket, address: str) -> None:
        self.connection = connection
        self.address = address
        self.end = time.monotonic() + PROOF_S
        self.proved = False
        self.buffer = bytearray()
        #: Size of the request in bytes with its value, once its head is complete.
        self.size = 0
        self.body_at = 0
        self.method = b""
        self.key = b""
        self.answer = b""


class _Store:
    """Scope and key -> value. Deletions at the end are ignored: the store ends soon after."""

    def __init__(self, listener: socket.socket, secret: bytes, place: str) -> None:
        self.listener = listener
        self._secret = secret
        self._place = place
        self._token = _token(secret).encode()
        self._values: dict[bytes, bytes] = {}
        self._total = 0
        self._asked_at = time.monotonic()
        self._calls: dict[int, _Call] = {}  # by descriptor, the oldest first
        listener.setblocking(False)

    def serve(self, rank: int) -> None:
        """Serve requests until a little after the end of process `rank`."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.listener, selectors.EVENT_READ, None)
        alive = _identity(rank)
        ended_at = 0.0
        looked_at = 0.0
        while True:
            ready = [key.data for key, _ in self._selector.select(0.25)]
            # Existing connections before new ones.
            for call in ready:
                if call is not None and call.connection.fileno() >= 0:
                    self._go_on(call)
            if None in ready:
                self._accept()
            now = time.monotonic()
            if now - looked_at < 0.25:
                continue
            looked_at = now
            for call in [each for each in self._calls.values() if each.end <= now]:
                self._drop(call)
            if not ended_at and (alive is None or _identity(rank) != alive):
                ended_at = now
            if ended_at and (
                now - max(self._asked_at, ended_at) > _QUIET_S or now - ended_at > _LONGEST_QUIET_S
            ):
                return

    def _accept(self) -> None:
        try:
            connection, address = self.listener.accept()
        except BlockingIOError:
            return
        except OSError:  # no descriptors are left, or the caller has disconnected
            connection = None
        unproved = [call for call in self._calls.values() if not call.proved]
        if unproved and (connection is None or len(unproved) >= MOST_CALLERS):
            self._drop(of_the_most(unproved))
        if connection is None:
            return
        connection.setblocking(False)
        call = _Call(connection, str(address[0]))
        self._calls[connection.fileno()] = call
        self._selector.register(connection, selectors.EVENT_READ, call)
        self._go_on(call)

    def _drop(self, call: _Call) -> None:
        del self._calls[call.connection.fileno()]
        self._selector.unregister(call.connection)
        call.connection.close()

    def _go_on(self, call: _Call) -> None:
        try:
            if call.answer:
                self._write(call)
                return
            most = (call.size or _MOST_HEAD) - len(call.buffer)
            data = call.connection.recv(min(most, 2**20))
            if not data:
                raise OSError("the connection ended")
            call.buffer += data
            if not call.size:
                self._read_head(call)
            if call.size and len(call.buffer) >= call.size:
                self._do(call)
        except BlockingIOError:
            pass
        except (OSError, ValueError):
            self._drop(call)

    def _read_head(self, call: _Call) -> None:
        """Raises ValueError for anything but a request of this run."""
        if not call.method:
            end = call.buffer.find(b"\n") + 1
            if not end:
                if len(call.buffer) >= _MOST_HEAD:
                    raise ValueError("no request")
                return
            found = _REQUEST.fullmatch(bytes(call.buffer[:end]))
            if found is None:
                raise ValueError("no request")
            call.method, token, call.key = found.groups()
            if token == b"bareboat" and call.method == b"GET" and _HEX.fullmatch(call.key):
                call.size = call.body_at = end
                return
            if not hmac.compare_digest(token, self._token):
                raise ValueError("no request of this run's")
            call.proved = True
            call.end = time.monotonic() + _REQUEST_S
        head = re.search(rb"\r?\n\r?\n", call.buffer)
        if head is None:
            if len(call.buffer) >= _MOST_HEAD:
                raise ValueError("a head without end")
            return
        length = _LENGTH.search(bytes(call.buffer[: head.end()]))
        size = int(length.group(1)) if length is not None and call.method == b"PUT" else 0
        if size > _MOST_VALUE:
            raise ValueError("a value that is too large")
        call.body_at = head.end()
        call.size = call.body_at + size

    def _do(self, call: _Call) -> None:
        if not call.proved:
            self._reply(call, 200, _answer(self._secret, self._place, call.key.decode()).encode())
            return
        self._asked_at = time.monotonic()
        if call.method == b"GET":
            value = self._values.get(call.key)
            self._reply(call, 404 if value is None else 200, value or b"")
        elif call.method == b"PUT":
            value = bytes(call.buffer[call.body_at : call.size])
            total = self._total + len(value) - len(self._values.get(call.key, b""))
            if total > _MOST_TOTAL or len(self._values) >= _MOST_VALUES:
                self._reply(call, 507, b"")
                return
            self._values[call.key] = value
            self._total = total
            self._reply(call, 200, b"")
        else:
            self._reply(call, 200, b"")

    def _reply(self, call: _Call, status: int, value: bytes) -> None:
        names = {200: "OK", 404: "Not Found", 507: "Insufficient Storage"}
        head = f"HTTP/1.0 {status} {names[status]}\r\nContent-Length: {len(value)}\r\n\r\n"
        call.answer = head.encode() + value
        self._write(call)

    def _write(self, call: _Call) -> None:
        try:
            sent = call.connection.send(call.answer)
        except BlockingIOError:
            sent = 0
        call.answer = call.answer[sent:]
        if call.answer:
            self._selector.modify(call.connection, selectors.EVENT_WRITE, call)
        else:
            self._drop(call)


def _identity(process: int) -> "str | None":
    """When the process started; None when it has ended."""
    try:
        with open(f"/proc/{process}/stat", "rb") as stream:
            words = stream.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if words[0] in (b"Z", b"X") else words[19].decode()


def _detach(store: _Store) -> None:
    """Continue in a process that is not a child of the command, which may wait for all of its children."""
    rank = os.getpid()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        store.listener.close()
        return
    if os.fork():
        os._exit(0)
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # do not keep the rank's output open for its readers
            os.dup2(nothing, stream)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        store.serve(rank)
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
