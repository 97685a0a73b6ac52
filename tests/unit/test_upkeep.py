"""What a store holds, whether it is whole, and what can go: nothing that is needed, nothing half."""

import errno
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import forked
import pytest
from builders import fake_digest
from matrices import keep, make_matrix
from registries import sha256
from stored import foreign_tar, pulled_layer
from tools import started, tool

from bareboat.deployment import pack
from bareboat.model import Image, Layer, Mount, Pin
from bareboat_base import codec
from bareboat_base.errors import StoreError
from bareboat_images import upkeep
from bareboat_images.formats import packed
from bareboat_images.formats.flatten import make_flat
from bareboat_images.layers import layer as canonical
from bareboat_images.model import StoredCapture, StoredLayer
from bareboat_images.store import Store
from bareboat_images.store.instances import Instance
from bareboat_images.upkeep import State, contents

DAY_S = 86_400


def put_layer(store: Store, **files: str) -> Layer:
    """A layer as a capture makes it: its tar is the canonical one of its tree."""
    with store.scratch() as scratch:
        tree = scratch / "made/tree"
        tree.mkdir(parents=True)
        for name, text in files.items():
            (tree / name).write_text(text)
            os.chmod(tree / name, 0o644)
        diff_id, size = canonical.digest_tree(str(tree))
        unpacked = sum(len(text.encode()) for text in files.values())
        facts = StoredLayer(diff_id=diff_id, size_bytes=size, unpacked_bytes=unpacked, inodes=len(files))
        store.publish_layer(scratch / "made", facts)
    return Layer(diff_id=diff_id, size_bytes=size, unpacked_bytes=unpacked, inodes=len(files))


def put_foreign_layer(store: Store, *, rebuildable: bool = True, **files: str) -> Layer:
    tar = foreign_tar({name: text.encode() for name, text in files.items()})
    return pulled_layer(store, tar, recipe=rebuildable)


def put_image(store: Store, layers: Sequence[Layer], *, reference: str = "", **changes: str) -> Image:
    config = json.dumps({"rootfs": {"diff_ids": [layer.diff_id for layer in layers]}, **changes}).encode()
    config_digest = sha256(config)
    manifest = json.dumps({"config": {"size": len(config), "digest": config_digest}, "layers": []}).encode()
    image = Image(digest=sha256(manifest), layers=tuple(layers), reference=reference)
    store.put_image(image, manifest=manifest, config=config)
    return image


def make_old(path: Path, days: float) -> None:
    moment = time.time() - days * DAY_S
    os.utime(path, (moment, moment))


def entry(store: Store, image: Image) -> Path:
    return store.root / "images/sha256" / f"{image.digest[7:]}.json"


def names(freed: Sequence[upkeep.Freed]) -> set[tuple[str, str]]:
    return {(item.kind, item.name) for item in freed}


def pin(store: Store, reference: str, image: Image) -> None:
    store.pin(
        Pin(reference=reference, digest=image.digest, root=image.digest, pinned_at="2025-01-01T00:00:00Z")
    )


# -- du ----------------------------------------------------------------------------------------------


def test_an_empty_store_takes_nothing(store: Store) -> None:
    assert upkeep.usage(store).total == upkeep.Amount()
    assert upkeep.collect_garbage(store).freed == ()
    assert not store.root.exists()


