"""Images on this machine: what each path is, which image of several is meant, and every byte of it."""

import gzip
import io
import json
import os
import stat
import sys
import tarfile
import tempfile
from pathlib import Path

import archives
import pytest
import zstandard
from archives import docker_files, entry, handmade, oci_files, put, read_whole, tar_of
from hypothesis import given, settings
from hypothesis import strategies as st
from registries import Packed
from tools import ordinary, output

from bareboat_base.errors import ImageError, UsageError
from bareboat_images.formats.rootfs import read_facts
from bareboat_images.oci.reference import Transport
from bareboat_images.sources.archive import Archive
from bareboat_images.tar import reader as tarreader
from bareboat_images.transfer.local import open_local, sniff

ONE = handmade("one", "two")
OTHER = handmade("three")


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def opened(path: Path, transport: Transport, tag: str | None = None) -> archives.Whole:
    return read_whole(open_local(path, transport, tag))


def refused(path: Path, transport: Transport, tag: str | None = None) -> ImageError:
    with pytest.raises(ImageError) as caught:
        read_whole(open_local(path, transport, tag))
    return caught.value


# -- OCI layouts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tag", ["v1", "@0", ONE.digest, None], ids=["its name", "its place", "its digest", "nothing"]
)
def test_an_image_is_found_by(tmp_path: Path, tag: str | None) -> None:
    entries = [entry(ONE, "v1")] + ([entry(OTHER, "v2")] if tag else [])
    files = oci_files([ONE, OTHER], entries)
    assert opened(put(tmp_path / "layout", files), Transport.OCI, tag).digest == ONE.digest


@pytest.mark.parametrize("tag", ["app:1", "library/app:1", "docker.io/library/app:1"])
def test_an_image_is_found_by_the_name_that_containerd_gave_it(tmp_path: Path, tag: str) -> None:
    called = {"io.containerd.image.name": "docker.io/library/app:1", archives.REF_NAME: "1"}
    files = oci_files([ONE, OTHER], [entry(OTHER, "x"), entry(ONE, annotations=called)])
    assert opened(put(tmp_path / "layout", files), Transport.OCI, tag).digest == ONE.digest


def test_several_images_and_no_tag_is_an_error_that_lists_them(tmp_path: Path) -> None:
    files = oci_files([ONE, OTHER], [entry(ONE, "first"), entry(OTHER, "second")])
    error = refused(put(tmp_path / "layout", files), Transport.OCI)
    assert "holds 2 images" in error.message
    assert error.remedy == f"name one: oci:{tmp_path}/layout:first"


def platform(architecture: str) -> dict[str, str]:
    return {"os": "linux", "architecture": architecture}


def test_the_architectures_of_one_image_are_one_index(tmp_path: Path) -> None:
    arm = handmade("arm", architecture="arm64")
    attestation = {"vnd.docker.reference.type": "attestation-manifest"}
    entries = [
        entry(ONE, "v1", platform=platform("amd64")),
        entry(arm, "v1", platform=platform("arm64")),
        entry(OTHER, platform=platform("unknown"), annotations=attestation),
    ]
    files = oci_files([ONE, arm, OTHER], entries)
    folder = put(tmp_path / "layout", files)
    for tag in (None, "v1"):
        assert opened(folder, Transport.OCI, tag).digest == ONE.digest
        assert read_whole(open_local(folder, Transport.OCI, tag), "aarch64").digest == arm.digest
    with pytest.raises(ImageError, match=r"(?m)it has: linux/amd64, linux/arm64$"):
        read_whole(open_local(folder, Transport.OCI), "riscv64")


# -- docker-archives -------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", ["other", "other:latest", "docker.io/library/other", "@1"])
def test_the_image_of_a_docker_archive_is_chosen_by(tmp_path: Path, tag: str) -> None:
    data = tar_of(docker_files((ONE, ["app:1", "app:2"]), (OTHER, ["other:latest"])))
    path = write(tmp_path / "a.tar", data)
    assert opened(path, Transport.DOCKER_ARCHIVE, tag).blobs == OTHER.tars


