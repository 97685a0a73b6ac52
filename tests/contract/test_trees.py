"""The trees that we unpack are those that podman unpacks, entry by entry, for images that vary in all that
makes layers hard (lab/varied.py)."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from environments import with_engine
from lab import varied, walk
from tools import output, tool

from bareboat.deployment.present import rootfs_of
from bareboat.model import Image
from bareboat_images.formats.flatten import make_flat
from bareboat_images.store import Store
from bareboat_images.tar.limits import Limits
from bareboat_images.transfer import locate
from bareboat_images.transfer.options import PullOptions
from bareboat_images.transfer.pull import obtain


@pytest.fixture(scope="module", params=varied.names())
def layout(request: pytest.FixtureRequest) -> varied.Layout:
    return varied.layout(request.param)


@pytest.fixture(scope="module")
def theirs(layout: varied.Layout) -> Iterator[dict[str, Any]]:
    """What podman unpacks, seen by whom it belongs to."""
    containers = varied.Containers()
    work = containers.work
    try:
        # podman makes the path a part of the image's name, and takes only some paths for that.
        (work / "layout").symlink_to(layout.folder)
        number = containers.podman("pull", "--quiet", f"oci:{work}/layout:1").strip()
        script = 'exec "$1" "$2" "$(shift 2; "$@")"'
        mount = (tool("podman"), *containers.storage, "image", "mount", number)
        told = containers.as_its_user("sh", "-c", script, "sh", sys.executable, walk.__file__, *mount)
        yield json.loads(told)
    finally:
        containers.remove()


@pytest.fixture(scope="module")
def store_and_image(layout: varied.Layout, tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Image]:
    store = Store(tmp_path_factory.mktemp("trees") / "store")
    found = locate.read(layout.reference, folder="/")
    return store, obtain(found, store, PullOptions(machine="x86_64", limits=Limits())).image


def expected(theirs: dict[str, Any]) -> dict[str, Any]:
    """podman's tree as an ordinary user can have it.

    setuid and setgid would hand this user's rights to others; whoever owns a file must be able to read it,
    and to remove what is in a folder.
    """
    result = {}
    for path, entry in theirs.items():
        match entry["kind"]:
            case "-":
                mode = entry["mode"] & 0o777 | 0o400
            case "d":
                mode = entry["mode"] & 0o1777 | 0o500
            case "p":
                mode = entry["mode"] & 0o777 | 0o600
            case _:
                mode = entry["mode"]
        result[path] = entry | {"mode": mode}
    return result


def comparable(entry: dict[str, Any]) -> dict[str, Any]:
    """Without what podman's storage loses itself: hard links to anything but plain files, which its vfs
    driver makes several of when it copies a layer for the next."""
    return entry if entry["kind"] == "-" else {key: entry[key] for key in entry if key != "same_as"}


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    found = []
    for path in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(path), theirs.get(path)
        if mine is None or other is None:
            found.append(f"{path!r}: only {'podman' if mine is None else 'Bareboat'} has it")
            continue
        found += [
            f"{path!r}: {key} {mine.get(key)!r}, podman {other.get(key)!r}"
            for key in sorted(mine.keys() | other.keys())
            if mine.get(key) != other.get(key)
        ]
    return found


#: What podman's tree of an image must show, or the comparison would compare nothing.
PROOFS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "swaps": lambda tree: [tree[path]["kind"] for path in ("lib", "opt/a", "opt/c")] == ["d", "d", "-"],
    "whiteouts": lambda tree: "d/new" in tree and "d/e" not in tree and "link/in" not in tree,
    "hard-links": lambda tree: sum(each.get("same_as") == "h/a/n1" for each in tree.values()) == 2,
    "modes": lambda tree: tree["m/f6777"]["mode"] == 0o6777 and tree["m/fifo"]["kind"] == "p",
    "attributes": lambda tree: sum(len(each["xattrs"]) for each in tree.values()) == 6,
    "names": lambda tree: {"n/new\nline", "n/\udcff\udcfe\x01", "n/case"} < tree.keys(),
    "sizes": lambda tree: tree["s/f0"]["mtime_ns"] == 0 and tree["s/middle"]["size"] == 5 << 20,
    "zstd": lambda tree: "z/busybox" in tree and "z/numbers" not in tree,
    "many-layers": lambda tree: "y/2/58" in tree and "y/1/50" not in tree,
    "architectures": lambda tree: "elsewhere" not in tree and "made/by/workdir/here" in tree,
    "tars": lambda tree: tree["pax/holes"]["mtime_ns"] % 1000 != 0 and "t/holes" not in tree,
}


def test_podmans_tree_has_what_makes_the_image_hard(layout: varied.Layout, theirs: dict[str, Any]) -> None:
    assert PROOFS[layout.name](theirs)


def test_the_layers_have_what_makes_the_image_hard(layout: varied.Layout) -> None:
    """Compressions and indexes, which no tree shows."""
    index = json.loads((layout.folder / "index.json").read_bytes())
    (root,) = index["manifests"]
    blobs = layout.folder / "blobs" / "sha256"
    document = json.loads((blobs / root["digest"].removeprefix("sha256:")).read_bytes())
    if layout.name == "architectures":
        assert {each["platform"]["architecture"] for each in document["manifests"]} == {"amd64", "arm64"}
        return
    first = [
        (blobs / layer["digest"].removeprefix("sha256:")).read_bytes()[:4] for layer in document["layers"]
    ]
    assert len(first) >= (61 if layout.name == "many-layers" else 3)
    magic = b"\x28\xb5\x2f\xfd" if layout.name == "zstd" else b"\x1f\x8b"
    assert all(data.startswith(magic) for data in first)


def test_the_flat_tree_is_podmans(store_and_image: tuple[Store, Image], theirs: dict[str, Any]) -> None:
    store, image = store_and_image
    ours = walk.describe(str(make_flat(store, image)))
    assert compared(ours, theirs) == []


def test_the_stacked_layers_are_podmans(
    layout: varied.Layout,
    store_and_image: tuple[Store, Image],
    theirs: dict[str, Any],
    tmp_path: Path,
) -> None:
    """What overlayfs shows of the layers, as bubblewrap mounts them for a job."""
    store, image = store_and_image
    facts = with_engine(store, "bubblewrap").engine("bubblewrap")
    if facts is None or not facts.overlay:
        pytest.skip(f"no overlay mounts here: {'' if facts is None else facts.detail}")
    assert all(layer.stackable for layer in image.layers)
    if layout.name == "many-layers":
        return  # more than mount(2) takes: jobs get the flat tree
    # A single layer is no stack for bwrap: an empty one below it changes nothing.
    empty = tmp_path / "empty"  # the folder itself holds what tools that were probed keep there
    empty.mkdir()
    sources = ["--overlay-src", str(empty)]
    for path in rootfs_of(store, image).layers.values():
        sources += ["--overlay-src", path]
    machine = (facts.path, "--dev-bind", "/", "/", *sources, "--ro-overlay", "/mnt", "--")
    ours = json.loads(output(*machine, sys.executable, walk.__file__, "/mnt"))
    assert compared(ours, theirs) == []


def compared(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """The differences, without the root itself, which is in no layer of these images: its mode and time are
    those of whoever made it."""
    return differences(
        {path: comparable(entry) for path, entry in ours.items() if path},
        {path: comparable(entry) for path, entry in expected(theirs).items() if path},
    )
