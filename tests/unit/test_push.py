"""Push: what is there stays, what can be copied keeps its digest."""

import contextlib
import gzip
import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from registries import sha256
from stored import pulled_layer

from bareboat.model import Image
from bareboat_base.errors import BareboatError, ImageError, StoreError
from bareboat_images.oci import manifest
from bareboat_images.oci.reference import Reference, parse
from bareboat_images.oci.source import Descriptor, Document, Source
from bareboat_images.store import Store
from bareboat_images.transfer.push import Pushed, Target, push

DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"


class Registry:
    """All of a registry in memory: repository -> digest -> bytes. It verifies, as real ones do."""

    def __init__(self) -> None:
        self.blobs: dict[str, dict[str, bytes]] = {}
        self.manifests: dict[str, tuple[bytes, str]] = {}

    def repository(self, name: str) -> "Repository":
        return Repository(self, name)


class Repository:
    """Satisfies push.Target."""

    def __init__(self, registry: Registry, name: str) -> None:
        self.registry, self.name = registry, name
        self.blobs = registry.blobs.setdefault(name, {})

    def has_blob(self, digest: str) -> bool:
        return digest in self.blobs

    def upload(self, digest: str, size: int, chunks: Iterable[bytes]) -> None:
        data = b"".join(chunks)
        assert len(data) == size  # Content-Length was sent before
        if sha256(data) != digest:
            raise ImageError("the registry refuses: DIGEST_INVALID")
        assert digest not in self.blobs
        self.blobs[digest] = data

    def put_manifest(self, reference: str, data: bytes, media_type: str) -> str:
        content = json.loads(data)
        for each in (content["config"], *content["layers"]):
            assert len(self.blobs[each["digest"]]) == each["size"]
        assert content.get("mediaType", media_type) == media_type
        self.registry.manifests[f"{self.name}:{reference}"] = data, media_type
        return sha256(data)


class Origin:
    """A source in memory. `fails`: the call of readinto() that fails, counted from 0; -1: opening does."""

    local = False
    notes: tuple[str, ...] = ()
    called: tuple[str, ...] = ()

    def __init__(self, blobs: dict[str, bytes], *, fails: int | None = None, piece: int = 4096) -> None:
        self.blobs, self.fails, self.piece = blobs, fails, piece
        self.name = "quay.io/from/here:1"
        self.opened = 0
        self.closed = False

    def document(self, digest: str | None = None) -> Document:
        raise AssertionError(digest)

    @contextlib.contextmanager
    def blob(self, descriptor: Descriptor, offset: int = 0) -> Iterator["Origin._Blob"]:
        assert offset == 0
        self.opened += 1
        if self.fails == -1:
            raise ImageError("the registry of the origin does not answer")
        yield self._Blob(self, self.blobs[descriptor.digest])

    def close(self) -> None:
        assert not self.closed
        self.closed = True

    class _Blob:
        def __init__(self, origin: "Origin", data: bytes) -> None:
            self.origin, self.data, self.calls = origin, io.BytesIO(data), 0

        def readinto(self, buffer: memoryview) -> int:
            if self.calls == self.origin.fails:
                raise ImageError("the registry of the origin died")
            self.calls += 1
            got = self.data.read(self.origin.piece)
            buffer[: len(got)] = got
            return len(got)


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.uid = len(data), 1_700_000_000, 7
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


BASE = tar_of({"base": bytes(range(256)) * 100, "empty": b""})
APP = tar_of({"app": b"a" * 50_000})


class Made:
    """An image in a store as a pull leaves it, and the blobs of where it came from."""

    def __init__(
        self,
        store: Store,
        tars: list[bytes],
        *,
        kind: str = manifest.DOCKER_MANIFEST,
        packed: bool = True,
        reference: str = "quay.io/from/here:1",
        annotations: dict[str, str] | None = None,
    ) -> None:
        self.store = store
        self.packed = [gzip.compress(tar, mtime=5) if packed else tar for tar in tars]
        layers = tuple(pulled_layer(store, tar) for tar in tars)
        self.config = json.dumps(
            {"architecture": "amd64", "os": "linux", "made": "by hand",
             "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]}}
        ).encode()  # fmt: skip
        media_type = (
            DOCKER_LAYER if kind == manifest.DOCKER_MANIFEST else OCI_LAYER + ("+gzip" if packed else "")
        )
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": kind,
                "config": {"mediaType": "x", "digest": sha256(self.config), "size": len(self.config)},
                "layers": [
                    {"mediaType": media_type, "digest": sha256(data), "size": len(data)}
                    | ({"annotations": annotations} if annotations else {})
                    for data in self.packed
                ],
            },
            indent=3,
        ).encode()
        self.image = Image(digest=sha256(self.manifest), layers=layers, reference=reference)
        store.put_image(self.image, manifest=self.manifest, config=self.config)
        self.blobs = {sha256(data): data for data in (*self.packed, self.config)}
        self.calls = 0
        self.said: list[str] = []

    def push(
        self,
        target: Target,
        *,
        to: str = "registry:5000/me/new:2",
        origin: Source | BareboatError | None = None,
    ) -> Pushed:
        def source() -> Source | None:
            self.calls += 1
            if isinstance(origin, BareboatError):
                raise origin
            return origin

        def progress(what: str, done: int, total: int) -> None:
            assert 0 <= done <= total
            self.said.append(what)

        return push(self.image, self.store, target, self.goal(to), source=source, progress=progress)

    @staticmethod
    def goal(text: str) -> Reference:
        return parse(text, folder="/")