def test_several_images_in_a_docker_archive_are_listed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", tar_of(docker_files((ONE, ["app:1", "app:2"]), (OTHER, None))))
    error = refused(path, Transport.DOCKER_ARCHIVE)
    assert error.context.splitlines() == [
        "@0  app:1, app:2",
        f"@1  {archives.hex_of(OTHER.config)}.json",
    ]
    assert error.remedy == f"name one: docker-archive:{path}:app:1"
    assert "image 'app:3' not found" in refused(path, Transport.DOCKER_ARCHIVE, "app:3").message


def test_layers_that_docker_saved_as_links_to_each_other_are_read(tmp_path: Path) -> None:
    """So did Docker 1.10 to 24 with layers that two images share."""
    files = {"a/layer.tar": ONE.tars[0], "c.json": handmade("one", "one").config}
    files["manifest.json"] = json.dumps(
        [{"Config": "c.json", "RepoTags": None, "Layers": ["b/layer.tar", "c/layer.tar"]}]
    ).encode()
    symbolic = archives.member("b/layer.tar", kind=tarfile.SYMTYPE, target="../a/layer.tar")
    hard = archives.member("c/layer.tar", kind=tarfile.LNKTYPE, target="b/layer.tar")
    path = write(tmp_path / "a.tar", tar_of(files, symbolic, hard))
    assert opened(path, Transport.DOCKER_ARCHIVE).blobs == (ONE.tars[0], ONE.tars[0])


def test_compressed_layers_under_old_names_are_inflated_on_the_way(tmp_path: Path) -> None:
    files = docker_files((ONE, None))
    for layer, packed in zip(ONE.tars, (ONE.layers[0], zstandard.compress(ONE.tars[1])), strict=True):
        files[f"{archives.hex_of(layer)}.tar"] = packed
    read = opened(write(tmp_path / "a.tar", tar_of(files)), Transport.DOCKER_ARCHIVE)
    assert read.blobs == ONE.tars
    assert [layer.size for layer in read.layers] == [-1, -1]


def new_docker(image: Packed) -> archives.Files:
    """What Docker saves since version 25: a layout that is a docker-archive, too."""
    named = {"io.containerd.image.name": "docker.io/library/app:1", archives.REF_NAME: "1"}
    files = oci_files([image], [entry(image, annotations=named)])
    saved = {
        "Config": f"blobs/sha256/{archives.hex_of(image.config)}",
        "RepoTags": ["app:1"],
        "Layers": [f"blobs/sha256/{archives.hex_of(each)}" for each in image.layers],
    }
    return files | {"manifest.json": json.dumps([saved]).encode()}


@pytest.mark.parametrize("packed", [True, False])
def test_what_docker_saves_today_is_both_kinds_of_archive(tmp_path: Path, packed: bool) -> None:
    image = handmade("x", "y", packed=packed)
    path = write(tmp_path / "a.tar", tar_of(new_docker(image)))
    assert sniff(path) is Transport.OCI_ARCHIVE
    assert opened(path, Transport.OCI_ARCHIVE, "app:1").digest == image.digest
    assert opened(path, Transport.DOCKER_ARCHIVE, "app:1").blobs == image.layers


# -- archives --------------------------------------------------------------------------------------------


def test_what_is_inflated_leaves_no_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar.gz", gzip.compress(tar_of(oci_files([ONE], [entry(ONE)]))))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    source = open_local(path, Transport.OCI_ARCHIVE, scratch=scratch)
    assert read_whole(source).digest == ONE.digest
    assert list(scratch.iterdir()) == []


def test_an_archive_that_is_replaced_while_it_is_read_stays_the_one_that_it_was(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", tar_of(oci_files([ONE], [entry(ONE)])))
    source = open_local(path, Transport.OCI_ARCHIVE)
    os.replace(write(tmp_path / "b.tar", tar_of(oci_files([OTHER], [entry(OTHER)]))), path)
    assert read_whole(source).digest == ONE.digest


names = st.text(
    st.characters(codec="utf-8", exclude_characters="\0/", exclude_categories=["Cs"]),
    min_size=1,
    max_size=130,
).filter(lambda name: name not in (".", ".."))
paths = st.lists(names, min_size=1, max_size=4).map("/".join)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(paths, st.binary(max_size=1500), max_size=5),
    st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]),
)
def test_the_index_agrees_with_pythons_tarfile(files: dict[str, bytes], format: int) -> None:
    data = tar_of(files, format=format)
    with tempfile.NamedTemporaryFile() as stream:
        stream.write(data)
        stream.flush()
        archive = Archive(stream.name, name="it")
        with tarfile.open(fileobj=io.BytesIO(data)) as real:
            expected = {os.path.normpath(each.name): (each.offset_data, each.size) for each in real}
        found = {name: (each.offset, each.size) for name, each in archive.members.items()}
        # A name that ends in a slash is a folder's, and folders are not kept.
        assert found == {name: place for name, place in expected.items() if name in found}
        assert len(found) == len(expected)
        for name, content in files.items():
            member = archive.find(name)
            assert member is not None
            assert archive.read(member, largest=2000) == content


