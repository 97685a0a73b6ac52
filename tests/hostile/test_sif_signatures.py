"""The signatures inside a SIF, made by Apptainer itself, and then by nobody."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="pip install 'bareboat[signatures]'")
pytest.importorskip("pysequoia", reason="pip install 'bareboat[signatures]'")

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tools import completed, tool

from bareboat.cli.image.common import signed_by
from bareboat.cli.main import main
from bareboat_base.errors import BareboatError, ImageError
from bareboat_base.sif import DATA_SIGNATURE, DESCRIPTOR
from bareboat_images.oci.reference import Reference, Transport
from bareboat_images.registry.access import Access
from bareboat_images.signatures import sif
from bareboat_images.signatures.check import check


@dataclass(frozen=True, slots=True)
class Signed:
    """SIFs by Apptainer: `plain.sif`, `signed.sif`, `twice.sif` and `pem.sif`; `home` has the keys."""

    folder: Path
    home: Path
    fingerprint: str


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    folder = tmp_path_factory.mktemp("sif")
    home = folder / "home"
    home.mkdir()
    environment = {**os.environ, "HOME": str(home)}
    for name in ("APPTAINER_KEYSDIR", "SINGULARITY_KEYSDIR"):
        environment.pop(name, None)

    def apptainer(*arguments: str, text: str = "") -> str:
        argv = [tool("apptainer"), *arguments]
        done = completed(argv, input=text, env=environment, cwd=folder)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    (folder / "root/etc").mkdir(parents=True)
    (folder / "root/etc/file").write_text("x")
    apptainer("build", "plain.sif", "root")
    person = ("-N", "Alice", "-E", "a@example.org", "-C", "x", "-P", "", "-U=false")
    apptainer("key", "newpair", *person, text="\n")
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "key.pem").write_bytes(pem)
    data = (folder / "plain.sif").read_bytes()
    for name in ("signed", "pem"):
        (folder / f"{name}.sif").write_bytes(data)
    apptainer("sign", "-k", "0", "signed.sif")
    apptainer("sign", "--key", "key.pem", "pem.sif")
    shown = apptainer("verify", "--local", "--json", "signed.sif")
    read = json.loads(shown[shown.index("{") : shown.rindex("}") + 1])
    return Signed(folder, home, read["SignerKeys"][0]["Signer"]["Fingerprint"].upper())


def _at_home(signed: Signed, monkeypatch: pytest.MonkeyPatch, *, home: Path | None = None) -> None:
    for name in ("APPTAINER_KEYSDIR", "SINGULARITY_KEYSDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home or signed.home))


def test_a_signature_by_a_known_key(signed: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    _at_home(signed, monkeypatch)
    (signer,) = sif.look(str(signed.folder / "signed.sif"), name="sif:x").signers
    assert (signer.kind, signer.key, signer.verified) == ("openpgp", signed.fingerprint, True)
    assert "Alice" in signer.name


def test_a_signature_by_a_key_that_is_not_known(
    signed: Signed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _at_home(signed, monkeypatch, home=tmp_path)
    (signer,) = sif.look(str(signed.folder / "signed.sif"), name="sif:x").signers
    assert (signer.key, signer.verified) == (signed.fingerprint, False)
    (signer,) = sif.look(str(signed.folder / "pem.sif"), name="sif:x").signers
    assert (signer.kind, signer.verified) == ("pem", False)
    for name in ("signed", "pem"):
        found = Reference(transport=Transport.SIF, path=str(signed.folder / f"{name}.sif"))
        assert check(found, (), Access()).trust.state == "claimed"


def test_no_signature(signed: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    _at_home(signed, monkeypatch)
    assert sif.look(str(signed.folder / "plain.sif"), name="sif:x").signers == ()


#: What is changed after the file was signed: where, in the file or in a descriptor.
_CHANGES = {
    "id": 50, "launcher": 3, "definition": 32176 + 5, "metadata": 32210 + 5, "system": 36864 + 3000,
    "system's end": -1700, "name": 4096 + DESCRIPTOR.size + 73, "created": 4096 + 2 * DESCRIPTOR.size + 41,
    "owner": 4096 + 2 * DESCRIPTOR.size + 57, "architecture": 4096 + 2 * DESCRIPTOR.size + 201 + 9,
}  # fmt: skip


@pytest.mark.parametrize("home", ["known", "unknown"])
@pytest.mark.parametrize("kind", ["signed", "pem"])
@pytest.mark.parametrize("change", _CHANGES)
def test_a_file_that_was_changed_is_refused(
    signed: Signed, kind: str, change: str, home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a key that is not known the hashes alone are compared: they show damage, not forgery."""
    _at_home(signed, monkeypatch, home=signed.home if home == "known" else tmp_path)
    data = bytearray((signed.folder / f"{kind}.sif").read_bytes())
    data[_CHANGES[change]] ^= 1
    path = tmp_path / "changed.sif"
    path.write_bytes(data)
    with pytest.raises(ImageError, match="does not match"):
        sif.look(str(path), name="sif:changed.sif")


