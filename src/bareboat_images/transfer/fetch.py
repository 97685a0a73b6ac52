"""Fetches the layers that the store lacks, each once on this file system.

    source -> part file -> decompression -> tar -> tree -> one rename

Every layer is a separate task: it takes the layer's lease, fetches, unpacks while it fetches, compares the
result with the manifest's digest and the config's diff-id, and publishes it. A process that finds the lease
taken waits for the other's layer.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bareboat_base import digests, execute
from bareboat_base.errors import ImageError
from bareboat_base.files.trees import remove_tree
from bareboat_images import lease
from bareboat_images.inside import survey
from bareboat_images.layers.unpack import Unpacked, unpack
from bareboat_images.layers.view import View
from bareboat_images.model import Image, Layer, StoredLayer
from bareboat_images.oci.manifest import Config
from bareboat_images.oci.source import Descriptor, Source, straight
from bareboat_images.progress import Progress
from bareboat_images.store import Store, claims
from bareboat_images.tar.inflation import DamagedError
from bareboat_images.tar.limits import Limits
from bareboat_images.transfer import spool
from bareboat_images.transfer.blobs import is_kept

#: Concurrent fetches: accepted by registries, and enough to hide latency.
_FETCHES = 4
#: Layers unpacked concurrently: each keeps about two CPUs busy.
_UNPACKS = 2


@dataclass(slots=True)
class Work:
    """The shared state of one pull's tasks. `keep_blobs`: also keep compressed layers as received."""

    source: Source
    store: Store
    scratch: Path
    limits: Limits
    progress: Progress
    keep_blobs: bool = False
    total: int = 0
    done: int = 0
    fetched: int = 0
    stopped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    unpacking: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_UNPACKS))
    spools: list[spool.Spool] = field(default_factory=list)

    def count(self, size: int) -> None:
        if self.stopped:
            raise spool.Interrupted
        with self.lock:
            self.done += size
            self.progress("pulling", self.done, self.total)

    def stop(self) -> None:
        self.stopped = True
        for each in self.spools:
            each.interrupt()
        self.source.close()


def bring_layers(
    work: Work, descriptors: Sequence[Descriptor], diff_ids: Sequence[str], *, fresh: bool
) -> int:
    """Fetch and unpack every missing layer; return how many this process did."""
    # A garbage collection keeps the layers claimed by a pull in progress.
    claims(work.scratch).write_text("\n".join(diff_ids))
    for _ in range(3):  # a garbage collection that began earlier may remove one
        tasks: dict[str, tuple[int, Descriptor]] = {}  # an image may contain the same layer twice
        for number, (descriptor, diff_id) in enumerate(zip(descriptors, diff_ids, strict=True), 1):
            if fresh or not work.store.has_layer(diff_id) or _is_unkept(work, descriptor, diff_id):
                tasks.setdefault(diff_id, (number, descriptor))
        if not tasks:
            break
        sizes = [max(descriptor.size, 0) for _, descriptor in tasks.values()]
        # The minimum required: the layers unpacked, and the largest compressed one beside its tree.
        least = sum(sizes) + (0 if work.source.local else max(sizes))
        work.store.check_room(needed_bytes=least, needed_inodes=len(tasks) * 4, what=work.source.name)
        work.total, work.done = sum(sizes), 0
        _run(work, tasks, fresh)
        fresh = False
    return work.fetched


def _run(work: Work, tasks: dict[str, tuple[int, Descriptor]], fresh: bool) -> None:
    """Run all tasks, the largest layer first; the first error stops the others and is raised."""
    largest_first = sorted(tasks.items(), key=lambda task: -task[1][1].size)
    with execute.side_by_side(_FETCHES) as pool:
        futures = [
            pool.submit(
                _one,
                work,
                diff_id,
                descriptor,
                f"layer {number} ({digests.short(descriptor.digest)}…)",
                fresh,
            )
            for diff_id, (number, descriptor) in largest_first
        ]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        except BaseException:
            work.stop()
            raise
        failed = [error for future in done if (error := future.exception()) is not None]
        if failed:
            work.stop()
            raise next((error for error in failed if not isinstance(error, spool.Interrupted)), failed[0])