@pytest.fixture
def made(store: Store) -> Made:
    return Made(store, [BASE, APP])


@pytest.fixture
def registry() -> Registry:
    return Registry()


def pushed_manifest(registry: Registry, name: str = "me/new:2") -> dict[str, Any]:
    data, _ = registry.manifests[name]
    content: dict[str, Any] = json.loads(data)
    return content


# -- branches ------------------------------------------------------------------------------------------


def test_what_is_there_is_not_sent(made: Made, registry: Registry) -> None:
    target = registry.repository("me/new")
    target.blobs.update(made.blobs)
    done = made.push(target)
    assert done == Pushed(digest=made.image.digest, same_digest=True, there=3, sent=0, sent_bytes=0)
    assert made.calls == 0
    assert registry.manifests["me/new:2"] == (made.manifest, manifest.DOCKER_MANIFEST)


@pytest.mark.parametrize("piece", [1000, 1 << 20])
def test_what_is_missing_is_copied_from_where_it_came_from(
    made: Made, registry: Registry, piece: int
) -> None:
    target = registry.repository("me/new")
    target.blobs[sha256(made.packed[0])] = made.packed[0]
    origin = Origin(made.blobs, piece=piece)
    done = made.push(target, origin=origin)
    assert done.same_digest
    assert (done.there, done.sent) == (1, 2)
    assert done.sent_bytes == len(made.config) + len(made.packed[1])
    assert origin.opened == 1  # only for what is missing
    assert origin.closed
    assert target.blobs == made.blobs
    assert registry.manifests["me/new:2"] == (made.manifest, manifest.DOCKER_MANIFEST)
    assert any(text.startswith("sending sha256:") for text in made.said)


@pytest.mark.parametrize(
    "origin",
    [None, Origin({}, fails=-1), Origin({}, fails=0), ImageError("no")],
    ids=["none", "does not open", "cannot be read", "refuses"],
)
def test_without_its_origin_layers_are_compressed_anew(
    made: Made, registry: Registry, origin: Origin | BareboatError | None
) -> None:
    if isinstance(origin, Origin):
        origin.blobs = made.blobs
    target = registry.repository("me/new")
    target.blobs[sha256(made.packed[0])] = made.packed[0]
    done = made.push(target, origin=origin)
    assert not done.same_digest
    assert done.digest != made.image.digest
    content = pushed_manifest(registry)
    assert registry.manifests["me/new:2"][1] == content["mediaType"] == manifest.OCI_MANIFEST
    assert content["config"]["digest"] == sha256(made.config)  # the same files: the same diff-ids
    kept, new = content["layers"]
    assert kept == {
        "mediaType": OCI_LAYER + "+gzip", "digest": sha256(made.packed[0]), "size": len(made.packed[0]),
    }  # fmt: skip
    assert new["mediaType"] == OCI_LAYER + "+gzip"
    assert gzip.decompress(target.blobs[new["digest"]]) == APP
    assert done.digest == sha256(registry.manifests["me/new:2"][0])
    assert list((made.store.root / "tmp").iterdir()) == []
    # What comes out is an image to our own reader, too.
    data, kind = registry.manifests["me/new:2"]
    manifest.manifest(Document(data=data, media_type=kind, digest=done.digest), name="x")


def test_compressing_twice_gives_the_same_bytes(made: Made, registry: Registry) -> None:
    first = made.push(registry.repository("me/new"))
    second = made.push(registry.repository("me/new"))
    assert first.digest == second.digest
    assert (second.sent, second.sent_bytes) == (0, 0)
    other = made.push(registry.repository("me/other"), to="registry:5000/me/other:2")
    assert other.digest == first.digest


def test_annotations_of_kept_layers_are_kept(store: Store, registry: Registry) -> None:
    made = Made(store, [BASE, APP], kind=manifest.OCI_MANIFEST, annotations={"a": "b"})
    target = registry.repository("me/new")
    target.blobs[sha256(made.packed[0])] = made.packed[0]
    made.push(target)
    assert [layer.get("annotations") for layer in pushed_manifest(registry)["layers"]] == [{"a": "b"}, None]


