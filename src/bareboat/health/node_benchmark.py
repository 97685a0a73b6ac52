"""The program on the nodes of a job before its ranks start: it measures them, and judges what they give the
job. With `rules` one text without dependencies, for the Python 3.6 or newer of any node.

    python -c … measure CONTROL NODE NODES MASTER PORT INTERFACE [PATH]…
    python -c … judge CONTROL

`measure` runs on all nodes at once, and writes CONTROL/measured.HOST. NODE: from 0. The nodes meet at the
first one; each sends to the next in its turn. A digest of the run's secret admits them. PATH: what the job
reads. `judge` prints a line for each mismatch.
"""

import hashlib
import hmac
import json
import mmap
import os
import socket
import struct
import sys
import threading
import time

from bareboat.health.rules import find_marks, read_nodes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    Address = tuple[str, int]

#: Until other nodes are called absent.
_TIMEOUT_S = 30.0
_BLOCK = bytes(1 << 20)
#: What a measurement may take.
_WORK_S, _LINK_S, _SEARCH_S, _READ_S = 0.6, 0.15, 0.1, 0.15
#: A link that seems slow gets more time: on a busy node it seems so.
_SLOW_BYTES_S, _SLOW_S = 3e8, 1.0
_PINGS = 30
_MOST_BURST = 1 << 24
_MOST_FILE_SYSTEMS = 4


def main(arguments: "Sequence[str]") -> int:
    control, *rest = arguments[1:]
    if arguments[0] == "judge":
        sys.stdout.writelines(mark + "\n" for mark in judge(control))
        return 0
    node, nodes, master, port, interface, *paths = rest
    host = os.uname().nodename
    found: dict[str, Any] = {"node": host, "reads_bytes_s": reads(paths), **work()}
    if int(nodes) > 1:
        with open(os.path.join(control, "secret"), "rb") as stream:
            key = hashlib.sha256(stream.read().strip() + b" health").digest()
        try:
            found.update(links(key, int(node), int(nodes), (master, int(port))))
            found["interface_bytes_s"] = nominal(interface)
        except (OSError, ValueError) as error:
            sys.stderr.write(f"links not measured on {host}: {error}\n")
    with open(os.path.join(control, "measured." + host), "w") as stream:
        stream.write(json.dumps(found) + "\n")
    return 0


def judge(control: str) -> "list[str]":
    """The mismatches, from the files of the job script and of `measure`."""
    texts: dict[str, tuple[str, float]] = {}
    for name in sorted(os.listdir(control)):
        if name == "hosts" or name.startswith(("limits.", "measured.")):
            path = os.path.join(control, name)
            with open(path, errors="replace") as stream:
                texts[name] = stream.read(1 << 20), os.stat(path).st_mtime
    lines = [text for name, text in texts.items() if name.startswith("limits.")]
    measured = {name[9:]: text for name, (text, _) in texts.items() if name.startswith("measured.")}
    hosts = texts.get("hosts", ("", 0.0))[0].split()
    return find_marks(read_nodes(lines, hosts), measured)


def work() -> "dict[str, float]":
    """What a mebibyte of the same work takes: of the processor, at least; and by the clock, on average."""
    cpu_s: list[float] = []
    began_s = time.monotonic()
    while not cpu_s or time.monotonic() - began_s < _WORK_S:
        began_cpu_s = time.process_time()
        hashlib.blake2b(_BLOCK).digest()  # no instruction that only some processors have, as SHA-256
        cpu_s.append(time.process_time() - began_cpu_s)
    return {"work_cpu_s": max(min(cpu_s), 1e-6), "work_s": (time.monotonic() - began_s) / len(cpu_s)}


# --------------------------------------------------------------------------------------------------
# File systems.


def reads(paths: "Sequence[str]") -> "dict[str, float]":
    """Bytes per second from the file system of each path, past the page cache where it allows that. Paths
    without a file of a mebibyte are left out."""
    found: dict[str, float] = {}
    seen: set[int] = set()
    for path in paths:
        try:
            device = os.stat(path).st_dev
            if device in seen or len(seen) == _MOST_FILE_SYSTEMS:
                continue
            file = next(_large_files(path), None)
            if file is not None:
                seen.add(device)
                found[path] = _read(file)
        except OSError:
            continue
    return found


def _large_files(path: str) -> "Iterator[str]":
    until = time.monotonic() + _SEARCH_S
    names = iter([(os.path.dirname(path), [], [path])]) if os.path.isfile(path) else os.walk(path)
    for folder, _, files in names:
        for each in files:
            file = os.path.join(folder, each)
            if os.path.isfile(file) and not os.path.islink(file) and os.path.getsize(file) >= len(_BLOCK):
                yield file
        if time.monotonic() > until:
            return


def _read(file: str) -> float:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    except OSError:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    best, until = 0.0, time.monotonic() + _READ_S
    with os.fdopen(descriptor, "rb", 0) as stream, mmap.mmap(-1, len(_BLOCK)) as block:
        while time.monotonic() < until:
            began_s = time.monotonic()
            size = stream.readinto(block) or 0
            best = max(best, size / max(time.monotonic() - began_s, 1e-9))
            if size < len(_BLOCK):
                break
    return best


# --------------------------------------------------------------------------------------------------
# Links between nodes.


