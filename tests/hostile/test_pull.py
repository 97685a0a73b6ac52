"""Pulls that are killed, cut off, lied to and starved: the next one ends in a verified image, or says why."""

import dataclasses
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import images
import pytest
from registries import FakeRegistry, RealRegistry, answer, real_registry, sha256
from tools import started

from bareboat_images import upkeep
from bareboat_images.layers import layer
from bareboat_images.store import Store

#: With --exhaustive.
KILLS = 50


@pytest.fixture(scope="module")
def image() -> images.Packed:
    """Three layers: many small files, a few large ones, and one that hides some of them."""
    many = {f"many/{n // 50}/{n}": images.noise(200, n) for n in range(1500)}
    folders: dict[str, bytes | str | None] = {"many": None, **{f"many/{n}": None for n in range(30)}}
    large = {f"large/{n}": images.noise(2_000_000, n) for n in range(3)}
    return images.pack(
        images.tar(folders | many),
        images.tar({"large": None, **large}),
        images.tar(
            {"many": None, "many/.wh.7": b"", "large": None, "large/.wh..wh..opq": b"", "large/0": b"0"}
        ),
    )


def environment(folder: Path) -> dict[str, str]:
    """Everything that a pull could write to is under one folder, and only the store may change."""
    for name in ("home", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    return os.environ | {
        "BAREBOAT_STORE": str(folder / "store"),
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
    }


def start(folder: Path, reference: str, *more: str) -> subprocess.Popen[str]:
    return started(
        [sys.executable, "-m", "bareboat", "image", "pull", "-q", "--plain-http", reference, *more],
        env=environment(folder),
        cwd=folder,
        stderr=subprocess.PIPE,
    )


def pull(folder: Path, reference: str, *more: str, code: int = 0) -> str:
    process = start(folder, reference, *more)
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in err
    assert process.returncode == code, err
    return out if code == 0 else err


def check_no_half(store: Store) -> None:
    """Whatever can be seen is whole."""
    for folder in store.root.glob("layers/sha256/*"):
        diff_id = f"sha256:{folder.name}"
        facts = store.stored_layer(diff_id)
        assert facts.diff_id == diff_id
        assert sum(1 for _ in layer.entries(str(folder / "tree"))) + 1 == facts.inodes
    for each in store.images():
        assert upkeep.verify(store, each).ok


def test_a_pull_killed_at_any_moment_ends_in_a_verified_image_on_the_next_call(
    registry: RealRegistry, image: images.Packed, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    kills = KILLS if pytestconfig.getoption("--exhaustive") else KILLS // 6
    reference = images.upload(registry, image, "hostile/killed:1")
    store = Store(tmp_path / "store")
    began = time.monotonic()
    pull(tmp_path, reference)
    duration_s = time.monotonic() - began
    chance = random.Random(4)
    at_work = 0
    for _ in range(kills):
        shutil.rmtree(store.root)
        process = start(tmp_path, reference)
        time.sleep(duration_s * chance.uniform(0.2, 1.0))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        tmp = store.root / "tmp"
        at_work += tmp.is_dir() and bool(os.listdir(tmp))
        check_no_half(store)
        assert image.digest in pull(tmp_path, reference)
        assert upkeep.verify(store, store.image(image.digest)).ok
        assert os.listdir(tmp) == []
        assert not list((store.root / "parts").rglob("*/*"))
    assert sorted(os.listdir(tmp_path)) == ["home", "store", "tmp"]
    assert os.listdir(tmp_path / "home") == os.listdir(tmp_path / "tmp") == []
    assert at_work >= kills // 5, "most were killed too early or too late: the test shows little"


def test_what_was_fetched_before_a_kill_is_not_fetched_again(tmp_path: Path) -> None:
    blob = images.noise(40_000_000, 1)
    one = images.pack(images.tar({"blob": blob}))
    with real_registry(tmp_path / "registry", access_log=True) as registry:
        reference = images.upload(registry, one, "hostile/resumed:1")
        part = Store(tmp_path / "store").part(sha256(one.layers[0]))
        process = start(tmp_path, reference)
        while not part.exists() or part.stat().st_size < 2_000_000:
            assert process.poll() is None
            time.sleep(0.0005)
        process.send_signal(signal.SIGSTOP)
        kept = part.stat().st_size
        process.kill()
        process.communicate()
        if kept == len(one.layers[0]):
            pytest.fail("the pull was faster than the test")
        pull(tmp_path, reference)
        answered = [
            line for line in registry.log.splitlines() if f"blobs/{sha256(one.layers[0])} HTTP" in line
        ]
        assert '" 206 ' in answered[-1]
        sent = int(answered[-1].partition('" 206 ')[2].split()[0])
        assert sent == len(one.layers[0]) - part_size(kept, sent, len(one.layers[0]))


def part_size(kept: int, sent: int, whole: int) -> int:
    """What lay in the part when the pull went on: a write that was under way may have ended after a stop."""
    assert kept <= whole - sent <= kept + (1 << 20)
    return whole - sent


def test_a_damaged_part_is_fetched_anew(registry: RealRegistry, image: images.Packed, tmp_path: Path) -> None:
    reference = images.upload(registry, image, "hostile/damaged:1")
    store = Store(tmp_path / "store")
    for blob in image.layers:
        part = store.part(sha256(blob))
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(b"\0" * (len(blob) // 2))
    pull(tmp_path, reference)
    assert upkeep.verify(store, store.image(image.digest)).ok


@pytest.mark.parametrize("changed", [0, 2000])
def test_a_layer_that_arrives_changed_is_fetched_once_more(tmp_path: Path, changed: int) -> None:
    """A header, or the content of a file."""
    tar = images.tar({"a": images.noise(100_000, 7)})
    image = images.pack(tar, compressed=False)
    wrong = tar[:changed] + bytes([tar[changed] ^ 1]) + tar[changed + 1 :]
    with FakeRegistry() as fake:
        fake.add(image)
        fake.when(f"GET .*/blobs/{sha256(tar)}", answer(200, wrong), times=1)
        reference = f"{fake.address}/some/image:latest"
        assert image.digest in pull(tmp_path, reference)
        assert len(fake.counted(f"GET .*/blobs/{sha256(tar)}")) == 2
        fake.when(f"GET .*/blobs/{sha256(tar)}", answer(200, wrong))
        pull(tmp_path, reference, "--fresh", code=6)
        assert len(fake.counted(f"GET .*/blobs/{sha256(tar)}")) == 4


def test_a_layer_that_is_another_than_the_config_says_is_refused(
    registry: RealRegistry, tmp_path: Path
) -> None:
    right = images.pack(images.tar({"a": b"right"}))
    wrong = images.pack(images.tar({"a": b"wrong"}))
    document = wrong.manifest.replace(sha256(wrong.config).encode(), sha256(right.config).encode())
    lying = dataclasses.replace(wrong, manifest=document, config=right.config)
    reference = images.upload(registry, lying, "hostile/lying:1")
    err = pull(tmp_path, reference, code=6)
    assert "layer 1" in err
    assert f"expected {right.diff_ids[0]}, unpacked {wrong.diff_ids[0]}" in err
    store = Store(tmp_path / "store")
    assert store.images() == []
    assert not store.has_layer(right.diff_ids[0])
    assert os.listdir(store.root / "tmp") == []


def test_a_layer_that_breaks_ends_the_whole_pull_at_once(registry: RealRegistry, tmp_path: Path) -> None:
    good = [images.tar({f"f{n}": images.noise(3_000_000, n)}) for n in range(5)]
    packed = images.pack(*good, images.tar({"../outside": b"x"}))
    reference = images.upload(registry, packed, "hostile/escape:1")
    began = time.monotonic()
    err = pull(tmp_path, reference, code=6)
    assert time.monotonic() - began < 20
    assert "layer 6" in err
    assert "../outside" in err
    assert sorted(os.listdir(tmp_path)) == ["home", "store", "tmp"]
    check_no_half(Store(tmp_path / "store"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_pull_that_is_told_to_end_ends_at_once_and_leaves_the_part(
    registry: RealRegistry, tmp_path: Path, number: signal.Signals
) -> None:
    packed = images.pack(images.tar({"blob": images.noise(60_000_000, 2)}))
    reference = images.upload(registry, packed, "hostile/told:1")
    store = Store(tmp_path / "store")
    part = store.part(sha256(packed.layers[0]))
    process = start(tmp_path, reference)
    while not part.exists():
        assert process.poll() is None
        time.sleep(0.0005)
    process.send_signal(number)
    began = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else 143), err
    assert time.monotonic() - began < 10
    assert "Traceback" not in err
    assert store.images() == []
    assert os.listdir(store.root / "tmp") == []
    pull(tmp_path, reference)
