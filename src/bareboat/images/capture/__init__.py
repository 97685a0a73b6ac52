"""Capture: the environment as it stands -> an image in the store, without Docker, the same bytes each time.

Taken are the interpreter and its library, the environment's packages, the shared libraries that any of
their files needs, and what a shell needs. Every path stays what it is on the host, so scripts, shebangs
and RPATHs keep working. Three layers: system, python, packages.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET

from bareboat import architectures, codec
from bareboat.images.capture import cuda
from bareboat.images.capture.collect import Collection
from bareboat.images.capture.interpreter import Interpreter, ask, choose
from bareboat.images.capture.sources import sources_of
from bareboat.images.progress import Progress
from bareboat.model import CaptureRequest, Image
from bareboat.store import Store

if TYPE_CHECKING:
    from bareboat.images.capture.libraries import Inventory

#: Changes whenever the same environment would give another image.
_FORMAT = "4"
#: A plan says how much of a capture CUDA libraries are.
_MUCH_CUDA = 100e6


def capture(
    request: CaptureRequest, store: Store, *, fresh: bool = False, progress: Progress = lambda *_: None
) -> tuple[Image, bool]:
    """Capture an environment; return the image and whether it was made now.

    An environment whose files have the sizes and times of an earlier capture is not read again, unless
    `fresh`. Raises UsageError for a source that is missing, empty or unreadable, StoreError for a store
    that cannot take the image.
    """
    progress("reading the environment", 0, 0)
    interpreter = ask(choose(request.python))
    sources = sources_of(interpreter, request)
    fingerprint = _fingerprint(interpreter, sources.collection, request)
    known = None if fresh else store.captured(fingerprint)
    if known is not None and store.has_image(known):
        return store.image(known), False
    # Here, because an environment that is in the store needs none of it.
    from bareboat.images.capture import bytecode
    from bareboat.images.capture.build import build
    from bareboat.images.capture.libraries import with_libraries

    if bytecode.complete(interpreter, sources.collection):
        sources = sources_of(interpreter, request)
        fingerprint = _fingerprint(interpreter, sources.collection, request)
    progress("finding the shared libraries", 0, 0)
    found = with_libraries(interpreter, sources, cuda=request.cuda is not False)
    store.check_room(
        needed_bytes=int(found.size_bytes * 1.05) + 16 * 2**20,
        needed_inodes=found.inodes + 64,
        what="the captured environment",
    )
    image = build(found, store, progress)
    store.remember_capture(fingerprint, image.digest)
    return image, True


def captured(request: CaptureRequest, store: Store) -> Image | None:
    """The image of the environment as it stands, where an earlier capture made it; nothing is written."""
    interpreter = ask(choose(request.python))
    sources = sources_of(interpreter, request)
    known = store.captured(_fingerprint(interpreter, sources.collection, request))
    return store.image(known) if known is not None and store.has_image(known) else None


def expected(request: CaptureRequest) -> str:
    """What a capture would do, in words. Shared libraries from outside of the environment, of which the
    capture finds out by reading all files, are not counted."""
    interpreter = ask(choose(request.python))
    collection = sources_of(interpreter, request).collection
    size_bytes = sum(item.size for item in collection.items.values())
    text = (
        f"capture the environment: about {size_bytes / 1e6:,.0f} MB in {len(collection.items):,} files and "
        "directories, and the shared libraries that they need"
    )
    cuda_bytes = cuda.size_bytes(collection)
    if cuda_bytes < _MUCH_CUDA or request.cuda is not UNSET:
        return text
    return (
        f"{text}; {cuda_bytes / 1e6:,.0f} MB are CUDA libraries: for a machine without GPUs, cuda = false "
        "under [capture] leaves out those that no other file needs"
    )


def inventory(request: CaptureRequest) -> Inventory:
    """What `capture` would take, without writing anything."""
    from bareboat.images.capture.libraries import with_libraries

    interpreter = ask(choose(request.python))
    return with_libraries(interpreter, sources_of(interpreter, request), cuda=request.cuda is not False)


def describe(request: CaptureRequest) -> Image:
    """The environment as it stands, without its files: enough to run it on bare metal. It has no digest."""
    return describe_of(ask(choose(request.python)))


def describe_of(interpreter: Interpreter) -> Image:
    """The same of an interpreter that is known, and is not started."""
    from bareboat.images.capture import facts

    packages = [
        f"{folder}/{name}/METADATA"
        for folder in interpreter.path
        if os.path.isdir(folder)
        for name in os.listdir(folder)
        if name.endswith(".dist-info")
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


def _fingerprint(interpreter: Interpreter, collection: Collection, request: CaptureRequest) -> str:
    """A digest over names, sizes and times: what can be known without reading any file."""
    hashed = hashlib.sha256(codec.to_json([_FORMAT, os.getuid(), interpreter, request]))
    for path in ("/etc/ld.so.cache", "/etc/ld.so.conf"):
        if os.path.exists(path):
            hashed.update(f"{path} {os.stat(path).st_mtime_ns}\n".encode())
    for path, item in sorted(collection.items.items()):
        line = f"{path}\0{item.kind}\0{item.mode:o}\0{item.size}\0{item.mtime_ns}\0{item.link}\n"
        hashed.update(os.fsencode(line))
    return "sha256:" + hashed.hexdigest()
