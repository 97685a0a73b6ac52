"""Layers made by hand, byte by byte where it matters, and what became of them."""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from bareboat_base.errors import ImageError
from bareboat_images.layers.unpack import Unpacked, unpack
from bareboat_images.tar.limits import Limits

MTIME = 1_600_000_000


def header(
    name: bytes,
    *,
    kind: bytes = b"0",
    size: int = 0,
    mode: int = 0o644,
    mtime: int = MTIME,
    link: bytes = b"",
    magic: bytes = b"ustar\x0000",
    prefix: bytes = b"",
    tail: bytes = b"",
    size_field: bytes | None = None,
    mtime_field: bytes | None = None,
) -> bytes:
    """One block of 512 bytes with the right checksum. `tail` stands from byte 345 on."""
    head = b"".join(
        (
            name.ljust(100, b"\0"),
            b"%07o\0" % mode,
            b"%07o\0" % 1234,
            b"%07o\0" % 1234,
            b"%011o\0" % size if size_field is None else size_field,
            b"%011o\0" % mtime if mtime_field is None else mtime_field,
            b" " * 8,
            kind,
            link.ljust(100, b"\0"),
            magic,
            b"root".ljust(32, b"\0"),
            b"root".ljust(32, b"\0"),
            b"%07o\0" % 0,
            b"%07o\0" % 0,
            (tail or prefix).ljust(167, b"\0"),
        )
    )
    assert len(head) == 512, len(head)
    return head[:148] + b"%06o\0 " % sum(head) + head[156:]


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def file(name: bytes, data: bytes = b"", **fields: object) -> bytes:
    return header(name, size=len(data), **fields) + padded(data)  # type: ignore[arg-type]


def folder(name: bytes, mode: int = 0o755, mtime: int = MTIME) -> bytes:
    return header(name, kind=b"5", mode=mode, mtime=mtime)


def symlink(name: bytes, target: bytes) -> bytes:
    return header(name, kind=b"2", link=target, mode=0o777)


def hardlink(name: bytes, target: bytes) -> bytes:
    return header(name, kind=b"1", link=target)


def long_name(name: bytes, kind: bytes = b"L") -> bytes:
    """GNU's entry for a name (or, with `K`, a link) that is too long for a header."""
    return header(b"././@LongLink", kind=kind, size=len(name) + 1, magic=b"ustar  \0") + padded(name + b"\0")


def pax(*records: tuple[bytes, bytes], kind: bytes = b"x") -> bytes:
    data = b"".join(record(key, value) for key, value in records)
    return header(b"PaxHeaders/x", kind=kind, size=len(data)) + padded(data)


def record(key: bytes, value: bytes) -> bytes:
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest) + 1
    while len(b"%d" % length) + len(rest) != length:
        length += 1
    return b"%d" % length + rest


def archive(*entries: bytes) -> bytes:
    return b"".join(entries) + bytes(1024)


def pieces(data: bytes, size: int = 100_000) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def unpack_bytes(
    data: bytes,
    target: Path,
    *,
    limits: Limits | None = None,
    recipe: Path | None = None,
    name: str = "layer 3 (sha256:abc)",
    size: int = 100_000,
) -> Unpacked:
    """Unpack into a folder that is made."""
    target.mkdir(exist_ok=True)
    return unpack(pieces(data, size), target, name=name, limits=limits or Limits(), recipe=recipe)


def tree(top: Path, *, times: bool = False) -> dict[bytes, tuple[object, ...]]:
    """Every path below a folder, and what is there: enough to tell two trees apart. Hard links are told by
    the first name of their group."""
    found: dict[bytes, tuple[object, ...]] = {}
    groups: dict[int, bytes] = {}
    pending = [b""]
    while pending:
        relative = pending.pop()
        here = os.path.join(os.fsencode(top), relative)
        for name in sorted(os.listdir(here)):
            path = os.path.join(relative, name)
            full = os.path.join(os.fsencode(top), path)
            state = os.lstat(full)
            what: tuple[object, ...] = (stat.filemode(state.st_mode),)
            if stat.S_ISDIR(state.st_mode):
                pending.append(path)
                what += (xattrs(full),)
            elif stat.S_ISLNK(state.st_mode):
                what += (os.readlink(full),)
            elif stat.S_ISREG(state.st_mode):
                what += (Path(os.fsdecode(full)).read_bytes(), xattrs(full))
                if state.st_nlink > 1:
                    what += (state.st_ino,)
            elif stat.S_ISCHR(state.st_mode):
                what += (state.st_rdev,)
            found[path] = (*what, state.st_mtime_ns) if times else what
    for path in sorted(found):  # inode numbers -> the first name
        what = found[path]
        if what[0] and str(what[0]).startswith("-") and len(what) == (5 if times else 4):
            first = groups.setdefault(int(str(what[3])), path)
            found[path] = (*what[:3], first, *what[4:])
    return found


def xattrs(path: bytes) -> tuple[tuple[str, bytes], ...]:
    """The user's attributes."""
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:
        return ()
    return tuple((name, os.getxattr(path, name)) for name in sorted(names) if name.startswith("user."))


def inodes(top: Path) -> int:
    """How many there are, the folder's own included."""
    seen = {os.lstat(top).st_ino}
    for here, folders, files in os.walk(os.fsencode(top)):
        seen.update(os.lstat(os.path.join(here, name)).st_ino for name in (*folders, *files))
    return len(seen)


def snapshot(top: Path, *, but: Sequence[Path] = ()) -> dict[str, tuple[int, int, int]]:
    """All that is below a folder, in short: to tell that nothing was changed in it."""
    found = {}
    for here, folders, files in os.walk(top):
        folders[:] = [name for name in folders if Path(here, name) not in but]
        for name in (*folders, *files):
            path = os.path.join(here, name)
            state = os.lstat(path)
            found[path] = (state.st_mode, state.st_size, state.st_mtime_ns)
    return found


def attempt(data: bytes, target: Path, *, name: str = "layer 3 (sha256:abc)") -> Unpacked | ImageError:
    """Unpack, or what was said against it: for layers that may be either."""
    try:
        return unpack_bytes(data, target, name=name)
    except ImageError as error:
        return error
