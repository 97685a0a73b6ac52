"""Squashfs files: what their first bytes say, and what is said where a tool is missing or answers oddly.

The tools are fakes here; the real ones are in tests/contract/test_layouts.py.
"""

from pathlib import Path

import pytest
from archives import sif_of, sif_part, superblock

from bareboat_base.errors import ImageError, StoreError
from bareboat_images.formats import squash
from bareboat_images.oci.reference import Transport
from bareboat_images.transfer.local import open_local


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def fake(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text("#!/bin/sh\nPATH=/usr/bin:/bin\n" + script)
    path.chmod(0o755)


def test_the_superblock_is_read_where_it_lies(tmp_path: Path) -> None:
    path = write(tmp_path / "x", b"0123" + superblock(inodes=7, bytes_used=96))
    assert squash.read_superblock(path, name="x", offset=4) == 96


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (superblock(bytes_used=97), "is cut off"),
        (superblock()[:40], "holds no squashfs"),
        (superblock(magic=b"sqsh"), "holds no squashfs"),
        (superblock(version=(3, 1)), "version 3.1"),
        (superblock(block_size=1), "is damaged"),
        (superblock(block_size=1 << 31, block_log=31), "is damaged"),
        (superblock(inodes=0), "is damaged"),
        (superblock(inodes=2**32 - 1), "declares 4,294,967,295 files"),
    ],
)
def test_a_superblock_that_cannot_be_right_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    path = write(tmp_path / "x.sqfs", data)
    with pytest.raises(ImageError, match=said):
        open_local(path, Transport.SQUASHFS)


def test_a_squashfs_that_is_larger_than_its_part_of_the_sif_is_cut_off(tmp_path: Path) -> None:
    part = sif_part(offset=32768, size=96)
    path = write(tmp_path / "x.sif", sif_of(part, data=superblock(bytes_used=97) + bytes(100)))
    with pytest.raises(ImageError, match="is cut off"):
        open_local(path, Transport.SIF)


@pytest.mark.parametrize("scratch", [True, False])
def test_without_unsquashfs_the_remedy_is_to_install_it(
    tmp_path: Path, programs: Path, scratch: bool
) -> None:
    assert not list(programs.iterdir())
    source = open_local(
        write(tmp_path / "x.sqfs", superblock()), Transport.SQUASHFS, scratch=tmp_path if scratch else None
    )
    with pytest.raises(ImageError, match="no unsquashfs on PATH") as caught:
        source.document()
    assert "squashfs-tools" in caught.value.remedy


def listing_of(programs: Path, listed: str, then: str = "exit 1") -> None:
    (programs / "listing").write_text(listed)
    script = f'case " $* " in *" -lls "*) cat "{programs}/listing"; exit 0;; esac\n{then}\n'
    fake(programs, "unsquashfs", script)


def test_a_link_that_points_upwards_is_a_name_like_any_other(tmp_path: Path, programs: Path) -> None:
    listed = "lrwxrwxrwx root/root 9 2026-11-21 03:18 ./lib -> ../../lib\n"
    listing_of(programs, listed, then=f"mkdir {tmp_path}/out")
    squash.unpack_squashfs(write(tmp_path / "x", superblock()), tmp_path / "out", name="x")


def test_what_unsquashfs_complains_about_is_in_the_error(tmp_path: Path, programs: Path) -> None:
    listing_of(programs, "", then="echo FATAL ERROR: zstd is not supported >&2; exit 1")
    with pytest.raises(ImageError, match="unsquashfs failed") as caught:
        squash.unpack_squashfs(write(tmp_path / "x", superblock()), tmp_path / "out", name="x")
    assert "zstd is not supported" in caught.value.context


def test_no_room_is_no_fault_of_the_image(tmp_path: Path, programs: Path) -> None:
    listing_of(programs, "", then="echo 'write_file: No space left on device' >&2; exit 1")
    with pytest.raises(StoreError, match="not enough space to unpack"):
        squash.unpack_squashfs(write(tmp_path / "x", superblock()), tmp_path / "out", name="x")


def test_device_nodes_that_only_root_can_make_are_no_error(tmp_path: Path, programs: Path) -> None:
    complaint = "create_inode: could not create character device u/n, because you're not superuser!"
    listing_of(programs, "", then=f'mkdir {tmp_path}/out; echo "{complaint}" >&2; exit 2')
    squash.unpack_squashfs(write(tmp_path / "x", superblock()), tmp_path / "out", name="x")


# -- making ----------------------------------------------------------------------------------------------


def test_making_needs_mksquashfs(tmp_path: Path, programs: Path) -> None:
    assert not list(programs.iterdir())
    with pytest.raises(ImageError, match="mksquashfs is not installed") as caught:
        squash.make_squashfs(tmp_path, tmp_path / "x.sqfs")
    assert "squashfs-tools" in caught.value.remedy


@pytest.mark.parametrize("output", ["it broke", "Write failed because No space left on device"])
def test_what_fails_leaves_what_was_there(tmp_path: Path, programs: Path, output: str) -> None:
    fake(programs, "mksquashfs", f'echo junk > "$2"; echo "{output}" >&2; exit 1')
    target = write(tmp_path / "x.sqfs", b"before")
    before = sorted(tmp_path.iterdir())
    expected = StoreError if "No space" in output else ImageError
    with pytest.raises(expected) as caught:
        squash.make_squashfs(tmp_path, target)
    assert output.removeprefix("Write failed because ") in caught.value.context
    assert target.read_bytes() == b"before"
    assert sorted(tmp_path.iterdir()) == before


def test_what_mksquashfs_could_not_read_is_an_error_though_it_says_none(
    tmp_path: Path, programs: Path
) -> None:
    said = "Could not open tree/usr/c, skipping...\nFailed to read file tree/x, creating empty file"
    fake(programs, "mksquashfs", f'echo "{said}" >&2; echo > "$2"')
    with pytest.raises(ImageError, match=r"2 entries of .* cannot be read") as caught:
        squash.make_squashfs(tmp_path / "tree", tmp_path / "x.sqfs")
    assert caught.value.context == said
    assert not (tmp_path / "x.sqfs").exists()


@pytest.mark.parametrize(
    ("help_text", "options"),
    [
        (
            "-mem <size>\n-mkfs-time <time>\n\tzstd\n",
            "-comp zstd -Xcompression-level 3 -mkfs-time 0 -mem 256M",
        ),
        ("-fstime <time>\n\tgzip\n", "-fstime 0"),
        ("\tgzip\n", ""),
    ],
)
def test_an_old_mksquashfs_is_given_only_what_it_knows(
    tmp_path: Path, programs: Path, help_text: str, options: str
) -> None:
    (programs / "help").write_text(help_text)
    fake(
        programs,
        "mksquashfs",
        f'[ "$1" = -help ] && {{ cat "{programs}/help"; exit 1; }}\necho "$*" > "$2"\n',
    )
    squash.make_squashfs(tmp_path, tmp_path / "x.sqfs")
    assert (tmp_path / "x.sqfs").read_text().partition("-all-root")[2].strip() == options
