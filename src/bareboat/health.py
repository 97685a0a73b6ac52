"""What a job may use on each node against its request: from the lines of the job script to sentences.

    python -c … CONTROL

As a program, on the first node of a job before its ranks start, it prints a line for each mismatch: one text
without dependencies, for the Python 3.6 or newer of any node.
"""

import os
import re
import sys
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Lines = Sequence[tuple[re.Match[str], float | None]]

#: RANKS NODE PROCESSORS BYTES GPUS, requested: PROCESSORS GPUS THREADS BYTES; CLOCK, QUOTA in hundredths of
#: a processor, and of node-local storage: FREE-KIB KIB FREE-INODES INODES.
_LINE = (
    r"(\d{1,6}) ([\w.-]{1,255}) ([\d,-]{1,4096}) (\d{1,15}|-) (\d{1,4}|-)"
    r" (\d{1,6}) (\d{1,4}) (\d{1,6}) (\d{1,15}) (\d{1,11}[.,]\d{6}|-)"
    r"(?: (\d{1,9}|-) (?:(\d{1,15}) (\d{1,15}) (\d{1,15}) (\d{1,15})|-))?\s*"
)
#: Less is within what writing a file over a network takes.
_CLOCK_S = 1.0
#: Node-local storage: less than both is too little.
_LEAST_FREE_BYTES, _LEAST_FREE = 1 << 30, 0.05


class Node(NamedTuple):
    """What the ranks of one node may use, and what the job requested for them (`NodeLimits` of a record)."""

    node: str
    ranks: int
    cpus: str
    rank_cpus: "tuple[str, ...]"
    memory_bytes: "int | None"
    gpus: "int | None"
    cpus_requested: int
    gpus_requested: int
    threads: int
    memory_requested_bytes: int
    clock_offset_s: "float | None"
    cpu_quota: "float | None" = None
    scratch_free_bytes: "int | None" = None
    scratch_free: "float | None" = None
    gpus_used: "int | None" = None
    gpus_of_ranks: int = 0


def read_nodes(
    lines: "Iterable[tuple[str, float]]",
    hosts: "Sequence[str]" = (),
    masks: "Mapping[int, Mapping[str, str]] | None" = None,
) -> "list[Node]":
    """The nodes by their lines, each with the time at which the file server wrote it. `masks`: number of
    a node -> rank -> its processors, as seen while the ranks ran; `hosts`: the nodes in this order."""
    parts: dict[str, list[tuple[re.Match[str], float | None]]] = {}
    for text, written_s in lines:
        match = re.fullmatch(_LINE, text, re.ASCII)
        if match is not None:
            clock = match[10].replace(",", ".")
            parts.setdefault(match[2], []).append((match, None if clock == "-" else written_s - float(clock)))
    order = list(hosts) or list(parts)
    return [
        _node(name, found, (masks or {}).get(order.index(name) if name in order else -1, {}))
        for name, found in parts.items()
    ]


def _node(name: str, lines: "Lines", masks: "Mapping[str, str]") -> Node:
    """One node: of a line for all its ranks, or a line for each."""
    first, offset_s = lines[0]
    ranks = sum(int(match[1]) for match, _ in lines)
    own = tuple(match[3] for match, _ in lines)
    free = first[12] is not None
    return Node(
        node=name,
        ranks=ranks,
        cpus=",".join(dict.fromkeys(own)),
        rank_cpus=own if len(lines) == ranks else tuple(masks.values()),
        memory_bytes=None if first[4] == "-" else int(first[4]),
        gpus=None if first[5] == "-" else int(first[5]),
        cpus_requested=int(first[6]) * ranks,
        # Where each rank has a line, all may see the GPUs of the node.
        gpus_requested=int(first[7]) * int(first[1]),
        gpus_of_ranks=int(first[7]) * ranks,
        threads=int(first[8]),
        memory_requested_bytes=int(first[9]),
        clock_offset_s=offset_s,
        cpu_quota=None if first[11] in (None, "-") else int(first[11]) / 100,
        scratch_free_bytes=int(first[12]) * 1024 if free else None,
        # Some file systems have no fixed number of inodes: 0.
        scratch_free=min(_share(first[12], first[13]), _share(first[14], first[15])) if free else None,
    )


