"""How the nodes of a run obtained the image: one file per node, one line per start."""

from __future__ import annotations

import re
from pathlib import Path

from bareboat.model import Delivered
from bareboat.runs import directory
from bareboat_base.expressions import expression

#: EPOCH NODE HOW SECONDS BYTES
_LINE = expression(r"(\d{1,11}) (\S{1,255}) (unpacked|found|shared) (\d{1,9}) (\d{1,18})", re.ASCII)
_MOST_FILES = 100_000


def read(folder: Path) -> tuple[Delivered, ...]:
    """Read the files of a run's directory, in order of time; incomplete lines are ignored."""
    found = []
    control = directory.control(folder)
    for path in directory.files_of(control, most=_MOST_FILES):
        if not path.name.startswith("deliveries."):
            continue
        for line in (directory.text(path) or "").splitlines():
            if (parts := _LINE.fullmatch(line)) is not None:
                at, node, how, took, size = parts.groups()
                found.append(
                    Delivered(
                        at_epoch_s=int(at), node=node, how=how, took_s=int(took), archive_bytes=int(size)
                    )
                )
    return tuple(sorted(found, key=lambda each: (each.at_epoch_s, each.node)))