def test_a_layer_twice_in_an_image(store: Store, registry: Registry) -> None:
    made = Made(store, [APP, BASE, APP])
    assert made.push(registry.repository("one"), origin=Origin(made.blobs)).same_digest
    done = made.push(registry.repository("two"))
    assert not done.same_digest
    assert (done.sent, done.there) == (3, 1)


# -- what goes wrong -----------------------------------------------------------------------------------


def test_an_origin_that_dies_in_the_middle_is_an_error(made: Made, registry: Registry) -> None:
    """Half of a blob is out: no other digest is chosen behind the user's back."""
    target = registry.repository("me/new")
    origin = Origin(made.blobs, fails=1, piece=10)
    with pytest.raises(ImageError, match="the registry of the origin died"):
        made.push(target, origin=origin)
    assert origin.closed
    assert registry.manifests == {}


class Unverifying(Repository):
    """A registry that takes what comes, and keeps count of how much that was."""

    def upload(self, digest: str, size: int, chunks: Iterable[bytes]) -> None:
        data = b""
        for chunk in chunks:
            data += chunk
            assert len(data) <= size  # more would be read as the next request
        self.blobs[digest] = data


@pytest.mark.parametrize("end", ["?", "", "xx"])
def test_an_origin_that_gives_other_bytes(made: Made, registry: Registry, end: str) -> None:
    wrong = {digest: data[:-1] + end.encode() for digest, data in made.blobs.items()}
    with pytest.raises(ImageError, match="does not match its digest") as caught:
        made.push(Unverifying(registry, "me/new"), origin=Origin(wrong, piece=100))
    assert "quay.io/from/here:1" in caught.value.message
    assert registry.manifests == {}


@pytest.mark.parametrize("fit", [b"", bytes(100_000)], ids=["nothing", "far too much"])
def test_an_origin_whose_bytes_are_seen_at_once_to_be_wrong(
    made: Made, registry: Registry, fit: bytes
) -> None:
    """Nothing is out yet: the layers are made from the store, which is verified."""
    wrong = dict.fromkeys(made.blobs, fit)
    done = made.push(registry.repository("me/new"), origin=Origin(wrong, piece=1 << 20))
    assert not done.same_digest


@pytest.mark.parametrize("packed", [True, False])
def test_a_layer_that_was_changed_in_the_store_is_not_sent(
    store: Store, registry: Registry, packed: bool
) -> None:
    made = Made(store, [BASE, APP], kind=manifest.OCI_MANIFEST, packed=packed)
    (store.layer(made.image.layers[1].diff_id) / "app").write_bytes(b"b" * 50_000)
    with pytest.raises(StoreError, match="was changed in the store"):
        made.push(registry.repository("me/new"))
    assert registry.manifests == {}
    assert list((store.root / "tmp").iterdir()) == []


def test_a_document_that_was_changed_in_the_store_is_not_sent(made: Made, registry: Registry) -> None:
    made.store.blob(made.image.digest).write_bytes(made.manifest + b" ")
    with pytest.raises(StoreError, match="lacks a document"):
        made.push(registry.repository("me/new"))


def test_a_digest_to_push_to_must_be_the_images(made: Made, registry: Registry) -> None:
    target = registry.repository("me/new")
    with pytest.raises(ImageError, match="its digest would be") as caught:
        made.push(target, to="registry:5000/me/new@sha256:" + "0" * 64)
    assert "tag" in caught.value.remedy
    assert target.blobs == {}
    own = f"registry:5000/me/new@{made.image.digest}"
    with pytest.raises(ImageError, match="its digest would be"):
        made.push(target, to=own)  # its layers would have to be compressed anew
    assert registry.manifests == {}
    assert made.push(target, to=own, origin=Origin(made.blobs)).same_digest
    assert list(registry.manifests) == [f"me/new:{made.image.digest}"]


def test_a_layer_of_unknown_size_is_not_copied(made: Made, registry: Registry) -> None:
    """A registry must be told the size beforehand."""
    document = json.loads(made.manifest)
    for layer in document["layers"]:
        layer["size"] = -1  # as of a docker-archive
    data = json.dumps(document).encode()
    image = Image(digest=sha256(data), layers=made.image.layers, reference=made.image.reference)
    made.store.put_image(image, manifest=data, config=made.config)
    made.image = image
    assert not made.push(registry.repository("me/new"), origin=Origin(made.blobs)).same_digest


def test_a_media_type_that_is_none_never_becomes_a_header(made: Made, registry: Registry) -> None:
    document = json.loads(made.manifest)
    del document["mediaType"]
    data = json.dumps(document).encode()
    image = Image(digest=sha256(data), layers=made.image.layers, reference=made.image.reference)
    made.store.put_image(image, manifest=data, config=made.config)
    made.image = image
    target = registry.repository("me/new")
    target.blobs.update(made.blobs)
    assert made.push(target).same_digest
    assert registry.manifests["me/new:2"][1] == manifest.OCI_MANIFEST
