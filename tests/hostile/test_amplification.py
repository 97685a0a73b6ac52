"""Layers that write, or cost, far more than they hold: all is counted, and the work grows with the layer."""

import errno
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tars
from fuzzing import usage
from tars import archive, file, folder, hardlink, long_name, pax, symlink, unpack_bytes

from bareboat_base.errors import ImageError
from bareboat_base.files.trees import remove_tree
from bareboat_images.formats.flatten import _relink, copy, flatten
from bareboat_images.layers import folders
from bareboat_images.layers import tar_split as recipe_module
from bareboat_images.layers.tar_split import rebuild
from bareboat_images.tar.limits import Limits

pytestmark = pytest.mark.one_in(4)

MB = 1_000_000


@pytest.fixture
def tree(tmp_path: Path) -> Any:
    """A directory to unpack into, removed by what can remove the deep ones."""
    made = tmp_path / "tree"
    made.mkdir()
    yield made
    for path in tmp_path.iterdir():
        remove_tree(path)


def refused(data: bytes, tree: Path, **limits: Any) -> ImageError:
    with pytest.raises(ImageError) as caught:
        unpack_bytes(data, tree, limits=Limits(**limits), recipe=tree.parent / "recipe")
    assert "layer 3 (sha256:abc)" in caught.value.message
    assert caught.value.message.isprintable()
    assert caught.value.remedy
    return caught.value


# Hard links that the file system refuses.


def links_allowed(monkeypatch: pytest.MonkeyPatch, most: int, error: int = errno.EMLINK) -> None:
    """A file system whose files have at most so many names."""
    real = os.link

    def link(source: Any, target: Any, **fields: Any) -> None:
        if os.stat(source, dir_fd=fields.get("src_dir_fd"), follow_symlinks=False).st_nlink >= most:
            raise OSError(error, os.strerror(error))
        real(source, target, **fields)

    monkeypatch.setattr(os, "link", link)


