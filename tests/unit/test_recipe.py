"""The tar of a layer, written again from its tree: bit by bit, or told why not."""

import os
from pathlib import Path

import pytest
import tars
from registries import sha256
from tars import archive, file, folder, hardlink, long_name, pax, symlink, unpack_bytes

from bareboat_base.errors import ImageError, StoreError
from bareboat_base.files.trees import remove_tree
from bareboat_images.layers import tar_split as recipes
from bareboat_images.layers.tar_split import check, rebuild


def rebuilt(data: bytes, folder: Path) -> bytes:
    """What unpacking and rebuilding gives; the digests have been compared."""
    tree, recipe = folder / "tree", folder / "recipe"
    found = unpack_bytes(data, tree, recipe=recipe)
    assert found.rebuildable
    assert found.inodes == tars.inodes(tree)
    pieces: list[bytes] = []
    assert rebuild(tree, recipe, pieces.append) == found.diff_id
    assert check(tree, recipe) == (found.diff_id, ())
    return b"".join(pieces)


LAYER = archive(
    folder(b"./"),
    file(b"./a", b"first" * 1000, mode=0o6755),
    file(b"b", b""),
    long_name(b"n" * 150) + file(b"n" * 100, b"long"),
    pax((b"SCHILY.xattr.security.capability", b"x")) + file(b"c", b"third"),
    symlink(b"s", b"a"),
    hardlink(b"h", b"a"),
    tars.header(b"null", kind=b"3"),
    tars.header(b"label", kind=b"V"),
    tars.header(b"pipe", kind=b"6"),
    file(b".wh.gone"),
    file(b"d/.wh..wh..opq", b"with content"),
    file(b".wh..wh.plnk/1.2", b"x" * 2000),
    pax((b"GNU.sparse.size", b"1000000"), (b"GNU.sparse.map", b"5000,10,9000,5,20000,0"))
    + file(b"sparse", b"0123456789abcde"),
    pax((b"GNU.sparse.size", b"1000000"), (b"GNU.sparse.map", b"")) + file(b"hole", b""),
    file(b"/d/../e/./f", b"odd name"),
)


@pytest.mark.parametrize("size", [97, 512, 100_000])
def test_tar_is_rebuilt_bit_by_bit(tmp_path: Path, size: int) -> None:
    data = LAYER + b"what follows the end" * 100
    tree, recipe = tmp_path / "tree", tmp_path / "recipe"
    found = unpack_bytes(data, tree, recipe=recipe, size=size)
    pieces: list[bytes] = []
    assert rebuild(tree, recipe, pieces.append) == found.diff_id == sha256(data)
    assert b"".join(pieces) == data


def test_large_layer_is_rebuilt(tmp_path: Path) -> None:
    data = archive(
        file(b"big", os.urandom(3_000_000)),
        *(file(b"f%d" % number, b"%d" % number * 100) for number in range(3000)),
        *(folder(b"d%d/" % number) for number in range(4000)),
        file(b"last", os.urandom(2_000_000)),
    )
    assert rebuilt(data, tmp_path) == data
    assert (tmp_path / "recipe").stat().st_size < 300_000


@pytest.mark.parametrize(
    "entries",
    [
        (file(b"a", b"1"), file(b"a", b"22"), file(b"a", b"333")),
        (file(b"a", b"1"), symlink(b"a", b"x")),
        (file(b"a", b"1"), folder(b"a/"), file(b"a/b", b"2")),
        (file(b"a/b", b"1"), file(b"a/c/d", b"2"), file(b"a", b"3"), file(b"z", b"4")),
        (file(b"a/b", b"1"), file(b"a", b"2"), folder(b"a/"), file(b"a/b", b"3"), file(b"a/b", b"4")),
        (file(b"a", b"1"), hardlink(b"b", b"a"), file(b"a", b"2"), file(b"b", b"3")),
        (file(b"a", b"1"), hardlink(b"b", b"a"), file(b"b", b"2"), hardlink(b"b", b"a"), file(b"b", b"3")),
        (file(b"a", b"1"), file(b"b", b"2"), hardlink(b"a", b"b"), file(b"a", b"3"), hardlink(b"a", b"b")),
        (file(b"a", b""), file(b"a", b"1"), file(b"a", b"")),
        (folder(b"r/"), symlink(b"l", b"r"), file(b"l/f", b"1"), file(b"r/f", b"2"), file(b"l/f", b"3")),
        (file(b"a", b"x" * 3_000_000), file(b"a", b"y" * 3_000_000)),
        (file(b"a", b"1"), tars.header(b"a", kind=b"6"), file(b"a", b"2")),
        (file(b"a", b"1"), tars.header(b"a", kind=b"3")),
        (file(b"a", b"1"), hardlink(b"a", b"a"), file(b"a", b"2")),
        (symlink(b"s", b"x"), hardlink(b"t", b"s"), file(b"s", b"1"), file(b"t", b"2"), file(b"t", b"3")),
    ],
)
def test_replaced_contents_are_in_the_recipe(tmp_path: Path, entries: tuple[bytes, ...]) -> None:
    assert rebuilt(archive(*entries), tmp_path) == archive(*entries)


