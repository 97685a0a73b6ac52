"""The canonical tar: any tree is read back as it was, and equal trees, however they came to be, are equal."""

import io
import os
import random
import shutil
import socket
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bareboat_images.layers import layer
from bareboat_images.tar import reader as tarreader
from bareboat_images.tar import writer as tarwriter

# A tree is what it holds: path -> ("folder", mode) or ("file", mode, data) or ("link", target).
Node = tuple[str, int] | tuple[str, int, bytes] | tuple[str, str]
Tree = dict[str, Node]

_SPECIAL = (
    b"\n",
    b"a\nb",
    b"\xff\xfe",
    "ü".encode(),
    b" ",
    b"=",
    b"-rf",
    b"\\",
    b"a" * 255,
    b"\xc3" * 255,
    b"0" * 120,
)
_bytes = st.sampled_from(_SPECIAL) | st.binary(min_size=1, max_size=12).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
)
names = _bytes.map(os.fsdecode)
folders = st.lists(names, min_size=0, max_size=3)
modes = st.sampled_from([0o644, 0o755, 0o600, 0o444])
leaves = st.one_of(
    st.tuples(st.just("file"), modes, st.binary(max_size=40) | st.integers(510, 1030).map(bytes)),
    st.tuples(st.just("link"), (names | st.just("../" * 40 + "x" * 200)).filter(lambda target: target != "")),
    st.tuples(st.just("folder"), st.sampled_from([0o755, 0o1777, 0o700, 0o555])),
)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    tree: Tree = {}
    for where, name, leaf in draw(st.lists(st.tuples(folders, names, leaves), max_size=8)):
        parents = ["/".join(where[: n + 1]) for n in range(len(where))]
        path = "/".join([*where, name])
        if path in tree or any(tree.get(parent, ("folder",))[0] != "folder" for parent in parents):
            continue
        for parent in parents:
            tree.setdefault(parent, ("folder", 0o755))
        tree[path] = leaf
    return tree


def make(tree: Tree, top: str, order: list[str]) -> None:
    """Write a tree; `order` may name its paths in any order, folders are made when they are needed."""
    for path in order:
        target = os.path.join(top, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        match tree[path]:
            case ("folder", _):
                os.makedirs(target, exist_ok=True)
            case ("file", _, bytes() as data):
                with open(target, "wb") as stream:
                    stream.write(data)
            case ("link", str() as goal):
                os.symlink(goal, target)
    for path, node in tree.items():
        if node[0] != "link" and isinstance(node[1], int):
            os.chmod(os.path.join(top, path), node[1])


@contextmanager
def folder() -> Iterator[str]:
    # tmpfs lists a folder in the order in which it was filled, ext4 by a hash of the names.
    top = tempfile.mkdtemp(dir="/dev/shm")
    try:
        yield top
    finally:
        for path, _, _ in os.walk(top):
            os.chmod(path, 0o700)
        shutil.rmtree(top)


def tar_of(top: str) -> bytes:
    written = io.BytesIO()
    size = layer.write_tar(top, written.write)
    assert size == len(written.getvalue())
    return written.getvalue()


def read_back(data: bytes) -> tuple[Tree, list[tarfile.TarInfo]]:
    tree: Tree = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        members = archive.getmembers()
        for member in members:
            if member.isdir():
                tree[member.name] = ("folder", member.mode)
            elif member.issym():
                tree[member.name] = ("link", member.linkname)
            else:
                content = archive.extractfile(member)
                assert content is not None
                tree[member.name] = ("file", member.mode, content.read())
    return tree, members


@given(trees())
@settings(max_examples=150, deadline=None)
def test_any_tree_is_read_back_as_it_was(tree: Tree) -> None:
    with folder() as top:
        make(tree, top, list(tree))
        found, members = read_back(tar_of(top))
    assert found == tree
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} <= {(0, 0, "", "", layer.EPOCH)}
    seen = {""}
    for member in members:
        assert os.path.dirname(member.name) in seen, "a child came before its folder"
        seen.add(member.name)


