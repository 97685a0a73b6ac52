"""Indexes, manifests and configs as real tools write them."""

import json
from typing import Any

import pytest
from archives import DOCKER_LIST
from builders import fake_digest

from bareboat.model import Process
from bareboat_base.errors import ImageError
from bareboat_images.oci import manifest
from bareboat_images.oci.source import Descriptor, Document

NAME = "quay.io/a/b:1"
A, B, C = (fake_digest(letter) for letter in "abc")


def document(content: Any, media_type: str = "") -> Document:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Document(data=data, media_type=media_type, digest=fake_digest("f"))


def index(*platforms: dict[str, str] | None, **more: Any) -> Document:
    entries = []
    for number, platform in enumerate(platforms):
        entry: dict[str, Any] = {
            "mediaType": manifest.OCI_MANIFEST,
            "digest": f"sha256:{number:064x}",
            "size": 500 + number,
        }
        entries.append(entry if platform is None else entry | {"platform": platform})
    return document({"schemaVersion": 2, "mediaType": manifest.OCI_INDEX, "manifests": entries} | more)


def platform(architecture: str, os: str = "linux", **more: str) -> dict[str, str]:
    return {"architecture": architecture, "os": os, **more}


def chosen(found: Document, machine: str = "x86_64") -> int:
    """Which entry of an index is taken, counted from 0."""
    offered = manifest.platforms(found, name=NAME)
    assert offered is not None
    return int(manifest.choose(offered, machine=machine, name=NAME).digest[7:], 16)


def image(*layers: dict[str, Any], **more: Any) -> Document:
    config = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": A, "size": 7}
    return document({"schemaVersion": 2, "config": config, "layers": list(layers)} | more)


def layer(kind: str = "tar+gzip", **more: Any) -> dict[str, Any]:
    return {
        "mediaType": f"application/vnd.oci.image.layer.v1.{kind}",
        "digest": B,
        "size": 1234,
    } | more


def config(diff_ids: list[str] | None = None, execution: Any = None, **more: Any) -> Document:
    return document(
        {"architecture": "amd64", "os": "linux", "config": execution,
         "rootfs": {"type": "layers", "diff_ids": diff_ids or []}} | more
    )  # fmt: skip


# -- indexes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [manifest.OCI_INDEX, DOCKER_LIST])
def test_an_index_is_told_from_an_image(kind: str) -> None:
    offered = manifest.platforms(
        index(platform("amd64"), platform("arm", variant="v7"), mediaType=kind), name=NAME
    )
    assert offered is not None
    assert [str(each) for each in offered] == ["linux/amd64", "linux/arm/v7"]
    assert offered[1].descriptor == Descriptor(
        media_type=manifest.OCI_MANIFEST, digest=f"sha256:{1:064x}", size=501
    )
    assert manifest.platforms(image(layer()), name=NAME) is None


@pytest.mark.parametrize(
    ("machine", "wanted"),
    [("x86_64", 0), ("aarch64", 1), ("ppc64le", 2), ("riscv64", 3), ("s390x", 4), ("armv7l", 5), ("i686", 6)],
)
def test_every_machine_gets_its_own(machine: str, wanted: int) -> None:
    names = ("amd64", "arm64", "ppc64le", "riscv64", "s390x", "arm", "386")
    assert chosen(index(*(platform(name) for name in names)), machine) == wanted


def test_attestations_and_other_systems_are_passed_over() -> None:
    found = index(platform("unknown", os="unknown"), platform("amd64", os="windows"), platform("amd64"))
    assert chosen(found) == 2


def test_an_index_of_one_image_that_does_not_say_what_it_is_for() -> None:
    assert chosen(index(None)) == 0
    assert chosen(index(None, platform("unknown", os="unknown"))) == 0


# -- manifests -----------------------------------------------------------------------------------------


def test_a_manifest_that_does_not_say_what_it_is() -> None:
    """The media type in the document is optional in OCI 1.0; in Docker's it is not."""
    assert manifest.manifest(image(), name=NAME).media_type == manifest.OCI_MANIFEST
    assert (
        manifest.manifest(image(mediaType="text/html\r\nX: y"), name=NAME).media_type == manifest.OCI_MANIFEST
    )
    served = document(image().data, manifest.DOCKER_MANIFEST)
    assert manifest.manifest(served, name=NAME).media_type == manifest.DOCKER_MANIFEST


