"""`bareboat prove --scheduler` on real Slurm and Grid Engine: all arms of a point in one job on the same nodes,
killed in the middle, resumed, no run counted twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster
from desks import Desk
from environments import make_environment

#: A program of nobody's: it says which node and rank it is, and how fast it was.
PROGRAM = """
import os, socket, sys, time
time.sleep(float(sys.argv[1]))
rank = int(os.environ.get("RANK", 0))
with open("runs", "a") as file:
    file.write(f"{socket.gethostname()} {rank} {'BAREBOAT_IMAGE' in os.environ}\\n")
if rank == 0:
    print("speed: 7.5 images/s")
"""
ARMS = '[arms]\nbare = {engine = "native"}\nbubblewrap = {engine = "bubblewrap"}\n'
METRIC = "[metrics.speed]\npattern = 'speed: ([0-9.]+)'\n"


@pytest.fixture(params=["slurm", "gridengine"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    up = request.getfixturevalue(request.param)
    assert isinstance(up, Cluster)
    python = up.home / "environment" / "bin" / "python"  # the nodes see it, for the arm on bare metal
    if not python.exists():
        make_environment(up.home / "environment")
    made = Desk(
        up=up, scheduler=request.param, path=up.path, python=python,
        folder=up.home / f"prove-{request.param}-{tmp_path.name}",
    )  # fmt: skip
    made.folder.mkdir()
    made.write("program.py", PROGRAM)
    return made


def study_file(
    desk: Desk,
    *,
    seconds: float = 0.1,
    nodes: int = 2,
    repeats: int = 2,
    arms: str = ARMS,
    more: str = METRIC,
) -> Path:
    return desk.write(
        "study.toml",
        f'name = "{desk.folder.name}"\ncommand = ["python", "program.py", "{seconds}"]\nlauncher = "ranks"\n'
        f'[topology]\nnodes = {nodes}\nranks_per_node = 1\n[capture]\npython = "{desk.python}"\n'
        f"{arms}{more}[prove]\nrepeats = {repeats}\n",
    )


def records(desk: Desk, study: str, point: int = 0) -> list[dict[str, Any]]:
    """The records of a point, in the order of the runs."""
    folder = desk.store / "runs" / study / "points" / str(point)
    found = [json.loads(path.read_text()) for path in folder.glob("[0-9][0-9][0-9][0-9]/*.json")]
    return sorted(found, key=lambda each: (each["run"], each["position"]))


def the_study(desk: Desk) -> str:
    (found,) = (
        path.name for path in (desk.store / "runs").iterdir() if path.name.startswith(desk.folder.name)
    )
    return found


def test_two_arms_on_two_nodes_in_one_job(desk: Desk) -> None:
    done = desk.bareboat("prove", "--scheduler", desk.scheduler, study_file(desk))
    study = the_study(desk)
    found = records(desk, study)
    assert [(each["run"], each["position"]) for each in found] == [
        (run, position) for run in range(3) for position in range(2)
    ]
    assert {each["arm"] for each in found} == {"bare", "bubblewrap"}
    assert all(each["exit_code"] == 0 and each["results"] == {"speed": 7.5} for each in found), found
    assert all(each["wall_s"] > 0.1 for each in found)
    assert len({(each["job_id"], each["starts"][0]["node"]) for each in found}) == 1
    nodes = [line.split()[0] for line in (desk.folder / "runs").read_text().splitlines()]
    assert len(nodes) == 12
    assert len(set(nodes)) == 2
    assert "speed of bubblewrap / bare" in done.stdout
    assert (desk.folder / "report.html").exists()
    assert desk.status(study)["state"] == "complete"
    assert not (desk.store / "runs" / study / "points/0/control/runs/0001").exists()
