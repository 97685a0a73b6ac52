"""What the nodes of a run tell of the image that they were to bring: each has a file, each start a line."""

from __future__ import annotations

from pathlib import Path

from fairlead.model import Delivered


def read(folder: Path) -> tuple[Delivered, ...]:
    """Of a run's folder, in the order of time; a line that a node did not write to its end is left out."""
    found = []
    for path in sorted(folder.glob("deliveries.*")):
        for line in path.read_text(errors="replace").splitlines():
            parts = line.split()
            if len(parts) == 5 and parts[0].isdecimal() and parts[3].isdecimal() and parts[4].isdecimal():
                at, node, how, took, size = parts
                found.append(
                    Delivered(
                        at_epoch_s=int(at), node=node, how=how, took_s=int(took), archive_bytes=int(size)
                    )
                )
    return tuple(sorted(found, key=lambda each: (each.at_epoch_s, each.node)))
