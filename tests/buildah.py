"""buildah with a storage of its own, and images as it is compared with."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from building import Builds
from tools import tool

from bareboat.model import Image
from bareboat_images.inside import configuration as reading
from bareboat_images.layers.view import View


class Peer:
    """buildah with a storage of its own."""

    def __init__(self, top: Path, driver: str = "vfs") -> None:
        self.top = top
        (top / "storage.conf").write_text(
            f'[storage]\ndriver = "{driver}"\ngraphroot = "{top}/graph"\nrunroot = "{top}/run"\n'
        )
        (top / "xdg").mkdir(mode=0o700)
        self.environment = os.environ | {
            "HOME": str(top),
            "CONTAINERS_STORAGE_CONF": str(top / "storage.conf"),
            "XDG_RUNTIME_DIR": str(top / "xdg"),
        }

    def __call__(self, *arguments: str | Path, program: str = "buildah") -> str:
        done = subprocess.run(
            [tool(program), *map(str, arguments)],
            env=self.environment, cwd=self.top, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@contextlib.contextmanager
def storage(driver: str = "vfs") -> Iterator[Peer]:
    """A new storage, removed afterwards."""
    top = Path(tempfile.mkdtemp(prefix="bp-", dir="/tmp"))  # buildah takes only short paths
    made = Peer(top, driver)
    try:
        yield made
    finally:
        if os.geteuid() != 0:
            made("unshare", "rm", "-rf", top / "graph", top / ".local")
        subprocess.run(["chmod", "-R", "u+rwX", str(top)], check=False, capture_output=True)
        shutil.rmtree(top)


def settings(builds: Builds, image: Image) -> reading.Configuration:
    data = builds.store.config(image)
    found = reading.read(data, layers=len(image.layers), name="x")
    found.labels.pop("io.buildah.version", None)
    return found


def view(builds: Builds, image: Image) -> View:
    return View([builds.store.layer(layer.diff_id) for layer in image.layers])