def test_sizes_that_nobody_tells_are_refused() -> None:
    bare = {"digest": B}
    with pytest.raises(ImageError, match="does not give the size"):
        manifest.manifest(document({"config": {"digest": A, "size": 1}, "layers": [bare]}), name=NAME)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (document({}), "has no config"),
        (document({"config": {"digest": A}}), "has no layers"),
        (document({"layers": []}), "has no config"),
        (image(layer("tar+gzip+encrypted")), "layer 1 .* is encrypted"),
        (image(layer(), layer(mediaType="application/vnd.in-toto+json")), "layer 2 is of the type"),
        (image(layer(mediaType="application/vnd.dev.cosign.simplesigning.v1+json")), "not an image"),
        (image(layer(mediaType="application/vnd.sylabs.sif.layer.v1.sif")), "not an image"),
        (image(layer(mediaType="application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", urls=["x"])),
         "a Windows image"),
        (image(layer(mediaType="application/vnd.oci.image.layer.nondistributable.v1.tar", urls=["x"])),
         "a Windows image"),
        (image(layer(), manifests=[]), "an index and an image at once"),
    ],
)  # fmt: skip
def test_what_is_no_image(found: Document, says: str) -> None:
    with pytest.raises(ImageError, match=says) as caught:
        manifest.platforms(found, name=NAME) or manifest.manifest(found, name=NAME)
    assert NAME in caught.value.message


@pytest.mark.parametrize("kind", ["tar", "tar+gzip", "tar+zstd"])
def test_every_layer_that_can_be_unpacked_is_taken(kind: str) -> None:
    assert len(manifest.manifest(image(layer(kind), layer(kind)), name=NAME).layers) == 2


# -- configs -------------------------------------------------------------------------------------------


def test_a_config() -> None:
    found = manifest.config(
        config(
            [B, B, C],
            {
                "Env": ["PATH=/bin", "A=b=c", "EMPTY=", "WITHOUT", "=x", "NUL=\0", "A=last"],
                "Entrypoint": ["/entry"],
                "Cmd": ["a", "b c"],
                "WorkingDir": "/srv",
                "User": "1000:100",
                "Labels": {"x": "y"},
            },
            history=[
                {"created_by": "ADD file"},
                {"created_by": "ENV A=b", "empty_layer": True},
                {"created_by": "RUN x\n\t&& y\x1b[2J"},
                {},
            ],
        ),
        name=NAME,
    )
    assert found.diff_ids == (B, B, C)
    assert found.environment == {"PATH": "/bin", "A": "last", "EMPTY": ""}
    assert found.process == Process(
        entrypoint=("/entry",), command=("a", "b c"), workdir="/srv", user="1000:100"
    )
    assert found.comments == ("ADD file", "RUN x  && y [2J", "")
    assert (found.architecture, found.os) == ("amd64", "linux")


@pytest.mark.parametrize("content", [{}, {"rootfs": None}, {"rootfs": {}}, {"name": "chart", "version": "1"}])
def test_the_config_of_a_chart(content: Any) -> None:
    with pytest.raises(ImageError, match="its config names no layers") as caught:
        manifest.config(document(content), name=NAME)
    assert "chart" in caught.value.remedy


def test_a_lone_manifest_is_for_one_machine() -> None:
    found = manifest.config(config(), name=NAME)
    manifest.check_machine(found.architecture, os=found.os, machine="x86_64", name=NAME)
    with pytest.raises(ImageError, match="is an image for linux/amd64, not for linux/arm64") as caught:
        manifest.check_machine(found.architecture, os=found.os, machine="aarch64", name=NAME)
    assert caught.value.remedy
    windows = manifest.config(config(os="windows"), name=NAME)
    with pytest.raises(ImageError, match="is an image for windows/amd64"):
        manifest.check_machine(windows.architecture, os=windows.os, machine="x86_64", name=NAME)
    silent = manifest.config(config(os="", architecture=""), name=NAME)
    manifest.check_machine(silent.architecture, os=silent.os, machine="riscv64", name=NAME)
