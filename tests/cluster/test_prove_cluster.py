"""`bareboat prove --scheduler` on real Slurm and Grid Engine: all arms in one job on the same nodes.

Killed in the middle and resumed, no run counts twice."""

import json
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster, need_this_system
from desks import Desk, desk_on, on_nodes
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
    need_this_system()
    python = up.home / "environment" / "bin" / "python"  # the nodes see it, for the arm on bare metal
    if not python.exists():
        make_environment(up.home / "environment")
    made = desk_on(up, request.param, python, tmp_path.name)
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


@pytest.mark.one_in(2)  # of the schedulers
def test_one_two_and_three_nodes_each_point_in_one_job(desk: Desk) -> None:
    """The same file on both."""
    points = f'{METRIC}[sweep]\n"topology.nodes" = [1, 2, 3]\n'
    refused = desk.bareboat("prove", "--dry-run", study_file(desk), code=3).stderr
    assert f"try: --scheduler {desk.scheduler} (plan, prove)" in refused
    done = desk.bareboat("prove", "--scheduler", desk.scheduler, study_file(desk, more=points))
    study = the_study(desk)
    jobs = set()
    for point in range(3):
        found = records(desk, study, point)
        assert [(each["run"], each["position"]) for each in found] == [
            (run, position) for run in range(3) for position in range(2)
        ]
        assert {each["arm"] for each in found} == {"bare", "bubblewrap"}
        assert all(each["exit_code"] == 0 and each["results"] == {"speed": 7.5} for each in found), found
        assert all(each["wall_s"] > 0.1 for each in found)
        assert {each["world_size"] for each in found} == {point + 1}
        ((job, _),) = {(each["job_id"], each["starts"][0]["node"]) for each in found}
        jobs.add(job)
        assert not (desk.store / "runs" / study / f"points/{point}/control/runs/0001").exists()
    assert len(jobs) == 3
    said = [line.split() for line in (desk.folder / "runs").read_text().splitlines()]
    assert len(said) == 6 * (1 + 2 + 3)
    assert len({node for node, *_ in said}) == 3
    assert sum(inside == "True" for *_, inside in said) == len(said) / 2
    assert (
        "speed of bubblewrap / bare: equivalent within 2 % at 0 of 3 points, undecided at 3" in done.stdout
    )  # few runs
    assert "speed-up" in done.stdout
    assert (desk.folder / "report.html").exists()
    assert desk.status(study)["state"] == "complete"


def complete(desk: Desk, study: str) -> int:
    """The number of complete runs of the first point."""
    folder = desk.store / "runs" / study / "points/0"
    return len({path.name for place in (folder, folder / "control/runs") for path in place.glob("[0-9]???")})


def resume(desk: Desk, study: str, *more: str) -> str:
    """Resume the study until it is complete."""
    return desk.bareboat("prove", "--resume", study, *more, timeout_s=400).stdout


def check_counts(desk: Desk, study: str, arms: list[str], repeats: int) -> list[dict[str, Any]]:
    """Each run is there once, with each arm once, all of them in one start of one job."""
    found = records(desk, study)
    assert sorted((each["run"], each["arm"]) for each in found) == [
        (run, arm) for run in range(repeats + 1) for arm in sorted(arms)
    ]
    for run in range(repeats + 1):
        own = [each for each in found if each["run"] == run]
        assert sorted(each["position"] for each in own) == list(range(len(arms)))
        assert len({json.dumps(each["starts"]) for each in own}) == 1
    return found


@pytest.mark.slow
@pytest.mark.one_in(2)  # of the schedulers
def test_a_node_killed_in_the_middle_costs_no_run_and_doubles_none(desk: Desk) -> None:
    """Three arms, one of them udocker's, on two nodes."""
    arms = ARMS + 'udocker = {engine = "udocker:P1"}\n'
    done = desk.bareboat(
        "prove",
        "--scheduler",
        desk.scheduler,
        "--no-wait",
        study_file(desk, seconds=0.5, repeats=4, arms=arms),
    )
    study = done.stdout.strip()
    desk.up.wait(lambda: complete(desk, study) >= 2, "two complete runs")
    assert "of 5 runs" in desk.bareboat("status", study).stdout
    control = desk.store / "runs" / study / "points/0/control"
    hosts = (control / "hosts").read_text().split()
    before = complete(desk, study)
    desk.up.kill_node(hosts[1])
    out = resume(desk, study)
    assert "speed of udocker / bare" in out
    found = check_counts(desk, study, ["bare", "bubblewrap", "udocker"], 4)
    assert all(each["exit_code"] == 0 for each in found), found
    assert len({each["starts"][0]["at_epoch_s"] for each in found}) == 5
    assert before < 5


