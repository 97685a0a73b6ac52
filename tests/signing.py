"""Signatures for tests: of real tools, and by hand in the same form, so that they can be made wrong."""

import base64
import json
import os
import subprocess
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from registries import MANIFEST, sha256
from tools import tool

from bareboat_images.registry.pusher import Pusher

PrivateKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey


def public_pem(key: PrivateKey, path: Path) -> Path:
    path.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return path


def sign(key: PrivateKey, data: bytes) -> bytes:
    match key:
        case ec.EllipticCurvePrivateKey():
            return key.sign(data, ec.ECDSA(SHA256()))
        case ed25519.Ed25519PrivateKey():
            return key.sign(data)
        case _:
            return key.sign(data, padding.PKCS1v15(), SHA256())


def cosign_payload(digest: str, name: str, kind: str = "cosign container image signature") -> bytes:
    """What cosign signs."""
    return json.dumps(
        {
            "critical": {
                "identity": {"docker-reference": name},
                "image": {"docker-manifest-digest": digest},
                "type": kind,
            },
            "optional": None,
        }
    ).encode()


def attach(
    pusher: Pusher,
    digest: str,
    *signatures: tuple[bytes, bytes],
    media_type: str = "application/vnd.dev.cosign.simplesigning.v1+json",
) -> None:
    """Put (payload, signature) pairs beside the image of this digest, as cosign does."""
    config = b"{}"
    layers = []
    for payload, signature in signatures:
        pusher.upload(sha256(payload), len(payload), [payload])
        written = base64.b64encode(signature).decode()
        layers.append(
            {
                "mediaType": media_type,
                "digest": sha256(payload),
                "size": len(payload),
                "annotations": {"dev.cosignproject.cosign/signature": written},
            }
        )
    pusher.upload(sha256(config), len(config), [config])
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": sha256(config),
            "size": len(config),
        },
        "layers": layers,
    }
    pusher.put_manifest(digest.replace(":", "-") + ".sig", json.dumps(manifest).encode(), MANIFEST)


class Gpg:
    """GnuPG with a keyring of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        self.environment = {**os.environ, "GNUPGHOME": str(folder)}

    def run(self, *arguments: str, data: bytes = b"") -> bytes:
        argv = [tool("gpg"), "--batch", "--pinentry-mode", "loopback", "--passphrase", "", *arguments]
        done = subprocess.run(argv, input=data, capture_output=True, env=self.environment, check=True)
        return done.stdout

    def make_key(self, name: str, *, expires: str = "never", kind: str = "ed25519") -> str:
        """A key without a passphrase; its fingerprint."""
        self.run("--quick-generate-key", f"{name} <{name.lower()}@example.org>", kind, "sign", expires)
        listed = self.run("--list-keys", "--with-colons", f"{name.lower()}@example.org").decode()
        return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))

    def export(self, key: str, path: Path, *, armor: bool = False) -> Path:
        path.write_bytes(self.run(*(["--armor"] if armor else []), "--export", key))
        return path

    def end(self) -> None:
        """Stop the agent that gpg started."""
        subprocess.run(["gpgconf", "--kill", "all"], env=self.environment, check=False, capture_output=True)
