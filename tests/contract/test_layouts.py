"""Images that the real tools wrote, each read to its last byte: podman, buildah, skopeo, umoci, ch-image,
ch-convert, Apptainer; and what Bareboat writes, read by them."""

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import archives
import pytest
from archives import read_whole
from buildah import Peer, storage
from strangers import copied_as_stranger, run_as_stranger
from tools import ordinary, output, tool

from bareboat_base import architectures
from bareboat_base.sif import write_sif
from bareboat_images.formats import squash
from bareboat_images.formats.rootfs import FolderSource
from bareboat_images.formats.sif import read_sif
from bareboat_images.oci.reference import Transport
from bareboat_images.store import Store
from bareboat_images.transfer import locate
from bareboat_images.transfer.local import open_local, sniff
from bareboat_images.transfer.options import PullOptions
from bareboat_images.transfer.pull import obtain
from bareboat_images.transfer.save import save

ENVIRONMENT = {"PATH": "/opt/x/bin:/usr/bin:/bin", "QUOTED": "a \"b\" 'c' `d`", "EMPTY": ""}
#: What every image holds: path -> content, or where a link leads.
CONTENT = {
    "etc/os-release": b"NAME=small\n",
    "usr/bin/run": b"#!/bin/sh\n",
    "usr/share/ümlaut": b"x" * 70_000,
    "bin": "usr/bin",
}


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    return entry


def _make_root(folder: Path) -> None:
    for name, content in CONTENT.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.symlink_to(content)
        else:
            path.write_bytes(content)
    # A real program tells the architecture.
    shutil.copy(os.path.realpath("/bin/sh"), folder / "usr/bin/sh")
    (folder / "usr/bin/run").chmod(0o755)


@pytest.fixture(scope="module")
def lab() -> Iterator[Peer]:
    """The tools, beside the directory `root` and its tar."""
    with storage() as made:
        made.environment |= {
            # Charliecloud 0.31 needs the Python that it was packaged for.
            "PATH": "/usr/bin:/bin:" + os.environ["PATH"],
            "USER": "somebody",
            "CH_IMAGE_STORAGE": str(made.top / "charliecloud"),
            "APPTAINER_CACHEDIR": str(made.top / "apptainer"),
        }
        _make_root(made.top / "root")
        with tarfile.open(made.top / "root.tar", "w") as archive:
            archive.add(made.top / "root", ".", filter=_owned_by_root)
        yield made


@pytest.fixture(scope="module")
def layout(lab: Peer) -> Path:
    """An OCI layout with the image `small`, of two layers, by buildah."""
    container = lab("buildah", "from", "scratch")
    lab("buildah", "add", "--quiet", container, lab.top / "root", "/")
    settings = [option for pair in ENVIRONMENT.items() for option in ("--env", "=".join(pair))]
    lab("buildah", "config", *settings, "--workingdir", "/usr", "--label", "k=v", container)
    lab("buildah", "config", "--entrypoint", '["/bin/sh", "-c"]', "--cmd", "'echo hi'", container)
    lab("buildah", "commit", "--quiet", container, "localhost/base:1")
    second = lab("buildah", "from", "localhost/base:1")
    extra = lab.top / "extra"
    extra.write_text("more")
    lab("buildah", "add", "--quiet", second, extra, "/extra")
    lab("buildah", "commit", "--quiet", second, "localhost/small:1")
    made = lab.top / "layout"
    lab("buildah", "push", "--quiet", "localhost/small:1", f"oci:{made}:small")
    return made


def content_of(read: archives.Whole) -> dict[str, bytes | str]:
    """The files and links of all layers; the later go before."""
    found: dict[str, bytes | str] = {}
    for blob in read.blobs:
        if blob.startswith(b"\x1f\x8b"):
            blob = gzip.decompress(blob)
        if blob.startswith(b"\x28\xb5\x2f\xfd"):
            import zstandard

            blob = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(blob)).read()
        with tarfile.open(fileobj=io.BytesIO(blob)) as layer:
            for each in layer:
                name = os.path.normpath(each.name)
                if each.issym():
                    found[name] = each.linkname
                elif each.isfile() and (stream := layer.extractfile(each)) is not None:
                    found[name] = stream.read()
    return found


