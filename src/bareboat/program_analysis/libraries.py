"""The shared libraries of a container: where its dynamic loader finds them, and those that a program lacks.
No program is executed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from bareboat.model import Missing
from bareboat.mpi.inject import C_LIBRARY
from bareboat.program_analysis.command import UNKNOWN, Node, Sight
from bareboat_base.elf import binary
from bareboat_base.elf.binary import SearchPath
from bareboat_base.elf.loader import CACHE, Loader
from bareboat_base.expressions import expression
from bareboat_base.files import untrusted

_MOST_LIBRARIES = 1000
_MOST_TEXT, _MOST_CACHE = 64 * 1024, 32 << 20
#: Libraries that a container gets from the host: those of a GPU driver. The others belong to a C library.
_OF_HOST = expression(r"lib(cuda|cudadebugger|nvidia-[a-z]+|nvcuvid|nvoptix)\.so(\.|$)|libc\.musl-")


class ContainerLoader:
    """Finds libraries among the files that are visible in a container."""

    def __init__(self, sight: Sight, environment: Mapping[str, str], workdir: str, machine: str) -> None:
        self._sight = sight
        self._workdir = workdir
        self.machine = machine
        path = [
            os.path.join(workdir, each) for each in environment.get("LD_LIBRARY_PATH", "").split(":") if each
        ]
        default = tuple(self._default())
        #: The directories that every library is searched in.
        self.directories = (*path, *default)
        self._loader = Loader(
            machine,
            real=self._real,
            cache=self._read(CACHE, _MOST_CACHE),
            library_path=":".join(path),
            directories=default,
        )

    def find(self, name: str, needed_by: str, search: SearchPath) -> Node | None:
        """The file that is loaded by this name; None if none is visible."""
        found = self._loader.find(name, needed_by, search)
        return self._sight.find(found) if found is not None else None

    def is_known(self, directories: Sequence[str]) -> bool:
        """Whether all files are known in these directories before the start."""
        found = (self._sight.find(each) for each in (*directories, *self.directories))
        return not any(node is not None and node.kind == UNKNOWN for node in found)

    def _real(self, path: str) -> str | None:
        node = self._sight.find(os.path.join(self._workdir, path))
        return node.path if node is not None and node.kind == "file" and node.place is not None else None

    def _default(self) -> Iterator[str]:
        for name in self._sight.names("/etc/ld.so.conf.d"):
            text = os.fsdecode(self._read(f"/etc/ld.so.conf.d/{name}", _MOST_TEXT))
            yield from (line.strip() for line in text.splitlines() if line.startswith("/"))
        for folder in ("/lib", "/usr/lib", "/usr/local/lib"):
            yield f"{folder}/{self.machine}-linux-gnu"
        yield from ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib", "/usr/local/lib64")

    def _read(self, path: str, most: int) -> bytes:
        node = self._sight.find(path)
        if node is None or node.kind != "file" or node.place is None:
            return b""
        try:
            with untrusted.stream(node.place) as stream:
                return stream.read(most)
        except OSError:
            return b""


def missing(path: str, place: str, loader: ContainerLoader) -> tuple[Missing, ...]:
    """The libraries that a file needs, directly or indirectly, and the container lacks; nothing where only
    the start can show that. `path`: in the container; `place`: on this machine."""
    pending: list[tuple[str, str, tuple[str, ...]]] = [(path, place, ())]
    seen: set[str] = set()
    lacking: list[Missing] = []
    searched: dict[str, None] = {}
    while pending and len(seen) < _MOST_LIBRARIES:
        path, place, inherited = pending.pop(0)
        with binary.opened(place) as elf:
            if elf.machine != loader.machine:
                continue
            own, needed = elf.search_path, elf.needed
        # Whoever loads a library first decides for all others, so all paths up to here may count.
        folders = (*(_expanded(each, path) for each in (*own.rpath, *own.runpath)), *inherited)
        if any("$" in each for each in folders):  # $LIB, $PLATFORM
            return ()
        searched |= dict.fromkeys(folders)
        for name in needed:
            if name in seen or C_LIBRARY.fullmatch(name) or _OF_HOST.match(name):
                continue
            seen.add(name)
            node = loader.find(name, path, SearchPath((), (*folders, os.path.dirname(path))))
            if node is None:
                lacking.append(Missing(library=name, needed_by=path))
            elif node.place is not None:
                pending.append((node.path, node.place, folders))
    return tuple(lacking) if not lacking or loader.is_known(tuple(searched)) else ()


def _expanded(folder: str, path: str) -> str:
    origin = os.path.dirname(path)
    return os.path.join("/", folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))
