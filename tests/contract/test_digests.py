"""Images that are named by SHA-512, whole or in part, from every place and through every command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import digested
import images
import pytest
from digested import MIXES, Digested
from registries import MANIFEST, FakeRegistry, real_registry

from fairlead import digests
from fairlead.store import Store


class Fairlead:
    """`fairlead …` in a process of its own, with a store of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"

    def __call__(self, *arguments: str | Path, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "fairlead", *map(str, arguments)],
            env=os.environ | {"FAIRLEAD_STORE": str(self.store)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "Traceback" not in done.stderr
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    def named(self) -> set[str]:
        """Every digest that something in the store is named by, with its kind."""
        found = set()
        for algorithm in digests.DIGITS:
            for path in self.store.glob(f"*/{algorithm}/*"):
                found.add(f"{path.parent.parent.name} {algorithm}:{path.name.removesuffix('.json')}")
        return found


@pytest.fixture
def fairlead(tmp_path: Path) -> Fairlead:
    return Fairlead(tmp_path)


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry() as registry:
        yield registry


@pytest.fixture(scope="module")
def tars() -> tuple[bytes, ...]:
    base = images.busybox(**{"etc/os-release": b"ID=test\n", "data": None})
    return base, images.tar({"data": None, "data/app": b"app\n"})


Bring = Callable[[Digested, Path, FakeRegistry], tuple[str | Path, ...]]
PLACES: dict[str, Bring] = {
    "layout": lambda image, folder, _: ("load", image.layout(folder / "layout")),
    "archive": lambda image, folder, _: ("load", image.archive(folder / "image.tar")),
    "registry": lambda image, _, fake: ("pull", "--plain-http", image.serve(fake)),
}


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("place", PLACES)
def test_an_image_is_brought_verified_saved_and_removed(
    fairlead: Fairlead, tmp_path: Path, fake: FakeRegistry, tars: tuple[bytes, ...], mix: str, place: str
) -> None:
    image = digested.make(*tars, sha512=MIXES[mix])
    assert image.digest in fairlead("image", *PLACES[place](image, tmp_path, fake))
    stored = Store(fairlead.store).image(image.digest)
    diff_ids = [digested.digest(each, digests.algorithm(image.names["diff_id"])) for each in tars]
    assert [layer.diff_id for layer in stored.layers] == diff_ids
    short = digests.short(image.digest)
    there = fairlead.named()
    assert {f"layers {each}" for each in diff_ids} <= there
    assert {f"images {image.digest}", f"blobs {image.digest}", f"blobs {image.names['config']}"} <= there
    assert short in fairlead("image", "ls")
    assert digests.short(diff_ids[0]) in fairlead("image", "show", short)
    fairlead("image", "verify", image.digest)

    fairlead("image", "save", short, "saved.tar")
    with tarfile.open(tmp_path / "saved.tar") as archive:
        index = archive.extractfile("index.json")
        assert index is not None
        assert json.load(index)["manifests"][0]["digest"] == image.digest
    other = Fairlead(tmp_path / "other")
    other.folder.mkdir()
    assert image.digest in other("image", "load", tmp_path / "saved.tar")

    other("image", "gc")
    assert f"images {image.digest}" in other.named()
    fairlead("image", "rm", short)
    fairlead("image", "gc")
    assert not {each for each in fairlead.named() if not each.startswith("blobs")}
    assert not any(fairlead.store.glob("parts/*/*"))


def test_an_image_runs(fairlead: Fairlead, tmp_path: Path, tars: tuple[bytes, ...]) -> None:
    image = digested.make(*tars)
    fairlead("image", "load", image.layout(tmp_path / "layout"), "--name", "app")
    for name in ("app", image.digest):
        (tmp_path / "job.toml").write_text(f'image = "{name}"\ncommand = ["cat", "/data/app"]\n')
        assert fairlead("run", "-q", "job.toml") == "app\n"


def test_a_damaged_layer_is_found(fairlead: Fairlead, tmp_path: Path, tars: tuple[bytes, ...]) -> None:
    image = digested.make(*tars)
    fairlead("image", "load", image.layout(tmp_path / "layout"))
    changed = Store(fairlead.store).layer(image.names["diff_id"]) / "data/app"
    changed.write_bytes(b"APP\n")
    assert "damaged" in fairlead("image", "verify", image.digest, code=4)


@pytest.mark.parametrize("mix", MIXES)
def test_an_image_is_converted_and_comes_back(
    fairlead: Fairlead, tmp_path: Path, tars: tuple[bytes, ...], mix: str
) -> None:
    image = digested.make(*tars, sha512=MIXES[mix])
    fairlead("image", "load", image.layout(tmp_path / "layout"))
    fairlead("image", "convert", image.digest, f"oci-archive:{tmp_path / 'again.tar'}")
    other = Fairlead(tmp_path / "other")
    other.folder.mkdir()
    assert image.digest in other("image", "load", tmp_path / "again.tar")


@pytest.mark.parametrize("mix", MIXES)
def test_an_image_is_pushed_and_pulled_again(
    fairlead: Fairlead, tmp_path: Path, fake: FakeRegistry, tars: tuple[bytes, ...], mix: str
) -> None:
    image = digested.make(*tars, sha512=MIXES[mix])
    fairlead("image", "load", image.layout(tmp_path / "layout"))
    target = f"{fake.address}/team/app"
    for to in (f"{target}@{image.digest}", f"{target}:1"):
        fairlead("image", "push", "--plain-http", image.digest, to)
    assert fake.manifests[image.digest] == (image.blobs[image.digest], MANIFEST)
    assert {image.names["config"], image.names["layer"]} <= set(fake.blobs)
    other = Fairlead(tmp_path / "other")
    other.folder.mkdir()
    assert image.digest in other("image", "pull", "--plain-http", f"{target}@{image.digest}")
    other("image", "verify", image.digest)


def test_docker_registry_keeps_blobs_of_both(
    fairlead: Fairlead, tmp_path: Path, tars: tuple[bytes, ...]
) -> None:
    """It names manifests by SHA-256 alone."""
    image = digested.make(*tars, sha512=("config", "layer", "diff_id"))
    fairlead("image", "load", image.layout(tmp_path / "layout"))
    with real_registry(tmp_path / "registry") as registry:
        target = f"{registry.address}/team/app:1"
        assert image.digest in fairlead("image", "push", "--plain-http", image.digest, target)
        other = Fairlead(tmp_path / "other")
        other.folder.mkdir()
        assert image.digest in other("image", "pull", "--plain-http", target)
        other("image", "verify", image.digest)


def test_one_content_under_both_algorithms_is_two_images(
    fairlead: Fairlead, tmp_path: Path, tars: tuple[bytes, ...]
) -> None:
    """Removing one leaves the other whole."""
    one, two = digested.make(*tars, sha512=()), digested.make(*tars)
    fairlead("image", "load", one.layout(tmp_path / "one"))
    before = fairlead.named()
    fairlead("image", "load", two.layout(tmp_path / "two"))
    assert all(" sha512:" in each for each in fairlead.named() - before)
    fairlead("image", "rm", two.digest)
    fairlead("image", "gc")
    assert before <= fairlead.named()
    fairlead("image", "verify", one.digest)
