"""Measure the libraries that could replace our own code: the cost of their import, and of a body over HTTP.

    pip install urllib3 rich jinja2 markupsafe tomli-w installer
    python bench/libraries.py [--starts 15] [--runs 7] [--mebibytes 1024]

A server in a process of its own sends the same body to our client and to urllib3, in random turns, each over
one connection that is kept. CPU time is the client's. A library that is not installed is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

#: Imported modules -> what they would replace.
LIBRARIES = {
    ("http.client",): "what the registry's client uses",
    ("urllib3",): "images/registry: http, connection, proxy, tls",
    ("rich.console", "rich.table", "rich.progress"): "cli/console.py",
    ("jinja2",): "the templates of bareboat_base/page.py",
    ("markupsafe",): "html.escape",
    ("tomli_w",): "TOML that init writes",
    ("scipy.special",): "what study/statistics.py uses",
    ("scipy.stats",): "trim_mean, ttest_1samp, nct",
    ("installer",): "images/oci/wheels.py",
}
_IMPORT = """
import sys, time
before, began = len(sys.modules), time.perf_counter()
import {modules}
print(time.perf_counter() - began, len(sys.modules) - before)
"""
_SERVER = """
import socket, threading
chunk = bytes(1 << 20)

def answer(connection):
    with connection:
        while connection.recv(65536):
            connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: {size}\\r\\n\\r\\n")
            for _ in range({mebibytes}):
                connection.sendall(chunk)

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
"""

Client = Callable[[memoryview], int]
"""Fetches the body once through the buffer, and returns its size in bytes."""


def import_cost(modules: tuple[str, ...]) -> tuple[float, int]:
    """Seconds that the imports take in a new interpreter, and how many modules they load."""
    code = _IMPORT.format(modules=", ".join(modules))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, count = done.stdout.split()
    return float(seconds), int(count)


def imports(starts: int) -> None:
    present = {names: what for names, what in LIBRARIES.items() if importlib.util.find_spec(names[0])}
    costs: dict[tuple[str, ...], list[tuple[float, int]]] = {names: [] for names in present}
    for _ in range(starts):
        for names in random.sample(sorted(present), len(present)):
            costs[names].append(import_cost(names))
    print(f"{'import':<44} {'ms':>6} {'modules':>8}  in place of")
    for names, found in costs.items():
        took_ms = statistics.median(seconds for seconds, _ in found) * 1e3
        print(f"{', '.join(names):<44} {took_ms:6.1f} {found[0][1]:8}  {present[names]}")


def ours(port: int) -> Client:
    from bareboat_images.registry.http import Transport
    from bareboat_images.registry.location import Url
    from bareboat_images.registry.options import Options

    transport = Transport(Options(environment={}, plain_http=True))
    url = Url(scheme="http", host="127.0.0.1", port=port, target="/")

    def fetch(view: memoryview) -> int:
        total = 0
        with transport.send("GET", url, {}) as response:
            while count := response.readinto(view):
                total += count
        return total

    return fetch


def theirs(port: int) -> Client:
    import urllib3

    pool = urllib3.PoolManager()

    def fetch(view: memoryview) -> int:
        total = 0
        response = pool.request("GET", f"http://127.0.0.1:{port}/", preload_content=False)
        while count := response.readinto(view):
            total += count
        response.release_conn()
        return total

    return fetch


def bodies(runs: int, mebibytes: int) -> None:
    code = _SERVER.format(size=mebibytes << 20, mebibytes=mebibytes)
    server = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        port = int(server.stdout.readline())
        clients = {"ours": ours(port), "urllib3": theirs(port)}
        buffer = memoryview(bytearray(1 << 20))
        wall: dict[str, list[float]] = {name: [] for name in clients}
        cpu: dict[str, list[float]] = {name: [] for name in clients}
        for _ in range(runs):
            for name in random.sample(sorted(clients), len(clients)):
                began, worked = time.perf_counter(), time.process_time()
                got = clients[name](buffer)
                wall[name].append(time.perf_counter() - began)
                cpu[name].append(time.process_time() - worked)
                if got != mebibytes << 20:
                    raise SystemExit(f"{name} read {got:,} bytes of {mebibytes << 20:,}")
    finally:
        server.kill()
        server.wait()
    print(f"\n{f'{mebibytes} MiB over HTTP':<44} {'s':>6} {'CPU s':>8}")
    for name in clients:
        print(f"{name:<44} {statistics.median(wall[name]):6.2f} {statistics.median(cpu[name]):8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--starts", type=int, default=15, help="imports of each library (15)")
    parser.add_argument("--runs", type=int, default=7, help="transfers of each client (7)")
    parser.add_argument("--mebibytes", type=int, default=1024, help="the body (1024)")
    asked = parser.parse_args()
    imports(asked.starts)
    if importlib.util.find_spec("urllib3"):
        bodies(asked.runs, asked.mebibytes)


if __name__ == "__main__":
    main()
