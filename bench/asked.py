"""What a shared file system is asked of an image, read from a trace by strace."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bareboat_base.paths import lies_in

#: What strace has to be told; the trace is then that of `read_trace`.
STRACE = (
    "strace", "-f", "-qq", "-y", "--seccomp-bpf",
    "-e", "trace=%file,read,pread64,mmap,clone,clone3,fork,vfork,pivot_root",
)  # fmt: skip

#: In a container, and not of its image.
_OF_THE_HOST = ("/dev", "/proc", "/sys", "/tmp", "/var/tmp", "/run")
_LINE = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+)(?:<(.*)>)?")
_NAMED = re.compile(r'(?:(?:AT_FDCWD|\d+)<(?P<folder>[^>]*)>, )?"(?P<path>[^"]*)"')
_DESCRIPTOR = re.compile(r"\b\d+<(/[^>]*)>")
_MAPPED = re.compile(r"\w+, (?P<length>\d+), .*, \d+<[^>]*>, (?P<offset>0x[0-9a-f]+|0)$")


@dataclass(slots=True)
class Asked:
    """By all processes together."""

    lookups: int = 0
    opens: int = 0
    read_bytes: int = 0
    #: (process, file) -> up to where it is mapped. Not all of that need be read.
    mapped: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def mapped_bytes(self) -> int:
        return sum(self.mapped.values())


class _Call(NamedTuple):
    process: str
    name: str
    words: str
    result: str
    #: Of a descriptor that it returned.
    path: str | None


def read_trace(trace: str, *, store: str, root_is_shared: bool, besides: Sequence[str]) -> Asked:
    """What concerns the folder `store`, and, where `root_is_shared`, the root of containers: bubblewrap shows
    there what lies in the store. `besides`: what containers show of other places, at its own path."""
    calls = list(_calls(trace))
    enters = {call.process: number for number, call in enumerate(calls) if call.name == "pivot_root"}
    born = {call.result: call.process for call in calls if call.name in ("clone", "clone3", "fork", "vfork")}
    outside = (*_OF_THE_HOST, *besides)

    def is_contained(process: str | None, number: int) -> bool:
        while process is not None:
            if process in enters:
                return number > enters[process]
            process = born.get(process)
        return False

    found = Asked()
    for number, call in enumerate(calls):
        path = _path(call)
        if path is None:
            continue
        if is_contained(call.process, number):
            shared = root_is_shared and not any(lies_in(path, top) for top in outside)
        else:
            shared = lies_in(path, store)
        if not shared:
            continue
        if call.name in ("read", "pread64"):
            found.read_bytes += max(int(call.result), 0)
        elif call.name == "mmap":
            mapped = _MAPPED.match(call.words)
            if mapped is None:
                raise ValueError(f"strace says what is not understood: {call}")
            key = (call.process, path)
            end = int(mapped["offset"], 16) + int(mapped["length"])
            found.mapped[key] = max(end, found.mapped.get(key, 0))
        else:
            found.lookups += 1
            found.opens += call.path is not None and "O_DIRECTORY" not in call.words
    return found


def _path(call: _Call) -> str | None:
    """The file or the name that a call is about."""
    if call.name in ("read", "pread64", "mmap"):
        descriptor = _DESCRIPTOR.search(call.words)
        return None if descriptor is None else descriptor[1]
    named = _NAMED.search(call.words)
    if named is None or not named["path"]:  # of an open file: no name is looked up
        return None
    return os.path.normpath(os.path.join(named["folder"] or "/", named["path"]))


def _calls(trace: str) -> Iterator[_Call]:
    """In their order; what strace tells in two lines stands where it ended."""
    begun: dict[str, str] = {}
    for line in trace.splitlines():
        process, _, rest = line.partition(" ")
        if line.endswith("<unfinished ...>"):
            begun[process] = line.removesuffix("<unfinished ...>").rstrip()
            continue
        if rest.lstrip().startswith("<... ") and process in begun:
            line = begun.pop(process) + rest.partition(" resumed>")[2]
        if (found := _LINE.match(line)) is not None:
            yield _Call(*found.groups())
