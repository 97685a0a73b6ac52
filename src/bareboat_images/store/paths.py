"""The paths of a store's entries."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from pathlib import Path

from bareboat_base import digests, marks
from bareboat_base.errors import UsageError
from bareboat_base.expressions import expression
from bareboat_base.nearest import nearest
from bareboat_base.printable import quoted
from bareboat_images import argument_types
from bareboat_images.model import Image

#: File names of packed images. The tars hold the flat tree and the relinked one.
FILE_KINDS = ("sif", "squashfs", "tar", "relinked.tar")
NAME = expression(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_TAG = expression(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
#: What follows the job's name in that of a run.
_OF_RUN = expression(r"-\d{8}-\d{6}(-\d+)?\Z")
_POINT = expression(r"(.+-\d{8}-\d{6}(?:-\d+)?)\.(\d+)")


class Paths:
    """The paths of a store's entries."""

    LIST_RUNS = "bareboat status --all   # lists the runs"

    def __init__(self, root: Path, *, chosen_because: str = "", own: Path | None = None) -> None:
        """`own`: for a group's store, the user's own store, which holds everything but images."""
        argument_types.check("the store", root, Path)
        self.root = root
        self.own = root if own is None or own == root else own
        #: Where lies what is made of images: of the group, and of this member of it.
        self.made_in: tuple[Path, ...] = (root,)
        if self.own != root:
            key = digests.hexed(digests.of(os.fsencode(root)))[:16]
            self.made_in = (root, self.own / "groups" / key)
        self._chosen_because = chosen_because
        self._swept: set[Path] = set()

    def layer_folder(self, diff_id: str) -> Path:
        return self.root / "layers" / digest_path(diff_id)

    def layer(self, diff_id: str) -> Path:
        """The layer's tree."""
        return self.layer_folder(diff_id) / "tree"

    def trees(self, image: Image) -> list[Path]:
        """The unpacked layers of an image, bottom first."""
        return [self.layer(layer.diff_id) for layer in image.layers]

    def recipe(self, diff_id: str) -> Path:
        return self.layer_folder(diff_id) / "recipe"

    def part(self, digest: str) -> Path:
        return self.root / "parts" / digest_path(digest)

    def identity(self, key: str) -> Path:
        return self.own / "identities" / key

    def driver(self, key: str) -> Path:
        return self.own / "drivers" / key

    def lease(self, name: str) -> Path:
        return self.root / "leases" / name

    def program(self, key: str) -> Path:
        return self.own / "programs" / key

    def site(self, name: str) -> Path:
        """The facts about a compute node, by scheduler, cluster and partition."""
        return self._facts("sites", name)

    def kept_facts(self, name: str) -> Path:
        """What is known of a subject on this machine; machines may share a home directory."""
        return self._facts("facts", f"{os.uname().nodename}-{name}")

    def _facts(self, room: str, name: str) -> Path:
        return self.own / room / (re.sub(r"[^A-Za-z0-9._-]", "-", name) + ".json")

    def host_library(self, key: str) -> Path:
        return self.own / "host-libraries" / f"{key}.json"

    def host_mpi(self, key: str) -> Path:
        return self.own / "host-mpis" / key

    def builds(self) -> Path:
        """The results of steps of builds, and their cache mounts."""
        return self.own / "builds"

    def kernel_caches(self) -> Path:
        """Compiled GPU kernels, which jobs execute: never in a group's store."""
        return self.own / "kernel-caches"

    def instances(self) -> Path:
        """Containers with names and root file systems of their own."""
        return self.own / "instances"

    def mpi_checks(self) -> Path:
        return self.own / "mpi-checks"

    def entry(self, digest: str) -> Path:
        """The file of an image."""
        return self.root / "images" / (digest_path(digest) + ".json")

    def flat(self, digest: str) -> Path:
        return self._made("flat", digest)

    def roots(self, digest: str) -> Path:
        return self._made("roots", digest)

    def relinked(self, digest: str) -> Path:
        return self._made("relinked", digest)

    def packed(self, digest: str, kind: str, own: str = "") -> Path:
        """The image as one file of a kind, next to its facts and mount directories; `own`: the key of a file
        with the mount points of some jobs."""
        folder = self._made("packed", digest)
        return (folder / "own" / own if own else folder) / f"image.{kind}"

    def _made(self, room: str, digest: str) -> Path:
        """What is made of an image. In a group's store, who pulled the image makes it there; the others share
        their trees, and make all else in their own stores: they could neither change nor remove it."""
        shared = self.made_in[0] / room / digest_path(digest)
        with contextlib.suppress(OSError):
            puller = self.entry(digest).stat().st_uid
            maker = shared.lstat().st_uid if os.path.lexists(shared) else os.geteuid()
            if maker == puller and (room in ("flat", "relinked") or puller == os.geteuid()):
                return shared
        return self.made_in[-1] / room / digest_path(digest)

    def packed_files(self, digest: str) -> dict[str, Path]:
        """Kind -> the image as one file of this kind, for any job."""
        return {kind: self.packed(digest, kind) for kind in FILE_KINDS}

    def blob(self, digest: str) -> Path:
        return self.root / "blobs" / digest_path(digest)

    def run(self, run_id: str) -> Path:
        return _run(self.own, run_id)

    def mark(self, run_id: str) -> str:
        """What marks the run's processes on a node."""
        return marks.of(self.own / "runs", run_id)

    def missing_run(self, name: str) -> UsageError:
        """The error for a run that does not exist, with the most similar run or job."""
        try:
            runs = sorted(os.listdir(self.own / "runs"))
        except OSError:
            runs = []
        near = nearest(name, dict.fromkeys((*(_OF_RUN.sub("", run) for run in runs), *runs)))
        guess = f"; did you mean {near}?" if near and near.isprintable() else ""
        return UsageError(
            f"run {name} not found{guess}", context=f"store: {self.root}", remedy=self.LIST_RUNS
        )


@functools.lru_cache(maxsize=4096)
def _run(own: Path, run_id: str) -> Path:
    """The directory of a run or point, which lists of many runs need a dozen times each."""
    if not NAME.fullmatch(run_id):
        raise UsageError(f"{run_id!r} is not a run name", remedy=Paths.LIST_RUNS)
    if (point := _POINT.fullmatch(run_id)) is not None:
        return own / "runs" / point[1] / "points" / point[2]
    return own / "runs" / run_id


def is_image_name(text: str) -> bool:
    """Whether an image in the store may have this name: NAME or NAME:TAG."""
    from bareboat_images.oci.reference import Transport  # here, because few commands need it

    name, colon, tag = text.partition(":")
    tagged = not colon or (_TAG.fullmatch(tag) is not None and name not in (*Transport, "sha256"))
    return NAME.fullmatch(name) is not None and tagged and not digests.may_begin(text)


def check_name(name: str, *, flag: str = "") -> None:
    """Raise UsageError for an invalid image name. `flag`: the user's flag for it."""
    if not is_image_name(name):
        why = ": it could be the beginning of an image's digest" if digests.may_begin(name) else ""
        raise UsageError(
            f"{flag} {quoted(name, limit=200)} is not a valid image name{why}".lstrip(),
            context="allowed: letters, digits, dots, dashes, underscores, and a tag after one colon",
            remedy=f"{flag} myapp:1.0" if flag else "choose a name such as pytorch-2.4 or myapp:1.0",
        )


def digest_path(digest: str) -> str:
    try:
        return digests.place(digest)
    except ValueError as error:
        raise UsageError(str(error), remedy=f"write {digests.EXAMPLE}") from None
