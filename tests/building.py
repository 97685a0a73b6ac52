"""Builds for tests: `bareboat image build` in a process of its own, on a small base image."""

import io
import json
import os
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forked
import images
from archives import entry, oci_files, tar_of

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
WITHOUT_OVERLAY = (
    "from bareboat_images.builder.run import Runner\nRunner._has_overlay = lambda self, *_: False\n"
)


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
        path = self.folder / "foreign.tar"
        path.write_bytes(tar_of(oci_files([packed], [entry(packed)])))
        self.bareboat("image", "load", path, "--name", name)

    def begin_with(self, program: str = WITHOUT_OVERLAY) -> None:
        """Let what is started begin with these lines, until PYTHONPATH is taken from the variables."""
        folder = Path(tempfile.mkdtemp(prefix="site-", dir=self.folder))
        (folder / "sitecustomize.py").write_text(program)
        above = os.environ.get("PYTHONPATH")
        self.variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), above]))

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
