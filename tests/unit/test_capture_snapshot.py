"""An environment that did not change since its capture is known without collecting its files again."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bareboat.captures import snapshot
from bareboat.captures.collect import Collection, Part
from bareboat.captures.interpreter import Interpreter
from bareboat.model import CaptureRequest
from bareboat_images.store import Store

_LATER_NS = 10 * 10**9


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """An environment with a file, a subdirectory, and links to a file outside, to one that is missing and to
    a private one."""
    top = tmp_path / "environment"
    (top / "package").mkdir(parents=True)
    (top / "package" / "code.py").write_text("a = 1\n")
    (top / "empty").mkdir()
    (tmp_path / "library.so").write_text("library")
    (tmp_path / "private").write_text("secret")
    (tmp_path / "private").chmod(0o600)
    for name in ("library.so", "missing", "private"):
        (top / name).symlink_to(tmp_path / name)
    return top


def interpreter(prefix: Path) -> Interpreter:
    found = str(prefix)
    return Interpreter(
        executable=f"{found}/bin/python", base_executable="/usr/bin/python3", prefix=found,
        base_prefix="/usr", version="3.11.2",
        stdlib="/usr/lib/python3.11", path=(f"{found}/package", f"{found}/none.zip"),
        sites=(f"{prefix.parent}/site",),
    )  # fmt: skip


def keep(store: Store, prefix: Path, *, began_ns: int | None = None, **request: object) -> None:
    """Keep a snapshot of the prefix as if it had been made long before."""
    collection = Collection()
    collection.add(str(prefix), Part.PACKAGES)
    collection.follow_links()
    began = time.time_ns() + _LATER_NS if began_ns is None else began_ns
    found = interpreter(prefix)
    snapshot.keep(
        store, found, CaptureRequest(**{"python": found.executable} | request), collection, "sha256:f",  # type: ignore[arg-type]
        began_ns=began,
    )  # fmt: skip


def read(store: Store, prefix: Path, **request: object) -> str | None:
    asked = CaptureRequest(**request)  # type: ignore[arg-type]
    kept = snapshot.read(store, interpreter(prefix).executable, asked)
    assert kept is None or kept.interpreter == interpreter(prefix)
    return None if kept is None else kept.fingerprint


def _replace_with_equal_size(prefix: Path) -> None:
    (prefix / "package" / "code.py").write_text("b = 2\n")


def _replace_top(prefix: Path) -> None:
    old = prefix.rename(prefix.parent / "old")
    shutil.copytree(old, prefix, symlinks=True)


def _replace_link(prefix: Path) -> None:
    (prefix / "missing").unlink()
    (prefix / "missing").symlink_to("package")


_CHANGES: dict[str, Callable[[Path], object]] = {
    "a file in place": _replace_with_equal_size,
    "its mode": lambda top: (top / "package" / "code.py").chmod(0o755),
    "a new file": lambda top: (top / "empty" / "new").touch(),
    "a new directory": lambda top: (top / "empty" / "new").mkdir(),
    "a file that is gone": lambda top: (top / "package" / "code.py").unlink(),
    "a directory that is gone": lambda top: (top / "empty").rmdir(),
    "a renamed file": lambda top: (top / "package" / "code.py").rename(top / "package" / "other.py"),
    "another target of a link": _replace_link,
    "a library outside": lambda top: (top.parent / "library.so").write_text("another library"),
    "a link's target that was missing": lambda top: (top.parent / "missing").touch(),
    "a private target that is open now": lambda top: (top.parent / "private").chmod(0o644),
    "an archive on the path of Python": lambda top: (top / "none.zip").touch(),
    "a directory of packages that was missing": lambda top: (top.parent / "site").mkdir(),
    "the mark of conda": lambda top: (top / "conda-meta").mkdir(),
    "another directory of the same name": _replace_top,
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
def test_each_change_is_seen(store: Store, prefix: Path, change: Callable[[Path], object]) -> None:
    keep(store, prefix)
    assert read(store, prefix) == "sha256:f"
    time.sleep(0.01)  # the kernel's clock for files ticks every 4 ms
    change(prefix)
    assert read(store, prefix) is None


def test_a_new_program_on_the_path_of_tools_is_seen(
    store: Store, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setattr(snapshot, "TOOL_PATH", f"{tools}:/usr/bin")
    keep(store, prefix)
    assert read(store, prefix) == "sha256:f"
    (tools / "awk").touch()
    assert read(store, prefix) is None


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "HOME"])
def test_variables_that_decide_are_seen(
    store: Store, prefix: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    keep(store, prefix)
    monkeypatch.setenv(name, "/opt/another")
    assert read(store, prefix) is None


@pytest.mark.parametrize("request_", [{"compiler": True}, {"programs": ("git",)}])
def test_what_the_host_decides_is_not_kept(store: Store, prefix: Path, request_: dict[str, object]) -> None:
    keep(store, prefix, **request_)
    assert read(store, prefix, **request_) is None


def test_a_python_that_starts_another_is_not_kept(store: Store, prefix: Path) -> None:
    """As pyenv's do: which one, variables and the working directory decide."""
    found = interpreter(prefix)
    snapshot.keep(
        store, found, CaptureRequest(python="/usr/local/bin/python"), Collection(), "sha256:f",
        began_ns=time.time_ns() + _LATER_NS,
    )  # fmt: skip
    assert snapshot.read(store, "/usr/local/bin/python", CaptureRequest()) is None


def test_what_changed_during_the_capture_is_not_kept(store: Store, prefix: Path) -> None:
    keep(store, prefix, began_ns=time.time_ns())
    assert read(store, prefix) is None


def test_damaged_facts_are_none(store: Store, prefix: Path) -> None:
    keep(store, prefix)
    path = store.kept_facts(snapshot._name(interpreter(prefix).executable))
    path.write_bytes(path.read_bytes()[:-9])
    assert read(store, prefix) is None


def test_the_file_that_changed_is_named(store: Store, prefix: Path) -> None:
    python = interpreter(prefix).executable
    assert snapshot.changed(store, python) == ""
    keep(store, prefix)
    assert snapshot.changed(store, python) == ""
    time.sleep(0.02)  # the kernel's clock of files ticks slowly
    (prefix / "another").mkdir()
    (prefix / "another" / "new.py").write_text("x")
    assert snapshot.changed(store, python) == str(prefix / "another")
    shutil.rmtree(prefix / "another")
    (prefix / "package" / "new.py").write_text("x")
    assert snapshot.changed(store, python) == str(prefix / "package" / "new.py")
    time.sleep(0.02)
    (store.root / "captures" / "later").mkdir(parents=True)
    assert snapshot.changed(store, python) == "", "that change was captured"
