"""What the ranks of a run may use on each node, and whether that is what the job requested: from the files
that the job script writes before the start, and from its observations of the ranks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from bareboat.hostlist import shortened
from bareboat.model.record import Health, NodeLimits
from bareboat.runs import directory
from bareboat_base.expressions import expression
from bareboat_base.files import untrusted
from bareboat_base.printable import counted

#: RANKS NODE PROCESSORS BYTES GPUS, requested: PROCESSORS GPUS THREADS BYTES; CLOCK.
_LINE = expression(
    r"(\d{1,6}) ([\w.-]{1,255}) ([\d,-]{1,4096}) (\d{1,15}|-) (\d{1,4}|-)"
    r" (\d{1,6}) (\d{1,4}) (\d{1,6}) (\d{1,15}) (\d{1,11}[.,]\d{6}|-)\s*",
    re.ASCII,
)
#: Of a rank: its number, its processors, and the number of its node.
_MASK = expression(r"mask (\S{1,40}) ([\d,-]{1,4096}) (\d{1,6})", re.ASCII)
_MOST_FILES = 4096
_MOST_BYTES = 1 << 20
#: Less is within what writing a file over a network takes.
_CLOCK_S = 1.0


def read(folder: Path) -> Health | None:
    """The health of a run by the files in its directory; None before its start. Raises DamagedRunError."""
    control = directory.control(folder)
    files = [
        each for each in directory.files_of(control, most=_MOST_FILES) if each.name.startswith("limits.")
    ]
    parts: dict[str, list[tuple[re.Match[str], float | None]]] = {}
    for path in files:
        if (match := _LINE.fullmatch(directory.text(path, limit=8192) or "")) is not None:
            clock = match[10].replace(",", ".")
            offset_s = None if clock == "-" else os.lstat(path).st_mtime - float(clock)
            parts.setdefault(match[2], []).append((match, offset_s))
    if not parts:
        return None
    masks = _masks(control)
    hosts = (directory.text(control / "hosts") or "").split() or list(parts)
    nodes = tuple(
        _node(node, parts[node], masks.get(hosts.index(node) if node in hosts else -1, {})) for node in parts
    )
    return Health(nodes=nodes, marks=tuple(_marks(nodes)))


def _node(
    node: str, lines: Sequence[tuple[re.Match[str], float | None]], masks: dict[str, str]
) -> NodeLimits:
    """One node: of a line for all its ranks, or a line for each."""
    first, offset_s = lines[0]
    ranks = sum(int(match[1]) for match, _ in lines)
    return NodeLimits(
        node=node,
        ranks=ranks,
        cpus=",".join(dict.fromkeys(match[3] for match, _ in lines)),
        rank_cpus=tuple(match[3] for match, _ in lines) if len(lines) == ranks else tuple(masks.values()),
        memory_bytes=None if first[4] == "-" else int(first[4]),
        gpus=None if first[5] == "-" else int(first[5]),
        cpus_requested=int(first[6]) * ranks,
        # Where each rank has a line, all may see the GPUs of the node.
        gpus_requested=int(first[7]) * int(first[1]),
        threads=int(first[8]),
        memory_requested_bytes=int(first[9]),
        clock_offset_s=offset_s,
    )


def _masks(control: Path) -> dict[int, dict[str, str]]:
    """Number of a node -> rank -> its processors, as the script saw them while the ranks ran."""
    found: dict[int, dict[str, str]] = {}
    left = _MOST_BYTES
    for path in directory.files_of(control / "world", most=_MOST_FILES):
        if not path.name.startswith("looks.") or left <= 0:
            continue
        try:
            data = untrusted.read_head(path, limit=left)
        except OSError:
            continue
        left -= len(data)
        for line in data.decode(errors="replace").splitlines():
            if (match := _MASK.fullmatch(line)) is not None:
                found.setdefault(int(match[3]), {})[match[1]] = match[2]
    return found


def _marks(nodes: Sequence[NodeLimits]) -> Iterator[str]:
    """The warnings, each with the nodes that it is about."""
    by_text: dict[str, list[str]] = {}
    for each in nodes:
        for text in _faults(each) if each.cpus_requested else ():
            by_text.setdefault(text, []).append(each.node)
    yield from (f"{shortened(tuple(names))}: {text}" for text, names in by_text.items())
    offsets = sorted((each.clock_offset_s, each.node) for each in nodes if each.clock_offset_s is not None)
    if offsets and offsets[-1][0] - offsets[0][0] > _CLOCK_S:
        (low, first), (high, last) = offsets[0], offsets[-1]
        yield f"the clocks of {first} and {last} differ by {high - low:.1f} s"


def _faults(node: NodeLimits) -> Iterator[str]:
    allowed = processors(node.cpus)
    if allowed and len(allowed) < node.cpus_requested:
        yield (
            f"the ranks may use {counted(len(allowed), 'processor')}, and the job requested "
            f"{node.cpus_requested}"
        )
    elif crowded := _crowded([processors(mask) for mask in node.rank_cpus]):
        yield f"{crowded[0]} ranks share {counted(crowded[1], 'processor')}"
    elif allowed and node.threads * node.ranks > len(allowed):
        yield (
            f"{counted(node.ranks, 'rank')} with {node.threads} threads each on "
            f"{counted(len(allowed), 'processor')}: set OMP_NUM_THREADS, or cpus_per_rank under [topology]"
        )
    if node.memory_bytes is not None and node.memory_bytes < node.memory_requested_bytes:
        limit, wanted = (each / 2**30 for each in (node.memory_bytes, node.memory_requested_bytes))
        yield f"the memory limit is {limit:.2f} GiB, and the job requested {wanted:.2f} GiB"
    if node.gpus is not None and node.gpus < node.gpus_requested:
        yield f"{counted(node.gpus, 'GPU')} visible, and the job requested {node.gpus_requested}"


def _crowded(masks: Sequence[frozenset[int]]) -> tuple[int, int] | None:
    """The numbers of ranks and processors where ranks may use only processors that are fewer than they."""
    for mask in dict.fromkeys(masks):
        ranks = sum(other <= mask for other in masks)
        if mask and ranks > len(mask):
            return ranks, len(mask)
    return None


def processors(ranges: str) -> frozenset[int]:
    """The processors of a kernel's list: 0-3,8."""
    found: set[int] = set()
    for each in ranges.split(","):
        first, _, last = each.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found.update(range(int(first), min(int(last or first), int(first) + 65536) + 1))
    return frozenset(found)
