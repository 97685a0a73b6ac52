"""Readers of documents: indexes, manifests, configurations, log-ins, and what a program's file says."""

import os
from pathlib import Path

from archives import DOCKER_LIST
from registries import CONFIG, INDEX, MANIFEST

from bareboat_base.errors import BareboatError
from bareboat_images.inside import survey
from bareboat_images.oci import manifest
from bareboat_images.oci.source import Document
from bareboat_images.registry import credentials
from fuzzing import Finding, Reader

NAME = "quay.io/a/b:1"
_A = "sha256:" + "a" * 64
_TYPES = ("", INDEX, MANIFEST, CONFIG, DOCKER_LIST, manifest.DOCKER_MANIFEST)


def read_documents(data: bytes, _scratch: Path) -> None:
    """As each of the documents that it may be."""
    refused: BareboatError | None = None
    for media_type in _TYPES:
        document = Document(data=data, media_type=media_type, digest=_A)
        for read in (_index, _image, _config):
            try:
                read(document)
            except BareboatError as error:
                refused = error
    if refused is not None:
        raise refused


def _index(document: Document) -> None:
    offered = manifest.platforms(document, name=NAME)
    for machine in ("x86_64", "aarch64"):
        if offered is not None:
            _digest(manifest.choose(offered, machine=machine, name=NAME).digest)


def _image(document: Document) -> None:
    made = manifest.manifest(document, name=NAME)
    for each in (made.config, *made.layers):
        _digest(each.digest)
        if not -1 <= each.size < 2**63:
            raise Finding(f"a layer of {each.size} bytes")


def _config(document: Document) -> None:
    made = manifest.config(document, name=NAME)
    for name, value in made.environment.items():
        if "\0" in name + value or "=" in name or not name or len(os.fsencode(f"{name}={value}")) >= 1 << 17:
            raise Finding(f"no program can be given the variable {name[:100]!r}")
    if not made.process.workdir.startswith("/") or any("\0" in word for word in made.process.entrypoint):
        raise Finding("a process that cannot be started")
    if any(not comment.isprintable() for comment in made.comments):
        raise Finding("a comment with control characters")
    manifest.check_machine(made.architecture, os=made.os, machine="x86_64", name=NAME)


def _digest(text: str) -> None:
    algorithm, _, digits = text.partition(":")
    if algorithm != "sha256" or not digits.isalnum() or "/" in text:
        raise Finding(f"{text!r} is taken for a digest")


# Log-ins, as podman, Docker and others leave them.


def read_log_in(data: bytes, scratch: Path) -> None:
    path = scratch / "auth.json"
    path.write_bytes(data)
    environment = {"REGISTRY_AUTH_FILE": os.fspath(path), "PATH": os.fspath(scratch)}
    found = None
    for registry, repository in (("docker.io", "library/a"), ("quay.io", "a/b"), ("nvcr.io", "x")):
        found = credentials.find(registry, repository, environment).credential
        if found is not None and any(c in found.basic for c in "\r\n\0 "):
            raise Finding("a log-in that no header can carry")


# The files of an image that are looked at: programs, libraries, releases, Python environments.

_PLACES = (
    "bin/sh", "lib/x86_64-linux-gnu/libc.so.6", "lib64/ld-linux-x86-64.so.2", "usr/bin/python3.11",
    "usr/lib/libmpi.so.40.30.4", "usr/lib/libcudart.so.12.1.105", "usr/lib/libfabric.so.1",
    "usr/lib/libucp.so.0.0.0", "lib/ld-musl-x86_64.so.1", "etc/os-release", "usr/pyvenv.cfg",
    "opt/conda/conda-meta/python-3.11.2-h1.json", "usr/local/cuda/version.json", "etc/ld.so.conf",
    "usr/lib/x86_64-linux-gnu/openmpi/lib/libmpi.so.40", "opt/conda/lib/libnccl.so.2",
)  # fmt: skip


def read_inside(data: bytes, scratch: Path) -> None:
    """One file in all places where files are read."""
    tree = scratch / "tree"
    for place in _PLACES:
        (tree / place).parent.mkdir(parents=True, exist_ok=True)
        (tree / place).write_bytes(data)
    (tree / "usr/bin/python3").symlink_to("python3.11")
    text = data[:300].decode(errors="replace").replace("\0", "")
    for environment in ({}, {"PATH": text, "LD_LIBRARY_PATH": text, "PYTHONPATH": text}):
        found = survey.look([tree], environment=environment)
        if found.distribution is not None and not found.distribution.isprintable():
            raise Finding(f"a distribution called {found.distribution!r}")


READERS = (
    Reader(
        name="manifests",
        read=read_documents,
        words=(
            b'"Env":["',
            b'"digest":',
            b'"size":-2',
            b"sha512:",
            b"\\u0000",
            b"\\ud800",
            b'"urls":[]',
            b"1e400",
        ),
    ),
    Reader(name="log-ins", read=read_log_in, words=(b'"auths"', b'"credsStore"', b"<token>")),
    Reader(name="inside", read=read_inside, words=(b"\x7fELF\x02\x01", b"libmpi.so.40")),
)
