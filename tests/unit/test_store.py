"""The store: nothing half-made is ever seen, whoever is killed or comes second; every refusal is clear."""

import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from random import Random
from unittest.mock import MagicMock

import pytest
from builders import fake_digest, make_image
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tools import started

from bareboat.model import Image, Layer
from bareboat_base.errors import BareboatError, ImageError, StoreError, UsageError
from bareboat_base.files.trees import remove_tree
from bareboat_images import place
from bareboat_images.layers import layer as layers
from bareboat_images.model import StoredCapture
from bareboat_images.oci.reference import parse
from bareboat_images.store import Store
from bareboat_images.transfer.options import PullOptions
from bareboat_images.transfer.pull import pull

HEX = "0123456789abcdef" * 4


def in_process(program: str, *arguments: str | Path, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Python with `store` open at the first argument, in a process of its own."""
    head = (
        "import pathlib, sys; from bareboat_images.store import Store\n"
        "store = Store(pathlib.Path(sys.argv[1]))\n"
    )
    return started(
        [*prefix, sys.executable, "-c", head + program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def fill(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def put(store: Store, **files: str) -> Image:
    """A real image of one layer, published as a capture does it."""
    with store.scratch() as scratch:
        tree = fill(scratch / "tree", **files)
        diff_id, size = layers.digest_tree(str(tree))
        store.publish(tree, store.layer(diff_id))
    made = Layer(diff_id=diff_id, size_bytes=size, unpacked_bytes=0, inodes=len(files))
    image = make_image(digest="sha256:" + diff_id[7:][::-1], layers=(made,), prefixes=())
    store.put_image(image, manifest=b"{}", config=b"{}")
    return image


def leftovers(store: Store) -> list[str]:
    return sorted(os.listdir(store.root / "tmp"))


# -- writing -----------------------------------------------------------------------------------------


def test_runs_of_one_name_in_two_stores_have_two_marks(tmp_path: Path) -> None:
    """By its mark a run's processes are found: the end of the one would terminate the other."""
    stores = [Store(tmp_path / name) for name in "ab"]
    assert len({store.mark("job-20261123-120000") for store in stores}) == 2
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert Store(tmp_path / "link").mark("s") == stores[0].mark("s")
    assert stores[0].mark("s.3") == f"{stores[0].mark('s')}.3"


@pytest.mark.parametrize(
    "error",
    [ValueError(), KeyboardInterrupt(), SystemExit(), StoreError("no"), OSError(28, "full")],
    ids=repr,
)
def test_scratch_is_removed_on_every_exception(store: Store, error: BaseException) -> None:
    with pytest.raises((type(error), StoreError)):  # noqa: PT012, SIM117
        with store.scratch() as scratch:
            fill(scratch / "a", file="x").chmod(0o500)
            raise error
    assert leftovers(store) == []


def test_scratches_of_one_process_never_meet(store: Store) -> None:
    with store.scratch() as one, store.scratch() as two, Store(store.root).scratch() as three:
        assert len({one, two, three}) == 3


def test_what_is_published_is_all_there_and_the_second_writer_loses_nothing(store: Store) -> None:
    final = store.layer(fake_digest("a"))
    for turn in ("first", "second"):
        with store.scratch() as scratch:
            store.publish(fill(scratch / "tree", file=turn), final)
        assert (final / "file").read_text() == "first"
    assert leftovers(store) == []


def test_many_writers_of_one_layer_all_succeed(store: Store) -> None:
    program = """
import os
sys.stdin.readline()
for turn in range(40):
    digest = f"sha256:{turn:064x}"
    with store.scratch() as scratch:
        (scratch / "tree").mkdir()
        for name in range(5):
            (scratch / "tree" / str(name)).write_text(digest)
        store.publish(scratch / "tree", store.layer(digest))
    found = store.layer(digest)
    assert {name: (found / name).read_text() for name in os.listdir(found)} == dict.fromkeys("01234", digest)
"""
    writers = [in_process(program, store.root) for _ in range(3)]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        _, stderr = writer.communicate(timeout=60)
        assert writer.returncode == 0, stderr
    assert len(os.listdir(store.root / "layers" / "sha256")) == 40
    assert leftovers(store) == []


def test_a_reader_sees_the_old_file_or_the_new_one(store: Store) -> None:
    path = store.root / "names" / "x"
    store.write(path, b"0" * 100_000)
    writer = in_process(
        "for n in range(100): store.write(store.root / 'names' / 'x', str(n % 10).encode() * 100_000)",
        store.root,
    )
    seen = set()
    while writer.poll() is None:
        data = path.read_bytes()
        assert len(data) == 100_000
        assert len(set(data)) == 1
        seen.add(data[:1])
    assert writer.wait() == 0
    assert len(seen) > 1, "the test saw no change at all"


# -- sweeping ----------------------------------------------------------------------------------------

_LEAVES_WORK = """
with store.scratch() as scratch:
    (scratch / "tree").mkdir()
    (scratch / "tree" / "half").write_text("x")
    (scratch / "tree").chmod(0o500)
    print(scratch.name, flush=True)
    sys.stdin.readline()
"""


def start_writer(store: Store) -> tuple[subprocess.Popen[str], str]:
    writer = in_process(_LEAVES_WORK, store.root)
    assert writer.stdout is not None
    name = writer.stdout.readline().strip()
    assert name, writer.communicate()[1]
    return writer, name


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_the_next_writer_sweeps_what_a_killed_one_left(store: Store) -> None:
    writer, name = start_writer(store)
    kill(writer)
    assert leftovers(store) == [name]
    Store(store.root).write(store.root / "names" / "x", b"x")
    assert leftovers(store) == []


def test_work_of_a_stopped_writer_is_left_alone(store: Store) -> None:
    writer, name = start_writer(store)
    try:
        writer.send_signal(signal.SIGSTOP)
        Store(store.root).sweep()
        assert leftovers(store) == [name]
    finally:
        kill(writer)


def test_only_this_machine_s_dead_are_swept(store: Store) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    here = f"{socket.gethostname()}-{boot}-{os.stat('/proc/self/ns/pid').st_ino}"
    dead = f"{here}-{os.getpid()}-1-1"  # our number, but another start: its owner is no more
    # Of another PID namespace, and of another machine of the same name: their numbers are not ours.
    inner = f"{socket.gethostname()}-{boot}-17-{os.getpid()}-1-1"
    other = f"{socket.gethostname()}-0badcafe-{os.stat('/proc/self/ns/pid').st_ino}-{os.getpid()}-1-1"
    kept = [f"elsewhere-17-{os.getpid()}-1-1", f"x{here}-1-1-1", "notes", f"{here}-x-1-1", inner, other]
    for name in (dead, *kept):
        fill(store.root / "tmp" / name, file="x")
    store.sweep()
    assert leftovers(store) == sorted(kept)


# -- names and digests -------------------------------------------------------------------------------


def test_an_image_is_found_by_digest_short_digest_and_name(store: Store) -> None:
    image = put(store, file="x")
    store.name_image("digits", image.digest)
    bare = image.digest.removeprefix("sha256:")
    for reference in (image.digest, bare[:6], bare[:63], "sha256:" + bare[:12], "digits"):
        assert store.image(reference) == image, reference


def test_a_name_does_not_go_before_a_short_digest(store: Store) -> None:
    one, two = put(store, file="one"), put(store, file="two")
    name = one.digest.removeprefix("sha256:")[:8]
    with pytest.raises(UsageError, match="could be the beginning of an image's digest"):
        store.name_image(name, two.digest)
    store.write(store.root / "names" / name, two.digest.encode())  # by another program
    with pytest.raises(StoreError, match="also a name in the store"):
        store.image(name)
    assert store.knows(name)  # and so nothing looks for it in a registry


@pytest.mark.parametrize("reference", ["nothing", "abcdef", "sha256:" + HEX, "a/b", "", "a b", "\udcff"])
def test_an_unknown_image_is_told_with_what_to_do(store: Store, reference: str) -> None:
    put(store, file="x")
    with pytest.raises(StoreError) as caught:
        store.image(reference)
    assert repr(reference) in caught.value.message
    assert "bareboat image ls   #" in caught.value.remedy or reference in ("nothing", "a/b")
    assert ("no image can have this" in caught.value.message) == (reference in ("", "a b", "\udcff"))
    assert caught.value.code == 4


@pytest.mark.parametrize("wrong", ["rmpi", "rpmi:1", "rmpi:2"])
def test_a_name_that_is_nearly_one_of_the_store_is_named(store: Store, wrong: str) -> None:
    """Also where it is pulled, from a registry that may be out of reach."""
    store.name_image("rmpi:1", put(store, file="x").digest)
    source = MagicMock(**{"document.side_effect": ImageError("no network")})
    full = str(parse(wrong, folder="/"))
    pulls = partial(pull, source, store, reference=full, options=PullOptions())
    for call in (partial(store.image, wrong), pulls):
        with pytest.raises(BareboatError, match="; did you mean rmpi:1, which is in the store"):
            call()


def test_two_images_of_one_beginning_are_not_one(store: Store) -> None:
    images = [make_image(digest=f"sha256:abcdef{n}{'0' * 57}", layers=(), prefixes=()) for n in (1, 2)]
    for image in images:
        store.put_image(image, manifest=b"", config=b"")
    with pytest.raises(StoreError, match=r"2 images .* begin with 'abcdef'") as caught:
        store.image("abcdef")
    assert "more digits" in caught.value.remedy
    assert store.image("abcdef1") == images[0]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-x", "a/b", "/etc/passwd", "a b", "ü", "a\n", "x" * 129, "\0"]
)
def test_bad_names_are_refused(store: Store, name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid image name") as caught:
        store.name_image(name, fake_digest("a"))
    assert caught.value.remedy
    with pytest.raises(UsageError, match="is not a run name"):
        store.run(name)
    assert not store.root.exists()


@given(text=st.text(max_size=80))
def test_no_digest_leads_out_of_the_store(text: str) -> None:
    store = Store(Path("/nowhere"))
    for where in (store.layer, store.flat, store.blob):
        with pytest.raises(UsageError, match="is not a digest"):
            where(text)


@given(prefix=st.text(max_size=300))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
def test_every_job_s_name_makes_a_run_s_name(store: Store, prefix: str) -> None:
    run_id = store.new_run(prefix)
    assert store.run(run_id).is_dir()
    assert run_id in store.runs()


@given(
    made=st.lists(
        st.tuples(st.sampled_from(["a", "b", "b-20261122-101500", "z"]), st.integers(-7200, 7200)),
        max_size=30,
    ),
    touched=st.randoms(use_true_random=False),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
def test_runs_stand_in_the_order_in_which_they_were_made(
    tmp_path_factory: pytest.TempPathFactory, made: list[tuple[str, int]], touched: Random
) -> None:
    """Whatever is written into old runs later, and however the clock goes."""
    store = Store(tmp_path_factory.mktemp("order"))
    names = []
    for stem, clock_s in made:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time", lambda clock_s=clock_s: 1.8e9 + clock_s)
            names.append(store.new_run(stem))
    for name in touched.sample(names, len(names)):
        (store.run(name) / "record.json").write_text("{}")
        os.utime(store.run(name), (touched.randrange(2**31),) * 2)
    assert store.runs() == names


def test_a_run_of_the_far_future_does_not_set_the_time(store: Store) -> None:
    store.new_run("x")
    (store.root / "runs" / "x-29991231-235959").mkdir()
    assert "-2999" not in store.new_run("y")


# -- images ------------------------------------------------------------------------------------------


def test_an_image_without_its_layer_is_no_image(store: Store) -> None:
    image = put(store, file="x")
    lost = store.layer(image.layers[0].diff_id)
    lost.rename(lost.with_name("gone"))
    assert not store.has_image(image.digest)
    with pytest.raises(StoreError, match="is missing from the store") as caught:
        store.image(image.digest)
    assert caught.value.remedy == "bareboat image capture --fresh"


@given(data=st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
def test_a_damaged_entry_is_one_clear_error(store: Store, data: bytes) -> None:
    image = put(store, file="x")
    path = store.root / "images" / "sha256" / (image.digest[7:] + ".json")
    path.write_bytes(data)
    with pytest.raises(StoreError, match="cannot be read") as caught:
        store.image(image.digest)
    assert image.digest in caught.value.message
    assert caught.value.remedy


def test_a_name_that_was_half_written_when_the_machine_went_down_is_no_other_image(store: Store) -> None:
    image = put(store, file="x")
    store.name_image("digits", image.digest)
    (store.root / "names" / "digits").write_bytes(b"")
    with pytest.raises(StoreError, match="holds no digest"):
        store.image("digits")


def test_a_capture_that_was_half_written_is_made_again(store: Store) -> None:
    store.remember_capture(fake_digest("a"), fake_digest("b"), {})
    assert store.captured(fake_digest("a")) == StoredCapture(digest=fake_digest("b"))
    (store.root / "captures" / ("a" * 64)).write_bytes(b"\xff\xfe")
    assert store.captured(fake_digest("a")) is None


def test_a_missing_record_is_told(store: Store) -> None:
    with pytest.raises(StoreError, match=r"study\.json not found") as caught:
        store.read(store.run("r") / "study.json", Image)
    assert caught.value.remedy


# -- refusals ----------------------------------------------------------------------------------------


def test_a_store_of_another_version_is_refused(store: Store) -> None:
    store.root.mkdir()
    (store.root / "version").write_text("1\n")
    with pytest.raises(StoreError, match="has version 1; this Bareboat uses version 2") as caught:
        store.write(store.root / "names" / "x", b"x")
    assert "BAREBOAT_STORE" in caught.value.remedy
    assert os.listdir(store.root) == ["version"]


def test_a_version_cut_short_is_written_again(store: Store) -> None:
    store.root.mkdir()
    (store.root / "version").write_text("")
    store.write(store.root / "names" / "x", b"x")
    assert (store.root / "version").read_text() == "2\n"


@pytest.mark.parametrize("where", ["", "below"])
def test_a_store_that_is_a_file_is_refused(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("mine")
    store = Store(tmp_path / "file" / where)
    for use in (
        lambda: store.write(store.root / "names" / "x", b"x"),
        lambda: store.captured(fake_digest("a")),
        lambda: store.image("x"),
        store.runs,
        lambda: store.new_run("x"),
    ):
        with pytest.raises(StoreError, match="is not a directory") as caught:
            use()
        assert "BAREBOAT_STORE" in caught.value.remedy
    assert (tmp_path / "file").read_text() == "mine"


# -- locks -------------------------------------------------------------------------------------------

_HOLDS = """
with store.locked(sys.argv[2]):
    print("locked", flush=True)
    sys.stdin.readline()
"""


def test_the_second_of_two_is_refused_and_a_kill_releases(store: Store) -> None:
    run_id = store.new_run("x")
    holder = in_process(_HOLDS, store.root, run_id)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with (
            pytest.raises(StoreError, match=f"another bareboat process uses {run_id}"),
            store.locked(run_id),
        ):
            pass
    finally:
        kill(holder)
    with store.locked(run_id):
        pass


def test_a_lock_ends_with_its_block(store: Store) -> None:
    run_id = store.new_run("x")
    with pytest.raises(ZeroDivisionError), store.locked(run_id):
        raise ZeroDivisionError
    holder = in_process(_HOLDS, store.root, run_id)
    assert holder.communicate("go\n", timeout=60)[0] == "locked\n"
    assert holder.returncode == 0


def test_a_tree_deeper_than_any_path_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "deep"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(6000):
        os.mkdir("d", dir_fd=here)
        os.close(os.open("file", os.O_CREAT, dir_fd=here))
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    remove_tree(top)
    assert not top.exists()


def test_links_out_of_a_removed_tree_are_not_followed(tmp_path: Path) -> None:
    fill(tmp_path / "outside", file="x")
    tree = fill(tmp_path / "tree", file="y")
    (tree / "folder").symlink_to(tmp_path / "outside")
    (tree / "file2").symlink_to(tmp_path / "outside" / "file")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    remove_tree(tree)
    remove_tree(tmp_path / "link")
    assert sorted(os.listdir(tmp_path)) == ["outside"]
    assert (tmp_path / "outside" / "file").read_text() == "x"


def test_what_the_quota_cannot_hold_is_refused_beforehand(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = place.Room(free_bytes=5_000_000, free_inodes=100, kind="lustre", limited_by="quota")
    monkeypatch.setattr(place.Room, "at", lambda _path: room)
    store.check_room(needed_bytes=5_000_000, needed_inodes=100, what="debian:12")
    with pytest.raises(StoreError, match=r"debian:12 needs 6 MB, and your quota on .* has 5 MB free"):
        store.check_room(needed_bytes=6_000_000, needed_inodes=1, what="debian:12")
    with pytest.raises(
        StoreError, match=r"debian:12 needs 101 files, and your quota on .* has 100 inodes free"
    ):
        store.check_room(needed_bytes=1, needed_inodes=101, what="debian:12")
