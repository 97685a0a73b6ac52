"""Where the ranks of Horovod over Gloo meet, without MPI and without ssh. A program: one file without
dependencies, for the Python 3.7 or newer of any image.

    python rendezvous.py COMMAND…      with HOROVOD_RANK and HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT set

Rank 0 starts a small key-value store beside itself, which speaks what `horovodrun` speaks
(horovod/runner/http/http_server.py); every rank waits until it is there and then becomes the command. The
store ends by itself, a little after rank 0.
"""

import contextlib
import http.server
import os
import socket
import sys
import threading
import time

#: Seconds until rank 0 is there; its container may first have to be unpacked.
_PATIENCE_S = 300.0
#: After rank 0's end other ranks still take leave of the store.
_QUIET_S = 3.0

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def main(command: "list[str]") -> int:
    address = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"]
    port = int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    if os.environ["HOROVOD_RANK"] == "0":
        try:
            store = _Store((address, port), _Request)
        except OSError as error:
            sys.stderr.write(f"fairlead: rank 0 cannot listen on {address}:{port}: {error}\n")
            return 3
        _detach(store)
    elif not _is_there(address, port):
        sys.stderr.write(f"fairlead: rank 0 ({address}:{port}) does not answer\n")
        return 3
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"fairlead: {command[0]}: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


def _is_there(address: str, port: int) -> bool:
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            socket.create_connection((address, port), timeout=5).close()
            return True
        time.sleep(0.1)
    return False


class _Store(http.server.ThreadingHTTPServer):
    """Scope and key -> value. What ranks delete at their end may stay: the store ends soon after."""

    daemon_threads = True

    def __init__(self, *arguments: "Any") -> None:
        super().__init__(*arguments)
        self.values: dict[str, bytes] = {}
        self.asked_at = time.monotonic()


class _Request(http.server.BaseHTTPRequestHandler):
    server: "_Store"
    timeout = 10

    def do_GET(self) -> None:
        self._answer(self.server.values.get(self.path))

    def do_PUT(self) -> None:
        self.server.values[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"")

    def do_DELETE(self) -> None:
        self._answer(b"")

    def _answer(self, value: "bytes | None") -> None:
        self.server.asked_at = time.monotonic()
        self.send_response(404 if value is None else 200)
        self.send_header("Content-Length", str(len(value or b"")))
        self.end_headers()
        self.wfile.write(value or b"")

    def log_message(self, *words: "Any") -> None:
        pass


def _detach(store: _Store) -> None:
    """Go on in a process that is no child of the command, which may wait for all of its children."""
    rank = os.getpid()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        store.socket.close()
        return
    if os.fork():
        os._exit(0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # nobody who reads the rank's output waits for us
        os.dup2(nothing, stream)
    threading.Thread(target=store.serve_forever, daemon=True).start()
    while os.path.exists(f"/proc/{rank}") or time.monotonic() - store.asked_at < _QUIET_S:
        time.sleep(0.25)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
