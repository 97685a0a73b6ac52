"""The spool: two threads, one part file; the reader gets the right bytes, all of them, or one clear error."""

import contextlib
import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from registries import sha256

from bareboat_base.errors import ImageError
from bareboat_images.oci.source import Descriptor, Document, straight
from bareboat_images.transfer.spool import Interrupted, Spool

CHUNK = 1 << 20
DATA = random.Random(1).randbytes(3 * CHUNK + 17)
NAME = "layer 3 (sha256:abc…)"


def descriptor(data: bytes = DATA, size: int | None = None) -> Descriptor:
    return Descriptor(media_type="x", digest=sha256(data), size=len(data) if size is None else size)


@dataclass
class Scripted:
    """A source that serves `data` in pieces of `piece` bytes, and does `at` when it has served so many."""

    data: bytes = DATA
    piece: int = CHUNK
    at: dict[int, Callable[[], object]] = field(default_factory=dict)
    offsets: list[int] = field(default_factory=list)
    name: str = "quay.io/a/b:1"
    local: bool = False
    notes: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    open_blobs: int = 0

    def document(self, digest: str | None = None) -> Document:
        raise AssertionError(digest)

    @contextlib.contextmanager
    def blob(self, descriptor: Descriptor, offset: int = 0) -> Iterator["Scripted._Blob"]:
        assert descriptor.digest
        self.offsets.append(offset)
        self.open_blobs += 1
        try:
            yield self._Blob(self, offset)
        finally:
            self.open_blobs -= 1

    def close(self) -> None:
        assert self.open_blobs == 0

    class _Blob:
        def __init__(self, source: "Scripted", offset: int) -> None:
            self.source, self.offset = source, offset

        def readinto(self, buffer: memoryview) -> int:
            source = self.source
            ahead = [place for place in source.at if place >= self.offset]
            if self.offset in ahead:
                source.at[self.offset]()
                ahead.remove(self.offset)
            piece = min(
                [source.piece, len(buffer), *(place - self.offset for place in ahead if place > self.offset)]
            )
            got = source.data[self.offset : self.offset + piece]
            buffer[: len(got)] = got
            self.offset += len(got)
            return len(got)


class Fetched:
    """A spool whose fetching runs in a thread, and what the reader got."""

    def __init__(self, source: Scripted, wanted: Descriptor, part: Path) -> None:
        self.counted = 0
        self.spool = Spool(source, wanted, part, name=NAME)
        self.thread = threading.Thread(target=self.spool.fetch, args=(self.count,))
        self.seen = b""

    def count(self, size: int) -> None:
        self.counted += size

    def read(self) -> bytes:
        self.thread.start()
        try:
            for chunk in self.spool.chunks():
                assert chunk
                assert len(chunk) <= CHUNK
                self.seen += chunk
        finally:
            self.spool.interrupt()
            self.thread.join(5)
            assert not self.thread.is_alive()
        return self.seen


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / "parts" / "sha256" / "abc"


def leave(part: Path, data: bytes) -> None:
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_bytes(data)


def fail() -> None:
    raise ImageError("the registry died")


@pytest.fixture(autouse=True)
def _nothing_is_left_open() -> Iterator[None]:
    before = set(os.listdir("/proc/self/fd"))
    threads = set(threading.enumerate())
    yield
    assert len(set(os.listdir("/proc/self/fd")) - before) <= 1  # the listing itself
    assert set(threading.enumerate()) <= threads


# -- the whole blob ------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [100_003, CHUNK, 10 * CHUNK])
@pytest.mark.parametrize("told", [True, False])
def test_a_blob_arrives(part: Path, piece: int, told: bool) -> None:
    source = Scripted(piece=piece)
    fetched = Fetched(source, descriptor(size=None if told else -1), part)
    assert fetched.read() == DATA
    assert fetched.counted == len(DATA)
    assert source.offsets == [0]
    assert source.open_blobs == 0
    assert part.read_bytes() == DATA
    fetched.spool.remove()
    assert not part.exists()
    fetched.spool.remove()


@pytest.mark.parametrize("told", [True, False])
def test_an_empty_blob(part: Path, told: bool) -> None:
    fetched = Fetched(Scripted(data=b""), descriptor(b"", None if told else -1), part)
    assert fetched.read() == b""


def test_the_reader_reads_while_the_blob_arrives(part: Path) -> None:
    """Every piece is shown before the next one comes."""
    seen = threading.Semaphore(0)
    places = [100_000 * number for number in range(1, 30)]

    def wait() -> None:
        assert seen.acquire(timeout=5)

    source = Scripted(at=dict.fromkeys(places, wait))
    made = Spool(source, descriptor(), part, name=NAME)
    thread = threading.Thread(target=made.fetch, args=(lambda _: None,))
    thread.start()
    total = 0
    for chunk in made.chunks():
        total += len(chunk)
        seen.release()
    thread.join(5)
    assert total == len(DATA)


