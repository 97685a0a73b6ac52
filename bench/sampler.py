"""The cost of the sampler: one program on all processors, in windows with and without a sampler beside it.

    python bench/sampler.py [--runs 10] [--blocks 60] [--ranks N]

Each block is a window with the sampler and one without (stopped), in random order. The program's processes
compute and hold memory, so that page tables are real; the sampler follows them as ranks. Its cost has two
parts: the processor time that it takes itself, and what it takes from the caches of the program. The second
is the ratio of the program's speed for each second on a processor, so that other work on the machine counts
less; its verdict is that of studies, with a margin of 0.5 %. Each run has fresh processes.
"""

import argparse
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from scipy.stats import trim_mean

from bareboat_base.execute import SAMPLER
from bareboat_study.statistics import compare, mean_of

WINDOW_S, SETTLE_S = 0.5, 0.05
#: The sampler has started, and found all processes.
START_CPU_S = 0.08
MARGIN, MEMORY_MIB = 0.005, 300
WORKER = """
import mmap, sys
counts = mmap.mmap(int(sys.argv[1]), 4096)
place, kept = 8 * int(sys.argv[2]), bytearray(int(sys.argv[3]) << 20)
kept[::4096] = bytes(len(kept[::4096]))
number = 0
while True:
    sum(range(2000))
    number += 1
    counts[place:place + 8] = number.to_bytes(8, "little")
"""


def one_run(ranks: int, blocks: int, draw: random.Random) -> tuple[list[float], float]:
    """The log ratios of the blocks, and the sampler's share of one processor while it ran."""
    run, effects = f"bench-{os.getpid()}-{draw.random()}", []
    descriptor = os.memfd_create("counts")
    os.ftruncate(descriptor, 4096)
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", WORKER, str(descriptor), str(rank), str(MEMORY_MIB)],
                env={"BAREBOAT_RUN": run, "RANK": str(rank)},
                pass_fds=(descriptor,),
            )
            for rank in range(ranks)
        ]
        sampler = subprocess.Popen([sys.executable, "-I", "-S", str(SAMPLER), run, str(os.getpid()), folder])
        try:
            while speed(descriptor, [each.pid for each in workers]) == 0 or cpu_s(sampler.pid) < START_CPU_S:
                time.sleep(0.1)
            on_s, before_s = 0.0, cpu_s(sampler.pid)
            for _ in range(blocks):
                speeds = {}
                for is_on in draw.sample((True, False), 2):
                    sampler.send_signal(signal.SIGCONT if is_on else signal.SIGSTOP)
                    began = time.monotonic()
                    time.sleep(SETTLE_S)
                    speeds[is_on] = speed(descriptor, [each.pid for each in workers])
                    on_s += is_on * (time.monotonic() - began)
                effects.append(math.log(speeds[True] / speeds[False]))
            share = (cpu_s(sampler.pid) - before_s) / on_s
        finally:
            for each in (sampler, *workers):
                each.kill()
                each.wait()
            os.close(descriptor)
    return effects, share


def cpu_s(pid: int) -> float:
    """The seconds of a process on processors, to the nanosecond."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def speed(descriptor: int, workers: Sequence[int]) -> float:
    """The loops of all workers for each second on a processor, over one window of so many
    seconds on processors."""

    def done() -> tuple[int, float]:
        counts = os.pread(descriptor, 8 * len(workers), 0)
        places = range(0, len(counts), 8)
        return sum(int.from_bytes(counts[k : k + 8], "little") for k in places), sum(map(cpu_s, workers))

    before = after = done()
    while after[1] - before[1] < WINDOW_S:
        time.sleep(0.05)
        after = done()
    return (after[0] - before[0]) / (after[1] - before[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--blocks", type=int, default=60, help="of each run")
    parser.add_argument("--ranks", type=int, default=os.cpu_count(), help="processes of the program")
    options = parser.parse_args()
    draw = random.Random(1)
    found = [one_run(options.ranks, options.blocks, draw) for _ in range(options.runs)]
    mean = mean_of([float(trim_mean(effects, 0.2)) for effects, _ in found])
    result = compare(mean, margin=MARGIN, confidence=0.95)
    share = sum(each for _, each in found) / len(found)
    for name, value in {
        "ranks": options.ranks,
        "runs": options.runs,
        "blocks": options.blocks,
        "speed per CPU second, with / without": f"{result.ratio:.4f} [{result.low:.4f}, {result.high:.4f}]",
        "within 0.5 %": result.verdict.value,
        "processor time of the sampler": f"{share:.2%} of one of {os.cpu_count()}",
    }.items():
        print(f"{name:<38} {value}")


if __name__ == "__main__":
    main()
