"""Readers of images as files: layers, SIF, squashfs, archives."""

import contextlib
import gzip
import hashlib
import os
import re
import zlib
from pathlib import Path

import zstandard

from bareboat_base.errors import BareboatError
from bareboat_images.formats import packed
from bareboat_images.formats.flatten import _relink, copy, flatten
from bareboat_images.formats.sif import read_sif
from bareboat_images.formats.squash import read_superblock, unpack_squashfs
from bareboat_images.layers.tar_split import rebuild
from bareboat_images.layers.unpack import unpack
from bareboat_images.oci.reference import Reference, Transport
from bareboat_images.store import Store
from bareboat_images.tar.limits import Limits
from bareboat_images.transfer import local
from bareboat_images.transfer.options import PullOptions
from bareboat_images.transfer.pull import obtain
from fuzzing import Finding, Reader, usage

#: Small, so that inputs meet them.
LIMITS = Limits(max_unpacked_bytes=4_000_000, max_entries=400, max_ratio=1000.0)
#: A block for each file, and what a whiteout of an opaque directory needs.
_SLACK_BYTES = 4096 * 450
_MOST_INFLATED = 1 << 18


# Layers.


def read_layer(data: bytes, scratch: Path) -> None:
    """Unpack, write the tar again, and make the trees that engines without overlays are given."""
    tree, recipe = scratch / "tree", scratch / "recipe"
    tree.mkdir()
    step = 5000
    chunks = (data[at : at + step] for at in range(0, len(data), step))
    try:
        found = unpack(chunks, tree, name="layer 3 (sha256:abc)", limits=LIMITS, recipe=recipe)
    finally:
        check_limits(tree)
    if found.inodes != usage(tree)[0] + 1:
        raise Finding(f"{found.inodes} inodes were counted, and {usage(tree)[0] + 1} are there")
    if found.rebuildable and rebuild(tree, recipe, lambda _: None) != found.diff_id:
        raise Finding("the tar that was written again is another")
    base = scratch / "base"
    for name in ("a/b", "etc", "d"):
        (base / name).mkdir(parents=True)
        (base / name / "below").write_text("below")
    flatten([base, tree], scratch / "flat")
    _relink(scratch / "flat")
    copy([base, tree], scratch / "copy")
    for made in ("flat", "copy"):
        check_limits(scratch / made)
    written = 0

    def count(piece: bytes) -> None:
        nonlocal written
        written += len(piece)
        if written > 4 * LIMITS.max_unpacked_bytes + 4096 * LIMITS.max_entries:
            raise Finding("the tar for compute nodes is larger than the limit")

    packed.write_tree(os.fspath(scratch / "flat"), count)


def check_limits(tree: Path) -> None:
    inodes, size = usage(tree)
    if inodes > LIMITS.max_entries + 8:
        raise Finding(f"{inodes} entries were made where {LIMITS.max_entries} are allowed")
    if size > LIMITS.max_unpacked_bytes + _SLACK_BYTES:
        raise Finding(f"{size:,} bytes were made where {LIMITS.max_unpacked_bytes:,} are allowed")


def mend_layer(data: bytes) -> bytes:
    """Right checksums in every header, also within gzip and zstd."""
    if data[:2] == b"\x1f\x8b":
        with contextlib.suppress(zlib.error):
            return gzip.compress(
                mend_tar(zlib.decompressobj(31).decompress(data, _MOST_INFLATED)), 1, mtime=0
            )
    if data[:4] == b"\x28\xb5\x2f\xfd":
        with contextlib.suppress(zstandard.ZstdError):
            plain = zstandard.ZstdDecompressor().decompressobj().decompress(data)
            return zstandard.compress(mend_tar(plain[:_MOST_INFLATED]), 1)
    return mend_tar(data)


def mend_tar(data: bytes) -> bytes:
    made = bytearray(data)
    for at in range(0, len(made) - 511, 512):
        if made[at + 257 : at + 262] == b"ustar":
            made[at + 148 : at + 156] = b" " * 8
            made[at + 148 : at + 156] = b"%06o\0 " % sum(made[at : at + 512])
    return bytes(made)