def check(path: Path, transport: Transport, tag: str | None = None) -> archives.Whole:
    """Sniff, read everything, and find the content that was put in."""
    assert sniff(path) is transport
    read = read_whole(open_local(path, transport, tag))
    found = content_of(read)
    assert {name: found.get(name) for name in CONTENT} == CONTENT
    return read


def inspected(lab: Peer, reference: str) -> str:
    return str(json.loads(lab("skopeo", "inspect", reference))["Digest"])


# -- podman, buildah, skopeo, umoci ----------------------------------------------------------------------


def test_buildah_pushes_a_layout(lab: Peer, layout: Path) -> None:
    read = check(layout, Transport.OCI, "small")
    assert read.digest == inspected(lab, f"oci:{layout}:small")
    assert read.config.environment == ENVIRONMENT
    assert read.config.process.entrypoint == ("/bin/sh", "-c")
    assert read.config.process.workdir == "/usr"
    assert len(read.layers) == 2


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.usefixtures("layout")
def test_podman_saves_a_docker_archive(lab: Peer, tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "saved.tar"
    lab("podman", "save", "--quiet", "--output", path, "localhost/small:1")
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes(), compresslevel=1))
    read = check(path, Transport.DOCKER_ARCHIVE, "localhost/small:1")
    assert read.config.environment == ENVIRONMENT
    assert [layer.digest for layer in read.layers] == list(read.config.diff_ids)


@pytest.mark.usefixtures("layout")
def test_podman_saves_several_images_in_one_archive(lab: Peer, tmp_path: Path) -> None:
    path = tmp_path / "saved.tar"
    lab("podman", "save", "-q", "-m", "-o", path, "localhost/base:1", "localhost/small:1")
    base = check(path, Transport.DOCKER_ARCHIVE, "localhost/base:1")
    small = check(path, Transport.DOCKER_ARCHIVE, "localhost/small:1")
    assert small.blobs[0] == base.blobs[0]
    assert len(small.blobs) == 2


@pytest.mark.parametrize("format", ["oci-archive", "oci-dir"])
@pytest.mark.usefixtures("layout")
def test_podman_saves_an_oci_layout(lab: Peer, tmp_path: Path, format: str) -> None:
    path = tmp_path / "saved"
    lab("podman", "save", "-q", "--format", format, "-o", path, "localhost/small:1")
    transport = Transport.OCI if format == "oci-dir" else Transport.OCI_ARCHIVE
    assert check(path, transport, "localhost/small:1").digest == inspected(lab, f"{transport.value}:{path}")


def test_podman_imports_and_saves_what_never_was_an_image(lab: Peer, tmp_path: Path) -> None:
    lab("podman", "import", "--quiet", lab.top / "root.tar", "localhost/imported:1")
    path = tmp_path / "saved.tar"
    lab("podman", "save", "-q", "-o", path, "localhost/imported:1")
    assert check(path, Transport.DOCKER_ARCHIVE).blobs == ((lab.top / "root.tar").read_bytes(),)


@pytest.mark.parametrize("transport", [Transport.OCI, Transport.OCI_ARCHIVE, Transport.DOCKER_ARCHIVE])
@pytest.mark.parametrize("named", [True, False])
def test_skopeo_copies(lab: Peer, layout: Path, tmp_path: Path, transport: Transport, named: bool) -> None:
    path = tmp_path / "copied"
    tag = {Transport.DOCKER_ARCHIVE: "localhost/it:2"}.get(transport, "it") if named else None
    target = f"{transport.value}:{path}" + (f":{tag}" if tag else "")
    lab("skopeo", "copy", "--quiet", f"oci:{layout}:small", target)
    read = check(path, transport, tag)
    if transport is not Transport.DOCKER_ARCHIVE:
        assert read.digest == inspected(lab, target)


