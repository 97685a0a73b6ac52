"""Measure how long the ranks on several nodes take to start: Bareboat's job script and the same by hand.

    python bench/launch.py [--rounds 20] [--nodes 3] [--ranks-per-node 2] [--mpi-python PYTHON]

Starts the Slurm cluster of the tests (docs/testing.md), captures this environment into its shared home, and
runs all variants in turn inside one job: the time from a variant's start on the first node to its end, with
ranks that do nothing. "By hand" is a good script with the same launcher, engine and image, which keeps each
rank's output and the first failure's exit code. Goal: at most 1.05. With a Python that has mpi4py (and this
machine's OpenMPI), mpirun is compared, too, and the published workflow: mpirun that starts `udocker run` for
each rank, in udocker's default mode (P1).

Ratios are those of two starts of one round; their median has a 95 % bootstrap interval. What other load
cannot change is printed as well: the processes and programs that one node's part starts, and their CPU time.
"""

import argparse
import dataclasses
import importlib.util
import os
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import hands
import launch_ways
import msgspec
from launch_ways import Ground

from bareboat.captures import capture
from bareboat.deployment.present import present
from bareboat.model import CaptureRequest, SchedulerFacts, Topology
from bareboat.probe import probe
from bareboat.runs import programs
from bareboat_images.formats.flatten import make_flat
from bareboat_images.store import Store

CLUSTER = Path(__file__).parents[1] / "tests" / "lab" / "cluster" / "cluster.sh"
#: What tests/lab/mpi-pairs.sh installs.
MPI_PYTHON = Path(os.environ.get("PREFIX", "/opt/bareboat-lab")) / "mpi" / "debian" / "bin" / "python"

#: Each way once a round, in an order that moves on by one; the first round warms the caches. A run's folders
#: and the script are there when a job begins: `bareboat submit` makes them.
DRIVER = """\
#!/bin/bash
ways=({ways})
for ((round = 0; round <= {rounds}; round++)); do
  for ((k = 0; k < ${{#ways[@]}}; k++)); do
    way=${{ways[(k + round) % ${{#ways[@]}}]}}
    export BAREBOAT_BENCH_RUN={folder}/runs/$way-$round
    mkdir -p "$BAREBOAT_BENCH_RUN/logs"
    cp "$way.sh" "$BAREBOAT_BENCH_RUN/job.sh"
    # mpirun ends before Slurm has taken back what its daemons had.
    while squeue --steps --noheader --jobs="$SLURM_JOB_ID" --format=%i | grep -q '\\.[0-9]*$'; do
      sleep 0.1
    done
    began=${{EPOCHREALTIME/./}}
    bash "$BAREBOAT_BENCH_RUN/job.sh" > "$way.out" 2>&1 || {{
      echo "failed $way $?"
      cat "$way.out"
      exit 1
    }}
    [ "$round" -eq 0 ] || echo "took $way $((${{EPOCHREALTIME/./}} - began))"
    echo "$began" > "$BAREBOAT_BENCH_RUN/began"
  done
done
"""

WITHOUT_K = """\
#!/bin/sh
for word; do
  shift
  case ${was_k:-}$word in
    -k) was_k=yes ;;
    yes*) was_k= ;;
    *) set -- "$@" "$word" ;;
  esac
done
exec proot "$@"
"""

