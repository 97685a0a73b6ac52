"""How a layer says that something of the layers below is gone, in a tar and in a tree.

In an overlay mount's tree a whiteout is a character device 0:0, an opaque folder has `user.overlay.opaque`
(bwrap mounts with `userxattr`); in a tar, and where a file system refuses those, both are files.
https://docs.kernel.org/filesystems/overlayfs.html#whiteouts-and-opaque-directories
https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts
"""

from __future__ import annotations

import contextlib
import os
import stat

WHITEOUT = b".wh."
OPAQUE = b".wh..wh..opq"
#: aufs kept its own affairs under names that begin so.
AUFS = b".wh..wh."
OPAQUE_XATTR = b"user.overlay.opaque"
#: What overlayfs reads as orders of its own: no layer may give them.
OVERLAY_XATTRS = b"user.overlay."


def is_opaque(folder: bytes | int) -> bool:
    """Whether a directory, by its path or a descriptor, hides what the layers below have there."""
    with contextlib.suppress(OSError):
        return os.getxattr(folder, OPAQUE_XATTR) == b"y"
    return False


def is_whiteout(state: os.stat_result) -> bool:
    return stat.S_ISCHR(state.st_mode) and state.st_rdev == 0