def links(key: bytes, node: int, nodes: int, meeting: "Address") -> "dict[str, Any]":
    """How fast this node sends to the next one."""
    listener = _listener(("", 0))
    threading.Thread(target=_receive, args=(listener, key), daemon=True).start()
    own = {"node": node, "host": os.uname().nodename, "port": listener.getsockname()[1]}
    turns = range(3 if nodes % 2 and nodes > 1 else 2)
    if node:
        return _follow(key, own, turns, nodes, meeting)
    return _lead(key, own, turns, nodes, meeting)


def _turn(node: int, nodes: int) -> int:
    """When it sends: no node sends and receives at once."""
    return 2 if nodes % 2 and node == nodes - 1 else node % 2


def _lead(
    key: bytes, own: "dict[str, Any]", turns: "Sequence[int]", nodes: int, meeting: "Address"
) -> "dict[str, Any]":
    peers: dict[int, dict[str, Any]] = {0: dict(own, address=meeting[0])}
    links: dict[int, socket.socket] = {}
    listener = _listener(meeting)
    until = time.monotonic() + _TIMEOUT_S
    while len(links) < nodes - 1:
        listener.settimeout(max(until - time.monotonic(), 0.01))
        link, address = listener.accept()
        # Closed without a wait: the job needs the port.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            _admit(link, key)
            told = json.loads(_message(link).decode())
            peers[told["node"]], links[told["node"]] = dict(told, address=address[0]), link
        except (OSError, ValueError, KeyError, TypeError):
            link.close()
    listener.close()
    for number, link in links.items():
        _send(link, json.dumps(peers[(number + 1) % nodes]).encode())
    found: dict[str, Any] = {}
    for turn in turns:
        for link in links.values():
            _send(link, b"")
        if turn == _turn(0, nodes):
            found = _measured(peers[1], key)
        for link in links.values():
            _message(link)
    for link in links.values():
        link.close()
    return found


def _follow(
    key: bytes, own: "dict[str, Any]", turns: "Sequence[int]", nodes: int, meeting: "Address"
) -> "dict[str, Any]":
    found: dict[str, Any] = {}
    with _connected(meeting, key) as link:
        _send(link, json.dumps(own).encode())
        peer = json.loads(_message(link).decode())
        for turn in turns:
            _message(link)
            if turn == _turn(own["node"], nodes):
                found = _measured(peer, key)
            _send(link, b"")
    return found


def _measured(peer: "dict[str, Any]", key: bytes) -> "dict[str, Any]":
    """The best of several: a loaded node is not a slow link."""
    fastest, latency_s, size = 0.0, _TIMEOUT_S, 1 << 16
    try:
        with _connected((peer["address"], peer["port"]), key) as link:
            for _ in range(_PINGS):
                latency_s = min(latency_s, _round_trip(link, b""))
            began_s = time.monotonic()
            while time.monotonic() - began_s < (_SLOW_S if fastest < _SLOW_BYTES_S else _LINK_S):
                took_s = _round_trip(link, bytes(size))
                fastest = max(fastest, size / took_s)
                size = min(size * 4, _MOST_BURST) if took_s < _LINK_S / 50 else size
    except OSError as error:
        sys.stderr.write(f"no connection to {peer['host']}: {error}\n")
        return {}
    return {"link_to": peer["host"], "link_bytes_s": fastest, "link_latency_s": latency_s}


def _round_trip(link: "socket.socket", data: bytes) -> float:
    began_s = time.monotonic()
    _send(link, data)
    _exactly(link, 1)
    return max(time.monotonic() - began_s, 1e-9)


def _receive(listener: "socket.socket", key: bytes) -> None:
    while True:
        link, _ = listener.accept()
        try:
            with link:
                _admit(link, key)
                while True:
                    _message(link)
                    link.sendall(b".")
        except OSError:
            continue  # it has sent all, or it may not


def _listener(address: "Address") -> "socket.socket":
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen(128)
    return listener


def _connected(address: "Address", key: bytes) -> "socket.socket":
    until = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            link = socket.create_connection(address, _TIMEOUT_S)
            break
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.sendall(key)
    return link


def _admit(link: "socket.socket", key: bytes) -> None:
    link.settimeout(_TIMEOUT_S / 5)
    if not hmac.compare_digest(_exactly(link, len(key)), key):
        raise ConnectionError("not of this run")
    link.settimeout(_TIMEOUT_S)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _send(link: "socket.socket", data: bytes) -> None:
    link.sendall(struct.pack("!Q", len(data)) + data[:65536])
    if len(data) > 65536:
        link.sendall(memoryview(data)[65536:])


def _message(link: "socket.socket") -> bytes:
    (size,) = struct.unpack("!Q", _exactly(link, 8))
    if size > _MOST_BURST:
        raise ConnectionError("too long")
    return _exactly(link, size)


def _exactly(link: "socket.socket", size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = link.recv_into(view)
        if not count:
            raise ConnectionError("the connection was closed")
        view = view[count:]
    return bytes(data)


def nominal(interface: str) -> "float | None":
    """Bytes per second of a network interface, as its driver has it; None where it is not known."""
    try:
        with open(f"/sys/class/net/{interface}/speed") as stream:
            return max(float(stream.read()), 0.0) * 1e6 / 8 or None
    except (OSError, ValueError):
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
