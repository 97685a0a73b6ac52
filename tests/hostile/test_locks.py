"""A lock comes from a stranger: no text of it becomes a path or a command of the shell."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import msgspec
import pytest
from locked import make_code, make_lock, make_locked_image

from bareboat.errors import UsageError
from bareboat.model.provenance import Repository
from bareboat.reproduction import making, reading, retrieval
from bareboat.reproduction.document import Lock
from bareboat.store import Store

EVIL = (
    "/home/me/outside/evil",
    "../evil",
    "a/b",
    "x; touch PWNED #",
    "$(touch PWNED)",
    "`touch PWNED`",
    "x\ntouch PWNED",
    "-rf",
    ".",
    "..",
    "",
    "x" * 300,
    "\x1b[2Jx",
    "a\x00b",
)


def _read(lock: Lock) -> Lock:
    return reading.parse(making.written(lock), what="run.lock")


def _remedies(lock: Lock, folder: Path) -> list[str]:
    wishes = retrieval.Wishes()
    found = retrieval.find(lock, Store(folder / "store"), wishes, environment={}, progress=lambda *_: None)
    return [part.remedy for part in found.parts]


@pytest.mark.parametrize("name", EVIL)
def test_the_name_of_a_lock_is_that_of_a_run(name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a run") as error:
        _read(make_lock(name=name))
    assert error.value.message.isprintable()


@pytest.mark.parametrize("name", EVIL)
def test_no_code_is_written_outside_of_the_directory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    code = make_code(repository=None)
    try:
        lock = _read(make_lock(name=str(tmp_path / "outside" / name), code=code))
        lock = msgspec.structs.replace(lock, job=msgspec.structs.replace(lock.job, workdir="/nowhere/at/all"))
        found = retrieval.find(lock, Store(tmp_path / "store"), retrieval.Wishes(), environment={},
                               progress=lambda *_: None)  # fmt: skip
    except UsageError:
        return
    assert found.restores is None or os.path.dirname(found.restores) == str(here)


@pytest.mark.parametrize("evil", EVIL)
def test_every_remedy_is_one_command_with_words_of_the_lock_quoted(evil: str, tmp_path: Path) -> None:
    """Each text of the lock that a remedy names is refused, or quoted."""
    job = msgspec.structs.replace(make_lock().job, workdir="/nowhere/at/all")
    repository = Repository(commit="a" * 40, remote=evil, below="", difference="")
    image = make_locked_image(origin="site layer", added=(evil,))
    candidates = [
        make_lock(name=evil, job=job, image=image, code=make_code(repository=repository)),
        make_lock(job=job, image=image, code=make_code(repository=repository)),
        make_lock(job=job, image=make_locked_image(origin="site layer", base=evil, added=("mpi",))),
        make_lock(job=job, withheld=(evil,)),
        make_lock(job=job, image=make_locked_image(origin="pulled", reference=evil)),
    ]
    for candidate in candidates:
        try:
            remedies = _remedies(_read(candidate), tmp_path)
        except UsageError:
            continue
        for remedy in remedies:
            rest = remedy.replace(shlex.quote(evil), "") if evil else remedy
            assert "PWNED" not in rest
            assert "/home/me/outside" not in rest


def test_a_remote_that_names_a_program_is_not_cloned(tmp_path: Path) -> None:
    job = msgspec.structs.replace(make_lock().job, workdir="/nowhere/at/all")
    repository = Repository(commit="a" * 40, remote="ext::touch PWNED", difference="")
    remedies = _remedies(_read(make_lock(job=job, code=make_code(repository=repository))), tmp_path)
    assert not any("git clone" in remedy for remedy in remedies)
