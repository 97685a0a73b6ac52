"""The way between nodes on a real Slurm: what real MPIs say of it comes onto the record, and sockets where a
fabric is end the job or are marked. The fabric is made up: the nodes have Ethernet, and facts that
claim more."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_jobs import Ended, run_job, write_job
from clusters import Cluster, need_this_system
from environments import make_environment, site_packages
from fabric_words import NCCL_SOCKET
from tools import interpreter

HELLO = """\
from mpi4py import MPI
print("hello", MPI.COMM_WORLD.rank, MPI.COMM_WORLD.allreduce(1), flush=True)
"""
#: Does not end by itself: whoever ends it is the watcher.
WAITING = HELLO + "import time\ntime.sleep(600)\n"
ADAPTER = {"kind": "InfiniBand", "device": "mlx5_0", "active": True, "rate_gbps": 200, "driver": "mlx5_core"}


def record(up: Cluster, ended: Ended) -> Any:
    """As `bareboat status` tells of it."""
    (found,) = json.loads(up.login(["bareboat", "status", "--json", ended.run_id], check=False).stdout)
    return found


@pytest.fixture(scope="module")
def facts(slurm_cluster: Cluster) -> tuple[Path, str]:
    """Where the facts of a compute node are kept, and these with an adapter added."""
    said = slurm_cluster.login(["bareboat", "doctor", "--compute", "--json"]).stdout
    seen = json.loads(said)["compute"]["network"]
    (ethernet,) = (each for each in seen["interfaces"] if each["name"] == "eth0")
    assert (ethernet["up"], ethernet["routed"], ethernet["private"]) == (True, True, False)
    assert seen["ports"] == []
    (path,) = slurm_cluster.home.glob("**/bareboat/sites/slurm-*.json")
    found = json.loads(path.read_text())
    path.unlink()
    return path, json.dumps({**found, "network": {**seen, "ports": [ADAPTER]}})


@pytest.fixture
def with_fabric(slurm: Cluster, facts: tuple[Path, str]) -> Iterator[Cluster]:
    """The cluster, with nodes that claim to have an adapter."""
    path, text = facts
    path.write_text(text)
    yield slurm
    path.unlink()


@pytest.mark.parametrize(
    ("name", "by", "way"), [("debian", "OpenMPI", "tcp"), ("mpich-5.0.2", "UCX", "tcp/eth0")]
)
def test_the_record_says_by_which_way_the_ranks_spoke(slurm: Cluster, name: str, by: str, way: str) -> None:
    ended = run_job(slurm, write_job(slurm, f"way-{name}", interpreter(f"mpi/{name}"), HELLO))
    assert ended.code == 0, ended.log
    found = record(slurm, ended)
    assert found["transports"] == [{"by": by, "way": way, "fabric": False}]
    assert found["fabric_mark"] == ""  # there is nothing better


def test_sockets_where_a_fabric_is(with_fabric: Cluster) -> None:
    """In the order of what is asked: a mark, and the end, from the proof and by the watcher."""
    up = with_fabric
    there = "InfiniBand (mlx5_0 at 200 Gb/s)"

    marked = run_job(up, write_job(up, "marked", interpreter("mpi/debian"), HELLO))
    assert marked.code == 0, marked.log
    assert f"WARNING: ranks fell back to TCP although the nodes have {there}" in marked.log
    wanted = f"ranks fell back to TCP (OpenMPI: tcp) although the nodes have {there}"
    assert record(up, marked)["fabric_mark"] == wanted
    assert wanted in up.login(["bareboat", "status", marked.run_id]).stdout

    job = write_job(up, "required", interpreter("mpi/debian"), WAITING, more='fabric = "require"')
    required = run_job(up, job)
    assert required.code == 3
    assert "the ranks fell back to TCP, but the job requires a fabric" in required.log
    assert "hello" not in required.log

    # The image's own mpirun runs its proof inside: the script can only look on, and end what goes on.
    inside = run_job(up, job, "--launcher", "image-mpirun")
    assert inside.code == 3
    assert "the ranks fell back to TCP, but the job requires a fabric" in inside.log
    assert record(up, inside)["transports"] == [{"by": "OpenMPI", "way": "tcp", "fabric": False}]
    up.wait(
        lambda: not any(up.processes(name, run=inside.run_id) for name in up.nodes), "no process of the run"
    )


#: Plays NCCL, which needs GPUs: a script that writes to the file that NCCL is told, in its documented words.
NCCL = f"""\
import os, socket, time
path = os.environ["NCCL_DEBUG_FILE"].replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))
assert os.environ["NCCL_DEBUG"] == "INFO"
with open(path, "w") as stream:
    stream.write({NCCL_SOCKET!r})
print("hello", flush=True)
time.sleep(600)
"""


def test_ranks_whose_nccl_falls_back_are_ended_on_all_nodes(
    with_fabric: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    need_this_system()
    up = with_fabric
    folder = tmp_path_factory.mktemp("nccl") / "environment"
    interpreter = make_environment(folder)
    about = site_packages(folder) / "nvidia_cuda_runtime_cu12-12.4.127.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-cuda-runtime-cu12\n")
    job = write_job(up, "nccl", interpreter, NCCL, more='fabric = "require"\nlauncher = "ranks"')
    job.write_text(job.read_text().replace("[topology]", "[topology]\ngpus_per_rank = 1"))
    ended = run_job(up, job)
    assert ended.code == 3, ended.log
    assert "hello" in ended.log
    assert "the ranks fell back to TCP, but the job requires a fabric" in ended.log
    ways = [{"by": "NCCL", "way": "NET/Socket/0", "fabric": False}]
    assert record(up, ended)["transports"] == ways
    up.wait(
        lambda: not any(up.processes(name, run=ended.run_id) for name in up.nodes), "no process of the run"
    )
