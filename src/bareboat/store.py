"""All paths that Bareboat writes: layers, images, captures, runs. Content-addressed, never half-written.

    layers/sha256/HEX/       a layer, named by the digest of its tar: tree/, layer.json, and a recipe where
                             the tar differs from the canonical one of the tree
    parts/sha256/HEX         a partial download, kept to resume it
    flat/sha256/HEX/         an unpacked image: a tree of hard links
    roots/sha256/HEX/KEY/    the tree of jobs with mounts on paths that the image lacks: tree/, with the mount
                             points, and how it is made of the flat tree
    relinked/sha256/HEX/     the same with relative links, for engines that cannot mount
    packed/sha256/HEX/       an image as one file: image.sif, image.squashfs, or image.tar for compute nodes,
                             with image.KIND.json about it; own/KEY/: for jobs with mounts on paths that the
                             image lacks
    blobs/sha256/HEX         image manifests and configs, indexes that pins need, and compressed layers that
                             the user kept
    images/sha256/HEX.json   facts about an image
    captures/HEX.json        fingerprint of an environment -> digest of its image
    names/NAME               a name -> digest
    pins/HEX.json            the image that a reference referred to when it was pulled
    identities/HEX/          etc/passwd and etc/group of an image with the user's lines added
    drivers/HEX/             links to the files of a GPU driver, as a container sees them
    leases/                  processes that download something
    programs/HEX/            programs of Bareboat that compute nodes need
    sites/NAME.json          facts about compute nodes
    host-libraries/HEX.json  the libraries that a host's MPI library loads
    host-mpis/HEX/           links to an MPI of the host, made for an image
    mpi-checks/HEX.json      MPI check results of this site; mpi-checks/pending/RUN: results to come
    tools/NAME/              a tool that `bareboat doctor --fix` installed
    runs/ID/                 one study or run: study.json, NNNN/ARM.json, scripts, logs
    runs/ID/points/N/        the run ID.N: a point of the sweep ID
    by-hand/NAME-JOB/        the same for a script that was submitted by hand
    tmp/                     work in progress, renamed into place when complete
group                    the name of the group that owns this store (access.py): it holds images; all other
                             data is in each member's own store

An entry becomes visible by one rename, so a reader sees all of it or nothing. A killed writer leaves only
files under tmp/, which the next one removes.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import fcntl
import hashlib
import itertools
import logging
import os
import re
import shlex
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from bareboat import codec, digests, pinning
from bareboat.errors import BareboatError, StoreError, UsageError
from bareboat.files import failures, untrusted
from bareboat.files.trees import remove_tree
from bareboat.model import Image, Pin, Rootfs, StoredLayer
from bareboat.paths import lies_in
from bareboat.printable import one_line

log = logging.getLogger("bareboat")
T = TypeVar("T")

VERSION = "2"
#: File names of packed images. The tars hold the flat tree and the relinked one.
FILE_KINDS = ("sif", "squashfs", "tar", "relinked.tar")
#: Limit of files that are read completely. Memory samples of several days take some megabytes.
_MOST_JSON_BYTES = 64 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_POINT = re.compile(r"(.+-\d{8}-\d{6}(?:-\d+)?)\.(\d+)")
#: The second of a run's creation in its name.
_MOMENT = "%Y%m%d-%H%M%S"
_MOMENT_IN_NAME = re.compile(r"-(\d{8}-\d{6})(?:-\d{1,3})?$")
#: A run further in the future than clock errors explain does not set the time of later runs.
_CLOCK_SKEW_S = 86_400.0
_OWNER = re.compile(r"(?P<space>.+)-(?P<pid>\d+)-(?P<start>\d+)")
_LARGEST_DOCUMENT = 4 << 20
#: Directory of the store -> the remedy for a damaged file in it.
_AGAIN = {
    "images": "bareboat image pull --fresh REFERENCE, or bareboat capture --fresh   # writes it again",
    "pins": "rm {path}   # and bareboat image pull REFERENCE writes it again",
    "layers": "bareboat image pull --fresh REFERENCE, or bareboat capture --fresh   # writes it again",
    "sites": "bareboat doctor --compute   # probes the compute nodes again",
    "host-libraries": "rm {path}   # Bareboat writes it again",
    "host-mpis": "rm {path}   # Bareboat writes it again",
    "mpi-checks": "rm {path}   # the next run writes it again",
    "runs": "restore it from a backup, or remove the run: rm -r {run}",
}
_serials = itertools.count(1)  # per process, which may open one store several times


#: Kept for the life of this process.
_reserved: collections.deque[socket.socket] = collections.deque(maxlen=8)


def _reserve(run_id: str) -> bool:
    """Whether no other process of the user on this machine has a run of this name, in any store: processes
    are found and terminated by that name."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0bareboat-run-{os.getuid()}-{hashlib.sha256(run_id.encode()).hexdigest()[:32]}")
    except OSError as error:
        name.close()
        return error.errno != errno.EADDRINUSE
    _reserved.append(name)
    return True


