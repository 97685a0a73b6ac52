"""Bundles by strangers: their names bind nothing, and nothing in them changes under a digest."""

import gzip
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import forked
import images
import pytest
from archives import docker_files, entry, oci_files, put, tar_of
from buildah import storage
from registries import INDEX, MANIFEST, RealRegistry, sha256
from tools import completed_bytes, output, tool

from bareboat.captures.build import config_of
from bareboat.model import Image, Pin
from bareboat_base import architectures, codec
from bareboat_base.errors import BareboatError, ImageError, StoreError
from bareboat_images import pinning
from bareboat_images.registry.options import Options
from bareboat_images.registry.pusher import open_pusher
from bareboat_images.store import Store
from bareboat_images.tar.limits import Limits
from bareboat_images.transfer import export, locate
from bareboat_images.transfer.options import PullOptions
from bareboat_images.transfer.pull import obtain

pytestmark = pytest.mark.one_in(8)

OTHER = sha256(b"another image")
MACHINE = architectures.oci(os.uname().machine)


def packed(text: bytes = b"mine") -> images.Packed:
    return images.pack(images.tar({"data": None, "data/file": text, "etc": None}), architecture=MACHINE)


def index_of(manifest: bytes) -> bytes:
    platform = {"os": "linux", "architecture": MACHINE}
    listed = {"mediaType": MANIFEST, "digest": sha256(manifest), "size": len(manifest), "platform": platform}
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [listed]}).encode()


def write_bundle(
    path: Path,
    image: images.Packed,
    pins: list[dict[str, str]] | None = None,
    *,
    documents: dict[str, bytes] | None = None,
    tars: tuple[bytes, ...] | None = None,
    **replaced: bytes,
) -> Path:
    """A bundle as a stranger writes it. `documents`: digest -> bytes that lie under it; `tars`: uncompressed
    layers in the place of the compressed ones."""
    files = oci_files([image], [entry(image)])
    if tars is not None:
        files = {name: data for name, data in files.items() if data not in image.layers}
        files |= {_path(named): each for named, each in zip(image.diff_ids, tars, strict=True)}
    files |= {_path(digest): data for digest, data in (documents or {}).items()}
    if pins is not None:
        files["bareboat/pins.json"] = json.dumps(pins).encode()
    folders = dict.fromkeys(("blobs", "blobs/sha256", "bareboat"))
    path.write_bytes(images.tar({**folders, **files, **replaced}))
    return path