def test_the_part_is_nobody_elses(part: Path) -> None:
    Fetched(Scripted(), descriptor(), part).read()
    assert part.stat().st_mode & 0o777 == 0o600


# -- going on ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [True, False])
def test_a_part_that_is_whole_is_not_fetched_again(part: Path, told: bool) -> None:
    leave(part, DATA)
    source = Scripted()
    fetched = Fetched(source, descriptor(size=None if told else -1), part)
    assert fetched.read() == DATA
    assert source.offsets == []
    assert fetched.counted == len(DATA)


def test_what_was_read_first_is_right_even_if_all_comes_at_once(part: Path) -> None:
    """Bytes that were kept reach the reader only when the whole has been verified."""
    leave(part, b"x" * CHUNK)
    made = Spool(Scripted(), descriptor(), part, name=NAME)
    seen: list[bytes] = []
    thread = threading.Thread(target=lambda: seen.append(next(made.chunks())))
    thread.start()
    made.fetch(lambda _: None)
    thread.join(5)
    assert seen == [DATA[:CHUNK]]


# -- wrong bytes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0, 1000, CHUNK])
def test_a_blob_that_is_not_what_its_digest_says(part: Path, kept: int) -> None:
    if kept:
        leave(part, DATA[:kept])
    wrong = DATA[:-1] + bytes([DATA[-1] ^ 1])
    with pytest.raises(ImageError, match="does not match its digest") as caught:
        Fetched(Scripted(data=wrong), descriptor(), part).read()
    assert NAME in caught.value.message
    assert "quay.io/a/b:1" in caught.value.message
    assert caught.value.context == f"expected {sha256(DATA)}, {len(DATA):,} bytes"
    assert caught.value.remedy
    assert not part.exists()  # or the next pull would go on with it


def test_a_blob_that_is_too_long_is_cut_off(part: Path) -> None:
    source = Scripted(data=DATA + bytes(10 * CHUNK))
    fetched = Fetched(source, descriptor(), part)
    with pytest.raises(ImageError, match="larger than in its manifest"):
        fetched.read()
    assert part.stat().st_size <= len(DATA)
    # What was kept is right, and is used.
    assert Fetched(Scripted(), descriptor(), part).read() == DATA


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_was_kept_and_whatever_comes(tmp_path: Path, data: st.DataObject) -> None:
    """The reader ends with the right bytes, or with an error; and never with others."""
    right = data.draw(st.binary(min_size=1, max_size=50), label="right")
    kept = data.draw(
        st.sampled_from([b"", right[: len(right) // 2], right]) | st.binary(max_size=60), label="kept"
    )
    served = data.draw(st.sampled_from([right]) | st.binary(max_size=60), label="served")
    told = data.draw(st.booleans(), label="told")
    piece = data.draw(st.integers(1, 60), label="piece")
    part = tmp_path / "part"
    leave(part, kept)
    fetched = Fetched(Scripted(data=served, piece=piece), descriptor(right, None if told else -1), part)
    try:
        assert fetched.read() == right
        assert fetched.counted == len(right)
    except ImageError:
        assert served != right


# -- ends from either side -----------------------------------------------------------------------------


def test_an_error_of_the_source_reaches_the_reader_at_once(part: Path) -> None:
    began = time.monotonic()
    with pytest.raises(ImageError, match="the registry died"):
        Fetched(Scripted(at={CHUNK: fail}), descriptor(), part).read()
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), MemoryError(), KeyboardInterrupt()], ids=repr
)
def test_every_error_of_the_fetching_reaches_the_reader(part: Path, error: BaseException) -> None:
    def failing(_size: int) -> None:
        raise error

    made = Spool(Scripted(), descriptor(), part, name=NAME)
    thread = threading.Thread(target=made.fetch, args=(failing,))
    thread.start()
    with pytest.raises(type(error)):
        list(made.chunks())
    thread.join(1)
    assert not thread.is_alive()


def test_a_part_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError):  # noqa: PT011
        Fetched(Scripted(), descriptor(), tmp_path / "file" / "part").read()