def test_what_images_share_is_told_apart(store: Store) -> None:
    base = put_layer(store, base="b" * 5000)
    one = put_image(store, [base, put_layer(store, one="1" * 100)])
    two = put_image(store, [base, put_layer(store, two="2" * 200), base])
    put_layer(store, nobody="3" * 300)
    store.name_image("first", one.digest)
    pin(store, "quay.io/a/b:1", one)
    found = upkeep.usage(store)
    usage = {each.digest: each for each in found.images}
    facts = {
        layer.diff_id: (store.layer_folder(layer.diff_id) / "layer.json").stat().st_size
        for layer in two.layers
    }
    assert usage[one.digest].names == ("first", "quay.io/a/b:1")
    assert usage[two.digest].names == ()
    assert usage[one.digest].shared == usage[two.digest].shared
    assert usage[two.digest].own.size_bytes == 200 + facts[two.layers[1].diff_id]
    assert usage[two.digest].own.inodes == 4  # the file, the tree, the layer's folder, its facts
    assert usage[two.digest].shared.size_bytes == 5000 + facts[base.diff_id]
    assert found.unused.size_bytes > 300
    parts = (found.flat, found.packed, found.documents, found.parts, found.runs, found.in_progress)
    assert found.total.size_bytes == sum(part.size_bytes for part in (found.layers, *parts))


def test_what_cannot_be_read_is_named_by_du(store: Store) -> None:
    kept, lost = put_layer(store, a="x" * 9000), put_layer(store, b="y" * 9000)
    put_image(store, [kept, lost])
    (store.root / "parts/closed").mkdir(parents=True)
    closed = [store.layer_folder(lost.diff_id), store.root / "parts/closed"]
    for folder in closed:
        folder.chmod(0)
    try:
        found = upkeep.usage(store)
    finally:
        for folder in closed:
            folder.chmod(0o700)
    assert found.unreadable == tuple(sorted(map(str, closed)))
    assert upkeep.usage(store).unreadable == ()


def test_a_flat_tree_costs_only_its_folders(store: Store) -> None:
    image = put_image(store, [put_layer(store, a="x" * 9000), put_layer(store, b="y" * 9000)])
    make_flat(store, image)
    (store.run("r1")).mkdir(parents=True)
    (store.run("r1") / "log").write_text("z" * 70)
    store.part(fake_digest("a")).parent.mkdir(parents=True)
    store.part(fake_digest("a")).write_bytes(b"p" * 80)
    found = upkeep.usage(store)
    assert found.flat.size_bytes == 0
    assert found.flat.inodes == 2
    assert found.runs == upkeep.Amount(size_bytes=70, inodes=2)
    assert found.parts.size_bytes == 80


def put_packed(store: Store, image: Image, text: str = "packed") -> Path:
    path = store.packed(image.digest, "sif")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    facts = packed.PackedFile(kind="sif", size_bytes=len(text), sha256=sha256(text.encode())[7:], places={})
    packed.facts_of(path).write_bytes(codec.to_json(facts))
    return path


def test_a_packed_file_is_counted_verified_and_goes_with_its_image(store: Store) -> None:
    image = put_image(store, [put_layer(store, a="x")])
    path = put_packed(store, image)
    beside = packed.facts_of(path).stat().st_size
    assert upkeep.usage(store).packed == upkeep.Amount(size_bytes=6 + beside, inodes=4)
    assert upkeep.verify(store, image).ok
    path.write_text("pAcked")
    found = upkeep.verify(store, image)
    assert not found.ok
    assert found.packed == (f"the sif file {path} was changed",)
    assert found.remedy.startswith(f"rm {path}")
    path.write_text("cut")
    assert "is not what was written there" in upkeep.verify(store, image).packed[0]
    assert upkeep.collect_garbage(store).freed == ()
    entry(store, image).unlink()
    assert ("packed image", image.digest) in names(upkeep.collect_garbage(store, dry_run=True).freed)
    assert path.exists()
    upkeep.collect_garbage(store)
    assert not path.parent.exists()


# -- verify ------------------------------------------------------------------------------------------


def test_a_whole_image_is_whole(store: Store) -> None:
    image = put_image(store, [put_layer(store, a="1", b="2"), put_foreign_layer(store, c="3", d="")])
    said: list[tuple[str, int, int]] = []
    found = upkeep.verify(store, image, progress=lambda *told: said.append(told))
    assert found.ok
    assert found.remedy == ""
    assert [check.state for check in found.layers] == [State.WHOLE, State.WHOLE]
    assert said[-1] == ("verified", image.size_bytes, image.size_bytes)


