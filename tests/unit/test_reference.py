"""References: what users write is read as every other tool reads it, or refused with an example."""

import os
import string
from pathlib import Path

import pytest
from builders import fake_digest, make_image
from hypothesis import given
from hypothesis import strategies as st

from bareboat.model import Pin
from bareboat_base.errors import StoreError, UsageError
from bareboat_images.oci import reference
from bareboat_images.oci.reference import Reference, Transport, parse
from bareboat_images.registry.access import Access, remote_options
from bareboat_images.store import Store
from bareboat_images.transfer import locate

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag", "digest"),
    [
        ("debian", "docker.io", "library/debian", "latest", None),
        ("debian:12", "docker.io", "library/debian", "12", None),
        ("debian:12-slim", "docker.io", "library/debian", "12-slim", None),
        ("pytorch/pytorch", "docker.io", "pytorch/pytorch", "latest", None),
        ("docker.io/debian", "docker.io", "library/debian", "latest", None),
        ("docker.io/library/debian:12", "docker.io", "library/debian", "12", None),
        ("index.docker.io/debian", "docker.io", "library/debian", "latest", None),
        ("registry-1.docker.io/a/b", "docker.io", "a/b", "latest", None),
        ("docker://debian:12", "docker.io", "library/debian", "12", None),
        ("docker://quay.io/a/b:c", "quay.io", "a/b", "c", None),
        ("nvcr.io/nvidia/pytorch:24.05-py3", "nvcr.io", "nvidia/pytorch", "24.05-py3", None),
        (f"quay.io/a/b@{DIGEST}", "quay.io", "a/b", None, DIGEST),
        (f"quay.io/a/b:1@{DIGEST}", "quay.io", "a/b", "1", DIGEST),
        (f"debian@{DIGEST}", "docker.io", "library/debian", None, DIGEST),
        ("localhost/a", "localhost", "a", "latest", None),
        ("localhost:5000/a:b", "localhost:5000", "a", "b", None),
        ("host:5000/a/b/c/d", "host:5000", "a/b/c/d", "latest", None),
        ("127.0.0.1:443/a", "127.0.0.1:443", "a", "latest", None),
        ("[::1]:5000/a", "[::1]:5000", "a", "latest", None),
        ("my-registry.example.org/a.b__c--d/e_f", "my-registry.example.org", "a.b__c--d/e_f", "latest", None),
        # Without a slash, what follows a colon is a tag; and there are images called docker and oci.
        ("localhost:5000", "docker.io", "library/localhost", "5000", None),
        ("docker:24", "docker.io", "library/docker", "24", None),
        ("docker:dind", "docker.io", "library/docker", "dind", None),
        ("oci", "docker.io", "library/oci", "latest", None),
        ("a:" + "t" * 128, "docker.io", "library/a", "t" * 128, None),
    ],
)
def test_registries(text: str, registry: str, repository: str, tag: str | None, digest: str | None) -> None:
    found = parse(text, folder="/work")
    assert found == Reference(
        transport=Transport.REGISTRY, registry=registry, repository=repository, tag=tag, digest=digest
    )
    assert found.wanted == (digest or tag)
    assert parse(str(found), folder="/elsewhere") == found


@pytest.mark.parametrize(
    ("text", "transport", "path", "tag"),
    [
        ("oci:image", Transport.OCI, "/work/image", None),
        ("oci:/data/image:12", Transport.OCI, "/data/image", "12"),
        ("oci:image:", Transport.OCI, "/work/image", None),
        ("oci-archive:a/../b.tar", Transport.OCI_ARCHIVE, "/work/b.tar", None),
        ("docker-archive:b.tar:docker.io/library/debian:12", Transport.DOCKER_ARCHIVE, "/work/b.tar",
         "docker.io/library/debian:12"),
        ("sif:torch:1.sif", Transport.SIF, "/work/torch:1.sif", None),
        ("squashfs:x", Transport.SQUASHFS, "/work/x", None),
        ("rootfs:.", Transport.ROOTFS, "/work", None),
        ("rootfs:/", Transport.ROOTFS, "/", None),
        ("rootfs:a b\nc", Transport.ROOTFS, "/work/a b\nc", None),
    ],
)  # fmt: skip
def test_paths(text: str, transport: Transport, path: str, tag: str | None) -> None:
    found = parse(text, folder="/work")
    assert found == Reference(transport=transport, path=path, tag=tag)
    assert parse(str(found), folder="/elsewhere") == found


