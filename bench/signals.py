"""Does a program save its state, whatever ends its run? Tries each way to end a run, engine and launcher.

    python bench/signals.py [--tries 5] [--engines native,podman] [--events scancel,Ctrl-C]

Requires the programs of local clusters (tests/lab/cluster/install-clusters.sh), tests/lab/mpi-pairs.sh and
tests/lab/frameworks.sh; run it as an ordinary user. Each rank takes 2 s to save when a signal comes, and
exits with 7. On a Slurm of three nodes two ranks are on two of them; TERM to the process group and Ctrl-C are
for runs on this machine. A run is "saved" if every rank saved and the exit code is 7 (after a requeue 0, of
the second start). Of others, the table shows the signals of each rank that saved, and the exit code.
"""

import argparse
import itertools
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

sys.path.extend(str(Path(__file__).resolve().parents[1] / "tests" / each) for each in ("", "contract"))

from cluster_jobs import MPI, TORCH
from clusters import Cluster, cluster
from desks import Desk
from installation import install
from test_signals import ENGINES, SAVES  # type: ignore[import-not-found]
from watch import wait_until

PROGRAM = f"import os, sys\nif os.path.exists('saved.' + os.environ.get('RANK', '0')): sys.exit()\n{SAVES}"
ON_SLURM = ("scancel", "bareboat cancel", "requeue", "time limit")
EVENTS = (*ON_SLURM, "TERM to the group", "Ctrl-C")
#: Launcher -> the environment that has it.
LAUNCHERS = {"single": MPI, "mpirun": MPI, "srun": MPI, "torchrun": TORCH, "image-mpirun": MPI}
REFUSED = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--events", default=",".join(EVENTS))
    options = parser.parse_args()
    found: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    with tempfile.TemporaryDirectory() as name, cluster(Path(name) / "cluster") as up:
        os.environ["BAREBOAT_STORE"] = f"{name}/store"
        up.programs.append(install(Path(name) / "installed"))
        # Slurm's default; the one of the tests is shorter than what some engines take to end.
        change = "sed -i s/^KillWait=.*/KillWait=30/ /etc/slurm/slurm.conf && scontrol reconfigure"
        up.root("login", ["bash", "-c", change])
        for number in range(options.tries):
            for event, engine in itertools.product(options.events.split(","), options.engines.split(",")):
                where = up.home if event in ON_SLURM else Path(name)
                folder = where / f"{number}-{engine}-{event.replace(' ', '-')}"
                tries = [Try(folder, engine, event, each) for each in LAUNCHERS]
                if event in ON_SLURM:
                    results = on_slurm(up, tries)
                else:
                    results = {
                        each.launcher: here(each, up.programs[0]) for each in tries if each.launcher != "srun"
                    }
                for launcher, result in results.items():
                    found[event, engine, launcher][result] += 1
                    print(number, event, engine, launcher, result, sep=", ", file=sys.stderr, flush=True)
            show(found)


class Try:
    """A run in a directory of its own."""

    def __init__(self, folder: Path, engine: str, event: str, launcher: str) -> None:
        self.folder, self.engine, self.event, self.launcher = folder / launcher, engine, event, launcher
        self.ranks = 1 if launcher == "single" else 2
        self.folder.mkdir(parents=True)
        (self.folder / "saves.py").write_text(PROGRAM)

    def has_started(self) -> bool:
        return len(list(self.folder.glob("ready.*"))) == self.ranks

    def result(self, code: int) -> str:
        signals = [each.read_text() for each in self.folder.glob("saved.*")]
        if len(signals) == self.ranks and code == (0 if self.event == "requeue" else 7):
            return "saved" if set(signals) == {"1"} else "saved, several signals"
        return f"{'+'.join(signals) or 'none'}, exit code {code}"


def on_slurm(up: Cluster, tries: list[Try]) -> dict[str, str]:
    """Jobs at the same time: launcher -> result."""
    up.root("login", "scontrol update NodeName=ALL State=RESUME", check=False)  # where one was drained
    up.restore()
    results, runs = {}, []
    for one in tries:
        python = LAUNCHERS[one.launcher]
        desk = Desk(up=up, scheduler="slurm", path=up.path, python=python, folder=one.folder)
        limit_s = 60 if one.event == "time limit" else 600
        more = f'engine = "{one.engine}"\nlauncher = "{one.launcher}"\nwalltime_s = {limit_s}'
        job = desk.job("saves", ["python", "saves.py"], nodes=one.ranks, ranks_per_node=1, more=more)
        done = desk.bareboat("submit", job, code=None, timeout_s=600)
        results[one.launcher] = "refused" if done.returncode == REFUSED else f"not submitted: {done.stderr}"
        if done.returncode == 0:
            runs.append((one, desk, done.stdout.strip()))
    for one, desk, run in runs:
        results[one.launcher] = "" if wait_until(one.has_started, limit_s=120) else "not started"
        if one.event == "bareboat cancel" or results[one.launcher]:
            desk.bareboat("cancel", run, code=None)
        elif one.event != "time limit":
            words = ["scancel"] if one.event == "scancel" else ["scontrol", "requeue"]
            up.login([*words, desk.status(run)["job_id"]], check=False)
    for one, desk, run in runs:
        try:
            code = desk.bareboat("wait", run, code=None).returncode
            results[one.launcher] = results[one.launcher] or one.result(code)
        except subprocess.TimeoutExpired:
            results[one.launcher] = "does not end"
    return results


def here(one: Try, programs: Path) -> str:
    """The result of a run on this machine."""
    words = [programs / "bareboat", "run", "-q", "--engine", one.engine, "--launcher", one.launcher]
    words += ["-n", one.ranks, "--python", LAUNCHERS[one.launcher], "--", "python", "saves.py"]
    argv = list(map(str, words))
    if one.event == "Ctrl-C":  # a terminal of its own sends the signal
        argv = ["script", "-qec", f"exec {shlex.join(argv)}", "/dev/null"]
    pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(argv, cwd=one.folder, stdin=pipe, stdout=quiet, start_new_session=True) as run:
        wait_until(lambda: one.has_started() or run.poll() is not None, limit_s=60)
        if run.poll() is None and one.event == "Ctrl-C":
            os.write(run.stdin.fileno(), b"\x03")  # type: ignore[union-attr]
        elif run.poll() is None:
            os.killpg(run.pid, signal.SIGTERM)
        wait_until(lambda: run.poll() is not None, limit_s=60)
        run.kill()
    return "refused" if run.returncode == REFUSED else one.result(run.returncode)


def show(found: dict[tuple[str, str, str], Counter[str]]) -> None:
    print(f"| | | {' | '.join(LAUNCHERS)} |\n|{'---|' * (len(LAUNCHERS) + 2)}")
    for event, engine in dict.fromkeys((event, engine) for event, engine, _ in found):
        cells = [found.get((event, engine, launcher), Counter()).most_common() for launcher in LAUNCHERS]
        texts = ["; ".join(f"{count} {what}" for what, count in each) for each in cells]
        print(f"| {event} | {engine} | {' | '.join(texts)} |", flush=True)


if __name__ == "__main__":
    main()
