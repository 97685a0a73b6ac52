"""Squashfs files, alone or in a SIF: read with unsquashfs, written with mksquashfs.

Source of the format: https://www.kernel.org/doc/html/latest/filesystems/squashfs.html
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import stat
import struct
import tempfile
import weakref
from pathlib import Path

from msgspec.structs import replace

from bareboat_base import execute
from bareboat_base.errors import ImageError, StoreError
from bareboat_base.expressions import expression
from bareboat_base.files import outputs
from bareboat_base.files.trees import remove_tree
from bareboat_images.formats import enroot
from bareboat_images.formats.rootfs import Facts, FolderSource, read_facts
from bareboat_images.formats.sif import read_sif
from bareboat_images.layers import layer
from bareboat_images.model import Image
from bareboat_images.oci import documents
from bareboat_images.oci.source import Blob, Descriptor, Document, LocalSource
from bareboat_images.progress import Progress
from bareboat_images.sources.archive import open_regular
from bareboat_images.tar.limits import MAX_RATIO, RATIO_FROM_BYTES

MAGIC = b"hsqs"

_SUPERBLOCK = struct.Struct("<4sIIIIHHHHHHQQ")
#: The listing of the content is kept in memory, about a hundred bytes per file.
_MOST_INODES = 2_000_000
#: Long enough for tens of gigabytes on a slow file system; a tool that hangs is still killed.
_TIMEOUT_S = 6 * 3600.0
#: For each of two queues of unsquashfs, whose default is 256 MB.
_QUEUE_MB = "32"
_MKSQUASHFS_MEMORY = "256M"

_GET_TOOLS = (
    "install squashfs-tools: apt-get install squashfs-tools, or conda install -c conda-forge squashfs-tools"
)
#: `-rwxr-xr-x root/root   1996800 2026-11-21 03:18 ./bin/busybox`, printed by `unsquashfs -lls`.
_LISTED = expression(r"^[-bcdlps]\S{9} \S+ +(?:\d+, *)?(\d+) \d{4}-\d\d-\d\d \d\d:\d\d (.*)$", re.MULTILINE)
#: Messages of mksquashfs for entries that it cannot read; it still exits with 0.
_MISSED = expression(r"^.*(?:skipping\.\.\.|creating empty file)$", re.MULTILINE)
#: Messages about devices, which an unprivileged user cannot make and no image needs, and empty lines.
_HARMLESS = expression(r"you're not superuser|could not create (character|block) device|^\s*$")


class SquashSource(LocalSource):
    """The root file system in a squashfs or a SIF. Satisfies `Source`. The first call of `document` or `blob`
    unpacks it into `scratch`, by default into the directory for temporary files."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str,
        is_sif: bool,
        scratch: Path | None = None,
        max_ratio: float = MAX_RATIO,
    ) -> None:
        """Read and check the headers of the file. Raises ImageError."""
        self.name = name
        self._path = os.fspath(path)
        self._scratch = scratch
        self._max_ratio = max_ratio
        self._offset = 0
        self._architecture: str | None = None
        self._config: bytes | None = None
        self._made_from = "a squashfs"
        self._folder: FolderSource | None = None
        room: int | None = None
        if is_sif:
            sif = read_sif(path, name=name)
            system = sif.system()
            self._offset, room = system.offset, system.size
            self._architecture = system.architecture
            self._config = sif.oci_config
            self._made_from = "a SIF"
        read_superblock(path, name=name, offset=self._offset, room=room)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is excluded from the image; known after a call of `document`."""
        return self._folder.notes if self._folder is not None else ()

    def document(self, digest: str | None = None) -> Document:
        """The manifest or the config. The first call unpacks the squashfs and reads all of it."""
        return self._unpacked().document(digest)

    def blob(self, descriptor: Descriptor, offset: int = 0) -> contextlib.AbstractContextManager[Blob]:
        """The layer's tar."""
        return self._unpacked().blob(descriptor, offset)

    def _unpacked(self) -> FolderSource:
        if self._folder is None:
            # A private directory: as root, unsquashfs makes setuid files.
            folder = Path(tempfile.mkdtemp(prefix="squashfs-", dir=self._scratch))
            weakref.finalize(self, remove_tree, folder)
            tree = folder / "tree"
            unpack_squashfs(self._path, tree, name=self.name, offset=self._offset, max_ratio=self._max_ratio)
            facts = read_facts(str(tree), made_from=self._made_from, architecture=self._architecture)
            if self._config is not None:
                facts = _from_oci(self._config, facts, self.name)
            self._folder = FolderSource(tree, name=self.name, facts=facts, max_ratio=self._max_ratio)
        return self._folder


