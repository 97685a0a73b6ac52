"""The store at which Horovod's ranks meet over Gloo."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

from bareboat.mpi import rendezvous

SECRET = "0123456789abcdef" * 4
CLIENT = """
import os, time, urllib.error, urllib.request
rank = int(os.environ["HOROVOD_RANK"])
# As in Horovod's http_store.h.
store = "http://{}:{}/global_/".format(
    os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
def ask(method, key, data=None):
    return urllib.request.urlopen(urllib.request.Request(store + key, data=data, method=method)).read()
ask("PUT", str(rank), b"\\0here %d" % rank)
for other in (0, 1):
    while True:
        try:
            print(ask("GET", str(other)))
            break
        except urllib.error.HTTPError as error:
            assert error.code == 404
            time.sleep(0.05)
if rank == 1:
    time.sleep(1)  # rank 0 is gone by then
ask("DELETE", str(rank))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(rank: int, port: int, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, rendezvous.__file__, *command],
        env={
            **os.environ,
            "BAREBOAT_SECRET": SECRET,
            "HOROVOD_RANK": str(rank),
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_ranks_meet_and_the_store_ends_after_them() -> None:
    port = free_port()
    second = start(1, port, sys.executable, "-c", CLIENT)  # waits for the first
    time.sleep(0.5)
    first = start(0, port, sys.executable, "-c", CLIENT)
    for process in (first, second):
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        assert out == "b'\\x00here 0'\nb'\\x00here 1'\n"
    deadline = time.monotonic() + 20
    while listens(port) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not listens(port)


def test_the_rank_is_the_command_itself_and_has_no_child_that_it_does_not_know() -> None:
    text = (
        "import os, sys\ntry:\n    os.waitpid(-1, 0)\n"
        "except ChildProcessError:\n    print('no child')\nsys.exit(9)"
    )
    process = start(0, free_port(), sys.executable, "-c", text)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (9, "no child\n")


def test_ranks_meet_elsewhere_where_the_port_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = int(taken.getsockname()[1])
        first = start(0, port, sys.executable, "-c", CLIENT)
        second = start(1, port, sys.executable, "-c", CLIENT)
        for process in (first, second):
            out, err = process.communicate(timeout=60)
            assert (process.returncode, err) == (0, "")
            assert "here 1" in out


def test_a_command_that_is_not_there() -> None:
    _, err = (process := start(0, free_port(), "/nowhere/train")).communicate(timeout=60)
    assert process.returncode == 127
    assert "bareboat: /nowhere/train: No such file or directory" in err
