"""The scopes of a policy that apply to an image, from the most specific to the most general.

Source: containers-policy.json(5), "Supported transports and their scopes".
"""

from __future__ import annotations

import os
import posixpath

from bareboat_base.expressions import expression
from bareboat_images.oci.reference import Reference, Transport

_PATHS = ("dir", "oci", "oci-archive", "sif", "squashfs", "rootfs")
_ATOMIC = expression(r"(\*(\.[\w-]+)+|[^/:*]+(:[0-9]+)?)(/[^/:]+){0,2}(:[^/:]+)?")


def check(transport: str, scope: str) -> None:
    """Raise ValueError for a scope that can never match. Scopes of unsupported transports are not checked."""
    if not scope:
        return
    where = f"the scope {scope!r} of the transport {transport}"
    if transport in ("docker-archive", "tarball"):
        raise ValueError(f'{where} is not possible: it has the scope "" alone')
    if transport in _PATHS:
        path = scope.partition(":")[0] if transport == "oci" else scope
        if not path.startswith("/"):
            raise ValueError(f"{where} is not an absolute path")
        if path == "/":
            raise ValueError(f'{where} is forbidden: write ""')
        if posixpath.normpath(path) != path or path.startswith("//"):
            raise ValueError(f"{where} is not a plain path; it would never match")
    if transport == "docker":
        wildcard = scope.startswith("*.")
        if "*" in (scope[2:] if wildcard else scope) or (wildcard and "/" in scope):
            raise ValueError(f"{where} is no wildcard that can match; write *.example.com")
    if transport == "atomic" and not _ATOMIC.fullmatch(scope):
        raise ValueError(f"{where} is not of the form HOST[:PORT][/NAMESPACE[/NAME[:TAG]]]")


def named(found: Reference) -> str:
    """A registry image's full name. With a digest the tag is ignored, as in Podman."""
    name = f"{found.registry}/{found.repository}"
    return f"{name}@{found.digest}" if found.digest else f"{name}:{found.tag or 'latest'}"


def of(found: Reference) -> tuple[str, list[str]]:
    """The transport's name in policies, and the scopes, without the transport's default."""
    match found.transport:
        case Transport.REGISTRY:
            return "docker", [named(found), *namespaces(f"{found.registry}/{found.repository}")]
        case Transport.DOCKER_ARCHIVE:
            return "docker-archive", []
        case other:
            # A link must not bypass a scope: the real directory or file is checked.
            path = os.path.realpath(found.path)
            first = [f"{path}:{found.tag}"] if other is Transport.OCI and found.tag else []
            return other.value, [*first, *parents(path)]


def namespaces(name: str) -> list[str]:
    """A repository, its parent namespaces, its registry, and the wildcards for the registry's domains."""
    listed = [name]
    while "/" in name:
        name = name.rpartition("/")[0]
        listed.append(name)
    host = name.partition(":")[0]
    while "." in host:
        host = host.partition(".")[2]
        listed.append(f"*.{host}")
    return listed


def parents(path: str) -> list[str]:
    """A path and its parent directories, without the root."""
    listed = []
    while len(path) > 1:
        listed.append(path)
        path = posixpath.dirname(path)
    return listed
