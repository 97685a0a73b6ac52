"""What the user agreed to: a file in the user's configuration directory for each path, written by this module
alone. Several commands may agree at the same time.

Consent covers a path and a digest of what was shown. After a change it is required again.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bareboat_base import codec
from bareboat_base.errors import BareboatError, UsageError
from bareboat_base.files import failures, outputs, ownership, untrusted

_MOST_BYTES = 1 << 16


def folder(environment: Mapping[str, str]) -> Path:
    home = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME", "/"), ".config")
    return Path(home) / "bareboat" / "trusted"


def digest_of(values: Mapping[str, Any]) -> str:
    """The digest of keys and values, independent of their order and layout."""
    import hashlib  # here, because most starts ask for no consent
    import json

    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def is_given(path: Path, digest: str, environment: Mapping[str, str]) -> bool:
    """Whether the user consented to this path with this content. Raises UsageError for a damaged file."""
    return _read(_file(path, environment)) == (os.path.realpath(path), digest)


def give(path: Path, digest: str, environment: Mapping[str, str]) -> None:
    """Store a consent; it replaces an earlier one for the same path."""
    file = _file(path, environment)
    _write(file, codec.to_json((os.path.realpath(path), digest)))


def _write(path: Path, data: bytes) -> None:
    """Write a file of the user's settings that only they can change, whatever the umask. Others are not used.

    Raises UsageError where others could replace it, and as `outputs.write` does.
    """
    with failures.at(path):
        for folder in (*reversed(path.parent.parents), path.parent):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
    if doubt := ownership.doubt(path.parent):
        raise UsageError(
            f"{path} cannot be written: others could change it", context=str(doubt), remedy=doubt.remedy
        )
    outputs.write(path, data, mode=0o600)


def take_back(path: Path, environment: Mapping[str, str]) -> bool:
    """Withdraw a consent; return whether there was one."""
    try:
        _file(path, environment).unlink()
    except FileNotFoundError:
        return False
    return True


def paths(environment: Mapping[str, str]) -> list[str]:
    """All paths with consent."""
    files = sorted(folder(environment).glob("*.json"))
    return sorted(found[0] for file in files if (found := _read(file)) is not None)


def _file(path: Path, environment: Mapping[str, str]) -> Path:
    import hashlib

    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()
    return folder(environment) / f"{name}.json"


def _read(file: Path) -> tuple[str, str] | None:
    try:
        data = untrusted.read_bytes(file, limit=_MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise untrusted.unreadable(file, error) from None
    if doubt := ownership.doubt(file):
        raise UsageError(f"{file} names a trusted path, but is ignored: {doubt}", remedy=doubt.remedy)
    remedy = f"rm {shlex.quote(str(file))}   # then trust the path again"
    try:
        return codec.from_json(data, tuple[str, str], what=str(file), remedy=remedy)
    except BareboatError as error:
        raise UsageError(f"{file} is damaged", context=error.message, remedy=remedy) from None
