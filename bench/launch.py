"""How long does it take to start ranks on several nodes? Fairlead's job script beside the same by hand.

    python bench/launch.py [--rounds 20] [--nodes 3] [--ranks-per-node 2]

Brings up the Slurm cluster of the tests (docs/testing.md), captures this environment into its shared home,
and runs all ways in turn inside one job: the time from the start of a way on the first node to its end, with
ranks that do nothing. "By hand" is what one would write with the same launcher, engine and image. Goal: at
most 1.05.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from fairlead import plan, programs, render
from fairlead.images.capture import capture
from fairlead.model import CaptureRequest, Image, Job, Rootfs, SchedulerFacts, Site, Topology
from fairlead.probe import probe
from fairlead.store import Store

CLUSTER = Path(__file__).parents[1] / "tests" / "lab" / "cluster" / "cluster.sh"

#: Each way once a round, in an order that moves on by one; the first round warms the caches.
DRIVER = """\
#!/bin/bash
ways=({ways})
for ((round = 0; round <= {rounds}; round++)); do
  for ((k = 0; k < ${{#ways[@]}}; k++)); do
    way=${{ways[(k + round) % ${{#ways[@]}}]}}
    began=${{EPOCHREALTIME/./}}
    bash "$way.sh" > "$way.out" 2>&1 || {{ echo "failed $way $?"; cat "$way.out"; exit 1; }}
    [ "$round" -eq 0 ] || echo "took $way $((${{EPOCHREALTIME/./}} - began))"
  done
done
"""


def container(site: Site, rootfs: Rootfs, folder: Path) -> str:
    """bubblewrap as one would write it after reading its manual."""
    facts = site.engine("bubblewrap")
    if facts is None or not facts.works:
        sys.exit("bubblewrap does not work here; see: fairlead doctor")
    layers = [word for layer in rootfs.layers.values() for word in ("--overlay-src", layer)]
    mounts = ["--dev-bind", "/dev", "/dev", "--bind", "/proc", "/proc", "--ro-bind", "/sys", "/sys"]
    mounts += ["--bind", str(folder), str(folder), "--chdir", str(folder)]
    return shlex.join([facts.path, *layers, "--tmp-overlay", "/", *mounts])


def by_hand(topology: Topology, bwrap: str, python: str) -> dict[str, str]:
    nodes, each, size = topology.nodes, topology.ranks_per_node, topology.world_size
    address = (
        "first=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"
        "master=$(getent ahostsv4 $first | awk '{print $1; exit}')\n"
    )
    once = f"export master\nsrun -N{nodes} -n{nodes} --ntasks-per-node=1 --overlap --mpi=none bash -c "
    loop = (
        f"for i in $(seq 0 {each - 1}); do LOCAL_RANK=$i RANK=$((SLURM_NODEID * {each} + i)) "
        f"WORLD_SIZE={size} MASTER_ADDR=$master MASTER_PORT=29500 {bwrap} /bin/true & done; wait"
    )
    torchrun = (
        f"{bwrap} --setenv OMP_NUM_THREADS 1 {python} -m torch.distributed.run --nnodes={nodes} "
        f"--node-rank=$SLURM_NODEID --master-addr=$master --master-port=29501 --nproc-per-node={each} "
        "--no-python /bin/true"
    )
    return {
        "ranks-by-hand": address + once + shlex.quote(loop),
        "srun-by-hand": f"srun -N{nodes} -n{size} --ntasks-per-node={each} --overlap {bwrap} /bin/true",
        "torchrun-by-hand": address + once + shlex.quote(torchrun),
    }


def of_fairlead(
    launcher: str, topology: Topology, image: Image, rootfs: Rootfs, site: Site, folder: Path
) -> str:
    command = ("python", "-c", "pass") if launcher == "torchrun" else ("/bin/true",)
    job = Job(
        name=f"launch-{launcher}", command=command, workdir=str(folder), launcher=launcher, topology=topology,
        engine="bubblewrap", scheduler="slurm",
    )  # fmt: skip
    made = plan.plan(job, image, rootfs, site)
    # Each start is the run's first: its folder is a new one.
    script = render.script(made, render.Place(job.name, "RUN-FOLDER"))
    return script.replace("FAIRLEAD_RUN_DIR=RUN-FOLDER", f"FAIRLEAD_RUN_DIR={folder}/run-$BASHPID-$RANDOM")


def plan_many(image: Image, rootfs: Rootfs, site: Site) -> tuple[float, int]:
    """Seconds to plan and render for 10,000 nodes x 8 ranks, and the script's length."""
    began = time.perf_counter()
    script = of_fairlead(
        "ranks", Topology(nodes=10_000, ranks_per_node=8), image, rootfs, site, Path("/scratch/job")
    )
    return time.perf_counter() - began, len(script)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="starts of each way (20)")
    parser.add_argument("--nodes", type=int, default=3, help="nodes (3)")
    parser.add_argument("--ranks-per-node", type=int, default=2, help="ranks on each (2)")
    options = parser.parse_args()
    topology = Topology(nodes=options.nodes, ranks_per_node=options.ranks_per_node)
    with tempfile.TemporaryDirectory(prefix="fairlead-launch-") as text:
        cluster = Path(text) / "cluster"
        subprocess.run([CLUSTER, "up", cluster, "--nodes", str(options.nodes)], check=True)
        try:
            measure(cluster, topology, options.rounds)
        finally:
            subprocess.run([CLUSTER, "down", cluster], check=False)


def measure(cluster: Path, topology: Topology, rounds: int) -> None:
    folder = cluster / "home" / "launch"
    folder.mkdir()
    store = Store(cluster / "home" / "store")
    image, _ = capture(CaptureRequest(python=sys.executable), store)
    site = msgspec.structs.replace(
        programs.provide(store, probe(store)), schedulers=(SchedulerFacts(name="slurm", version="lab"),)
    )
    rootfs = store.rootfs(image)
    scripts = by_hand(topology, container(site, rootfs, folder), image.python or "python3")
    launchers = ["ranks", "torchrun"]
    if importlib.util.find_spec("torch") is None:
        launchers.remove("torchrun")
        del scripts["torchrun-by-hand"]
        print("PyTorch is not installed: no rows for torchrun")
    for launcher in launchers:
        scripts[f"{launcher}-fairlead"] = of_fairlead(launcher, topology, image, rootfs, site, folder)
    for name, body in scripts.items():
        (folder / f"{name}.sh").write_text(body if body.startswith("#!") else f"#!/bin/bash\n{body}\n")
    (folder / "driver.sh").write_text(DRIVER.format(ways=" ".join(scripts), rounds=rounds))
    job = ["sbatch", "--wait", f"--nodes={topology.nodes}", f"--ntasks-per-node={topology.ranks_per_node}",
           "--output=driver.out", "driver.sh"]  # fmt: skip
    words = [str(CLUSTER), "login", str(cluster), "env", "-C", str(folder), *job]
    subprocess.run(words, check=False, stdout=subprocess.DEVNULL)
    said = (folder / "driver.out").read_text()
    times: dict[str, list[float]] = {}
    for way, micros in re.findall(r"(?m)^took (\S+) (\d+)$", said):
        times.setdefault(way, []).append(int(micros) / 1e6)
    if len(times) != len(scripts):
        sys.exit(said)
    print(
        f"{topology.nodes} nodes x {topology.ranks_per_node} ranks on {site.cpus} CPUs; "
        f"{rounds} starts of each way"
    )
    print(f"{'launcher':<10} {'by hand s':>10} {'Fairlead s':>10} {'ratio':>6}   [quartiles of the ratio]")
    for launcher, hand in (("ranks", "ranks"), ("ranks", "srun"), ("torchrun", "torchrun")):
        if f"{launcher}-fairlead" not in times:
            continue
        ours, theirs = times[f"{launcher}-fairlead"], times[f"{hand}-by-hand"]
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        low, _, high = statistics.quantiles(ratios, n=4)
        name = launcher if hand == launcher else f"to {hand}"
        print(
            f"{name:<10} {statistics.median(theirs):>10.3f} {statistics.median(ours):>10.3f} "
            f"{statistics.median(ratios):>6.2f}   [{low:.2f} {high:.2f}]"
        )
    took, length = plan_many(image, rootfs, site)
    print(f"planning and rendering for 10,000 nodes x 8 ranks: {took * 1e3:.0f} ms, {length:,} characters")


if __name__ == "__main__":
    main()
