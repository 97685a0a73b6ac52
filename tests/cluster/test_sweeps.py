"""Sweeps on real queues: one array job of Slurm and of Grid Engine, with Torque's commands a job a point."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from desks import Desk, on_nodes, queue_desk, ranks_said
from tools import LAB

POINT = Path(__file__).parents[1] / "lab" / "point.py"
#: What must come through as it is: what bash, the table and every scheduler could stumble over.
ODD = "a |b\n $(touch oops) é\\"
SWEEP = f"""
launcher = "ranks"
walltime_s = 600
[environment]
TAG = "{{what}} {{{{}}}}"
[sweep]
points = [
  {{what = "well", odd = {json.dumps(ODD)}}}, {{what = "fail", odd = ""}},
  {{what = "sleep", odd = "x"}}, {{what = "again", odd = "y"}},
]
"""


@pytest.fixture(params=["slurm", "torque", "gridengine"])
def desk(request: pytest.FixtureRequest, python: Path, tmp_path: Path) -> Desk:
    made = queue_desk(request, python, tmp_path.name)
    shutil.copy(POINT, made.folder)
    return made


def log(desk: Desk, point: str) -> str:
    sweep, _, index = point.rpartition(".")
    return desk.log(f"{sweep}/points/{index}")


@pytest.mark.one_in(3)
def test_four_points_one_fails_one_is_cancelled_one_goes_on_later(desk: Desk) -> None:
    job = desk.job("four", ["python", "point.py", "{what}", "{odd}"], nodes=1, more=SWEEP)
    sweep = desk.submit(job)
    points = [f"{sweep}.{index}" for index in range(4)]

    desk.up.wait(lambda: len(ranks_said(log(desk, points[2]))) == 2, "two ranks of the point that sleeps")
    assert len(desk.left(points[2])) >= 2
    desk.up.wait(
        lambda: "3 of 4 done, 1 failed, 1 running" in desk.bareboat("status").stdout, "the others' end"
    )
    if desk.scheduler == "slurm":
        attach = desk.up.login(
            f"script -qec 'bareboat attach --host {points[2]}' /dev/null",
            stdin="echo shell in job $SLURM_JOB_ID\nexit 5\n",
            cwd=desk.folder, environment=desk.environment, check=False,
        )  # fmt: skip
        element = desk.status(points[2])["job_id"]
        own = desk.up.login(f"squeue --noheader --jobs={element} --format=%A").stdout.strip()
        assert f"shell in job {own}" in attach.stdout
        assert attach.returncode == 5
    desk.bareboat("cancel", points[2])
    done = desk.bareboat("wait", sweep, code=7)
    assert "4 of 4 done, 1 failed, 1 cancelled" in done.stderr

    told = desk.status(sweep)
    assert (told["state"], told["exit_code"]) == ("failed", 7)
    each = {point["index"]: point for point in told["points"]}
    assert [each[index]["exit_code"] for index in range(4)] == [0, 7, 143, 0], told
    assert [each[index]["state"] for index in range(4)] == ["completed", "failed", "cancelled", "completed"]
    assert each[0]["values"] == {"what": "well", "odd": ODD}
    assert [len(each[index]["starts"]) for index in range(4)] == [1, 1, 1, 2]
    assert len({point["job_id"] for point in told["points"]}) == 4
    shown = desk.bareboat("status", sweep, code=7).stdout
    assert re.search(rf"{points[1]} .* 7 .*\n +what=fail odd=", shown), shown
    desk.bareboat("status", points[1], code=7)
    desk.up.wait(lambda: not desk.left(points[2]), "no process left of the cancelled point")

    said = ranks_said(log(desk, points[0]))
    assert sorted(said) == [0, 1]
    assert json.loads(said[1][0]) == {
        "what": "well", "odd": ODD, "tag": "well {}",
        "BAREBOAT_SWEEP_INDEX": "0", "BAREBOAT_SWEEP_WHAT": "well", "BAREBOAT_SWEEP_ODD": ODD,
    }  # fmt: skip
    assert not (desk.folder / "oops").exists()
    assert "resumed" in str(ranks_said(log(desk, points[3]))[1])
    assert desk.record(sweep + "/points/3")["exit_code"] == 0
    logs = desk.bareboat("logs", sweep).stdout
    assert all(f"==> {point} <==" in logs for point in points)
    lines = [json.loads(line) for line in desk.bareboat("logs", "--json", points[3]).stdout.splitlines()]
    assert {"rank": 1, "line": "resumed"} in lines
    desk.bareboat("logs", "-f", sweep, code=2)


@pytest.mark.parametrize("desk", ["slurm", "gridengine"], indirect=True)
def test_all_points_are_cancelled_at_once(desk: Desk) -> None:
    more = SWEEP.partition("[sweep]")[0] + '[sweep]\nwhat = ["sleep"]\nodd = [1, 2, 3]\n'
    job = desk.job("three", ["python", "point.py", "{what}", "{odd}"], nodes=1, more=more)
    sweep = desk.submit(job, "--at-once", "1")
    first = f"{sweep}.0"
    desk.up.wait(lambda: len(ranks_said(log(desk, first))) == 2, "two ranks of the first point")
    told = desk.status(sweep)
    assert [point["state"] for point in told["points"]] == ["running", "pending", "pending"], told
    desk.bareboat("cancel", sweep)
    assert "3 of 3 done, 3 cancelled" in desk.bareboat("wait", sweep, code=143).stderr
    desk.up.wait(lambda: not desk.left(first), "no process left")
    assert "never started" in desk.status(f"{sweep}.2")["reason"]


@pytest.mark.parametrize("desk", ["slurm"], indirect=True)
def test_more_points_than_the_cluster_takes(desk: Desk) -> None:
    more = SWEEP.partition("[sweep]")[0].replace("{what}", "") + f"[sweep]\nn = {list(range(1002))}\n"
    done = desk.bareboat("submit", desk.job("many", ["true"], nodes=1, more=more), code=3)
    assert "the sweep has 1002 points; an array job on this cluster has at most 1001" in done.stderr


#: Without a word to MPI: ranks that wait in it would keep the machine's CPUs busy.
HANGS = """\
import sys, time