def _share(free: str, of: str) -> float:
    return int(free) / int(of) if int(of) else 1.0


def find_marks(
    found: "Sequence[Node]",
    shortened: "Callable[[list[str]], str]" = ",".join,
) -> "list[str]":
    """The mismatches, each with the nodes that it is about."""
    by_text: dict[str, list[str]] = {}
    for each in found:
        for text in _faults(each):
            by_text.setdefault(text, []).append(each.node)
    told = [f"{shortened(names)}: {text}" for text, names in by_text.items()]
    offsets = sorted((each.clock_offset_s, each.node) for each in found if each.clock_offset_s is not None)
    if offsets and offsets[-1][0] - offsets[0][0] > _CLOCK_S:
        (low, first), (high, last) = offsets[0], offsets[-1]
        told.append(f"the clocks of {first} and {last} differ by {high - low:.1f} s")
    return told


def _faults(node: Node) -> "Iterator[str]":
    yield from _processor_faults(node)
    if node.memory_bytes is not None and node.memory_bytes < node.memory_requested_bytes:
        limit, wanted = (each / 2**30 for each in (node.memory_bytes, node.memory_requested_bytes))
        yield f"the memory limit is {limit:.2f} GiB, and the job requested {wanted:.2f} GiB"
    if node.gpus is not None and node.gpus < node.gpus_requested:
        yield f"{_counted(node.gpus, 'GPU')} visible, and the job requested {node.gpus_requested}"
    elif node.gpus_used is not None and node.gpus_used < node.gpus_of_ranks:
        yield f"the ranks use {node.gpus_used} of {_counted(node.gpus_of_ranks, 'GPU')}"
    free, share = node.scratch_free_bytes, node.scratch_free
    if free is not None and share is not None and share < _LEAST_FREE and free < _LEAST_FREE_BYTES:
        yield f"node-local storage is nearly full: {free / 2**30:.2f} GiB left"


def _processor_faults(node: Node) -> "Iterator[str]":
    allowed = processors(node.cpus)
    crowded = _crowded([processors(mask) for mask in node.rank_cpus])
    if allowed and len(allowed) < node.cpus_requested:
        yield (
            f"the ranks may use {_counted(len(allowed), 'processor')}, and the job requested "
            f"{node.cpus_requested}"
        )
    elif node.cpus_requested and crowded:  # on this machine no processors are requested
        yield f"{crowded[0]} ranks share {_counted(crowded[1], 'processor')}"
    elif allowed and node.threads * node.ranks > len(allowed) and (node.cpus_requested or node.threads > 1):
        yield (
            f"{_counted(node.ranks, 'rank')} with {node.threads} threads each on "
            f"{_counted(len(allowed), 'processor')}: set OMP_NUM_THREADS, or cpus_per_rank under [topology]"
        )
    if node.cpu_quota is not None and node.cpu_quota < node.cpus_requested:
        yield (f"the CPU quota is {node.cpu_quota:g} processors, and the job requested {node.cpus_requested}")


def _crowded(masks: "Sequence[frozenset[int]]") -> "tuple[int, int] | None":
    """The numbers of ranks and processors where ranks may use only processors that are fewer than they."""
    for mask in dict.fromkeys(masks):
        ranks = sum(other <= mask for other in masks)
        if mask and ranks > len(mask):
            return ranks, len(mask)
    return None


def processors(ranges: str) -> "frozenset[int]":
    """The processors of a kernel's list: 0-3,8."""
    found: set[int] = set()
    for each in ranges.split(","):
        first, _, last = each.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found.update(range(int(first), min(int(last or first), int(first) + 65536) + 1))
    return frozenset(found)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def judge(control: str) -> "list[str]":
    """The mismatches, from the files of the job script."""
    lines, hosts = [], ""
    for name in sorted(os.listdir(control)):
        if name == "hosts" or name.startswith("limits."):
            path = os.path.join(control, name)
            with open(path, errors="replace") as stream:
                text = stream.read(1 << 20)
            if name == "hosts":
                hosts = text
            else:
                lines.append((text, os.stat(path).st_mtime))
    return find_marks(read_nodes(lines, hosts.split()))


if __name__ == "__main__":
    sys.stdout.writelines(mark + "\n" for mark in judge(sys.argv[1]))
