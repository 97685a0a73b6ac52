"""What the system refuses, in words: the path, what happened, what to do; and never the wrong disk."""

import errno
import os
from pathlib import Path

import pytest

from bareboat_base.errors import BareboatError, StoreError, UsageError
from bareboat_base.files import failures, outputs
from bareboat_images.store import Store


def refusal(code: int, *paths: str) -> OSError:
    return OSError(code, os.strerror(code), *paths[:1], *((None, paths[1]) if len(paths) > 1 else ()))


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (errno.ENOSPC, StoreError, "is full"),
        (errno.EDQUOT, StoreError, "quota"),
        (errno.EROFS, StoreError, "read-only"),
        (errno.EIO, StoreError, "input/output error"),
        (errno.ESTALE, StoreError, "stale"),
        (errno.EACCES, UsageError, "permission"),
        (errno.EPERM, UsageError, "not permitted"),
        (errno.ENOENT, UsageError, "does not exist"),
        (errno.ENOTDIR, UsageError, "not a directory"),
        (errno.EISDIR, UsageError, "is a directory"),
        (errno.ELOOP, UsageError, "loop"),
        (errno.ENAMETOOLONG, UsageError, "too long"),
        (errno.EBUSY, UsageError, "busy"),
        (errno.EMFILE, BareboatError, "too many files"),
        (errno.ENOMEM, BareboatError, "not enough memory"),
        (errno.EFBIG, BareboatError, "file sizes"),
    ],
)
def test_each_refusal_is_one_message(
    tmp_path: Path, code: int, kind: type[BareboatError], words: str
) -> None:
    path = str(tmp_path / "some file")
    found = failures.explain(refusal(code, path))
    assert type(found) is kind
    assert words in found.message.lower()
    assert path in found.message + found.context
    assert found.remedy
    assert found.code < 64


def test_memory_and_threads_that_are_lacking_and_what_is_no_refusal() -> None:
    for error in (
        MemoryError(),
        RuntimeError("can't start new thread"),
        ImportError("libx.so: failed to map segment from shared object"),
    ):
        found = failures.explain(error)
        assert found is not None
        assert "not enough memory" in found.message
        assert "ulimit -v" in found.remedy
    for error in (ValueError("x"), RuntimeError("x"), ImportError("no module x")):
        assert failures.explain(error) is None


def test_a_write_names_its_file_and_no_other(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    with pytest.raises(OSError, match="No space") as caught, failures.at(outer), failures.at(inner):
        raise refusal(errno.ENOSPC)
    assert failures.path_of(caught.value) == str(inner)
    with pytest.raises(OSError, match="No space") as caught, failures.at(outer):
        raise refusal(errno.ENOSPC, "part", "relative/to/a/descriptor")
    assert failures.path_of(caught.value) == str(outer)
    with pytest.raises(OSError, match="No space") as caught, failures.at(outer):
        raise refusal(errno.ENOSPC, "/a", "/b")
    assert failures.path_of(caught.value) == "/b"
    for error in (OSError(errno.ENOSPC, "No space"), OSError(errno.ENOSPC, "No space", "a", None, "b")):
        with pytest.raises(OSError, match=r"^\[Errno 28\] No space: '/store'$"), failures.at("/store"):
            raise error


def test_the_store_is_blamed_for_its_own_disk_only(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    blamed = f"the file system of the store {store.root} is full"
    with pytest.raises(StoreError, match=blamed), store.guarded():
        raise refusal(errno.ENOSPC)
    with pytest.raises(OSError, match="No space"), store.guarded():
        raise refusal(errno.ENOSPC, "/tmp/of-another")
    for code in (errno.ENOENT, errno.EEXIST):  # answers to whoever asked
        with pytest.raises(OSError, match=os.strerror(code)), store.guarded():
            raise refusal(code, str(store.root / "x"))


def test_an_output_is_written_whole_or_not_at_all_and_not_without_room(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)

    def stop(error: BaseException) -> None:
        with outputs.beside(path) as part:
            part.write_bytes(b"second")
            raise error

    outputs.write(path, b"first")
    with pytest.raises(StoreError, match="no partial data was kept") as caught:
        stop(refusal(errno.ENOSPC))
    assert str(path) in caught.value.message
    with pytest.raises(KeyboardInterrupt):
        stop(KeyboardInterrupt())
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == [path.name]
    with pytest.raises(StoreError, match="MB free"):
        outputs.check_room(tmp_path / "x", 1 << 60)
