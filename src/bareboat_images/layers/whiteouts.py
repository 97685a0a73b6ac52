"""How a layer marks an entry of the layers below as deleted, in a tar and in a tree.

In an overlay mount's tree a whiteout is a character device 0:0, an opaque directory has
`user.overlay.opaque` (bwrap mounts with `userxattr`); in a tar, and where a file system refuses those, both
are files.
https://docs.kernel.org/filesystems/overlayfs.html#whiteouts-and-opaque-directories
https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts
"""

from __future__ import annotations

import contextlib
import os
import stat

WHITEOUT = b".wh."
OPAQUE = b".wh..wh..opq"
#: aufs reserves names with this prefix for itself.
AUFS = b".wh..wh."
OPAQUE_XATTR = b"user.overlay.opaque"
#: Prefix of the attributes that overlayfs interprets: no layer may set them.
OVERLAY_XATTRS = b"user.overlay."


def is_opaque(folder: bytes | int) -> bool:
    """Whether a directory (path or descriptor) hides its content in the layers below."""
    with contextlib.suppress(OSError):
        return os.getxattr(folder, OPAQUE_XATTR) == b"y"
    return False


def is_whiteout(state: os.stat_result) -> bool:
    return stat.S_ISCHR(state.st_mode) and state.st_rdev == 0
