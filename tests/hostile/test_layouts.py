"""Archives, layouts, SIF and squashfs files that are damaged or mean harm: each is refused by one clear
error that names it, nothing is read that is not of the image, and nothing is written."""

import contextlib
import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import archives
import pytest
import zstandard
from archives import (
    docker_files,
    entry,
    handmade,
    hex_of,
    member,
    oci_files,
    put,
    read_whole,
    tar_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from registries import sha256
from tools import completed, tool

from bareboat_base.errors import BareboatError, ImageError
from bareboat_images.oci.reference import Transport
from bareboat_images.oci.source import LARGEST_DOCUMENT, Descriptor
from bareboat_images.transfer.local import open_local, sniff

ONE = handmade("one", "two")
OTHER = handmade("other")
OCI = oci_files([ONE], [entry(ONE, "v1")])
DOCKER = docker_files((ONE, ["app:1"]))
FIRST_LAYER = "blobs/sha256/" + hex_of(ONE.layers[0])
MANIFEST = "blobs/sha256/" + hex_of(ONE.manifest)
CONFIG = "blobs/sha256/" + hex_of(ONE.config)
DOCKER_LAYER = hex_of(ONE.tars[0]) + ".tar"
SECRET = "root-s3cret-of-this-machine"


def link(name: str, target: str) -> tarfile.TarInfo:
    return member(name, kind=tarfile.SYMTYPE, target=target)


def hard(name: str, target: str) -> tarfile.TarInfo:
    return member(name, kind=tarfile.LNKTYPE, target=target)


def without(files: archives.Files, *names: str) -> archives.Files:
    return {name: data for name, data in files.items() if name not in names}


def listing(**saved: Any) -> archives.Files:
    """A docker-archive whose manifest.json says something else."""
    made = {"Config": hex_of(ONE.config) + ".json", "RepoTags": None, "Layers": []} | saved
    return DOCKER | {"manifest.json": json.dumps([made]).encode()}


def index(*entries: Any, **more: Any) -> archives.Files:
    return OCI | {"index.json": json.dumps({"schemaVersion": 2, "manifests": entries} | more).encode()}


def document(data: bytes, named: str | None = None) -> archives.Files:
    """A layout whose image is this document, under its own digest or another's."""
    digest = named or sha256(data)
    return index({"digest": digest, "size": len(data)}) | {"blobs/" + digest.replace(":", "/"): data}


def sparse(name: str) -> bytes:
    """A file in GNU's old sparse format: its bytes do not lie in one piece."""
    header = bytearray(member(name, kind=b"S", size=512).tobuf(tarfile.GNU_FORMAT))
    header[386:410] = b"00000000000\x0000000001000\0"
    header[483:495] = b"00000001000\0"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(512)


def pax(records: bytes, then: bytes) -> bytes:
    header = member("x", kind=tarfile.XHDTYPE, size=len(records)).tobuf(tarfile.USTAR_FORMAT)
    return header + records + bytes(-len(records) % 512) + then


DEEP = b"[" * 200_000
BOMB = json.dumps({"schemaVersion": 2, "manifests": []}).encode() + b" " * LARGEST_DOCUMENT

#: name -> (the archive's bytes, its kind, what the error says)
AS_OCI, AS_DOCKER = Transport.OCI_ARCHIVE, Transport.DOCKER_ARCHIVE
PACKED = "is damaged: "
ARCHIVES: dict[str, tuple[bytes, Transport, str]] = {
    # names and links that lead out of the archive
    "name upwards": (tar_of({"../../etc/passwd": b"x"} | OCI), AS_OCI, "lies outside"),
    "absolute name": (tar_of({"/etc/passwd": b"x"} | OCI), AS_OCI, "lies outside"),
    "hidden upwards": (tar_of({"a/../../b": b"x"} | DOCKER), AS_DOCKER, "lies outside"),
    "link upwards": (
        tar_of(without(DOCKER, DOCKER_LAYER), link(DOCKER_LAYER, "../../../etc/passwd")),
        AS_DOCKER,
        "lies outside",
    ),
    "absolute link": (
        tar_of(without(DOCKER, DOCKER_LAYER), link(DOCKER_LAYER, "/etc/passwd")),
        AS_DOCKER,
        "lies outside",
    ),
    "hard link upwards": (
        tar_of(without(DOCKER, DOCKER_LAYER), hard(DOCKER_LAYER, "../x")),
        AS_DOCKER,
        "lies outside",
    ),
    "dangling link": (
        tar_of(without(DOCKER, DOCKER_LAYER), link(DOCKER_LAYER, "gone")),
        AS_DOCKER,
        "is a link to 'gone', which is not in the archive",
    ),
    "links in a circle": (
        tar_of(without(DOCKER, DOCKER_LAYER), link(DOCKER_LAYER, "x"), link("x", "y"), link("y", "x")),
        AS_DOCKER,
        "leads in a circle",
    ),
    "link to itself": (
        tar_of(without(OCI, "index.json"), link("index.json", "index.json")),
        AS_OCI,
        "leads in a circle",
    ),
    "layers named upwards": (
        tar_of(listing(Layers=["../../../etc/passwd", "x"])),
        AS_DOCKER,
        "lies outside",
    ),
    "config named absolutely": (tar_of(listing(Config="/etc/passwd")), AS_DOCKER, "lies outside"),
    "a device as layer": (
        tar_of(without(DOCKER, DOCKER_LAYER), member(DOCKER_LAYER, kind=tarfile.CHRTYPE)),
        AS_DOCKER,
        "is not a plain file",
    ),
    "a fifo as index": (
        tar_of(without(OCI, "index.json"), member("index.json", kind=tarfile.FIFOTYPE)),
        AS_OCI,
        "is not a plain file",
    ),
    "a sparse index": (
        sparse("index.json") + tar_of(without(OCI, "index.json")),
        AS_OCI,
        "is not a plain file",
    ),
    # documents that are not what they should be
    "two indexes": (tar_of([*OCI.items(), ("index.json", b"{}")]), AS_OCI, "two entries index.json"),
    "two manifests": (
        tar_of([*DOCKER.items(), ("./manifest.json", b"[]")]),
        AS_DOCKER,
        "two entries manifest.json",
    ),
    "index is no JSON": (tar_of(OCI | {"index.json": b"\xff\xfe"}), AS_OCI, "cannot be read"),
    "index is deep": (tar_of(OCI | {"index.json": DEEP}), AS_OCI, "cannot be read"),
    "index is a list": (tar_of(OCI | {"index.json": b"[]"}), AS_OCI, "cannot be read"),
    "index without manifests": (tar_of(OCI | {"index.json": b"{}"}), AS_OCI, "lists no manifests"),
    "index is empty": (tar_of(index()), AS_OCI, "holds no image"),
    "index is huge": (tar_of(OCI | {"index.json": BOMB}), AS_OCI, "more than the 4,194,304"),
    "digest is a path": (
        tar_of(index({"digest": "sha256:../../../../etc/passwd", "size": 1})),
        AS_OCI,
        "not a SHA-256",
    ),
    "digest of another kind": (
        tar_of(index({"digest": "sha384:" + "0" * 96, "size": 1})),
        AS_OCI,
        "not a SHA-256",
    ),
    "digest in capitals": (tar_of(index({"digest": ONE.digest.upper(), "size": 1})), AS_OCI, "not a SHA-256"),
    "size below nothing": (
        tar_of(index({"digest": ONE.digest, "size": -5})),
        AS_OCI,
        "gives the size -5 bytes",
    ),
    "manifest is another": (tar_of(OCI | {MANIFEST: OTHER.manifest}), AS_OCI, "bytes and should have"),
    "manifest is another of its length": (
        tar_of(OCI | {MANIFEST: b"{}".ljust(len(ONE.manifest))}),
        AS_OCI,
        "not match its digest",
    ),
    "manifest is missing": (tar_of(without(OCI, MANIFEST)), AS_OCI, f"lacks {ONE.digest}"),
    "manifest is huge": (tar_of(document(BOMB)), AS_OCI, "more than the 4,194,304"),
    "manifest is deep": (tar_of(document(DEEP)), AS_OCI, "cannot be read"),
    "manifest of nothing": (tar_of(document(b"{}")), AS_OCI, "is not an image"),
    "config is another": (tar_of(OCI | {CONFIG: b"{}"}), AS_OCI, "not match its digest"),
    "config is missing": (tar_of(without(OCI, CONFIG)), AS_OCI, "lacks sha256:"),
    "layer is missing": (tar_of(without(OCI, FIRST_LAYER)), AS_OCI, "lacks sha256:"),
    "layer is short": (tar_of(OCI | {FIRST_LAYER: ONE.layers[0][:-1]}), AS_OCI, "is damaged: sha256:"),
    "layer is long": (tar_of(OCI | {FIRST_LAYER: ONE.layers[0] + b"x"}), AS_OCI, "is damaged: sha256:"),
    "saved is no JSON": (tar_of(DOCKER | {"manifest.json": b"["}), AS_DOCKER, "cannot be read"),
    "saved is deep": (tar_of(DOCKER | {"manifest.json": DEEP}), AS_DOCKER, "cannot be read"),
    "saved is a number": (tar_of(DOCKER | {"manifest.json": b"[7]"}), AS_DOCKER, "cannot be read"),
    "saved is nothing": (tar_of(DOCKER | {"manifest.json": b"[]"}), AS_DOCKER, "holds no image"),
    "saved is null": (tar_of(DOCKER | {"manifest.json": b"null"}), AS_DOCKER, "cannot be read"),
    "saved config is another": (
        tar_of(DOCKER | {hex_of(ONE.config) + ".json": OTHER.config}),
        AS_DOCKER,
        "config does not",
    ),
    "saved config is missing": (tar_of(listing(Config="x")), AS_DOCKER, "lacks the config"),
    "saved config has no layers": (tar_of(listing(Config="c") | {"c": b"{}"}), AS_DOCKER, "names no layers"),
    "saved config has odd diff-ids": (
        tar_of(listing(Config="c", Layers=["x"]) | {"c": b'{"rootfs":{"diff_ids":["../x"]}}'}),
        AS_DOCKER,
        "not a SHA-256",
    ),
    "fewer layers than diff-ids": (
        tar_of(listing(Layers=[DOCKER_LAYER])),
        AS_DOCKER,
        "contradicts itself: 1 layers",
    ),
    "saved layer is missing": (tar_of(without(DOCKER, DOCKER_LAYER)), AS_DOCKER, "lacks its layer 1"),
    "before manifest.json": (
        tar_of({"repositories": b"{}", "x/layer.tar": b""}),
        AS_DOCKER,
        "no manifest.json",
    ),
    # tars that are none
    "empty": (b"", AS_OCI, "is empty"),
    "zeros": (bytes(10240), AS_OCI, "no index.json"),
    "text": (b"hello\n" * 1000, AS_OCI, "is damaged"),
    "shorter than a header": (tar_of(OCI)[:100], AS_OCI, "in the middle of a header"),
    "cut off in an entry": (tar_of(OCI)[:1700], AS_OCI, "ends in the middle of its entry"),
    "wrong checksum": (
        tar_of(OCI)[:1024] + b"X" + tar_of(OCI)[1025:],
        AS_OCI,
        "a header's checksum is wrong",
    ),
    "claims more than there is": (
        member("index.json", size=2**62).tobuf(tarfile.GNU_FORMAT),
        AS_OCI,
        "ends in the middle",
    ),
    "negative size": (member("index.json", size=-1).tobuf(tarfile.GNU_FORMAT), AS_OCI, "a negative size"),
    "name of a gigabyte": (
        member("././@LongLink", kind=b"L", size=2**30).tobuf(tarfile.GNU_FORMAT),
        AS_OCI,
        "claims 1,073,741,824 bytes",
    ),
    "cut off in a name": (
        member("././@LongLink", kind=b"L", size=2000).tobuf(tarfile.GNU_FORMAT),
        AS_OCI,
        "in the middle of a header",
    ),
    "pax length of nothing": (pax(b"0 path=x\n", tar_of(OCI)), AS_OCI, "not written as pax"),
    "pax length too long": (pax(b"999 path=x\n", tar_of(OCI)), AS_OCI, "not written as pax"),
    "pax without a length": (pax(b"path=x\n", tar_of(OCI)), AS_OCI, "not written as pax"),
    "pax size is a word": (pax(b"12 size=abc\n", tar_of(OCI)), AS_OCI, "size is no number"),
    "pax size below nothing": (pax(b"11 size=-9\n", tar_of(OCI)), AS_OCI, "size is no number"),
    "pax name upwards": (pax(b"13 path=../x\n", tar_of(OCI)), AS_OCI, "lies outside"),
    "NUL in a name": (pax(b"12 path=a\0b\n", tar_of(OCI)), AS_OCI, "holds a zero byte"),
    "gzip cut off": (gzip.compress(tar_of(OCI))[:-20], AS_OCI, PACKED),
    "gzip changed": (gzip.compress(tar_of(OCI))[:-6] + b"\0\0\0\0\0\0", AS_OCI, PACKED),
    "gzip of nothing": (b"\x1f\x8b", AS_OCI, PACKED),
    "gzip with rubbish behind": (gzip.compress(tar_of(OCI)) + b"rubbish", AS_OCI, PACKED),
    "zstd changed": (zstandard.compress(tar_of(OCI))[:20] + b"\xff" * 50, AS_OCI, PACKED),
    "zstd cut off": (zstandard.compress(tar_of(OCI))[:-1], AS_OCI, PACKED),
    "zstd with rubbish behind": (zstandard.compress(tar_of(OCI)) + b"rubbish", AS_OCI, PACKED),
    "xz": (b"\xfd7zXZ\0" + bytes(100), AS_OCI, "compressed by xz"),
    "bzip2": (b"BZh9" + bytes(100), AS_OCI, "compressed by bzip2"),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_an_archive_is_refused(tmp_path: Path, case: str) -> None:
    data, transport, said = ARCHIVES[case]
    path = tmp_path / "image.tar"
    path.write_bytes(data)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ImageError) as caught:
        read_whole(open_local(path, transport, scratch=scratch))
    assert said in caught.value.message
    assert str(path) in caught.value.message
    assert sorted(tmp_path.iterdir()) == before
    assert list(scratch.iterdir()) == []


def folder_with(folder: Path, change: Callable[[Path], object]) -> Path:
    put(folder, OCI)
    change(folder)
    return folder


def replaced(name: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return change


FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "index is a fifo": (replaced("index.json", os.mkfifo), "not a regular file"),
    "index is a folder": (replaced("index.json", Path.mkdir), "not a regular file"),
    "index never ends": (
        replaced("index.json", lambda path: path.symlink_to("/dev/zero")),
        "not a regular file",
    ),
    "index dangles": (replaced("index.json", lambda path: path.symlink_to("gone")), "not found"),
    "index is a circle": (replaced("index.json", lambda path: path.symlink_to(path)), "cannot be read"),
    "index is missing": (lambda folder: (folder / "index.json").unlink(), "no index.json"),
    "manifest is a fifo": (replaced(MANIFEST, os.mkfifo), "not a regular file"),
    "manifest is another": (
        lambda folder: (folder / MANIFEST).write_bytes(b"{}"),
        "has 2 bytes and should have",
    ),
    "manifest is another of its length": (
        lambda folder: (folder / MANIFEST).write_bytes(b"{}".ljust(len(ONE.manifest))),
        "not match its digest",
    ),
    "manifest is huge": (lambda folder: os.truncate(folder / MANIFEST, 2**40), "more than the 4,194,304"),
    "layer is a fifo": (replaced(FIRST_LAYER, os.mkfifo), "not a regular file"),
    "layer never ends": (
        replaced(FIRST_LAYER, lambda path: path.symlink_to("/dev/zero")),
        "not a regular file",
    ),
    "layer claims to be huge": (lambda folder: os.truncate(folder / FIRST_LAYER, 2**40), "is damaged"),
    "layer is missing": (lambda folder: (folder / FIRST_LAYER).unlink(), "lacks sha256:"),
    "blobs are missing": (lambda folder: shutil.rmtree(folder / "blobs"), "lacks sha256:"),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_layout_folder_is_refused(tmp_path: Path, case: str) -> None:
    change, said = FOLDERS[case]
    path = folder_with(tmp_path / "layout", change)
    with pytest.raises(ImageError) as caught:
        read_whole(open_local(path, Transport.OCI))
    assert said in caught.value.message
    assert str(path) in caught.value.message


@pytest.mark.parametrize("name", ["index.json", MANIFEST, CONFIG])
def test_a_link_to_a_private_file_tells_nothing_of_it(tmp_path: Path, name: str) -> None:
    private = tmp_path / "private"
    private.write_text(SECRET)
    path = folder_with(tmp_path / "layout", replaced(name, lambda each: each.symlink_to(private)))
    with pytest.raises(ImageError) as caught:
        read_whole(open_local(path, Transport.OCI))
    error = caught.value
    assert SECRET not in error.message + error.context + error.remedy + str(error)


@pytest.mark.parametrize(
    "transport", [Transport.OCI_ARCHIVE, Transport.SIF, Transport.SQUASHFS, Transport.ROOTFS]
)
@pytest.mark.parametrize("kind", ["fifo", "device", "missing"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, transport: Transport, kind: str) -> None:
    path = tmp_path / "it"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    with pytest.raises(ImageError, match=r"not a regular file|not found"):
        open_local(path, transport)
    with pytest.raises(ImageError, match=r"not a regular file|not found"):
        sniff(path)


def test_a_bomb_is_stopped_early(tmp_path: Path) -> None:
    """Two megabytes that would become two thousand."""
    path = tmp_path / "bomb.tar.zst"
    zeros = bytes(1 << 20)
    header = member("big", size=2**31).tobuf(tarfile.GNU_FORMAT)
    with open(path, "wb") as stream, zstandard.ZstdCompressor(level=1).stream_writer(stream) as packer:
        packer.write(header)
        for _ in range(400):
            packer.write(zeros)
    assert path.stat().st_size < 100_000
    with pytest.raises(ImageError, match="is a decompression bomb") as caught:
        open_local(path, Transport.OCI_ARCHIVE)
    assert "--max-ratio 10000" in caught.value.remedy
    with pytest.raises(ImageError, match="ends in the middle of its entry"):  # the limit is the user's
        open_local(path, Transport.OCI_ARCHIVE, max_ratio=100_000)


def test_a_bomb_in_a_layer_is_stopped_early(tmp_path: Path) -> None:
    zeros = bytes(110 << 20)
    bomb = zstandard.compress(zeros, 1)
    config = json.dumps({"rootfs": {"diff_ids": [sha256(zeros)]}}).encode()
    saved = [{"Config": "c.json", "RepoTags": None, "Layers": ["layer.tar"]}]
    files = {"c.json": config, "layer.tar": bomb, "manifest.json": json.dumps(saved).encode()}
    path = tmp_path / "a.tar"
    path.write_bytes(tar_of(files))
    source = open_local(path, Transport.DOCKER_ARCHIVE)
    with pytest.raises(ImageError, match=r"the entry layer\.tar of .* is a decompression bomb"):
        archives.read_blob(source, Descriptor(media_type="", digest=sha256(zeros), size=-1))


@pytest.mark.thorough
def test_a_million_entries_are_no_image(tmp_path: Path) -> None:
    path = tmp_path / "many.tar"
    with open(path, "wb") as stream:
        for number in range(200_010):
            stream.write(small_header(number))
    with pytest.raises(ImageError, match="more than 200,000 entries"):
        open_local(path, Transport.OCI_ARCHIVE)


def small_header(number: int) -> bytes:
    header = bytearray(512)
    header[:10] = b"%010d" % number
    header[124:136] = b"%011o\0" % 0
    header[148:156] = b" " * 8
    header[156] = ord("0")
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def test_a_document_that_was_not_asked_for_is_not_given(tmp_path: Path) -> None:
    put(tmp_path, OCI)
    source = open_local(tmp_path, Transport.OCI)
    for digest in ("sha256:../../x", "sha256:" + "0" * 64, ONE.digest + "/../x", "x", "/etc/passwd"):
        with pytest.raises(ImageError):
            source.document(digest)
        with pytest.raises(ImageError), source.blob(Descriptor(media_type="", digest=digest, size=-1)):
            pass


# -- root file systems -----------------------------------------------------------------------------------


def test_a_root_file_system_is_read_and_never_followed_out_of(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "environment").write_text(f"TOKEN={SECRET}\n")
    (private / "labels.json").write_text(json.dumps({"token": SECRET}))
    (private / "90-x.sh").write_text(f"export TOKEN={SECRET}\n")
    root = put(tmp_path / "root", {"usr/x": b"1"})
    (root / "ch").symlink_to(private)
    (root / ".singularity.d").mkdir()
    (root / ".singularity.d/env").symlink_to("../../private")
    (root / ".singularity.d/labels.json").symlink_to("/" + "../" * 30 + str(private / "labels.json"))
    (root / "bin").symlink_to("bin")
    (root / "escape").symlink_to(private)
    source = open_local(root, Transport.ROOTFS)
    read = read_whole(source)
    everything = (
        source.document().data + source.document(json.loads(source.document().data)["config"]["digest"]).data
    )
    assert SECRET.encode() not in everything + read.blobs[0]


def test_files_of_metadata_may_be_anything(tmp_path: Path) -> None:
    root = put(tmp_path / "root", {"usr/x": b"1", ".singularity.d/labels.json": DEEP})
    os.mkfifo(root / ".singularity.d/runscript")
    (root / ".singularity.d/env").mkdir()
    (root / ".singularity.d/env/90-x.sh").write_bytes(
        b"export \xff=\xfe\nexport A=\0\nexport =\n" + b"x" * 2**20
    )
    (root / "ch").mkdir()
    os.mkfifo(root / "ch/environment")
    assert read_whole(open_local(root, Transport.ROOTFS)).config.process.command == ("/bin/sh",)


def test_this_machine_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "root").symlink_to("/")
    for path in (Path("/"), tmp_path / "root"):
        with pytest.raises(ImageError, match="is this machine itself"):
            open_local(path, Transport.ROOTFS)


def test_a_file_of_holes_is_refused(tmp_path: Path) -> None:
    root = put(tmp_path / "root", {"var/log/lastlog": b"", "var/log/some": b"x"})
    os.truncate(root / "var/log/some", 90_000_000)
    os.truncate(root / "var/log/lastlog", 300 << 30)
    with pytest.raises(ImageError, match="/var/log/lastlog claims 322,122,547,200 bytes") as caught:
        open_local(root, Transport.ROOTFS).document()
    assert caught.value.remedy.startswith(f"truncate -s 0 {root}/var/log/lastlog")
    os.truncate(root / "var/log/lastlog", 110_000_000)
    with open(root / "var/log/lastlog", "r+b") as stream:
        stream.seek(50_000_000)
        stream.write(b"x" * 200_000)
    assert open_local(root, Transport.ROOTFS).document().data


def test_a_folder_that_changes_between_two_readings_is_found_out(tmp_path: Path) -> None:
    root = put(tmp_path / "root", {"usr/x": b"1"})
    source = open_local(root, Transport.ROOTFS)
    source.document()
    (root / "usr/x").write_bytes(b"2")
    with pytest.raises(AssertionError):  # by whoever reads it: a pull compares the digest
        read_whole(source)


# -- SIF and squashfs ------------------------------------------------------------------------------------

SYSTEM = archives.sif_part(offset=32768, size=96)
SIFS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is not a SIF"),
    "header cut off": (archives.sif_of()[:100], "is not a SIF"),
    "another magic": (archives.sif_of(SYSTEM, magic=b"SIF_TRICK"), "is not a SIF"),
    "version 99": (archives.sif_of(SYSTEM, version=b"99"), "version 99"),
    "descriptors below nothing": (archives.sif_of(SYSTEM, descriptors=-1), "is damaged"),
    "2^62 descriptors": (archives.sif_of(SYSTEM, descriptors=2**53), "is damaged"),
    "descriptors before the file": (archives.sif_of(SYSTEM, offset=-4096), "is damaged"),
    "descriptors over the header": (archives.sif_of(SYSTEM, offset=0), "is damaged"),
    "descriptors behind the end": (archives.sif_of(SYSTEM, offset=2**62), "is damaged"),
    "descriptors cut off": (archives.sif_of(SYSTEM)[:4600], "is cut off"),
    "part before the file": (archives.sif_of(archives.sif_part(offset=-1, size=5)), "is damaged"),
    "part of negative size": (archives.sif_of(archives.sif_part(offset=32768, size=-5)), "is damaged"),
    "part behind the end": (archives.sif_of(archives.sif_part(offset=2**62, size=5)), "is cut off"),
    "part that wraps around": (
        archives.sif_of(archives.sif_part(offset=2**63 - 1, size=2**63 - 1)), "is cut off"
    ),
    "part larger than the file": (archives.sif_of(archives.sif_part(offset=0, size=2**40)), "is cut off"),
    "configuration of a gigabyte": (
        archives.sif_of(archives.sif_part(archives.DATA_JSON, offset=0, size=2**23, name=b"oci-config.json"),
                        data=bytes(2**23)), "oci-config.json has 8,388,608 bytes"
    ),
    "no squashfs in it": (archives.sif_of(SYSTEM, data=bytes(96)), "holds no squashfs"),
    "squashfs cut off": (
        archives.sif_of(SYSTEM, data=archives.superblock(bytes_used=2**40)), "is cut off"
    ),
    "squashfs over its part": (
        archives.sif_of(SYSTEM, data=archives.superblock(bytes_used=97) + bytes(100)), "is cut off"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SIFS)
def test_a_sif_is_refused(tmp_path: Path, case: str) -> None:
    data, said = SIFS[case]
    path = tmp_path / "x.sif"
    path.write_bytes(data)
    with pytest.raises(ImageError) as caught:
        open_local(path, Transport.SIF)
    assert said in caught.value.message
    assert str(path) in caught.value.message


def squashed(folder: Path, tree: Path) -> bytearray:
    """A squashfs whose names can be changed, because nothing of it is compressed."""
    path = folder / "it.sqfs"
    argv = [
        tool("mksquashfs"),
        tree,
        path,
        "-quiet",
        "-noI",
        "-noD",
        "-noF",
        "-noX",
        "-no-xattrs",
        "-all-root",
    ]
    subprocess.run(argv, check=True, capture_output=True)
    return bytearray(path.read_bytes())


@pytest.mark.parametrize("evil", [b"../escaped", b"..........", b"/tmp/evil_"])
def test_names_in_a_squashfs_do_not_lead_out(tmp_path: Path, evil: bytes) -> None:
    tree = put(tmp_path / "tree", {"usr/AAAAAAAAAA": b"x"})
    data = squashed(tmp_path, tree)
    assert data.count(b"AAAAAAAAAA") == 1
    place = tmp_path / "a/b/c"
    place.mkdir(parents=True)
    path = tmp_path / "evil.sqfs"
    path.write_bytes(data.replace(b"AAAAAAAAAA", evil))
    before = sorted(tmp_path.rglob("*"))
    source = open_local(path, Transport.SQUASHFS, scratch=place)
    with contextlib.suppress(ImageError):
        # Eleven dots are a name like any other; what unsquashfs takes must have stayed inside.
        assert all(b"/" not in each for each in [evil] if read_whole(source))
    del source
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path("/tmp/evil_").exists()


def test_a_parent_folder_as_a_name_in_a_squashfs_is_refused(tmp_path: Path) -> None:
    data = squashed(tmp_path, put(tmp_path / "tree", {"usr/QZ/escaped": b"x"}))
    assert data.count(b"QZ") == 1
    path = tmp_path / "evil.sqfs"
    path.write_bytes(data.replace(b"QZ", b".."))
    place = tmp_path / "a/b/c"
    place.mkdir(parents=True)
    with pytest.raises(ImageError):
        read_whole(open_local(path, Transport.SQUASHFS, scratch=place))
    assert not list(tmp_path.rglob("escaped*")) or list(tmp_path.rglob("escaped*")) == [
        tmp_path / "tree/usr/QZ/escaped"
    ]
    assert list(place.iterdir()) == []


def test_a_squashfs_that_claims_a_huge_file_is_refused(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    with open(tree / "hole", "wb") as stream:
        stream.truncate(2 << 30)
    path = tmp_path / "x.sqfs"
    subprocess.run([tool("mksquashfs"), tree, path, "-quiet", "-b", "1M"], check=True, capture_output=True)
    with pytest.raises(ImageError, match="times as large"):
        open_local(path, Transport.SQUASHFS, scratch=tmp_path).document()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4))
def test_a_damaged_squashfs_is_an_error_or_harmless(damage: list[tuple[int, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = squashed(folder, put(folder / "tree", {"usr/a": b"x" * 3000, "usr/b/c": b"y"}))
        for at, junk in damage:
            place = at % len(data)
            data[place : place + len(junk)] = junk
        path = folder / "damaged.sqfs"
        path.write_bytes(data)
        scratch = folder / "scratch"
        scratch.mkdir()
        before = sorted(folder.rglob("*"))
        with contextlib.suppress(BareboatError):
            read_whole(open_local(path, Transport.SQUASHFS, scratch=scratch))
        assert sorted(folder.rglob("*")) == before


# -- fuzz ------------------------------------------------------------------------------------------------

SEEDS = [tar_of(OCI), tar_of(DOCKER), gzip.compress(tar_of(OCI)), pax(b"12 path=abc\n", tar_of(DOCKER))]


@settings(max_examples=300, deadline=None)
@given(
    seed=st.sampled_from(SEEDS),
    damage=st.lists(
        st.tuples(st.integers(0, 2**20), st.binary(min_size=1, max_size=20)), min_size=1, max_size=5
    ),
    keep=st.integers(0, 2**20),
    transport=st.sampled_from([Transport.OCI_ARCHIVE, Transport.DOCKER_ARCHIVE, Transport.ROOTFS]),
)
def test_a_damaged_archive_is_an_error_or_harmless(
    seed: bytes, damage: list[tuple[int, bytes]], keep: int, transport: Transport
) -> None:
    data = bytearray(seed)
    for at, junk in damage:
        place = at % len(data)
        data[place : place + len(junk)] = junk
    with tempfile.NamedTemporaryFile() as stream:
        stream.write(data[: keep % len(data) or None])
        stream.flush()
        with contextlib.suppress(BareboatError):
            sniff(stream.name)
        with contextlib.suppress(BareboatError):
            source = open_local(stream.name, transport)
            document = source.document()
            assert sha256(document.data) == document.digest


def test_reading_a_large_archive_takes_little_memory(tmp_path: Path) -> None:
    """A gigabyte of holes in a layer, in a process that may have 400 MB in all."""
    path = tmp_path / "big.tar"
    zeros = 1 << 30
    name = DOCKER_LAYER
    header = member(name, size=zeros).tobuf(tarfile.GNU_FORMAT)
    with open(path, "wb") as stream:
        stream.write(header)
        stream.truncate(len(header) + zeros)
        stream.seek(0, os.SEEK_END)
        stream.write(tar_of(without(DOCKER, name)))
    program = (
        "import sys\nfrom bareboat_images.transfer.local import *\n"
        "source = open_local(sys.argv[1], Transport.DOCKER_ARCHIVE)\n"
        "import json\nlayer = json.loads(source.document().data)['layers'][0]\n"
        "from bareboat_images.oci.source import Descriptor\n"
        "d = Descriptor(media_type='', digest=layer['digest'], size=layer['size'])\n"
        "n = 0\nbuffer = memoryview(bytearray(1 << 20))\n"
        "with source.blob(d) as blob:\n"
        "    while got := blob.readinto(buffer): n += got\n"
        "print(n)\n"
    )
    limited = completed(
        [sys.executable, "-c", program, str(path)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20)),
    )
    assert limited.stdout.strip() == str(zeros), limited.stderr
