"""A name of the store is that image or an error, and the signature policy holds at every door to an image."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import images
import pytest
from archives import tar_of
from building import Builds
from tools import tool

import bareboat_images
from bareboat.api import images as api
from bareboat.api import instances
from bareboat.api.container import Container
from bareboat_base import digests
from bareboat_base.errors import BareboatError, ImageError, StoreError, UsageError
from bareboat_images.registry.access import Access
from bareboat_images.store import Store
from bareboat_images.transfer import locate, opening
from bareboat_images.transfer.options import PullOptions
from bareboat_images.upkeep.removal import collect_garbage, remove


def _layout(folder: Path, text: str) -> str:
    """A tar of a root file system with one file, as a reference."""
    path = folder / f"{text}.tar"
    path.write_bytes(images.busybox(**{"etc/mark": text.encode()}))
    return f"rootfs:{path}"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with one named image, of which the environment is that of a user."""
    tool("busybox")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BAREBOAT_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")  # no registry can be reached
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "store")
    store.name_image("base", bareboat_images.pull(_layout(tmp_path, "one"), store).digest)
    return store


def _policy(folder: Path, *requirements: object, **transports: object) -> str:
    path = folder / "policy.json"
    path.write_text(json.dumps({"default": requirements, "transports": transports}))
    path.chmod(0o600)
    return str(path)


def _rejecting(folder: Path) -> str:
    return _policy(folder, {"type": "reject"})


def _signed_by(folder: Path) -> str:
    (folder / "key").write_bytes(b"")
    (folder / "key").chmod(0o600)
    return _policy(folder, {"type": "signedBy", "keyType": "GPGKeys", "keyPath": str(folder / "key")})


# ---- names ----------------------------------------------------------------------------------------------


def _closed(path: Path) -> None:
    path.chmod(0)


def _a_link(path: Path) -> None:
    path.rename(path.with_name("aside"))
    path.symlink_to("aside")


def _a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _damaged(path: Path) -> None:
    path.write_text("")


def _of_no_image(path: Path) -> None:
    path.write_text("sha256:" + "0" * 64)


_FAULTS = (_closed, _a_link, _a_directory, _damaged, _of_no_image)


@pytest.mark.parametrize("fault", _FAULTS)
def test_a_name_that_cannot_be_read_is_no_image_of_a_registry(
    store: Store, tmp_path: Path, fault: Callable[[Path], None]
) -> None:
    (tmp_path / "Dockerfile").write_text("FROM base\n")
    fault(store.root / "names/base")
    with pytest.raises(StoreError):
        Container("base")
    with pytest.raises(StoreError):
        api.find("base")
    with pytest.raises(StoreError):
        bareboat_images.build(tmp_path / "Dockerfile", context=None, store=store)
    builds = Builds(tmp_path)
    for verb in (("build", "."), ("show", "base")):
        said = builds.bareboat("image", *verb, code=4)
        assert "docker.io" not in said.err
    assert "docker.io" not in builds.bareboat("plan", "--image", "base", "--", "true", code=4).err


@pytest.mark.parametrize("fault", [_closed, _a_link, _a_directory, _damaged])
@pytest.mark.parametrize("room", ["names", "pins"])
def test_no_image_is_removed_while_a_name_cannot_be_read(
    store: Store, fault: Callable[[Path], None], room: str
) -> None:
    digest = store.image("base").digest
    if room == "names":
        for pin in (store.root / "pins").iterdir():
            pin.unlink()
    else:
        (store.root / "names/base").unlink()
    fault(next((store.root / room).iterdir()))
    collected = collect_garbage(store, older_than_days=-1)
    assert store.has_image(digest)
    assert any(room in each for each in collected.kept)


def test_the_last_name_that_can_be_read_does_not_take_the_image_along(store: Store) -> None:
    digest = store.image("base").digest
    store.name_image("other", digest)
    for pin in (store.root / "pins").iterdir():
        pin.unlink()
    _closed(store.root / "names/base")
    assert not remove(store, "other").image_gone
    assert store.has_image(digest)