# SIF and squashfs.


def read_sif_file(data: bytes, scratch: Path) -> None:
    path = scratch / "image.sif"
    path.write_bytes(data)
    found = read_sif(path, name="sif:image.sif")
    system = found.system()
    read_superblock(path, name="sif:image.sif", offset=system.offset, room=system.size)
    if system.offset + system.size > len(data):
        raise Finding("a partition lies behind the end of the file")


def read_squashfs(data: bytes, scratch: Path) -> None:
    path, target = scratch / "image.sqfs", scratch / "unpacked" / "tree"
    path.write_bytes(data)
    target.parent.mkdir()
    try:
        unpack_squashfs(path, target, name="squashfs:image.sqfs", max_ratio=100.0)
    finally:
        inodes, size = usage(target.parent)
        if size > 110_000_000 or inodes > 100_000:
            raise Finding(f"{inodes} entries with {size:,} bytes were unpacked")


# OCI and Docker archives, and tars of root file systems: what `image load` and `image pull FILE` take.


def read_archive(data: bytes, scratch: Path) -> None:
    path = scratch / "image.tar"
    path.write_bytes(data)
    found: BareboatError | None = None
    transport = local.sniff(path)
    store = Store(scratch / "store")
    try:
        obtain(
            Reference(transport=transport, path=os.fspath(path)),
            store,
            PullOptions(machine="x86_64", limits=LIMITS),
        )
    except BareboatError as error:
        found = error
    inodes, size = usage(scratch / "store")
    if inodes > 4 * LIMITS.max_entries or size > 4 * (LIMITS.max_unpacked_bytes + _SLACK_BYTES):
        raise Finding(f"{inodes} entries with {size:,} bytes are in the store")
    for other in (Transport.OCI_ARCHIVE, Transport.DOCKER_ARCHIVE):
        if other is not transport:
            with contextlib.suppress(BareboatError):
                local.open_local(path, other, scratch=scratch).document()
    from bareboat_images.transfer import bundles

    with contextlib.suppress(BareboatError):
        bundles.pins(path)
    if found is not None:
        raise found


def mend_archive(data: bytes) -> bytes:
    """Right digests, from the blobs up, and right checksums in the tar's headers. Layers that are compressed
    stay as they are."""
    if data[:2] == b"\x1f\x8b" or data[:4] == b"\x28\xb5\x2f\xfd":
        return data
    made = bytearray(mend_tar(data))
    for _ in range(4):
        changed = False
        for at in range(0, len(made) - 511, 512):
            if made[at + 257 : at + 262] != b"ustar":
                continue
            name = bytes(made[at : at + 100]).partition(b"\0")[0]
            wanted = re.search(rb"[0-9a-f]{64}", name)
            try:
                size = int(bytes(made[at + 124 : at + 135]).strip(b"\0 ") or b"0", 8)
            except ValueError:
                continue
            if wanted is None or not 0 < size <= len(made):
                continue
            right = hashlib.sha256(made[at + 512 : at + 512 + size]).hexdigest().encode()
            if right != wanted[0]:
                made = made.replace(wanted[0], right)
                changed = True
        if not changed:
            break
    return mend_tar(bytes(made))


_TAR_WORDS = (
    b"../", b".wh.", b".wh..wh..opq", b"././@LongLink", b"ustar\x0000", b"ustar  \0", b"GNU.sparse.map=0,1",
    b"GNU.sparse.size=9", b"SCHILY.xattr.user.x=y", b"30 linkpath=", b"path=", b"77777777777\0", b"\x80\0\0",
)  # fmt: skip

READERS = (
    Reader(name="layers", read=read_layer, mend=mend_layer, words=_TAR_WORDS),
    Reader(name="sif", read=read_sif_file, words=(b"SIF_MAGIC\0", b"\x04\x40\0\0", b"hsqs")),
    Reader(name="squashfs", read=read_squashfs, words=(b"hsqs", b".."), processes=True),
    Reader(name="archives", read=read_archive, mend=mend_archive, words=_TAR_WORDS),
)