def test_a_path_with_a_colon_and_a_path_with_a_tag_are_two() -> None:
    colon = reference.at_path(Transport.OCI_ARCHIVE, "/data/a:b", folder="/")
    tagged = parse("oci-archive:/data/a:b", folder="/")
    assert str(tagged) == "oci-archive:/data/a:b"
    assert str(colon) == "/data/a:b"
    assert reference.looks_like_path(str(colon))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a reference to an image"),
        (" ", "is not a reference to an image"),
        ("docker://", "is not a reference to an image"),
        ("Debian", r"is not a reference to an image: names of images are in lower case"),
        ("quay.io/A/b", "lower case"),
        ("quay.io/", "is not a reference"),
        ("quay.io/a//b", "is not a reference"),
        ("quay.io/a/", "is not a reference"),
        ("a___b", "is not a reference"),
        ("a..b/c", "is not the name of a registry"),
        ("-a.example.org/c", "is not the name of a registry"),
        ("a.example.org-/c", "is not the name of a registry"),
        ("x" * 64 + ".example.org/c", "is not the name of a registry"),
        ("localhost:99999/c", "is not the name of a registry"),
        ("localhost:0/c", "is not the name of a registry"),
        ("localhost:/c", "is not the name of a registry"),
        ("localhost:x/c", "is not the name of a registry"),
        ("user:secret@quay.io/a", "is not a digest"),
        ("../debian", "is not the name of a registry"),
        ("debian:", "'' in 'debian:' is not a tag"),
        ("debian:-x", "is not a tag"),
        ("debian:a b", "is not a tag"),
        ("debian:" + "t" * 129, "is not a tag"),
        ("debian:12\n", "is not a tag"),
        ("debian\n", "is not a reference"),
        ("debian@", "is not a digest"),
        ("debian@sha256:0", "is not a digest"),
        ("debian@" + DIGEST.upper(), "is not a digest"),
        ("debian@sha512:" + "0" * 64, "is not a digest"),
        ("debian@sha384:" + "0" * 96, "is not a digest"),
        ("debian@sha512:" + "A" * 128, "is not a digest"),
        (f"debian@{DIGEST}@{DIGEST}", "is not a digest"),
        ("a/" * 200 + "b", "is not a reference"),
        (os.fsdecode(b"\xff"), "is not a reference"),
        ("dëbian", "is not a reference"),
        ("containers-storage:a", "of podman"),
        ("docker-daemon:a:1", "of docker"),
        ("oci:", "names no path"),
        ("oci::tag", "names no path"),
        ("sif:", "names no path"),
        ("rootfs:a\0b", "names no path"),
    ],
)
def test_what_is_no_reference(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        parse(text, folder="/work")
    assert caught.value.remedy.startswith("write ")


def test_a_long_text_is_refused_at_once() -> None:
    for text in ("a" * 10**6, "a." * 10**6 + "/b", "a-" * 10**6, "a/" * 10**6, "a:" * 10**6):
        with pytest.raises(UsageError):
            parse(text, folder="/work")


@given(st.text(max_size=60) | st.text(alphabet="aA0.:/@-_[]~ \n", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse(text, folder="/work")
    except UsageError:
        return
    if found.transport is Transport.REGISTRY:
        assert parse(str(found), folder="/elsewhere") == found
    else:
        assert found.path.startswith("/")


_part = st.text(alphabet=string.ascii_lowercase + string.digits, min_size=1, max_size=8)


@given(
    registry=st.sampled_from(["docker.io", "quay.io", "localhost:5000", "h:1", "[fe80::1]:80"]),
    parts=st.lists(_part, min_size=2, max_size=4),
    tag=st.none() | _part,
    digest=st.none() | st.just(DIGEST),
)
def test_every_reference_is_read_back_from_what_it_prints(
    registry: str, parts: list[str], tag: str | None, digest: str | None
) -> None:
    made = Reference(
        transport=Transport.REGISTRY,
        registry=registry,
        repository="/".join(parts),
        tag=tag or (None if digest else "latest"),
        digest=digest,
    )
    assert parse(str(made), folder="/") == made
    assert parse(f"docker://{made}", folder="/") == made


@pytest.mark.parametrize(
    ("text", "is_path"),
    [("/a", True), ("./a", True), ("../a", True), (".", True), ("..", True), ("~/a", True),
     ("a", False), ("a/b", False), (".a", False), ("...", False), ("", False)],
)  # fmt: skip
def test_what_can_only_be_a_path(text: str, is_path: bool) -> None:
    assert reference.looks_like_path(text) is is_path


# -- locate: what is on this machine decides -----------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A root file system folder, and files that are none of ours."""
    (tmp_path / "rootfs" / "bin").mkdir(parents=True)
    (tmp_path / "rootfs" / "usr").mkdir()
    (tmp_path / "rootfs" / "etc").mkdir()
    return tmp_path


def test_a_path_says_by_its_content_what_it_is(place: Path) -> None:
    wanted = Reference(transport=Transport.ROOTFS, path=str(place / "rootfs"))
    for text in ("./rootfs", str(place / "rootfs"), str(place / "rootfs") + "/"):
        assert locate.read(text, folder=str(place)) == wanted
    inner = place / "images"
    inner.mkdir()
    (place / "rootfs").rename(inner / "rootfs")
    assert locate.read("images/rootfs", folder=str(place)).path == str(inner / "rootfs")


def test_a_bare_word_is_an_image_of_docker_hub_unless_it_is_plainly_a_file(place: Path) -> None:
    (place / "debian").write_text("a file of the user's")
    assert locate.read("debian", folder=str(place)).repository == "library/debian"
    assert locate.read("torch.sif", folder=str(place)).repository == "library/torch.sif"
    (place / "torch.sif").write_bytes(b"\0" * 32 + b"SIF_MAGIC\0" + b"\0" * 200)
    assert locate.read("torch.sif", folder=str(place)) == Reference(
        transport=Transport.SIF, path=str(place / "torch.sif")
    )


@pytest.mark.parametrize("text", ["/a\0b", "a\0b", "./\0"])
def test_a_nul_byte_is_refused(text: str, place: Path) -> None:
    with pytest.raises(UsageError):
        locate.read(text, folder=str(place))


def test_access_is_read_as_users_write_it(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    found = Access.read(
        plain_http=" localhost:5000 ,,registry:80",
        mirrors="docker.io=a.example.org:5000, docker.io=b.example.org,quay.io=c",
        ca_file=str(tmp_path / "ca.pem"),
    )
    assert found.plain_http == {"localhost:5000", "registry:80"}
    assert found.mirrors == {"docker.io": ("a.example.org:5000", "b.example.org"), "quay.io": ("c",)}
    assert remote_options("quay.io", found).mirrors == ("c",)
    assert not remote_options("quay.io", found).plain_http
    assert remote_options("registry:80", found).plain_http
    for wrong in ("docker.io", "=b", "a="):
        with pytest.raises(UsageError, match="is not REGISTRY="):
            Access.read(plain_http="", mirrors=wrong, ca_file="")
    with pytest.raises(UsageError, match="not found"):
        Access.read(plain_http="", mirrors="", ca_file=str(tmp_path / "none.pem"))


def test_an_image_is_found_by_all_its_names(store: Store) -> None:
    image = make_image(digest=fake_digest("d"), layers=(), reference="docker.io/library/debian:12")
    store.put_image(image, manifest=b"{}", config=b"{}")
    store.name_image("mine", image.digest)
    store.pin(Pin(reference=image.reference, digest=image.digest, root=image.digest, pinned_at="now"))
    for text in ("mine", image.digest, "d" * 8, "debian:12", "docker://debian:12", "docker.io/debian:12"):
        assert locate.in_store(text, store, folder="/") == image
    assert locate.in_store("debian:11", store, folder="/") is None
    with pytest.raises(StoreError, match="image 'Not A Reference' not found"):
        locate.in_store("Not A Reference", store, folder="/")


def test_a_pin_of_an_image_that_was_removed_finds_nothing(store: Store) -> None:
    gone = fake_digest("e")
    store.pin(Pin(reference="docker.io/library/debian:12", digest=gone, root=gone, pinned_at="now"))
    assert locate.in_store("debian:12", store, folder="/") is None
