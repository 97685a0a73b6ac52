"""Unpacking: what a layer becomes on disk."""

import errno
import gzip
import os
import random
import stat
import struct
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
import tars
import zstandard
from registries import sha256
from tars import MTIME, archive, file, folder, hardlink, pax, symlink, unpack_bytes
from tools import tool

from bareboat_base.errors import ImageError


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "tree"


@pytest.fixture
def overlay(tmp_path: Path) -> None:
    """Skip where the file system has no whiteouts, or no attributes."""
    try:
        os.mknod(tmp_path / "probe", stat.S_IFCHR, 0)
        os.setxattr(tmp_path, "user.probe", b"x")
    except OSError as error:
        pytest.skip(f"this file system has no whiteouts: {error}")


def is_whiteout(path: Path) -> bool:
    state = path.lstat()
    return stat.S_ISCHR(state.st_mode) and state.st_rdev == 0


def opaque(path: Path) -> bool:
    try:
        return os.getxattr(path, "user.overlay.opaque") == b"y"
    except OSError:
        return False


LAYER = archive(
    folder(b"./", 0o755),
    folder(b"./bin/", 0o750, mtime=1000),
    file(b"./bin/tool", b"#!/bin/sh\n", mode=0o755, mtime=2000),
    symlink(b"./bin/link", b"tool"),
    hardlink(b"./bin/same", b"./bin/tool"),
    file(b"./etc/implied/conf", b"x" * 3000, mode=0o640),
    file(b"./empty", b""),
    file(b"./.hidden", b"h"),
)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize("size", [11, 512, 100_000])
def test_layer_becomes_a_tree(target: Path, pack: Any, size: int) -> None:
    found = unpack_bytes(pack(LAYER), target, size=size)
    assert found.diff_id == sha256(LAYER)
    assert found.tar_bytes == len(LAYER)
    assert found.unpacked_bytes == 10 + 3000 + 1
    assert found.inodes == tars.inodes(target) == 9
    assert found.stackable
    assert not found.rebuildable
    assert found.notes == ()
    assert (target / "bin/tool").read_bytes() == b"#!/bin/sh\n"
    assert (target / "bin/tool").stat().st_mode & 0o7777 == 0o755
    assert (target / "bin/tool").stat().st_ino == (target / "bin/same").stat().st_ino
    assert (target / "bin").stat().st_mode & 0o7777 == 0o750
    assert (target / "etc/implied/conf").stat().st_mode & 0o7777 == 0o640
    assert os.readlink(target / "bin/link") == "tool"
    for path, seconds in {
        "": MTIME, "bin": 1000, "bin/tool": 2000, "bin/link": MTIME, "etc": MTIME, "etc/implied": MTIME,
    }.items():  # fmt: skip
        assert os.lstat(target / path).st_mtime_ns == seconds * 10**9, path


@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o777])
def test_modes_do_not_depend_on_the_umask(target: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        target.mkdir(mode=0o700)
        os.chmod(target, 0o700)
        unpack_bytes(
            archive(
                file(b"open", mode=0o666),
                file(b"closed", mode=0),
                file(b"setuid", mode=0o6755),
                file(b"sticky", mode=0o1644),
                folder(b"tmp/", 0o1777),
                folder(b"setgid/", 0o2775),
                folder(b"closed.d/", 0o055),
                folder(b"listed.d/", 0o555),
                file(b"implied/x"),
                tars.header(b"pipe", kind=b"6", mode=0o622),
            ),
            target,
        )
    finally:
        os.umask(before)
    modes = {
        path.name: stat.S_IMODE(path.lstat().st_mode) for path in target.iterdir() if path.name != "pipe"
    }
    assert modes == {
        "open": 0o666, "closed": 0o400, "setuid": 0o755, "sticky": 0o644, "tmp": 0o1777, "setgid": 0o775,
        "closed.d": 0o555, "listed.d": 0o555, "implied": 0o755,
    }  # fmt: skip
    assert stat.S_ISFIFO((target / "pipe").lstat().st_mode)
    assert stat.S_IMODE(target.stat().st_mode) == 0o755


def test_modes_do_not_depend_on_a_default_access_list(target: Path) -> None:
    target.mkdir()
    nobody = 0xFFFFFFFF
    entries = b"".join(
        struct.pack("<HHI", tag, rights, nobody) for tag, rights in ((1, 7), (4, 0), (0x20, 0))
    )
    try:  # https://www.man7.org/linux/man-pages/man5/acl.5.html
        os.setxattr(target, "system.posix_acl_default", struct.pack("<I", 2) + entries)
    except OSError:
        return  # a file system without access lists has no such trouble
    unpack_bytes(archive(file(b"f", mode=0o755), file(b"d/e", mode=0o644), folder(b"d/", 0o755)), target)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in target.rglob("*")}
    assert modes == {"f": 0o755, "d": 0o755, "e": 0o644}


