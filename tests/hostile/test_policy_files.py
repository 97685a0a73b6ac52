"""Policy files with something wrong in them: an error that names it, and never an acceptance."""

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from tools import tool

from bareboat.cli.main import main
from bareboat_base.errors import UsageError
from bareboat_images.oci import reference
from bareboat_images.signatures import place, policy, scopes
from bareboat_images.signatures.identity import Identity, Name, parse_name, read_identity
from bareboat_images.signatures.payload import COSIGN, read_payload
from bareboat_images.transfer import bundles

_OK = '[{"type": "insecureAcceptAnything"}]'
_KEY = '"type": "signedBy", "keyType": "GPGKeys", "keyPath": "/k"'

_IDENTITY = '"signedIdentity"'

_BROKEN = {
    "empty": "",
    "no JSON": "{",
    "no object": "[]",
    "null": "null",
    "a text": '"default"',
    "no default": "{}",
    "an empty default": '{"default": []}',
    "a default of null": '{"default": null}',
    "a default that is no list": '{"default": {"type": "reject"}}',
    "a misspelled default": f'{{"Default": {_OK}}}',
    "an unknown key": f'{{"default": {_OK}, "more": 1}}',
    "default twice": f'{{"default": [{{"type": "reject"}}], "default": {_OK}}}',
    "transports of null": f'{{"default": {_OK}, "transports": null}}',
    "transports that are a list": f'{{"default": {_OK}, "transports": []}}',
    "a transport that is a list": f'{{"default": {_OK}, "transports": {{"docker": {_OK}}}}}',
    "an empty scope": f'{{"default": {_OK}, "transports": {{"docker": {{"a.org": []}}}}}}',
    "a scope twice": f'{{"default": {_OK}, "transports": {{"docker": {{"a.b": {_OK}, "a.b": {_OK}}}}}}}',
    "a transport twice": f'{{"default": {_OK}, "transports": {{"docker": {{}}, "docker": {{}}}}}}',
    "a relative folder": f'{{"default": {_OK}, "transports": {{"oci": {{"a/b": {_OK}}}}}}}',
    "the root": f'{{"default": {_OK}, "transports": {{"oci": {{"/": {_OK}}}}}}}',
    "a folder with dots": f'{{"default": {_OK}, "transports": {{"dir": {{"/a/../b": {_OK}}}}}}}',
    "a folder with a slash": f'{{"default": {_OK}, "transports": {{"dir": {{"/a/": {_OK}}}}}}}',
    "a docker-archive scope": f'{{"default": {_OK}, "transports": {{"docker-archive": {{"/a": {_OK}}}}}}}',
    "no type": '{"default": [{}]}',
    "a type of null": '{"default": [{"type": null}]}',
    "an unknown type": '{"default": [{"type": "insecureAcceptEverything"}]}',
    "another case": '{"default": [{"type": "InsecureAcceptAnything"}]}',
    "a requirement that is a text": '{"default": ["insecureAcceptAnything"]}',
    "an accepting one with keys": '{"default": [{"type": "insecureAcceptAnything", "keyPath": "/k"}]}',
    "a rejecting one with keys": '{"default": [{"type": "reject", "keyPath": "/k"}]}',
    "a type twice": '{"default": [{"type": "reject", "type": "insecureAcceptAnything"}]}',
    "no keys": '{"default": [{"type": "signedBy", "keyType": "GPGKeys"}]}',
    "no kind of keys": '{"default": [{"type": "signedBy", "keyPath": "/k"}]}',
    "another kind of keys": '{"default": [{"type": "signedBy", "keyType": "X509", "keyPath": "/k"}]}',
    "two places of keys": f'{{"default": [{{{_KEY}, "keyData": "AAAA"}}]}}',
    "data that is no base64": '{"default": [{"type": "sigstoreSigned", "keyData": "?"}]}',
    "an empty path": '{"default": [{"type": "sigstoreSigned", "keyPath": ""}]}',
    "a path of null": '{"default": [{"type": "sigstoreSigned", "keyPath": null}]}',
    "a path that is a list": '{"default": [{"type": "sigstoreSigned", "keyPath": ["/k"]}]}',
    "paths that are a text": '{"default": [{"type": "sigstoreSigned", "keyPaths": "/k"}]}',
    "no paths": '{"default": [{"type": "sigstoreSigned", "keyPaths": []}]}',
    "an unknown field of sigstore": '{"default": [{"type": "sigstoreSigned", "keyPath": "/k", "x": 1}]}',
    "keys and an authority": '{"default": [{"type": "sigstoreSigned", "keyPath": "/k", "fulcio": {}}]}',
    "an identity of null": f'{{"default": [{{{_KEY}, "signedIdentity": null}}]}}',
    "an unknown identity": f'{{"default": [{{{_KEY}, "signedIdentity": {{"type": "matchAny"}}}}]}}',
    "an identity with more": f'{{"default": [{{{_KEY}, {_IDENTITY}: {{"type": "matchExact", "x": 1}}}}]}}',
    "an identity without a name": f'{{"default": [{{{_KEY}, {_IDENTITY}: {{"type": "exactReference"}}}}]}}',
    "NaN": f'{{"default": {_OK}, "transports": {{"docker": {{"a.org": [NaN]}}}}}}',
    "deep": '{"default": ' + "[" * 100_000,
    "a comment": f'{{"default": {_OK}}} // all is well',
    "two documents": f'{{"default": {_OK}}}{{"default": {_OK}}}',
}
_IDENTITIES = {
    "a name without a tag": {"type": "exactReference", "dockerReference": "docker.io/library/busybox"},
    "a repository with a tag": {"type": "exactRepository", "dockerRepository": "docker.io/library/a:1"},
    "a repository with a digest": {"type": "exactRepository", "dockerRepository": f"a@sha256:{'0' * 64}"},
    "an upper-case repository": {"type": "exactRepository", "dockerRepository": "docker.io/library/A"},
    "a URL": {"type": "exactRepository", "dockerRepository": "docker://docker.io/library/a"},
    "no signed prefix": {"type": "remapIdentity", "prefix": "a.org"},
    "a short prefix": {"type": "remapIdentity", "prefix": "busybox", "signedPrefix": "a.org"},
    "a prefix with a tag": {"type": "remapIdentity", "prefix": "a.org/b:1", "signedPrefix": "a.org"},
    "an empty prefix": {"type": "remapIdentity", "prefix": "", "signedPrefix": "a.org"},
    "a number": {"type": "exactRepository", "dockerRepository": 1},
}