def test_replaced_contents_are_kept_also_where_links_are_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "no")

    monkeypatch.setattr(os, "link", refuse)
    data = archive(file(b"a", b"1"), hardlink(b"b", b"a"), file(b"b", b"2"), file(b"a", b"3"))
    assert rebuilt(data, tmp_path) == data


def test_replaced_sparse_file_makes_the_layer_not_rebuildable(tmp_path: Path) -> None:
    sparse = pax((b"GNU.sparse.size", b"100000000"), (b"GNU.sparse.map", b"50000000,10"))
    data = archive(sparse + file(b"a", b"0123456789"), file(b"a", b"2"), file(b"b", b"3"))
    found = unpack_bytes(data, tmp_path / "tree", recipe=tmp_path / "recipe")
    assert not found.rebuildable
    assert found.diff_id == sha256(data)
    assert not (tmp_path / "recipe").exists()


def test_too_many_replaced_files_make_the_layer_not_rebuildable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipes, "_MOST_REPLACED", 3)
    entries = [file(b"a", b"%d" % number) for number in range(4)]
    assert rebuilt(archive(*entries), tmp_path) == archive(*entries)
    found = unpack_bytes(archive(*entries, file(b"a")), tmp_path / "other", recipe=tmp_path / "recipe2")
    assert not found.rebuildable


# Damage.


@pytest.mark.parametrize(
    "damage", ["changed", "longer", "cut", "removed", "folder", "link", "pipe", "parent"]
)
def test_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    data = archive(file(b"d/one", b"1" * 3000), file(b"d/two", b"2" * 3000), file(b"three", b"3"))
    tree, recipe = tmp_path / "tree", tmp_path / "recipe"
    unpack_bytes(data, tree, recipe=recipe)
    victim = tree / "d/two"
    match damage:
        case "changed":
            victim.write_bytes(b"2" * 2000 + b"x" + b"2" * 999)
        case "longer":
            victim.write_bytes(b"2" * 3001)
        case "cut":
            victim.write_bytes(b"2" * 2999)
        case "parent":
            remove_tree(tree / "d")
        case _:
            victim.unlink()
            if damage == "folder":
                victim.mkdir()
            elif damage == "link":
                victim.symlink_to("one")
            elif damage == "pipe":
                os.mkfifo(victim)
    if damage == "longer":  # the layer's bytes are all there still
        assert check(tree, recipe) == (sha256(data), ())
        return
    digest, damaged = check(tree, recipe)
    assert digest != sha256(data)
    assert damaged == ((b"d/one", b"d/two") if damage == "parent" else (b"d/two",))
    size = 0

    def count(piece: bytes) -> None:
        nonlocal size
        size += len(piece)

    with pytest.raises(ImageError, match=r"the file d/(two|one) in .*tree is not as the layer had it"):
        rebuild(tree, recipe, count)
    assert size == len(data)


def test_damaged_recipe_is_told(tmp_path: Path) -> None:
    tree, recipe = tmp_path / "tree", tmp_path / "recipe"
    unpack_bytes(LAYER, tree, recipe=recipe)
    good = recipe.read_bytes()
    for bad in (
        b"",
        good[:10],
        good[:20],
        b"x" + good[1:],
        good[:-6],
        good[: len(good) // 2],
        *(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in range(21, len(good), 37)),
    ):
        recipe.write_bytes(bad)
        with pytest.raises(StoreError, match="recipe"):
            check(tree, recipe)
    recipe.unlink()
    with pytest.raises(StoreError, match="cannot be read"):
        check(tree, recipe)


def test_recipe_that_is_there_already_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "recipe").write_bytes(b"other")
    with pytest.raises(FileExistsError):
        unpack_bytes(LAYER, tmp_path / "tree", recipe=tmp_path / "recipe")
