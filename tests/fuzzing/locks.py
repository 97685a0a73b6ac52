"""Readers of locks, which people share: read, shown, compared, and looked for here. Nothing of them runs."""

import os
from pathlib import Path

import msgspec
from locked import make_lock

from bareboat.model import Job
from bareboat.model.provenance import Code
from bareboat_base.errors import BareboatError
from bareboat_images.store import Store
from bareboat_study.cli import diff
from bareboat_study.cli import replay as replay_verb
from bareboat_study.reproduction import (
    comparison,
    difference,
    making,
    reading,
    retrieval,
)
from bareboat_study.reproduction.document import Lock
from fuzzing import Finding, Reader, check_shown

_OTHER = make_lock()


def read_lock(data: bytes, scratch: Path) -> None:
    """Read it, compare it with another both ways, look for its parts, and write its code."""
    path = scratch / "run.lock"
    path.write_bytes(data)
    lock, _ = reading.read(path)
    for first, second in ((lock, _OTHER), (_OTHER, lock), (lock, lock)):
        found = difference.compare(first, second)
        check_shown(diff.text(first, second, found, every=True))
        comparison.of_runs(first.results, second.results, comparison.Tolerances())
    if difference.compare(lock, lock):
        raise Finding("a lock differs from itself")
    # What lies on this machine is not looked at: a lock may name any path of it.
    tame = msgspec.structs.replace(lock, data=(), job=_tame(lock.job, scratch))
    store, wishes = Store(scratch / "store"), retrieval.Wishes()
    parts = retrieval.find(tame, store, wishes, environment={}, progress=lambda *_: None)
    check_shown(replay_verb.shown(tame, parts, parts.job))
    _restore(lock, scratch)
    making.written(lock)


def _tame(job: Job, scratch: Path) -> Job:
    return msgspec.structs.replace(job, mounts=(), workdir=os.fspath(scratch / "code"))


def _restore(lock: Lock, scratch: Path) -> None:
    if not isinstance(lock.code, Code):
        return
    folder = scratch / "restored"
    try:
        retrieval.restore(lock, os.fspath(folder))
    except BareboatError:
        return
    for here, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if name.casefold() == ".git" or os.path.islink(os.path.join(here, name)):
                raise Finding(f"it writes {os.path.join(here, name)}")


READERS = (
    Reader(
        name="locks",
        read=read_lock,
        words=(
            b'"path":"../', b'".git/config"', b'"sha256":""', b'"bareboat_lock":1', b'"kind":"study"',
            b"\\u001b[2J",
            b'"nan"', b"1e308", b"-0", b'"patterns":{"a":"(a+)+"}', b'"folder":"/"', b"\\u0000", b"\\ud800",
            b'"reference":"-oProxyCommand=x"', b'"remote":"--upload-pack=x"', b'"command":[""]',
        ),
        modules=("bareboat_study.reproduction",),
    ),
)  # fmt: skip