def _from_oci(data: bytes, facts: Facts, name: str) -> Facts:
    """Add the config of the OCI image from which a SIF was made; it is exact, the SIF's scripts are not."""
    read = documents.execution(data, name=name)
    if read.env is None and read.entrypoint is None and read.cmd is None:
        return facts
    return replace(
        facts,
        environment=facts.environment | read.environment | facts.own,
        entrypoint=tuple(read.entrypoint or ()),
        command=tuple(read.cmd or ()),
        workdir=read.working_dir or "/",
        labels=facts.labels | (read.labels or {}),
    )


def read_superblock(
    path: str | os.PathLike[str], *, name: str, offset: int = 0, room: int | None = None
) -> int:
    """Check that a complete squashfs is at the offset, within `room` bytes. Returns its size in bytes. Raises
    ImageError."""
    with open_regular(path, name=name) as stream:
        data = os.pread(stream.fileno(), _SUPERBLOCK.size, offset)
        rest = os.fstat(stream.fileno()).st_size - offset
    if len(data) < _SUPERBLOCK.size or not data.startswith(MAGIC):
        raise ImageError(f"{name} holds no squashfs", context=f"at byte {offset:,}", remedy="check the path")
    _, inodes, _, block_size, _, _, block_log, _, _, major, minor, _, bytes_used = _SUPERBLOCK.unpack(data)
    if (major, minor) != (4, 0):
        raise ImageError(
            f"{name} is a squashfs of version {major}.{minor}, from before 2009; tools of today read 4.0"
        )
    if not 12 <= block_log <= 20 or block_size != 1 << block_log or inodes == 0:
        raise ImageError(f"{name} is damaged: its squashfs has blocks of {block_size:,} bytes")
    if bytes_used > (rest if room is None else min(room, rest)):
        raise ImageError(
            f"{name} is cut off: its squashfs has {bytes_used:,} bytes, and only {max(rest, 0):,} are there",
            remedy="copy or make the file again",
        )
    if inodes > _MOST_INODES:
        raise ImageError(f"{name} declares {inodes:,} files; the limit is {_MOST_INODES:,}")
    return int(bytes_used)


def unpack_squashfs(
    path: str | os.PathLike[str], folder: Path, *, name: str, offset: int = 0, max_ratio: float = MAX_RATIO
) -> None:
    """Unpack a squashfs into a new directory, without extended attributes.

    Raises ImageError if unsquashfs is not installed or the file is invalid, StoreError without enough space.
    """
    unsquashfs = _tool("unsquashfs", f"{name} cannot be read: there is no unsquashfs on PATH")
    packed_bytes = read_superblock(path, name=name, offset=offset)
    # Absolute, since a path that begins with a dash would be read as an option.
    file = os.path.abspath(path)
    _check_listing(unsquashfs, file, offset, name, packed_bytes * max_ratio, max_ratio)
    done = execute.run(
        (
            unsquashfs, "-no-progress", "-no-xattrs", "-da", _QUEUE_MB, "-fr", _QUEUE_MB,
            *_at(offset), "-d", str(folder), file,
        ),
        environment=_plain_environment(),
        timeout_s=_TIMEOUT_S,
    )  # fmt: skip
    # Newer versions exit with 2 if something, such as a device node, could not be made.
    wrong = [line for line in done.stderr.splitlines() if not _HARMLESS.search(line)]
    if done.exit_code not in (0, 2) or (done.exit_code == 2 and wrong) or not folder.is_dir():
        full = any("No space left" in line or "Disk quota" in line for line in wrong)
        if full:
            raise StoreError(
                f"not enough space to unpack {name} into {folder.parent}",
                context=wrong[0],
                remedy="free some space there, or choose another place: TMPDIR=DIR, BAREBOAT_STORE=DIR",
            )
        raise ImageError(
            f"{name} cannot be unpacked: unsquashfs failed (exit code {done.exit_code})",
            context="\n".join((done.stdout.splitlines() + wrong)[-5:]),
            remedy="copy or make the file again; or it is compressed in a way that this unsquashfs does not "
            "know: unsquashfs -help lists what it does",
        )
    _own(str(folder))


