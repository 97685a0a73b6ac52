"""The image on the nodes of a real Slurm cluster: once for each, shared by jobs, and gone with the last."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from clusters import Cluster
from desks import Desk, desk_on, on_nodes, ranks_said
from tools import LAB

NODES = ("c1", "c2", "c3")
MORE = 'launcher = "ranks"\ndelivery = "node"\n'


def told(desk: Desk, run: str) -> Counter[tuple[str, str]]:
    """(node, what it did), and how often."""
    return Counter((each["node"], each["how"]) for each in desk.record(run)["deliveries"])


def once_each(how: str) -> Counter[tuple[str, str]]:
    return Counter({(node, how): 1 for node in NODES})


def test_jobs_share_what_the_first_of_them_brought_and_the_last_removes_it(desk: Desk) -> None:
    waits = [
        "bash",
        "-c",
        'echo here; until [ -e "$0" ]; do sleep 0.1; done; exec python -c "import ware"',
        "go",
    ]
    first = desk.submit(desk.job("first", waits, more=MORE))
    desk.up.wait(lambda: len(ranks_said(desk.log(first))) == 6, "six ranks")
    trees = [path for path in on_nodes(desk.up) if path.count("/") == 4 and "." not in path]
    assert len(trees) == 3
    second = desk.submit(desk.job("second", ["python", "-c", "import ware, os; print(ware.NAME)"], more=MORE))
    log = desk.wait(second)
    assert ranks_said(log) == {rank: ["ware"] for rank in range(6)}
    assert (desk.folder / "go").exists() is False
    (desk.folder / "go").touch()
    log = desk.wait(first)
    assert log.count("unpacked in ") == 3
    assert told(desk, first) == once_each("unpacked")
    assert told(desk, second) == once_each("found")
    assert on_nodes(desk.up) == []


def test_jobs_that_share_it_see_no_mount_points_of_each_other(desk: Desk) -> None:
    look = "if [ -f /y ]; then echo file; elif [ -d /y ]; then echo directory; else echo neither; fi"
    waits = ["bash", "-c", f'{look}; until [ -e "$0" ]; do sleep 0.1; done', "go"]
    (desk.folder / "empty").touch()
    runs = {}
    for what, source in {"file": "empty", "directory": ".", "neither": ""}.items():
        mounts = f'mounts = ["{desk.folder / source}:/y"]\n' if source else ""
        runs[what] = desk.submit(desk.job(what, waits, ranks_per_node=1, more=MORE + mounts))
        desk.up.wait(lambda run=runs[what]: len(ranks_said(desk.log(run))) == 3, "three ranks")
    (desk.folder / "go").touch()
    for what, run in runs.items():
        assert ranks_said(desk.wait(run)) == {rank: [what] for rank in range(3)}
        assert told(desk, run) == once_each("unpacked" if what == "file" else "found")
    assert on_nodes(desk.up) == []


def test_a_cancelled_job_leaves_nothing_on_any_node(desk: Desk) -> None:
    run = desk.submit(desk.job("cancelled", ["bash", "-c", "echo here; sleep 600"], more=MORE))
    desk.up.wait(lambda: len(ranks_said(desk.log(run))) == 6, "six ranks")
    assert on_nodes(desk.up) != []
    desk.up.login(["scancel", desk.status(run)["job_id"]])
    desk.wait(run, code=143)
    desk.up.wait(lambda: not on_nodes(desk.up), "nothing left on any node")


def test_a_job_that_goes_on_later_gets_it_again(desk: Desk) -> None:
    again = [
        "bash",
        "-c",
        'if [ -e began ]; then python -c "import ware"; else sleep 1; touch began; exit 75; fi',
    ]
    run = desk.submit(desk.job("again", again, nodes=2, ranks_per_node=1, more=MORE))
    desk.wait(run)
    assert len(desk.record(run)["starts"]) == 2
    # A node whose rank was ended for the other's has to be quick: what it could not remove is found again.
    done = told(desk, run)
    assert sum(done.values()) == 4
    assert {how for _, how in done} <= {"unpacked", "found"}
    desk.up.wait(lambda: not on_nodes(desk.up), "nothing left on any node")


MPI = """\
from mpi4py import MPI
print("hello", MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size, flush=True)
"""


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_ranks_that_a_program_starts_find_it_after_the_proof(desk: Desk, launcher: str) -> None:
    """Each rank is started by itself: nothing of the job's lives on a node from the proof to the job."""
    python = LAB / "mpi" / "debian" / "bin" / "python"
    if not python.exists():
        pytest.skip("the MPIs are not installed: sudo tests/lab/mpi-pairs.sh")
    desk = replace(desk, python=python)
    desk.write("hello.py", MPI)
    more = MORE.replace("ranks", launcher)
    run = desk.submit(desk.job("program", ["python", "hello.py"], more=more))
    log = desk.wait(run)
    assert all(f"hello {rank} 6" in log for rank in range(6)), log
    assert told(desk, run) == once_each("unpacked")
    assert on_nodes(desk.up) == []


def test_a_node_without_room_reads_the_store_and_says_so(desk: Desk) -> None:
    more = MORE + 'node_scratch = "/nowhere"\n'
    run = desk.submit(desk.job("fallback", ["python", "-c", "import ware; print(ware.NAME)"], more=more))
    log = desk.wait(run)
    assert ranks_said(log) == {rank: ["ware"] for rank in range(6)}
    assert log.count("the image is NOT copied to this node") == 3
    assert told(desk, run) == once_each("shared")


HANGS = """\
import time

def hang():
    time.sleep(600)

print("here", flush=True)
hang()
"""


def test_on_grid_engine_it_goes_with_a_run_that_hangs(
    gridengine: Cluster, python: Path, tmp_path: Path
) -> None:
    desk = desk_on(gridengine, "gridengine", python, tmp_path.name)
    desk.write("hangs.py", HANGS)
    more = MORE + "walltime_s = 300\n[scheduling]\nwatchdog_s = 10\n"
    run = desk.submit(desk.job("hangs", ["python", "hangs.py"], nodes=2, ranks_per_node=2, more=more))
    log = desk.wait(run, code=71)
    assert ranks_said(log)[3][0] == "here"
    assert log.count("unpacked in ") == 2
    assert sum(told(desk, run).values()) == 2
    assert desk.record(run)["ended_because"].startswith("hung")
    desk.up.wait(lambda: not desk.left(run), "no process left on any node")
    desk.up.wait(lambda: not on_nodes(desk.up), "nothing left on any node")