def test_names_may_be_written_in_many_ways(target: Path) -> None:
    unpack_bytes(
        archive(
            file(b"/absolute"),
            file(b"././a//b/./c"),
            file(b"a/x/../up"),
            file(b"a/.hidden/f"),
            folder(b"a/d///"),
            file(b"slash/", kind=b"0"),
            folder(b"/"),
        ),
        target,
    )
    assert sorted(path.decode() for path in tars.tree(target)) == [
        "a", "a/.hidden", "a/.hidden/f", "a/b", "a/b/c", "a/d", "a/up", "absolute", "slash",
    ]  # fmt: skip


def test_later_entries_replace_earlier_ones_of_every_kind(tmp_path: Path) -> None:
    def made(kind: str, name: bytes) -> bytes:
        return {
            "file": file(name, b"data of " + name),
            "folder": folder(name + b"/") + file(name + b"/in/side", b"deep"),
            "link": symlink(name, b"elsewhere"),
            "hard": hardlink(name, b"base"),
            "pipe": tars.header(name, kind=b"6"),
            "gone": file(b".wh." + name),
        }[kind]

    kinds = ("file", "folder", "link", "hard", "pipe", "gone")
    for first in kinds:
        for second in kinds:
            target = tmp_path / f"{first}-{second}"
            found = unpack_bytes(archive(file(b"base", b"b"), made(first, b"x"), made(second, b"x")), target)
            shown = second if second != "gone" or first == "gone" else first
            state = (target / "x").lstat()
            match shown:
                case "file":
                    assert (target / "x").read_bytes() == b"data of x"
                case "folder":
                    assert (target / "x/in/side").read_bytes() == b"deep"
                    assert opaque(target / "x") == ("gone" in (first, second))
                case "link":
                    assert os.readlink(target / "x") == "elsewhere"
                case "hard":
                    assert state.st_ino == (target / "base").stat().st_ino
                case "pipe":
                    assert stat.S_ISFIFO(state.st_mode)
                case _:
                    assert is_whiteout(target / "x")
            assert found.inodes == tars.inodes(target), (first, second)
            sizes = {path.stat().st_ino: path.stat().st_size for path in target.rglob("*") if path.is_file()}
            assert found.unpacked_bytes == sum(sizes.values()), (first, second)


def test_folder_named_twice_keeps_what_is_in_it(target: Path) -> None:
    unpack_bytes(archive(folder(b"d/", 0o700, 1), file(b"d/f"), folder(b"d/", 0o755, 2)), target)
    assert (target / "d/f").exists()
    assert stat.S_IMODE((target / "d").stat().st_mode) == 0o755
    assert (target / "d").stat().st_mtime_ns == 2 * 10**9


def test_symbolic_links_on_the_way_are_followed_inside_the_layer(target: Path) -> None:
    unpack_bytes(
        archive(
            folder(b"usr/lib/"),
            symlink(b"lib", b"usr/lib"),
            symlink(b"abs", b"/usr/lib"),
            symlink(b"usr/up", b"../../../../../usr"),
            symlink(b"chain", b"abs"),
            file(b"lib/a"),
            file(b"abs/b"),
            file(b"usr/up/lib/c"),
            file(b"chain/sub/d"),
            symlink(b"ahead", b"/later/on"),
            file(b"ahead/e"),
            hardlink(b"h", b"chain/sub/d"),
        ),
        target,
    )
    assert sorted(os.listdir(target / "usr/lib")) == ["a", "b", "c", "sub"]
    assert (target / "later/on/e").exists()
    assert (target / "h").stat().st_ino == (target / "usr/lib/sub/d").stat().st_ino


def test_hard_link_is_to_a_link_itself(target: Path) -> None:
    unpack_bytes(archive(file(b"f"), symlink(b"l", b"f"), hardlink(b"h", b"l")), target)
    assert os.readlink(target / "h") == "f"


def test_hard_link_to_itself_changes_nothing(target: Path) -> None:
    unpack_bytes(archive(file(b"f", b"data"), hardlink(b"./f", b"/f")), target)
    assert (target / "f").read_bytes() == b"data"