def test_skopeo_compresses_by_zstd(lab: Peer, layout: Path, tmp_path: Path) -> None:
    path = tmp_path / "copied"
    lab("skopeo", "copy", "-q", "--dest-compress-format", "zstd", f"oci:{layout}:small", f"oci:{path}:it")
    read = check(path, Transport.OCI)
    assert all(layer.media_type.endswith("+zstd") for layer in read.layers)


def test_umoci_repacks(lab: Peer, tmp_path: Path) -> None:
    path = tmp_path / "layout"
    bundle = tmp_path / "bundle"
    rootless = () if os.geteuid() == 0 else ("--rootless",)
    lab("umoci", "init", "--layout", path)
    lab("umoci", "new", "--image", f"{path}:it")
    lab("umoci", "unpack", *rootless, "--image", f"{path}:it", bundle)
    shutil.copytree(lab.top / "root", bundle / "rootfs", symlinks=True, dirs_exist_ok=True)
    lab("umoci", "repack", "--image", f"{path}:it", bundle)
    lab("umoci", "tag", "--image", f"{path}:it", "again")
    assert check(path, Transport.OCI, "it") == check(path, Transport.OCI, "again")
    assert check(path, Transport.OCI).digest == inspected(lab, f"oci:{path}:it")


@pytest.mark.usefixtures("layout")
def test_buildah_pushes_an_index_of_architectures(lab: Peer, tmp_path: Path) -> None:
    container = lab("buildah", "from", "scratch")
    lab("buildah", "config", "--arch", "arm64", container)
    lab("buildah", "commit", "-q", container, "localhost/arm:1")
    lab("buildah", "manifest", "create", "both")
    for name in ("small", "arm"):
        lab("buildah", "manifest", "add", "both", f"containers-storage:localhost/{name}:1")
    path = tmp_path / "layout"
    lab("buildah", "manifest", "push", "--quiet", "--all", "both", f"oci:{path}:both")
    check(path, Transport.OCI, "both")
    other = read_whole(open_local(path, Transport.OCI, "both"), "aarch64")
    assert other.config.architecture == "arm64"


# -- Charliecloud ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def charliecloud(lab: Peer) -> Path:
    """Images of ch-image and ch-convert: built.tar.gz, built.sqfs, built/."""
    context = lab.top / "context"
    context.mkdir()
    (context / "Dockerfile").write_text('FROM base\nENV PATH=/opt/z:/bin\nENV WORD="a b"\n')
    lab("ch-image", "--no-cache", "import", lab.top / "root.tar", "base")
    lab("ch-image", "--no-cache", "build", "--force", "-t", "built", context)
    for name in ("built.tar.gz", "built.sqfs", "built"):
        lab("ch-convert", "-i", "ch-image", "built", lab.top / name)
    return lab.top


def test_charliecloud_converts_to_folder_squashfs_and_tar(charliecloud: Path) -> None:
    folder = check(charliecloud / "built", Transport.ROOTFS)
    squashed = check(charliecloud / "built.sqfs", Transport.SQUASHFS)
    packed = check(charliecloud / "built.tar.gz", Transport.ROOTFS)
    assert squashed.config.diff_ids == folder.config.diff_ids
    for read in (folder, squashed, packed):
        assert read.config.environment == {"PATH": "/opt/z:/bin", "WORD": "a b"}
        assert read.config.architecture == architectures.oci(os.uname().machine)


# -- SIF -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sif(lab: Peer, layout: Path) -> Path:
    """A SIF that Apptainer built from the image `small`."""
    path = lab.top / "small.sif"
    lab("skopeo", "copy", "-q", f"oci:{layout}:small", f"oci-archive:{lab.top}/small.tar:small")
    lab("apptainer", "build", path, f"oci-archive:{lab.top}/small.tar")
    return path