def _path(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def pin_of(reference: str, digest: str, root: str | None = None) -> dict[str, str]:
    return {"reference": reference, "digest": digest, "root": root or digest, "pinned_at": "2026-01-01"}


class Desk:
    """`bareboat …` with a store of the test's own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.store = Store(folder / "store")

    def __call__(self, *arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = forked.run(
            *arguments,
            env=os.environ | {"BAREBOAT_STORE": str(self.store.root), "HOME": str(self.folder)},
            cwd=self.folder,
            timeout_s=120,
        )
        assert "Traceback" not in done.stderr
        assert done.returncode == code, done.stderr
        return done

    def found(self, reference: str) -> Image | None:
        """What a job with this image would run, if it is here."""
        try:
            return locate.in_store(reference, self.store, folder=str(self.folder))
        except BareboatError:
            return None


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "desk")


# -- what a bundle calls its image ---------------------------------------------------------------------

TAGS = [
    "docker.io/library/debian:12",
    "docker.io/library/python:latest",
    "quay.io/org/app:v1",
    "nvcr.io/nvidia/pytorch:24.05-py3",
    "localhost:5000/a/b:c",
]
FALSE = [
    f"docker.io/library/debian@{OTHER}",
    f"docker.io/library/debian:12@{OTHER}",
    f"quay.io/org/app@{OTHER}",
    f"127.0.0.1:5000/a@{OTHER}",
    f"oci:/srv/images:{OTHER}",
    f"oci-archive:/srv/image.tar:name@{OTHER}",
    f"docker-archive:/srv/image.tar:{OTHER}",
    "oci-archive:/srv/image.tar",
    "sif:/srv/torch.sif",
    "squashfs:/srv/torch.sqsh",
    "rootfs:/srv/tree",
    "/srv/a:b/image.tar",
    "debian:12",
    "docker://docker.io/library/debian:12",
    "pytorch",
    "capture",
    OTHER,
    OTHER.removeprefix("sha256:"),
    "docker.io/library/debian:12\nquay.io/x:1",
    "\x1b]0;owned\x07",
    "",
    "../../names/pytorch",
]


@pytest.mark.parametrize("reference", TAGS)
@pytest.mark.parametrize("written", ["own", "other"])
def test_a_tag_of_a_bundle_binds_nothing_until_the_user_says_so(
    desk: Desk, tmp_path: Path, reference: str, written: str
) -> None:
    image = packed()
    digest = image.digest if written == "own" else OTHER
    bundle = write_bundle(tmp_path / "app.tar", image, [pin_of(reference, digest)])
    said = desk("image", "load", bundle)
    assert image.digest in said.stdout
    assert desk.found(reference) is None
    assert reference in said.stderr
    assert f"bareboat image load {bundle} --bind-tags" in said.stderr
    desk("image", "load", bundle, "--bind-tags")
    bound = desk.found(reference)
    assert bound is not None
    assert bound.digest == image.digest


@pytest.mark.parametrize("reference", FALSE)
@pytest.mark.parametrize("flags", [(), ("--bind-tags",)])
def test_what_is_not_the_image_of_a_bundle_is_never_bound(
    desk: Desk, tmp_path: Path, reference: str, flags: tuple[str, ...]
) -> None:
    image = packed()
    bundle = write_bundle(tmp_path / "app.tar", image, [pin_of(reference, image.digest)])
    said = desk("image", "load", bundle, *flags)
    assert "which is not this image" in said.stderr
    assert "\x1b" not in said.stderr
    assert desk.found(reference) is None
    assert {pin.reference for pin in desk.store.pins()} == {f"oci-archive:{bundle}"}
    assert desk.store.names() == {}


def test_a_digest_that_is_the_image_s_is_bound_without_a_question(desk: Desk, tmp_path: Path) -> None:
    image = packed()
    index = index_of(image.manifest)
    references = [f"quay.io/org/app@{image.digest}", f"quay.io/org/app:1@{sha256(index)}"]
    bundle = write_bundle(
        tmp_path / "app.tar",
        image,
        [pin_of(each, OTHER) for each in references],
        documents={sha256(index): index},
    )
    said = desk("image", "load", bundle)
    assert "note" not in said.stderr
    for each in references:
        bound = desk.found(each)
        assert bound is not None
        assert bound.digest == image.digest


def forged_indexes() -> dict[str, Callable[[images.Packed], tuple[str, dict[str, bytes]]]]:
    """Name -> a digest that does not cover the image, and what a bundle puts under it."""
    real = index_of(packed(b"other").manifest)

    def under(data: bytes) -> tuple[str, dict[str, bytes]]:
        return sha256(data), {sha256(data): data}

    return {
        "not there": lambda _image: (sha256(real), {}),
        "of another image": lambda _image: under(real),
        "other bytes": lambda image: (sha256(real), {sha256(real): index_of(image.manifest)}),
        "no JSON": lambda image: under(image.digest.encode()),
        "the digest in a text": lambda image: under(json.dumps({"comment": image.digest}).encode()),
        "the digest in an annotation": lambda image: under(
            json.dumps({"manifests": [{"digest": OTHER, "annotations": {"digest": image.digest}}]}).encode()
        ),
        "another manifest's layer": lambda image: under(
            json.dumps({"layers": [{"digest": image.digest}], "manifests": []}).encode()
        ),
        "a config": lambda image: (sha256(image.config), {}),
        "a layer": lambda image: (sha256(image.layers[0]), {}),
        "a diff-id": lambda image: (image.diff_ids[0], {}),
        "deep": lambda image: under(b"[" * 200_000 + image.digest.encode()),
        "a list": lambda image: under(json.dumps([{"digest": image.digest}]).encode()),
        "numbers": lambda _image: under(b'{"manifests": [{"digest": 1}]}'),
        "itself": lambda _image: (OTHER, {OTHER: json.dumps({"manifests": [{"digest": OTHER}]}).encode()}),
        "empty": lambda _image: (OTHER, {OTHER: b""}),
        "late in a long list": lambda image: under(
            json.dumps(
                {
                    "manifests": [{"digest": sha256(b"%d" % n)} for n in range(2000)]
                    + [{"digest": image.digest}]
                }
            ).encode()
        ),
    }


@pytest.mark.parametrize("kind", forged_indexes())
def test_an_index_that_does_not_list_the_image_proves_nothing(desk: Desk, tmp_path: Path, kind: str) -> None:
    image = packed()
    outer, documents = forged_indexes()[kind](image)
    reference = f"docker.io/library/debian@{outer}"
    pins = [
        pin_of(reference, image.digest, outer),
        pin_of("docker.io/library/debian:12", image.digest, outer),
    ]
    bundle = write_bundle(tmp_path / "app.tar", image, pins, documents=documents)
    desk("image", "load", bundle, "--bind-tags")
    assert desk.found(reference) is None
    # A later pull would take the tag to be current by its root.
    tag = desk.store.pinned("docker.io/library/debian:12")
    assert tag is not None
    assert tag.root == image.digest


@pytest.mark.parametrize("count", [101, 4000])
def test_a_bundle_with_names_without_end_is_refused(desk: Desk, tmp_path: Path, count: int) -> None:
    image = packed()
    pins = [pin_of(f"quay.io/o/a:{n}", image.digest) for n in range(count)]
    bundle = write_bundle(tmp_path / "app.tar", image, pins)
    desk("image", "load", bundle, "--bind-tags", code=6)
    assert [pin.reference for pin in desk.store.pins()] == [f"oci-archive:{bundle}"]


# -- the store itself ----------------------------------------------------------------------------------


def loaded(store: Store, tmp_path: Path, image: images.Packed, name: str = "x.tar") -> Image:
    found = locate.read(f"oci-archive:{write_bundle(tmp_path / name, image)}", folder="/")
    return obtain(found, store, PullOptions(machine=os.uname().machine, limits=Limits())).image


DIGESTED = [each for each in FALSE if OTHER in each and each != OTHER and "@" in each]


@pytest.mark.parametrize("reference", DIGESTED)
def test_the_store_takes_no_pin_with_another_s_digest(tmp_path: Path, reference: str) -> None:
    store = Store(tmp_path / "store")
    image = loaded(store, tmp_path, packed())
    pin = Pin(reference=reference, digest=image.digest, root=OTHER, pinned_at="now")
    with pytest.raises(StoreError, match="does not match the image"):
        store.pin(pin)
    store.write(store.pin_file(reference), codec.to_json(pin))  # by an earlier Bareboat, or another's hand
    assert store.pinned(reference) is None
    assert locate.in_store("docker.io/library/debian:1", store, folder="/") is None


def test_a_pin_is_of_the_reference_that_it_is_kept_for(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    image = loaded(store, tmp_path, packed())
    pin = Pin(reference="quay.io/o/a:1", digest=image.digest, root="", pinned_at="now")
    store.write(store.pin_file("docker.io/library/debian:12"), codec.to_json(pin))
    assert store.pinned("docker.io/library/debian:12") is None


def test_an_entry_of_the_store_is_of_its_own_image(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    one, two = loaded(store, tmp_path, packed()), loaded(store, tmp_path, packed(b"b"), "y.tar")
    store.write(store.entry(one.digest), codec.to_json(two))
    with pytest.raises(StoreError, match="another image"):
        store.image(one.digest)


@pytest.mark.parametrize(
    ("reference", "digest"),
    [
        (f"docker.io/library/debian@{OTHER}", OTHER),
        (f"docker.io/library/debian:12@{OTHER}", OTHER),
        (f"oci:/a:{OTHER}", OTHER),
        (f"oci:/a:name@{OTHER}", OTHER),
        (f"oci-archive:/a.tar:{OTHER}", OTHER),
        (f"docker-archive:/a.tar:x:1@{OTHER}", OTHER),
        ("docker.io/library/debian:12", None),
        ("oci:/a", None),
        (f"rootfs:/data/x@{OTHER}", None),
        (f"/a:b/x@{OTHER}", None),
    ],
)
def test_the_digest_of_a_reference(reference: str, digest: str | None) -> None:
    assert pinning.digest_in(reference) == digest


@pytest.mark.parametrize("where", ["folder", "archive"])
@pytest.mark.parametrize("claim", [OTHER, f"name@{OTHER}"])
def test_a_layout_cannot_call_its_image_by_another_s_digest(tmp_path: Path, where: str, claim: str) -> None:
    image = packed()
    files = oci_files([image], [entry(image, claim)])
    path = tmp_path / "x.tar"
    path.write_bytes(tar_of(files))
    reference = f"oci-archive:{path}:{claim}"
    if where == "folder":
        reference = f"oci:{put(tmp_path / 'layout', files)}:{claim}"
    store = Store(tmp_path / "store")
    found = locate.read(reference, folder="/")
    with pytest.raises(ImageError):
        obtain(found, store, PullOptions(machine=os.uname().machine, limits=Limits()))
    assert store.pins() == []


def test_a_docker_archive_cannot_call_its_image_by_another_s_digest(tmp_path: Path) -> None:
    image = packed()
    claim = f"docker.io/library/debian@{OTHER}"
    (tmp_path / "x.tar").write_bytes(tar_of(docker_files((image, [claim]))))
    found = locate.read(f"docker-archive:{tmp_path / 'x.tar'}:{claim}", folder="/")
    store = Store(tmp_path / "store")
    with pytest.raises(ImageError, match="does not match its digest"):
        obtain(found, store, PullOptions(machine=os.uname().machine, limits=Limits()))


# -- tars in the place of compressed layers ------------------------------------------------------------


def damages() -> dict[str, Callable[[bytes], bytes]]:
    other = images.tar({"data": None, "data/file": b"evil", "etc": None})
    return {
        "another layer": lambda _tar: other,
        "one byte": lambda tar: tar.replace(b"mine", b"evil"),
        "cut": lambda tar: tar[: len(tar) // 2],
        "empty": lambda _tar: b"",
        "longer": lambda tar: tar + bytes(512),
        "one zero more": lambda tar: tar + b"\0",
        "compressed": lambda tar: gzip.compress(tar, mtime=0),
        "two": lambda tar: tar + other,
    }


@pytest.mark.parametrize("damage", damages())
def test_a_tar_that_the_config_does_not_name_is_refused(desk: Desk, tmp_path: Path, damage: str) -> None:
    image = packed()
    bundle = write_bundle(tmp_path / "app.tar", image, tars=(damages()[damage](image.tars[0]),))
    desk("image", "load", bundle, code=6)
    assert desk.store.images() == []


@pytest.mark.parametrize("what", ["manifest", "config"])
@pytest.mark.parametrize("how", ["one byte", "another's", "cut", "gone"])
def test_documents_that_their_digests_do_not_name_are_refused(
    desk: Desk, tmp_path: Path, what: str, how: str
) -> None:
    image, other = packed(), packed(b"evil")
    data = getattr(image, what)
    digest = image.digest if what == "manifest" else sha256(image.config)
    changed = {
        "one byte": data.replace(b"linux", b"linuX").replace(b"schema", b"Schema"),
        "another's": getattr(other, what),
        "cut": data[:-1],
        "gone": b"",
    }[how]
    bundle = write_bundle(tmp_path / "app.tar", image, tars=image.tars, documents={digest: changed})
    desk("image", "load", bundle, code=6)
    assert desk.store.images() == []


# -- the digest across the air gap ---------------------------------------------------------------------


def upload(registry: RealRegistry, name: str, *packs: images.Packed) -> tuple[str, str]:
    """An image, and an index of it, in a registry; the reference and the index's digest."""
    for each in packs:
        images.upload(registry, each, f"{name}:single")
    index = index_of(packs[0].manifest)
    with open_pusher(registry.address, name, options=Options(environment={}, plain_http=True)) as pusher:
        pusher.put_manifest("1", index, INDEX)
    return f"{registry.address}/{name}", sha256(index)


def inspected(path: Path) -> str:
    return output(tool("skopeo"), "inspect", "--format", "{{.Digest}}", f"oci-archive:{path}").strip()


@pytest.mark.parametrize("blobs", ["fetched", "kept", "gone"])
@pytest.mark.parametrize("by", ["tag", "manifest", "index"])
def test_the_digest_stays_across_the_air_gap(
    tmp_path: Path, registry: RealRegistry, blobs: str, by: str
) -> None:
    """Pulled, saved, loaded elsewhere, and once more: the same digest, by the same reference."""
    image = packed(f"{blobs} {by}".encode())
    name, index = upload(registry, f"gap/{blobs}-{by}", image)
    reference = {"tag": f"{name}:1", "manifest": f"{name}@{image.digest}", "index": f"{name}@{index}"}[by]
    here, there, further = (Desk(tmp_path / each) for each in ("here", "there", "further"))
    here("image", "pull", "--plain-http", reference, *(["--keep-blobs"] if blobs == "kept" else []))
    bundle = tmp_path / "app.tar"
    reached = ("--plain-http",) if blobs == "fetched" else ("--no-fetch",)
    said = here("image", "save", reference, bundle, *reached)
    assert image.digest in said.stdout
    assert ("other tools cannot read" in said.stderr) == (blobs == "gone")
    assert inspected(bundle) == image.digest
    copied = completed_bytes(
        [tool("skopeo"), "copy", "-q", f"oci-archive:{bundle}", f"oci:{tmp_path / 'copy'}:x"]
    )
    assert (copied.returncode == 0) == (blobs != "gone"), copied.stderr
    for desk, file in ((there, bundle), (further, tmp_path / "again.tar")):
        desk("image", "load", file, "--bind-tags")
        found = desk.found(reference)
        assert found is not None
        assert found.digest == image.digest
        data = desk.store.blob(image.digest).read_bytes()
        assert data == image.manifest
        # The image has no program; what /proc shows is not looked up before the start.
        (desk.folder / "job.toml").write_text(f'image = "{reference}"\ncommand = ["/proc/self/exe"]\n')
        desk("plan", "job.toml")
        desk("image", "rm", "--unused")
        assert desk.found(reference) == found
        desk("image", "verify", reference)
        if desk is there:
            desk("image", "save", reference, tmp_path / "again.tar")


@pytest.mark.parametrize("transport", ["docker-archive", "oci-archive"])
def test_another_tool_s_archive_keeps_its_digest(tmp_path: Path, transport: str) -> None:
    """By skopeo, from a layout; loaded, saved, loaded again."""
    image = packed(transport.encode())
    layout = write_bundle(tmp_path / "first.tar", image)
    made = tmp_path / "made.tar"
    output(tool("skopeo"), "copy", "-q", f"oci-archive:{layout}", f"{transport}:{made}:a:1")
    here, there = Desk(tmp_path / "here"), Desk(tmp_path / "there")
    first = json.loads(here("image", "load", made, "--json").stdout)["image"]["digest"]
    here("image", "save", first, tmp_path / "bundle.tar")
    assert inspected(tmp_path / "bundle.tar") == first
    second = json.loads(there("image", "load", tmp_path / "bundle.tar", "--json").stdout)["image"]["digest"]
    assert first == second


def test_another_digest_is_written_only_when_it_is_asked_for(tmp_path: Path, registry: RealRegistry) -> None:
    image = packed(b"rewritten")
    name, _ = upload(registry, "gap/rewritten", image)
    here = Desk(tmp_path / "here")
    here("image", "pull", "--plain-http", f"{name}:1")
    target = f"oci-archive:{tmp_path / 'x.tar'}"
    refused = here("image", "save", f"{name}:1", target, "--no-fetch", code=6)
    assert "digest cannot be kept" in refused.stderr
    assert "--rewrite" in refused.stderr
    assert not (tmp_path / "x.tar").exists()
    said = here("image", "save", f"{name}:1", target, "--rewrite")
    assert f"the digest differs from {image.digest}" in said.stderr
    assert inspected(tmp_path / "x.tar") in said.stdout
    (tmp_path / "x.tar").unlink()
    here("image", "save", f"{name}:1", target, "--plain-http")
    assert inspected(tmp_path / "x.tar") == image.digest
    said = here("image", "save", f"{name}:1", tmp_path / "y.tar", "--rewrite")
    assert f"the digest differs from {image.digest}" in said.stderr
    assert inspected(tmp_path / "y.tar") in said.stdout


@pytest.mark.parametrize("how", ["one byte", "cut", "gone"])
def test_a_kept_blob_that_was_changed_goes_into_no_archive(
    tmp_path: Path, registry: RealRegistry, how: str
) -> None:
    image = packed(f"kept {how}".encode())
    name, _ = upload(registry, f"gap/kept-{how.replace(' ', '-')}", image)
    here = Desk(tmp_path / "here")
    here("image", "pull", "--plain-http", "--keep-blobs", f"{name}:1")
    blob = here.store.blob(sha256(image.layers[0]))
    data = blob.read_bytes()
    assert data == image.layers[0]
    if how == "gone":
        blob.unlink()
    else:
        blob.write_bytes(data[:-1] + (b"" if how == "cut" else b"!"))
    said = here("image", "save", f"{name}:1", tmp_path / "x.tar", "--no-fetch")
    assert "other tools cannot read" in said.stderr
    there = Desk(tmp_path / "there")
    assert image.digest in there("image", "load", tmp_path / "x.tar").stdout
    here(
        "image", "pull", "--plain-http", "--keep-blobs", f"{name}:1"
    )  # gets what is gone, or has another size
    if how != "one byte":
        assert blob.read_bytes() == image.layers[0]


def test_kept_blobs_go_with_their_image(tmp_path: Path, registry: RealRegistry) -> None:
    image = packed(b"kept and removed")
    name, index = upload(registry, "gap/removed", image)
    here = Desk(tmp_path / "here")
    here("image", "pull", "--plain-http", f"{name}:1")
    here("image", "pull", "--plain-http", "--keep-blobs", f"{name}:1")
    blob = here.store.blob(sha256(image.layers[0]))
    for path in here.store.root.glob("blobs/sha256/*"):
        os.utime(path, (0, 0))
    here("image", "rm", "--unused")
    assert blob.exists()
    assert here.store.blob(index).exists()
    here("image", "rm", f"{name}:1")
    assert os.listdir(here.store.root / "blobs/sha256") == []


def test_a_site_s_layers_and_captures_keep_their_digest(tmp_path: Path) -> None:
    """Bareboat's own manifests name tars, which it can always write again."""
    from stored import image_of

    here, there = Desk(tmp_path / "here"), Desk(tmp_path / "there")
    layers = image_of(here.store, {"etc/passwd": "root"}, {"opt/bareboat/mpi": "mpi"}).layers
    config = config_of(layers, machine=os.uname().machine, environment={"A": "1"})
    image = export.keep(here.store, Image(digest="", layers=layers), config=config)
    said = here("image", "save", image.digest, tmp_path / "x.tar")
    assert "other tools" not in said.stderr
    assert inspected(tmp_path / "x.tar") == image.digest
    assert image.digest in there("image", "load", tmp_path / "x.tar").stdout


def test_podman_loads_a_bundle_under_the_image_s_digest(tmp_path: Path, registry: RealRegistry) -> None:
    image = images.pack(images.busybox(), architecture=MACHINE)
    name, _ = upload(registry, "gap/podman", image)
    here = Desk(tmp_path / "here")
    here("image", "pull", "--plain-http", f"{name}:1")
    here("image", "save", "--plain-http", f"{name}:1", tmp_path / "x.tar")
    with storage() as other:
        other("podman", "load", "-q", "-i", tmp_path / "x.tar")
        assert image.digest in other("podman", "images", "--format", "{{.Digest}}")
