"""The real docker-registry: pull, push, mount, log-ins, TLS, mirrors, and its death in the middle."""

import json
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from images import tar
from registries import (
    INDEX,
    MANIFEST,
    Packed,
    RealRegistry,
    auth_file,
    pack,
    push,
    real_registry,
    sha256,
)
from tools import output, tool

from bareboat_base.errors import ImageError
from bareboat_images.oci.source import Descriptor
from bareboat_images.registry.client import Options, RegistrySource, open_registry
from bareboat_images.registry.pusher import Pusher, open_pusher

REPOSITORY = "lab/some-image"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    """TLS by an authority of our own, and a log-in."""
    with real_registry(tmp_path_factory.mktemp("guarded"), tls=True, log_in=True) as running:
        yield running


@pytest.fixture(scope="module")
def image() -> Packed:
    tars = tar({"etc/motd": b"hello\n"}), tar({"data": random.Random(7).randbytes(3_000_000)})
    return pack(*tars, compressed=False)


def _options(registry: RealRegistry, folder: Path, *, log_in: bool = True, **changes: object) -> Options:
    environment = {"HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    if log_in:
        environment["REGISTRY_AUTH_FILE"] = str(auth_file(folder / "auth.json", registry.address))
    chosen = {
        "environment": environment,
        "plain_http": registry.ca_file is None,
        "ca_file": None if registry.ca_file is None else str(registry.ca_file),
        "backoff_s": 0.05,
        **changes,
    }
    return Options(**chosen)  # type: ignore[arg-type]


def _source(registry: RealRegistry, tag: str, folder: Path, **changes: object) -> RegistrySource:
    return open_registry(registry.address, REPOSITORY, tag, options=_options(registry, folder, **changes))


def _pusher(registry: RealRegistry, folder: Path, repository: str = REPOSITORY) -> Pusher:
    return open_pusher(registry.address, repository, options=_options(registry, folder))


def _read(source: RegistrySource, data: bytes, offset: int = 0) -> bytes:
    got = bytearray()
    buffer = memoryview(bytearray(1 << 16))
    with source.blob(Descriptor(media_type="", digest=sha256(data), size=len(data)), offset) as blob:
        while count := blob.readinto(buffer):
            got += buffer[:count]
    return bytes(got)


@pytest.mark.parametrize("place", ["registry", "guarded"])
def test_what_is_pushed_can_be_pulled(
    place: str, request: pytest.FixtureRequest, image: Packed, tmp_path: Path
) -> None:
    registry = request.getfixturevalue(place)
    with _pusher(registry, tmp_path) as pusher:
        assert not pusher.has_blob("sha256:" + "0" * 64)
        assert push(pusher, image, "v1") == image.digest
        push(pusher, image, "latest")
        assert all(pusher.has_blob(sha256(layer)) for layer in image.layers)
    with _source(registry, "v1", tmp_path) as source:
        assert source.head_digest() == image.digest
        root = source.document()
        assert (root.data, root.media_type, root.digest) == (image.manifest, MANIFEST, image.digest)
        assert source.document(sha256(image.config)).data == image.config
        for layer in image.layers:
            assert _read(source, layer) == layer
            assert _read(source, layer, 1000) == layer[1000:]
    with _source(registry, "latest", tmp_path) as source:
        # Without a word before of what the digests stand for.
        assert source.document(image.digest).data == image.manifest
    with _source(registry, image.digest, tmp_path) as source:
        assert source.document(sha256(image.config)).data == image.config
        assert source.document().data == image.manifest


@pytest.mark.parametrize("place", ["registry", "guarded"])
def test_skopeo_agrees(place: str, request: pytest.FixtureRequest, image: Packed, tmp_path: Path) -> None:
    registry: RealRegistry = request.getfixturevalue(place)
    push(_pusher(registry, tmp_path), image, "for-skopeo")
    authorities = tmp_path / "authorities"
    authorities.mkdir()
    if registry.ca_file is not None:
        (authorities / "ca.crt").write_bytes(registry.ca_file.read_bytes())
    said = output(
        tool("skopeo"), "inspect", f"--tls-verify={'false' if registry.ca_file is None else 'true'}",
        f"--cert-dir={authorities}", f"--authfile={auth_file(tmp_path / 'auth.json', registry.address)}",
        f"docker://{registry.address}/{REPOSITORY}:for-skopeo", env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    told = json.loads(said)
    assert told["Digest"] == image.digest
    assert told["Layers"] == [sha256(layer) for layer in image.layers]


def test_what_skopeo_pushes_can_be_pulled(registry: RealRegistry, image: Packed, tmp_path: Path) -> None:
    """As Docker's own kind of manifest, under a multi-part name."""
    push(_pusher(registry, tmp_path), image, "oci")
    copied = f"{registry.address}/lab/a/b/c:docker"
    output(
        tool("skopeo"), "copy", "--insecure-policy", "--src-tls-verify=false", "--dest-tls-verify=false",
        "--format=v2s2", f"docker://{registry.address}/{REPOSITORY}:oci", f"docker://{copied}",
        env={**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    options = _options(registry, tmp_path)
    with open_registry(registry.address, "lab/a/b/c", "docker", options=options) as source:
        root = source.document()
        assert root.media_type == "application/vnd.docker.distribution.manifest.v2+json"
        assert source.head_digest() == root.digest
        layers = json.loads(root.data)["layers"]
        for layer in layers:
            found = Descriptor(media_type=layer["mediaType"], digest=layer["digest"], size=layer["size"])
            with source.blob(found) as blob:
                assert blob.readinto(memoryview(bytearray(10))) > 0


def test_an_index(registry: RealRegistry, image: Packed, tmp_path: Path) -> None:
    other = pack(b"\0" * 1024, compressed=False, architecture="arm64")
    with _pusher(registry, tmp_path) as pusher:
        entries = []
        for each, architecture in ((image, "amd64"), (other, "arm64")):
            push(pusher, each, each.digest)
            platform = {"os": "linux", "architecture": architecture}
            size = len(each.manifest)
            entries.append({"mediaType": MANIFEST, "digest": each.digest, "size": size, "platform": platform})
        index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()
        digest = pusher.put_manifest("both", index, INDEX)
    with _source(registry, "both", tmp_path) as source:
        root = source.document()
        assert (root.media_type, root.digest, root.data) == (INDEX, digest, index)
        assert source.document(other.digest).data == other.manifest
        assert source.document(sha256(other.config)).data == other.config


def test_an_upload_that_is_not_what_its_digest_says(registry: RealRegistry, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="does not take sha256:0000") as caught:
        _pusher(registry, tmp_path).upload("sha256:" + "0" * 64, 3, [b"abc"])
    assert "digest" in caught.value.context.lower()


def test_a_manifest_whose_layers_are_missing(registry: RealRegistry, tmp_path: Path) -> None:
    orphan = pack(b"nobody has pushed this layer", compressed=False)
    with pytest.raises(ImageError, match="cannot be written") as caught:
        _pusher(registry, tmp_path).put_manifest("orphan", orphan.manifest, MANIFEST)
    assert "unknown" in caught.value.context.lower()


def test_what_is_not_there(registry: RealRegistry, image: Packed, tmp_path: Path) -> None:
    push(_pusher(registry, tmp_path), image, "24.05")
    with pytest.raises(ImageError, match=r"has no tag '24\.5'") as caught:
        _source(registry, "24.5", tmp_path).document()
    assert "24.05" in caught.value.context
    with pytest.raises(ImageError, match="not found"):
        open_registry(
            registry.address, "lab/nothing-here", "1", options=_options(registry, tmp_path)
        ).document()
    with pytest.raises(ImageError, match="not found"):
        _source(registry, "sha256:" + "0" * 64, tmp_path).document()


def test_without_a_log_in(guarded: RealRegistry, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="refuses") as caught:
        _source(guarded, "v1", tmp_path, log_in=False).document()
    assert "no log-in was sent" in caught.value.context
    assert f"podman login {guarded.address}" in caught.value.remedy


def test_a_mirror_and_the_registry_it_mirrors(registry: RealRegistry, image: Packed, tmp_path: Path) -> None:
    with real_registry(tmp_path / "mirror") as mirror:
        push(_pusher(mirror, tmp_path), image, "mirrored")
        options = _options(registry, tmp_path, mirrors=(f"http://{mirror.address}",))
        push(_pusher(registry, tmp_path), image, "here-only")
        assert open_registry(registry.address, REPOSITORY, "mirrored", options=options).document()
        assert open_registry(registry.address, REPOSITORY, "here-only", options=options).document()


@pytest.mark.parametrize("tls", [False, True])
def test_a_registry_that_is_killed_and_comes_back(tls: bool, tmp_path: Path) -> None:
    """Three times, in the middle of a blob."""
    data = random.Random(1).randbytes(1 << 20) * 24
    image = pack(data, compressed=False)
    with real_registry(tmp_path / "mortal", tls=tls) as mortal:
        push(_pusher(mortal, tmp_path), image, "v1")
        said: list[str] = []
        source = _source(mortal, "v1", tmp_path, say=said.append, attempts=10)
        got = bytearray()
        buffer = memoryview(bytearray(1 << 18))
        deaths = [len(data) // 4, len(data) // 2, len(data) * 3 // 4]
        with source.blob(Descriptor(media_type="", digest=sha256(data), size=len(data))) as blob:
            while count := blob.readinto(buffer):
                got += buffer[:count]
                if deaths and len(got) >= deaths[0]:
                    del deaths[0]
                    mortal.kill()
                    threading.Thread(target=_revive, args=(mortal,)).start()
        assert bytes(got) == data
        assert not deaths
        assert len(said) >= 3


def _revive(registry: RealRegistry) -> None:
    time.sleep(1.0)  # longer than one waits for a registry that was never there
    registry.start()