@pytest.mark.parametrize("code", [errno.EMLINK, errno.EPERM])
def test_hard_links_become_copies_where_they_are_refused(
    target: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    found = unpack_bytes(
        archive(file(b"f", b"data", mode=0o751, mtime=77), hardlink(b"h", b"f"), symlink(b"s", b"f"),
                hardlink(b"s2", b"s"), tars.header(b"p", kind=b"6"), hardlink(b"p2", b"p")),
        target,
    )  # fmt: skip
    assert (target / "h").read_bytes() == b"data"
    assert (target / "h").stat().st_mode & 0o777 == 0o751
    assert (target / "h").stat().st_mtime == 77
    assert os.readlink(target / "s2") == "f"
    assert stat.S_ISFIFO((target / "p2").lstat().st_mode)
    assert found.inodes == tars.inodes(target)
    assert found.unpacked_bytes == 8
    assert found.notes == ("hard links became copies, as the file system refuses them: h, s2, p2",)


@pytest.mark.usefixtures("overlay")
def test_attributes_of_users_are_kept_and_others_said(target: Path) -> None:
    attributes = pax(
        (b"SCHILY.xattr.user.colour", b"blue"),
        (b"SCHILY.xattr.security.capability", b"\x01"),
        (b"SCHILY.xattr.trusted.overlay.opaque", b"y"),
        (b"SCHILY.xattr.user.overlay.opaque", b"y"),
        (b"SCHILY.xattr.user.overlay.redirect", b"/etc"),
    )
    found = unpack_bytes(
        archive(
            attributes + file(b"f", mode=0o400), attributes + folder(b"d/"), attributes + symlink(b"s", b"x")
        ),
        target,
    )
    assert os.listxattr(target / "f") == ["user.colour"]
    assert os.listxattr(target / "d") == ["user.colour"]
    assert os.getxattr(target / "f", "user.colour") == b"blue"
    assert len(found.notes) == 2
    assert "security.capability, trusted.overlay.opaque, user.overlay.opaque" in found.notes[0]


@pytest.mark.parametrize("sparse", [pytest.param(n, id=str(n)) for n in (0, 1, 3)])
def test_sparse_files_keep_their_holes(target: Path, sparse: int) -> None:
    size = 50 << 20
    spans = [(at * (10 << 20), 4096) for at in range(1, 1 + sparse)]
    data = b"".join(bytes([65 + number]) * length for number, (_, length) in enumerate(spans))
    numbers = b",".join(b"%d,%d" % span for span in spans)
    found = unpack_bytes(
        archive(
            pax((b"GNU.sparse.size", b"%d" % size), (b"GNU.sparse.map", numbers)),
            file(b"s", data),
            file(b"t"),
        ),
        target,
    )
    state = (target / "s").stat()
    assert state.st_size == size
    assert state.st_blocks * 512 < 1 << 20
    assert found.unpacked_bytes == size
    expected = bytearray(size)
    for number, (offset, length) in enumerate(spans):
        expected[offset : offset + length] = bytes([65 + number]) * length
    assert (target / "s").read_bytes() == bytes(expected)


# Whiteouts.


@pytest.mark.usefixtures("overlay")
def test_whiteouts_become_what_overlayfs_reads(target: Path) -> None:
    found = unpack_bytes(
        archive(
            file(b"a/.wh.gone"),
            file(b"b/.wh..wh..opq"),
            file(b"b/new"),
            file(b".wh..wh.aufs"),
            file(b".wh..wh.plnk/12.34", b"x" * 700),
            folder(b".wh..wh.orph/"),
            file(b".wh.with content", b"y" * 700),
            file(b"z"),
        ),
        target,
    )
    assert is_whiteout(target / "a/gone")
    assert is_whiteout(target / "with content")
    assert opaque(target / "b")
    assert sorted(os.listdir(target)) == ["a", "b", "with content", "z"]
    assert found.stackable
    assert found.inodes == tars.inodes(target)


@pytest.mark.usefixtures("overlay")
def test_whiteout_speaks_of_lower_layers_only(target: Path) -> None:
    unpack_bytes(
        archive(
            file(b"before"), file(b".wh.before"), file(b".wh.after"), file(b"after", b"x"),
            folder(b"d1/"), file(b"d1/f"), file(b".wh.d1"), file(b".wh.d2"), file(b"d2/f"),
        ),
        target,
    )  # fmt: skip
    assert (target / "before").is_file()
    assert (target / "after").read_bytes() == b"x"
    for name in ("d1", "d2"):
        assert (target / name / "f").is_file()
        assert opaque(target / name)


@pytest.mark.usefixtures("overlay")
def test_opaque_root_cannot_be_stacked(target: Path) -> None:
    found = unpack_bytes(archive(file(b".wh..wh..opq"), file(b"a")), target)
    assert not found.stackable
    assert opaque(target)


def test_markers_stay_where_the_file_system_has_no_whiteouts(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no")

    monkeypatch.setattr(os, "mknod", refuse)
    monkeypatch.setattr(os, "setxattr", refuse)
    data = archive(file(b".wh.gone"), file(b".wh.gone"), file(b"d/.wh..wh..opq"), file(b"d/f"))
    found = unpack_bytes(data, target)
    assert not found.stackable
    assert sorted(path.decode() for path in tars.tree(target)) == [".wh.gone", "d", "d/.wh..wh..opq", "d/f"]
    assert found.inodes == tars.inodes(target)


def test_full_disk_is_no_reason_for_a_marker(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "mknod", refuse)
    with pytest.raises(OSError, match="full"):
        unpack_bytes(archive(file(b".wh.gone")), target)


# Streams, limits, errors.


def test_empty_layers(target: Path, tmp_path: Path) -> None:
    assert unpack_bytes(gzip.compress(bytes(1024)), target).inodes == 1
    assert unpack_bytes(b"", tmp_path / "other").diff_id == sha256(b"")
    assert stat.S_IMODE(target.stat().st_mode) == 0o755


def test_threads_end_when_unpacking_fails(target: Path) -> None:
    before = threading.active_count()
    data = archive(file(b"../out"), *(file(b"f%d" % number, bytes(1 << 20)) for number in range(60)))
    with pytest.raises(ImageError):
        unpack_bytes(data, target)
    assert threading.active_count() == before


def test_descriptors_are_closed_when_unpacking_fails(target: Path, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ImageError):
        unpack_bytes(archive(file(b"a/b/c"), file(b"../out")), target, recipe=tmp_path / "recipe")
    assert len(os.listdir("/proc/self/fd")) == before


def test_writes_may_be_short(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, pwrite = os.write, os.pwrite
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:100]))
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, at: pwrite(descriptor, data[:3], at))
    data = b"".join(b"%d" % number for number in range(1000))
    sparse = pax((b"GNU.sparse.size", b"100"), (b"GNU.sparse.map", b"50,10")) + file(b"s", b"0123456789")
    unpack_bytes(archive(file(b"f", data), sparse), target)
    assert (target / "f").read_bytes() == data
    assert (target / "s").read_bytes() == bytes(50) + b"0123456789" + bytes(40)