@pytest.mark.parametrize("rebuildable", [True, False])
def test_an_entry_too_many_is_found(store: Store, rebuildable: bool) -> None:
    layer = put_foreign_layer(store, rebuildable=rebuildable, first="1" * 100)
    image = put_image(store, [layer])
    (store.layer(layer.diff_id) / "second").symlink_to("first")
    (found,) = upkeep.verify(store, image).layers
    assert (found.state, found.detail) == (State.DAMAGED, "it has 3 files and directories, not 2")


@pytest.mark.parametrize("harm", ["change", "cut", "remove", "add", "mode"])
def test_any_change_of_a_captured_layer_is_found(store: Store, harm: str) -> None:
    layer = put_layer(store, first="1" * 100, second="2" * 100)
    image = put_image(store, [layer])
    file = store.layer(layer.diff_id) / "second"
    match harm:
        case "change":
            file.write_text("2" * 99 + "3")
        case "cut":
            os.truncate(file, 50)
        case "remove":
            file.unlink()
        case "add":
            file.with_name("third").write_text("")
        case "mode":
            file.chmod(0o600)
    found = upkeep.verify(store, image)
    assert found.layers[0].state is State.DAMAGED
    assert found.remedy == "bareboat image capture --fresh"


def test_what_is_missing_or_cannot_be_told(store: Store) -> None:
    gone, unknown, odd = (
        put_layer(store, a="1"),
        put_foreign_layer(store, rebuildable=False, b="2"),
        put_layer(store, c="3"),
    )
    image = put_image(store, [gone, unknown, odd])
    store.discard_layer(gone.diff_id)
    os.mkfifo(store.layer(odd.diff_id) / "pipe")
    states = [check.state for check in upkeep.verify(store, image).layers]
    assert states == [State.MISSING, State.UNKNOWN, State.DAMAGED]
    assert upkeep.verify(store, put_image(store, [unknown])).ok


def test_a_missing_manifest_is_found(store: Store) -> None:
    image = put_image(store, [put_layer(store, a="1")])
    store.blob(image.digest).unlink()
    assert upkeep.verify(store, image).documents == (f"the manifest {image.digest} is missing",)


#: The same manifest as readers of text may not understand it: annotations, an escaped digest, a second
#: "config" in an annotation.
ODD_DESCRIPTORS = {
    "annotations": {"annotations": {"a": "b"}},
    "an escape": {},
    "a decoy": {"annotations": {"config": '{"digest": "sha256:' + "0" * 64 + '"}'}},
}


def put_odd_image(store: Store, kind: str) -> tuple[Image, str]:
    layer = put_layer(store, a="1")
    config = json.dumps({"rootfs": {"diff_ids": [layer.diff_id]}}).encode()
    digest = sha256(config)
    descriptor = {**ODD_DESCRIPTORS[kind], "size": len(config), "digest": digest}
    data = json.dumps({"config": descriptor, "layers": []})
    if kind == "an escape":
        data = data.replace(digest, digest.replace("sha256", "\\u0073ha256"))
    image = Image(digest=sha256(data.encode()), layers=(layer,))
    store.put_image(image, manifest=data.encode(), config=config)
    return image, digest


@pytest.mark.parametrize("kind", ODD_DESCRIPTORS)
def test_the_config_of_any_valid_manifest_stays_and_is_verified(store: Store, kind: str) -> None:
    image, config = put_odd_image(store, kind)
    for digest in (image.digest, config):
        make_old(store.blob(digest), 40)
    assert upkeep.collect_garbage(store).freed == ()
    assert upkeep.verify(store, image).ok
    store.blob(config).write_bytes(b"{}")
    assert upkeep.verify(store, image).documents == (f"the config {config} was changed",)
    store.blob(config).unlink()
    assert upkeep.verify(store, image).documents == (f"the config {config} is missing",)