@pytest.mark.parametrize("text", _BROKEN.values(), ids=_BROKEN)
def test_a_policy_with_anything_wrong_is_an_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not valid"):
        policy.load(str(path))


@pytest.mark.parametrize("value", _IDENTITIES.values(), ids=_IDENTITIES)
def test_an_identity_with_anything_wrong_is_an_error(value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_identity(value, where="x")


#: skopeo 1.9 finds these only when it needs the key.
_LATER = {"an empty path", "a path of null"}


@pytest.mark.parametrize("name", [name for name in _BROKEN if name not in _LATER])
def test_skopeo_refuses_it_too(name: str, tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text(_BROKEN[name])
    (tmp_path / "empty").mkdir()
    argv = [tool("skopeo"), "--policy", str(tmp_path / "policy.json"), "copy"]
    argv += [f"dir:{tmp_path}/empty", f"dir:{tmp_path}/copy"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "policy" in done.stderr, done.stderr


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "huge", "latin-1", "link to nothing"])
def test_a_policy_that_cannot_be_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    match kind:
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "huge":
            with open(path, "wb") as stream:
                stream.truncate(1 << 40)
        case "latin-1":
            path.write_bytes(b'{"default": [{"type": "\xe9"}]}')
        case "link to nothing":
            path.symlink_to(tmp_path / "nothing")
    with pytest.raises(UsageError, match="policy"):
        policy.load(str(path))


def test_the_users_policy_goes_before_the_machines(tmp_path: Path) -> None:
    own = tmp_path / ".config/containers/policy.json"
    own.parent.mkdir(parents=True)
    assert place.locate(None, {"HOME": str(tmp_path)}) in (None, "/etc/containers/policy.json")
    own.symlink_to(tmp_path / "nothing")  # damaged is not absent
    assert place.locate(None, {"HOME": str(tmp_path)}) == str(own)
    assert place.locate("/other", {"HOME": str(tmp_path)}) == "/other"


def test_a_project_cannot_choose_the_policy_nor_lift_the_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    site = tmp_path / "config/bareboat/site.toml"
    site.parent.mkdir(parents=True)
    site.write_text("require_digest = true\n")
    (tmp_path / "bareboat.toml").write_text("require_digest = false\n")
    assert main(["config", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["require_digest"]["value"] is True
    (tmp_path / "bareboat.toml").write_text('policy = "accept.json"\n')
    assert main(["config"]) == 2
    assert "cannot be set in a project" in capsys.readouterr().err


_SCOPES = {
    "busybox": ["docker.io/library/busybox:latest", "docker.io/library/busybox", "docker.io/library",
                "docker.io", "*.io"],
    "h.a.org:5000/x/y:1": ["h.a.org:5000/x/y:1", "h.a.org:5000/x/y", "h.a.org:5000/x", "h.a.org:5000",
                           "*.a.org", "*.org"],
    f"localhost/a:1@sha256:{'1' * 64}": [f"localhost/a@sha256:{'1' * 64}", "localhost/a", "localhost"],
}  # fmt: skip


@pytest.mark.parametrize("text", _SCOPES)
def test_scopes(text: str) -> None:
    assert scopes.of(reference.parse(text, folder="/")) == ("docker", _SCOPES[text])


def test_a_link_does_not_lead_round_a_scope(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "good").symlink_to("bad")
    found = reference.parse(f"oci:{tmp_path}/good:tag", folder="/")
    real = os.path.realpath(tmp_path / "bad")
    assert scopes.of(found)[1][:3] == [f"{real}:tag", real, os.path.dirname(real)]


_NAMES = (
    "a.org/b:1",
    "a.org/b:2",
    "a.org/b",
    f"a.org/b@sha256:{'0' * 64}",
    "a.org/c:1",
    "b:1",
    "",
    "\0",
    "A",
)


@pytest.mark.parametrize("signed", _NAMES)
@pytest.mark.parametrize("kind", ["matchExact", "matchRepoDigestOrExact", "matchRepository"])
def test_an_image_without_a_name_matches_no_signature(kind: str, signed: str) -> None:
    assert not Identity(kind=kind).matches(None, signed)
    assert Identity(kind=kind).matches(Name("a.org/b", "1"), signed) == (
        signed == "a.org/b:1" or (kind == "matchRepository" and "a.org/b" in signed)
    )


@pytest.mark.parametrize(
    "name", ["busybox", "library/busybox", "docker.io/busybox", "index.docker.io/busybox"]
)
def test_names_are_compared_in_their_full_form(name: str) -> None:
    assert parse_name(name) == Name("docker.io/library/busybox")


_CLAIM = {
    "critical": {
        "type": COSIGN,
        "image": {"docker-manifest-digest": "sha256:" + "0" * 64},
        "identity": {"docker-reference": "a.org/b"},
    },
    "optional": {},
}


def _changed(path: str, value: object) -> bytes:
    claim = json.loads(json.dumps(_CLAIM))
    *parents, last = path.split("/")
    place = claim
    for each in parents:
        place = place[each]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return json.dumps(claim).encode()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("critical", None), ("critical", []), ("critical", {}), ("critical/type", None), ("critical/type", 1),
        ("critical/type", "atomic container signature"), ("critical/image", None), ("critical/image", "x"),
        ("critical/image/docker-manifest-digest", None), ("critical/image/docker-manifest-digest", 5),
        ("critical/image/docker-manifest-digest", "sha256:0"), ("critical/image/more", 1),
        ("critical/image/docker-manifest-digest", "sha256:" + "0" * 64 + "\n"),
        ("critical/image/docker-manifest-digest", "sha256:" + "G" * 64),
        ("critical/image/docker-manifest-digest", "md5:" + "0" * 32), ("critical/identity", None),
        ("critical/identity/docker-reference", None), ("critical/identity/docker-reference", ["a.org/b"]),
        ("critical/more", 1), ("more", 1),
    ],
)  # fmt: skip
def test_a_payload_that_is_none(path: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_payload(_changed(path, value), kind=COSIGN)
    assert read_payload(json.dumps(_CLAIM).encode(), kind=COSIGN).name == "a.org/b"


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"null", b"[" * 200_000, b" " * (2 << 20)])
def test_bytes_that_are_no_payload(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_payload(data, kind=COSIGN)


def test_a_bundle_brings_no_verdict(tmp_path: Path) -> None:
    trust = {"state": "signed", "policy": "/p", "scope": "default", "rules": "sha256:x"}
    pin = {
        "reference": "a.org/b:1",
        "digest": "sha256:" + "0" * 64,
        "root": "x",
        "pinned_at": "",
        "trust": trust,
    }
    listed = json.dumps([pin]).encode()
    with tarfile.open(tmp_path / "bundle.tar", "w") as archive:
        member = tarfile.TarInfo("bareboat/pins.json")
        member.size = len(listed)
        archive.addfile(member, io.BytesIO(listed))
    (read,) = bundles.pins(tmp_path / "bundle.tar")
    assert read.reference == "a.org/b:1"
    assert read.trust is None


@pytest.mark.parametrize("text", _BROKEN.values(), ids=_BROKEN)
def test_the_quick_look_takes_nothing_wrong_for_nothing_required(text: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(text)
    assert not place.requires_nothing(str(path), {})
    path.write_text(f'{{\n  "default": {_OK}\n}}\n')
    assert place.requires_nothing(str(path), {})
