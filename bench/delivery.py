"""Measure what it costs to copy the image to the nodes, compared with the same by hand and with no copy.

    python bench/delivery.py [--rounds 5] [--nodes 3] [--ranks-per-node 2] [--folder DIR]

Starts the Slurm cluster of the tests (docs/testing.md), captures this environment into its shared home, and
runs all variants in turn inside one job, with ranks that do nothing, or import PyTorch (NumPy if PyTorch is
not installed). "By hand" is what an administrator would advise: on each node a directory in /tmp, the image
in it (from the same tar, by `cp -r` of the tree, or from a squashfs), the ranks in bubblewrap, and the
directory's removal at the end.

Of each start three times are kept: until the last rank's Python starts, of its import, and in total with the
removal. Ratios are those of two starts of one round; their median has a 95 % bootstrap interval. All nodes
are one machine with one page cache here, unlike a shared file system and its servers. So the load on those is
counted instead: names looked up, files opened, and bytes read and mapped (of which only the used part is
read), by one node's part of the same script, without Slurm, under strace.
"""

import argparse
import dataclasses
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import launch
import launch_ways
import msgspec
from asked import STRACE, Asked, read_trace
from launch_ways import RUN, Ground

from bareboat import plan
from bareboat.deployment import flat_tar
from bareboat.model import FileSystem, Job, Plan, Topology
from bareboat_images.formats.flatten import make_flat
from bareboat_images.formats.squash import make_squashfs
from bareboat_images.store import Store

#: Where a copy by hand lies on each node.
BY_HAND = "/tmp/by-hand"

#: What each rank runs: it leaves when it began and how long its import took.
RANK = """\
import os, sys, time
began = time.time()
for name in sys.argv[1:]:
    __import__(name)
took = time.time() - began
with open(f"{os.environ['BAREBOAT_RUN_DIR']}/rank.{os.environ['RANK']}", "w") as file:
    file.write(f"{began} {took}")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="starts of each variant (5)")
    parser.add_argument("--nodes", type=int, default=3, help="nodes (3)")
    parser.add_argument("--ranks-per-node", type=int, default=2, help="ranks on each (2)")
    parser.add_argument("--folder", type=Path, help="directory for the cluster and its shared home (TMPDIR)")
    options = parser.parse_args()
    topology = Topology(nodes=options.nodes, ranks_per_node=options.ranks_per_node)
    with tempfile.TemporaryDirectory(prefix="bareboat-delivery-", dir=options.folder) as text:
        cluster = Path(text) / "cluster"
        subprocess.run([launch.CLUSTER, "up", cluster, "--nodes", str(options.nodes)], check=True)
        try:
            measure(cluster, topology, options.rounds)
        finally:
            subprocess.run([launch.CLUSTER, "down", cluster], check=False)


def measure(cluster: Path, topology: Topology, rounds: int) -> None:
    ground = launch.ground_of(Path(sys.executable), cluster, topology)
    module = "torch" if importlib.util.find_spec("torch") is not None else "numpy"
    (ground.folder / "rank.py").write_text(RANK)
    store = Store(cluster / "home" / "store")
    places = planned(ground, "node").mount_points
    make_flat(store, ground.image, places)
    tar = flat_tar.provide(store, ground.image, places)
    squashfs = ground.folder / "image.squashfs"
    make_squashfs(Path(ground.rootfs.flat), squashfs)
    scripts = {
        "node": launch_ways.script_of(planned(ground, "node")),
        "shared": launch_ways.script_of(planned(ground, "shared")),
        "node-import": launch_ways.script_of(planned(ground, "node", module)),
        "shared-import": launch_ways.script_of(planned(ground, "shared", module)),
        **by_hand(ground, tar, squashfs),
    }
    for name, body in scripts.items():
        (ground.folder / f"{name}.sh").write_text(body if body.startswith("#!") else f"#!/bin/bash\n{body}\n")
    wholes = launch.starts(cluster, ground, list(scripts), rounds)
    times = {way: read_ranks(ground, way, wholes[way]) for way in scripts}
    lies_on = next(system for system in ground.site.file_systems if system.purpose == "store")
    print_times(ground, lies_on, kind_of_scratch(cluster), rounds, times, module)
    print(
        f"\nThe image: {ground.image.inodes:,} files and directories; the tar {tar.stat().st_size / 1e6:,.0f}"
        f" MB, the squashfs {squashfs.stat().st_size / 1e6:,.0f} MB\n"
    )
    if shutil.which("strace") is None:
        print("strace is not installed: the load on the shared file system is not counted")
    else:
        print_asked(ground, Path(cluster).parent / "scratch", module)


def planned(ground: Ground, delivery: str, *modules: str, node_scratch: str = "/tmp") -> Plan:
    job = Job(
        name=f"delivery-{delivery}", command=("python", "rank.py", *modules), workdir=str(ground.folder),
        launcher="ranks", topology=ground.topology, engine="bubblewrap", scheduler="slurm", delivery=delivery,
        node_scratch=node_scratch,
    )  # fmt: skip
    return plan.plan(job, ground.image, ground.rootfs, ground.site)


def by_hand(ground: Ground, tar: Path, squashfs: Path) -> dict[str, str]:
    """The ways to bring the image that need no Bareboat, and the ranks that read the store."""
    rootfs = msgspec.structs.replace(ground.rootfs, flat=BY_HAND)
    there = dataclasses.replace(ground, rootfs=rootfs)
    command = f"{ground.python} rank.py"
    loop = launch_ways.loop_by_hand(there, launch_ways.container(there), command)
    ways = {
        "tar": f"mkdir {BY_HAND} && tar -xpf {tar} -C {BY_HAND}",
        "cp": f"cp -r --preserve=mode,timestamps,links {ground.rootfs.flat} {BY_HAND}",
        "unsquashfs": f"unsquashfs -quiet -no-progress -dest {BY_HAND} {squashfs}",
    }
    parts = {
        f"{name}-by-hand": f"trap 'rm -rf {BY_HAND}' EXIT\n{bring} || exit\n{loop}"
        for name, bring in ways.items()
    }
    parts["shared-by-hand"] = launch_ways.loop_by_hand(ground, launch_ways.container(ground), command)
    told = f"export BAREBOAT_RUN_DIR={RUN}\n"
    return {name: told + launch_ways.on_each_node(ground.topology, part) for name, part in parts.items()}


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of each round: until the last rank's Python began, of the import (the ranks' median), and of
    the whole."""

    until_ranks: list[float] = field(default_factory=list)
    importing: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)


