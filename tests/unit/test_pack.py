"""An image as one file: what is in it, when it is packed again, and that the layers stay what they are."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from stored import image_of
from tools import output, tool

from bareboat.deployment import pack
from bareboat.model import Image, Mount
from bareboat_base.errors import PlanError
from bareboat_images import place
from bareboat_images.formats import packed
from bareboat_images.store import Store

TREE: dict[str, str | None] = {"etc/os-release": "ID=x\n", "opt/env/lib/os.py": "x" * 5000, "tmp/a": "a"}


@pytest.fixture
def image(store: Store) -> Image:
    tool("mksquashfs")
    return image_of(store, TREE, {"opt/env/.wh.gone": "", "opt/env/b": "b"})


def folder(target: str) -> Mount:
    return Mount(source="/", target=target)


def listed(path: Path) -> dict[str, str]:
    """Path in a squashfs -> mode and owner, size and time."""
    said = output(tool("unsquashfs"), "-UTC", "-lln", path)
    rows = (line.split(maxsplit=5) for line in said.splitlines() if "squashfs-root" in line)
    return {name.removeprefix("squashfs-root"): " ".join(rest) for *rest, name in rows}


@pytest.mark.parametrize("kind", ["squashfs", "sif"])
def test_it_is_packed_once(store: Store, image: Image, kind: str) -> None:
    said: list[str] = []
    path = pack.provide(store, image, kind, progress=lambda what, *_: said.append(what))
    assert path == store.packed(image.digest, kind)
    facts = packed.about(path)
    assert facts is not None
    assert (facts.kind, facts.size_bytes, facts.sha256) == (kind, path.stat().st_size, packed.sha256(path))
    first = path.stat().st_ino
    assert pack.provide(store, image, kind, progress=lambda *_: pytest.fail("packed again")) == path
    assert path.stat().st_ino == first
    assert list((store.root / "tmp").iterdir()) == []


def test_of_several_at_once_one_packs(store: Store, image: Image) -> None:
    said: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        made = [
            pool.submit(pack.provide, store, image, "squashfs", progress=lambda what, *_: said.append(what))
            for _ in range(4)
        ]
        assert len({done.result() for done in made}) == 1
    assert said.count("packing the squashfs") == 1


def test_equal_images_give_equal_bytes_wherever_they_are(tmp_path: Path) -> None:
    tool("mksquashfs")
    digests = set()
    for name in ("one", "two"):
        store = Store(tmp_path / name)
        path = pack.provide(store, image_of(store, TREE), "sif", [folder("/opt/env/data")])
        digests.add(packed.sha256(path))
        time.sleep(1.1)  # times in a squashfs are whole seconds
    assert len(digests) == 1


def test_a_usual_place_that_it_lacks_has_it_packed_again_with_those_that_it_had(
    store: Store, image: Image
) -> None:
    path = pack.provide(store, image, "squashfs", [folder("/home/a")])
    first = path.stat().st_ino
    pack.provide(store, image, "squashfs", [folder("/home/b")])
    assert path.stat().st_ino != first
    assert {"/home/a", "/home/b"} <= listed(path).keys()
    again = path.stat().st_ino
    pack.provide(store, image, "squashfs", [folder("/home/a"), folder("/home/b")])
    assert path.stat().st_ino == again


def test_jobs_with_mount_points_of_their_own_have_a_file_of_their_own(store: Store, image: Image) -> None:
    usual = [folder("/home/ada")]
    base = pack.provide(store, image, "squashfs", usual)
    file = pack.provide(store, image, "squashfs", usual, [Mount(source="/etc/hosts", target="/y")])
    assert (listed(file)["/y"][:1], "/home/ada" in listed(file)) == ("-", True)
    other = pack.provide(store, image, "squashfs", usual, [folder("/y"), folder("/opt/env")])
    assert listed(other)["/y"][:1] == "d"
    assert "/y" not in listed(pack.provide(store, image, "squashfs", usual))
    assert len({base, file, other}) == 3
    assert {base, file, other} == set(packed.files(store, image.digest))
    first = other.stat().st_ino
    assert pack.provide(store, image, "squashfs", usual, [folder("/opt/env"), folder("/y")]) == other
    assert other.stat().st_ino == first
    # What the image has needs no file of its own.
    assert pack.provide(store, image, "squashfs", usual, [folder("/opt/env")]) == base


def test_a_place_where_the_image_has_a_file_is_refused(store: Store, image: Image) -> None:
    with pytest.raises(PlanError, match="cannot be mounted at /opt/env/b"):
        pack.provide(store, image, "squashfs", (), [folder("/opt/env/b")])
    assert not store.packed(image.digest, "squashfs").exists()
    assert list((store.root / "tmp").iterdir()) == []


def test_a_usual_place_that_an_image_has_otherwise_is_left_alone(store: Store) -> None:
    tool("mksquashfs")
    odd = image_of(store, {"var/tmp": "-> /tmp", "tmp/a": "a", "dev": "no folder"})
    found = listed(pack.provide(store, odd, "squashfs"))
    assert {"/dev", "/proc"} <= found.keys()


@pytest.mark.parametrize("damage", ["cut", "no facts", "bad facts"])
def test_a_file_that_is_not_whole_is_packed_again(store: Store, image: Image, damage: str) -> None:
    path = pack.provide(store, image, "squashfs")
    whole = packed.sha256(path)
    match damage:
        case "cut":
            os.truncate(path, 100)
        case "no facts":
            packed.facts_of(path).unlink()
        case _:
            packed.facts_of(path).write_text("{")
    assert packed.about(path) is None
    pack.provide(store, image, "squashfs")
    assert packed.sha256(path) == whole


def test_where_the_store_lacks_inodes_the_tree_is_made_elsewhere(
    store: Store, image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = pack.provide(store, image, "squashfs")
    expected = packed.sha256(linked)
    linked.unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    little = msgspec.structs.replace(place.Room.at(str(store.root)), free_inodes=3)
    monkeypatch.setattr(place.Room, "at", lambda _path: little)
    assert packed.sha256(pack.provide(store, image, "squashfs")) == expected
    assert list((tmp_path / "elsewhere").iterdir()) == []