def test_apptainer_agrees_on_what_is_in_its_sif(lab: Peer, sif: Path) -> None:
    system = read_sif(sif, name="it").system()
    listed = lab("apptainer", "sif", "list", sif)
    assert f"|{system.offset}-{system.offset + system.size} " in listed.replace("  ", " ")
    assert f"FS (Squashfs/*System/{system.architecture})" in listed


def test_a_sif_keeps_the_configuration_of_the_image_it_was_made_from(sif: Path) -> None:
    config = check(sif, Transport.SIF).config
    assert config.environment == ENVIRONMENT
    assert (config.process.entrypoint, config.process.workdir) == (("/bin/sh", "-c"), "/usr")
    assert config.architecture == architectures.oci(os.uname().machine)


def test_a_sif_of_a_definition_file_tells_its_plain_variables(lab: Peer) -> None:
    definition = lab.top / "it.def"
    definition.write_text(
        f"Bootstrap: localimage\nFrom: {lab.top}/root\n%environment\n  export WORDS='a b'\n"
        "  export WHO=$(id)\n  PATH=/opt/y:$PATH\n%runscript\n  echo hi\n"
    )
    path = lab.top / "it.sif"
    lab("apptainer", "build", path, definition)
    config = check(path, Transport.SIF).config
    assert config.environment["WORDS"] == "a b"
    assert config.environment["PATH"].startswith("/opt/y:/")
    assert "WHO" not in config.environment
    assert config.process.command == ("/.singularity.d/runscript",)


def test_the_same_sif_is_the_same_image(sif: Path) -> None:
    first, second = (read_whole(open_local(sif, Transport.SIF)) for _ in range(2))
    assert first == second


def test_what_a_sif_is_unpacked_into_goes_with_its_source(sif: Path, tmp_path: Path) -> None:
    source = open_local(sif, Transport.SIF, scratch=tmp_path)
    assert not list(tmp_path.iterdir())
    source.document()
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o700]
    del source
    assert not list(tmp_path.iterdir())


# -- what we make ----------------------------------------------------------------------------------------


def test_a_squashfs_holds_the_tree_and_is_the_same_each_time(lab: Peer, tmp_path: Path) -> None:
    tool("mksquashfs")
    tree = tmp_path / "tree"
    shutil.copytree(lab.top / "root", tree, symlinks=True)
    (tree / "secret").write_text("mine")
    (tree / "secret").chmod(0o400)
    os.link(tree / "secret", tree / "twin")
    paths = []
    for number in (1, 2):
        paths.append(tmp_path / f"{number}.sqfs")
        squash.make_squashfs(tree, paths[-1])
        (tree / "new").touch()
        (tree / "new").unlink()  # the root folder's own time is not the image's
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert check(paths[0], Transport.SQUASHFS).blobs == check(tree, Transport.ROOTFS).blobs
    owners = lab("unsquashfs", "-lls", paths[0])
    assert "root/root" in owners


