"""Measure what counting a container's discarded files costs a run.

    python bench/discarded.py [--pairs 40] [--python PYTHON]

The same job script with and without the counting, in pairs of random order, of a command that writes nothing
and of one that writes 5,000 files to /tmp. Prints medians of processor and wall times, and ratios with 95 %
intervals. The environment is captured first if it is not in the store.
"""

import argparse
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bareboat.engines import BLOCK
from bareboat.runs import local
from bareboat_base import execute

MANY = "i=0; while [ $i -lt 5000 ]; do echo x > /tmp/$i; i=$((i + 1)); done"
COMMANDS = {"writes nothing": ("true",), "5,000 files": ("sh", "-c", MANY)}


def script(command: tuple[str, ...], python: str) -> str:
    plan = [sys.executable, "-m", "bareboat", "plan", "--prepare", "--script", "--engine", "bubblewrap"]
    words = [*plan, "--python", python, "--", *command]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout


def seconds(path: Path, folder: Path) -> tuple[float, float]:
    """On processors, and on the wall, as `bareboat run` does it, where a library is beside the script."""
    control = Path(tempfile.mkdtemp(dir=folder))
    environment = os.environ | {"BAREBOAT_CONTROL": str(control)}
    for name in ("BAREBOAT_RUN_DIR", "BAREBOAT_METER_DIR"):
        environment[name] = tempfile.mkdtemp(dir=control)
    blocked = os.pipe() if path.parent.name == "counted" else ()
    if blocked:
        environment[BLOCK] = str(blocked[0])
    before_s = used_s()
    with open(os.devnull, "wb") as nowhere:
        live = execute.Live(
            str(path), mark=control.name, environment=environment, output=nowhere, descriptors=blocked[:1]
        )
        local.keep_first(live, blocked)
        local.outlast_shortest(live, contains=bool(blocked))
        if live.wait():
            sys.exit(f"{path}: exit status {live.poll()}")
        live.close()
        live.report_discarded(path.parent, environment, nowhere.fileno())
    took_s = (time.monotonic_ns() - live.spawned_ns) / 1e9
    return used_s() - before_s, took_s


def used_s() -> float:
    """On processors: of Bareboat's process, which opens the directories, and of all that it started."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--pairs", type=int, default=40)
    options.add_argument("--python", default=sys.executable)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, command in COMMANDS.items():
            text = script(command, given.python)
            paths = []
            for kind in ("counted", "plain"):
                paths.append(folder / kind / "job.sh")
                paths[-1].parent.mkdir(exist_ok=True)
                paths[-1].write_text(text)
            functions, _, _ = text.rpartition("main ")
            (folder / "counted" / "lib-job.sh").write_text(functions)
            rows = []
            for _ in range(given.pairs + 1):
                order = random.sample(paths, 2)
                took = {path: seconds(path, folder) for path in order}
                rows.append([took[path] for path in paths])
            for kind, at in (("processors", 0), ("wall", 1)):
                report(f"{title}, {kind}", [(counted[at], plain[at]) for counted, plain in rows[1:]])


def report(title: str, pairs: list[tuple[float, float]]) -> None:
    medians = [1e3 * statistics.median(values) for values in zip(*pairs, strict=True)]
    logs = [math.log(counted / plain) for counted, plain in pairs]
    # 2.1: the t quantile of 20 pairs; fewer than 1 % too wide for more.
    half = 2.1 * statistics.stdev(logs) / math.sqrt(len(logs))
    ratio, low, high = (math.exp(statistics.mean(logs) + shift) for shift in (0, -half, half))
    print(f"{title}: {medians[0]:.1f} / {medians[1]:.1f} ms; {ratio:.3f} [{low:.3f}, {high:.3f}]", flush=True)


if __name__ == "__main__":
    main()
