"""Images packed into one file: a squashfs, bare or in a SIF. How engines try them, and how a SIF is written.

The SIF lists its squashfs twice, as the root file system and as data: only of data does Apptainer mount a
single folder (`image-src`), which a job needs whose mounts hide the environment. Source of the format:
https://github.com/apptainer/sif (pkg/sif); see also `bareboat.images.formats.sif`, which reads it.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Callable
from pathlib import Path

from bareboat import architectures
from bareboat.engines import Host

_HEADER = struct.Struct("<32s10s3s3s16s8q")
_DESCRIPTOR = struct.Struct("<iBIII7q128s384s")
_PARTITION = struct.Struct("<ii3s")
#: As many as Apptainer makes, at the places where it puts them.
_DESCRIPTORS, _DESCRIPTORS_AT, _DATA_AT = 48, 4096, 32768
_IS_PARTITION, _SQUASHFS, _GROUP_1 = 0x4004, 1, 0xF0000001
_ROLES = ((2, b"root"), (3, b"the same as data"))
_CHUNK_BYTES = 16 * 2**20


def trial(host: Host, tree: Path, kind: str, run: Callable[[str], str | None]) -> str:
    """Pack a small tree as images are packed and run it; return what went wrong, nothing when nothing did."""
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


def write_sif(squashfs: Path, path: Path, machine: str) -> None:
    """Write a SIF around a squashfs, the same bytes each time. `machine`: as uname(2) says."""
    found = architectures.find(machine)
    architecture = ((found and found.sif) or b"00") + b"\0"
    size = squashfs.stat().st_size
    digest = hashlib.sha256()
    with open(squashfs, "rb") as source, open(path, "wb") as target:
        target.seek(_DATA_AT)
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            target.write(chunk)
        target.seek(0)
        target.write(
            _HEADER.pack(
                b"#!/usr/bin/env run-singularity\n", b"SIF_MAGIC", b"01", architecture, digest.digest()[:16],
                0, 0, _DESCRIPTORS - len(_ROLES), _DESCRIPTORS, _DESCRIPTORS_AT,
                _DESCRIPTORS * _DESCRIPTOR.size, _DATA_AT, size,
            )
        )  # fmt: skip
        target.seek(_DESCRIPTORS_AT)
        for number, (role, name) in enumerate(_ROLES, 1):
            partition = _PARTITION.pack(_SQUASHFS, role, architecture)
            target.write(
                _DESCRIPTOR.pack(
                    _IS_PARTITION, 1, number, _GROUP_1, 0, _DATA_AT, size, size, 0, 0, 0, 0, name, partition
                )
            )
