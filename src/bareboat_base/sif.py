"""The SIF format, the single file that Apptainer and Singularity run: a header, descriptors, data.

Source: the format as Apptainer's own library writes it, https://github.com/apptainer/sif (pkg/sif). All
numbers are little-endian; the global header has 128 bytes, a descriptor 585.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

from bareboat_base import architectures

MAGIC = b"SIF_MAGIC\0"
#: The line before it lets a shell start the file.
MAGIC_OFFSET = 32
_START = b"#!/usr/bin/env run-singularity\n"

HEADER = struct.Struct("<32s10s3s3s16s8q")
#: Kind, used, number, group, link; offset, size, size with padding, times of creation and change, owner;
#: name, and what its kind has besides.
DESCRIPTOR = struct.Struct("<iBIII7q128s384s")
#: File system, role, architecture.
PARTITION = struct.Struct("<ii3s")

DATA_PARTITION = 0x4004
DATA_SIGNATURE = 0x4005
DATA_JSON = 0x4006
#: The name of the data with the settings of the OCI image (Env, Entrypoint, …) that the file was made from.
OCI_CONFIG = b"oci-config.json"
SQUASHFS = 1
SYSTEM_PRIMARY = 2

#: As many as Apptainer makes, at the places where it puts them.
_DESCRIPTORS, _DESCRIPTORS_AT, _DATA_AT = 48, 4096, 32768
_GROUP_1 = 0xF0000001
#: A SIF lists its squashfs twice, as the root file system and as data: only of data does Apptainer mount a
#: single directory (`image-src`), which a job needs whose mounts hide the environment.
_ROLES = ((SYSTEM_PRIMARY, b"root"), (3, b"the same as data"))
_CHUNK_BYTES = 16 * 2**20


def write_sif(squashfs: Path, path: Path, machine: str, *, oci_config: bytes = b"") -> None:
    """Write a SIF around a squashfs, the same bytes each time. `machine`: as uname(2) has it."""
    found = architectures.find(machine)
    architecture = ((found and found.sif) or b"00") + b"\0"
    size = squashfs.stat().st_size
    digest = hashlib.sha256()
    with open(squashfs, "rb") as source, open(path, "wb") as target:
        target.seek(_DATA_AT)
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            target.write(chunk)
        target.write(oci_config)
        parts = [
            (DATA_PARTITION, _DATA_AT, size, name, PARTITION.pack(SQUASHFS, role, architecture))
            for role, name in _ROLES
        ]
        if oci_config:
            parts.append((DATA_JSON, _DATA_AT + size, len(oci_config), OCI_CONFIG, b""))
        target.seek(0)
        target.write(
            HEADER.pack(
                _START, MAGIC, b"01", architecture, digest.digest()[:16],
                0, 0, _DESCRIPTORS - len(parts), _DESCRIPTORS, _DESCRIPTORS_AT,
                _DESCRIPTORS * DESCRIPTOR.size, _DATA_AT, size + len(oci_config),
            )
        )  # fmt: skip
        target.seek(_DESCRIPTORS_AT)
        for number, (kind, at, length, name, extra) in enumerate(parts, 1):
            target.write(
                DESCRIPTOR.pack(kind, 1, number, _GROUP_1, 0, at, length, length, 0, 0, 0, 0, name, extra)
            )