def test_a_directory_of_the_working_directory_is_no_name(store: Store, tmp_path: Path) -> None:
    for name in ("base", "debian"):
        (tmp_path / name / "bin").mkdir(parents=True)
    assert Path(Container("base").tree).is_relative_to(store.root)
    with pytest.raises(BareboatError):
        Container("debian")
    assert Container("./debian").tree == str(tmp_path / "debian")


@pytest.mark.usefixtures("store")
def test_a_file_that_changed_is_loaded_again(tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    for text in ("first", "second"):
        path.write_bytes(images.busybox(**{"etc/mark": text.encode()}))
        assert (Path(Container(str(path)).tree) / "etc/mark").read_text() == text


# ---- the policy -----------------------------------------------------------------------------------------


def _container(_: Store, _folder: Path) -> None:
    Container("base")


def _by_digest(store: Store, _folder: Path) -> None:
    Container(store.image("base").digest)


def _create(_: Store, _folder: Path) -> None:
    instances.create("base")


def _library_build(store: Store, folder: Path) -> None:
    (folder / "Dockerfile").write_text("FROM base\n")
    options = PullOptions(access=Access(policy=os.environ.get("BAREBOAT_POLICY")))
    bareboat_images.build(folder / "Dockerfile", context=None, store=store, options=options)


def _save(_: Store, folder: Path) -> None:
    api.save_sif("base", folder / "x.sif")


def _directory(_: Store, folder: Path) -> None:
    (folder / "root/bin").mkdir(parents=True, exist_ok=True)
    Container(folder / "root")


def _writable_directory(_: Store, folder: Path) -> None:
    (folder / "root/bin").mkdir(parents=True, exist_ok=True)
    instances.at(str(folder / "root"))


def _file(_: Store, folder: Path) -> None:
    (folder / "x.tar").write_bytes(tar_of({"bin/x": b"x"}))
    Container(folder / "x.tar")


_DOORS = (
    _container, _by_digest, _create, _library_build, _save, _directory, _writable_directory, _file,
)  # fmt: skip


@pytest.mark.parametrize("door", _DOORS)
@pytest.mark.parametrize("policy", [_rejecting, _signed_by])
def test_the_policy_holds_at_every_door(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    door: Callable[[Store, Path], None],
    policy: Callable[[Path], str],
) -> None:
    door(store, tmp_path)
    monkeypatch.setenv("BAREBOAT_POLICY", policy(tmp_path))
    with pytest.raises((ImageError, UsageError)) as caught:
        door(store, tmp_path)
    assert "docker.io" not in str(caught.value)


@pytest.mark.usefixtures("store")
def test_a_container_that_is_kept_is_asked_like_its_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = instances.create("base")
    Container(kept)
    monkeypatch.setenv("BAREBOAT_POLICY", _rejecting(tmp_path))
    with pytest.raises(ImageError):
        Container(kept)


@pytest.mark.usefixtures("store")
def test_a_name_that_the_policy_refuses_is_no_image_of_a_registry(tmp_path: Path) -> None:
    builds = Builds(tmp_path)
    builds.variables["BAREBOAT_POLICY"] = _rejecting(tmp_path)
    (tmp_path / "Dockerfile").write_text("FROM base\n")
    assert "docker.io" not in builds.bareboat("image", "build", ".", code=6).err


def test_the_source_of_a_name_has_another_image_now(store: Store, tmp_path: Path) -> None:
    other = bareboat_images.pull(_layout(tmp_path, "two"), store)
    options = PullOptions(access=Access(policy=_rejecting(tmp_path)))
    with pytest.raises(ImageError, match=digests.short(store.image("base").digest)):
        opening.open_image(
            "base", store, options, read=partial(locate.read, folder="/"), pull=lambda *_: other
        )
