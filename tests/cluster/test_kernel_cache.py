"""Compiled GPU kernels of several nodes of a real Slurm cluster, kept for the next job."""

from desks import Desk, on_nodes, ranks_said

MORE = 'launcher = "ranks"\n'
#: The second node's rank ends later; ranks of one node share its copy.
COMPILES = """
import os, time
place = os.path.join(os.environ["TRITON_CACHE_DIR"], "ab")
os.makedirs(place, exist_ok=True)
print(" ".join(sorted(os.listdir(place))) or "none", flush=True)
rank = int(os.environ["RANK"])
with open(os.path.join(place, f"kernel{rank}"), "w") as stream:
    stream.write("code")
time.sleep(1.5 * rank)
"""


def test_nodes_keep_their_kernels_in_one_archive(desk: Desk) -> None:
    file = desk.job(
        "compiles", ["python", "-c", COMPILES], nodes=2, ranks_per_node=1, gpus_per_rank=1, more=MORE
    )
    assert ranks_said(desk.wait(desk.submit(file))) == {0: ["none"], 1: ["none"]}
    assert ranks_said(desk.wait(desk.submit(file))) == {rank: ["kernel0 kernel1"] for rank in range(2)}
    (archive,) = (desk.store / "kernel-caches").glob("*/*/*")
    assert archive.stat().st_mode & 0o777 == 0o600
    assert on_nodes(desk.up) == []