def test_sizes_beyond_eight_gigabytes_are_read(tmp_path: Path) -> None:
    for number, format in enumerate((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
        size = 9 * 2**30 + 5
        header = archives.member("big", size=size).tobuf(format)
        path = tmp_path / f"{number}.tar"
        with open(path, "wb") as stream:
            stream.write(header)
            stream.truncate(len(header) + size + 507)
        found = Archive(path, name="it").find("big")
        assert found is not None
        assert (found.kind, found.size, found.offset) == (tarreader.FILE, size, len(header))


# -- what a path is --------------------------------------------------------------------------------------


def test_a_path_says_what_it_is(tmp_path: Path) -> None:
    oci = oci_files([ONE], [entry(ONE)])
    docker = tar_of(docker_files((ONE, None)))
    root = tar_of({"./etc/os-release": b"", "./usr/bin/env": b""})
    for name, data, expected in (
        ("oci.tar", tar_of(oci), Transport.OCI_ARCHIVE),
        ("oci.tar.gz", gzip.compress(tar_of(oci)), Transport.OCI_ARCHIVE),
        ("docker.tar", docker, Transport.DOCKER_ARCHIVE),
        ("docker.tar.gz", gzip.compress(docker), Transport.DOCKER_ARCHIVE),
        ("docker.tar.zst", zstandard.compress(docker), Transport.DOCKER_ARCHIVE),
        ("root.tar", root, Transport.ROOTFS),
        ("root.tar.gz", gzip.compress(root), Transport.ROOTFS),
        ("x.sif", archives.sif_of(), Transport.SIF),
        ("x.sqfs", archives.superblock(), Transport.SQUASHFS),
    ):
        assert sniff(write(tmp_path / name, data)) is expected, name
    assert sniff(put(tmp_path / "layout", oci)) is Transport.OCI
    assert sniff(put(tmp_path / "root", {"usr/bin/env": b""})) is Transport.ROOTFS


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"notes.txt": b""}, "is not an image"),
        ({"version": b"", "manifest.json": b""}, "is not an image"),
    ],
)
def test_a_folder_that_is_no_image_is_told_what_it_is(
    tmp_path: Path, files: archives.Files, said: str
) -> None:
    with pytest.raises(ImageError, match=said) as caught:
        sniff(put(tmp_path / "it", files))
    assert caught.value.remedy


def test_the_wrong_prefix_names_the_right_one(tmp_path: Path) -> None:
    oci = write(tmp_path / "oci.tar", tar_of(oci_files([ONE], [entry(ONE)])))
    docker = write(tmp_path / "docker.tar", tar_of(docker_files((ONE, None))))
    assert f"oci-archive:{oci}" in refused(oci, Transport.DOCKER_ARCHIVE).remedy
    assert f"docker-archive:{docker}" in refused(docker, Transport.OCI_ARCHIVE).remedy
    assert f"oci-archive:{oci}" in refused(oci, Transport.OCI).remedy
    with pytest.raises(UsageError):
        open_local(oci, Transport.REGISTRY)


# -- root file systems -----------------------------------------------------------------------------------