def test_file_system_that_takes_case_twins_as_one_is_refused(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lstat, os_open = os.lstat, os.open

    def lower(path: Any) -> Any:
        return path.lower() if isinstance(path, (str, bytes)) and len(path) < 20 else path

    monkeypatch.setattr(os, "lstat", lambda path, **more: lstat(lower(path), **more))
    monkeypatch.setattr(
        os, "open", lambda path, flags, mode=0o777, **more: os_open(lower(path), flags, mode, **more)
    )
    with pytest.raises(ImageError, match="entry README differs from another only in case"):
        unpack_bytes(archive(file(b"readme", b"1"), file(b"README", b"2")), target)


# Against GNU tar.


@pytest.mark.parametrize(
    ("dialect", "sparse"),
    [
        *((dialect, ()) for dialect in ("v7", "ustar", "oldgnu", "gnu", "pax")),
        *((dialect, ("--sparse",)) for dialect in ("oldgnu", "gnu", "pax")),
        *(("pax", ("--sparse", f"--sparse-version={version}")) for version in ("0.0", "0.1")),
    ],
)
def test_tree_equals_what_gnu_tar_packed(tmp_path: Path, dialect: str, sparse: tuple[str, ...]) -> None:
    tar = tool("tar")
    given, made = tmp_path / "given", tmp_path / "made"
    given.mkdir()
    chance = random.Random(dialect)
    for number in range(60):
        parent = given / "/".join(f"d{chance.randrange(4)}" for _ in range(chance.randrange(4)))
        parent.mkdir(parents=True, exist_ok=True)
        path = parent / f"n{number}{'x' * chance.randrange(60)}"
        match chance.randrange(5):
            case 0:
                path.symlink_to("t" * chance.randrange(1, 90))
            case 1:
                path.mkdir(mode=0o755)
            case 2:
                (parent / f"f{number}").write_bytes(b"linked")
                os.link(parent / f"f{number}", path)
            case 3:
                with open(path, "wb") as stream:
                    for _ in range(3):
                        stream.seek(chance.randrange(1 << 20), os.SEEK_CUR)
                        stream.write(chance.randbytes(5000))
            case _:
                path.write_bytes(chance.randbytes(chance.randrange(5000)))
        os.utime(path, ns=(0, chance.randrange(2**31) * 10**9), follow_symlinks=False)
    packed = tmp_path / "layer.tar"
    subprocess.run(
        [tar, f"--format={dialect}", *sparse, "-C", str(given), "-cf", str(packed), "."], check=True
    )
    found = unpack_bytes(packed.read_bytes(), made, recipe=tmp_path / "recipe")
    extracted = tmp_path / "extracted"
    extracted.mkdir()
    subprocess.run([tar, "--no-same-owner", "-p", "-C", str(extracted), "-xf", str(packed)], check=True)
    assert tars.tree(made, times=True) == tars.tree(extracted, times=True)
    assert found.inodes == tars.inodes(made)