def test_a_tree_that_cannot_be_read_is_no_squashfs(tmp_path: Path) -> None:
    """mksquashfs itself exits with 0, and leaves out what it could not read."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "closed").touch(0)
    program = (
        "import sys, pathlib\nfrom bareboat_base.errors import ImageError\n"
        "from bareboat_images.formats import squash\n"
        "tree, path = map(pathlib.Path, sys.argv[1:])\n"
        "try: squash.make_squashfs(tree, path)\nexcept ImageError as error: print(error.message)\n"
    )
    tool("mksquashfs")
    said = output(*ordinary(), sys.executable, "-c", program, tree, tmp_path / "x.sqfs")
    assert f"1 entries of {tree} cannot be read" in said
    assert list(tmp_path.iterdir()) == [tree]


def test_of_another_user_s_directory_private_entries_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "etc/private").mkdir(parents=True)
    for name in ("passwd", *(f"shadow{number}" for number in range(7))):
        (tmp_path / "etc" / name).touch()
    with copied_as_stranger(tmp_path) as tree:
        assert run_as_stranger('chmod go= "$1"/etc/private "$1"/etc/shadow*', tree).returncode == 0
        source = FolderSource(tree, name="theirs")
        source.document()
    shown = ["private", *(f"shadow{number}" for number in range(4))]
    notes = [f"/etc/{name}: you cannot read it" for name in shown]
    assert source.notes == (*notes, "3 more entries: you cannot read them")


@pytest.mark.usefixtures("sif")
def test_a_saved_sif_has_the_image_s_files_and_settings(lab: Peer, tmp_path: Path) -> None:
    tool("mksquashfs")
    store = Store(tmp_path / "store")
    folder = tmp_path / "with:colon and blank"
    folder.mkdir()
    found = locate.read(f"oci-archive:{lab.top}/small.tar", folder="/")
    image = obtain(found, store, PullOptions(machine=os.uname().machine)).image
    save(store, image, "sif", str(folder / "made.sif"))
    read = check(folder / "made.sif", Transport.SIF)
    assert read.config.environment == ENVIRONMENT
    source = read_whole(open_local(lab.top / "small.tar", Transport.OCI_ARCHIVE, None)).config
    assert read.config.process == source.process
    assert [path.name for path in folder.iterdir()] == ["made.sif"]
    listed = output(tool("apptainer"), "sif", "list", folder / "made.sif")
    assert ["FS (Squashfs/*System/amd64)" in listed, "JSON.Generic" in listed] == [True, True], listed


def test_a_saved_sif_keeps_the_runscript_of_the_sif_that_it_comes_from(tmp_path: Path) -> None:
    """The image's command is this script, so one that starts the command would start itself."""
    script = b"#!/bin/sh\necho it ran\n"
    folder = tmp_path / "tree/.singularity.d"
    folder.mkdir(parents=True)
    (folder / "runscript").write_bytes(script)
    (folder / "runscript").chmod(0o755)
    subprocess.run([tool("mksquashfs"), tmp_path / "tree", tmp_path / "x.sqfs", "-quiet"], check=True)
    write_sif(tmp_path / "x.sqfs", tmp_path / "first.sif", os.uname().machine)
    store = Store(tmp_path / "store")
    found = locate.read(f"sif:{tmp_path}/first.sif", folder="/")
    image = obtain(found, store, PullOptions(machine=os.uname().machine)).image
    assert (*image.process.entrypoint, *image.process.command) == ("/.singularity.d/runscript",)
    save(store, image, "sif", str(tmp_path / "second.sif"))
    read = read_whole(open_local(tmp_path / "second.sif", Transport.SIF, None))
    assert content_of(read)[".singularity.d/runscript"] == script


def test_a_squashfs_with_all_that_a_layer_cannot_hold(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "usr/closed").mkdir(parents=True)
    (tree / "usr/hidden").write_text("x")
    (tree / "usr/closed/deep\nname").write_text("y")
    os.mkfifo(tree / "fifo")
    (tree / "usr/hidden").chmod(0)
    pseudo = ["-p", "null c 666 0 0 1 3", "-p", "usr/root-tool f 4755 0 0 echo z"]
    path = tmp_path / "it.sqfs"
    subprocess.run([tool("mksquashfs"), tree, path, "-quiet", *pseudo], check=True, capture_output=True)
    source = open_local(path, Transport.SQUASHFS)
    read = read_whole(source)
    with tarfile.open(fileobj=io.BytesIO(read.blobs[0])) as layer:
        modes = {each.name: each.mode for each in layer}
    assert modes == {
        "usr": 0o755,
        "usr/closed": 0o755,
        "usr/closed/deep\nname": 0o644,
        "usr/hidden": 0o400,
        "usr/root-tool": 0o755,
    }
    assert source.notes[0].startswith("/fifo: ")  # type: ignore[attr-defined]
