"""The user's credentials for a registry, as stored by podman, Docker and NGC's tools.

Source: https://github.com/containers/image/blob/main/docs/containers-auth.json.5.md,
https://docs.docker.com/reference/cli/docker/login/#credential-stores
"""

from __future__ import annotations

import base64
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from bareboat_base import execute
from bareboat_base.errors import ImageError, ToolError
from bareboat_base.files import untrusted
from bareboat_images.registry.location import DOCKER_HUB

_HELPER_TIMEOUT_S = 30.0
_LARGEST_FILE = 4 * 2**20
#: The user names with which helpers mark an identity token, and NGC an API key.
_TOKEN_USER = "<token>"
_NGC_USER = "$oauthtoken"
_NGC = "nvcr.io"
#: Docker's keys for Docker Hub, older than registry names.
_DOCKER_HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io", "registry-1.docker.io")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A log-in. `origin`: the file, helper or variable that supplied it; all fields except it and `user` are
    secret."""

    user: str
    origin: str
    password: str = field(default="", repr=False)
    #: Exchanged at the token service for access tokens, instead of a password.
    identity_token: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """The value of the Authorization header in the Basic scheme (RFC 7617)."""
        pair = f"{self.user}:{self.password}"
        return base64.b64encode(pair.encode(errors="surrogateescape")).decode()


class Search(Struct, frozen=True, kw_only=True):
    """The result of a search, and, for messages, the files searched and the helpers that failed."""

    credential: Credential | None
    looked: tuple[str, ...]
    failures: tuple[str, ...] = ()


def find(registry: str, repository: str, environment: Mapping[str, str]) -> Search:
    """The log-in for a repository: from the first file that has one, its most specific entry.

    Raises ImageError for an unreadable file, and if a helper configured for this registry fails.
    """
    failures: list[str] = []
    found = None
    looked = files(environment)
    for path in looked:
        read = _read(path)
        if read is not None:
            found = _in_file(read, path, registry, repository, environment, failures)
        if found is not None:
            break
    key = environment.get("NGC_API_KEY")
    if found is None and registry == _NGC and key:
        found = Credential(user=_NGC_USER, password=key.strip(), origin="NGC_API_KEY")
    return Search(credential=found, looked=looked, failures=tuple(failures))


def files(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The files that may contain log-ins, in order of precedence."""
    home = environment.get("HOME")
    config = environment.get("XDG_CONFIG_HOME") or (os.path.join(home, ".config") if home else None)
    # Without a run-time directory, as after `su`, podman uses one named by the user ID.
    runtime = environment.get("XDG_RUNTIME_DIR")
    session = os.path.join(runtime, "containers") if runtime else f"/run/containers/{os.getuid()}"
    docker = environment.get("DOCKER_CONFIG") or (os.path.join(home, ".docker") if home else None)
    named = (
        environment.get("REGISTRY_AUTH_FILE"),
        os.path.join(session, "auth.json"),
        os.path.join(config, "containers/auth.json") if config else None,
        os.path.join(docker, "config.json") if docker else None,
    )
    return tuple(dict.fromkeys(path for path in named if path))


def keys(registry: str, repository: str) -> Iterator[str]:
    """The keys of possible entries, the most specific first."""
    parts = repository.split("/")
    for count in range(len(parts), -1, -1):
        yield "/".join((registry, *parts[:count]))
    if registry == DOCKER_HUB:
        yield from _DOCKER_HUB_KEYS


