"""Readers of documents: indexes, manifests, configurations, log-ins, and what a program's file says."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import elves
from archives import DOCKER_LIST, OCI_CONFIG, OCI_INDEX, OCI_LAYER, OCI_MANIFEST

from bareboat_base.errors import BareboatError
from bareboat_images.inside import survey
from bareboat_images.oci import manifest
from bareboat_images.oci.source import Document
from bareboat_images.registry import credentials
from fuzzing import Finding, Reader

NAME = "quay.io/a/b:1"
_A = "sha256:" + "a" * 64
_TYPES = ("", OCI_INDEX, OCI_MANIFEST, OCI_CONFIG, DOCKER_LIST, manifest.DOCKER_MANIFEST)


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


def document_seeds() -> dict[str, bytes]:
    platform = {"architecture": "amd64", "os": "linux", "variant": "v2"}
    layer = {"mediaType": OCI_LAYER + "+gzip", "digest": _A, "size": 77, "annotations": {"a": "b"}}
    config = {"mediaType": OCI_CONFIG, "digest": _A, "size": 5}
    process = {
        "Env": ["PATH=/usr/bin:/bin", "A=", "LANG=C.UTF-8"], "Entrypoint": ["/entry"], "Cmd": ["serve", "x"],
        "WorkingDir": "/srv", "User": "1000:1000", "Labels": {"a": "b"}, "ExposedPorts": {"80/tcp": {}},
    }  # fmt: skip
    history = [{"created_by": "RUN x", "created": "2020-01-01T00:00:00Z"}, {"empty_layer": True}]
    documents = {
        "index": {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [
            {"mediaType": OCI_MANIFEST, "digest": _A, "size": 4, "platform": platform},
            {"mediaType": OCI_MANIFEST, "digest": _A, "size": 4, "platform": {"architecture": "unknown"}},
        ]},
        "list": {"schemaVersion": 2, "mediaType": DOCKER_LIST, "manifests": [
            {"mediaType": manifest.DOCKER_MANIFEST, "digest": _A, "size": 4, "platform": platform}]},
        "manifest": {"mediaType": OCI_MANIFEST, "config": config, "layers": [layer, layer]},
        "docker": {"mediaType": manifest.DOCKER_MANIFEST, "config": config, "layers": [layer]},
        "artifact": {"schemaVersion": 2, "config": config, "layers": [{"mediaType": "x/sig", "digest": _A}]},
        "encrypted": {"config": config, "layers": [{"mediaType": OCI_LAYER + "+encrypted", "digest": _A}]},
        "windows": {"config": config, "layers": [layer | {"mediaType": "x.foreign.tar", "urls": ["u"]}]},
        "config": {"architecture": "amd64", "os": "linux", "config": process, "history": history,
                   "rootfs": {"type": "layers", "diff_ids": [_A, _A]}},
        "config-plain": {"rootfs": {"diff_ids": []}},
        "schema-1": {"schemaVersion": 1, "fsLayers": []},
    }  # fmt: skip
    return {name: json.dumps(document).encode() for name, document in documents.items()}


# --------------------------------------------------------------------------------------------------
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


def log_in_seeds() -> dict[str, bytes]:
    auth = base64.b64encode(b"ada:secret").decode()
    token = base64.b64encode(b"<token>:x").decode()
    documents = {
        "plain": {"auths": {"quay.io": {"auth": auth}, "https://index.docker.io/v1/": {"auth": auth}}},
        "nested": {"auths": {"quay.io/a": {"auth": auth}, "quay.io/a/b": {"username": "u", "password": "p"}}},
        "token": {"auths": {"docker.io": {"auth": token, "identitytoken": "abc"}}},
        "helper": {"credHelpers": {"quay.io": "none-of-that-name"}, "credsStore": "none"},
        "empty": {},
    }
    return {name: json.dumps(document).encode() for name, document in documents.items()}


# --------------------------------------------------------------------------------------------------
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


def inside_seeds() -> dict[str, bytes]:
    found = {
        "release": b'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian"\nVERSION_ID=12\n',
        "venv": b"home = /usr/bin\ninclude-system-site-packages = true\nversion = 3.11.2\n",
        "conda": b'{"name": "python", "version": "3.11.2", "files": ["bin/python3.11"]}',
        "cuda": b'{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}',
        "strings": b"\x7fELF\0GNU C Library (Debian) stable release version 2.36.\0Open MPI v4.1.4\0"
        b"MPICH Version:\t4.0.2\0NCCL version 2.20.5+cuda12.4\0",
        "conf": b"include /etc/ld.so.conf.d/*.conf\n/usr/local/lib\n",
    }
    found["program"] = elves.make_elf(interpreter="/lib64/ld-linux-x86-64.so.2", needed=("libc.so.6",))
    found["library"] = elves.make_elf(
        machine=elves.AARCH64, exports={"MPIR_Version_string": "4.0.2"}, constants=b"release version 2.36"
    )
    found["big-endian"] = elves.make_elf(order=">", exports={"x": "y"})
    return found


READERS = (
    Reader(
        name="manifests",
        read=read_documents,
        seeds=document_seeds,
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
    Reader(
        name="log-ins", read=read_log_in, seeds=log_in_seeds, words=(b'"auths"', b'"credsStore"', b"<token>")
    ),
    Reader(name="inside", read=read_inside, seeds=inside_seeds, words=(b"\x7fELF\x02\x01", b"libmpi.so.40")),
)