def make_root(folder: Path) -> Path:
    put(folder, {"etc/os-release": b"NAME=x\n", "usr/bin/tool": b"#!", "z" * 150 + "/" + "y" * 200: b"deep"})
    (folder / "usr/bin/tool").chmod(0o4755)
    (folder / "etc/os-release").chmod(0o640)
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o1777)
    (folder / "bin").symlink_to("usr/bin")
    (folder / "long").symlink_to("../" * 60)
    os.link(folder / "usr/bin/tool", folder / "usr/bin/zweit")
    with open(os.fsencode(folder) + b"/\xff\n", "wb") as stream:
        stream.write(b"x" * 513)
    os.mkfifo(folder / "fifo")
    (folder / "usr/.wh.gone").touch()
    os.utime(folder / "etc/os-release", ns=(0, 1234567890_987654321))
    os.utime(folder / "usr/bin/tool", (0, -1000))
    return folder


def test_a_folder_becomes_one_layer_with_its_modes_times_and_links(tmp_path: Path) -> None:
    source = open_local(make_root(tmp_path / "root"), Transport.ROOTFS)
    read = read_whole(source)
    with tarfile.open(fileobj=io.BytesIO(read.blobs[0])) as layer:
        found = {each.name: each for each in layer}
        content = {
            name: f.read()
            for name, each in found.items()
            if each.isreg() and (f := layer.extractfile(each)) is not None
        }
    assert list(found) == sorted(found, key=lambda name: os.fsencode(name).split(b"/"))
    assert found["usr/bin/tool"].mode == 0o755  # without its setuid bit
    assert found["usr/bin/tool"].mtime == -1000
    assert (found["etc/os-release"].mode, found["etc/os-release"].mtime) == (0o640, 1234567890)
    assert found["tmp"].mode == 0o1777
    assert (found["bin"].linkname, found["long"].linkname) == ("usr/bin", "../" * 60)
    assert (found["usr/bin/zweit"].type, found["usr/bin/zweit"].linkname) == (tarfile.LNKTYPE, "usr/bin/tool")
    assert content["z" * 150 + "/" + "y" * 200] == b"deep"
    assert content["\udcff\n"] == b"x" * 513
    assert {(each.uid, each.gid) for each in found.values()} == {(0, 0)}
    assert {"fifo", "usr/.wh.gone"}.isdisjoint(found)
    assert [note.partition(":")[0] for note in source.notes] == ["/fifo", "/usr/.wh.gone"]  # type: ignore[attr-defined]


def test_equal_folders_are_equal_images(tmp_path: Path) -> None:
    first, second = (make_root(tmp_path / name) for name in ("a", "b"))
    for folder in (first, second):
        for path, folders, files in os.walk(os.fsencode(folder)):
            for each in folders + files:
                os.utime(path + b"/" + each, (5, 5), follow_symlinks=False)
    assert opened(first, Transport.ROOTFS) == opened(second, Transport.ROOTFS)
    os.utime(second / "tmp", (6, 6))
    assert opened(first, Transport.ROOTFS).digest != opened(second, Transport.ROOTFS).digest


def test_a_tar_of_a_root_file_system_is_its_own_layer(tmp_path: Path) -> None:
    data = tar_of({"./usr/x": b"1", "./ch/environment": b"PATH=/opt/bin\nWORD=a b\n", "../odd": b""})
    for name, packed in (("a.tar", data), ("a.tar.gz", gzip.compress(data))):
        read = opened(write(tmp_path / name, packed), Transport.ROOTFS)
        assert read.blobs == (data,)
        assert read.config.environment == {"PATH": "/opt/bin", "WORD": "a b"}


ELF = {
    "amd64": b"\x7fELF\x02\x01" + bytes(12) + b"\x3e\0" + bytes(44),
    "arm64": b"\x7fELF\x02\x01" + bytes(12) + b"\xb7\0" + bytes(44),
    "s390x": b"\x7fELF\x02\x02" + bytes(12) + b"\0\x16" + bytes(44),
    "unknown": b"\x7fELF\x02\x01" + bytes(12) + b"\xff\xff",
}