def _read(path: str) -> dict[str, Any] | None:
    try:
        data = untrusted.read_bytes(path, limit=_LARGEST_FILE, follow=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if isinstance(error, PermissionError) and not os.access(os.path.dirname(path), os.X_OK):
            return None  # for example root's /run/containers, which has no files of this user
        raise _bad_file(path, (error.strerror or "it cannot be read").lower()) from None
    try:
        read = json.loads(data)
    except (ValueError, RecursionError):
        raise _bad_file(path, "it is not JSON") from None
    if not isinstance(read, dict):
        raise _bad_file(path, "it is not a JSON object")
    return read


def _bad_file(path: str, reason: str) -> ImageError:
    return ImageError(
        f"the log-ins in {path} cannot be read: {reason}",
        remedy="fix the file, or move it away and log in again:   "
        f"mv {shlex.quote(str(path))} {shlex.quote(f'{path}.old')}",
    )


def _in_file(
    read: dict[str, Any],
    path: str,
    registry: str,
    repository: str,
    environment: Mapping[str, str],
    failures: list[str],
) -> Credential | None:
    helpers = _section(read, "credHelpers", path)
    entries = _section(read, "auths", path)
    for key in keys(registry, repository):
        helper = helpers.get(key)
        if isinstance(helper, str) and helper:
            found = _from_helper(helper, key, environment)
            if found is not None:
                return found
        for name in (key, f"https://{key}", f"http://{key}", f"https://{key}/v1/", f"https://{key}/v2/"):
            entry = entries.get(name)
            if isinstance(entry, dict) and (found := _from_entry(entry, name, path)) is not None:
                return found
    store = read.get("credsStore")
    if isinstance(store, str) and store:
        server = _DOCKER_HUB_KEYS[0] if registry == DOCKER_HUB else registry
        try:
            return _from_helper(store, server, environment)
        except ImageError as error:
            # The store is for all registries and may have come with a file from another machine: without it,
            # public images are still available.
            failures.append(f"{path}: {error.message}" + (f" ({error.context})" if error.context else ""))
    return None


def _section(read: dict[str, Any], name: str, path: str) -> dict[str, Any]:
    section = read.get(name)
    if section is None:
        return {}
    if not isinstance(section, dict):
        raise _bad_file(path, f"its {name!r} is not an object")
    return section


def _from_entry(entry: dict[str, Any], name: str, path: str) -> Credential | None:
    """The log-in of an entry; None for an empty one: Docker writes {} if its helper has the log-in."""
    user, password = entry.get("username") or "", entry.get("password") or ""
    packed, token = entry.get("auth") or "", entry.get("identitytoken") or ""
    if not all(isinstance(text, str) for text in (user, password, packed, token)):
        raise _bad_file(path, f"the entry of {name} is not made of texts")
    if packed:
        try:
            plain = base64.b64decode(packed, validate=True).decode(errors="surrogateescape")
        except ValueError:  # not base64, or not ASCII
            raise _bad_file(path, f"the 'auth' of {name} is not base64") from None
        user, colon, password = plain.partition(":")
        if not colon:
            raise _bad_file(path, f"the 'auth' of {name} is not USER:PASSWORD in base64")
        password = password.rstrip("\0")  # some old versions of Docker padded it
    if not user and not password and not token:
        return None
    return Credential(user=user, password=password, identity_token=token, origin=path)


def _from_helper(helper: str, server: str, environment: Mapping[str, str]) -> Credential | None:
    """Run `docker-credential-HELPER get`; None if it has no log-in. Raises ImageError when it fails.

    Source: https://github.com/docker/docker-credential-helpers
    """
    program = f"docker-credential-{helper}"
    remedy = (
        f"echo {server} | {program} get   # shows what is wrong; or take it out of the file that names it"
    )
    if "/" in helper or execute.which(program, path=environment.get("PATH")) is None:
        raise ImageError(
            f"the credential helper {program} is not on PATH",
            remedy="install it, or take it out of the file that names it",
        )
    try:
        done = execute.run(
            (program, "get"), stdin=server, environment=environment, timeout_s=_HELPER_TIMEOUT_S
        )
    except ToolError as error:
        raise ImageError(f"the credential helper failed: {error.message}", remedy=remedy) from None
    if done.exit_code != 0:
        said = (done.stdout.strip() or done.stderr.strip())[:300]
        if "credentials not found" in said.lower():
            return None
        raise ImageError(
            f"the credential helper {program} failed for {server} (exit code {done.exit_code})",
            # Helpers write errors to stdout; if it is a log-in after all, it contains a secret.
            context="" if '"Secret"' in said else said,
            remedy=remedy,
        )
    try:
        answer = json.loads(done.stdout)
        user, secret = answer["Username"], answer["Secret"]
        if not isinstance(user, str) or not isinstance(secret, str):
            raise TypeError
    except (ValueError, LookupError, TypeError):
        raise ImageError(
            f"the credential helper {program} answers for {server} what is no log-in", remedy=remedy
        ) from None
    if not user and not secret:
        return None
    if user == _TOKEN_USER:
        return Credential(user=user, identity_token=secret, origin=program)
    return Credential(user=user, password=secret, origin=program)
