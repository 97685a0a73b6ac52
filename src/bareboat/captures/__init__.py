"""Capture the current environment as an image in the store, without Docker and reproducibly.

The image contains the interpreter and its library, the environment's packages, the shared libraries that
their files need, and what a shell needs. Paths are the same as on the host, so scripts, shebangs and RPATHs
keep working. It has three layers: system, python, packages.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bareboat.captures import snapshot
from bareboat.captures.collect import Collection, Item
from bareboat.captures.interpreter import Interpreter, ask, choose
from bareboat.captures.sources import sources_of
from bareboat.model import CaptureRequest, Image
from bareboat_base import architectures, codec
from bareboat_images.progress import Progress
from bareboat_images.store import Store

if TYPE_CHECKING:
    from bareboat.captures.command import CapturedCommand
    from bareboat.captures.libraries import Inventory
    from bareboat.captures.snapshot import Snapshot

#: Increase it when the same environment would give a different image.
_FORMAT = "6"


def capture(
    request: CaptureRequest,
    store: Store,
    *,
    command: CapturedCommand | None = None,
    interpreter: Interpreter | None = None,
    fresh: bool = False,
    progress: Progress = lambda *_: None,
) -> tuple[Image, bool]:
    """Capture an environment, and the command that is not part of it; return the image and whether the
    environment was captured now. `interpreter`: its Python, if it has been asked. Raises what
    `_capture_environment` raises."""
    image, is_new = _capture_environment(
        request, store, interpreter=interpreter, fresh=fresh, progress=progress
    )
    if command is not None:
        from bareboat.captures.command import extended

        image = extended(image, command, store, progress)
    return image, is_new


def _capture_environment(
    request: CaptureRequest,
    store: Store,
    *,
    interpreter: Interpreter | None,
    fresh: bool,
    progress: Progress,
) -> tuple[Image, bool]:
    """Capture an environment; return the image and whether it was made now.

    Files are not read again if they, and the libraries that they need from elsewhere, have the sizes and
    times of an earlier capture, unless `fresh`. Raises UsageError for a missing, empty or unreadable source,
    StoreError if the image cannot be stored.
    """
    progress("reading the environment", 0, 0)
    python = choose(request.python)
    interpreter = interpreter or ask(python)
    began_ns = time.time_ns()
    sources = sources_of(interpreter, request)
    fingerprint = _fingerprint(interpreter, sources.collection, request)
    known = None if fresh else stored(store, fingerprint)
    if known is not None:
        started = msgspec.structs.replace(request, python=python)
        snapshot.keep(store, interpreter, started, sources.collection, fingerprint, began_ns=began_ns)
        return known, False
    # Imported here, because an environment that is in the store needs none of them.
    from bareboat.captures.build import build, compile_missing
    from bareboat.captures.libraries import with_libraries

    if compile_missing(interpreter, sources.collection):
        sources = sources_of(interpreter, request)
        fingerprint = _fingerprint(interpreter, sources.collection, request)
    progress("finding the shared libraries", 0, 0)
    outside = {path: _state(path) for each in _library_path() for path in (each, os.path.realpath(each))}
    inside = frozenset(sources.collection.items)
    found = with_libraries(interpreter, sources)
    items = found.collection.items
    outside |= {path: _state(path, items[path]) for path in items.keys() - inside}
    store.check_room(
        needed_bytes=int(found.size_bytes * 1.05) + 16 * 2**20,
        needed_inodes=found.inodes + 64,
        what="the captured environment",
    )
    image = build(found, store, progress)
    store.remember_capture(fingerprint, image.digest, outside)
    return image, True


def look_up_unchanged(kept: Snapshot, store: Store, command: CapturedCommand | None = None) -> Image | None:
    """The image of an environment that did not change, with the command, if it is in the store. Writes
    nothing."""
    image = stored(store, kept.fingerprint)
    if image is None or command is None:
        return image
    from bareboat.captures import command as commands

    extended = commands.look_up(image, command, store)
    return None if isinstance(extended, str) else extended


def look_up(
    request: CaptureRequest,
    store: Store,
    command: CapturedCommand | None = None,
    *,
    interpreter: Interpreter | None = None,
) -> Image | str:
    """The image of the current environment if it was captured before; otherwise a description of what a
    capture would do. Writes nothing.

    Shared libraries from outside of the environment are not counted: only a capture, which reads all files,
    finds them.
    """
    interpreter = interpreter or ask(choose(request.python))
    collection = sources_of(interpreter, request).collection
    known = stored(store, _fingerprint(interpreter, collection, request))
    if known is not None:
        if command is None:
            return known
        from bareboat.captures import command as commands

        return commands.look_up(known, command, store)
    return (
        f"capture the environment: about {collection.size_bytes / 1e6:,.0f} MB in "
        f"{len(collection.items):,} files and directories, and the shared libraries that they need"
    )


def inventory(request: CaptureRequest) -> Inventory:
    """The files that `image capture` would copy. Writes nothing."""
    from bareboat.captures.libraries import with_libraries

    interpreter = ask(choose(request.python))
    sources = sources_of(interpreter, request)
    return with_libraries(interpreter, sources)


def describe(request: CaptureRequest) -> Image:
    """The current environment without its files, to run it on bare metal. The image has no digest."""
    return describe_of(ask(choose(request.python)))


def describe_of(interpreter: Interpreter) -> Image:
    """The same for a known interpreter, which is not started."""
    from bareboat.captures import facts

    packages = [
        f"{folder}/{name}" + ("/METADATA" if name.endswith(".dist-info") else "")
        for folder in interpreter.path
        if os.path.isdir(folder)
        for name in os.listdir(folder)
        if name.endswith((".dist-info", ".egg-info"))
    ]
    frameworks = facts.frameworks(packages)
    cuda = facts.cuda(packages)
    environment = facts.environment(interpreter)
    return Image(
        digest="",
        layers=(),
        architecture=architectures.oci(os.uname().machine),
        environment=environment,
        python=interpreter.executable,
        python_version=interpreter.version,
        frameworks=frameworks,
        cuda=cuda,
        **facts.searched(
            [Path("/")], environment, mpi=bool(facts.MPI_PACKAGES & frameworks.keys()), cuda=cuda
        ),
    )


def stored(store: Store, fingerprint: str) -> Image | None:
    """The image of an earlier capture, if its files from outside of the environment are unchanged."""
    capture = store.captured(fingerprint)
    if capture is None or not store.has_image(capture.digest):
        return None
    if any(_state(path) != state for path, state in capture.outside.items()):
        return None
    return store.image(capture.digest)


def _library_path() -> tuple[str, ...]:
    """The directories of LD_LIBRARY_PATH: a new library in one of them may replace another."""
    return tuple(each for each in os.environ.get("LD_LIBRARY_PATH", "").split(":") if each.startswith("/"))


def _state(path: str, item: Item | None = None) -> str:
    """The state of a path now, or of a collected file, which shows changes without reading the file."""
    if item is not None and item.kind == "file":
        return f"file {item.size} {item.mtime_ns}"
    try:
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            return f"link {os.readlink(path)}"
    except OSError:
        return "nothing"
    if stat.S_ISREG(found.st_mode):
        return f"file {found.st_size} {found.st_mtime_ns}"
    return f"directory {found.st_mtime_ns}"


def _fingerprint(interpreter: Interpreter, collection: Collection, request: CaptureRequest) -> str:
    """A digest over names, sizes and times, known without reading the files. It does not depend on the name
    by which the interpreter was given."""
    request = msgspec.structs.replace(request, python=None)
    hashed = hashlib.sha256(codec.to_json([_FORMAT, os.getuid(), interpreter, request, _library_path()]))
    for path in ("/etc/ld.so.cache", "/etc/ld.so.conf"):
        if os.path.exists(path):
            hashed.update(f"{path} {os.stat(path).st_mtime_ns}\n".encode())
    hashed.update(os.fsencode("".join(f"{each}\n" for each in collection.states())))
    return "sha256:" + hashed.hexdigest()
