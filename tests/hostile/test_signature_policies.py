"""The signature policy against skopeo's own reading of it: real registry, real keys, the same verdict.

skopeo decides by the library that Podman and Buildah use, too.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("cryptography", reason="pip install 'bareboat[signatures]'")
pytest.importorskip("pysequoia", reason="pip install 'bareboat[signatures]'")

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from images import Packed, pack, tar, upload
from registries import RealRegistry, real_registry
from signing import Gpg, attach, cosign_payload, public_pem, sign
from tools import tool

from bareboat.cli.main import main
from bareboat.session.images import check_reference
from bareboat_base.errors import ImageError, UsageError
from bareboat_images.oci import reference
from bareboat_images.registry.access import Access
from bareboat_images.registry.options import Options
from bareboat_images.registry.pusher import open_pusher
from bareboat_images.signatures.check import check, holds
from bareboat_images.store import Store
from bareboat_images.tar.limits import Limits
from bareboat_images.transfer.options import PullOptions
from bareboat_images.transfer.pull import obtain

pytestmark = pytest.mark.one_in(12)


@dataclass(slots=True, kw_only=True)
class Lab:
    """A registry with images, signed in every way, and the keys."""

    folder: Path
    registry: RealRegistry
    digests: dict[str, str]

    def keys(self, name: str) -> str:
        return str(self.folder / name)

    def skopeo(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [tool("skopeo"), "--registries.d", str(self.folder / "registries.d"), *arguments]
        environment = {**os.environ, "GNUPGHOME": str(self.folder / "gnupg"), "HOME": str(self.folder)}
        return subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)


def _image(number: int) -> Packed:
    return pack(tar({"etc": None, "etc/number": str(number).encode()}))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("signed")
    gpg = Gpg(folder / "gnupg")
    with real_registry(folder / "registry") as registry:
        lab = Lab(folder=folder, registry=registry, digests={})
        (folder / "registries.d").mkdir()
        (folder / "registries.d/all.yaml").write_text(
            f"default-docker:\n  lookaside: file://{folder}/lookaside\n  use-sigstore-attachments: true\n"
        )
        (folder / ".config/containers").mkdir(parents=True)
        (folder / ".config/containers/registries.d").symlink_to(folder / "registries.d")
        (folder / "accept.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        _sign_all(lab, gpg)
        yield lab
    gpg.end()


def _sign_all(lab: Lab, gpg: Gpg) -> None:
    folder = lab.folder
    alice, mallory, late = gpg.make_key("Alice"), gpg.make_key("Mallory"), gpg.make_key("Late")
    gpg.export(alice, folder / "alice.gpg")
    gpg.export(alice, folder / "alice.asc", armor=True)
    gpg.export(mallory, folder / "mallory.gpg")
    both = (folder / "alice.gpg").read_bytes() + (folder / "mallory.gpg").read_bytes()
    (folder / "both.gpg").write_bytes(both)
    p256 = ec.generate_private_key(ec.SECP256R1())
    keys = {
        "p256": p256,
        "p384": ec.generate_private_key(ec.SECP384R1()),
        "ed25519": ed25519.Ed25519PrivateKey.generate(),
        "rsa": rsa.generate_private_key(65537, 3072),
        "other": ec.generate_private_key(ec.SECP256R1()),
    }
    for name, key in keys.items():
        public_pem(key, folder / f"{name}.pub")
    options = Options(environment={}, plain_http=True)

    def make(name: str, image: Packed) -> str:
        upload(lab.registry, image, f"team/{name}:v1")
        lab.digests[name] = image.digest
        return f"{lab.registry.address}/team/{name}"

    def beside(name: str, *pairs: tuple[bytes, bytes], **more: str) -> None:
        with open_pusher(lab.registry.address, f"team/{name}", options=options) as pusher:
            attach(pusher, lab.digests[name], *pairs, **more)

    make("unsigned", _image(0))
    for number, key in enumerate(("p256", "p384", "ed25519", "rsa", "other"), 1):
        image = _image(number)
        payload = cosign_payload(image.digest, make(key, image) + ":v1")
        beside(key, (payload, sign(keys[key], payload)))
    image = _image(10)
    payload = cosign_payload(image.digest, make("bare", image))
    beside("bare", (payload, sign(p256, payload)))
    # Each of these is signed by the right key, and is still not a signature of this image under this name.
    wrong: dict[str, Callable[[Packed, str], bytes]] = {
        "digest": lambda _image, name: cosign_payload(lab.digests["unsigned"], f"{name}:v1"),
        "name": lambda image, _name: cosign_payload(image.digest, "docker.io/library/debian:12"),
        "tag": lambda image, name: cosign_payload(image.digest, f"{name}:v2"),
        "type": lambda image, name: cosign_payload(image.digest, f"{name}:v1", "atomic container signature"),
        "json": lambda _image, _name: b"{",
        "more": lambda image, name: cosign_payload(image.digest, f"{name}:v1")[:-1] + b', "more": 1}',
        "twice": lambda image, name: cosign_payload(image.digest, f"{name}:v1")[:-1] + b', "optional": 1}',
        "empty": lambda image, _name: cosign_payload(image.digest, ""),
        "control": lambda image, name: cosign_payload(image.digest, f"{name}:\x1b[31mv1"),
    }
    for number, (kind, payload_of) in enumerate(wrong.items(), 20):
        image = _image(number)
        payload = payload_of(image, make(f"wrong-{kind}", image))
        beside(f"wrong-{kind}", (payload, sign(p256, payload)))
    image = _image(40)
    payload = cosign_payload(image.digest, make("changed", image) + ":v1")
    beside("changed", (payload + b" ", sign(p256, payload)))
    image = _image(41)
    payload = cosign_payload(image.digest, make("second", image) + ":v1")
    beside("second", (payload, b"nothing"), (payload + b"\n", sign(p256, payload + b"\n")))
    image = _image(42)
    payload = cosign_payload(image.digest, make("media-type", image) + ":v1")
    beside("media-type", (payload, sign(p256, payload)), media_type="application/octet-stream")
    for number, (name, key) in enumerate(
        {"gpg": alice, "gpg-mallory": mallory, "gpg-late": late}.items(), 50
    ):
        target = make(name, _image(number))
        done = lab.skopeo(
            "--policy", lab.keys("accept.json"), "copy", "--src-tls-verify=false", "--dest-tls-verify=false",
            "--sign-by", key, f"docker://{target}:v1", f"docker://{target}:v1",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    # A signature of another image, put beside this one: a registry or a lookaside can do that.
    stolen = make("gpg-stolen", _image(60))
    lookaside = folder / "lookaside/team"
    of = lab.digests["gpg"].replace(":", "=")
    to = lookaside / f"gpg-stolen@{lab.digests['gpg-stolen'].replace(':', '=')}"
    to.mkdir()
    signature = (lookaside / f"gpg@{of}/signature-1").read_bytes()
    (to / "signature-1").write_bytes(signature)
    for number, (name, data) in enumerate(_damaged(signature).items(), 61):
        make(name, _image(number))
        to = lookaside / f"{name}@{lab.digests[name].replace(':', '=')}"
        to.mkdir()
        (to / "signature-1").write_bytes(data)
    assert stolen
    wrong["type"] = lambda image, name: cosign_payload(image.digest, f"{name}:v1")
    for number, (name, payload_of) in enumerate({**wrong, "nothing": _simple, "bare": _bare}.items(), 80):
        image = _image(number)
        target = make(f"gpg-{name}", image)
        data = payload_of(image, target)
        if name not in ("type", "json", "nothing"):
            data = data.replace(b"cosign container image", b"atomic container").replace(b"null", b"{}")
        for compression in ("none",) if name != "nothing" else ("none", "zip", "zlib", "bzip2"):
            called = f"gpg-{name}" if compression == "none" else f"gpg-{compression}"
            if compression != "none":
                image = _image(number + len(compression) * 10)
                data = payload_of(image, make(called, image))
            to = lookaside / f"{called}@{image.digest.replace(':', '=')}"
            to.mkdir(exist_ok=True)
            signed = gpg.run("--local-user", alice, "--compress-algo", compression, "--sign", data=data)
            (to / "signature-1").write_bytes(signed)


def _simple(image: Packed, name: str) -> bytes:
    return cosign_payload(image.digest, f"{name}:v1", "atomic container signature").replace(b"null", b"{}")


def _bare(image: Packed, name: str) -> bytes:
    return cosign_payload(image.digest, name, "atomic container signature")


def _damaged(signature: bytes) -> dict[str, bytes]:
    return {
        "gpg-cut": signature[: len(signature) // 2],
        "gpg-flipped": signature[:40] + bytes([signature[40] ^ 1]) + signature[41:],
        "gpg-empty": b"",
        "gpg-text": b'{"critical": {}}',
        "gpg-zeros": bytes(5000),
    }


_COSIGNED = (
    "unsigned", "p256", "p384", "ed25519", "rsa", "other", "bare", "changed", "second", "media-type",
    "wrong-digest", "wrong-name", "wrong-tag", "wrong-type", "wrong-json", "wrong-more", "wrong-twice",
    "wrong-empty", "wrong-control", "gpg",
)  # fmt: skip
_SIGNED = (
    "unsigned", "p256", "gpg", "gpg-mallory", "gpg-late", "gpg-stolen", "gpg-cut", "gpg-flipped", "gpg-empty",
    "gpg-text", "gpg-zeros", "gpg-digest", "gpg-name", "gpg-tag", "gpg-type", "gpg-json", "gpg-more",
    "gpg-twice", "gpg-control", "gpg-nothing", "gpg-bare", "gpg-zip", "gpg-zlib", "gpg-bzip2",
)  # fmt: skip
_ACCEPT = [{"type": "insecureAcceptAnything"}]
_REJECT = [{"type": "reject"}]


def _sigstore(key: str = "p256.pub", **more: object) -> dict[str, object]:
    return {"type": "sigstoreSigned", "keyPath": key, **more}


def _gpg(key: str = "alice.gpg", **more: object) -> dict[str, object]:
    return {"type": "signedBy", "keyType": "GPGKeys", "keyPath": key, **more}


def _only(*requirements: object) -> dict[str, object]:
    return {"default": list(requirements)}


#: HOST stands for the registry, NAME for the image's repository, KEYS for the folder of keys.
_POLICIES: dict[str, dict[str, object]] = {
    "accept": _only(*_ACCEPT),
    "reject": _only(*_REJECT),
    "both": _only(*_ACCEPT, *_REJECT),
    "gpg": _only(_gpg()),
    "gpg mallory": _only(_gpg("mallory.gpg")),
    "gpg ring of two": _only(_gpg("both.gpg")),
    "gpg armored": _only(_gpg("alice.asc")),
    "gpg two files": _only(
        {"type": "signedBy", "keyType": "GPGKeys", "keyPaths": ["mallory.gpg", "alice.gpg"]}
    ),
    "gpg twice": _only(_gpg(), _gpg("mallory.gpg")),
    "gpg rejected": _only(_gpg(), *_REJECT),
    "gpg accepted": _only(*_ACCEPT, _gpg()),
    "gpg exact": _only(_gpg(signedIdentity={"type": "matchExact"})),
    "gpg digest or exact": _only(_gpg(signedIdentity={"type": "matchRepoDigestOrExact"})),
    "gpg repository": _only(_gpg(signedIdentity={"type": "matchRepository"})),
    "gpg reference": _only(
        _gpg(signedIdentity={"type": "exactReference", "dockerReference": "HOST/team/gpg-tag:v2"})
    ),
    "gpg debian": _only(_gpg(signedIdentity={"type": "exactRepository", "dockerRepository": "debian"})),
    "gpg debian spelled": _only(
        _gpg(signedIdentity={"type": "exactRepository", "dockerRepository": "docker.io/library/debian"})
    ),
    "gpg remapped": _only(
        _gpg(signedIdentity={"type": "remapIdentity", "prefix": "HOST/team", "signedPrefix": "HOST/team"})
    ),
    "gpg remapped away": _only(
        _gpg(signedIdentity={"type": "remapIdentity", "prefix": "HOST/team", "signedPrefix": "example.org/x"})
    ),
    "gpg remapped host": _only(
        _gpg(signedIdentity={"type": "remapIdentity", "prefix": "127.0.0.1", "signedPrefix": "example.org"})
    ),
    "gpg remapped debian": _only(
        _gpg(
            signedIdentity={
                "type": "remapIdentity",
                "prefix": "HOST/team/gpg-name",
                "signedPrefix": "docker.io/library/debian",
            }
        )
    ),
    "gpg of gpg": _only(
        _gpg(signedIdentity={"type": "exactReference", "dockerReference": "HOST/team/gpg:v1"})
    ),
    "transport": {"default": _REJECT, "transports": {"docker": {"": _ACCEPT}}},
    "other transport": {"default": _REJECT, "transports": {"oci": {"": _ACCEPT}}},
    "host": {"default": _REJECT, "transports": {"docker": {"HOST": _ACCEPT}}},
    "host without port": {"default": _REJECT, "transports": {"docker": {"127.0.0.1": _ACCEPT}}},
    "wildcard": {"default": _REJECT, "transports": {"docker": {"*.0.0.1": _ACCEPT}}},
    "wide wildcard": {"default": _REJECT, "transports": {"docker": {"*.1": _ACCEPT}}},
    "own wildcard": {"default": _REJECT, "transports": {"docker": {"*.127.0.0.1": _ACCEPT}}},
    "namespace": {"default": _REJECT, "transports": {"docker": {"HOST/team": _ACCEPT}}},
    "part of a namespace": {"default": _REJECT, "transports": {"docker": {"HOST/te": _ACCEPT}}},
    "repository": {"default": _ACCEPT, "transports": {"docker": {"NAME": [_gpg()]}}},
    "tag": {"default": _REJECT, "transports": {"docker": {"NAME:v1": _ACCEPT, "NAME": _REJECT}}},
    "other tag": {"default": _REJECT, "transports": {"docker": {"NAME:v2": _ACCEPT}}},
    "digest": {"default": _REJECT, "transports": {"docker": {"NAME@DIGEST": _ACCEPT}}},
    "nearest": {
        "default": _ACCEPT,
        "transports": {"docker": {"HOST": _REJECT, "HOST/team": _ACCEPT, "*.1": _REJECT, "": _REJECT}},
    },
}


_NEVER = {
    "reject", "both", "gpg twice", "gpg rejected", "gpg remapped away", "other transport",
    "host without port", "own wildcard", "part of a namespace", "other tag",
}  # fmt: skip
_NOT_BY = {"digest": {"gpg exact", "tag"}, "tag": {"digest"}}


def _write(lab: Lab, name: str, policy: object, path: Path) -> Path:
    text = json.dumps(policy).replace("NAME", f"{lab.registry.address}/team/{name}")
    text = text.replace("HOST", lab.registry.address).replace("DIGEST", lab.digests.get(name, "sha256:"))
    for key in ("alice.gpg", "alice.asc", "mallory.gpg", "both.gpg"):
        text = text.replace(f'"{key}"', json.dumps(lab.keys(key)))
    for key in ("p256", "p384", "ed25519", "rsa", "other"):
        text = text.replace(f'"{key}.pub"', json.dumps(lab.keys(f"{key}.pub")))
    path.write_text(text)
    return path


def _ours(lab: Lab, name: str, suffix: str, policy: Path) -> str | None:
    """Why we refuse; None when we accept."""
    found = reference.parse(f"{lab.registry.address}/team/{name}{suffix}", folder="/")
    access = Access(plain_http=frozenset({lab.registry.address}), policy=str(policy))
    try:
        check(found, (lab.digests[name],), access)
    except (ImageError, UsageError) as error:
        return f"{error.message}: {error.context}"
    return None


@pytest.mark.parametrize("by", ["tag", "digest"])
@pytest.mark.parametrize("policy", _POLICIES)
def test_verdicts_are_those_of_skopeo(
    lab: Lab, policy: str, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(lab.folder))
    names = _SIGNED if "gpg" in policy else ("unsigned", "gpg")
    different, accepted = [], 0
    for name in names:
        path = _write(lab, name, _POLICIES[policy], tmp_path / "policy.json")
        suffix = ":v1" if by == "tag" else f"@{lab.digests[name]}"
        done = lab.skopeo(
            "--policy", str(path), "copy", "--src-tls-verify=false", "--remove-signatures",
            f"docker://{lab.registry.address}/team/{name}{suffix}", f"dir:{tmp_path / 'copied'}",
        )  # fmt: skip
        accepted += done.returncode == 0
        ours = _ours(lab, name, suffix, path)
        if (ours is None) != (done.returncode == 0):
            different.append(f"{name}: ours {ours or 'accepts'}; skopeo {done.stderr or 'accepts'}")
    assert not different, "\n".join(different)
    # Where everything is refused, nothing is compared.
    assert accepted or policy in _NEVER or policy in _NOT_BY[by]


#: Debian's skopeo refuses every sigstore signature ("Debian-local change"), so what it would accept stands
#: here, by containers-policy.json(5): policy -> the images that are accepted by their tag, and by digest.
_SIGSTORE: dict[str, tuple[dict[str, object], set[str], set[str]]] = {
    "plain": (_sigstore(), {"p256", "second"}, {"p256", "second", "wrong-tag"}),
    "other key": (_sigstore("other.pub"), {"other"}, {"other"}),
    "p384": (_sigstore("p384.pub"), {"p384"}, {"p384"}),
    "ed25519": (_sigstore("ed25519.pub"), {"ed25519"}, {"ed25519"}),
    "rsa": (_sigstore("rsa.pub"), {"rsa"}, {"rsa"}),
    "exact": (_sigstore(signedIdentity={"type": "matchExact"}), {"p256", "second"}, set()),
    "repository": (
        _sigstore(signedIdentity={"type": "matchRepository"}),
        {"p256", "second", "bare", "wrong-tag"},
        {"p256", "second", "bare", "wrong-tag"},
    ),
    "reference": (
        _sigstore(signedIdentity={"type": "exactReference", "dockerReference": "HOST/team/wrong-tag:v2"}),
        {"wrong-tag"},
        {"wrong-tag"},
    ),
    "debian": (
        _sigstore(signedIdentity={"type": "exactRepository", "dockerRepository": "debian"}),
        {"wrong-name"},
        {"wrong-name"},
    ),
    "remapped": (
        _sigstore(
            signedIdentity={"type": "remapIdentity", "prefix": "HOST/team", "signedPrefix": "HOST/team"}
        ),
        {"p256", "second"},
        {"p256", "second", "wrong-tag"},
    ),
    "remapped away": (
        _sigstore(
            signedIdentity={"type": "remapIdentity", "prefix": "HOST/team", "signedPrefix": "example.org/x"}
        ),
        set(),
        set(),
    ),
    "several keys": (
        {"type": "sigstoreSigned", "keyPaths": ["p256.pub", "rsa.pub"]},
        {"p256", "second", "rsa"},
        {"p256", "second", "rsa", "wrong-tag"},
    ),
}


@pytest.mark.parametrize("name", _COSIGNED)
@pytest.mark.parametrize("policy", _SIGSTORE)
def test_cosign_signatures(
    lab: Lab, policy: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(lab.folder))
    requirement, by_tag, by_digest = _SIGSTORE[policy]
    path = _write(lab, name, _only(requirement), tmp_path / "policy.json")
    for suffix, accepted in ((":v1", by_tag), (f"@{lab.digests[name]}", by_digest)):
        why = _ours(lab, name, suffix, path)
        assert (why is None) == (name in accepted), why
        assert why is None or "\x1b" not in why


def test_all_requirements_must_hold(lab: Lab, tmp_path: Path) -> None:
    path = _write(lab, "p256", _only(_sigstore(), _sigstore("other.pub")), tmp_path / "policy.json")
    assert "no cosign signature meets" in (_ours(lab, "p256", ":v1", path) or "")
    path = _write(lab, "p256", _only(_sigstore(), *_ACCEPT), tmp_path / "policy.json")
    assert _ours(lab, "p256", ":v1", path) is None


_KEYLESS: dict[str, dict[str, object]] = {
    "fulcio": {
        "fulcio": {"caPath": "/ca.pem", "oidcIssuer": "https://x", "subjectEmail": "a@b"},
        "rekorPublicKeyPath": "/rekor.pub",
    },
    "pki": {"pki": {"caRootsPath": "/ca.pem"}},
    "rekor": {"keyPath": "p256.pub", "rekorPublicKeyPath": "/rekor.pub"},
    "rekor keys": {"keyPath": "p256.pub", "rekorPublicKeyDatas": ["AAAA"]},
}


@pytest.mark.parametrize("kind", _KEYLESS)
def test_what_cannot_be_checked_is_never_accepted(lab: Lab, kind: str, tmp_path: Path) -> None:
    path = _write(lab, "p256", _only({"type": "sigstoreSigned", **_KEYLESS[kind]}), tmp_path / "policy.json")
    assert "not supported" in (_ours(lab, "p256", ":v1", path) or "")


@pytest.mark.parametrize("library", ["cryptography", "pysequoia"])
def test_a_missing_library_is_no_acceptance(
    lab: Lab, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(lab.folder))
    for name in [each for each in sys.modules if each.partition(".")[0] == library]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, library, None)
    name, requirement = ("p256", _sigstore()) if library == "cryptography" else ("gpg", _gpg())
    path = _write(lab, name, _only(requirement), tmp_path / "policy.json")
    assert library in (_ours(lab, name, ":v1", path) or "")


@pytest.mark.parametrize("keys", ["missing", "garbage", "folder", "fifo", "empty"])
@pytest.mark.parametrize("kind", ["signedBy", "sigstoreSigned"])
def test_keys_that_cannot_be_used(lab: Lab, kind: str, keys: str, tmp_path: Path) -> None:
    path = tmp_path / "key"
    match keys:
        case "garbage":
            path.write_bytes(b"\x99\x01" + bytes(200))
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "empty":
            path.touch()
    requirement = {"type": kind, "keyPath": str(path)}
    if kind == "signedBy":
        requirement["keyType"] = "GPGKeys"
    policy = _write(lab, "gpg", _only(requirement), tmp_path / "policy.json")
    assert "key" in (_ours(lab, "gpg", ":v1", policy) or "")


# -- what becomes visible -----------------------------------------------------------------------------------


def _pull(lab: Lab, store: Store, name: str, policy: Path) -> None:
    found = reference.parse(f"{lab.registry.address}/team/{name}:v1", folder="/")
    access = Access(plain_http=frozenset({lab.registry.address}), policy=str(policy))
    obtain(found, store, PullOptions(access=access, machine="x86_64", limits=Limits()))


def test_a_refused_image_leaves_nothing(lab: Lab, store: Store, tmp_path: Path) -> None:
    policy = _write(lab, "unsigned", _only(_sigstore()), tmp_path / "policy.json")
    with pytest.raises(ImageError, match="is refused"):
        _pull(lab, store, "unsigned", policy)
    assert not store.images()
    assert not store.pins()
    assert not list((store.root / "layers").rglob("tree"))


def test_the_verdict_is_kept_and_holds_for_its_rules_alone(lab: Lab, store: Store, tmp_path: Path) -> None:
    policy = _write(lab, "p256", _only(_sigstore()), tmp_path / "policy.json")
    _pull(lab, store, "p256", policy)
    (pin,) = store.pins()
    assert pin.trust is not None
    assert pin.trust.state == "signed"
    assert pin.trust.signers[0].key.startswith("sha256:")
    found = reference.parse(pin.reference, folder="/")
    access = Access(plain_http=frozenset({lab.registry.address}), policy=str(policy))
    assert holds(found, pin, access)
    assert not holds(found, msgspec.structs.replace(pin, trust=None), access)
    _write(lab, "p256", _only(_sigstore("other.pub")), policy)
    assert not holds(found, pin, access)
    _write(lab, "p256", _only(*_REJECT), policy)
    assert not holds(found, pin, access)
    _write(lab, "p256", _only(*_ACCEPT), policy)
    assert holds(found, pin, access)


def test_an_image_of_the_store_is_judged_again_by_another_policy(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accept = _write(lab, "p256", _only(*_ACCEPT), tmp_path / "accept.json")
    strict = _write(lab, "unsigned", _only(_sigstore()), tmp_path / "strict.json")
    name = f"{lab.registry.address}/team/unsigned:v1"
    reach = ["--plain-http", "--store", str(tmp_path / "store")]
    assert main(["image", "pull", name, "--policy", str(accept), *reach]) == 0
    assert main(["image", "pull", name, "--policy", str(strict), *reach]) == 6
    store = ["--store", str(tmp_path / "store")]
    assert main(["plan", "--image", name, "--policy", str(strict), *store, "--", "true"]) == 6
    assert "the policy rejects it" in capsys.readouterr().err


def test_a_verdict_belongs_to_the_reference_and_not_to_the_image(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One image under two names, of which only one is signed: neither shows the other's verdict."""
    policy = _write(lab, "p256", _only(_sigstore()), tmp_path / "policy.json")
    accept = _write(lab, "p256", _only(*_ACCEPT), tmp_path / "accept.json")
    upload(lab.registry, _image(1), "evil/p256:v1")
    signed, unsigned = (f"{lab.registry.address}/{team}/p256:v1" for team in ("team", "evil"))
    reach = ["--plain-http", "--store", str(tmp_path / "store")]

    def shown(image: str) -> tuple[str, str | None]:
        capsys.readouterr()
        assert main(["image", "show", image, *reach[1:], "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        return found["image"]["reference"], (found["trust"] or {}).get("state")

    assert main(["image", "pull", unsigned, "--policy", str(accept), *reach]) == 0
    assert main(["image", "pull", signed, "--policy", str(policy), *reach]) == 0
    assert shown(unsigned) == (unsigned, "unchecked")
    assert shown(signed) == (signed, "signed")
    assert shown(lab.digests["p256"]) in ((unsigned, "unchecked"), (signed, "signed"))
    assert main(["image", "pull", unsigned, "--policy", str(accept), "--fresh", *reach]) == 0
    assert shown(unsigned) == (unsigned, "unchecked")
    assert shown(signed) == (signed, "signed")
    assert shown(lab.digests["p256"]) in ((unsigned, "unchecked"), (signed, "signed"))
    # The image itself, by its digest or a name of the store, was accepted as the signed one.
    assert main(["image", "tag", signed, "mine", *reach[1:]]) == 0
    for image, code in ((unsigned, 6), (signed, 3), (lab.digests["p256"], 3), ("mine", 3)):
        assert main(["plan", "--image", image, "--policy", str(policy), *reach[1:], "--", "true"]) == code
    store = reach[1:]
    assert f"bareboat image pull {shlex.join([*store, '--policy', str(policy)])} {unsigned}" in (
        capsys.readouterr().err
    )


def test_a_digest_can_be_required(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{lab.registry.address}/team/p256"
    store = ["--store", str(tmp_path / "store")]
    assert main(["image", "pull", f"{name}:v1", "--require-digest", "--plain-http", *store]) == 2
    assert f"{name}@{lab.digests['p256']}" in capsys.readouterr().err
    pinned = f"{name}@{lab.digests['p256']}"
    assert main(["image", "pull", pinned, "--require-digest", "--plain-http", "--name", "mine", *store]) == 0
    assert main(["image", "pull", f"{name}:v1", "--plain-http", *store]) == 0
    for image in (f"{name}:v1", "mine", lab.digests["p256"][:20]):
        assert main(["plan", "--image", image, "--require-digest", *store, "--", "true"]) == 2
        assert lab.digests["p256"] in capsys.readouterr().err


@pytest.mark.parametrize("text", ["docker://{}/a", "sif:/x.sif", "rootfs:/", "oci:/x:tag", "oci-archive:/x"])
def test_references_without_a_digest(text: str, store: Store) -> None:
    found = reference.parse(text.format("127.0.0.1:9"), folder="/")
    with pytest.raises(UsageError, match="no digest"):
        check_reference(found, store, Access(), ask=False)
