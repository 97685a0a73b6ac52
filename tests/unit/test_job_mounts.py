"""Mounts that cannot be composed are refused before an engine tries them."""

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from builders import make_image, make_job

from bareboat.deployment import mounts
from bareboat.model import Mount
from bareboat.session import preparation
from bareboat_base.errors import PlanError, UsageError
from bareboat_images.store import Store


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("tree/etc", "folder/has", "other", "work"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("tree/etc/passwd", "file"):
        (tmp_path / name).touch()
    return tmp_path


def check(place: Path, *pairs: str, **changes: Any) -> None:
    """Check mounts SOURCE:TARGET, with :rw for writable ones."""
    made = []
    for pair in pairs:
        source, target, *writable = pair.split(":")
        made.append(Mount(source=str(place / source), target=target, writable=bool(writable)))
    store = SimpleNamespace(trees=lambda _: [place / "tree"], flat=lambda _: place / "none")
    job = make_job(mounts=tuple(made), **({"workdir": str(place / "work"), "engine": "bubblewrap"} | changes))
    mounts.check(cast(Store, store), make_image(), job)


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        (("file:/x", "folder:/x/y"), "/file is not a directory"),
        (("folder:/x/y", "file:/x"), "/file is not a directory"),
        (("folder:/x", "other:/x/new"), "mounted read-only at /x, lacks it"),
        (("folder:/x", "file:/x/has"), "/folder/has is a directory"),
        (("folder:/etc/passwd/y",), "/etc/passwd is a file in the image"),
        (("folder:/proc/none",), "the kernel has no /proc/none"),
        (("folder:/sys/none/x",), "the kernel has no /sys/none/x"),
        (("folder:/dev/null",), "programs use this device"),
    ],
)
def test_mounts_that_cannot_be_composed_are_refused(place: Path, pairs: tuple[str, ...], why: str) -> None:
    with pytest.raises(PlanError) as caught:
        check(place, *pairs)
    assert why in caught.value.message
    assert caught.value.remedy
    check(place, *pairs, engine="native")


def test_the_remedy_makes_the_mount_point(place: Path) -> None:
    with pytest.raises(PlanError) as caught:
        check(place, "folder:/x", "file:/x/a b/new")
    subprocess.run(["sh", "-c", caught.value.remedy or "false"], check=True)
    check(place, "folder:/x", "file:/x/a b/new")


def test_a_file_is_no_working_directory(place: Path) -> None:
    with pytest.raises(PlanError, match="working directory must be a directory"):
        check(place, f"file:{place}/work")


@pytest.mark.parametrize(
    "pairs",
    [
        ("folder:/x", "other:/x/has"), ("folder:/x:rw", "other:/x/new/y"), ("folder:/etc/new/x",),
        ("folder:/dev/shm/x",), ("folder:/",), ("missing:/etc/passwd/y",), ("folder:/x", "missing:/x/new"),
    ],
)  # fmt: skip
def test_other_mounts_are_left_to_the_engine(place: Path, pairs: tuple[str, ...]) -> None:
    check(place, *pairs)


@pytest.mark.parametrize(("scheduler", "is_refused"), [(None, True), ("local", True), ("slurm", False)])
def test_a_source_that_this_machine_lacks(place: Path, *, scheduler: str | None, is_refused: bool) -> None:
    """The nodes of a queue may have it."""
    said: list[str] = []
    session = cast(Any, SimpleNamespace(reporter=SimpleNamespace(warn=said.append)))
    job = make_job(mounts=(Mount(source=str(place / "gone"), target="/x"),), scheduler=scheduler)
    if is_refused:
        with pytest.raises(UsageError, match="does not exist") as caught:
            preparation.check_mounts(session, job)
        assert caught.value.remedy == f"mkdir -p {place}/gone"
    else:
        preparation.check_mounts(session, job)
    assert bool(said) is not is_refused
