"""Data shared by the stages of a build: the store, the cache, the context, and the machine."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat_base.errors import BareboatError
from bareboat_base.printable import one_line
from bareboat_images import lease
from bareboat_images.builder import bases
from bareboat_images.builder.cache import Cache, Record
from bareboat_images.builder.files import Digester, Files
from bareboat_images.builder.options import Machine, Options, Reporter
from bareboat_images.builder.places import Owner
from bareboat_images.builder.rootfs import Rootfs, discard
from bareboat_images.model import Image, StoredLayer
from bareboat_images.recipe import ignore
from bareboat_images.recipe.expansion import Growth
from bareboat_images.recipe.faults import RecipeError
from bareboat_images.recipe.instructions import Instruction
from bareboat_images.store import Store, claims

if TYPE_CHECKING:
    from bareboat_images.builder.metadata import Below, Metadata
    from bareboat_images.builder.run import Command, Runner

#: Makes a layer's tree in a directory; returns path -> owner for files that root does not own.
Make = Callable[[Path], Mapping[bytes, Owner]]
#: Makes a layer in a directory.
Produce = Callable[[Path], tuple[Record, StoredLayer | None]]


class Stopped(BaseException):
    """Another stage failed."""


class Work:
    """Data shared by the stages of a build, which run in threads."""

    def __init__(
        self,
        store: Store,
        scratch: Path,
        options: Options,
        machine: Machine,
        reporter: Reporter,
        moment: str,
    ) -> None:
        """`moment`: the creation time of the image and its history; empty for the current time."""
        self.store = store
        self.scratch = scratch
        self.options = options
        self.machine = machine
        self.reporter = reporter
        self.moment = moment
        self.cache = Cache(store, reads=not options.no_cache)
        self.steps = self.cached = 0
        self.growth = Growth()
        self.stopped = threading.Event()
        self.digester = Digester(self.check_stopped)
        self._lock = threading.Lock()
        self._shell_lock = threading.Lock()
        self._serials = itertools.count(1)
        self._runner: Runner | None = None
        self._context: Files | None = None
        self._images: dict[str, Image] = {}
        self._pulling: dict[str, threading.Lock] = {}
        self._metadata: dict[str, Mapping[bytes, Metadata]] = {}

    def check_stopped(self) -> None:
        """Raise Stopped if another stage failed."""
        if self.stopped.is_set():
            raise Stopped

    def count(self, *, cached: bool) -> None:
        with self._lock:
            self.steps += 1
            self.cached += cached

    def folder(self, name: str) -> Path:
        """A new path in the scratch directory."""
        return self.scratch / f"{name}-{next(self._serials)}"

    def claim(self, *diff_ids: str) -> None:
        """Protect layers from garbage collection while this build runs."""
        with self._lock, open(claims(self.scratch), "a") as stream:
            stream.write("".join(f"{each}\n" for each in diff_ids))

    def context(self, step: Instruction) -> Files:
        """The files of the context without those excluded by .dockerignore. Raises RecipeError without a
        context."""
        with self._lock:
            if self._context is None:
                if self.options.context is None:
                    raise step.fault("this build has no context", remedy="bareboat image build DIRECTORY")
                rules = ignore.read(self.options.ignore, name=self.options.ignore_name)
                self._context = Files(
                    [self.options.context], name=f"the context {self.options.context}", ignored=rules
                )
            return self._context

    def image(self, step: Instruction, name: str) -> Image:
        """An image of the store, pulled if missing. Errors contain the line."""
        with self._lock:
            pulling = self._pulling.setdefault(name, threading.Lock())
        with pulling:
            if (found := self._images.get(name)) is not None:
                return found
            try:
                found = self.machine.image(name, bases.local(step, name, self.options))
            except RecipeError:
                raise
            except BareboatError as error:
                place = (
                    f"{self.options.name}:{step.line}: {one_line(step.text.partition(chr(10))[0], limit=160)}"
                )
                error.context = f"{place}\n{error.context}" if error.context else place
                raise
            self._images[name] = found
        self.claim(*(layer.diff_id for layer in found.layers))
        return found

    def step(self, key: str, produce: Produce, title: str) -> tuple[Record, StoredLayer | None, bool]:
        """The result of a step: from the cache, from a concurrent build, or made now; and whether it was
        cached."""
        found = self.cache.find(key)
        if found is not None:
            self._claim(found)
            return *found, True

        def there() -> bool:
            self.check_stopped()
            return self.cache.find(key) is not None

        def waiting(holder: str) -> None:
            self.reporter.begin(title, f"waiting for {holder}, which runs the same step")

        with lease.hold(self.store.lease(f"build-{key}"), until=there, waiting=waiting) as mine:
            if not mine and (found := self.cache.find(key)) is not None:
                self._claim(found)
                return *found, True
            folder = self.folder("step")
            try:
                record, facts = produce(folder)
                if facts is not None:
                    self.claim(facts.diff_id)
                    self.store.publish_layer(_trimmed(folder), facts)
                self.cache.keep(key, record)
            except BaseException:
                discard(folder)
                raise
        return record, facts, False

    def _claim(self, found: tuple[Record, StoredLayer | None]) -> None:
        if found[1] is not None:
            self.claim(found[1].diff_id)

    def run(self, command: Command, rootfs: Rootfs, folder: Path, title: str) -> None:
        """Execute a RUN and show its output."""
        from bareboat_images.builder.run import Runner

        with self._lock:
            if self._runner is None:
                self._runner = Runner(self.scratch, self.machine.engine, self.machine.name, self.stopped)
        self._runner.run(
            command,
            rootfs,
            folder,
            show=lambda data: self.reporter.output(title, data),
            shell=self._opens,
        )

    def _opens(self, error: BareboatError) -> bool:
        if not self.options.shell:
            return False
        with self._shell_lock:
            self.reporter.warn(f"{error.message}; a shell in its tree follows, exit ends the build")
        return True

    def metadata(self, rootfs: Rootfs) -> Below:
        """What the trees of the layers cannot have."""
        from bareboat_images.builder import metadata

        layers = {}
        for layer, tree in zip(rootfs.layers, rootfs.trees, strict=True):
            with self._lock:
                known = self._metadata.get(layer.diff_id)
            if known is None:
                known = metadata.of_layer(self.store, layer.diff_id)
                with self._lock:
                    self._metadata[layer.diff_id] = known
            if known:
                layers[str(tree)] = known
        return metadata.Below(rootfs.view, layers)


def _trimmed(folder: Path) -> Path:
    """Remove everything from a layer's directory except its tree and its recipe."""
    for name in os.listdir(folder):
        if name not in ("tree", "recipe"):
            discard(folder / name)
    return folder