def _one(work: Work, diff_id: str, descriptor: Descriptor, name: str, fresh: bool) -> None:
    """Fetch, unpack and publish one layer, unless another process does."""
    store = work.store

    def there() -> bool:
        if work.stopped:
            raise spool.Interrupted
        return not fresh and store.has_layer(diff_id) and not _is_unkept(work, descriptor, diff_id)

    def waiting(holder: str) -> None:
        work.progress(f"waiting for {holder}, which is fetching the same layer", 0, 0)

    with lease.hold(store.lease(diff_id.replace(":", "-")), until=there, waiting=waiting) as mine:
        if not mine:
            work.count(max(descriptor.size, 0))
            return
        if not fresh and store.has_layer(diff_id):
            with _chunks(work, descriptor, name, keep=True) as chunks:
                for _ in chunks:
                    pass
            return
        made = work.scratch / digests.hexed(diff_id)
        keep = _is_unkept(work, descriptor, diff_id)
        try:
            found = _unpacked(work, descriptor, name, made, keep=keep)
        except DamagedError:  # once more: a proxy on the way may have been at fault
            if work.source.local:
                raise
            remove_tree(made)
            found = _unpacked(work, descriptor, name, made, keep=keep)
        if found.diff_id != diff_id:
            raise ImageError(
                f"{name} of {work.source.name} does not match the image's config",
                context=f"expected {diff_id}, unpacked {found.diff_id}",
                remedy="the image is damaged at its source; it must be built and pushed again",
            )
        facts = StoredLayer(
            diff_id=diff_id,
            size_bytes=found.tar_bytes,
            unpacked_bytes=found.unpacked_bytes,
            inodes=found.inodes,
            stackable=found.stackable,
            rebuildable=found.rebuildable,
            notes=found.notes,
        )
        if fresh:
            store.discard_layer(diff_id)
        store.publish_layer(made, facts)
        with work.lock:
            work.fetched += 1


def _unpacked(work: Work, descriptor: Descriptor, name: str, made: Path, *, keep: bool) -> Unpacked:
    """Fetch a layer, and unpack it into a new directory."""
    tree = made / "tree"
    tree.mkdir(parents=True)
    with _chunks(work, descriptor, name, keep=keep) as chunks:
        name = f"{name} of {work.source.name}"
        return unpack(chunks, tree, name=name, limits=work.limits, recipe=made / "recipe")


@contextlib.contextmanager
def _chunks(
    work: Work, descriptor: Descriptor, name: str, *, keep: bool = False
) -> Iterator[Iterator[bytes]]:
    """The layer's bytes: directly from this machine's disk, or through a part file, for a network and for a
    blob to keep."""
    if work.source.local and not keep:
        with work.unpacking:
            yield straight(work.source, descriptor, work.count, name=f"{name} of {work.source.name}")
        return
    own = spool.Spool(work.source, descriptor, work.store.part(descriptor.digest), name=name)
    work.spools.append(own)
    if work.stopped:
        raise spool.Interrupted
    fetching = threading.Thread(target=own.fetch, args=(work.count,), name=f"fetch {name}")
    fetching.start()
    damaged = False
    try:
        with work.unpacking:
            yield own.chunks()
        if keep:
            own.keep(work.store.blob(descriptor.digest))
        else:
            own.remove()
    except DamagedError:
        damaged = True
        raise
    finally:
        own.interrupt()
        fetching.join()
        if damaged:
            own.remove()


def _is_unkept(work: Work, descriptor: Descriptor, diff_id: str) -> bool:
    """Whether the compressed layer is to be kept and is missing."""
    return work.keep_blobs and descriptor.digest != diff_id and not is_kept(work.store, descriptor)


def join(store: Store, config: Config, digest: str, reference: str, lost: Sequence[str]) -> Image:
    """The image of stored layers, with the facts found in its files; not yet in the store."""
    facts = [store.stored_layer(diff_id) for diff_id in config.diff_ids]
    comments = config.comments if len(config.comments) == len(facts) else ("",) * len(facts)
    layers = tuple(
        Layer(
            diff_id=each.diff_id,
            size_bytes=each.size_bytes,
            unpacked_bytes=each.unpacked_bytes,
            inodes=each.inodes,
            comment=comment,
            stackable=each.stackable,
        )
        for each, comment in zip(facts, comments, strict=True)
    )
    trees = [store.layer(layer.diff_id) for layer in layers]
    found = survey.look(trees, environment=config.environment)
    missing = View(trees).find(config.process.workdir) is None
    return Image(
        digest=digest,
        layers=layers,
        environment=config.environment,
        python=found.python,
        python_version=found.python_version,
        glibc=found.glibc,
        frameworks=found.frameworks,
        mpis=found.mpis,
        mpi_users=found.mpi_users,
        notes=(*lost, *(note for each in facts for note in each.notes)),
        reference=reference,
        architecture=config.architecture,
        process=msgspec.structs.replace(config.process, workdir_missing=missing),
        cuda=found.cuda,
        rocm=found.rocm,
        cuda_compat=found.cuda_compat,
        fabrics=found.fabrics,
        compiler=found.compiler,
        gpu_code=found.gpu_code,
    )
