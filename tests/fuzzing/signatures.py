"""Readers of signatures, of the keys that made them, and of the policy that requires them."""

import functools
from pathlib import Path

import signing

from bareboat_base.errors import BareboatError
from bareboat_images.oci.reference import parse
from bareboat_images.signatures import lookaside, policy, scopes
from bareboat_images.signatures.identity import Identity, Name
from bareboat_images.signatures.openpgp import Keyring
from bareboat_images.signatures.payload import COSIGN, SIMPLE_SIGNING, read_payload
from bareboat_images.signatures.sigstore import PublicKeys
from fuzzing import CORPUS, Finding, Reader

_NAME = "quay.io/a/b:1"
_DIGEST = "sha256:" + "a" * 64


def read_policy(data: bytes, scratch: Path) -> None:
    """A policy file, and what it requires of some images. Keys are read from data alone: a policy is
    the user's or the administrator's, and may name any file."""
    path = scratch / "policy.json"
    path.write_bytes(data)
    found = policy.load(str(path))
    for name in (_NAME, f"quay.io/a/b@{_DIGEST}", "localhost:5000/x", "oci:folder", "sif:image.sif"):
        transport, wanted = scopes.of(parse(name, folder="/"))
        for each in found.rules(transport, wanted).requirements:
            if isinstance(each, policy.SignedBy | policy.SigstoreSigned):
                each.identity.matches(Name("quay.io/a/b", "1"), _NAME)
                each.identity.matches(None, _NAME)
                for read in (Keyring, PublicKeys):
                    _refusable(read, policy.Keys(data=each.keys.data).read())


def read_signature(data: bytes, scratch: Path) -> None:
    """One of several documents; its first line says which."""
    kind, _, content = data.partition(b"\n")
    match kind:
        case b"claim":
            for signed in (COSIGN, SIMPLE_SIGNING):
                _claim(content, signed)
        case b"keys":
            _refusable(PublicKeys, [("keys", content)])
        case b"ring":
            _refusable(Keyring, [("ring", content)])
        case b"message":
            _message(content)
        case b"cosign":
            length = content[0] if content else 0
            _cosign(content[1 : 1 + length], content[1 + length :])
        case b"places":
            folder = scratch / ".config/containers/registries.d"
            folder.mkdir(parents=True)
            (folder / "one.yaml").write_bytes(content)
            lookaside.place(parse(_NAME, folder="/"), {"HOME": str(scratch)})


def _refusable(read: object, files: list[tuple[str, bytes]]) -> None:
    try:
        read(files)  # type: ignore[operator]
    except BareboatError:
        return


def _claim(data: bytes, kind: str) -> None:
    try:
        found = read_payload(data, kind=kind)
    except ValueError:
        return
    Identity().matches(Name("quay.io/a/b", "1"), found.name)


def _message(data: bytes) -> None:
    try:
        signed = Keyring([("ring", _seed("ring"))]).verify(data)
    except ValueError:
        return
    if signed.content != _simple():
        raise Finding(f"a signature holds for what nobody has signed: {signed.content[:200]!r}")


def _cosign(signature: bytes, payload: bytes) -> None:
    if PublicKeys([("keys", _seed("keys"))]).signer(payload, signature) and payload != _payload():
        raise Finding(f"a signature holds for what nobody has signed: {payload[:200]!r}")


@functools.cache
def _seed(name: str) -> bytes:
    return (CORPUS / "signatures" / name).read_bytes().partition(b"\n")[2]


def _payload() -> bytes:
    return signing.cosign_payload(_DIGEST, _NAME)


def _simple() -> bytes:
    return signing.cosign_payload(_DIGEST, _NAME, SIMPLE_SIGNING)


READERS = (
    Reader(
        name="policies",
        read=read_policy,
        words=(
            b'"signedBy"',
            b'"keyData"',
            b'"keyDatas"',
            b'"signedIdentity"',
            b'"remapIdentity"',
            b"docker.io/",
        ),
    ),
    Reader(
        name="signatures",
        read=read_signature,
        words=(
            b"claim\n",
            b"keys\n",
            b"ring\n",
            b"message\n",
            b"cosign\n",
            b"places\n",
            b"-----BEGIN PGP",
            b"!!",
        ),
    ),
)
