"""Probe images packed into one file: a squashfs, bare or in a SIF."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from bareboat.engines import Host
from bareboat_base.sif import write_sif


def trial(host: Host, tree: Path, kind: str, run: Callable[[str], str | None]) -> str:
    """Pack a small tree as images are packed and run it. Return the fault, empty when there is none."""
    mksquashfs = host.which("mksquashfs")
    if mksquashfs is None:
        return "mksquashfs, which packs images, is not installed"
    path = tree.with_name("trial.squashfs")
    said = host.run([mksquashfs, "-help"])
    zstd = ["-comp", "zstd"] if re.search(r"^\s+zstd\b", said.stdout + said.stderr, re.M) else []
    done = host.run(
        [mksquashfs, str(tree), str(path), "-noappend", "-no-progress", "-no-xattrs", "-all-root", *zstd]
    )
    if not done.ok:
        return f"mksquashfs failed with: {(done.stderr or done.stdout).strip()}"
    if kind == "sif":
        path, squashfs = tree.with_name("trial.sif"), path
        write_sif(squashfs, path, os.uname().machine)
    return run(str(path)) or ""
