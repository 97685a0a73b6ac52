"""What other users and other programs leave: links, policies, stores, directories, cells of tables."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from strangers import own_as_stranger

from bareboat.captures.collect import Collection, Part
from bareboat.cli.main import main
from bareboat_base.errors import UsageError
from bareboat_images.signatures import place, policy
from bareboat_study import report_values


def collected(folder: Path) -> Collection:
    collection = Collection()
    collection.add(str(folder), Part.PACKAGES)
    collection.follow_links()
    return collection


@pytest.mark.parametrize("target", [".ssh/id", ".aws/credentials", ".netrc", "private/notes"])
def test_a_link_in_a_package_takes_no_private_file_into_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    home = tmp_path / "home"
    secret = home / target
    secret.parent.mkdir(parents=True)
    secret.write_text("secret")
    secret.chmod(0o600 if target.startswith("private") else 0o644)
    monkeypatch.setenv("HOME", str(home))
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "x.py").symlink_to(secret)
    found = collected(packages)
    assert str(secret) not in found.items
    assert f"{secret}: private to you; a link in the environment leads to it" in found.left_out


def test_a_directory_of_keys_that_a_pth_file_names_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/id").write_text("secret")
    found = collected(tmp_path / ".ssh")
    assert str(tmp_path / ".ssh/id") not in found.items
    assert found.left_out == [f"{tmp_path}/.ssh: a directory of keys or passwords"]


def test_a_link_to_what_others_may_read_or_to_the_environment_itself_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (tmp_path / "shared.py").write_text("x = 1")
    (tmp_path / "shared.py").chmod(0o644)
    (packages / "own.py").write_text("x = 1")
    (packages / "own.py").chmod(0o600)
    (packages / "a.py").symlink_to(tmp_path / "shared.py")
    (packages / "b.py").symlink_to("own.py")
    found = collected(packages)
    assert found.left_out == []
    assert {str(tmp_path / "shared.py"), str(packages / "own.py")} <= set(found.items)


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that the other user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="bareboat-others-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_the_policy_of_another_user_is_refused(open_place: Path) -> None:
    path = open_place / "policy.json"
    path.write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
    assert place.requires_nothing(str(path), {})
    own_as_stranger(path)
    assert not place.requires_nothing(str(path), {})
    with pytest.raises(UsageError, match="others can change it") as caught:
        policy.load(str(path))
    assert "--policy FILE" in caught.value.remedy


@pytest.mark.parametrize("writable", ["policy.json", ""])
def test_a_policy_that_others_can_write_does_not_stand_for_none(open_place: Path, writable: str) -> None:
    path = open_place / "policy.json"
    path.write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
    assert place.requires_nothing(str(path), {})
    (open_place / writable).chmod(0o777)
    assert not place.requires_nothing(str(path), {})


def test_a_key_that_another_user_can_replace_verifies_nothing(open_place: Path) -> None:
    path = open_place / "cosign.pub"
    path.write_text("-----BEGIN PUBLIC KEY-----")
    keys = policy.Keys(paths=(str(path),))
    assert len(keys.read()) == 1
    own_as_stranger(path)
    with pytest.raises(UsageError, match="others can change it") as caught:
        keys.read()
    assert "a copy of your own" in caught.value.remedy


@pytest.mark.parametrize("words", [["image", "ls"], ["status"], ["image", "rm", "--unused"], ["image", "du"]])
def test_a_store_of_another_version_is_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    (tmp_path / "store").mkdir(mode=0o700)
    (tmp_path / "store/version").write_text("1\n")
    monkeypatch.setenv("BAREBOAT_STORE", str(tmp_path / "store"))
    assert main(words) == 4
    err = capsys.readouterr().err
    assert "has version 1; this Bareboat uses version 2" in err
    assert "BAREBOAT_STORE=~/bareboat\n" in err


def test_gc_of_a_store_that_cannot_be_written_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if os.getuid() == 0:
        pytest.skip("root writes everywhere")
    store = tmp_path / "store"
    (store / "tmp").mkdir(parents=True)
    (store / "version").write_text("2\n")
    (store / "tmp").chmod(0o500)
    store.chmod(0o500)
    monkeypatch.setenv("BAREBOAT_STORE", str(store))
    try:
        assert main(["image", "rm", "--unused"]) == 4
    finally:
        store.chmod(0o700)
        (store / "tmp").chmod(0o700)
    assert "cannot be written" in capsys.readouterr().err


def test_an_empty_directory_is_no_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BAREBOAT_STORE", str(tmp_path / "store"))
    (tmp_path / "empty").mkdir()
    assert main(["image", "pull", f"rootfs:{tmp_path}/empty"]) == 6
    assert "is an empty directory" in capsys.readouterr().err


def test_an_index_with_a_wrong_size_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BAREBOAT_STORE", str(tmp_path / "store"))
    data = b'{"schemaVersion": 2}'
    digits = hashlib.sha256(data).hexdigest()
    blobs = tmp_path / "layout/blobs/sha256"
    blobs.mkdir(parents=True)
    (blobs / digits).write_bytes(data)
    entry = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": f"sha256:{digits}"}
    index = {"schemaVersion": 2, "manifests": [{**entry, "size": len(data) + 1}]}
    (tmp_path / "layout/index.json").write_text(json.dumps(index))
    (tmp_path / "layout/oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    assert main(["image", "pull", f"oci:{tmp_path}/layout"]) == 6
    assert f"has {len(data)} bytes and should have {len(data) + 1}" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["/", "/.", "/tmp/..", "/a/./b"])
def test_the_root_is_no_node_scratch(tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str) -> None:
    (tmp_path / "job.toml").write_text(f'command = ["true"]\nnode_scratch = "{path}"\n')
    assert main(["plan", str(tmp_path / "job.toml")]) == 2
    assert f"node_scratch is '{path}'" in capsys.readouterr().err


def test_no_cell_is_a_formula() -> None:
    texts = ["=HYPERLINK(1)", "+1+cmd", "-2+3", "@SUM(1)", "\t=1", "-1.5e3", "+7", "-", "a=b", "-inf"]
    kept = "'=HYPERLINK(1)|'+1+cmd|'-2+3|'@SUM(1)|'\t=1|-1.5e3|+7|'-|a=b|-inf"
    assert report_values.as_csv([texts]).rstrip("\n").replace(",", "|") == kept
    assert report_values.as_csv([[-1.5, None]]) == "-1.5,\n"
