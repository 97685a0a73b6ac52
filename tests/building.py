"""Builds for tests: `bareboat image build` in a process of its own, on a small base image."""

from __future__ import annotations

import io
import json
import os
import socket
import tarfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forked
import images
from archives import tar_of
from registries import INDEX, MANIFEST, sha256

from bareboat.model import Image
from bareboat_images.store import Store
from bareboat_images.transfer import rebuild

#: A base on which commands run: busybox, with all its programs.
BASE = """FROM scratch
ADD base.tar /
RUN ["/bin/busybox", "--install", "-s", "/bin"]
"""
PASSWD = b"root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\n"
GROUP = b"root:x:0:\nstaff:x:50:\n"


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@dataclass
class Builds:
    """One store, and a context for each build."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    _count: int = 0

    @property
    def store(self) -> Store:
        return Store(self.folder / "store")

    def bareboat(self, *arguments: str | Path, code: int = 0, cwd: Path | None = None) -> Said:
        done = forked.run(
            *arguments,
            env=os.environ | {"BAREBOAT_STORE": str(self.folder / "store")} | self.variables,
            cwd=cwd or self.folder,
            timeout_s=300,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code, done.stderr
        return Said(done.returncode, done.stdout, done.stderr)

    def context(self, dockerfile: str, files: dict[str, bytes | str | None] | None = None) -> Path:
        """A new directory with these files: text after `-> ` is a link's target, None makes a directory."""
        self._count += 1
        top = self.folder / f"context-{self._count}"
        top.mkdir()
        for name, content in (files or {}).items():
            path = top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                path.mkdir(exist_ok=True)
            elif isinstance(content, bytes):
                path.write_bytes(content)
            elif content.startswith("-> "):
                path.symlink_to(content.removeprefix("-> "))
            else:
                path.write_text(content)
        (top / "Dockerfile").write_text(dockerfile)
        return top

    def build(
        self,
        dockerfile: str,
        files: dict[str, bytes | str | None] | None = None,
        *flags: str,
        code: int = 0,
    ) -> Said:
        return self.bareboat("image", "build", *flags, self.context(dockerfile, files), code=code)

    def image(
        self, dockerfile: str, files: dict[str, bytes | str | None] | None = None, *flags: str
    ) -> Image:
        said = json.loads(self.build(dockerfile, files, *flags, "--json").out)
        return self.store.image(said["digest"])

    def base(self) -> None:
        """Make the image `base`."""
        tar = images.busybox(**{"etc/passwd": PASSWD, "etc/group": GROUP})
        self.build(BASE, {"base.tar": tar}, "-t", "base")

    def foreign(self, name: str, *tars: bytes, **execution: object) -> None:
        """Load an image that others made, of these layers and with this in its configuration, as `name`."""
        packed = images.pack(*tars, **execution)
        entry = {"mediaType": MANIFEST, "digest": packed.digest, "size": len(packed.manifest)}
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}
        files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode()}
        for blob in (packed.manifest, packed.config, *packed.layers):
            files[f"blobs/{sha256(blob).replace(':', '/')}"] = blob
        path = self.folder / "foreign.tar"
        path.write_bytes(tar_of(files))
        self.bareboat("image", "load", path, "--name", name)

    def config(self, image: Image) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.store.config(image))
        return found

    def tar(self, image: Image, number: int = -1) -> dict[str, tarfile.TarInfo]:
        """The entries of a layer's tar, as a registry would get it."""
        data = io.BytesIO()
        rebuild.write_tar(self.store, image.layers[number], data.write, remedy="")
        data.seek(0)
        with tarfile.open(fileobj=data) as archive:
            return {member.name: member for member in archive.getmembers()}


def wait_for_port(port: int) -> None:
    """Wait until something listens."""
    for _ in range(100):
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        threading.Event().wait(0.1)
    raise AssertionError("the git daemon did not start")
