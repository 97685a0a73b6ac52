"""Parses the signature policy file of skopeo, Podman and Buildah, as strictly as they do.

Source: containers-policy.json(5),
https://github.com/containers/image/blob/main/docs/containers-policy.json.5.md
An unknown, repeated or malformed field makes the whole file an error: a typing mistake must not accept an
image.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from bareboat_base.errors import UsageError
from bareboat_base.files import ownership
from bareboat_base.files.untrusted import read_bytes, unreadable
from bareboat_base.printable import one_line
from bareboat_images.signatures import scopes
from bareboat_images.signatures.identity import Identity, read_identity

_LARGEST_POLICY = 1 << 20
_LARGEST_KEYS = 4 << 20
#: Fields of `sigstoreSigned` instead of, or in addition to, public keys. They are not supported.
_KEYLESS = (
    "fulcio", "pki", "rekorPublicKeyPath", "rekorPublicKeyPaths", "rekorPublicKeyData", "rekorPublicKeyDatas",
)  # fmt: skip


class AcceptAnything(Struct, frozen=True):
    """`insecureAcceptAnything`: no signature is required."""


class Reject(Struct, frozen=True):
    """`reject`: no image is accepted."""


class Keys(Struct, frozen=True, kw_only=True):
    """Public keys: in files, or as data."""

    paths: tuple[str, ...] = ()
    data: tuple[bytes, ...] = ()

    def read(self) -> list[tuple[str, bytes]]:
        """Each key file's name and content. Raises UsageError for an unreadable file, and one that others can
        change."""
        found = []
        for path in self.paths:
            otherwise = "or name a copy of your own in the policy"
            _refuse_if_others_can_change(path, f"the key file {path}", otherwise)
            try:
                found.append((path, read_bytes(os.path.realpath(path), limit=_LARGEST_KEYS)))
            except OSError as error:
                raise UsageError(
                    f"the signature policy names the key file {path}, which cannot be read",
                    context=str(error.strerror or error),
                    remedy="restore the file, or correct the policy",
                ) from None
        return found + [("keyData", data) for data in self.data]


class SignedBy(Struct, frozen=True, kw_only=True):
    """`signedBy`: a simple signature by one of these OpenPGP keys."""

    keys: Keys
    identity: Identity


class SigstoreSigned(Struct, frozen=True, kw_only=True):
    """`sigstoreSigned`: a cosign signature by one of these public keys. `keyless`: its fields for an
    authority or a transparency log, which are not supported."""

    keys: Keys
    identity: Identity
    keyless: tuple[str, ...] = ()


Requirement = AcceptAnything | Reject | SignedBy | SigstoreSigned


class Rules(Struct, frozen=True, kw_only=True):
    """The requirements for one image, all of which must be met, and their origin in the policy. `text`: the
    requirements as canonical JSON."""

    path: str
    scope: str
    requirements: tuple[Requirement, ...]
    text: str

    @property
    def needs_signatures(self) -> bool:
        return any(isinstance(each, SignedBy | SigstoreSigned) for each in self.requirements)


class Policy(Struct, frozen=True, kw_only=True):
    """The content of a policy file: the requirements for each transport and scope."""

    default: Rules
    transports: Mapping[str, Mapping[str, Rules]] = field(default_factory=dict)

    def rules(self, transport: str, wanted: Iterable[str]) -> Rules:
        """The rules of the first scope of `wanted` in the policy, or of the transport's default, or the
        general default."""
        here = self.transports.get(transport, {})
        return next((here[scope] for scope in (*wanted, "") if scope in here), self.default)


def load(path: str) -> Policy:
    """Read a policy file. Raises UsageError for an unreadable or invalid one."""
    try:
        data = read_bytes(os.path.realpath(path), limit=_LARGEST_POLICY)
    except OSError as error:
        fault = unreadable(path, error, key="policy")
        raise fault.but(message=f"the signature policy cannot be used: {fault.message}") from None
    otherwise = "or name a policy of your own: --policy FILE"
    _refuse_if_others_can_change(path, f"the signature policy {path}", otherwise)
    try:
        return _policy(path, strict_json(data))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"the signature policy {path} is not valid: {one_line(str(error))}",
            context="a policy with anything wrong in it accepts no image",
            remedy=f"correct {shlex.quote(str(path))}; man 5 containers-policy.json",
        ) from None


def _refuse_if_others_can_change(path: str, what: str, otherwise: str) -> None:
    if (doubt := ownership.doubt(path)) is not None:
        raise UsageError(
            f"{what} is not used: others can change it",
            context=str(doubt),
            remedy=f"{doubt.remedy}   # {otherwise}",
        )


def strict_json(data: bytes) -> Any:
    """Parse JSON without repeated keys and without NaN. Raises ValueError."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise ValueError(f"the key {name!r} occurs twice in one object")
            found[name] = value
        return found

    def refuse(text: str) -> None:
        raise ValueError(f"{text} is no JSON value")

    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=refuse)
    except UnicodeDecodeError:
        raise ValueError("it is not text in UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON, from line {error.lineno}, column {error.colno} on") from None
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def fields(value: Any, *, where: str, needed: Iterable[str], optional: Iterable[str] = ()) -> dict[str, Any]:
    """Check that an object has all `needed` keys, and no others except `optional` ones. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be an object")
    needed = tuple(needed)
    unknown = sorted(set(value) - {*needed, *optional})
    if unknown:
        raise ValueError(f"{where} has the unknown key {unknown[0]!r}")
    missing = [name for name in needed if name not in value]
    if missing:
        raise ValueError(f"{where} lacks {missing[0]!r}")
    return value


def _policy(path: str, value: Any) -> Policy:
    read = fields(value, where="the policy", needed=("default",), optional=("transports",))
    transports: dict[str, dict[str, Rules]] = {}
    named = read.get("transports", {})
    if not isinstance(named, dict):
        raise ValueError("transports must be an object")
    for transport, listed in named.items():
        if not isinstance(listed, dict):
            raise ValueError(f"transports.{transport} must be an object")
        for scope in listed:
            scopes.check(transport, scope)
        transports[transport] = {
            scope: _rules(path, each, f'{transport} "{scope}"') for scope, each in listed.items()
        }
    return Policy(default=_rules(path, read["default"], "default"), transports=transports)


def _rules(path: str, value: Any, scope: str) -> Rules:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{scope} must be a list of at least one requirement")
    return Rules(
        path=path,
        scope=scope,
        requirements=tuple(_requirement(each, f"{scope}[{n}]") for n, each in enumerate(value)),
        text=json.dumps(value, sort_keys=True),
    )


def _requirement(value: Any, where: str) -> Requirement:
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be an object")
    match value.get("type"):
        case "insecureAcceptAnything":
            fields(value, where=where, needed=("type",))
            return AcceptAnything()
        case "reject":
            fields(value, where=where, needed=("type",))
            return Reject()
        case "signedBy":
            one_of = ("keyPath", "keyPaths", "keyData")
            fields(value, where=where, needed=("type", "keyType"), optional=(*one_of, "signedIdentity"))
            if value["keyType"] != "GPGKeys":
                raise ValueError(f"{where}: the keyType {value['keyType']!r} is unknown; it must be GPGKeys")
            return SignedBy(keys=_keys(value, where, one_of), identity=_identity(value, where))
        case "sigstoreSigned":
            any_of = ("keyPath", "keyPaths", "keyData", "keyDatas")
            fields(value, where=where, needed=("type",), optional=(*any_of, *_KEYLESS, "signedIdentity"))
            keyless = tuple(name for name in _KEYLESS if name in value)
            authority = any(name in value for name in ("fulcio", "pki"))
            if authority and any(name in value for name in any_of):
                raise ValueError(f"{where} names both keys and an authority; it must name one of them")
            keys = Keys() if authority else _keys(value, where, any_of)
            return SigstoreSigned(keys=keys, identity=_identity(value, where), keyless=keyless)
        case None:
            raise ValueError(f"{where} lacks 'type'")
        case other:
            raise ValueError(f"{where} has the unknown type {other!r}")


def _identity(value: Mapping[str, Any], where: str) -> Identity:
    if "signedIdentity" not in value:
        return Identity()
    return read_identity(value["signedIdentity"], where=f"{where}.signedIdentity")


def _keys(value: Mapping[str, Any], where: str, one_of: tuple[str, ...]) -> Keys:
    given = [name for name in one_of if name in value]
    if len(given) != 1:
        raise ValueError(f"{where} must have exactly one of {', '.join(one_of)}")
    name = given[0]
    several = name.endswith("s")
    texts = value[name] if several else [value[name]]
    if not isinstance(texts, list) or not texts or not all(isinstance(each, str) and each for each in texts):
        raise ValueError(f"{where}.{name} must be {'a list of texts' if several else 'a text'}")
    if name.startswith("keyPath"):
        if relative := next((each for each in texts if not Path(each).is_absolute()), None):
            raise ValueError(f"{where}.{name}: {relative!r} is not an absolute path")
        return Keys(paths=tuple(texts))
    try:
        return Keys(data=tuple(base64.b64decode(each, validate=True) for each in texts))
    except ValueError:
        raise ValueError(f"{where}.{name} is not base64") from None
