"""Reading a lock, which is a file from a stranger: strictly, and with limits."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import msgspec

from bareboat.model.provenance import Code
from bareboat_base import codec, digests
from bareboat_base.errors import UsageError
from bareboat_base.files import untrusted
from bareboat_base.printable import one_line, quoted
from bareboat_images.store.paths import NAME
from bareboat_study import patterns
from bareboat_study.reproduction.document import MOST_BYTES, VERSION, Lock

_AGAIN = "bareboat lock RUN -o run.lock   # where the run is; a study's file: bareboat prove FILE"
_MOST_DEPTH = 40
_HEX = re.compile(r"[0-9a-f]{64}")


def read(path: Path) -> tuple[Lock, str]:
    """The lock in a file, and the digest of its bytes. Raises UsageError."""
    try:
        data = untrusted.read_bytes(path, limit=MOST_BYTES, follow=True)
    except OSError as error:
        raise untrusted.unreadable(path, error) from None
    return parse(data, what=one_line(str(path), limit=500)), digests.of(data)


def parse(data: bytes, *, what: str) -> Lock:
    """Parse a lock; `what` names it in errors. Raises UsageError."""
    if len(data) > MOST_BYTES:
        raise UsageError(f"{what} is not a lock: it is larger than {MOST_BYTES:,} bytes", remedy=_AGAIN)
    try:
        # Bytes of paths and arguments that are not UTF-8 are lone surrogates, which msgspec rejects.
        plain = json.loads(data) if b"\\udc" in data else msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} is not a lock: {codec.fault(error)}", remedy=_AGAIN) from None
    version = plain.get("bareboat_lock") if isinstance(plain, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise UsageError(f"{what} is not a lock: it has no bareboat_lock", remedy=_AGAIN)
    if version != VERSION:
        raise UsageError(
            f"{what} is a lock of version {one_line(str(version), limit=30)}, not {VERSION}",
            remedy="pip install --upgrade bareboat",
        )
    try:
        lock = codec.convert(plain, Lock)
        back = msgspec.to_builtins(lock)
    except (msgspec.ValidationError, ValueError, RecursionError, OverflowError, UsageError) as error:
        raise UsageError(f"{what} is not a valid lock: {codec.fault(error)}", remedy=_AGAIN) from None
    if (unknown := _unknown(plain, back)) is not None:
        raise UsageError(
            f"{what} has the unknown key {one_line(unknown, limit=100)}",
            context="it may be from a newer Bareboat, whose meaning this one would lose",
            remedy="pip install --upgrade bareboat",
        )
    if (wrong := _wrong(lock)) is not None:
        raise UsageError(f"{what} is not a valid lock: {wrong}", remedy=_AGAIN)
    return lock


def _unknown(given: Any, known: Any, depth: int = 0) -> str | None:
    """A key that reading dropped, with dots."""
    if depth > _MOST_DEPTH:
        return "…"
    if isinstance(given, dict) and isinstance(known, dict):
        for key, value in given.items():
            if key not in known:
                return str(key)
            if (inner := _unknown(value, known[key], depth + 1)) is not None:
                return f"{key}.{inner}"
    elif isinstance(given, float) and not math.isfinite(given):
        return "with a number that is not finite"
    elif isinstance(given, list) and isinstance(known, list | tuple):
        for value, read_value in zip(given, known, strict=False):
            if (inner := _unknown(value, read_value, depth + 1)) is not None:
                return inner
    return None


def _wrong(lock: Lock) -> str | None:
    """What cannot be, beyond the types."""
    if lock.kind != "run":
        return f"its kind is {quoted(lock.kind, limit=30)}"
    # The name becomes a path, and a word of commands that the user is shown.
    if not NAME.fullmatch(lock.name):
        return f"its name {quoted(lock.name, limit=50)} is not the name of a run"
    for digest in (lock.image.digest, lock.image.base) if lock.image is not None else ():
        if digest and not digests.is_digest(digest):
            return "the image's digest is not a digest"
    for name in lock.withheld:
        if not name.isidentifier():
            return f"{quoted(name, limit=50)} is not the name of an environment variable"
    for datum in lock.data:
        if not datum.path.startswith("/") or "\0" in datum.path:
            return "the path of data is not absolute"
        if not _HEX.fullmatch(datum.sha256):
            return "the checksum of data is not a SHA-256"
    for name, pattern in lock.patterns.items():
        if (fault := patterns.fault(name, pattern)) is not None:
            return f"the pattern of {quoted(name, limit=50)} {fault}"
    return None if lock.code is None else _wrong_code(lock.code)


def _wrong_code(code: Code) -> str | None:
    for file in code.files:
        if not is_inner(file.path):
            return f"the file {quoted(file.path, limit=100)} lies outside of the code's directory"
        if file.sha256 and not _HEX.fullmatch(file.sha256):
            return "the digest of a file of the code is not a SHA-256"
        if file.size_bytes < 0:
            return "the size of a file of the code is negative"
    if len({file.path for file in code.files}) != len(code.files):
        return "the code has a file twice"
    found = code.repository
    if found is None:
        return None
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", found.commit):
        return "the commit is not the digest of a commit"
    if found.below and not is_inner(found.below):
        return "the working directory lies outside of the repository"
    return None


def is_inner(path: str) -> bool:
    """Whether a relative path stays in its directory, and out of a repository's own files."""
    parts = path.split("/")
    return (
        0 < len(path) <= 1000
        and path.isprintable()
        and "\\" not in path
        and all(part not in ("", ".", "..") and part.casefold() != ".git" for part in parts)
    )
