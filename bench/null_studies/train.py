"""What bench/null_studies trains: one neuron on random numbers, with one process and no package.

    python train.py STEPS [MORE]

A step is UNITS equal samples, whose gradients add up. MORE of them make it longer by the work itself: 3 more
are a slowdown of 3 %. In a share of STALLS of all windows, drawn at random, each step is done twice.
"""

import bareboat_meter

import math
import os
import random
import sys
import time
from operator import mul

UNITS = 100
INPUTS = 64


class Meter(bareboat_meter.Meter):
    """A meter that keeps the kernel's counters at both ends of each wait at the gate."""

    def __init__(self) -> None:
        self._counts: list[tuple[int, ...]] = []
        self._stalls = float(os.environ.get("STALLS", "0"))
        self._draw = random.SystemRandom()
        self.stalled = False
        super().__init__()

    def _await_gate(self) -> None:
        self._counts.append(counters())
        super()._await_gate()
        self._counts.append(counters())
        self.stalled = self._draw.random() < self._stalls

    def close(self) -> None:
        folder = os.environ.get("BAREBOAT_METER_DIR")
        if folder:
            with open(os.path.join(folder, "counters"), "w") as stream:
                stream.writelines(f"{' '.join(map(str, each))}\n" for each in self._counts)
        super().close()


def counters() -> tuple[int, ...]:
    """Nanoseconds: the clock; the processor time of this process; its wait for a processor; the machine's
    steal."""
    with open("/proc/self/schedstat") as stream:
        delay_ns = int(stream.read().split()[1])
    with open("/proc/stat") as stream:
        steal = int(stream.readline().split()[8])
    return time.monotonic_ns(), time.process_time_ns(), delay_ns, steal * 10**9 // os.sysconf("SC_CLK_TCK")


def main(steps: int, more: int = 0) -> None:
    generator = random.Random(0)
    weights = [generator.gauss(0, 0.1) for _ in range(INPUTS)]
    samples = [[generator.random() for _ in range(INPUTS)] for _ in range(UNITS)]
    # The same memory in the same order, whatever MORE is; only then the first samples again.
    samples += samples[:more]
    meter = Meter()
    meter.start()
    for _ in range(steps):
        for _ in range(1 + meter.stalled):
            gradient = [0.0] * INPUTS
            for sample in samples:
                error = math.tanh(sum(map(mul, weights, sample))) - 0.5
                gradient = [total + error * each for total, each in zip(gradient, sample, strict=True)]
        weights = [each - 1e-4 * slope for each, slope in zip(weights, gradient, strict=True)]
        meter.step()
    meter.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
