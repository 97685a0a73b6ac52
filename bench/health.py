"""Whether health certificates find faults of nodes, and none on healthy nodes: many jobs on a test cluster.

    python bench/health.py [--faults 10] [--healthy 200] [--load 8]

Requires the programs of local clusters (tests/lab/cluster/install-clusters.sh) and gcc; run it as an ordinary
user. Each fault is made on a Slurm of three nodes with four GPU devices (tests/health_faults.py), for so many
jobs on two of them, one after another: the points of a sweep. Healthy jobs follow, without and with so many
busy processes on the machine. Prints for each condition the number of jobs, of
those with a mark of the fault, of other marks, and of jobs without a certificate.
"""

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from clusters import Cluster, cluster
from health_faults import FAULTS, Fault, Setting, certified
from installation import install


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--faults", type=int, default=10, help="jobs for each fault")
    parser.add_argument("--healthy", type=int, default=200, help="healthy jobs, without and with load")
    parser.add_argument("--load", type=int, default=8, help="busy processes")
    options = parser.parse_args()
    print(f"{'condition':14}{'jobs':>6}{'found':>7}{'other':>7}{'none':>6}{'s/job':>7}", flush=True)
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder) / "c", nodes=3, gpus=4) as up:
        up.programs.append(install(Path(folder) / "installed"))
        for fault in FAULTS if options.faults else ():
            with fault.begin(up) as environment:
                show(up, fault.name, options.faults, fault, environment)
            up.restore()
        if options.healthy:
            show(up, "healthy", options.healthy)
            with busy(options.load):
                show(up, f"load {options.load}", options.healthy)


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    started = [subprocess.Popen(["bash", "-c", "while :; do :; done"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in started:
            each.kill()


def show(
    up: Cluster, name: str, jobs: int, fault: Fault | None = None, environment: Setting | None = None
) -> None:
    """Run the jobs, and print their row and the marks that are not the fault's."""
    began = time.monotonic()
    more = f"[sweep]\nnumber = {list(range(jobs))}\n"
    _, status, _ = certified(up, "report", fault, environment, gpus=4, more=more, options=("--at-once", "1"))
    healths = [point["health"] for point in status["points"]]
    marks = [each["marks"] for each in healths if each is not None and len(each["nodes"]) == 2]
    pattern = re.compile(fault.mark if fault else "(?!)")
    found = sum(any(map(pattern.search, each)) for each in marks)
    others = [mark for each in marks for mark in each if not pattern.search(mark)]
    took_s = (time.monotonic() - began) / jobs
    print(f"{name:14}{jobs:6}{found:7}{len(others):7}{jobs - len(marks):6}{took_s:7.1f}", flush=True)
    for mark, count in Counter(re.sub(r"\d+\.\d+", "N", each) for each in others).most_common(5):
        print(f"  {count} times: {mark}", flush=True)


if __name__ == "__main__":
    main()
