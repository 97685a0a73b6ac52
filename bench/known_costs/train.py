"""A training whose cost is known: KIND of work beside the steps, and its COST, from the environment.

Steps wait 10 ms. Costs are sleeps, so that other programs of the machine change them little.
"""

import os
import queue
import random
import sys
import threading
import time
import types
from collections.abc import Iterator
from typing import Any

import bareboat_meter

KIND, COST = os.environ["KIND"], float(os.environ["COST"])
STEPS, STEP_S, DEPTH = int(sys.argv[1]), 0.010, 16


def thread() -> Iterator[float]:
    """A thread that fills a queue; an item takes it COST ms."""
    items: queue.Queue[int] = queue.Queue(DEPTH)

    def fill() -> None:
        while True:
            time.sleep(COST / 1e3)
            items.put(0)

    threading.Thread(target=fill, daemon=True).start()
    while True:
        items.get()
        yield STEP_S


class Items:
    """A dataset for PyTorch's DataLoader; an item takes a worker COST ms."""

    def __len__(self) -> int:
        return STEPS + 1

    def __getitem__(self, index: int) -> int:
        time.sleep(COST / 1e3)
        return index


def workers() -> Iterator[float]:
    import torch.utils.data

    number = int(os.environ["WORKERS"])
    items: Any = Items()
    for _ in torch.utils.data.DataLoader(items, batch_size=1, num_workers=number):
        yield STEP_S


class Device:
    """A device that works through its queue by the clock, whatever its program does."""

    def __init__(self) -> None:
        self.free_at = 0.0

    def give(self) -> None:
        """Queue work of COST ms; wait while the queue is full."""
        self.free_at = max(time.monotonic(), self.free_at) + COST / 1e3
        time.sleep(max(0.0, self.free_at - time.monotonic() - DEPTH * COST / 1e3))

    def synchronize(self) -> None:
        time.sleep(max(0.0, self.free_at - time.monotonic()))

    def is_initialized(self) -> bool:
        return True


def device(is_known: bool = True) -> Iterator[float]:
    own = Device()
    if is_known:  # as PyTorch's, which the meter synchronises
        sys.modules["torch"] = types.SimpleNamespace(cuda=own)  # type: ignore[assignment]
    while True:
        own.give()
        yield 0.001


def unknown_device() -> Iterator[float]:
    return device(is_known=False)


def checkpoints() -> Iterator[float]:
    """Every 20 steps a checkpoint of COST ms."""
    step = 0
    while True:
        step += 1
        yield STEP_S + (COST / 1e3 if step % 20 == 0 else 0.0)


def quota() -> Iterator[float]:
    """At most COST ms of work in each 100 ms of the clock, as by a limit of a control group."""
    period, left = -1, 0.0
    while True:
        work = STEP_S
        while work > 0:
            now = time.monotonic()
            if int(now * 10) != period:
                period, left = int(now * 10), COST / 1e3
            part = min(work, left)
            yield_s = part if part > 0 else (period + 1) / 10 - now
            time.sleep(max(0.0, yield_s))
            work, left = work - part, left - part
        yield 0.0


def stalls() -> Iterator[float]:
    """COST % of the steps take 100 ms more."""
    draw = random.Random(int(sys.argv[1]))
    while True:
        yield STEP_S + (0.1 if draw.random() < COST / 100 else 0.0)


meter = bareboat_meter.Meter()
meter.start()
for _, seconds in zip(range(STEPS), globals()[KIND](), strict=False):
    time.sleep(seconds)
    meter.step()
meter.close()