def _check_listing(
    unsquashfs: str, file: str, offset: int, name: str, most_bytes: float, max_ratio: float
) -> None:
    """Check names and sizes before anything is written. Old versions of unsquashfs follow names that lead out
    of the directory (CVE-2021-40153), and all versions write files of any declared size."""
    done = execute.run(
        (unsquashfs, "-no-progress", *_at(offset), "-d", ".", "-lls", file),
        environment=_plain_environment(),
        timeout_s=_TIMEOUT_S,
    )
    if not done.ok:
        raise ImageError(
            f"{name} is damaged: unsquashfs cannot list it (exit code {done.exit_code})",
            context="\n".join((done.stdout.splitlines() + done.stderr.splitlines())[-5:]),
            remedy="copy or make the file again",
        )
    total = 0
    for size, path in _LISTED.findall(done.stdout):
        total += int(size)
        if ".." in path.partition(" -> ")[0].split("/"):
            raise ImageError(
                f"{name}: the entry {path!r} lies outside of the image",
                remedy="no tool writes such a squashfs; do not trust it",
            )
    if total > max(most_bytes, RATIO_FROM_BYTES):
        raise ImageError(
            f"{name} becomes more than {max_ratio:.0f} times as large when it is unpacked ({total:,} bytes); "
            "that is a decompression bomb, or very unusual",
            remedy=f"if you trust it: --max-ratio {10 * max_ratio:.0f}",
        )


def _own(tree: str) -> None:
    """Let the owner read all files and directories, as in the trees of layers."""
    folders = [tree]
    while folders:
        folder = folders.pop()
        mode = stat.S_IMODE(os.lstat(folder).st_mode)
        if mode & 0o500 != 0o500:
            os.chmod(folder, mode | 0o500)
        with os.scandir(folder) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    mode = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
                    if not mode & 0o400:
                        os.chmod(entry.path, mode | 0o400)


def make_squashfs(
    tree: Path, path: Path, *, image: Image | None = None, progress: Progress = lambda *_: None
) -> None:
    """Write a tree as one squashfs file, completely or not at all. Equal trees give equal bytes. `image`: its
    configuration goes into the tree first, in the files of Enroot.

    Root owns all files; extended attributes are not written. Raises ImageError if mksquashfs is not installed
    or fails, OSError without enough space.
    """
    mksquashfs = _tool("mksquashfs", f"{path} cannot be made: mksquashfs is not installed")
    if image is not None:
        enroot.write(tree, image)
    told = execute.run((mksquashfs, "-help"))
    can = told.stdout + told.stderr
    options = ["-noappend", "-no-progress", "-no-xattrs", "-all-root"]
    # 474 MB of Python packages on two cores: level 3 takes 3 s, gzip 31 s, the default level 15 takes 43 s;
    # the file of level 3 is 4 % larger than that of gzip and 15 % larger than that of level 15.
    options += ["-comp", "zstd", "-Xcompression-level", "3"] if re.search(r"^\s+zstd\b", can, re.M) else []
    # Not -all-time: Python uses a .pyc only if it records the time of its source.
    options += ["-mkfs-time", "0"] if "-mkfs-time" in can else ["-fstime", "0"] if "-fstime" in can else []
    options += ["-mem", _MKSQUASHFS_MEMORY] if re.search(r"^-mem ", can, re.M) else []
    with contextlib.suppress(OSError):
        # The top directory is in no layer, so its time is the time of unpacking.
        os.utime(tree, (layer.EPOCH, layer.EPOCH))
    progress("packing the squashfs", 0, 0)
    with outputs.beside(path) as part:
        done = execute.run(
            (mksquashfs, os.path.abspath(tree), str(part), *options),
            environment=_plain_environment(),
            timeout_s=_TIMEOUT_S,
        )
        output = done.stderr + done.stdout
        if not done.ok or not part.is_file():
            raise _failed(f"{path} cannot be made: mksquashfs failed", output, path)
        if missing := _MISSED.findall(output):
            raise ImageError(
                f"{path} cannot be made: {len(missing)} entries of {tree} cannot be read",
                context="\n".join(missing[:5]),
                remedy=f"chmod -R u+rX {shlex.quote(str(tree))}",
            )


def _at(offset: int) -> tuple[str, ...]:
    # Only if needed: old versions, which can read a plain squashfs, do not support the option.
    return ("-o", str(offset)) if offset else ()


def _failed(message: str, output: str, path: Path) -> ImageError | OSError:
    for code, words in ((errno.ENOSPC, "No space left"), (errno.EDQUOT, "Disk quota")):
        if words in output:
            return OSError(code, os.strerror(code), str(path))
    return ImageError(message, context="\n".join(output.splitlines()[-5:]))


def _tool(name: str, message: str) -> str:
    found = execute.which(name)
    if found is None:
        raise ImageError(message, remedy=_GET_TOOLS)
    return found


def _plain_environment() -> dict[str, str]:
    """A fixed language and time zone, for parsing; no variables that change the output of the tools."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
