"""What the nodes of a run tell of the image that they were to bring: each has a file, each start a line."""

from __future__ import annotations

import re
from pathlib import Path

from bareboat import run_folder
from bareboat.model import Delivered

#: EPOCH NODE HOW SECONDS BYTES
_LINE = re.compile(r"(\d{1,11}) (\S{1,255}) (unpacked|found|shared) (\d{1,9}) (\d{1,18})", re.ASCII)
_MOST_FILES = 100_000


def read(folder: Path) -> tuple[Delivered, ...]:
    """Of a run's directory, in the order of time; a line that a node did not write to its end is left out."""
    found = []
    control = run_folder.control(folder)
    for path in run_folder.files_of(control, most=_MOST_FILES):
        if not path.name.startswith("deliveries."):
            continue
        for line in (run_folder.text(path) or "").splitlines():
            if (parts := _LINE.fullmatch(line)) is not None:
                at, node, how, took, size = parts.groups()
                found.append(
                    Delivered(
                        at_epoch_s=int(at), node=node, how=how, took_s=int(took), archive_bytes=int(size)
                    )
                )
    return tuple(sorted(found, key=lambda each: (each.at_epoch_s, each.node)))
