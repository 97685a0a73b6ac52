"""Checks the signatures inside a SIF: their keys, and whether they match the file's content.

Source: the format as Apptainer writes it, https://github.com/apptainer/sif (pkg/integrity): a signature is a
clear-text OpenPGP message (or, for a PEM key, an envelope in JSON) with the SHA-256 of the header's fixed
part, and of each object and of its descriptor.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import struct
from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec import Struct

from bareboat_base import codec
from bareboat_base.errors import ImageError, UsageError
from bareboat_base.expressions import expression
from bareboat_base.files.untrusted import UntrustedFileError, read_bytes
from bareboat_base.printable import one_line
from bareboat_base.sif import DATA_SIGNATURE, DESCRIPTOR
from bareboat_images.formats.sif import read_table
from bareboat_images.model import Signer
from bareboat_images.signatures.openpgp import LARGEST_SIGNATURE, Keyring
from bareboat_images.sources.archive import open_regular

_INTEGRITY = struct.Struct("<iBIIqqqq")
_MOST_SIGNATURES = 32
_CHUNK = 1 << 20
_LARGEST_KEYRING = 64 << 20
_CLEAR = expression(
    rb"-----BEGIN PGP SIGNED MESSAGE-----\r?\n(?:[^\r\n]+\r?\n)*\r?\n(.*?)\r?\n"
    rb"(-----BEGIN PGP SIGNATURE-----.*)",
    re.DOTALL,
)
_WHERE_KEYS = (".apptainer/keys/pgp-public", ".singularity/keys/pgp-public", ".singularity/sypgp/pgp-public")


class _Object(msgspec.Struct, rename="camel"):
    relative_id: int
    descriptor_digest: str
    object_digest: str


class _Header(msgspec.Struct):
    digest: str


class _Claims(msgspec.Struct):
    """The content of one signature."""

    version: int
    header: _Header
    objects: list[_Object]


class _Envelope(msgspec.Struct, rename={"payload_type": "payloadType"}):
    payload_type: str
    payload: str


class _Part(Struct, frozen=True):
    """One object of the file, or a signature of objects."""

    kind: int
    number: int
    group: int
    link: int
    offset: int
    size: int
    integrity: Callable[[int], str]
    extra: bytes


class Look(Struct, frozen=True, kw_only=True):
    """The signers of a whole SIF. `confirm` raises ImageError if the file has changed since the check."""

    signers: tuple[Signer, ...]
    confirm: Callable[[], None]


def look(path: str, *, name: str) -> Look:
    """Check the signatures with this user's Apptainer keys.

    Raises ImageError when a signature is invalid or does not match the file's content.
    """
    read = _read(path, name)
    known: Keyring | None = None
    if read.signed:
        try:
            known = _known_keys()
        except UsageError:
            known = None  # no library, or no keys: the signatures are reported as unverified
    signers = []
    for text in read.signed:
        signer = _by(text, known, read, name=name)
        if signer is not None:
            signers.append(signer)
    return Look(signers=tuple(dict.fromkeys(signers)), confirm=read.confirm)


def signer(path: str, keys: Sequence[tuple[str, bytes]], *, name: str) -> Signer | None:
    """The key of these that signed the whole file; None without one. Raises ImageError, UsageError."""
    read = _read(path, name)
    ring = Keyring(keys)
    for text in read.signed:
        try:
            signed = ring.verify(text)
            if read.covers(_claims(signed.content)):
                key, called = signed.by[0]
                return Signer(kind="openpgp", key=key, name=called)
        except ValueError:
            continue
    return None


class _Sif(Struct, frozen=True, kw_only=True):
    name: str
    header: str
    parts: tuple[_Part, ...]
    digests: dict[int, str]
    signed: tuple[bytes, ...]
    confirm: Callable[[], None]

    def covers(self, claims: _Claims) -> bool:
        """Whether the claims cover every object of the file. Raises ValueError for a false claim."""
        if claims.header.digest != self.header:
            raise ValueError("the header is not the one that was signed")
        objects = [part for part in self.parts if part.kind != DATA_SIGNATURE]
        first = min((part.number for part in objects), default=1)
        by_number = {part.number: part for part in objects}
        covered = set()
        for each in claims.objects:
            number = first + each.relative_id
            part = by_number.get(number)
            if part is None:
                raise ValueError(f"object {number} was signed and is missing")
            if part.integrity(each.relative_id) != each.descriptor_digest:
                raise ValueError(f"the descriptor of object {number} is not the one that was signed")
            if self.digests[number] != each.object_digest:
                raise ValueError(f"object {number} is not what was signed")
            covered.add(number)
        return covered == set(by_number)


def _read(path: str, name: str) -> _Sif:
    with open_regular(path, name=name) as stream:
        descriptor = stream.fileno()
        header, table = read_table(descriptor, name=name)
        state = os.fstat(descriptor)
        parts = [part for part in map(_part, DESCRIPTOR.iter_unpack(table)) if part is not None]
        for part in parts:
            if part.offset < 0 or part.size < 0 or part.offset + part.size > state.st_size:
                raise ImageError(f"{name} is damaged: its part {part.number} lies outside the file")
        signatures = [part for part in parts if part.kind == DATA_SIGNATURE]
        if len(signatures) > _MOST_SIGNATURES or any(each.size > LARGEST_SIGNATURE for each in signatures):
            raise ImageError(f"{name} has signatures that no tool makes: too many, or too large")
        signed = tuple(os.pread(descriptor, part.size, part.offset) for part in signatures)
        # Verifying a signature requires reading the whole file again; without a signature it is not read.
        digests = {
            part.number: _digest(descriptor, part)
            for part in (parts if signatures else ())
            if part.kind != DATA_SIGNATURE
        }

    def confirm() -> None:
        now = os.stat(path)
        if any(getattr(now, each) != getattr(state, each) for each in _STATE):
            raise ImageError(f"{name} was changed while it was read", remedy="load it again")

    return _Sif(
        name=name,
        # The first line of the file, the magic, the version, and the file's own ID.
        header="sha256:" + hashlib.sha256(header[:45] + header[48:64]).hexdigest(),
        parts=tuple(parts),
        digests=digests,
        signed=signed,
        confirm=confirm,
    )


_STATE = ("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")


def _part(values: tuple[object, ...]) -> _Part | None:
    kind, used, number, group, link, offset, size, _, created, _, owner, of_group, called, extra = values
    if not used:
        return None

    def integrity(relative: int) -> str:
        if not 0 <= relative < 1 << 32:
            return ""
        fixed = _INTEGRITY.pack(kind, used, relative, link, size, created, owner, of_group)
        return "sha256:" + hashlib.sha256(fixed + called + extra).hexdigest()  # type: ignore[operator]

    return _Part(kind, number, group, link, offset, size, integrity, extra)  # type: ignore[arg-type]


def _digest(descriptor: int, part: _Part) -> str:
    digest = hashlib.sha256()
    at, end = part.offset, part.offset + part.size
    while at < end:
        data = os.pread(descriptor, min(_CHUNK, end - at), at)
        if not data:
            break
        digest.update(data)
        at += len(data)
    return "sha256:" + digest.hexdigest()


def _by(text: bytes, known: Keyring | None, read: _Sif, *, name: str) -> Signer | None:
    """The signer of a signature, verified if the key is known; None if it does not cover the whole file."""
    try:
        claims, fingerprint = _claimed(text)
        covers = read.covers(claims)
    except ValueError as error:
        raise _refused(name, str(error)) from None
    found = Signer(kind="openpgp" if fingerprint else "pem", key=fingerprint, verified=False)
    if fingerprint and known is not None and known.has(fingerprint):
        try:
            signed = known.verify(text)
            covers = read.covers(_claims(signed.content))
        except ValueError as error:
            raise _refused(name, str(error)) from None
        key, called = signed.by[0]
        found = Signer(kind="openpgp", key=key, name=called)
    return found if covers else None


def _claimed(text: bytes) -> tuple[_Claims, str]:
    """The content of a signature, not verified, and its fingerprint; "" for a PEM key."""
    if text.lstrip().startswith(b"{"):
        try:
            envelope = codec.decode(text, _Envelope)
            return _claims(base64.b64decode(envelope.payload, validate=True)), ""
        except (msgspec.DecodeError, ValueError) as error:
            raise ValueError(f"its envelope cannot be read: {error}") from None
    clear = _CLEAR.match(text)
    if clear is None:
        raise ValueError("it is no signed message")
    return _claims(clear[1]), _issuer(clear[2])


def _issuer(armored: bytes) -> str:
    """The fingerprint, or key ID, in an OpenPGP signature."""
    try:
        from pysequoia import Sig
    except ImportError:
        return "not read: pip install 'bareboat[signatures]'"
    try:
        found = Sig.from_bytes(armored)
        named = (
            getattr(found, "issuer_fingerprint", None) or found.issuer_key_id
        )  # older versions lack issuer_fingerprint
        return str(named or "unknown").upper()
    except Exception as error:  # the library raises its own and RuntimeError
        raise ValueError(f"its signature cannot be read: {one_line(str(error))}") from None


def _claims(data: bytes) -> _Claims:
    try:
        read = codec.decode(data, _Claims)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"what it signs cannot be read: {error}") from None
    if read.version != 1:
        raise ValueError(f"it is of version {read.version}, which is not supported")
    return read


def _refused(name: str, why: str) -> ImageError:
    return ImageError(
        f"a signature of {name} does not match: {one_line(why)}",
        context="the file was changed after it was signed, or the signature was",
        remedy=f"get the file again; apptainer verify {name.partition(':')[2]} shows more",
    )


def _known_keys() -> Keyring:
    return Keyring(list(_key_files()))


def _key_files() -> Iterable[tuple[str, bytes]]:
    own = [
        os.path.join(os.environ[name], "pgp-public")
        for name in ("APPTAINER_KEYSDIR", "SINGULARITY_KEYSDIR")
        if os.environ.get(name)
    ]
    home = os.environ.get("HOME", "/")
    for path in (*own, *(os.path.join(home, each) for each in _WHERE_KEYS)):
        try:
            data = read_bytes(os.path.realpath(path), limit=_LARGEST_KEYRING)
        except (OSError, UntrustedFileError):
            continue
        if data:
            yield path, data
