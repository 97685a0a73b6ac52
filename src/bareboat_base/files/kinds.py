"""Pure: types of file systems, by the kernel's names."""

from __future__ import annotations

import re

#: The kernel's and FUSE's names -> the common name.
_NAMES = {"smb": "cifs", "pvfs": "orangefs", "ceph-fuse": "ceph", "gpfs_fs": "gpfs", "dfs": "hdfs"}

#: File systems whose contents do not survive a restart.
IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "zram"})

#: Network file systems: each open of a file is a request to a server.
NETWORKED = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "cvmfs", "dfuse", "dvs", "gfarm2fs", "glusterfs", "gpfs", "hdfs",
    "juicefs", "lizardfs", "lustre", "moosefs", "nfs", "orangefs", "panfs", "quobyte", "sshfs", "virtiofs",
    "wekafs",
})  # fmt: skip


def common_name(kind: str) -> str:
    """The name without FUSE's prefix and the protocol's version: nfs4 -> nfs, smb3 -> cifs.

    Names that commonly have digits keep them: 9p, gfarm2fs, ext4.
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