def test_a_reader_that_gives_up_ends_the_fetching(part: Path) -> None:
    """The source has no end; the reader looks at one chunk."""

    class Endless(Scripted._Blob):
        def readinto(self, buffer: memoryview) -> int:
            time.sleep(0.01)
            buffer[:1000] = bytes(1000)
            return 1000

    source = Scripted()
    source._Blob = Endless
    made = Spool(source, descriptor(size=-1), part, name=NAME)
    thread = threading.Thread(target=made.fetch, args=(lambda _: None,))
    thread.start()
    chunks = made.chunks()
    next(chunks)
    began = time.monotonic()
    made.interrupt()
    thread.join(5)
    assert not thread.is_alive()
    assert time.monotonic() - began < 1
    assert source.open_blobs == 0
    with pytest.raises(Interrupted):
        list(chunks)


def test_an_interrupt_wakes_a_reader_that_waits(part: Path) -> None:
    made = Spool(Scripted(), descriptor(), part, name=NAME)  # nobody fetches
    ended: list[BaseException] = []

    def read() -> None:
        try:
            list(made.chunks())
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    time.sleep(0.1)
    made.interrupt()
    thread.join(1)
    assert not thread.is_alive()
    assert isinstance(ended[0], Interrupted)


def test_an_interrupt_while_a_long_part_is_hashed(part: Path) -> None:
    leave(part, DATA)
    counted: list[int] = []
    made = Spool(Scripted(), descriptor(), part, name=NAME)

    def count(size: int) -> None:
        counted.append(size)
        made.interrupt()

    made.fetch(count)
    assert counted == [CHUNK]


def test_the_first_error_is_the_one_that_is_told(part: Path) -> None:
    made = Spool(Scripted(at={0: fail}), descriptor(), part, name=NAME)
    made.fetch(lambda _: None)
    made.interrupt()
    with pytest.raises(ImageError, match="the registry died"):
        list(made.chunks())


# -- several processes with one part -------------------------------------------------------------------


def test_two_who_fetch_the_same_part_do_no_harm(part: Path) -> None:
    """As two processes whose leases both got broken: each with a spool of its own on the same file."""
    both = [Fetched(Scripted(piece=50_000), descriptor(), part) for _ in range(2)]
    threads = [threading.Thread(target=each.read, name="reader") for each in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [sha256(each.seen) for each in both] == [sha256(DATA)] * 2


def test_the_other_one_removes_the_part_when_it_is_done(part: Path) -> None:
    source = Scripted(at={CHUNK: lambda: part.unlink()})
    assert Fetched(source, descriptor(), part).read() == DATA


def test_the_other_one_finds_the_part_damaged_and_begins_anew(part: Path) -> None:
    """What it throws away is not what another is still reading."""

    def other() -> None:
        damaged = Spool(Scripted(data=b"x" * len(DATA)), descriptor(DATA[:-1] + b"?"), part, name=NAME)
        damaged.fetch(lambda _: None)

    source = Scripted(at={2 * CHUNK: other})
    assert Fetched(source, descriptor(), part).read() == DATA


def test_a_part_that_somebody_cuts_is_an_error_and_no_endless_loop(part: Path) -> None:
    reading = threading.Event()

    def cut() -> None:
        os.truncate(part, 0)
        reading.set()

    source = Scripted(at={2 * CHUNK: cut})
    made = Spool(source, descriptor(), part, name=NAME)
    made.fetch(lambda _: None)
    assert reading.is_set()
    os.truncate(part, 0)
    with pytest.raises(ImageError, match="was cut short"):
        list(made.chunks())


# -- straight from this machine ------------------------------------------------------------------------


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("piece", [100_003, CHUNK])
def test_a_local_blob_is_read_where_it_lies(piece: int, told: bool) -> None:
    counted: list[int] = []
    source = Scripted(piece=piece)
    found = b"".join(straight(source, descriptor(size=None if told else -1), counted.append, name=NAME))
    assert found == DATA
    assert sum(counted) == len(DATA)
    assert source.open_blobs == 0


@pytest.mark.parametrize("served", [DATA[:-1], DATA + b"x", DATA[:-1] + b"?", b"", DATA + bytes(20 * CHUNK)])
def test_a_local_blob_that_is_damaged(served: bytes) -> None:
    wanted = descriptor(DATA[:-1] + b"!")
    chunks = straight(Scripted(data=served), wanted, lambda _: None, name=NAME)
    with pytest.raises(ImageError, match="does not match its digest") as caught:
        list(itertools.islice(chunks, 6))  # what is too long is not read to its end
    assert NAME in caught.value.message
    assert caught.value.remedy


def test_a_local_blob_that_nobody_reads_to_its_end() -> None:
    source = Scripted()
    chunks = straight(source, descriptor(), lambda _: None, name=NAME)
    next(chunks)
    assert source.open_blobs == 1
    chunks.close()  # type: ignore[attr-defined]
    assert source.open_blobs == 0
