"""Kinds of file systems, by the names that the kernel gives them. Pure."""

from __future__ import annotations

import re

#: What the kernel and FUSE call some of them -> the name that everybody knows.
_NAMES = {"smb": "cifs", "pvfs": "orangefs", "ceph-fuse": "ceph", "gpfs_fs": "gpfs", "dfs": "hdfs"}

#: Their contents are gone with the machine's next start.
IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "zram"})

#: A machine has only a client of them: each open of a file is a request to a server.
NETWORKED = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "cvmfs", "dfuse", "dvs", "gfarm2fs", "glusterfs", "gpfs", "hdfs",
    "juicefs", "lizardfs", "lustre", "moosefs", "nfs", "orangefs", "panfs", "quobyte", "sshfs", "virtiofs",
    "wekafs",
})  # fmt: skip


def common_name(kind: str) -> str:
    """The name without FUSE's prefix and the protocol's version: nfs4 -> nfs, smb3 -> cifs.

    Only what is known with its digits keeps them: 9p, gfarm2fs, ext4.
    """
    bare = kind.removeprefix("fuse.")
    for name in (bare, re.sub(r"\d+$", "", bare)):
        name = _NAMES.get(name, name)
        if name in NETWORKED:
            return name
    return kind


def is_networked(kind: str) -> bool:
    """Whether many machines share the file system over a network."""
    return common_name(kind) in NETWORKED
