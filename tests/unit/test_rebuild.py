"""A layer's tar from its tree in the store: the same bytes, or an error that says what is wrong."""

import errno
import hashlib
import io
import shutil
import tarfile
import threading
from pathlib import Path

import pytest
from stored import foreign_tar, pulled_layer

from bareboat.captures.build import config_of
from bareboat.model import Image, Layer
from bareboat_base.errors import StoreError
from bareboat_images.layers import layer as canonical
from bareboat_images.store import Store
from bareboat_images.transfer import export, rebuild

REMEDY = "bareboat image pull --fresh debian:12"


def captured(store: Store, files: dict[str, bytes]) -> Layer:
    """A layer as a capture puts it there: no recipe, and nothing said of it."""
    with store.scratch() as scratch:
        tree = scratch / "tree"
        tree.mkdir()
        for name, data in files.items():
            (tree / name).write_bytes(data)
        diff_id, size = canonical.digest_tree(str(tree))
        store.publish(tree, store.layer(diff_id))
    return Layer(diff_id=diff_id, size_bytes=size, unpacked_bytes=0, inodes=0)


FILES = {
    "a": b"1" * 1000,
    "b": b"",
    "c": bytes(3_000_000),
    **{f"small{number}": b"x" for number in range(500)},
}
TAR = foreign_tar(FILES)


@pytest.mark.parametrize("kind", ["pulled", "captured"])
def test_the_same_bytes_again(store: Store, kind: str) -> None:
    layer = pulled_layer(store, TAR) if kind == "pulled" else captured(store, FILES)
    written = io.BytesIO()
    rebuild.write_tar(store, layer, written.write, remedy=REMEDY)
    pieces = list(rebuild.chunks(store, layer, remedy=REMEDY))
    assert b"".join(pieces) == written.getvalue()
    assert "sha256:" + hashlib.sha256(written.getvalue()).hexdigest() == layer.diff_id
    if kind == "pulled":
        assert written.getvalue() == TAR
    assert len(pieces) < 20  # not one for every header


@pytest.mark.parametrize("kind", ["pulled", "captured"])
@pytest.mark.parametrize("damage", ["changed", "all gone"])
def test_a_layer_that_was_changed(store: Store, kind: str, damage: str) -> None:
    layer = pulled_layer(store, TAR) if kind == "pulled" else captured(store, FILES)
    file = store.layer(layer.diff_id) / "a"
    if damage == "changed":
        file.write_bytes(b"2" * 1000)
    else:
        shutil.rmtree(store.layer(layer.diff_id))
    for write in (lambda: rebuild.write_tar(store, layer, len, remedy=REMEDY),
                  lambda: list(rebuild.chunks(store, layer, remedy=REMEDY))):  # fmt: skip
        with pytest.raises(StoreError, match="was changed in the store") as caught:
            write()
        assert layer.diff_id in caught.value.message
        assert caught.value.remedy == REMEDY


def test_a_layer_that_never_could_be_written_again(store: Store) -> None:
    layer = pulled_layer(store, TAR, recipe=False)
    with pytest.raises(StoreError, match="cannot be written as an archive again") as caught:
        rebuild.write_tar(store, layer, len, remedy=REMEDY)
    assert "copy the image" in caught.value.remedy


@pytest.mark.parametrize("kind", ["pulled", "captured"])
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), ValueError("no"), StoreError("no")], ids=repr
)
def test_what_the_writer_raises_is_not_taken_for_damage(store: Store, kind: str, error: Exception) -> None:
    layer = pulled_layer(store, TAR) if kind == "pulled" else captured(store, FILES)

    def write(_data: bytes) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        rebuild.write_tar(store, layer, write, remedy=REMEDY)
    assert caught.value is error


@pytest.mark.parametrize("read", [0, 1, 2])
def test_a_reader_that_goes_away_ends_the_maker(
    store: Store, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = captured(store, {f"{number}": bytes(1_000_000) for number in range(30)})
    unhandled: list[object] = []
    monkeypatch.setattr(threading, "excepthook", unhandled.append)
    pieces = rebuild.chunks(store, layer, remedy=REMEDY)
    for _ in range(read):
        next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert [thread for thread in threading.enumerate() if thread.name == "rebuild"] == []
    assert unhandled == []


# -- archives of whole images --------------------------------------------------------------------------


def image_of(store: Store, *layers: Layer) -> Image:
    image = Image(digest="", layers=layers, reference="docker.io/library/debian:12")
    return export.keep(store, image, config=config_of(layers, machine="x86_64", environment={}))


def test_an_archive_of_pulled_layers(store: Store, tmp_path: Path) -> None:
    one, two = pulled_layer(store, TAR), captured(store, {"x": b"y"})
    digest = export.save_archive(
        store,
        image_of(store, one, two, one),
        tmp_path / "x.tar",
        name="x",
        more=export.Additions(files={"more/of/it": b"m", "top": b"t"}),
    ).digest
    with tarfile.open(tmp_path / "x.tar") as archive:
        # Every folder is spelled out, before what lies in it: an ordinary user's skopeo needs that.
        folders: set[str] = set()
        for member in archive:
            assert member.name.rpartition("/")[0] in {"", *folders}
            if member.isdir():
                folders.add(member.name)
        assert folders == {"blobs", "blobs/sha256", "more", "more/of"}
        blob = archive.extractfile("blobs/sha256/" + one.diff_id[7:])
        assert blob is not None
        assert blob.read() == TAR
        assert archive.getnames().count("blobs/sha256/" + one.diff_id[7:]) == 1
        assert "blobs/sha256/" + digest[7:] in archive.getnames()


@pytest.mark.parametrize("which", ["manifest", "config"])
@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_an_image_whose_documents_were_changed(store: Store, tmp_path: Path, which: str, damage: str) -> None:
    image = image_of(store, captured(store, FILES))
    digest = image.digest
    if which == "config":
        digest = "sha256:" + hashlib.sha256(store.config(image)).hexdigest()
    if damage == "gone":
        store.blob(digest).unlink()
    else:
        store.blob(digest).write_bytes(b"{}")
    with pytest.raises(StoreError, match="lacks a document in the store"):
        export.save_archive(store, image, tmp_path / "x.tar", name="x")
    assert list(tmp_path.glob("x.tar*")) == []


def test_equal_archives_have_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        store = Store(tmp_path / f"{name}-store")
        export.save_archive(store, image_of(store, captured(store, FILES)), tmp_path / name, name="x")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
