"""What the ranks of a run may use on each node, and whether that is what the job requested: from the files
that the job script writes before the start, and from its observations of the ranks."""

from __future__ import annotations

import math
import os
import re
import time
from pathlib import Path

from bareboat import health
from bareboat.hostlist import shortened
from bareboat.model.record import Health, NodeLimits
from bareboat.runs import directory, sampler_series
from bareboat_base.expressions import expression
from bareboat_base.files import untrusted

#: Of a rank: its number, its processors, and the number of its node.
_MASK = expression(r"mask (\S{1,40}) ([\d,-]{1,4096}) (\d{1,6})", re.ASCII)
_MOST_FILES = 4096
_MOST_BYTES = 1 << 20
#: After the first GPU of a node was used: the others follow within this time.
_GPUS_S = 60.0
#: Of a run that ended, or whose ranks have all done a step: so long nothing was found to use a further GPU.
_LEAST_S = 10.0


def read(folder: Path, *, succeeded: bool = False) -> Health | None:
    """The health of a run by the files in its directory; None before its start. `succeeded`: the run ended.
    Raises DamagedRunError."""
    control = directory.control(folder)
    lines = [
        (directory.text(path, limit=8192) or "", os.lstat(path).st_mtime)
        for path in directory.files_of(control, most=_MOST_FILES)
        if path.name.startswith("limits.")
    ]
    hosts = (directory.text(control / "hosts") or "").split()
    nodes = health.read_nodes(lines, hosts, _masks(control))
    stepped_s = _stepped_s(folder / directory.RANKS / "progress", sum(each.ranks for each in nodes))
    nodes = [
        each._replace(gpus_used=_gpus_used(control, each, stepped_s, succeeded=succeeded)) for each in nodes
    ]
    if not nodes:
        return None
    return Health(
        nodes=tuple(NodeLimits(**each._asdict()) for each in nodes),
        marks=tuple(health.find_marks(nodes, shortened)),
    )


def _stepped_s(reports: Path, ranks: int) -> float:
    """When the last of the ranks reported its first step, since 1970; infinite where one has not."""
    count = sum(path.name.isdecimal() for path in directory.files_of(reports, most=_MOST_FILES))
    if not 0 < ranks <= count:
        return math.inf
    try:
        return os.lstat(reports).st_mtime  # of its newest file; lines do not change it
    except OSError:  # the ranks may remove it
        return math.inf


def _gpus_used(control: Path, node: health.Node, stepped_s: float, *, succeeded: bool) -> int | None:
    """The number of the node's GPUs that had processes of the run. None where that is not known, and while
    others may follow."""
    path = control / sampler_series.FOLDER / node.node / sampler_series.GPUS
    if not node.gpus_requested or (text := directory.text(path, limit=_MOST_BYTES)) is None:
        return None
    used = {line.partition(",")[2] for line in text.splitlines()[1:]} - {""}
    end = control / "exit_code"
    end_s = os.lstat(end).st_mtime if os.path.lexists(end) else time.time()
    newest_s = os.lstat(path).st_mtime
    settled_s = newest_s + _LEAST_S if succeeded else newest_s + _GPUS_S
    settled_s = min(settled_s, max(newest_s, stepped_s) + _LEAST_S)
    return len(used) if end_s > settled_s and (used or succeeded) else None


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
