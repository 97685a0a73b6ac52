"""Digests that do not hold: wherever an image comes from."""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from archives import entry, oci_files, put, tar_of
from images import tar
from registries import INDEX, MANIFEST, FakeRegistry, answer, pack, sha256

from bareboat_base.errors import BareboatError, ImageError
from bareboat_images.oci.reference import Transport, parse
from bareboat_images.oci.source import Source
from bareboat_images.registry.client import open_registry
from bareboat_images.registry.options import Options
from bareboat_images.store import Store
from bareboat_images.tar.limits import Limits
from bareboat_images.transfer import pull
from bareboat_images.transfer.local import open_local
from bareboat_images.transfer.options import PullOptions

pytestmark = pytest.mark.one_in(4)

TAR = tar({"data": b"good\n"})
BAD = tar({"data": b"evil\n"})
PLACES = ("layout", "archive", "registry")
REPOSITORY = "team/app"
PLATFORM = {"architecture": "amd64", "os": "linux"}


def digest(data: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"


@dataclass(frozen=True)
class Digested:
    """The image's blobs by digest; the digests of its parts, and of the top, an index."""

    blobs: dict[str, bytes]
    names: dict[str, str]

    @property
    def digest(self) -> str:
        return self.names["manifest"]

    def files(self) -> dict[str, bytes]:
        """The files of an OCI layout."""
        name = self.names["index"]
        top = {"mediaType": INDEX, "digest": name, "size": len(self.blobs[name])}
        blobs = {"blobs/" + name.replace(":", "/"): data for name, data in self.blobs.items()}
        return oci_files([], [top]) | blobs

    def serve(self, fake: FakeRegistry) -> str:
        """Put the image into a registry; return its reference, with the digest of the index."""
        fake.blobs |= self.blobs
        for name, kind in ((self.names["index"], INDEX), (self.names["manifest"], MANIFEST)):
            fake.manifests[name] = (self.blobs[name], kind)
        return f"{fake.address}/{REPOSITORY}@{self.names['index']}"


def index_of(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()


def make(data: bytes) -> Digested:
    """An image of one layer."""
    image = pack(data, architecture="amd64")
    index = index_of(entry(image, platform=PLATFORM))
    names = {
        "diff_id": sha256(data), "layer": sha256(image.layers[0]), "config": sha256(image.config),
        "manifest": image.digest, "index": sha256(index),
    }  # fmt: skip
    return Digested(blobs=image.blobs | {names["index"]: index}, names=names)


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry() as registry:
        yield registry


def options() -> Options:
    environment = {"HOME": "/nowhere", "XDG_RUNTIME_DIR": "/nowhere"}
    return Options(environment=environment, plain_http=True, backoff_s=0.001)


def opened(image: Digested, place: str, folder: Path, fake: FakeRegistry) -> tuple[Source, str]:
    """The image in a place, and its reference in full."""
    if place == "registry":
        reference = image.serve(fake)
        return open_registry(fake.address, REPOSITORY, image.names["index"], options=options()), reference
    if place == "layout":
        put(folder / "layout", image.files())
        return open_local(folder / "layout", Transport.OCI), f"oci:{folder}/layout"
    (folder / "image.tar").write_bytes(tar_of(image.files()))
    return open_local(folder / "image.tar", Transport.OCI_ARCHIVE), f"oci-archive:{folder}/image.tar"


def bring(image: Digested, place: str, folder: Path, fake: FakeRegistry, store: Store) -> str:
    source, reference = opened(image, place, folder, fake)
    with contextlib.closing(source):
        return pull.pull(
            source, store, reference=reference, options=PullOptions(machine="x86_64", limits=Limits())
        ).image.digest


def refused(image: Digested, place: str, folder: Path, fake: FakeRegistry, store: Store) -> str:
    """What the error says; nothing that a job could use is in the store."""
    with pytest.raises(BareboatError) as caught:
        bring(image, place, folder, fake, store)
    assert store.images() == []
    assert not any((store.root / "layers").glob("*/*"))
    return "\n".join((caught.value.message, caught.value.context, caught.value.remedy))


@pytest.mark.parametrize("place", PLACES)
def test_a_good_image_is_taken(place: str, tmp_path: Path, fake: FakeRegistry, store: Store) -> None:
    image = make(TAR)
    assert bring(image, place, tmp_path, fake, store) == image.digest


def changed(image: Digested, part: str, how: str) -> Digested:
    """The image with other bytes under the digest of a part."""
    name = image.names[part]
    data = image.blobs[name]
    other = {
        "flipped": lambda: data[:-2] + bytes([data[-2] ^ 1]) + data[-1:],
        "cut": lambda: data[:-1],
        "longer": lambda: data + b" ",
        "empty": lambda: b"",
        "another": lambda: make(BAD).blobs[make(BAD).names[part]],
    }[how]()
    return Digested(blobs=image.blobs | {name: other}, names=image.names)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", ["flipped", "cut", "longer", "empty", "another"])
@pytest.mark.parametrize("part", ["index", "manifest", "config", "layer"])
def test_changed_content_is_refused(
    place: str, how: str, part: str, tmp_path: Path, fake: FakeRegistry, store: Store
) -> None:
    image = changed(make(TAR), part, how)
    said = refused(image, place, tmp_path, fake, store)
    assert "not a SHA-256" not in said
    assert "sha256:" in said


@pytest.mark.parametrize("place", PLACES)
def test_a_layer_that_unpacks_to_another_tar_is_refused(
    place: str, tmp_path: Path, fake: FakeRegistry, store: Store
) -> None:
    """The config of one image with the layer of another, in a manifest that fits them both."""
    good, bad = (make(each) for each in (TAR, BAD))
    manifest = json.loads(good.blobs[good.digest])
    manifest["layers"] = json.loads(bad.blobs[bad.digest])["layers"]
    said = refused(with_manifest(good, bad.blobs, manifest), place, tmp_path, fake, store)
    assert "does not match the image's config" in said
    assert f"expected {good.names['diff_id']}, unpacked {bad.names['diff_id']}" in said


def with_manifest(image: Digested, blobs: dict[str, bytes], manifest: Any) -> Digested:
    """The image with another manifest, and an index that lists it."""
    data = json.dumps(manifest).encode()
    names = image.names | {"manifest": digest(data)}
    listed = {"mediaType": MANIFEST, "digest": names["manifest"], "size": len(data), "platform": PLATFORM}
    index = index_of(listed)
    names["index"] = digest(index)
    return Digested(blobs=image.blobs | blobs | {names["manifest"]: data, names["index"]: index}, names=names)


ONE = make(TAR)
#: What stands where a digest should be: of the same content by an algorithm that is not taken, or misspelt.
NAMES = {
    "sha384": lambda data: digest(data, "sha384"),
    "sha1": lambda data: digest(data, "sha1"),
    "md5": lambda data: digest(data, "md5"),
    "sha3": lambda data: "sha3-512:" + digest(data, "sha3_512").partition(":")[2],
    "sha512": lambda data: digest(data, "sha512"),
    "capitals": lambda data: "sha256:" + digest(data)[7:].upper(),
    "capital name": lambda data: "SHA256:" + digest(data)[7:],
    "half": lambda data: digest(data)[: 7 + 32],
    "128 digits": lambda data: "sha256:" + digest(data, "sha512")[7:],
    "a digit less": lambda data: digest(data)[:-1],
    "a digit more": lambda data: digest(data) + "0",
    "a line more": lambda data: digest(data) + "\n",
    "a blank before": lambda data: " " + digest(data),
    "a path": lambda _: "sha256:" + "../" * 20 + "abcd",
    "a dash": lambda data: digest(data).replace(":", "-"),
    "no algorithm": lambda data: digest(data)[7:],
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("part", ["manifest", "config", "layer", "diff_id"])
@pytest.mark.parametrize("kind", NAMES)
def test_other_names_of_content_are_refused(
    kind: str, part: str, place: str, tmp_path: Path, fake: FakeRegistry, store: Store
) -> None:
    """All else in the image fits, and the content is there under the name as well."""
    image = make(TAR)
    data = TAR if part == "diff_id" else image.blobs[image.names[part]]
    name = NAMES[kind](data)
    more = {name: data} if "/" not in name and "\n" not in name else {}
    if part == "manifest":
        index = json.loads(image.blobs[image.names["index"]])
        index["manifests"][0]["digest"] = name
        made = json.dumps(index).encode()
        names = image.names | {"index": digest(made)}
        found = Digested(blobs=image.blobs | more | {names["index"]: made}, names=names)
    else:
        manifest = json.loads(image.blobs[image.digest])
        if part == "diff_id":
            config = json.loads(image.blobs[image.names["config"]])
            config["rootfs"]["diff_ids"] = [name]
            made = json.dumps(config).encode()
            more = {digest(made): made}
            manifest["config"] |= {"digest": digest(made), "size": len(made)}
        else:
            (manifest["config"] if part == "config" else manifest["layers"][0])["digest"] = name
        found = with_manifest(image, more, manifest)
    said = refused(found, place, tmp_path, fake, store)
    assert "is not a SHA-256 digest" in said
    assert "content is verified by SHA-256" in said


@pytest.mark.parametrize("kind", NAMES)
def test_a_reference_with_another_name_is_refused(kind: str, store: Store, fake: FakeRegistry) -> None:
    name = NAMES[kind](b"x")
    with pytest.raises(BareboatError):
        parse(f"{fake.address}/{REPOSITORY}@{name}", folder="/")
    with pytest.raises(BareboatError, match=r"is not a digest"):
        store.layer(name)
    if ":" in name:
        with pytest.raises(BareboatError, match=r"neither a tag nor a digest"):
            open_registry(fake.address, REPOSITORY, name, options=options())
    assert not fake.asked


def answers(good: Digested, bad: Digested) -> dict[str, bytes]:
    return {
        "another manifest": bad.blobs[bad.digest],
        "its config": good.blobs[good.names["config"]],
        "its index": good.blobs[good.names["index"]],
        "nothing": b"",
    }


@pytest.mark.parametrize("what", answers(ONE, ONE))
@pytest.mark.parametrize("told", ["asked", "sent", "none"])
def test_a_digest_answered_with_other_content_is_refused(what: str, told: str, fake: FakeRegistry) -> None:
    """Whatever digest the registry names beside it, and however well that fits."""
    good, bad = make(TAR), make(BAD)
    data = answers(good, bad)[what]
    headers = {
        "asked": {"Docker_Content_Digest": good.digest},
        "sent": {"Docker_Content_Digest": digest(data)},
        "none": {},
    }[told]
    fake.when("GET .*/manifests/", answer(200, data, Content_Type=MANIFEST, **headers))
    with (
        open_registry(fake.address, REPOSITORY, good.digest, options=options()) as source,
        pytest.raises(ImageError, match="does not match its digest") as caught,
    ):
        source.document()
    assert f"expected {good.digest}" in caught.value.context


# What is around the value of a header is not part of it.
@pytest.mark.parametrize("kind", [kind for kind in NAMES if kind not in ("a line more", "a blank before")])
def test_a_tag_answered_with_another_name_is_refused(kind: str, fake: FakeRegistry) -> None:
    data = ONE.blobs[ONE.digest]
    name = NAMES[kind](data)
    fake.when("GET .*/manifests/", answer(200, data, Content_Type=MANIFEST, Docker_Content_Digest=name))
    with (
        open_registry(fake.address, REPOSITORY, "1", options=options()) as source,
        pytest.raises(ImageError, match="is not a SHA-256 digest"),
    ):
        source.document()


@pytest.mark.parametrize("right", [True, False])
def test_a_tag_has_the_digest_that_the_registry_names_if_it_holds(right: bool, fake: FakeRegistry) -> None:
    data = ONE.blobs[ONE.digest]
    told = digest(data if right else data + b" ")
    fake.when(
        "(GET|HEAD) .*/manifests/", answer(200, data, Content_Type=MANIFEST, Docker_Content_Digest=told)
    )
    with open_registry(fake.address, REPOSITORY, "1", options=options()) as source:
        if right:
            assert source.document().digest == told == source.head_digest()
            return
        with pytest.raises(ImageError, match="does not match its digest"):
            source.document()


@pytest.mark.parametrize("part", ["manifest", "config", "layer", "index"])
@pytest.mark.parametrize("kind", ["sha512", "sha384", "SHA256", "sha256/..", "sha256/x"])
def test_content_below_the_folder_of_another_algorithm_is_not_taken(
    part: str, kind: str, tmp_path: Path, store: Store
) -> None:
    files = dict(ONE.files())
    name = "blobs/" + ONE.names[part].replace(":", "/")
    files[name.replace("blobs/sha256/", f"blobs/{kind}/")] = files.pop(name)
    (tmp_path / "image.tar").write_bytes(tar_of(files))

    def read() -> None:
        source = open_local(tmp_path / "image.tar", Transport.OCI_ARCHIVE)
        pull.pull(
            source, store, reference="oci-archive:x", options=PullOptions(machine="x86_64", limits=Limits())
        )

    with pytest.raises(BareboatError) as caught:
        read()
    assert f"lacks {ONE.names[part]}" in caught.value.message
    assert store.images() == []


@pytest.mark.parametrize("what", ["manifest", "config"])
def test_a_document_that_changed_in_the_store_is_found(
    what: str, tmp_path: Path, fake: FakeRegistry, store: Store
) -> None:
    from bareboat_images.transfer import export
    from bareboat_images.upkeep.verification import verify

    bring(ONE, "layout", tmp_path, fake, store)
    image = store.image(ONE.digest)
    assert verify(store, image).ok
    path = store.blob(ONE.names[what])
    path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(b"linux", b"Linux") + b" ")
    assert not verify(store, image).ok
    with pytest.raises(BareboatError, match="was changed there"):
        export.save_archive(store, image, tmp_path / "x.tar", name="x")


def test_an_index_that_changed_in_the_store_covers_nothing(
    tmp_path: Path, fake: FakeRegistry, store: Store
) -> None:
    from bareboat_images import pinning

    bring(ONE, "registry", tmp_path, fake, store)
    outer, inner = ONE.names["index"], ONE.digest
    assert pinning.chain(outer, inner, store.document) == (ONE.blobs[outer],)
    path = store.blob(outer)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes() + b" ")
    assert pinning.chain(outer, inner, store.document) is None


def test_a_part_that_was_damaged_is_fetched_anew(tmp_path: Path, fake: FakeRegistry, store: Store) -> None:
    part = store.part(ONE.names["layer"])
    part.parent.mkdir(parents=True)
    part.write_bytes(b"\0" * 10)
    assert bring(ONE, "registry", tmp_path, fake, store) == ONE.digest
    assert not part.exists()


def test_a_part_goes_on_where_it_broke(tmp_path: Path, fake: FakeRegistry, store: Store) -> None:
    part = store.part(ONE.names["layer"])
    part.parent.mkdir(parents=True)
    part.write_bytes(ONE.blobs[ONE.names["layer"]][:40])
    bring(ONE, "registry", tmp_path, fake, store)
    asked = fake.counted(f"GET .*/blobs/{ONE.names['layer']}")
    assert [each.headers.get("range") for each in asked] == ["bytes=40-"]


@pytest.mark.parametrize("damage", ["cut", "another"])
def test_a_damaged_copy_of_a_mirror_is_passed_over(damage: str) -> None:
    with FakeRegistry() as fake, FakeRegistry() as mirror:
        ONE.serve(fake)
        changed(ONE, "manifest", damage).serve(mirror)
        chosen = replace(options(), mirrors=(mirror.url,))
        with open_registry(fake.address, REPOSITORY, ONE.digest, options=chosen) as source:
            assert source.document().data == ONE.blobs[ONE.digest]