class Store:
    """A store. Opening it writes nothing; the first write creates it and logs its path and the reason
    `chosen_because`."""

    def __init__(self, root: Path, *, chosen_because: str = "", own: Path | None = None) -> None:
        """`own`: for a group's store, the user's own store, which holds everything but images."""
        self.root = root
        self.own = root if own is None or own == root else own
        #: The directory of tools from `doctor --fix`.
        self.tools = self.own / "tools"
        self._chosen_because = chosen_because
        self._swept: set[Path] = set()

    # -- places ------------------------------------------------------------------------------------

    def layer_folder(self, diff_id: str) -> Path:
        return self.root / "layers" / _place(diff_id)

    def layer(self, diff_id: str) -> Path:
        """The layer's tree."""
        return self.layer_folder(diff_id) / "tree"

    def recipe(self, diff_id: str) -> Path:
        return self.layer_folder(diff_id) / "recipe"

    def part(self, digest: str) -> Path:
        return self.root / "parts" / _place(digest)

    def identity(self, key: str) -> Path:
        return self.own / "identities" / key

    def driver(self, key: str) -> Path:
        return self.own / "drivers" / key

    def lease(self, name: str) -> Path:
        return self.root / "leases" / name

    def program(self, key: str) -> Path:
        return self.own / "programs" / key

    def site(self, name: str) -> Path:
        """The facts about a compute node, by scheduler and partition."""
        return self.own / "sites" / (re.sub(r"[^A-Za-z0-9._-]", "-", name) + ".json")

    def host_library(self, key: str) -> Path:
        return self.own / "host-libraries" / f"{key}.json"

    def host_mpi(self, key: str) -> Path:
        return self.own / "host-mpis" / key

    def mpi_checks(self) -> Path:
        return self.own / "mpi-checks"

    def flat(self, digest: str) -> Path:
        return self.root / "flat" / _place(digest)

    def roots(self, digest: str) -> Path:
        return self.root / "roots" / _place(digest)

    def relinked(self, digest: str) -> Path:
        return self.root / "relinked" / _place(digest)

    def tool(self, name: str) -> Path:
        return self.tools / name

    def packed(self, digest: str, kind: str, own: str = "") -> Path:
        """The image as one file of a kind, next to its facts and mount directories; `own`: the key of a file
        with the mount points of some jobs."""
        folder = self.root / "packed" / _place(digest)
        return (folder / "own" / own if own else folder) / f"image.{kind}"

    def blob(self, digest: str) -> Path:
        return self.root / "blobs" / _place(digest)

    def run(self, run_id: str) -> Path:
        if not _NAME.fullmatch(run_id):
            raise UsageError(f"{run_id!r} is not a run name", remedy="bareboat report  # lists the runs")
        if (point := _POINT.fullmatch(run_id)) is not None:
            return self.own / "runs" / point[1] / "points" / point[2]
        return self.own / "runs" / run_id

    def rootfs(self, image: Image) -> Rootfs:
        """The paths of the image's layers, bottom first, its flat tree and its packed files."""
        return Rootfs(
            layers={layer.diff_id: str(self.layer(layer.diff_id)) for layer in image.layers},
            flat=str(self.flat(image.digest)),
            relinked=str(self.relinked(image.digest)),
            packed={kind: str(self.packed(image.digest, kind)) for kind in FILE_KINDS},
        )

    # -- writing -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def scratch(self, *, own: bool = False) -> Iterator[Path]:
        """A directory for work in progress, removed at the end. `own`: in the user's own store, for data that
        is not part of an image. Nobody else can write to it."""
        root = self.own if own else self.root
        with self.guarded():
            self._make(root)
            folder = root / "tmp" / f"{owner()}-{next(_serials)}"
            folder.mkdir(mode=0o700)
            if self.own != root and root == self.root:  # other members of the group read it to find owners
                folder.chmod(0o2750)
        try:
            with self.guarded():
                yield folder
        finally:
            with contextlib.suppress(OSError):  # the next sweep removes files that NFS holds
                remove_tree(folder)

    def publish(self, made: Path, final: Path) -> None:
        """Rename a finished tree or file into place. If another writer was first, nothing is lost: the
        content is equal, because its name is its digest."""
        with self.guarded():
            final.parent.mkdir(parents=True, exist_ok=True)
            self._share(made, final)
            try:
                os.rename(made, final)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise

    def write(self, path: Path, data: bytes) -> None:
        """Write a file completely or not at all."""
        with self.scratch(own=self._is_own(path)) as scratch:
            part = scratch / "part"
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as stream:
                stream.write(data)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._share(part, path)
            os.replace(part, path)

    def _is_own(self, path: Path) -> bool:
        return self.own != self.root and path.is_relative_to(self.own)

    def _share(self, made: Path, final: Path) -> None:
        """In a group's store, make new data readable for the group whatever the umask: the file, or the
        tree's top directories and the files in them. Modes below are the image's."""
        if self.own == self.root or self._is_own(final):
            return
        gid = os.stat(self.root).st_gid
        inner = sorted(made.iterdir()) if made.is_dir() else []
        for path in (made, *inner):
            if not path.is_symlink():
                os.chown(path, -1, gid)
                os.chmod(path, os.stat(path).st_mode & 0o777 | (0o050 if path.is_dir() else 0o040))

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Inside, a full disk, a quota or a missing permission becomes one clear error."""
        try:
            with failures.at(self.root):
                yield
        except (FileNotFoundError, FileExistsError):  # regular answers for the caller
            raise
        except OSError as error:
            if (explained := self.explain(error)) is None:
                raise
            raise explained from error

    def explain(self, error: OSError) -> BareboatError | None:
        """The error for the user; None where it does not concern the store."""
        path = failures.path_of(error) or ""
        root = next((root for root in (self.root, self.own) if lies_in(path, str(root))), None)
        found = None if root is None else failures.explain(error)
        if not isinstance(found, StoreError | UsageError):
            return found
        remedy = "choose another directory: --store DIR, or BAREBOAT_STORE=DIR"
        match error.errno:
            case errno.ENOSPC:
                message = f"the file system of the store {root} is full; no partial data was kept"
                remedy = f"free some space there, or {remedy}"
            case errno.EDQUOT:
                message = f"your quota on the file system of the store {root} is used up"
                remedy = f"free some space there, or {remedy}"
            case errno.EACCES | errno.EPERM:
                message = f"you may not use the store {root}"
            case errno.EROFS:
                message = f"the store {root} cannot be written"
            case errno.ENOTDIR:
                message = f"the store {root} is not a directory"
            case _:
                message, remedy = f"the store {root} cannot be used: {found.message}", found.remedy
        return StoreError(message, context=found.context, remedy=remedy)

    def _make(self, root: Path) -> None:
        version = root / "version"
        try:
            found = version.read_text(errors="replace").strip()
        except FileNotFoundError:
            found = ""
        if found and found != VERSION:
            raise StoreError(
                f"the store {root} has version {found}; this Bareboat writes version {VERSION}",
                remedy="choose another directory:  BAREBOAT_STORE=DIR",
            )
        try:
            if not found:
                _make_private_folder(root)
            (root / "tmp").mkdir(exist_ok=True)
        except (FileExistsError, FileNotFoundError) as error:  # a dangling link, or a path such as /proc
            raise StoreError(
                f"the store {root} cannot be created",
                context=str(error),
                remedy="choose another directory:  BAREBOAT_STORE=DIR",
            ) from None
        if not found:
            version.write_text(VERSION + "\n")
            if self._chosen_because.startswith("default"):
                log.warning("created the store %s (%s)", root, self._chosen_because)
        if root not in self._swept:
            self._swept.add(root)
            _sweep(root)

    def sweep(self) -> None:
        """Remove work in progress of dead processes on this machine."""
        for root in {self.root, self.own}:
            _sweep(root)

    def check_room(self, *, needed_bytes: int, needed_inodes: int, what: str) -> None:
        """Raise StoreError when the file system or the user's quota has too little room."""
        from bareboat import place

        room = place.room(str(self.root))
        where = f"the file system of the store {self.root}"
        if room.limited_by == "quota":
            where = f"your quota on {where}"
        remedy = "choose a directory with more space: --store DIR, or BAREBOAT_STORE=DIR"
        if needed_bytes > room.free_bytes:
            raise StoreError(
                f"{what} needs {needed_bytes / 1e6:,.0f} MB, and {where} has "
                f"{max(room.free_bytes, 0) / 1e6:,.0f} MB free",
                remedy=remedy,
            )
        if room.free_inodes is not None and needed_inodes > room.free_inodes:
            raise StoreError(
                f"{what} needs {needed_inodes:,} files, and {where} has "
                f"{max(room.free_inodes, 0):,} inodes free",
                remedy=remedy,
            )

    # -- images ------------------------------------------------------------------------------------

    def put_image(self, image: Image, *, manifest: bytes, config: bytes, config_digest: str) -> None:
        """Store an image whose layers are already in place."""
        self.write(self.blob(config_digest), config)
        self.write(self.blob(image.digest), manifest)
        self.write(self.entry(image.digest), codec.to_json(image))

    def image(self, reference: str) -> Image:
        """The image with this digest, prefix of a digest, or name."""
        with self.guarded():
            digest = self._resolve(reference)
            try:
                data = self.entry(digest).read_bytes()
            except FileNotFoundError:
                raise self._no_image(reference) from None
        what = f"the store's entry of image {reference}"
        image = codec.from_json(data, Image, what=what, remedy=_AGAIN["images"])
        missing = [layer.diff_id for layer in image.layers if not self.layer(layer.diff_id).is_dir()]
        if image.digest != digest:
            raise StoreError(
                f"the store's entry of image {reference} belongs to another image",
                context=f"expected {digest}, found {one_line(image.digest)}",
                remedy=self.how_to_get(image),
            )
        if missing:
            raise StoreError(
                f"layer {missing[0]} of image {reference} is missing from the store {self.root}",
                remedy=self.how_to_get(image),
            )
        return image

    @staticmethod
    def how_to_get(image: Image) -> str:
        """The command that stores an image again, completely."""
        if image.site_layer is not None:
            added = " ".join(f"--with {each}" for each in image.site_layer.contents)
            return f"bareboat site layer {digests.short(image.site_layer.base)} --fresh {added}"
        if image.reference:
            return f"bareboat image pull --fresh {shlex.quote(image.reference)}"
        return "bareboat capture --fresh"

    def knows(self, reference: str) -> bool:
        """Whether there is an entry, possibly damaged, for a digest, a prefix of one, or a name."""
        try:
            return self.entry(self._resolve(reference)).exists()
        except StoreError:
            return False

    def has_image(self, digest: str) -> bool:
        try:
            self.image(digest)
        except (StoreError, UsageError):
            return False
        return True

    def name_image(self, name: str, digest: str) -> None:
        check_name(name)
        self.write(self.root / "names" / name, digest.encode())

    def captured(self, fingerprint: str) -> str | None:
        """The digest of the image of an unchanged environment."""
        with self.guarded():
            try:
                return (self.root / "captures" / digests.hexed(fingerprint)).read_text(errors="replace")
            except FileNotFoundError:
                return None

    def remember_capture(self, fingerprint: str, digest: str) -> None:
        self.write(self.root / "captures" / digests.hexed(fingerprint), digest.encode())

    def has_layer(self, diff_id: str) -> bool:
        return self.layer(diff_id).is_dir()

    def publish_layer(self, made: Path, facts: StoredLayer) -> None:
        """Make a layer visible: `made` holds its tree/, and its recipe if any."""
        (made / "layer.json").write_bytes(codec.to_json(facts))
        self.publish(made, self.layer_folder(facts.diff_id))

    def discard_layer(self, diff_id: str) -> None:
        """Hide a layer from all readers at once, then remove it."""
        self.discard(self.layer_folder(diff_id))

    def discard(self, path: Path) -> None:
        """Hide a tree or file of the store by a rename, then remove it."""
        with self.scratch(own=self._is_own(path)) as scratch:
            try:
                os.rename(path, scratch / "discarded")
            except FileNotFoundError:
                return

    def stored_layer(self, diff_id: str) -> StoredLayer:
        """The facts about a stored layer."""
        return self.read(self.layer_folder(diff_id) / "layer.json", StoredLayer)

    def pin(self, pin: Pin) -> None:
        """Store what a reference refers to. Raises StoreError for another image's digest."""
        if not self.covers(pin):
            raise StoreError(
                f"the reference {one_line(pin.reference)} does not match the image {pin.digest}",
                context="the digest in a reference must be that of the image, or of an index that lists it",
                remedy=f"bareboat image pull {shlex.quote(one_line(pin.reference))}",
            )
        self.write(self._pin(pin.reference), codec.to_json(pin))

    def pinned(self, reference: str) -> Pin | None:
        """What the reference referred to when it was last pulled. None for a pin of another reference, or of
        an image that does not match its digest."""
        with self.guarded():
            try:
                data = self._pin(reference).read_bytes()
            except FileNotFoundError:
                return None
        again = f"bareboat image pull {shlex.quote(one_line(reference))}   # writes it again"
        pin = codec.from_json(data, Pin, what=f"the pin of {one_line(reference)}", remedy=again)
        if pin.reference == reference and self.covers(pin):
            return pin
        log.warning(
            "ignored the pin of %s: the store does not prove that this digest covers the image %s",
            one_line(reference),
            one_line(pin.digest),
        )
        return None

    def covers(self, pin: Pin) -> bool:
        """Whether the pin's reference matches its image: it has no digest, or one that covers the image."""
        asked = pinning.digest_in(pin.reference)
        return asked is None or pinning.chain(asked, pin.digest, self.document) is not None

    def document(self, digest: str) -> bytes | None:
        """A stored index, manifest or configuration, not verified; None when missing."""
        try:
            with open(self.blob(digest), "rb") as stream:
                return stream.read(_LARGEST_DOCUMENT)
        except FileNotFoundError:
            return None

    def keep_document(self, digest: str, data: bytes) -> None:
        """Store an index with the manifests, unless it exists."""
        if self.document(digest) != data:
            self.write(self.blob(digest), data)

    def pins(self) -> list[Pin]:
        """Every pin, by reference."""
        folder = self.root / "pins"
        found = []
        for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
            try:
                found.append(self.read(path, Pin))
            except StoreError as error:
                log.warning("ignored a damaged pin: %s; try: %s", error.message, error.remedy)
        return sorted(found, key=lambda pin: pin.reference)

    def names(self) -> dict[str, str]:
        """Every name and its digest."""
        folder = self.root / "names"
        found = {}
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            try:
                found[path.name] = untrusted.read_text(path)
            except OSError as error:
                log.warning("ignored the name %s: %s", one_line(path.name), error.strerror or error)
        return found

    def images(self) -> list[Image]:
        """Every image, by digest."""
        return [self.read(path, Image) for path in self.entries()]

    def entries(self) -> list[Path]:
        """The files of the store's images, sorted by digest."""
        folders = [self.root / "images" / algorithm for algorithm in digests.DIGITS]
        return [path for folder in folders if folder.is_dir() for path in sorted(folder.glob("*.json"))]

    def _pin(self, reference: str) -> Path:
        hashed = hashlib.sha256(reference.encode("utf-8", "surrogateescape")).hexdigest()
        return self.root / "pins" / f"{hashed}.json"

    def entry(self, digest: str) -> Path:
        """The file of an image."""
        return self.root / "images" / (_place(digest) + ".json")

    def _resolve(self, reference: str) -> str:
        if digests.is_digest(reference):
            return reference
        if _NAME.fullmatch(reference):
            with contextlib.suppress(FileNotFoundError):
                named = (self.root / "names" / reference).read_text(errors="replace")
                if digests.is_digest(named):  # false after a crash while it was written
                    return named
        known = (digests.at(path.parent.name, path.stem) for path in self.entries())
        found = digests.beginning_with(reference, filter(None, known)) or []
        if len(found) == 1:
            return found[0]
        if found:
            raise StoreError(
                f"{len(found)} images in the store {self.root} begin with {reference!r}",
                remedy="give more digits of the digest",
            )
        raise self._no_image(reference)

    def _no_image(self, reference: str) -> StoreError:
        name = reference if _NAME.fullmatch(reference) else "NAME"
        return StoreError(
            f"image {reference!r} not found in the store {self.root}",
            remedy=f"bareboat capture --name {name}   # stores the active environment; "
            f"or, from a registry: bareboat image pull {shlex.quote(reference)}",
        )

    # -- runs --------------------------------------------------------------------------------------

    def new_run(self, prefix: str) -> str:
        """Make the directory of a new run with a unique name that sorts after all others.

        After a clock was set back, or where login nodes' clocks differ, it has the newest run's second.
        """
        stem = _stem(prefix)
        now = time.time()
        moment = time.strftime(_MOMENT, time.gmtime(now))
        latest = time.strftime(_MOMENT, time.gmtime(now + _CLOCK_SKEW_S))
        with self.guarded():
            newest = max((m for run in self._run_names() if (m := _moment(run)) <= latest), default="")
        moment = max(moment, newest)
        with self.guarded():
            self._make(self.own)
            (self.own / "runs").mkdir(exist_ok=True)
            for serial in range(1000):
                run_id = f"{stem}-{moment}" + (f"-{serial}" if serial else "")
                if not _reserve(run_id):
                    continue
                with contextlib.suppress(FileExistsError):
                    self.run(run_id).mkdir(mode=0o700)
                    with self.whole_run(run_id):
                        order = self._next_in_second(moment)
                        (self.run(run_id) / "order").write_text(f"{order}\n")
                    return run_id
        raise StoreError(f"no free name for a run in {self.own}", remedy="wait a second, and try again")

    @contextlib.contextmanager
    def whole_run(self, run_id: str) -> Iterator[None]:
        """Inside, an error removes the directory of the run, which has not started yet."""
        try:
            with self.guarded():
                yield
        except BaseException:
            with contextlib.suppress(OSError):
                remove_tree(self.run(run_id))
            raise

    def newest_of(self, job: str) -> str | None:
        """The newest run of jobs of this name."""
        pattern = re.compile(re.escape(_stem(job)) + r"-\d{8}-\d{6}(-\d+)?")
        return next((run for run in reversed(self.runs()) if pattern.fullmatch(run)), None)

    def runs(self) -> list[str]:
        """The names of all runs in order of creation, newest last.

        The name holds the second; `order` in the run's directory sorts runs within a second.
        """
        with self.guarded():
            seconds = collections.defaultdict(list)
            for run_id in self._run_names():
                seconds[_moment(run_id)].append(run_id)
            for same in seconds.values():
                if len(same) > 1:
                    same.sort(key=lambda run_id: (self._order(run_id), run_id))
        return [run_id for moment in sorted(seconds) for run_id in seconds[moment]]

    def _run_names(self) -> list[str]:
        try:
            with os.scandir(self.own / "runs") as entries:
                return [
                    e.name for e in entries if _NAME.fullmatch(e.name) and e.is_dir(follow_symlinks=False)
                ]
        except FileNotFoundError:
            return []

    def _next_in_second(self, moment: str) -> int:
        return 1 + max(self._order(run_id) for run_id in self._run_names() if _moment(run_id) == moment)

    def _order(self, run_id: str) -> int:
        """The run's position among those of its second; 0 without one."""
        try:
            return int(untrusted.read_text(self.run(run_id) / "order", limit=20))
        except (OSError, ValueError):
            return 0

    def read(self, path: Path, kind: type[T]) -> T:
        try:
            data = untrusted.read_bytes(path, limit=_MOST_JSON_BYTES)
        except FileNotFoundError:
            raise StoreError(
                f"{path.name} not found in {path.parent}", remedy="bareboat report  # lists the runs"
            ) from None
        except OSError as error:
            raise StoreError(
                f"{path} cannot be read: {error.strerror or error}", remedy=f"check it: ls -l {path}"
            ) from None
        return codec.from_json(data, kind, what=str(path), remedy=self._how_to_replace(path))

    def _how_to_replace(self, path: Path) -> str:
        """The remedy for a damaged file of the store: some can be written again, others are lost."""
        root = self.root if path.is_relative_to(self.root) else self.own
        room, *below = path.relative_to(root).parts if path.is_relative_to(root) else ("",)
        run = shlex.quote(str(root / "runs" / below[0])) if below else ""
        return _AGAIN.get(room, "restore it from a backup").format(path=shlex.quote(str(path)), run=run)

    @contextlib.contextmanager
    def locked(self, run_id: str) -> Iterator[None]:
        """Allow one writer per run. A POSIX lock ends with its process."""
        with self.guarded(), open(self.run(run_id) / "lock", "w") as stream:
            try:
                fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(
                    f"another bareboat process uses {run_id}", remedy="wait until it ends, or stop it"
                ) from None
            yield


