"""bench/asked.py: what is counted in a trace as asked of the store."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"

#: By strace 6.1, shortened. 12 is bubblewrap, and becomes Python; 11 starts it, and 13 is its child. What 11
#: asks of the store is asked outside.
TRACE = """\
11 openat(AT_FDCWD</work>, "/store/image.tar", O_RDONLY) = 3</store/image.tar>
11 read(3</store/image.tar>, "..."..., 10240) = 1000
11 openat(AT_FDCWD</work>, "/storefront", O_RDONLY) = 3</storefront>
11 clone(child_stack=NULL, flags=SIGCHLD) = 12
12 openat(AT_FDCWD</work>, "/usr/early", O_RDONLY) = 3</usr/early>
12 pivot_root("/newroot", ".") = 0
12 openat(AT_FDCWD</>, "/usr/lib", O_RDONLY|O_DIRECTORY) = 4</usr/lib>
12 newfstatat(4</usr/lib>, "libz.so", {st_mode=S_IFREG}, 0) = 0
12 newfstatat(4</usr/lib>, "", {st_mode=S_IFDIR}, AT_EMPTY_PATH) = 0
12 openat(AT_FDCWD</>, "/usr/lib/libz.so", O_RDONLY <unfinished ...>
13 openat(AT_FDCWD</>, "/usr/gone", O_RDONLY) = -1 ENOENT (No such file or directory)
12 <... openat resumed>) = 5</usr/lib/libz.so>
12 mmap(NULL, 5000, PROT_READ, MAP_PRIVATE, 5</usr/lib/libz.so>, 0) = 0x7f00
12 mmap(0x7f01, 1000, PROT_READ, MAP_PRIVATE, 5</usr/lib/libz.so>, 0x1000 <unfinished ...>
12 <... mmap resumed>) = 0x7f01
12 mmap(NULL, 8192, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f02
12 clone3({flags=CLONE_VM}, 88) = 13
12 openat(AT_FDCWD</>, "/proc/self/maps", O_RDONLY) = 6</proc/12/maps>
12 read(6</proc/12/maps>, ""..., 100) = 100
12 openat(AT_FDCWD</>, "/work/rank.py", O_RDONLY) = 6</work/rank.py>
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("asked")


def test_a_container_shows_the_store_where_it_is_shared(asked: Any) -> None:
    found = asked.read_trace(TRACE, store="/store", root_is_shared=True, besides=("/work",))
    # image.tar, lib, libz.so twice, gone; lib is a folder.
    assert (found.lookups, found.opens) == (5, 2)
    assert (found.read_bytes, found.mapped_bytes) == (1000, 5096)


def test_what_containers_read_of_a_nodes_own_copy_is_not_counted(asked: Any) -> None:
    found = asked.read_trace(TRACE, store="/store", root_is_shared=False, besides=("/work",))
    assert (found.lookups, found.opens, found.read_bytes, found.mapped_bytes) == (1, 1, 1000, 0)


def test_what_is_not_understood_is_an_error(asked: Any) -> None:
    line = "11 mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, 5</store/x>, 0) = 0x7f00\n"
    with pytest.raises(ValueError, match="not understood"):
        asked.read_trace(line, store="/store", root_is_shared=True, besides=())
