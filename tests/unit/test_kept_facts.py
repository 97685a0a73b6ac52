"""Facts about engines: kept while what they depend on is as before, and found out again otherwise."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from bareboat import kept_facts
from bareboat.model import EngineFacts
from bareboat.probe import machine
from bareboat_base import codec, execute
from bareboat_images.store import Store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/bwrap"
    program.write_text("#!/bin/sh\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return Store(tmp_path / "store")


def facts(tmp_path: Path, *, works: bool = True) -> tuple[EngineFacts, ...]:
    program = str(tmp_path / "bin/bwrap")
    return (EngineFacts(name="bubblewrap", path=program, version="1", origin="on PATH", works=works),)


def keep(store: Store, found: tuple[EngineFacts, ...]) -> None:
    kept_facts.of_engine(store, "bubblewrap").write(found, kept_facts.state())


def replaced(tmp_path: Path) -> None:
    (tmp_path / "new").write_text("#!/bin/sh\n")
    os.replace(tmp_path / "new", tmp_path / "bin/bwrap")


def removed(tmp_path: Path) -> None:
    (tmp_path / "bin/bwrap").unlink()


def aged(tmp_path: Path) -> None:
    change(tmp_path, at_s=time.time() - 2 * kept_facts._OLDEST_S)


def of_the_future(tmp_path: Path) -> None:
    change(tmp_path, at_s=time.time() + 1000)


def damaged(tmp_path: Path) -> None:
    Store(tmp_path / "store").kept_facts("bubblewrap").write_text("{")


def change(tmp_path: Path, **changes: float) -> None:
    path = Store(tmp_path / "store").kept_facts("bubblewrap")
    found = codec.from_json(path.read_bytes(), kept_facts._Stored[EngineFacts], what="facts")
    path.write_bytes(codec.to_json(msgspec.structs.replace(found, **changes)))


def test_they_are_kept(store: Store, tmp_path: Path) -> None:
    assert kept_facts.of_engine(store, "bubblewrap").read(kept_facts.state()) is None
    keep(store, facts(tmp_path))
    assert kept_facts.of_engine(store, "bubblewrap").read(kept_facts.state()) == facts(tmp_path)
    assert kept_facts.of_engine(store, "apptainer").read(kept_facts.state()) is None


@pytest.mark.parametrize("happens", [replaced, removed, aged, of_the_future, damaged])
def test_they_end_with_what_they_depend_on(
    store: Store, tmp_path: Path, happens: Callable[[Path], None]
) -> None:
    keep(store, facts(tmp_path))
    assert kept_facts.of_engine(store, "bubblewrap").read(kept_facts.state()) is not None
    happens(tmp_path)
    assert kept_facts.of_engine(store, "bubblewrap").read(kept_facts.state()) is None


def test_they_end_with_path(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(store, facts(tmp_path))
    monkeypatch.setenv("SHLVL", "7")
    assert kept_facts.of_engine(store, "bubblewrap").read(kept_facts.state()) is not None
    monkeypatch.setenv("PATH", f"/opt/module/bin:{os.environ['PATH']}")
    assert kept_facts.of_engine(store, "bubblewrap").read(kept_facts.state()) is None


def test_an_engine_that_does_not_work_is_tried_again(store: Store, tmp_path: Path) -> None:
    keep(store, facts(tmp_path))
    keep(store, ())
    assert kept_facts.of_engine(store, "bubblewrap").read(kept_facts.state()) is None
    assert not store.kept_facts("bubblewrap").exists()


def test_what_is_known_needs_no_threads(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ThreadsError(Exception):
        """Threads were started."""

    def side_by_side(_: int) -> None:
        raise ThreadsError

    def seen(
        *engines: str, schedulers: tuple[str, ...] = ("local",), **needs: bool
    ) -> tuple[EngineFacts, ...]:
        asked = {"mpis": False, "network": False} | needs
        return machine.probe(store, machine.Needs(engines=engines, schedulers=schedulers, **asked)).engines

    keep(store, facts(tmp_path))
    monkeypatch.setattr(execute, "side_by_side", side_by_side)
    assert seen("bubblewrap") == facts(tmp_path)
    for engines, needs in [
        (("bubblewrap", "apptainer"), {}),
        (("bubblewrap",), {"mpis": True}),
        (("bubblewrap",), {"network": True}),
        (("bubblewrap",), {"schedulers": ("local", "slurm")}),
    ]:
        with pytest.raises(ThreadsError):
            seen(*engines, **needs)  # type: ignore[arg-type]


def test_a_store_that_cannot_be_written_keeps_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Store, "write", full)
    keep(store, facts(tmp_path))
    assert kept_facts.of_engine(store, "bubblewrap").read(kept_facts.state()) is None