def _signature(data: bytes) -> tuple[int, int]:
    """Where the signature lies, and how long it is."""
    table = (DESCRIPTOR.unpack_from(data, 4096 + n * DESCRIPTOR.size) for n in range(8))
    fields = next(each for each in table if each[0] == DATA_SIGNATURE)
    return fields[5], fields[6]


@pytest.mark.parametrize("how", ["forged text", "cut", "garbage", "empty", "envelope", "unsigned", "deep"])
def test_a_forged_signature_is_refused(
    signed: Signed, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _at_home(signed, monkeypatch)
    data = bytearray((signed.folder / "signed.sif").read_bytes())
    at, size = _signature(data)
    text = bytes(data[at : at + size])
    match how:
        case "forged text":
            text = text.replace(b'{"version":1', b'{ "version":1')[:size]
        case "cut":
            text = text[: size // 2]
        case "garbage":
            text = bytes(size)
        case "empty":
            text = b""
        case "envelope":
            text = b'{"payloadType": "x", "payload": "e30=", "signatures": []}'
        case "unsigned":
            text = text.partition(b"-----BEGIN PGP SIGNATURE")[0]
        case "deep":
            text = b"[" * size
    data[at : at + size] = text.ljust(size, b"\n")
    path = tmp_path / "forged.sif"
    path.write_bytes(data)
    with pytest.raises(ImageError, match="does not match"):
        sif.look(str(path), name="sif:forged.sif")


def test_what_was_added_after_signing_makes_it_unsigned(
    signed: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _at_home(signed, monkeypatch)
    data = bytearray((signed.folder / "signed.sif").read_bytes())
    fields = list(DESCRIPTOR.unpack_from(data, 4096))
    fields[2] = 9
    DESCRIPTOR.pack_into(data, 4096 + 10 * DESCRIPTOR.size, *fields)
    path = tmp_path / "added.sif"
    path.write_bytes(data)
    assert sif.look(str(path), name="sif:added.sif").signers == ()


def test_a_policy_can_require_it(
    signed: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _at_home(signed, monkeypatch)
    key = signed.home / ".apptainer/keys/pgp-public"
    required = {"type": "signedBy", "keyType": "GPGKeys", "keyPath": str(key)}
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"default": [{"type": "reject"}], "transports": {"sif": {"": [required]}}}))
    store = ["--store", str(tmp_path / "store"), "--policy", str(policy)]
    for name in ("plain", "pem"):
        assert main(["image", "load", str(signed.folder / f"{name}.sif"), *store]) == 6
        assert "is refused" in capsys.readouterr().err
    assert main(["image", "load", str(signed.folder / "signed.sif"), "--name", "x", *store]) == 0
    assert f"signed by {signed.fingerprint}" in capsys.readouterr().err
    assert main(["image", "show", "x", "--store", str(tmp_path / "store")]) == 0
    assert f"signed by {signed.fingerprint}" in capsys.readouterr().out


def test_a_file_that_changes_while_it_is_read(
    signed: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _at_home(signed, monkeypatch)
    path = tmp_path / "x.sif"
    path.write_bytes((signed.folder / "signed.sif").read_bytes())
    looked = sif.look(str(path), name="sif:x.sif")
    looked.confirm()
    path.write_bytes((signed.folder / "plain.sif").read_bytes())
    with pytest.raises(ImageError, match="was changed while"):
        looked.confirm()


def test_every_byte_of_the_table(signed: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any single byte of header and descriptors changed: refused, or still signed; never another error."""
    _at_home(signed, monkeypatch)
    data = (signed.folder / "signed.sif").read_bytes()
    path = tmp_path / "x.sif"
    for at in (*range(0, 128, 3), *range(4096, 4096 + 4 * DESCRIPTOR.size, 29)):
        changed = bytearray(data)
        changed[at] ^= 0xFF
        path.write_bytes(changed)
        try:
            sif.look(str(path), name="sif:x")
        except BareboatError:
            continue


def test_told_of_nothing() -> None:
    assert signed_by(None) == "signatures not checked"