@pytest.mark.parametrize("desk", ["slurm"], indirect=True)
def test_whoever_follows_the_study_may_be_killed_and_the_job_cancelled(desk: Desk) -> None:
    file = study_file(desk, seconds=1.5, nodes=1, repeats=6)
    following = desk.start("prove", "--scheduler", "slurm", file)
    desk.up.wait(lambda: (desk.store / "runs").exists() and complete_of_any(desk) >= 1, "a complete run")
    for process in desk.up.processes("login"):
        if "prove" in process.command and "bareboat" in process.command:
            desk.up.login(["kill", "-KILL", str(process.pid)], check=False)
    assert following.wait(30) != 0
    study = the_study(desk)
    told = desk.status(study)
    assert (told["state"], told["jobs"]) == ("measuring", "1 running"), told
    assert f"{study}.0 is running" in desk.bareboat("rm", study, code=None).stderr
    (image,) = json.loads((desk.store / "runs" / study / "matrix.json").read_text())["images"]
    assert f"{study} has runs left" in desk.bareboat("image", "rm", image["digest"], code=None).stderr
    desk.bareboat("prove", "--resume", study, "--no-wait")  # the job that runs is enough
    desk.bareboat("cancel", study)
    desk.up.wait(lambda: desk.status(study)["jobs"] == "", "the end of the job")
    assert desk.status(study)["state"] == "stopped"
    assert 1 <= complete(desk, study) < 7
    resume(desk, study)
    found = check_counts(desk, study, ["bare", "bubblewrap"], 6)
    assert len({each["job_id"] for each in found}) == 2


def complete_of_any(desk: Desk) -> int:
    """The number of complete runs of this desk's study; 0 before it began."""
    found = [path.name for path in (desk.store / "runs").iterdir() if path.name.startswith(desk.folder.name)]
    return complete(desk, found[0]) if found else 0


@pytest.mark.one_in(2)
@pytest.mark.parametrize("launcher", ["ranks", "srun"])
@pytest.mark.parametrize("desk", ["slurm"], indirect=True)
def test_the_runs_share_the_copy_on_the_nodes(desk: Desk, launcher: str) -> None:
    file = study_file(desk)
    file.write_text(file.read_text().replace('launcher = "ranks"', f'launcher = "{launcher}"'))
    desk.bareboat("prove", "--scheduler", "slurm", "--delivery", "node", file)
    found = [each for each in records(desk, the_study(desk)) if each["arm"] == "bubblewrap"]
    assert [{one["how"] for one in each["deliveries"]} for each in found] == [
        {"unpacked"},
        {"found"},
        {"found"},
    ]
    assert all(len({one["node"] for one in each["deliveries"]}) == 2 for each in found)
    assert on_nodes(desk.up) == []


@pytest.mark.slow
@pytest.mark.parametrize("desk", ["slurm"], indirect=True)
def test_what_does_not_fit_into_the_time_limit_goes_on_in_the_next_job(desk: Desk) -> None:
    file = study_file(desk, seconds=2.5, nodes=1, repeats=12)  # over 60 s in all
    done = desk.bareboat("prove", "--scheduler", "slurm", "--time", "60s", file, timeout_s=400)
    found = records(desk, the_study(desk))
    assert [each["run"] for each in found] == [run for run in range(13) for _ in range(2)]
    assert len({each["job_id"] for each in found}) >= 2
    assert all(each["exit_code"] == 0 for each in found)
    assert "speed of bubblewrap / bare" in done.stdout


@pytest.mark.parametrize("desk", ["slurm"], indirect=True)
def test_what_cannot_be_measured_is_said(desk: Desk) -> None:
    def refused(*flags: str, code: int, **changes: Any) -> str:
        return desk.bareboat(
            "prove", "--scheduler", "slurm", *flags, study_file(desk, **changes), code=code
        ).stderr

    arms = '[arms]\nbare = {engine = "native"}\nmore = {"topology.nodes" = 3}\n'
    assert "the arms 'bare' and 'more' request different resources" in refused(code=2, arms=arms)
    assert "partition 'nowhere' does not exist" in refused("-p", "nowhere", code=3)
    assert not list((desk.store / "runs").glob(f"{desk.folder.name}*"))
    desk.write(
        "program.py", "import os, sys\nprint('no data'); sys.exit(4 if 'BAREBOAT_IMAGE' in os.environ else 0)"
    )
    said = refused(code=4, more="")
    assert "bubblewrap: the job ended with exit code 4" in said
    assert "no data" in said
    assert "resume with: bareboat prove --resume" in said
    desk.write("program.py", "print('enough')")
    # "different: wall time of bubblewrap is 16 % higher" on a busy machine
    assert "wall time of bubblewrap" in resume(desk, the_study(desk))


@pytest.mark.parametrize("desk", ["gridengine"], indirect=True)
def test_a_job_that_never_starts_ends_the_study(desk: Desk) -> None:
    more = f'{METRIC}[scheduling]\noptions = ["-wd /gone"]\n'
    file = study_file(desk, nodes=1, more=more)
    said = desk.bareboat("prove", "--scheduler", "gridengine", file, code=1).stderr
    assert "never starts: can't chdir to /gone: No such file or directory" in said
    assert f"then: bareboat prove --resume {the_study(desk)}" in said
