"""Writes the entries of a tar: headers, contents, padding.

Source: POSIX.1-2001 pax, https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html#tag_20_92_13_01
"""

from __future__ import annotations

import functools
import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import IO, NamedTuple

from bareboat_base.files import untrusted
from bareboat_images.tar.reader import FILE, FOLDER, LINK, SYMLINK

BLOCK = 512
END = bytes(2 * BLOCK)

_CHUNK = 1 << 20
_FITS = 100
_USTAR = struct.Struct("<100s8s8s8s12s12s8sc100s8s247x")


class Style(NamedTuple):
    """How an entry is written. Without `plain`, byte for byte as Python's tarfile writes it in pax format,
    which also has records for non-ASCII names: digests of captured layers are of those bytes. `owner`: user
    and group; `xattrs`: extended attributes."""

    plain: bool = True
    owner: tuple[int, int] = (0, 0)
    xattrs: tuple[tuple[bytes, bytes], ...] = ()


_PLAIN = Style()


def header(
    name: bytes,
    kind: bytes,
    *,
    mode: int,
    size: int = 0,
    mtime: int = 0,
    link: bytes = b"",
    style: Style = _PLAIN,
) -> bytes:
    """A ustar header, preceded by a pax header for values that do not fit. `kind`: as in `tarreader`."""
    plain, owner, xattrs = style.plain, style.owner, style.xattrs
    records = b""
    if not plain and not (_is_text(name) and _is_text(link)):
        records += _record(b"hdrcharset", b"BINARY")
    for key, value, fits in (
        (b"path", name, len(name) <= _FITS and (plain or name.isascii())),
        (b"linkpath", link, len(link) <= _FITS and (plain or link.isascii())),
        (b"size", b"%d" % size, size < 8**11),
        (b"mtime", b"%d" % mtime, 0 <= mtime < 8**11),
        (b"uid", b"%d" % owner[0], owner[0] < 8**7),
        (b"gid", b"%d" % owner[1], owner[1] < 8**7),
        *((b"SCHILY.xattr." + key, value, False) for key, value in xattrs),
    ):
        if not fits:
            records += _record(key, value)
    if not plain:
        name, link = _in_ascii(name), _in_ascii(link)
    written = _ustar(
        name[:_FITS],
        kind,
        mode=mode,
        size=size if size < 8**11 else 0,
        mtime=mtime if 0 <= mtime < 8**11 else 0,
        link=link[:_FITS],
        owner=(owner[0] % 8**7, owner[1] % 8**7),
    )
    if not records:
        return written
    before = _ustar(b"././@PaxHeader", b"x", mode=0o644 if plain else 0, size=len(records), mtime=0, link=b"")
    return before + records + padding(len(records)) + written


class Rules(NamedTuple):
    """How a tree is written: the mode and the time of an entry, by its state; whether a file may be a link to
    an earlier name of it; what happens with a path that is no file, directory or link; whether a file that
    its owner cannot read is an empty one, or an error."""

    mode: Callable[[os.stat_result], int]
    mtime: Callable[[os.stat_result], int]
    links: Callable[[os.stat_result], bool]
    other: Callable[[str], None]
    style: Style = _PLAIN
    empties_unreadable: bool = False


def of_tree(tree: str, entries: Iterable[tuple[str, os.stat_result]], rules: Rules) -> Iterator[bytes]:
    """The tar of these entries of a tree, in pieces. Raises EOFError, with the path, for a file that becomes
    shorter, and OSError."""
    first_names: dict[tuple[int, int], bytes] = {}
    for path, state in entries:
        name, full = os.fsencode(path), os.path.join(tree, path)
        head = functools.partial(header, mode=rules.mode(state), mtime=rules.mtime(state), style=rules.style)
        if stat.S_ISDIR(state.st_mode):
            yield head(name + b"/", FOLDER)
        elif stat.S_ISLNK(state.st_mode):
            yield head(name, SYMLINK, mode=0o777, link=os.fsencode(os.readlink(full)))
        elif not stat.S_ISREG(state.st_mode):
            rules.other(path)
        else:
            same = name
            if rules.links(state):
                same = first_names.setdefault((state.st_dev, state.st_ino), name)
            if same != name:
                yield head(name, LINK, link=same)
                continue
            try:
                stream = untrusted.stream(full, buffering=0)
            except PermissionError:
                if not rules.empties_unreadable:
                    raise
                yield head(name, FILE)
                continue
            yield head(name, FILE, size=state.st_size)
            try:
                with stream:
                    yield from content(stream, state.st_size)
            except EOFError:
                raise EOFError(path) from None
    yield END


def content(stream: IO[bytes], size: int) -> Iterator[bytes]:
    """The part after a file's header: its bytes, and padding. Raises EOFError if the file is shorter."""
    left = size
    while left and (chunk := stream.read(min(_CHUNK, left))):
        left -= len(chunk)
        yield chunk
    if left:
        raise EOFError
    yield padding(size)


def padding(size: int) -> bytes:
    """The padding of the last block for a content of `size` bytes."""
    return bytes(-size % BLOCK)


def _ustar(
    name: bytes,
    kind: bytes,
    *,
    mode: int,
    size: int,
    mtime: int,
    link: bytes,
    owner: tuple[int, int] = (0, 0),
) -> bytes:
    made = _USTAR.pack(
        name, b"%07o" % mode, b"%07o" % owner[0], b"%07o" % owner[1], b"%011o" % size, b"%011o" % mtime,
        b" " * 8, kind, link, b"ustar\x0000",
    )  # fmt: skip
    return made[:148] + b"%06o\0 " % sum(made) + made[156:]


def _record(key: bytes, value: bytes) -> bytes:
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %s=%s\n" % (length, key, value)


def _in_ascii(name: bytes) -> bytes:
    return name.decode(errors="surrogateescape").encode("ascii", "replace")


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
