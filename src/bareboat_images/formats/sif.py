"""Read the parts of a SIF (`bareboat_base.sif`), with limits: the file is untrusted."""

from __future__ import annotations

import os
import shlex

from msgspec import Struct

from bareboat_base import architectures
from bareboat_base.errors import ImageError
from bareboat_base.sif import (
    DATA_JSON,
    DATA_PARTITION,
    DESCRIPTOR,
    HEADER,
    MAGIC,
    MAGIC_OFFSET,
    OCI_CONFIG,
    PARTITION,
    SQUASHFS,
    SYSTEM_PRIMARY,
)
from bareboat_images.sources.archive import open_regular

#: Apptainer writes 48.
_MOST_DESCRIPTORS = 4096
_LARGEST_JSON = 4 * 2**20

_DATA_OCI = (0x4009, 0x400A)
_OVERLAY = 4
_FILE_SYSTEMS = {
    2: "an ext3 file system", 3: "an archive", 4: "raw data", 5: "an encrypted squashfs",
    6: "an encrypted file system (gocryptfs)",
}  # fmt: skip

_ARCHITECTURES = {
    b"07": "mips", b"08": "mipsle", b"09": "mips64", b"10": "mips64le",
    **{each.sif: each.oci for each in architectures.ALL if each.sif is not None},
}  # fmt: skip


class Partition(Struct, frozen=True, kw_only=True):
    """A file system in a SIF. `offset`, `size`: in bytes."""

    number: int
    offset: int
    size: int
    file_system: int
    role: int
    architecture: str


class Sif(Struct, frozen=True, kw_only=True):
    """The content of a SIF. `oci_config`: the config (Env, Cmd, …) of the OCI image it was made from, as
    JSON; None if it was made from something else, or by Apptainer before 1.2."""

    name: str
    path: str
    partitions: tuple[Partition, ...]
    oci_config: bytes | None

    def system(self) -> Partition:
        """The squashfs with the root file system. Raises ImageError if the SIF has none that is supported."""
        rest = f"apptainer build --sandbox DIR {shlex.quote(self.path)}   # then rootfs:DIR"
        primary = [each for each in self.partitions if each.role == SYSTEM_PRIMARY]
        if len(primary) != 1:
            raise ImageError(
                f"{self.name} has {len(primary) or 'no'} root file systems; it must have one",
                context=f"apptainer sif list {shlex.quote(self.path)}",
            )
        if primary[0].file_system != SQUASHFS:
            kind = _FILE_SYSTEMS.get(primary[0].file_system, "of an unknown kind")
            raise ImageError(f"the root file system of {self.name} is {kind}, not a squashfs", remedy=rest)
        overlay = next((each for each in self.partitions if each.role == _OVERLAY), None)
        if overlay is not None:
            # Apptainer mounts it over the squashfs; without it, the content would differ.
            raise ImageError(
                f"{self.name} has an overlay, whose changes to the image cannot be read",
                remedy=f"apptainer sif del {overlay.number} {shlex.quote(self.path)}   # takes it away",
            )
        return primary[0]


def read_sif(path: str | os.PathLike[str], *, name: str) -> Sif:
    """Read the descriptors. Raises ImageError for a file that is not a SIF, is damaged or truncated."""
    with open_regular(path, name=name) as stream:
        descriptor = stream.fileno()
        _, table = read_table(descriptor, name=name)
        return _parts(descriptor, table, os.fstat(descriptor).st_size, name=name, path=os.fspath(path))


def read_table(descriptor: int, *, name: str) -> tuple[bytes, bytes]:
    """The header and the descriptor table of an open SIF. Raises ImageError."""
    size = os.fstat(descriptor).st_size
    header = os.pread(descriptor, HEADER.size, 0)
    if len(header) < HEADER.size or header[MAGIC_OFFSET : MAGIC_OFFSET + len(MAGIC)] != MAGIC:
        raise ImageError(f"{name} is not a SIF", remedy="check the path")
    _, _, version, _, _, *numbers = HEADER.unpack(header)
    _, _, _, total, offset, _, _, _ = numbers
    if version[:2] != b"01":
        shown = version[:2].decode("ascii", "backslashreplace")
        raise ImageError(f"{name} is a SIF of version {shown}; Bareboat reads version 01")
    if not 0 <= total <= _MOST_DESCRIPTORS or not HEADER.size <= offset <= size:
        raise ImageError(f"{name} is damaged: its header gives {total:,} descriptors at byte {offset:,}")
    table = os.pread(descriptor, total * DESCRIPTOR.size, offset)
    if len(table) < total * DESCRIPTOR.size:
        raise _cut_off(name, size)
    return header, table


def _parts(descriptor: int, table: bytes, size: int, *, name: str, path: str) -> Sif:
    partitions = []
    oci_config = None
    for fields in DESCRIPTOR.iter_unpack(table):
        kind, used, number, _, _, at, length, *_, called, extra = fields
        if not used:
            continue
        if at < 0 or length < 0:
            raise ImageError(f"{name} is damaged: its part {number} lies at byte {at:,}")
        if at + length > size:
            raise _cut_off(name, size)
        if kind in _DATA_OCI:
            raise ImageError(
                f"{name} is an OCI-SIF of Singularity 4, whose layers are squashfs files",
                remedy="build it without --oci, or push it to a registry: "
                f"singularity push {shlex.quote(path)} docker://REGISTRY/NAME:TAG",
            )
        if kind == DATA_PARTITION:
            file_system, role, architecture = PARTITION.unpack_from(extra)
            partitions.append(
                Partition(
                    number=number,
                    offset=at,
                    size=length,
                    file_system=file_system,
                    role=role,
                    architecture=_ARCHITECTURES.get(architecture[:2], "unknown"),
                )
            )
        elif kind == DATA_JSON and called.rstrip(b"\0") == OCI_CONFIG:
            if length > _LARGEST_JSON:
                raise ImageError(f"{name} is damaged: its oci-config.json has {length:,} bytes")
            oci_config = os.pread(descriptor, length, at)
    return Sif(name=name, path=path, partitions=tuple(partitions), oci_config=oci_config)


def _cut_off(name: str, size: int) -> ImageError:
    return ImageError(
        f"{name} is cut off: it has only {size:,} bytes, fewer than in its header",
        remedy="copy or pull the SIF again",
    )