# -- gc ----------------------------------------------------------------------------------------------


def test_what_a_damaged_manifest_needs_is_unknown_and_stays(store: Store) -> None:
    image = put_image(store, [put_layer(store, a="1")])
    other = store.blob(fake_digest("5"))
    store.write(other, b"unneeded")
    make_old(other, 40)
    store.blob(image.digest).write_bytes(b"{}")
    found = upkeep.collect_garbage(store)
    assert found.freed == ()
    assert "manifest" in found.kept[0]
    assert other.exists()


def test_what_no_image_needs_goes_and_the_rest_stays(store: Store) -> None:
    kept = put_image(store, [put_layer(store, a="1")])
    make_flat(store, kept)
    make_flat(store, kept, relinked=True)
    unused = put_layer(store, b="2")
    (store.root / "flat/sha256" / ("d" * 64)).mkdir()
    (store.root / "relinked/sha256" / ("c" * 64)).mkdir()
    for letter, days in (("e", 0.0), ("f", 1.0)):
        store.write(store.blob(fake_digest(letter)), b"x")
        make_old(store.blob(fake_digest(letter)), days)
        store.part(fake_digest(letter)).parent.mkdir(parents=True, exist_ok=True)
        store.part(fake_digest(letter)).write_bytes(b"x")
        make_old(store.part(fake_digest(letter)), days * 8)
    store.remember_capture(fake_digest("1"), kept.digest, {})
    store.remember_capture(fake_digest("2"), fake_digest("9"), {})
    expected = {
        ("layer", unused.diff_id),
        ("flat tree", fake_digest("d")),
        ("flat tree", fake_digest("c")),
        ("blob", fake_digest("f")),
        ("part", "f" * 64),
        ("capture", "2" * 64),
    }
    before = sorted(str(path) for path in store.root.rglob("*"))
    would = upkeep.collect_garbage(store, dry_run=True)
    assert names(would.freed) == expected
    assert sorted(str(path) for path in store.root.rglob("*")) == before
    did = upkeep.collect_garbage(store)
    assert did == would
    assert did.amount.size_bytes > 0
    assert upkeep.collect_garbage(store).freed == ()
    assert upkeep.verify(store, store.image(kept.digest)).ok
    assert store.flat(kept.digest).is_dir()
    assert store.relinked(kept.digest).is_dir()
    assert store.captured(fake_digest("1")) == StoredCapture(digest=kept.digest)
    assert os.listdir(store.root / "tmp") == []


def test_images_go_only_when_nobody_calls_them_and_they_are_old(store: Store) -> None:
    base = put_layer(store, base="b")
    named, pinned, young, old = (
        put_image(store, [base, put_layer(store, **{name: name})], name=name)
        for name in ("named", "pinned", "young", "old")
    )
    store.name_image("mine", named.digest)
    pin(store, "quay.io/a/b:1", pinned)
    for image in (named, pinned, old):
        make_old(entry(store, image), 40)
    make_flat(store, old)
    matrix = make_matrix(images=(old,))
    keep(store, matrix, [[]] * len(matrix.points))
    resume = f"try: bareboat prove --resume {matrix.id}, or bareboat rm {matrix.id}"
    take = "without a name take 0.0 MB, 5 files; remove them: bareboat image rm --unused --older-than 0"
    for words, text in (("--unused --older-than 30", resume), (old.digest[:19], resume), ("--unused", take)):
        kept = forked.run("image", "rm", *words.split(), "--store", store.root, timeout_s=30)
        assert text in kept.stderr
    store.remember_capture(fake_digest("1"), old.digest, {})
    assert upkeep.collect_garbage(store).freed == ()
    config = contents.config_digest(store, old.digest)
    for digest in (old.digest, config):
        assert digest is not None
        make_old(store.blob(digest), 40)
    would = upkeep.collect_garbage(store, older_than_days=30, dry_run=True)
    assert store.has_image(old.digest)
    did = upkeep.collect_garbage(store, older_than_days=30)
    assert did == would
    assert names(did.freed) == {
        ("image", old.digest),
        ("flat tree", old.digest),
        ("layer", old.layers[1].diff_id),
        ("blob", old.digest),
        ("blob", config),
        ("capture", "1" * 64),
    }
    for image in (named, pinned, young):
        assert upkeep.verify(store, store.image(image.digest)).ok