#: Title of a row, Bareboat's way, the way by hand.
ROWS = (
    ("ranks, compared with a loop by hand", "ranks-bareboat", "ranks-by-hand"),
    ("ranks, compared with a loop with the same mounts", "ranks-bareboat", "ranks-same-by-hand"),
    ("ranks, compared with srun by hand", "ranks-bareboat", "srun-by-hand"),
    ("torchrun", "torchrun-bareboat", "torchrun-by-hand"),
    ("mpirun, without the MPI check", "mpirun-bareboat", "mpirun-by-hand"),
    ("mpirun, with the same mounts", "mpirun-bareboat", "mpirun-same-by-hand"),
    ("mpirun, with the MPI check", "mpirun-checked-bareboat", "mpirun-by-hand"),
    ("mpirun, compared with `udocker run` P1", "mpirun-bareboat", "published-by-hand"),
    (
        "mpirun with the MPI check, compared with `udocker run` P1",
        "mpirun-checked-bareboat",
        "published-by-hand",
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="starts of each variant (20)")
    parser.add_argument("--nodes", type=int, default=3, help="nodes (3)")
    parser.add_argument("--ranks-per-node", type=int, default=2, help="ranks on each (2)")
    parser.add_argument("--mpi-python", type=Path, default=MPI_PYTHON, help="an environment with mpi4py")
    options = parser.parse_args()
    topology = Topology(nodes=options.nodes, ranks_per_node=options.ranks_per_node)
    with tempfile.TemporaryDirectory(prefix="bareboat-launch-") as text:
        cluster = Path(text) / "cluster"
        subprocess.run([CLUSTER, "up", cluster, "--nodes", str(options.nodes)], check=True)
        try:
            measure(cluster, topology, options.rounds, options.mpi_python)
        finally:
            subprocess.run([CLUSTER, "down", cluster], check=False)


def ground_of(python: Path, cluster: Path, topology: Topology) -> Ground:
    """The environment of this Python, as an image in the cluster's home."""
    folder = cluster / "home" / "launch"
    folder.mkdir(exist_ok=True)
    store = Store(cluster / "home" / "store")
    image, _ = capture(CaptureRequest(python=str(python)), store)
    make_flat(store, image)
    slurm = SchedulerFacts(name="slurm", version="lab", mpi_plugins=("none", "pmi2", "pmix"))
    site = msgspec.structs.replace(programs.provide(store, probe(store)), schedulers=(slurm,))
    rootfs = present(store, image, site)
    return Ground(topology=topology, image=image, rootfs=rootfs, site=site, folder=folder)


def mpi_ways(ground: Ground, cluster: Path) -> dict[str, str]:
    """mpirun, by Bareboat, by hand, and as published."""
    mpirun = shutil.which("mpirun", path="/usr/bin:/bin")
    if mpirun is None:
        print("mpirun is not installed: no rows for it")
        return {}
    found = {
        "mpirun-by-hand": launch_ways.mpirun_by_hand(ground, mpirun, launch_ways.container(ground)),
        "mpirun-same-by-hand": launch_ways.mpirun_by_hand(ground, mpirun, launch_ways.same_container(ground)),
        "mpirun-bareboat": launch_ways.of_bareboat(ground, "mpirun", check=False),
        "mpirun-checked-bareboat": launch_ways.of_bareboat(ground, "mpirun"),
    }
    folder = cluster / "home" / "udocker"
    folder.mkdir()
    try:
        hand = hands.udocker(folder, ground.rootfs, str(ground.folder), ("P1",))[0]
    except hands.MissingToolError as missing:
        print(f"no row for `udocker run`: {missing}")
        return found
    # udocker passes PRoot an option, -k, that Debian's 5.1.0 breaks on.
    proot = folder / "proot"
    proot.write_text(WITHOUT_K)
    proot.chmod(0o755)
    settings = [f"{name}={value}" for name, value in hand.environment.items()]
    settings.append(f"UDOCKER_USE_PROOT_EXECUTABLE={proot}")
    words = ["env", *settings, *hand.words(("/bin/true",), None)]
    return {**found, "published-by-hand": launch_ways.published(ground, mpirun, words)}


def measure(cluster: Path, topology: Topology, rounds: int, mpi_python: Path) -> None:
    ground = ground_of(Path(sys.executable), cluster, topology)
    hand = launch_ways.by_hand(ground)
    launchers = ["ranks"]
    if importlib.util.find_spec("torch") is not None:
        launchers.append("torchrun")
    else:
        del hand["torchrun"]
        print("PyTorch is not installed: no row for torchrun")
    scripts = {f"{name}-by-hand": body for name, body in hand.items()}
    for launcher in launchers:
        scripts[f"{launcher}-bareboat"] = launch_ways.of_bareboat(ground, launcher)
    if mpi_python.exists():
        scripts |= mpi_ways(ground_of(mpi_python, cluster, topology), cluster)
    else:
        print(f"{mpi_python} does not exist: no rows for mpirun")
    for name, body in scripts.items():
        (ground.folder / f"{name}.sh").write_text(body if body.startswith("#!") else f"#!/bin/bash\n{body}\n")
    times = starts(cluster, ground, list(scripts), rounds)
    print(
        f"{topology.nodes} nodes x {topology.ranks_per_node} ranks on {ground.site.cpus} CPUs, load "
        f"{os.getloadavg()[0]:.1f}; {rounds} starts of each variant, interleaved; medians\n"
    )
    print("| launcher | by hand s | Bareboat s | ratio | 95 % interval |\n|---|---|---|---|---|")
    for title, ours, theirs in ROWS:
        if ours in times and theirs in times:
            print(row(title, times[ours], times[theirs]))
    counts(ground, scripts)
    took, length = plan_many(ground)
    print(f"\nplanning and rendering for 10,000 nodes x 8 ranks: {took * 1e3:.0f} ms, {length:,} characters")


def starts(cluster: Path, ground: Ground, ways: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """Way -> seconds of each round."""
    folder, topology = ground.folder, ground.topology
    driver = DRIVER.format(ways=" ".join(ways), rounds=rounds, folder=folder)
    (folder / "driver.sh").write_text(driver)
    job = ["sbatch", "--wait", f"--nodes={topology.nodes}", f"--ntasks-per-node={topology.ranks_per_node}",
           "--output=driver.out", "driver.sh"]  # fmt: skip
    words = [str(CLUSTER), "login", str(cluster), "env", "-C", str(folder), *job]
    subprocess.run(words, check=False, stdout=subprocess.DEVNULL)
    said = (folder / "driver.out").read_text()
    times: dict[str, list[float]] = {}
    for way, micros in re.findall(r"(?m)^took (\S+) (\d+)$", said):
        times.setdefault(way, []).append(int(micros) / 1e6)
    if {len(times.get(way, ())) for way in ways} != {rounds}:
        sys.exit(said)
    return times


def row(title: str, ours: list[float], theirs: list[float]) -> str:
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    low, high = interval(ratios)
    return (
        f"| {title} | {statistics.median(theirs):.3f} | {statistics.median(ours):.3f} | "
        f"{statistics.median(ratios):.2f} | {low:.2f} to {high:.2f} |"
    )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Of the median, 95 %, by the bootstrap's percentiles."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(4000))
    return medians[100], medians[-101]


def counts(ground: Ground, scripts: dict[str, str]) -> None:
    """What the first node's part starts and costs, run on this machine without Slurm."""
    run = ground.folder / "runs" / "counted"
    (run / "logs").mkdir(parents=True)
    parts = []
    for title, name, bwrap in (
        ("", "", launch_ways.container(ground)),
        (", same mounts", "-same", launch_ways.same_container(ground)),
    ):
        (run / f"loop{name}.sh").write_text(launch_ways.loop_by_hand(ground, bwrap))
        parts.append((f"a loop by hand{title}", [f"loop{name}.sh"]))
    (run / "rank.sh").write_text(f"exec {launch_ways.container(ground)} /bin/true\n")
    parts.append(("ranks", ["ranks.sh", "--node"]))
    (run / "ranks.sh").write_text(scripts["ranks-bareboat"])
    if "mpirun-bareboat" in scripts:
        (run / "mpirun.sh").write_text(scripts["mpirun-bareboat"])
        parts += [
            ("one rank of mpirun by hand", ["rank.sh"]),
            ("one rank of mpirun", ["mpirun.sh", "--rank"]),
        ]
    told = {"BAREBOAT_BENCH_RUN": str(run), "SLURM_NODEID": "0", "master": "127.0.0.1"}
    print("\n| one node's part | processes | programs | CPU ms, minimum of 30 |\n|---|---|---|---|")
    for title, words in parts:
        if len(words) > 1:
            words = [*words, "0", "run", str(run), "127.0.0.1", "29500", "job"]
        forks, started = trace(["bash", *words], run, told) if shutil.which("strace") else ("?", "?")
        least_ms = min(cpu_s(["bash", *words], run, told) for _ in range(30)) * 1e3
        print(f"| {title} | {forks} | {started} | {least_ms:.1f} |")


def trace(words: Sequence[str], folder: Path, told: dict[str, str]) -> tuple[str, str]:
    """Processes and programs that a command starts."""
    log = folder / "trace"
    calls = "trace=clone,clone3,fork,vfork,execve"
    strace = ["strace", "-f", "-qq", "-e", calls, "-o", str(log), *words]
    subprocess.run(strace, cwd=folder, env={**os.environ, **told}, check=True, stdout=subprocess.DEVNULL)
    text = log.read_text()
    forks = len(re.findall(r"(?:clone3?|v?fork)(?:\(| resumed).*= \d+$", text, re.MULTILINE))
    return str(forks), str(len(re.findall(r"execve(?:\(| resumed).*= 0$", text, re.MULTILINE)))


def cpu_s(words: Sequence[str], folder: Path, told: dict[str, str]) -> float:
    """CPU seconds of a command and all that it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, cwd=folder, env={**os.environ, **told}, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def plan_many(ground: Ground) -> tuple[float, int]:
    """Seconds to plan and render for 10,000 nodes x 8 ranks, and the script's length."""
    many = dataclasses.replace(ground, topology=Topology(nodes=10_000, ranks_per_node=8))
    began = time.perf_counter()
    script = launch_ways.of_bareboat(many, "ranks")
    return time.perf_counter() - began, len(script)


if __name__ == "__main__":
    main()
