"""Other tools with a storage of their own, and images as they are compared with those of buildah."""

import contextlib
import filecmp
import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from building import Builds
from tools import output, tool

from bareboat.model import Image
from bareboat_images.layers.view import View


class Peer:
    """buildah, podman and other tools, with a storage of their own."""

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

    def __call__(self, program: str, *arguments: str | Path) -> str:
        how = {"env": self.environment, "cwd": self.top, "errors": "surrogateescape"}
        return output(tool(program), *arguments, **how).strip()

    def as_its_user(self, *command: str) -> str:
        """A command with the rights that the storage needs."""
        return self(*command) if os.geteuid() == 0 else self("podman", "unshare", *command)


@contextlib.contextmanager
def storage(driver: str = "vfs") -> Iterator[Peer]:
    """A new storage, removed afterwards."""
    top = Path(tempfile.mkdtemp(prefix="bp-", dir="/tmp"))  # these tools take only short paths
    made = Peer(top, driver)
    try:
        yield made
    finally:
        made.as_its_user("rm", "-rf", str(top / "graph"), str(top / ".local"))
        subprocess.run(["chmod", "-R", "u+rwX", str(top)], check=False, capture_output=True)
        shutil.rmtree(top)


def settings(builds: Builds, image: Image) -> dict[str, Any]:
    """What an image's configuration has, without its history and times."""
    found = json.loads(builds.store.config(image))
    labels = found["config"].get("Labels") or {}
    labels.pop("io.buildah.version", None)
    kept = {key: value for key, value in found["config"].items() if value and key in SETTINGS}
    return kept | {"Env": sorted(kept.get("Env", ())), "Labels": labels} | {
        key: found.get(key, "") for key in ("architecture", "os", "author")
    }  # fmt: skip


class Change(NamedTuple):
    """A path that differs: added, removed or changed, and in what."""

    path: str
    state: str
    what: str = ""


def changes(before: View, after: View) -> Iterator[Change]:
    """All paths of two trees that differ in kind, content, mode or target."""
    pending = ["/"]
    while pending:
        folder = pending.pop()
        one, other = before.names(folder), after.names(folder)
        for name in sorted(one.keys() | other.keys()):
            path = f"{folder.rstrip('/')}/{name}"
            left, right = one.get(name), other.get(name)
            if "folder" in (left and left.kind, right and right.kind):
                pending.append(path)
            if left and right and left.kind == right.kind:
                what = "" if left == right else _difference(left.places[0], right.places[0])
                if what:
                    yield Change(path, "changed", what)
                continue
            if left:
                yield Change(path, "removed")
            if right:
                yield Change(path, "added")
    assert before.unreadable == after.unreadable == []


#: Fields of a configuration that are compared.
SETTINGS = (
    "User", "WorkingDir", "Entrypoint", "Cmd", "Shell", "ExposedPorts", "Volumes", "StopSignal",
    "Healthcheck", "OnBuild", "Env",
)  # fmt: skip


def _difference(one: str, other: str) -> str:
    states = [os.lstat(each) for each in (one, other)]
    if stat.S_ISLNK(states[0].st_mode):
        return "" if os.readlink(one) == os.readlink(other) else "target"
    if stat.S_ISREG(states[0].st_mode) and not filecmp.cmp(one, other, shallow=False):
        return "content"
    return "" if states[0].st_mode == states[1].st_mode else "mode"


def view(builds: Builds, image: Image) -> View:
    return View([builds.store.layer(layer.diff_id) for layer in image.layers])