def test_files_for_mounts_are_verified_counted_and_collected(store: Store) -> None:
    image = put_image(store, [put_layer(store, a="1")])
    tool("mksquashfs")
    base = pack.provide(store, image, "squashfs")
    before = upkeep.usage(store).packed.size_bytes
    own = pack.provide(store, image, "squashfs", (), [Mount(source="/", target="/y")])
    assert upkeep.usage(store).packed.size_bytes >= before + own.stat().st_size
    own.write_bytes(own.read_bytes()[:-1] + b"x")
    verified = upkeep.verify(store, image)
    assert verified.packed == (f"the squashfs file {own} was changed",)
    assert str(own) in verified.remedy
    assert upkeep.collect_garbage(store).freed == ()
    os.utime(own.parent, (0, 0))
    (freed,) = upkeep.collect_garbage(store).freed
    assert (freed.kind, freed.name) == ("file for mounts", image.digest)
    assert (own.exists(), base.exists()) == (False, True)


def test_what_a_pull_in_progress_claims_stays(store: Store) -> None:
    claimed, unclaimed = put_layer(store, a="1"), put_layer(store, b="2")
    with store.scratch() as scratch:
        (scratch / "claims").write_text(f"{claimed.diff_id}\n{fake_digest('a')}\n")
        freed = upkeep.collect_garbage(Store(store.root)).freed
    assert names(freed) == {("layer", unclaimed.diff_id)}
    assert store.has_layer(claimed.diff_id)


