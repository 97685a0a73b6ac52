"""How each tool turns an image in a registry into a root file system that can be run, and the limits.

Every tool starts with empty caches of its own, in a folder on the file system that is measured; all its
temporary files go there too. Nothing here is timed: bench/pulls does that.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from exhibits import Exhibit


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where one measurement takes place: an empty folder, and two registries with the same images."""

    folder: Path
    plain: str
    tls: str

    def path(self, *names: str) -> str:
        return str(self.folder.joinpath(*names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """One measurement: `before` is not timed, `pull` is."""

    pull: tuple[tuple[str, ...], ...]
    before: tuple[tuple[str, ...], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Where the files are afterwards, as patterns below the folder. Empty: a limit that writes no tree.
    trees: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A tool or a limit. `again`: a second pull into the same folder is meant to be cheap."""

    name: str
    programs: tuple[str, ...]
    steps: Callable[[Ground, Exhibit], Steps]
    limit: bool = False
    again: bool = False
    version: tuple[str, ...] = ()

    @property
    def missing(self) -> str | None:
        return next((program for program in self.programs if find(program) is None), None)

    def version_text(self) -> str:
        if not self.version:
            return ""
        done = subprocess.run([find(self.version[0]) or self.version[0], *self.version[1:]],
                              capture_output=True, text=True, env=dict(os.environ))  # fmt: skip
        lines = (done.stdout or done.stderr).strip().splitlines()
        # udocker prints several lines, "version: 1.3.17" among them.
        return next((line for line in lines if "version" in line), lines[0] if lines else "")


def find(program: str) -> str | None:
    """The program beside this Python (Bareboat in its virtual environment), or on PATH."""
    beside = Path(sys.executable).parent / program
    return str(beside) if program == "bareboat" and beside.exists() else shutil.which(program)


def _bareboat(ground: Ground, image: Exhibit) -> Steps:
    return Steps(
        pull=(
            (
                find("bareboat") or "bareboat",
                "image",
                "pull",
                "--store",
                ground.path("store"),
                "--plain-http",
                f"{ground.plain}/lab/{image.name}:1",
            ),
        ),
        trees="store/layers/sha256/*/tree",
    )


def _podman(ground: Ground, image: Exhibit) -> Steps:
    return Steps(
        pull=(
            (
                "podman",
                *podman_storage(ground.folder),
                "pull",
                "--quiet",
                "--tls-verify=false",
                f"{ground.plain}/lab/{image.name}:1",
            ),
        ),
        trees="storage/overlay/*/diff",
    )


def podman_storage(folder: Path) -> tuple[str, ...]:
    """Options that keep podman's files in a folder; overlayfs by the kernel, not by FUSE."""
    return (
        "--root",
        str(folder / "storage"),
        "--runroot",
        str(folder / "run"),
        "--storage-driver",
        "overlay",
    )


def _umoci(ground: Ground, image: Exhibit) -> Steps:
    return Steps(
        pull=(
            ("skopeo", "copy", "--quiet", "--src-tls-verify=false",
             f"docker://{ground.plain}/lab/{image.name}:1", f"oci:{ground.path('layout')}:1"),
            ("umoci", "unpack", "--rootless", "--image", f"{ground.path('layout')}:1", ground.path("bundle")),
        ),
        trees="bundle/rootfs",
    )  # fmt: skip


def _apptainer_environment(ground: Ground) -> dict[str, str]:
    return {"APPTAINER_CACHEDIR": ground.path("cache"), "APPTAINER_TMPDIR": ground.path("tmp")}


def _apptainer(ground: Ground, image: Exhibit) -> Steps:
    return Steps(
        pull=(("apptainer", "--silent", "build", "--sandbox", "--no-https", ground.path("sandbox"),
               f"docker://{ground.plain}/lab/{image.name}:1"),),
        environment=_apptainer_environment(ground),
        trees="sandbox",
    )  # fmt: skip


def _apptainer_sif(ground: Ground, image: Exhibit) -> Steps:
    return Steps(
        pull=(("apptainer", "--silent", "pull", "--no-https", ground.path("image.sif"),
               f"docker://{ground.plain}/lab/{image.name}:1"),),
        environment=_apptainer_environment(ground),
    )  # fmt: skip


def _udocker(ground: Ground, image: Exhibit) -> Steps:
    name = f"lab/{image.name}:1"
    return Steps(
        before=(("udocker", "install"),),
        pull=(
            ("udocker", "--quiet", "--insecure", "pull", f"--registry=http://{ground.plain}", name),
            ("udocker", "--quiet", "create", "--name=box", name),
        ),
        environment={"UDOCKER_DIR": ground.path("udocker")},
        trees="udocker/containers/*/ROOT",
    )


def _charliecloud(ground: Ground, image: Exhibit) -> Steps:
    return Steps(
        pull=(("ch-image", "--tls-no-verify", "--no-cache", "--storage", ground.path("charlie"), "pull",
               f"{ground.tls}/lab/{image.name}:1"),),
        # ch-image 0.31 wants Debian's own python3, which has the `requests` that it needs.
        environment={"PATH": f"/usr/bin:{os.environ.get('PATH', '')}"},
        trees="charlie/img/*",
    )  # fmt: skip


def _fetched(ground: Ground, image: Exhibit) -> tuple[tuple[str, ...], ...]:
    """Put the compressed layers onto the file system that is measured."""
    return (("mkdir", ground.path("blobs")), ("cp", *map(str, image.blobs), ground.path("blobs")))


def _curl(ground: Ground, image: Exhibit) -> Steps:
    words = ["curl", "--fail", "--silent", "--show-error"]
    for blob in image.blobs:
        words += ["--output", ground.path(blob.name),
                  f"http://{ground.plain}/v2/lab/{image.name}/blobs/sha256:{blob.name}"]  # fmt: skip
    return Steps(pull=(tuple(words),))


def _over_blobs(*words: str) -> Callable[[Ground, Exhibit], Steps]:
    """A command that reads the compressed layers, which are on the file system already."""

    def steps(ground: Ground, image: Exhibit) -> Steps:
        blobs = tuple(ground.path("blobs", blob.name) for blob in image.blobs)
        return Steps(before=_fetched(ground, image), pull=((*words, *blobs),))

    return steps


def _inflate(program: str) -> Callable[[Ground, Exhibit], Steps]:
    def steps(ground: Ground, image: Exhibit) -> Steps:
        script = f"{program} -dc -- {_glob(ground)} >/dev/null"
        return Steps(before=_fetched(ground, image), pull=(("bash", "-c", script),))

    return steps


def _glob(ground: Ground) -> str:
    return shlex.quote(ground.path("blobs")) + "/*"


def _untar_script(ground: Ground, image: Exhibit) -> str:
    tree = shlex.quote(ground.path("tree"))
    lines = [f"set -eo pipefail; mkdir {tree}"]
    lines += [
        f"igzip -dc -- {shlex.quote(ground.path('blobs', blob.name))} | tar -x -C {tree}"
        for blob in image.blobs
    ]
    return "; ".join(lines)


def _untar(ground: Ground, image: Exhibit) -> Steps:
    return Steps(
        before=_fetched(ground, image), pull=(("bash", "-c", _untar_script(ground, image)),), trees="tree"
    )


def _copy(ground: Ground, image: Exhibit) -> Steps:
    return Steps(
        before=(
            *_fetched(ground, image),
            ("bash", "-c", _untar_script(ground, image)),
            ("rm", "-r", ground.path("blobs")),
            # Whiteouts are no files of the image, and cannot be read by whoever made them.
            ("find", ground.path("tree"), "-name", ".wh.*", "-delete"),
        ),
        pull=(("cp", "-a", ground.path("tree"), ground.path("copy")),),
        trees="copy",
    )


#: What every figure is compared with.
UNTAR = "igzip | tar -x"
BAREBOAT = "bareboat image pull"

PEERS = (
    Peer(name=BAREBOAT, programs=("bareboat",), steps=_bareboat, again=True,
         version=("bareboat", "--version")),
    Peer(name="podman pull", programs=("podman",), steps=_podman, again=True,
         version=("podman", "--version")),
    Peer(name="skopeo + umoci --rootless", programs=("skopeo", "umoci"), steps=_umoci,
         version=("umoci", "--version")),
    Peer(name="apptainer build --sandbox", programs=("apptainer",), steps=_apptainer,
         version=("apptainer", "--version")),
    Peer(name="udocker pull + create", programs=("udocker",), steps=_udocker, version=("udocker", "version")),
    Peer(name="ch-image pull", programs=("ch-image",), steps=_charliecloud,
         version=("ch-image", "--version")),
    Peer(name="apptainer pull (SIF)", programs=("apptainer",), steps=_apptainer_sif),
    Peer(name="curl the blobs", programs=("curl",), steps=_curl, limit=True),
    Peer(name="sha256sum", programs=("sha256sum",), steps=_over_blobs("sha256sum"), limit=True),
    Peer(name="openssl sha256", programs=("openssl",), steps=_over_blobs("openssl", "dgst", "-sha256"),
         limit=True),
    Peer(name="igzip -d", programs=("igzip",), steps=_inflate("igzip"), limit=True),
    Peer(name="gzip -d", programs=("gzip",), steps=_inflate("gzip"), limit=True),
    Peer(name=UNTAR, programs=("igzip", "tar"), steps=_untar, limit=True),
    Peer(name="cp -a of the tree", programs=("igzip", "tar"), steps=_copy, limit=True),
)  # fmt: skip

#: Asked for by name only: it makes a file, not a tree, and takes more than a minute.
SLOW = frozenset({"apptainer pull (SIF)"})