@pytest.mark.parametrize("architecture", ELF)
def test_the_architecture_is_that_of_the_programs(tmp_path: Path, architecture: str) -> None:
    folder = put(tmp_path / "root", {"usr/bin/dash": ELF[architecture]})
    (folder / "bin").symlink_to("/usr/bin")
    (folder / "usr/bin/sh").symlink_to("dash")
    assert opened(folder, Transport.ROOTFS).config.architecture == architecture
    path = write(tmp_path / "root.tar", tar_of({"./usr/bin/dash": ELF[architecture]}))
    assert opened(path, Transport.ROOTFS).config.architecture == architecture


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("export X=plain", "plain"),
        ('export X="two words"', "two words"),
        ("export X='two words'", "two words"),
        ("X='two words'", None),
        ("X=1\nexport X", "1"),
        ("export Y=/opt Z=/b\nexport X=$Y/lib:${Z}", "/opt/lib:/b"),
        ('export X="/opt/lib:$X"', "/opt/lib:"),
        ("export X=1  # why", "1"),
        ("export X=a\\\nb", "ab"),
        ("export X=1;", "1"),
        ("if true; then\n  export X=1\nfi", None),
        ("case a in\n  b) export X=1;;\nesac", None),
        ("f() {\n  export X=1\n}", None),
        ("export X=$SLURM_JOB_ID", None),
        ("export X=~/x", None),
        ('export X="${X:-"given"}"', "given"),
        ('export X=""', ""),
        ("export PATH=/opt:$PATH", None),
        ("export X=$(reboot)", None),
        ("export X=`reboot`", None),
        ("export X=$HOME/x", None),
        ("export X=1; reboot", None),
        ("export X=a && reboot", None),
        ("export X=a b", "a"),
        ('export X="a \\"b\\""', 'a "b"'),
        ("# export X=1", None),
        ("export X='open", None),
    ],
)
def test_of_shell_only_assignments_are_understood(tmp_path: Path, line: str, value: str | None) -> None:
    put(tmp_path, {".singularity.d/env/90-environment.sh": f"#!/bin/sh\n{line}\n".encode()})
    assert read_facts(str(tmp_path), made_from="it").environment.get("X") == value


def test_scripts_build_on_the_variables_of_the_base_and_the_rest_is_named(tmp_path: Path) -> None:
    scripts = {
        "10-docker2singularity.sh": '#!/bin/sh\nexport PATH="${PATH:-"/base/bin:/bin"}"\n'
        'export CUDA_HOME="${CUDA_HOME:-"/usr/local/cuda 12"}"\n',
        "90-environment.sh": '#!/bin/sh\nPATH=$PATH:/opt/x/bin\nexport CPATH="$CUDA_HOME/include" A=1 B=2\n'
        'export LD_LIBRARY_PATH="/opt/lib:$LD_LIBRARY_PATH"\nexport WHO=$(id)\nsource /opt/setup.sh\n',
    }
    labels = b'{"name": "it", "number": 7, "none": null}'
    put(tmp_path, {f".singularity.d/env/{name}": text.encode() for name, text in scripts.items()})
    put(tmp_path, {".singularity.d/labels.json": labels})
    found = read_facts(str(tmp_path), made_from="it")
    assert found.environment == {
        "PATH": "/base/bin:/bin:/opt/x/bin", "CUDA_HOME": "/usr/local/cuda 12", "A": "1", "B": "2",
        "CPATH": "/usr/local/cuda 12/include", "LD_LIBRARY_PATH": "/opt/lib:",
    }  # fmt: skip
    assert found.own.keys() == {"PATH", "CPATH", "A", "B", "LD_LIBRARY_PATH"}
    (note,) = found.notes
    assert "90-environment.sh: export WHO=$(id), 90-environment.sh: source /opt/setup.sh" in note
    assert found.labels == {"name": "it", "number": "7"}


_READ = """
import sys
from bareboat_base.errors import ImageError
from bareboat_images.formats.rootfs import FolderSource
try:
    FolderSource(sys.argv[1], name="it").document()
except ImageError as error:
    print(error.message, error.context, error.remedy, sep="\\n")
"""


def test_a_folder_whose_entries_cannot_be_read_names_them(tmp_path: Path) -> None:
    folder = put(tmp_path / "root", {f"usr/{number}": b"x" for number in range(9)})
    for each in (folder / "usr").iterdir():
        each.chmod(0)
    said = output(*ordinary(), sys.executable, "-c", _READ, folder).splitlines()
    assert said[1:7] == [f"{folder}/usr/{number}" for number in range(5)] + ["…"]
    assert said[7].startswith(f"chmod u+rX {folder}/usr/0 ")
    assert stat.S_IMODE((folder / "usr/0").stat().st_mode) == 0  # nothing of the user's was changed
