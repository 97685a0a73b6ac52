"""Compares the name in a signature with the name of the requested image.

Source: containers-policy.json(5), `signedIdentity`. Pure.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bareboat_base.errors import UsageError
from bareboat_images.oci import reference

_ALONE = ("matchExact", "matchRepoDigestOrExact", "matchRepository")
_NEEDED = {
    "exactReference": ("dockerReference",),
    "exactRepository": ("dockerRepository",),
    "remapIdentity": ("prefix", "signedPrefix"),
}


class Name(Struct, frozen=True):
    """A name as in signatures: `repository` including its registry, and the tag or digest, if any."""

    repository: str
    tag: str | None = None
    digest: str | None = None

    @property
    def is_exact(self) -> bool:
        return bool(self.tag or self.digest)


class Identity(Struct, frozen=True, kw_only=True):
    """One `signedIdentity`; the defaults apply to a requirement without one."""

    kind: str = "matchRepoDigestOrExact"
    name: str = ""
    prefix: str = ""
    signed_prefix: str = ""

    def matches(self, asked: Name | None, signed: str) -> bool:
        """Whether a signature of `signed` is valid for the image `asked`; None: an image without a registry
        name, which only a name in the policy itself can match."""
        try:
            found = parse_name(signed)
        except ValueError:
            return False
        match self.kind:
            case "exactReference":
                own = parse_name(self.name)
                return own.is_exact and found == own
            case "exactRepository":
                return found.repository == parse_name(self.name).repository
        if asked is None:
            return False
        match self.kind:
            case "matchExact":
                return asked.is_exact and found == asked
            case "matchRepository":
                return found.repository == asked.repository
            case "remapIdentity":
                asked = Name(self._remapped(asked.repository), asked.tag, asked.digest)
        if not found.is_exact:
            return False
        return found.repository == asked.repository if asked.digest else found == asked

    def _remapped(self, repository: str) -> str:
        if repository == self.prefix or repository.startswith(self.prefix + "/"):
            return self.signed_prefix + repository[len(self.prefix) :]
        return repository


def read_identity(value: Any, *, where: str) -> Identity:
    """Parse a `signedIdentity`. Raises ValueError."""
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in _ALONE and kind not in _NEEDED:
        raise ValueError(f"{where} is not a known one")
    keys = _NEEDED.get(kind, ())
    if set(value) != {"type", *keys} or not all(isinstance(value[key], str) for key in keys):
        raise ValueError(f"{where} of the type {kind} must have the keys {', '.join(('type', *keys))}")
    match kind:
        case "exactReference":
            name = value["dockerReference"]
            if not parse_name(name).is_exact:
                raise ValueError(f"{where}: {name!r} has neither a tag nor a digest")
            return Identity(kind=kind, name=name)
        case "exactRepository":
            name = value["dockerRepository"]
            if parse_name(name).is_exact:
                raise ValueError(f"{where}: {name!r} must have neither a tag nor a digest")
            return Identity(kind=kind, name=name)
        case "remapIdentity":
            for key in keys:
                _check_prefix(value[key], where=f"{where}.{key}")
            return Identity(kind=kind, prefix=value["prefix"], signed_prefix=value["signedPrefix"])
    return Identity(kind=kind)


def parse_name(text: str) -> Name:
    """Parse a name and complete it: `busybox` is `docker.io/library/busybox`. Raises ValueError."""
    if "://" in text:
        raise ValueError(f"{text!r} is not an image's name")
    try:
        found = reference.parse("docker://" + text, folder="/")
    except UsageError as error:
        raise ValueError(error.message) from None
    plain, _, _ = text.partition("@")
    tag = found.tag if ":" in plain.rpartition("/")[2] else None
    return Name(f"{found.registry}/{found.repository}", tag, found.digest)


def _check_prefix(text: str, *, where: str) -> None:
    """Raise ValueError unless the text is a registry, namespace or repository in full, without a tag or
    digest."""
    name = parse_name(text if "/" in text else f"{text}/any")
    spelled = name.repository if "/" in text else name.repository.removesuffix("/any")
    if name.is_exact or spelled != text:
        raise ValueError(f"{where}: {text!r} is not a registry, namespace or repository in its full form")