@pytest.mark.parametrize("links", [70, 140, 700])
@pytest.mark.parametrize("most", [2, 10, 65])
def test_links_beyond_the_limit_share_copies(
    tree: Path, monkeypatch: pytest.MonkeyPatch, links: int, most: int
) -> None:
    """One copy for as many names as it can have, not one for each name."""
    links_allowed(monkeypatch, most)
    data = archive(file(b"f", b"x" * 5000), *(hardlink(b"l%d" % number, b"f") for number in range(links)))
    found = unpack_bytes(data, tree, recipe=tree.parent / "recipe")
    inodes, size = usage(tree)
    copies = -(-(links + 1) // most)
    assert inodes == copies
    assert size == copies * 8192
    assert found.unpacked_bytes == copies * 5000
    assert found.inodes == tars.inodes(tree)
    assert all((tree / f"l{number}").read_bytes() == b"x" * 5000 for number in range(links))
    assert rebuild(tree, tree.parent / "recipe", lambda _: None) == found.diff_id
    assert any("hard links became copies" in note for note in found.notes)


@pytest.mark.parametrize("error", [errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK])
def test_copies_count_for_the_limit(tree: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    links_allowed(monkeypatch, 1, error)
    data = archive(file(b"f", b"x" * MB), *(hardlink(b"l%d" % number, b"f") for number in range(60)))
    mistake = refused(data, tree, max_unpacked_bytes=20 * MB)
    assert "20,000,000 bytes allowed" in mistake.message
    assert "--max-unpacked" in mistake.remedy
    assert usage(tree)[1] <= 21 * MB


@pytest.mark.parametrize("error", [errno.EPERM, errno.EMLINK])
def test_copies_count_for_the_ratio(tree: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    """The other limits are terabytes by default; a small layer may still not fill the disk."""
    links_allowed(monkeypatch, 1, error)
    data = archive(file(b"f", b"x" * MB), *(hardlink(b"l%d" % number, b"f") for number in range(300)))
    mistake = refused(data, tree, max_ratio=10.0)
    assert "decompression bomb" in mistake.message
    assert "--max-ratio 100" in mistake.remedy
    assert usage(tree)[1] <= 105 * MB


@pytest.mark.thorough
def test_a_real_file_system_runs_out_of_links(tree: Path) -> None:
    """ext4 allows 65,000 names for a file. The layer that was found: 0.65 MB wrote 1,155 MB."""
    most = os.pathconf(tree, "PC_LINK_MAX")
    if not 1000 < most < 70_000:
        most = 65_000
    links = most + 3000
    data = archive(file(b"f", b"x" * 17_500), *(hardlink(b"l%d" % number, b"f") for number in range(links)))
    found = unpack_bytes(data, tree, limits=Limits(max_unpacked_bytes=50 * MB))
    assert found.inodes <= 3
    assert usage(tree)[1] <= 3 * 20_480
    flatten([tree], tree.parent / "flat")
    assert usage(tree.parent / "flat")[1] <= 4 * 20_480


def test_a_copy_that_was_replaced_is_no_source(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links_allowed(monkeypatch, 2)
    data = archive(
        file(b"f", b"right"), hardlink(b"a", b"f"), hardlink(b"d/copy", b"f"), file(b"d/copy", b"wrong"),
        hardlink(b"b", b"f"), hardlink(b"c", b"f"), file(b"d", b""), hardlink(b"e", b"f"),
    )  # fmt: skip
    unpack_bytes(data, tree)
    assert [(tree / name).read_bytes() for name in "fabce"] == [b"right"] * 5


def test_a_copy_is_not_sought_through_a_link_that_leads_out(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tree.parent / "outside"
    outside.mkdir()
    (outside / "copy").write_text("theirs")
    links_allowed(monkeypatch, 2)
    data = archive(
        file(b"f", b"right"), hardlink(b"a", b"f"), hardlink(b"d/copy", b"f"),
        long_name(os.fsencode(outside), b"K") + symlink(b"d", b""), hardlink(b"b", b"f"),
        hardlink(b"c", b"f"),
    )  # fmt: skip
    unpack_bytes(data, tree)
    assert (tree / "b").read_bytes() == (tree / "c").read_bytes() == b"right"
    assert (outside / "copy").stat().st_nlink == 1


@pytest.mark.parametrize("make", [flatten, copy])
def test_flat_trees_copy_a_file_once_for_all_of_its_names(
    tree: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[..., None]
) -> None:
    data = archive(file(b"f", b"x" * 5000), *(hardlink(b"l%d" % number, b"f") for number in range(100)))
    unpack_bytes(data, tree)
    links_allowed(monkeypatch, 1000, errno.EMLINK)
    make([tree], tree.parent / "flat")
    assert usage(tree.parent / "flat") == (1, 8192)
    remove_tree(tree.parent / "flat")
    links_allowed(monkeypatch, 102)  # the layer's own names and one more
    make([tree], tree.parent / "flat")
    assert usage(tree.parent / "flat")[0] <= 3


# Directories that no entry names.


@pytest.mark.parametrize("depth", [10, 500])
@pytest.mark.parametrize("kind", [b"0", b"1", b"2", b"5", b"6"])
def test_implied_directories_are_entries(tree: Path, depth: int, kind: bytes) -> None:
    name = b"d/" * depth + b"x"
    data = archive(file(b"f"), long_name(name) + tars.header(b"x", kind=kind, link=b"f"))
    found = unpack_bytes(data, tree, limits=Limits(max_entries=depth + 2))
    assert found.inodes >= depth + 2
    remove_tree(tree)
    tree.mkdir()
    mistake = refused(data, tree, max_entries=depth + 1)
    assert f"{depth + 1:,} entries" in mistake.message
    assert "--max-entries" in mistake.remedy


@pytest.mark.parametrize("what", ["whiteout", "opaque", "file"])
def test_implied_directories_of_many_paths_are_stopped(tree: Path, what: str) -> None:
    names = {"whiteout": b".wh.x", "opaque": b".wh..wh..opq", "file": b"x"}
    paths = (b"%d/" % number + b"d/" * 100 + names[what] for number in range(100))
    mistake = refused(archive(*(long_name(path) + file(b"x") for path in paths)), tree, max_entries=2000)
    assert "2,000 entries" in mistake.message
    assert usage(tree)[0] <= 2001


def calls(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> int:
    """How many bytes of paths the system is given for some work: what takes time that grows with depth."""
    counted: Counter[str] = Counter()
    with monkeypatch.context() as patch:
        for name in (
            "open",
            "lstat",
            "mkdir",
            "link",
            "symlink",
            "readlink",
            "chmod",
            "unlink",
            "rmdir",
            "mknod",
        ):
            real = getattr(os, name)

            def call(*words: Any, _real: Any = real, **fields: Any) -> Any:
                counted["bytes"] += sum(
                    len(os.fsencode(each)) for each in words if isinstance(each, str | bytes)
                )
                counted["bytes"] += 100
                return _real(*words, **fields)

            patch.setattr(os, name, call)
        work()
    return counted["bytes"]


def deep_paths(count: int) -> bytes:
    """Each below a deep directory that none of the others shares."""
    return archive(*(long_name(b"%d/" % n + b"d/" * 300 + b"x") + file(b"x") for n in range(count)))


def alternating(count: int) -> bytes:
    """Two deep directories in turn."""
    tops = [top + b"d/" * 300 for top in (b"a/", b"b/")]
    return archive(*(long_name(tops[n % 2] + b"%d" % n) + file(b"x") for n in range(count)))


def through_links(count: int) -> bytes:
    """A new directory each time, behind links that lead up and down."""
    chain = [symlink(b"l0", b"t"), *(symlink(b"l%d" % n, b"l%d" % (n - 1)) for n in range(1, 30))]
    return archive(folder(b"t/"), *chain, *(file(b"l29/%d/x" % n) for n in range(count)))


def one_replaced(count: int) -> bytes:
    """A directory, and a file in its place, again and again."""
    return archive(*(file(b"d/%d" % n) + file(b"d") + folder(b"d/") for n in range(count)))


def many_names_replaced(count: int) -> bytes:
    """A large file of many names, which are all replaced."""
    links = b"".join(hardlink(b"l%d" % n, b"f") for n in range(count))
    return archive(file(b"f", b"x" * 50_000), links, *(file(b"l%d" % n) for n in range(count)))


@pytest.mark.parametrize(
    "make",
    [deep_paths, alternating, through_links, one_replaced, many_names_replaced],
    ids=lambda f: f.__name__,
)
def test_twice_the_layer_is_twice_the_work(
    tree: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[int], bytes]
) -> None:
    worked = []
    for number, count in enumerate((15, 30, 60)):
        data, target = make(count), tree / str(number)
        worked.append(calls(monkeypatch, lambda data=data, target=target: unpack_bytes(data, target)))
    assert worked[1] < 2.3 * worked[0]
    assert worked[2] < 2.3 * worked[1]


def test_a_path_twice_as_deep_costs_no_more_for_each_byte_of_its_modes(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modes and times are set from one directory to the next."""
    opened = []
    for number, depth in enumerate((250, 500, 1000)):
        data = archive(long_name(b"d/" * depth + b"x") + file(b"x"))
        lengths: list[int] = []
        real = os.open

        def open_(
            path: Any, *words: Any, _real: Any = real, _lengths: list[int] = lengths, **fields: Any
        ) -> int:
            if fields.get("dir_fd") is not None:
                _lengths.append(len(path))
            return int(_real(path, *words, **fields))

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", open_)
            unpack_bytes(data, tree / str(number))
        opened.append(sum(lengths))
    assert opened[1] < 2.3 * opened[0]
    assert opened[2] < 2.3 * opened[1]


def test_a_walk_that_never_ends_is_refused(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links that lead through a long path and back, for every entry."""
    monkeypatch.setattr(folders, "_WALK_BYTES", MB)
    steps = b"d/../" * 600 + b"d"
    links = [long_name(steps, b"K") + symlink(b"k%d" % n, b"") for n in range(20)]
    through = b"".join(b"k%d/../" % n for n in range(20))
    entries = [long_name(through + b"e%d/x" % n) + file(b"x") for n in range(40)]
    plain = tree / "plain"
    unpack_bytes(archive(folder(b"d/"), *links), plain)
    deep = [long_name(b"d/l%d/" % n + b"p/" * 300 + b"x") + file(b"x") for n in range(40)]
    mistake = refused(archive(folder(b"d/"), *links, *entries, *deep), tree / "deep")
    assert "more directories and links than allowed" in mistake.message


def test_real_layers_walk_far_less_than_allowed(tree: Path) -> None:
    """Of a layer without entries for its directories, thirty deep, with links on the way."""
    parts = b"/".join(b"directory%d" % n for n in range(12))
    data = archive(
        symlink(b"lib", b"usr/lib"), *(file(b"lib/%d/x%d" % (n % 200, n)) for n in range(2000)),
        *(long_name(parts + b"/%d/x%d" % (n % 200, n)) + file(b"x") for n in range(2000)),
    )  # fmt: skip
    assert unpack_bytes(data, tree).inodes > 4000


# Bytes that the tar does not have.


def sparse(pieces: int, step: int) -> bytes:
    spans = b",".join(b"%d,1" % (step * n) for n in range(pieces))
    head = pax((b"GNU.sparse.size", b"%d" % (step * pieces)), (b"GNU.sparse.map", spans))
    return head + file(b"s", b"x" * pieces)


def test_pieces_of_sparse_files_count_for_the_ratio(tree: Path) -> None:
    """A byte in each block: the file takes 4,096 times what the tar has."""
    mistake = refused(archive(sparse(40_000, 4096)), tree, max_ratio=10.0)
    assert "decompression bomb" in mistake.message
    assert usage(tree)[1] <= MB


def test_a_sparse_file_of_a_few_pieces_is_none(tree: Path) -> None:
    found = unpack_bytes(archive(sparse(1000, 1 << 20)), tree, limits=Limits(max_ratio=10.0))
    assert found.unpacked_bytes == 1000 << 20


@pytest.mark.parametrize("names", [20, 200])
def test_contents_of_many_names_are_not_kept_for_each(
    tree: Path, monkeypatch: pytest.MonkeyPatch, names: int
) -> None:
    """The recipe keeps what is replaced; a file of many names would be kept for each of them."""
    monkeypatch.setattr(recipe_module, "_MORE_REPLACED_BYTES", MB)
    size = 300_000
    content = os.urandom(size)
    links = b"".join(hardlink(b"l%d" % n, b"f") for n in range(names))
    data = archive(file(b"f", content), links, *(file(b"l%d" % n) for n in range(names)), file(b"f"))
    recipe = tree.parent / "recipe"
    found = unpack_bytes(data, tree, recipe=recipe)
    assert not found.rebuildable
    assert not recipe.exists()


@pytest.mark.parametrize("times", [2, 50])
def test_what_is_replaced_once_is_kept(tree: Path, times: int) -> None:
    data = archive(*(file(b"f", os.urandom(10_000)) for _ in range(times)), hardlink(b"l", b"f"), file(b"l"))
    found = unpack_bytes(data, tree, recipe=tree.parent / "recipe")
    assert found.rebuildable
    assert rebuild(tree, tree.parent / "recipe", lambda _: None) == found.diff_id


def test_one_file_written_again_and_again_counts_each_time(tree: Path) -> None:
    data = archive(*(file(b"same", b"x" * MB) for _ in range(30)))
    assert "bytes allowed" in refused(data, tree, max_unpacked_bytes=10 * MB).message


def test_files_before_a_link_count_with_its_copy(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links_allowed(monkeypatch, 1)
    data = archive(file(b"a", b"x" * (6 * MB)), file(b"b", b"x" * (5 * MB)), hardlink(b"c", b"b"))
    assert "the entry c" in refused(data, tree, max_unpacked_bytes=15 * MB).message


# Depth.


@pytest.mark.parametrize("depth", [900, 1100, 1900])
def test_deep_trees_are_made_flat_and_relinked(tree: Path, depth: int) -> None:
    name = b"d/" * depth
    data = archive(long_name(name + b"l") + symlink(b"x", b"/etc/hosts"), symlink(b"d/l", b"/etc"))
    unpack_bytes(data, tree)
    flat = tree.parent / "flat"
    flatten([tree], flat)
    _relink(flat)
    copy([tree], tree.parent / "copy")
    here = os.open(flat, os.O_RDONLY)
    try:
        if 3 * depth < 4000:
            assert os.readlink(name + b"l", dir_fd=here) == b"../" * depth + b"etc/hosts"
        else:  # no link can lead so far up
            with pytest.raises(FileNotFoundError):
                os.readlink(name + b"l", dir_fd=here)
        assert os.readlink("d/l", dir_fd=here) == "../etc"
    finally:
        os.close(here)