def check_name(name: str) -> None:
    """Raise UsageError for an invalid image name."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid image name",
            context="allowed: up to 128 letters, digits, dots, dashes, underscores; a letter or digit first",
            remedy="choose a name such as pytorch-2.4",
        )


def _stem(job: str) -> str:
    """A job's name, as in the names of its runs."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", job).strip("-._")[:100] or "run"


def _moment(run_id: str) -> str:
    found = _MOMENT_IN_NAME.search(run_id)
    return found[1] if found else ""


def _make_private_folder(root: Path) -> None:
    """Make a directory for this user only, whatever the umask; nobody else can write to new parent
    directories. An existing directory that is not empty serves other purposes too, and keeps its mode."""
    above = [path for path in root.parents if not path.exists()]
    root.parent.mkdir(parents=True, exist_ok=True)
    for path in above:
        os.chmod(path, stat.S_IMODE(path.stat().st_mode) & ~0o022)
    try:
        root.mkdir(mode=0o700)
    except FileExistsError:
        with os.scandir(root) as entries:
            if next(entries, None) is None:
                os.chmod(root, 0o700)


def _sweep(root: Path) -> None:
    with contextlib.suppress(OSError):
        for folder in (root / "tmp").iterdir():
            if is_dead(folder.name.rpartition("-")[0]):
                remove_tree(folder)


def _place(digest: str) -> str:
    try:
        return digests.place(digest)
    except ValueError as error:
        raise UsageError(str(error), remedy=f"write {digests.EXAMPLE}") from None


def owner() -> str:
    """An identifier of this process, unique among all machines that share the store."""
    return owner_of(os.getpid())


def owner_of(pid: int) -> str:
    """The same of another process on this machine."""
    return f"{_pid_space()}-{pid}-{_start_ticks(pid)}"


def is_dead(owner: str) -> bool:
    """Whether the process is known to be dead; False for processes on other machines."""
    found = _OWNER.fullmatch(owner)
    if found is None or found["space"] != _pid_space():
        return False
    return _start_ticks(int(found["pid"])) != int(found["start"])


def _pid_space() -> str:
    """The scope of process IDs: the host since its last boot, and the PID namespace. Host names are not
    unique: many machines are called localhost."""
    boot, namespace = "", 0
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        namespace = os.stat("/proc/self/ns/pid").st_ino
    return f"{socket.gethostname()}-{boot}-{namespace}"


def _start_ticks(pid: int) -> int:
    """Field 22 of /proc/PID/stat (proc(5)), which distinguishes processes that reuse an ID. 0 for a process
    that ended, also before its parent waited for it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
