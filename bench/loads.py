"""What bench/engines.py runs inside the engines. Each load times itself and prints one line of JSON.

    python loads.py stat LIST CALLS | walk FOLDER… | import NAME | cpu | loader FOLDER | allreduce MB

`s`: seconds of the load alone, without the start of the container and of Python. `n`: how much was done,
which must be the same everywhere: an engine that shows other files than the image's would be found out. It
needs the standard library; loader and allreduce use PyTorch, loader only where it is there.
"""

import importlib
import json
import os
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def stat(listed: str, calls: str) -> "tuple[float, int]":
    """os.stat on the files of a list, over and over."""
    with open(listed) as stream:
        paths = stream.read().splitlines()
    rounds, rest = divmod(int(calls), len(paths))
    began = time.perf_counter()
    for _ in range(rounds):
        for path in paths:
            os.stat(path)
    for path in paths[:rest]:
        os.stat(path)
    return time.perf_counter() - began, len(paths)


def walk(*folders: str) -> "tuple[float, int]":
    """As find(1) does: every folder read, every entry looked at by its name in there, so that it does not
    count how deep the top lies."""
    seen = 0
    began = time.perf_counter()
    for folder in folders:
        for _, _, files, place in os.fwalk(folder):
            for name in files:
                os.stat(name, dir_fd=place, follow_symlinks=False)
            seen += len(files)
    return time.perf_counter() - began, seen


def import_(name: str) -> "tuple[float, int]":
    began = time.perf_counter()
    importlib.import_module(name)
    return time.perf_counter() - began, 1


def cpu() -> "tuple[float, int]":
    began = time.perf_counter()
    total = 0
    for number in range(3_000_000):
        total += number * number & 0xFF
    return time.perf_counter() - began, total


def _content(path: str) -> int:
    with open(path, "rb") as stream:
        return len(stream.read())


class _Files:
    """A map-style data set: one small file a sample."""

    def __init__(self, paths: "list[str]") -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, at: int) -> int:
        return _content(self.paths[at])


def loader(folder: str) -> "tuple[float, int]":
    """Read small files as training does: PyTorch's DataLoader with two workers, else one plain loop."""
    try:
        data = importlib.import_module("torch.utils.data")
    except ImportError:
        data = None
    began = time.perf_counter()
    with os.scandir(folder) as entries:
        files = _Files(sorted(entry.path for entry in entries))
    if data is None:
        read = sum(files[at] for at in range(len(files)))
    else:
        read = sum(int(batch.sum()) for batch in data.DataLoader(files, batch_size=64, num_workers=2))
    return time.perf_counter() - began, read


def allreduce(megabytes: str) -> "tuple[float, int]":
    """Two ranks sum a tensor over gloo and loopback; the best of three, after one that is not counted."""
    return _rank(0, int(megabytes), 0)


def _rank(rank: int, megabytes: int, port: int) -> "tuple[float, int]":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch = importlib.import_module("torch")
    dist = importlib.import_module("torch.distributed")
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, 2, is_master=rank == 0, wait_for_workers=False)
    other = None
    if rank == 0:
        other = subprocess.Popen([sys.executable, __file__, "rank", str(megabytes), str(store.port)])
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    tensor = torch.ones(megabytes * 1_000_000 // 4)
    took = []
    for _ in range(4):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(tensor)
        took.append(time.perf_counter() - began)
    dist.barrier()
    dist.destroy_process_group()
    if other is not None and other.wait():
        sys.exit("the other rank ended with %d" % other.returncode)  # noqa: UP031
    return min(took[1:]), int(tensor[-1])


def main() -> None:
    name, *arguments = sys.argv[1:]
    if name == "rank":
        _rank(1, int(arguments[0]), int(arguments[1]))
        return
    loads: dict[str, Callable[..., tuple[float, int]]] = {
        "stat": stat,
        "walk": walk,
        "import": import_,
        "cpu": cpu,
        "loader": loader,
        "allreduce": allreduce,
    }
    seconds, done = loads[name](*arguments)
    sys.stdout.write(json.dumps({"s": seconds, "n": done}) + "\n")


if __name__ == "__main__":
    main()