@given(trees(), st.randoms(use_true_random=False), st.sampled_from([0o000, 0o022, 0o077]))
@settings(max_examples=60, deadline=None)
def test_equal_trees_are_equal_however_they_were_made(tree: Tree, chance: random.Random, mask: int) -> None:
    with folder() as one, folder() as two:
        make(tree, one, list(tree))
        before = os.umask(mask)
        try:
            make(tree, two, chance.sample(list(tree), len(tree)))
        finally:
            os.umask(before)
        for path, node in tree.items():
            if node[0] == "file":
                os.utime(os.path.join(two, path), (chance.random() * 1e9, chance.random() * 1e9))
        assert layer.digest_tree(one) == layer.digest_tree(two)
        made = layer.finish(Path(two), comment="")
        assert layer.digest_tree(one) == layer.digest_tree(two) == (made.diff_id, made.size_bytes)
        assert (made.unpacked_bytes, made.inodes) == (
            sum(len(node[2]) for node in tree.values() if node[0] == "file"), len(tree) + 1
        )  # fmt: skip
        assert {os.lstat(os.path.join(two, path)).st_mtime for path in tree} <= {layer.EPOCH}


def test_hard_links_are_files_of_their_own(tmp_path: Path) -> None:
    """Whether two equal files share an inode depends on the store, not on the environment."""
    for name in ("linked", "copied"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text("x")
    os.link(tmp_path / "linked" / "a", tmp_path / "linked" / "b")
    (tmp_path / "copied" / "b").write_text("x")
    assert layer.digest_tree(str(tmp_path / "linked")) == layer.digest_tree(str(tmp_path / "copied"))


def _socket(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path)


@pytest.mark.parametrize("make_special", [os.mkfifo, _socket])
def test_what_no_layer_holds_is_refused(
    tmp_path: Path, make_special: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    make_special("special")
    with pytest.raises(ValueError, match="special is not a file, directory or symbolic link"):
        layer.digest_tree(".")


def test_a_file_that_shrinks_while_it_is_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(3 << 20))

    def shrink(_: bytes) -> None:
        os.truncate(tmp_path / "file", 10)

    with pytest.raises(ValueError, match="became shorter while it was read"):
        layer.write_tar(str(tmp_path), shrink)


#: Also around the lengths that ustar holds: 100 bytes of a name, and 155 of its directory.
_LONG = st.sampled_from([99, 100, 101, 155, 156, 255, 256, 257, 300, 1000, 3000])
_names = _LONG.map(lambda length: ("d" * 49 + "/") * (length // 50) + "f" * (length % 50)) | st.lists(
    st.sampled_from(["a", "b", "/", ".", "ä", "漢", "\udcff", "z" * 30, "\n"]), min_size=1, max_size=14
).map("".join)


@settings(max_examples=200, deadline=None)
@given(
    name=_names,
    link=_names,
    kind=st.sampled_from([tarreader.FILE, tarreader.LINK, tarreader.SYMLINK, tarreader.FOLDER]),
    size=st.sampled_from([0, 5000, 8**11 - 1, 8**11, 2**40]),
    mode=st.sampled_from([0o644, 0o1777]),
)
def test_headers_are_as_pythons_tarfile_writes_them(
    name: str, link: str, kind: bytes, size: int, mode: int
) -> None:
    """Digests of captured layers are of these bytes."""
    name = name.rstrip("/") or "a" if kind == tarreader.FOLDER else name
    header = tarfile.TarInfo(name)
    header.type, header.size, header.mode, header.mtime = kind, size, mode, layer.EPOCH
    header.linkname = link if kind in (tarreader.LINK, tarreader.SYMLINK) else ""
    ours = tarwriter.header(
        os.fsencode(name) + (b"/" if kind == tarreader.FOLDER else b""),
        kind,
        mode=mode,
        size=size,
        mtime=layer.EPOCH,
        link=os.fsencode(header.linkname),
        style=tarwriter.Style(plain=False),
    )
    assert ours == header.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
