"""Fetches simple signatures, which are stored outside the registry, at a location set in registries.d.

Sources: containers-registries.d(5), and
https://github.com/containers/image/blob/main/docs/signature-protocols.md for the path of a signature.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

from bareboat_base import digests
from bareboat_base.errors import ImageError, UsageError
from bareboat_base.files.untrusted import UntrustedFileError, read_bytes
from bareboat_base.printable import one_line
from bareboat_images.oci.reference import Reference
from bareboat_images.registry.access import Access, remote_options
from bareboat_images.signatures import scopes
from bareboat_images.signatures.openpgp import LARGEST_SIGNATURE

_MOST_SIGNATURES = 100
_LARGEST_FILE = 1 << 20
_CHECK_PLACE = "try again later, or correct the place in registries.d: man 5 containers-registries.d"
_KEYS = {
    "lookaside", "sigstore", "lookaside-staging", "sigstore-staging", "use-sigstore-attachments",
}  # fmt: skip


def signatures(
    found: Reference, digest: str, access: Access, environment: Mapping[str, str]
) -> Iterator[bytes]:
    """The simple signatures of the image with this digest, not verified. Raises UsageError for an unreadable
    file of registries.d, ImageError when the server does not answer."""
    base = place(found, environment)
    if base is None:
        return
    folder = f"{base.rstrip('/')}/{found.repository}@{digests.ALGORITHM}={digests.hexed(digest)}"
    for number in range(1, _MOST_SIGNATURES + 1):
        data = _read(f"{folder}/signature-{number}", found, access)
        if data is None:
            return
        yield data


def place(found: Reference, environment: Mapping[str, str]) -> str | None:
    """The base URL of an image's signatures; None if the settings configure none."""
    home = environment.get("HOME", "/")
    own = os.path.join(home, ".config/containers/registries.d")
    default, named = _read_files(own if os.path.isdir(own) else "/etc/containers/registries.d")
    name = f"{found.registry}/{found.repository}"
    # Wildcards are for policies only; here a registry is named in full.
    for scope in (scopes.named(found), *(each for each in scopes.namespaces(name) if each[0] != "*")):
        if scope in named:
            return _lookaside(named[scope])
    if default is not None:
        return _lookaside(default)
    if os.geteuid() == 0:
        return "file:///var/lib/containers/sigstore"
    return f"file://{home}/.local/share/containers/sigstore"


def _lookaside(section: Mapping[str, Any]) -> str | None:
    return section.get("lookaside") or section.get("sigstore")


def _read_files(folder: str) -> tuple[dict[str, Any] | None, dict[str, dict[str, Any]]]:
    """The default section, and the section of each scope. Raises UsageError."""
    default: dict[str, Any] | None = None
    named: dict[str, dict[str, Any]] = {}
    try:
        files = sorted(name for name in os.listdir(folder) if name.endswith(".yaml"))
    except OSError:
        return None, {}
    if not files:
        return None, {}
    yaml = _yaml(os.path.join(folder, files[0]))
    for name in files:
        path = os.path.join(folder, name)
        try:
            read = yaml.safe_load(read_bytes(os.path.realpath(path), limit=_LARGEST_FILE)) or {}
            if not isinstance(read, dict) or set(read) - {"default-docker", "docker"}:
                raise ValueError("it may have the keys default-docker and docker")
            if "default-docker" in read:
                if default is not None:
                    raise ValueError("default-docker is already set in an earlier file")
                default = _section(read["default-docker"])
            for scope, section in (read.get("docker") or {}).items():
                if scope in named:
                    raise ValueError(f"{scope} is already set in an earlier file")
                named[scope] = _section(section)
        except (
            OSError,
            UntrustedFileError,
            ValueError,
            AttributeError,
            RecursionError,
            yaml.YAMLError,
        ) as error:
            mark = getattr(error, "problem_mark", None)
            reason = one_line(str(error)) if mark is None else f"it is not YAML, from line {mark.line + 1} on"
            raise UsageError(
                f"{path}, which configures the location of signatures, cannot be read",
                context=reason,
                remedy="correct it; man 5 containers-registries.d",
            ) from None
    return default, named


def _yaml(path: str) -> ModuleType:
    """The YAML parser. Raises UsageError where it is not installed."""
    try:
        import yaml
    except ImportError:
        raise UsageError(
            f"{path}, which configures the location of signatures, is YAML",
            context="PyYAML is not installed",
            remedy="pip install PyYAML",
        ) from None
    module: ModuleType = yaml
    return module


def _section(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) - _KEYS:
        raise ValueError(f"a section may have the keys {', '.join(sorted(_KEYS))}")
    for key, each in value.items():
        if not isinstance(each, bool if key == "use-sigstore-attachments" else str):
            raise ValueError(f"{key} has a value of the wrong kind")
    return value


def _read(url: str, found: Reference, access: Access) -> bytes | None:
    """The content of a URL; None if it does not exist."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        path = unquote(parts.path)
        try:
            return read_bytes(path, limit=LARGEST_SIGNATURE)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, UntrustedFileError) as error:
            raise ImageError(
                f"the signature {path} cannot be read",
                context=str(error.strerror),
                remedy=f"ls -l {shlex.quote(str(path))}",
            ) from None
    if parts.scheme not in ("http", "https"):
        raise UsageError(
            f"the place of signatures {one_line(url)} is not supported",
            remedy="write file:///DIR or https://HOST/PATH in registries.d",
        )
    from bareboat_images.registry.exchange import Request, exchange
    from bareboat_images.registry.failure import Broken
    from bareboat_images.registry.http import Transport
    from bareboat_images.registry.location import parse_url

    transport = Transport(remote_options(found.registry, access))
    try:
        with exchange(transport, Request(method="GET", url=parse_url(url), subject=url)) as response:
            if response.status == 404:
                return None
            if response.status != 200:
                raise ImageError(
                    f"signatures cannot be fetched: {url} answers {response.status}", remedy=_CHECK_PLACE
                )
            return response.read(LARGEST_SIGNATURE)
    except (Broken, ValueError) as error:
        raise ImageError(
            f"signatures cannot be fetched from {url}", context=one_line(str(error)), remedy=_CHECK_PLACE
        ) from None
    finally:
        transport.close()
