"""Another member of a group's store puts a pipe, a link, a device or a terabyte in the place of its files."""

import contextlib
import io
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hostile.test_hanging_files import circle, device, directory, fifo, terabyte

from bareboat import store_access
from bareboat.cli.main import main
from bareboat_base import codec
from bareboat_images import lease
from bareboat_images.formats.packed import PackedFile
from bareboat_images.oci.source import Descriptor
from bareboat_images.store import Store
from bareboat_images.store.owners import owner
from bareboat_images.transfer.spool import Spool
from bareboat_images.upkeep import contents

LONGEST_S = 60
MOST_MEMORY_BYTES = 1 << 30


def elsewhere(path: Path) -> None:
    path.symlink_to("/etc/passwd")


OBSTACLES = [fifo, device, terabyte, directory, circle, elsewhere]
HOLDING = OBSTACLES[:3]
Put = Callable[[Path], None]


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """A group's store with an image, and all that a store may keep of one."""
    folder = Path(tempfile.mkdtemp(prefix="bareboat-group-", dir="/tmp"))
    root = folder / "shared"
    store_access.make_group_store(root, os.getgid(), Store.VERSION)
    (folder / "root/etc").mkdir(parents=True)
    (folder / "root/etc/hello").write_text("hello")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("BAREBOAT_STORE", str(root))
        patched.setenv("HOME", str(folder))
        assert main(["image", "pull", "--name", "app", f"rootfs:{folder}/root"]) == 0
    store = Store(root, own=folder / "own")
    (digest,) = {image.digest for image in store.images()}
    store.remember_capture("sha256:" + "5" * 64, digest, {})
    packed = store.packed(digest, "sif")
    packed.parent.mkdir(parents=True)
    packed.write_bytes(b"x")
    facts = PackedFile(kind="sif", size_bytes=1, sha256="0" * 64, places={})
    packed.with_name("image.sif.json").write_bytes(codec.to_json(facts))
    (root / "tmp/machine-1-1").mkdir()
    (root / "tmp/machine-1-1/claims").write_text("sha256:" + "1" * 64)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def place(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="bareboat-group-", dir="/tmp"))
    shutil.copytree(made, folder, symlinks=True, dirs_exist_ok=True)
    monkeypatch.setenv("BAREBOAT_STORE", str(folder / "shared"))
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "own"))
    monkeypatch.chdir(folder)
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits"))
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY_BYTES, limits[1]))
    signal.alarm(LONGEST_S)
    yield folder
    signal.alarm(0)
    resource.setrlimit(resource.RLIMIT_AS, limits)
    signal.signal(signal.SIGALRM, before)
    shutil.rmtree(folder)


FILES = ["names/app", "pins/*.json", "images/sha256/*.json", "blobs/sha256/*", "captures/*",
         "layers/sha256/*/layer.json", "layers/sha256/*/tree/etc/hello", "packed/sha256/*/image.sif",
         "packed/sha256/*/image.sif.json", "tmp/*/claims"]  # fmt: skip
VERBS = [
    ["image", "ls"], ["image", "show", "app"], ["image", "verify", "app"], ["image", "du"],
    ["image", "show", "--history", "app"],
    ["image", "save", "app", "oci-archive:app.tar"], ["image", "tag", "app", "other"],
    ["image", "sbom", "app"], ["image", "rm", "--unused", "--dry-run"], ["image", "rm", "--dry-run", "app"],
    ["image", "rm", "--unused", "--older-than", "0"], ["image", "rm", "app"],
]  # fmt: skip


@pytest.mark.parametrize("put", HOLDING, ids=[put.__name__ for put in HOLDING])
@pytest.mark.parametrize("pattern", FILES)
def test_no_verb_waits_or_fills_the_memory(
    pattern: str, put: Put, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = sorted((place / "shared").glob(pattern))
    assert paths
    for path in paths:
        path.unlink()
        put(path)
    for words in VERBS:
        code = main(words)
        err = capsys.readouterr().err
        assert code not in (70, 1), (words, err)
        assert code == 0 or "\n  try: " in err or "\ndamaged images: " in f"\n{err}", (words, err)


def test_the_error_names_the_file_its_owner_and_the_way_out(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (entry,) = (place / "shared/images/sha256").glob("*.json")
    entry.unlink()
    os.mkfifo(entry)
    assert main(["image", "show", "app"]) == 4
    err = capsys.readouterr().err
    assert f"{entry} is a pipe, not a regular file" in err
    assert "it belongs to " in err
    assert "try: " in err


def test_one_bad_entry_does_not_hide_the_others(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(place / "shared/images/sha256" / ("f" * 64 + ".json"))
    assert main(["image", "ls"]) == 4
    out, err = capsys.readouterr()
    assert "app" in out
    assert "is a pipe" in out
    assert "damaged images" in err


def test_a_lease_of_another_kind_is_broken_or_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_PATIENCE_S", 0.1)
    for put in OBSTACLES:
        path = place / "shared/leases" / put.__name__
        put(path)
        if put is directory:
            with pytest.raises(OSError, match="directory"), lease.hold(path, until=lambda: False):
                pass
            continue
        with lease.hold(path, until=lambda: False) as mine:
            assert mine


def test_a_lease_is_not_written_through_a_link(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "precious").write_text("precious")
    monkeypatch.setattr("threading.get_ident", lambda: 7)
    planted = place / "shared/leases" / f".x.{owner()}-7"
    planted.symlink_to(place / "precious")
    with pytest.raises(FileExistsError), lease.hold(planted.with_name("x"), until=lambda: False):
        pass
    assert (place / "precious").read_text() == "precious"


class _Bytes:
    name = "the registry"

    def __init__(self, data: bytes) -> None:
        self._data = data

    def blob(self, _descriptor: Descriptor, offset: int = 0) -> contextlib.nullcontext[io.BytesIO]:
        return contextlib.nullcontext(io.BytesIO(self._data[offset:]))


@pytest.mark.parametrize("put", OBSTACLES, ids=[put.__name__ for put in OBSTACLES])
def test_a_blob_is_not_written_through_what_another_put_in_place_of_its_part(put: Put, place: Path) -> None:
    from bareboat_base import digests

    data = b"ssh-ed25519 AAAA attacker\n"
    descriptor = Descriptor(media_type="", digest=digests.of(data), size=len(data))
    part = place / "shared/parts" / digests.place(descriptor.digest)
    if put is elsewhere:
        part.symlink_to(place / "authorized_keys")
    elif put is terabyte:
        return
    else:
        put(part)
    spool = Spool(_Bytes(data), descriptor, part, name="layer 1")
    spool.fetch(lambda _: None)
    spool.keep(place / "kept")
    assert (place / "kept").read_bytes() == data
    assert not (place / "authorized_keys").exists()


def test_claims_that_cannot_be_read_are_passed_over(place: Path) -> None:
    store = Store(place / "shared", own=place / "own")
    assert contents.claims(store) == {"sha256:" + "1" * 64}
