"""The user's consent, given by `bareboat config trust` or when prompted; stored in the user's configuration
directory.

Consent covers a path and a digest of what was shown. After a change, for example by `git pull`, it is
required again. Only this module reads and writes the file, which only the user can write.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bareboat_base.errors import UsageError
from bareboat_base.files import ownership

_MOST_BYTES = 1 << 20


def consent_file(environment: Mapping[str, str]) -> Path:
    """The file that holds the consents."""
    home = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME", "/"), ".config")
    return Path(home) / "bareboat" / "trusted.json"


def digest_of(values: Mapping[str, Any]) -> str:
    """The digest of keys and values, independent of their order and layout."""
    import hashlib
    import json

    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def is_given(path: Path, digest: str, environment: Mapping[str, str]) -> bool:
    """Whether the user consented to this path with this content. Raises UsageError for a damaged file."""
    return _read(consent_file(environment)).get(os.path.realpath(path)) == digest


def give(path: Path, digest: str, environment: Mapping[str, str]) -> None:
    """Store a consent; it replaces an earlier one for the same path."""
    file = consent_file(environment)
    _write(file, _read(file) | {os.path.realpath(path): digest})


def take_back(path: Path, environment: Mapping[str, str]) -> bool:
    """Withdraw a consent; return whether there was one."""
    file = consent_file(environment)
    given = _read(file)
    if given.pop(os.path.realpath(path), None) is None:
        return False
    _write(file, given)
    return True


def paths(environment: Mapping[str, str]) -> list[str]:
    """All paths with consent."""
    return sorted(_read(consent_file(environment)))


def _write(file: Path, trusted: dict[str, str]) -> None:
    import json

    from bareboat_base.files import outputs

    outputs.write_settings(file, json.dumps(trusted, indent=1, sort_keys=True).encode() + b"\n")


def _read(file: Path) -> dict[str, str]:
    import json

    from bareboat_base.files import untrusted

    try:
        data = untrusted.read_bytes(file, limit=_MOST_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}", remedy=f"ls -l {shlex.quote(str(file))}"
        ) from None
    if doubt := ownership.doubt(file):
        raise UsageError(f"{file} lists trusted paths, but is ignored: {doubt}", remedy=f"{doubt.remedy}")
    try:
        found = json.loads(data)
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise ValueError
    except (ValueError, RecursionError):
        raise UsageError(
            f"{file} is damaged", remedy=f"rm {shlex.quote(str(file))}   # then trust the files again"
        ) from None
    return found