def wait_for_ever():
    time.sleep(600)

print("begins", flush=True)
from mpi4py import MPI
print("size", MPI.COMM_WORLD.size, sys.argv[1], flush=True)
if sys.argv[1] == "hangs":
    wait_for_ever()
"""


@pytest.mark.parametrize("desk", ["slurm"], indirect=True)
def test_points_bring_the_image_prove_their_ranks_and_are_watched(desk: Desk) -> None:
    """Each point is a run of its own in all of that."""
    python = LAB / "mpi" / "debian" / "bin" / "python"
    if not python.exists():
        pytest.skip("the MPIs are not installed: sudo tests/lab/mpi-pairs.sh")
    desk = replace(desk, python=python)
    desk.write("hangs.py", HANGS)
    more = (
        'launcher = "srun"\ndelivery = "node"\nwalltime_s = 300\n[scheduling]\nwatchdog_s = 15\n'
        '[sweep]\nwhat = ["works", "hangs"]\n'
    )
    job = desk.job("watched", ["python", "hangs.py", "{what}"], nodes=2, ranks_per_node=1, more=more)
    sweep = desk.submit(job)
    works, hangs = f"{sweep}.0", f"{sweep}.1"
    done = desk.bareboat("wait", sweep, code=71)
    assert "2 of 2 done, 1 failed" in done.stderr
    told = desk.status(sweep)["points"]
    assert [(each["state"], each["exit_code"]) for each in told] == [("completed", 0), ("failed", 71)], told
    assert told[1]["reason"].startswith("hung: "), told
    for number, point in enumerate((works, hangs)):
        assert log(desk, point).count(f"size 2 {('works', 'hangs')[number]}") == 2, log(desk, point)
        brought = desk.record(f"{sweep}/points/{number}")["deliveries"]
        assert len({each["node"] for each in brought}) == 2
        assert {each["how"] for each in brought} <= {"unpacked", "found"}
    assert "passed the MPI check here" in desk.bareboat("plan", "-v", job).stdout
    desk.up.wait(lambda: not desk.left(works) + desk.left(hangs), "no process left on any node")
    desk.up.wait(lambda: not on_nodes(desk.up), "no image left on any node")
