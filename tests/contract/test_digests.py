"""Images that are named by SHA-512, whole or in part, from every place and through every command."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import digested
import forked
import images
import pytest
from digested import MIXES, Digested
from registries import MANIFEST, FakeRegistry, real_registry

from bareboat_base import digests
from bareboat_images.store import Store


class Bareboat:
    """`bareboat …` in a process of its own, with a store of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"

    def __call__(self, *arguments: str | Path, code: int = 0) -> str:
        done = forked.run(
            *arguments, env=os.environ | {"BAREBOAT_STORE": str(self.store)}, cwd=self.folder, timeout_s=120
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
def bareboat(tmp_path: Path) -> Bareboat:
    return Bareboat(tmp_path)


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


@pytest.mark.one_in(5)
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("place", PLACES)
def test_an_image_is_brought_verified_saved_and_removed(
    bareboat: Bareboat, tmp_path: Path, fake: FakeRegistry, tars: tuple[bytes, ...], mix: str, place: str
) -> None:
    image = digested.make(*tars, sha512=MIXES[mix])
    assert image.digest in bareboat("image", *PLACES[place](image, tmp_path, fake))
    stored = Store(bareboat.store).image(image.digest)
    diff_ids = [digested.digest(each, digests.algorithm(image.names["diff_id"])) for each in tars]
    assert [layer.diff_id for layer in stored.layers] == diff_ids
    short = digests.short(image.digest)
    there = bareboat.named()
    assert {f"layers {each}" for each in diff_ids} <= there
    assert {f"images {image.digest}", f"blobs {image.digest}", f"blobs {image.names['config']}"} <= there
    assert short in bareboat("image", "ls")
    assert digests.short(diff_ids[0]) in bareboat("image", "show", short)
    bareboat("image", "verify", image.digest)

    bareboat("image", "save", short, "saved.tar")
    with tarfile.open(tmp_path / "saved.tar") as archive:
        index = archive.extractfile("index.json")
        assert index is not None
        assert json.load(index)["manifests"][0]["digest"] == image.digest
    other = Bareboat(tmp_path / "other")
    other.folder.mkdir()
    assert image.digest in other("image", "load", tmp_path / "saved.tar")

    other("image", "rm", "--unused")
    assert f"images {image.digest}" in other.named()
    bareboat("image", "rm", short)
    bareboat("image", "rm", "--unused")
    assert not {each for each in bareboat.named() if not each.startswith("blobs")}
    assert not any(bareboat.store.glob("parts/*/*"))


def test_an_image_runs(bareboat: Bareboat, tmp_path: Path, tars: tuple[bytes, ...]) -> None:
    image = digested.make(*tars)
    bareboat("image", "load", image.layout(tmp_path / "layout"), "--name", "app")
    for name in ("app", image.digest):
        (tmp_path / "job.toml").write_text(f'image = "{name}"\ncommand = ["cat", "/data/app"]\n')
        assert bareboat("run", "-q", "job.toml") == "app\n"


def test_a_damaged_layer_is_found(bareboat: Bareboat, tmp_path: Path, tars: tuple[bytes, ...]) -> None:
    image = digested.make(*tars)
    bareboat("image", "load", image.layout(tmp_path / "layout"))
    changed = Store(bareboat.store).layer(image.names["diff_id"]) / "data/app"
    changed.write_bytes(b"APP\n")
    assert "damaged" in bareboat("image", "verify", image.digest, code=4)


@pytest.mark.parametrize("mix", MIXES)
def test_an_image_is_converted_and_comes_back(
    bareboat: Bareboat, tmp_path: Path, tars: tuple[bytes, ...], mix: str
) -> None:
    image = digested.make(*tars, sha512=MIXES[mix])
    bareboat("image", "load", image.layout(tmp_path / "layout"))
    bareboat("image", "save", image.digest, f"oci-archive:{tmp_path / 'again.tar'}")
    other = Bareboat(tmp_path / "other")
    other.folder.mkdir()
    assert image.digest in other("image", "load", tmp_path / "again.tar")


@pytest.mark.parametrize("mix", MIXES)
def test_an_image_is_pushed_and_pulled_again(
    bareboat: Bareboat, tmp_path: Path, fake: FakeRegistry, tars: tuple[bytes, ...], mix: str
) -> None:
    image = digested.make(*tars, sha512=MIXES[mix])
    bareboat("image", "load", image.layout(tmp_path / "layout"))
    target = f"{fake.address}/team/app"
    for to in (f"{target}@{image.digest}", f"{target}:1"):
        bareboat("image", "push", "--plain-http", image.digest, to)
    assert fake.manifests[image.digest] == (image.blobs[image.digest], MANIFEST)
    assert {image.names["config"], image.names["layer"]} <= set(fake.blobs)
    other = Bareboat(tmp_path / "other")
    other.folder.mkdir()
    assert image.digest in other("image", "pull", "--plain-http", f"{target}@{image.digest}")
    other("image", "verify", image.digest)


def test_docker_registry_keeps_blobs_of_both(
    bareboat: Bareboat, tmp_path: Path, tars: tuple[bytes, ...]
) -> None:
    """It names manifests by SHA-256 alone."""
    image = digested.make(*tars, sha512=("config", "layer", "diff_id"))
    bareboat("image", "load", image.layout(tmp_path / "layout"))
    with real_registry(tmp_path / "registry") as registry:
        target = f"{registry.address}/team/app:1"
        assert image.digest in bareboat("image", "push", "--plain-http", image.digest, target)
        other = Bareboat(tmp_path / "other")
        other.folder.mkdir()
        assert image.digest in other("image", "pull", "--plain-http", target)
        other("image", "verify", image.digest)


def test_one_content_under_both_algorithms_is_two_images(
    bareboat: Bareboat, tmp_path: Path, tars: tuple[bytes, ...]
) -> None:
    """Removing one leaves the other whole."""
    one, two = digested.make(*tars, sha512=()), digested.make(*tars)
    bareboat("image", "load", one.layout(tmp_path / "one"))
    before = bareboat.named()
    bareboat("image", "load", two.layout(tmp_path / "two"))
    assert all(" sha512:" in each for each in bareboat.named() - before)
    bareboat("image", "rm", two.digest)
    bareboat("image", "rm", "--unused")
    assert before <= bareboat.named()
    bareboat("image", "verify", one.digest)