def test_what_is_claimed_while_it_is_collected_goes_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull that finds a layer just before it is set aside gets it back."""
    layer = put_layer(store, a="1")
    claims = iter([set(), {layer.diff_id}])
    monkeypatch.setattr("bareboat_images.upkeep.contents.claims", lambda _store, **_: next(claims))
    assert upkeep.collect_garbage(store).freed == ()
    assert store.stored_layer(layer.diff_id).inodes == 1


def test_an_image_made_while_it_is_collected_keeps_its_layers(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = put_layer(store, a="1")
    real = contents.claims
    calls = []

    def claims(of: Store, **_: object) -> set[str]:
        calls.append(1)
        if len(calls) == 1:
            put_image(store, [layer])
        return real(of)

    monkeypatch.setattr("bareboat_images.upkeep.contents.claims", claims)
    assert upkeep.collect_garbage(store).freed == ()
    assert upkeep.verify(store, store.images()[0]).ok


def test_a_damaged_entry_keeps_what_it_may_need(store: Store) -> None:
    image = put_image(store, [put_layer(store, a="1")])
    entry(store, image).write_text("{")
    found = upkeep.collect_garbage(store)
    assert found.freed == ()
    assert len(found.kept) == 2
    assert store.has_layer(image.layers[0].diff_id)
    assert upkeep.usage(store).unused.inodes == 4
    upkeep.remove(store, image.digest)
    assert ("layer", image.layers[0].diff_id) in names(upkeep.collect_garbage(store).freed)


def test_unfinished_work_of_machines_not_heard_of_goes(store: Store) -> None:
    put_layer(store, a="1")
    old, young = (store.root / "tmp" / f"otherhost-1-{number}-5-1" for number in (1, 2))
    for folder in (old, young):
        (folder / "layer").mkdir(parents=True)
    make_old(old, 8)
    held, lost = store.lease("held"), store.lease("lost")
    held.parent.mkdir(exist_ok=True)
    for lease in (held, lost):
        lease.write_text("otherhost-1-2-5")
    make_old(lost, 8)
    freed = upkeep.collect_garbage(store).freed
    assert {("unfinished work", old.name), ("lease", "lost")} <= names(freed)
    assert [old.exists(), young.exists(), lost.exists(), held.exists()] == [False, True, False, True]


def test_a_full_disk_does_not_keep_from_making_room(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    unused = put_layer(store, a="1")
    image = put_image(store, [put_layer(store, b="2")])
    make_flat(store, image)
    store.name_image("mine", image.digest)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.mkdir", full)
    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    monkeypatch.setattr("pathlib.Path.touch", full)
    assert names(upkeep.collect_garbage(store).freed) == {("layer", unused.diff_id)}
    assert upkeep.remove(store, "mine").image_gone
    assert not store.layer_folder(image.layers[0].diff_id).exists()
    assert not store.flat(image.digest).exists()


@pytest.mark.thorough
def test_a_collection_that_is_killed_leaves_nothing_half(store: Store) -> None:
    program = (
        "import pathlib, sys; from bareboat_images.store import Store; from bareboat_images import upkeep\n"
        "store = Store(pathlib.Path(sys.argv[1])); print('ready', flush=True); upkeep.collect_garbage(store)"
    )
    kept = put_image(store, [put_layer(store, kept="1")])
    for attempt in range(6):
        for number in range(4):
            put_layer(store, **{f"{attempt}-{number}-{file}": str(file) for file in range(150)})
        process = started([sys.executable, "-c", program, store.root])
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.003 * attempt)
        process.kill()
        process.communicate()
        for diff_id in contents.named(store.root / "layers"):
            assert canonical.digest_tree(str(store.layer(diff_id)))[0] == diff_id
            assert store.stored_layer(diff_id).diff_id == diff_id
    upkeep.collect_garbage(store)
    assert os.listdir(store.root / "tmp") == []
    assert contents.named(store.root / "layers") == [kept.layers[0].diff_id]


def test_a_store_of_another_version_is_left_alone(store: Store) -> None:
    unused = put_layer(store, a="1")
    (store.root / "version").write_text("99\n")
    with pytest.raises(StoreError, match="has version 99"):
        upkeep.collect_garbage(store)
    assert store.has_layer(unused.diff_id)


# -- rm ----------------------------------------------------------------------------------------------


def test_the_last_name_takes_the_image_with_it(store: Store) -> None:
    base = put_layer(store, base="b")
    other = put_image(store, [base], name="other")
    image = put_image(store, [base, put_layer(store, a="1")])
    make_flat(store, image)
    store.name_image("one", image.digest)
    store.name_image("two", image.digest)
    first = upkeep.remove(store, "one")
    assert (first.references, first.image_gone, first.freed) == (("one",), False, ())
    assert store.has_image("two")
    config = contents.config_digest(store, image.digest)
    would = upkeep.remove(store, "two", dry_run=True)
    before = upkeep.usage(store).total
    second = upkeep.remove(store, "two")
    assert second == would
    name = upkeep.Amount(size_bytes=len(image.digest), inodes=1)
    assert second.amount + name + upkeep.usage(store).total == before
    assert second.image_gone
    assert second.digest == image.digest
    assert names(second.freed) == {
        ("image", image.digest),
        ("layer", image.layers[1].diff_id),
        ("flat tree", image.digest),
        ("blob", image.digest),
        ("blob", config),
    }
    assert upkeep.verify(store, store.image(other.digest)).ok
    assert not store.has_image(image.digest)
    assert store.names() == {}


def test_a_pinned_reference_may_be_written_short(store: Store) -> None:
    image = put_image(store, [put_layer(store, a="1")])
    pin(store, "docker.io/library/debian:12", image)
    pin(store, "quay.io/a/b:1", image)
    assert upkeep.remove(store, "debian:12").references == ("docker.io/library/debian:12",)
    assert [left.reference for left in store.pins()] == ["quay.io/a/b:1"]
    assert upkeep.remove(store, "quay.io/a/b:1").image_gone


def test_by_its_digest_an_image_goes_with_all_its_names(store: Store) -> None:
    image = put_image(store, [put_layer(store, a="1")])
    store.name_image("one", image.digest)
    pin(store, "quay.io/a/b:1", image)
    found = upkeep.remove(store, image.digest[:19])
    assert set(found.references) == {"one", "quay.io/a/b:1"}
    assert found.image_gone
    assert (store.names(), store.pins(), store.images()) == ({}, [], [])


def test_an_image_that_lacks_a_layer_can_go(store: Store) -> None:
    image = put_image(store, [put_layer(store, a="1"), put_layer(store, b="2")])
    store.discard_layer(image.layers[0].diff_id)
    freed = names(upkeep.remove(store, image.digest).freed)
    assert ("layer", image.layers[1].diff_id) in freed


def test_what_is_not_there_cannot_be_removed_but_a_name_of_it_can(store: Store) -> None:
    store.name_image("dangling", fake_digest("a"))
    assert upkeep.remove(store, "dangling").freed == ()
    one = put_image(store, [put_layer(store, a="1")])
    for reference in ("nothing", "sha256:", "", "debian:12", "../../etc", fake_digest("a"), "a\nb"):
        with pytest.raises(StoreError, match="not found in the store"):
            upkeep.remove(store, reference)
    assert store.has_image(one.digest)


def test_kernels_go_with_their_image_or_when_no_job_uses_them(store: Store) -> None:
    image = put_image(store, [put_layer(store, one="1")], reference="one")
    top = store.kernel_caches()
    kept, old, lost, study = (
        top / image.digest[7:] / "project/a.tar",
        top / image.digest[7:] / "another/a.tar",
        top / ("f" * 64) / "project/a.tar",
        top / "studies/x-1.0-0/a.tar",
    )
    for path in (kept, old, lost, study):
        path.parent.mkdir(parents=True)
        path.write_text("kernels")
    make_old(old, 31)
    expected = {("kernel cache", f"{image.digest[7:]}/a.tar"), ("kernel cache", f"{'f' * 64}/a.tar")}
    assert names(upkeep.collect_garbage(store, dry_run=True).freed) >= expected
    assert old.exists()
    assert names(upkeep.collect_garbage(store).freed) >= expected
    assert set(top.glob("*/*/*")) == {kept, study}
    assert not lost.parent.parent.exists()


def test_containers_are_counted_and_go_when_nobody_can_find_them(store: Store) -> None:
    image = put_image(store, [put_layer(store, one="1")], reference="one")
    for key in ("named", "unnamed", "young", "interrupted"):
        names_of = ("box",) if key in ("named", "interrupted") else ()
        folder = store.instances() / key
        (folder / "root").mkdir(parents=True)
        (folder / "root/file").write_text("x" * 5000)
        facts = Instance(
            id=key, reference="one", image=image, tree="", names=names_of, temporary=key == "interrupted"
        )
        (folder / "instance.json").write_bytes(codec.to_json(facts))
        make_old(folder, 0 if key == "young" else 31)
    usage = upkeep.usage(store)
    assert usage.containers.size_bytes > 4 * 5000
    assert usage.containers.inodes == 4 * 4
    assert usage.total.size_bytes > usage.containers.size_bytes
    freed = upkeep.collect_garbage(store, dry_run=True).freed
    assert names(freed) == {("container", "unnamed"), ("container", "interrupted")}
    upkeep.collect_garbage(store)
    assert sorted(path.name for path in store.instances().iterdir()) == ["named", "young"]
