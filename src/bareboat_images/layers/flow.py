"""Streams a layer's bytes: inflates, checks the limits and hashes, in two threads."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterator

from bareboat_base import digests
from bareboat_images.tar.inflation import inflate
from bareboat_images.tar.limits import RATIO_FROM_BYTES, Limits, bomb, too_large

#: Most blocks queued for each of two consumers.
_QUEUED = 12
#: Blocks smaller than this are joined before they are queued.
_SMALL_BYTES = 1 << 16
#: How long `stop` waits for a source that delivers nothing.
_PATIENCE_S = 2.0


class Flow:
    """Inflates in one thread and hashes in another. Neither accesses the tree."""

    def __init__(self, chunks: Iterator[bytes | memoryview], name: str, limits: Limits) -> None:
        self._chunks = chunks
        self._name = name
        self._limits = limits
        self.in_bytes = 0
        self.out_bytes = 0
        self._stopped = False
        self._failure: BaseException | None = None
        self._blocks: queue.Queue[bytes | None] = queue.Queue(_QUEUED)
        self._hashing: queue.Queue[bytes | None] = queue.Queue(_QUEUED)
        self._digest = ""
        self._threads = (
            threading.Thread(target=self._inflate, name="inflate", daemon=True),
            threading.Thread(target=self._hash, name="hash", daemon=True),
        )
        for thread in self._threads:
            thread.start()

    def next(self) -> bytes | None:
        """The next uncompressed bytes, None at the end. Raises what the source or the decompressor raised."""
        block = self._blocks.get()
        if block is None and self._failure is not None:
            raise self._failure
        return block

    def finish(self) -> str:
        """The digest of all uncompressed bytes, once all are read."""
        for thread in self._threads:
            thread.join()
        return self._digest

    def stop(self) -> None:
        """Stop the threads; one that waits for its source stops when the source delivers."""
        self._stopped = True
        deadline = time.monotonic() + _PATIENCE_S
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                self._blocks.get(timeout=0.02)

    def _inflate(self) -> None:
        try:
            small: list[bytes] = []
            small_bytes = 0
            for block in inflate(self._counted(), name=self._name):
                self.out_bytes += len(block)
                self._check()
                if len(block) < _SMALL_BYTES:
                    small.append(block)
                    small_bytes += len(block)
                    if small_bytes < _SMALL_BYTES:
                        continue
                    block, small, small_bytes = b"".join(small), [], 0
                elif small:
                    self._hand_on(b"".join(small))
                    small, small_bytes = [], 0
                self._hand_on(block)
                if self._stopped:
                    return
            if small:
                self._hand_on(b"".join(small))
        except BaseException as error:
            self._failure = error
        finally:
            self._hashing.put(None)
            if not self._stopped:
                self._blocks.put(None)

    def _hand_on(self, block: bytes) -> None:
        if block:
            self._hashing.put(block)
            self._blocks.put(block)

    def _counted(self) -> Iterator[bytes | memoryview]:
        for chunk in self._chunks:
            self.in_bytes += len(chunk)
            yield chunk

    def _hash(self) -> None:
        hashed = digests.hasher()
        while (block := self._hashing.get()) is not None:
            hashed.update(block)
        self._digest = digests.written(hashed)

    def _check(self) -> None:
        if self.out_bytes > self._limits.max_unpacked_bytes:
            raise too_large(self._name, self._limits)
        if self.out_bytes > RATIO_FROM_BYTES and self.out_bytes > self._limits.max_ratio * self.in_bytes:
            raise bomb(self._name, self._limits.max_ratio, self.in_bytes, self.out_bytes)