def read_ranks(ground: Ground, way: str, wholes: list[float]) -> Times:
    found = Times(whole=wholes)
    for number in range(1, len(wholes) + 1):
        folder = ground.folder / "runs" / f"{way}-{number}"
        began = int((folder / "began").read_text()) / 1e6
        ranks = [tuple(map(float, path.read_text().split())) for path in folder.glob("rank.*")]
        if len(ranks) != ground.topology.world_size:
            sys.exit(f"{way}: {len(ranks)} ranks of {ground.topology.world_size} left their times")
        found.until_ranks.append(max(at for at, _ in ranks) - began)
        found.importing.append(statistics.median(took for _, took in ranks))
    return found


def kind_of_scratch(cluster: Path) -> str:
    words = [str(launch.CLUSTER), "node", str(cluster), "c1", "stat", "-f", "-c", "%T", "/tmp"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def print_times(
    ground: Ground, store: FileSystem, scratch: str, rounds: int, times: dict[str, Times], module: str
) -> None:
    topology = ground.topology
    print(
        f"{topology.nodes} nodes x {topology.ranks_per_node} ranks on {ground.site.cpus} CPUs, load "
        f"{os.getloadavg()[0]:.1f}; the shared home on {store.kind}, the nodes' /tmp on {scratch}; {rounds} "
        "starts of each variant, interleaved; medians\n"
    )
    print("| | by hand s | Bareboat s | ratio | 95 % interval |\n|---|---|---|---|---|")
    for title, ours, theirs in (
        ("copied, compared with `tar -x`", "node", "tar-by-hand"),
        ("copied, compared with `cp -r` of the tree", "node", "cp-by-hand"),
        ("copied, compared with `unsquashfs`", "node", "unsquashfs-by-hand"),
        ("not copied", "shared", "shared-by-hand"),
    ):
        mine, other = times[ours], times[theirs]
        print(launch.row(f"{title}: until the last rank starts", mine.until_ranks, other.until_ranks))
        print(launch.row(f"{title}: total", mine.whole, other.whole))
    print("\n| Bareboat | from the store s | from the node's copy s | ratio | 95 % interval |")
    print("|---|---|---|---|---|")
    mine, other = times["node-import"], times["shared-import"]
    print(launch.row("until the last rank starts", mine.until_ranks, other.until_ranks))
    print(launch.row(f"`import {module}`", mine.importing, other.importing))
    print(launch.row("total", mine.whole, other.whole))


def print_asked(ground: Ground, scratch: Path, module: str) -> None:
    scratch.mkdir()
    each = ground.topology.ranks_per_node
    print(f"| one node's part, {each} ranks with `import {module}` | look-ups | opens | MB read | mapped |")
    print("|---|---|---|---|---|")
    for title, delivery in (("ranks read the store", "shared"), ("the node copies the image", "node")):
        script = launch_ways.script_of(planned(ground, delivery, module, node_scratch=str(scratch)))
        found = asked(ground, script, delivery)
        print(
            f"| {title} | {found.lookups:,} | {found.opens:,} | "
            f"{found.read_bytes / 1e6:,.0f} | {found.mapped_bytes / 1e6:,.0f} |"
        )


def asked(ground: Ground, script: str, delivery: str) -> Asked:
    run = ground.folder / "runs" / f"counted-{delivery}"
    (run / "logs").mkdir(parents=True)
    (run / "job.sh").write_text(script)
    log = run / "trace"
    part = ["bash", str(run / "job.sh"), "--node", "0", "run", str(run), "127.0.0.1", "29500", "job"]
    told = {"SLURM_NODEID": "0", "SLURM_JOB_NODELIST": "localhost"}
    done = subprocess.run(
        [*STRACE, "-o", log, *part],
        cwd=ground.folder,
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{delivery}: one node's part ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return read_trace(
        log.read_text(errors="replace"),
        store=str(Path(ground.rootfs.flat).parents[2]),
        root_is_shared=delivery == "shared",
        besides=(str(ground.folder),),
    )


if __name__ == "__main__":
    main()
