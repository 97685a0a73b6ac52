"""One suite for all queues: the same job files, with no edit, on Slurm, Torque's commands and Grid Engine."""

import json
import re
import shutil
import time
from pathlib import Path

import pytest
from desks import PATIENCE_S, Desk, queue_desk, ranks_said
from odd_values import ODD, SHOW, shown
from watch import wait_until

NODES = ("c1", "c2", "c3")

RANK = Path(__file__).parents[1] / "lab" / "rank.py"


@pytest.fixture(params=["slurm", "torque", "gridengine"])
def desk(request: pytest.FixtureRequest, python: Path, tmp_path: Path) -> Desk:
    made = queue_desk(request, python, tmp_path.name)
    shutil.copy(RANK, made.folder)
    return made


def test_six_ranks_on_three_nodes_know_their_names(desk: Desk) -> None:
    job = desk.job("names", ["python", "rank.py", "tell"], more='launcher = "ranks"')
    done = desk.bareboat("submit", job, "--wait")
    run = re.findall(r"run (names-\S+):", done.stderr)[0]
    told = {rank: json.loads(lines[0]) for rank, lines in ranks_said(desk.log(run)).items()}
    assert sorted(told) == list(range(6)), desk.log(run)
    for rank, names in told.items():
        assert int(names["RANK"]) == rank
        assert int(names["LOCAL_RANK"]) == rank % 2
        assert (names["WORLD_SIZE"], names["LOCAL_WORLD_SIZE"]) == ("6", "2")
        assert names["node"] == told[rank - rank % 2]["node"]
        assert names["uid"] == told[0]["uid"]
    assert {names["node"] for names in told.values()} == set(NODES)
    (address,) = {names["MASTER_ADDR"] for names in told.values()}
    assert address == f"10.77.0.{told[0]['node'].removeprefix('c')}"
    assert len({names["MASTER_PORT"] for names in told.values()}) == 1
    # Of the login node's environment, the scheduler's and the node's own nothing is seen inside.
    documented = {
        "BAREBOAT_IMAGE", "BAREBOAT_RUN", "BAREBOAT_RUN_DIR", "HOME", "LANG", "LOGNAME", "OMP_NUM_THREADS",
        "PATH", "PYTHONNOUSERSITE", "PWD", "TZ", "USER", "RANK", "LOCAL_RANK", "WORLD_SIZE",
        "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME", "LC_CTYPE",
    }  # fmt: skip
    assert set(told[5]["names"]) <= documented
    status = desk.status(run)
    assert (status["state"], status["exit_code"], len(status["starts"])) == ("completed", 0, 1)
    assert json.loads(desk.bareboat("logs", "--rank", "4", run).stdout)["RANK"] == "4"
    record = desk.record(run)
    assert (record["world_size"], record["exit_code"], record["scheduler"]) == (6, 0, desk.scheduler)
    assert record["starts"][0]["node"] == told[0]["node"]
    _forgotten(desk, run)


def _forgotten(desk: Desk, run: str) -> None:
    """A job that the scheduler knows nothing of: what the run's own files say counts, and only that."""
    copy = "names-forgotten"
    shutil.copytree(desk.store / "runs" / run, desk.store / "runs" / copy)
    folder = desk.store / "runs" / copy
    (folder / "record.json").unlink()
    made = json.loads((folder / "submission.json").read_text()) | {"run_id": copy, "job_id": "987654"}
    (folder / "submission.json").write_text(json.dumps(made))
    (folder / "control" / "exit_code").write_text("9 1700000000\n")
    status = desk.status(copy)
    assert (status["state"], status["exit_code"]) == ("failed", 9)
    (folder / "record.json").unlink()
    (folder / "control" / "exit_code").unlink()
    status = desk.status(copy)
    assert (status["state"], status["exit_code"]) == ("unknown", None)
    assert "no longer knows the job, and there is no exit code" in status["reason"]
    shutil.rmtree(folder)


def test_the_first_rank_that_fails_gives_the_code_and_ends_the_others(desk: Desk) -> None:
    run = desk.submit(desk.job("fails", ["python", "rank.py", "fail"], more='launcher = "ranks"'))
    log = desk.wait(run, code=7)
    assert "bareboat: rank 3 on " in log
    assert log.count("rank three has had enough") == 2, "as it was said, and in the summary"
    status = desk.status(run)
    assert (status["state"], status["exit_code"]) == ("failed", 7)
    desk.bareboat("status", run, code=7)
    assert desk.bareboat("logs", run).stdout == log
    assert "rank three has had enough" in desk.bareboat("logs", "--rank", "3", run).stdout
    desk.up.wait(lambda: not desk.left(run), "no process left")
    assert "rank 9" not in desk.bareboat("logs", "--rank", "9", run, code=2).stdout


@pytest.mark.one_in(3)
def test_one_runs_and_one_waits_and_both_are_cancelled(desk: Desk) -> None:
    job = desk.job_of_whole_nodes("sleeps", ["python", "rank.py", "sleep"])
    first = desk.submit(job)
    desk.up.wait(lambda: len(ranks_said(desk.log(first))) == 3, "three ranks")
    second = desk.submit(job)
    status = desk.status(first)
    assert (status["state"], status["exit_code"]) == ("running", None)
    assert "c" in status["hosts"] or desk.scheduler == "gridengine"
    desk.up.wait(lambda: desk.status(second)["state"] == "pending", "the second job in the queue")
    table = desk.bareboat("status").stdout
    assert re.search(rf"{first} .* running ", table)
    assert re.search(rf"{second} .* pending ", table)
    assert len(desk.left(first)) >= 3
    desk.bareboat("cancel", second, first)
    # Bareboat's own script says 143 of the one, the scheduler "cancelled" of the other.
    desk.wait(second, code=143)
    desk.wait(first, code=143)
    for run in (first, second):
        assert desk.status(run)["state"] == "cancelled"
    assert "never started" in desk.status(second)["reason"]
    desk.up.wait(lambda: not desk.left(first), "no process left on any node")
    assert "already finished with exit code 143" in desk.bareboat("cancel", first).stderr


@pytest.mark.one_in(3)
def test_a_submission_is_followed_through_the_queue_to_its_end(desk: Desk) -> None:
    words = ["sh", "-c", "echo ready; until test -e go; do sleep 0.2; done"]
    first = desk.submit(desk.job_of_whole_nodes("holds", words))
    desk.up.wait(lambda: "ready" in desk.log(first), "the first job")
    name = f"follows-{desk.folder.name.partition('-')[0]}"
    job = desk.job_of_whole_nodes(name, ["sh", "-c", "echo hello; exit 6"])
    behind = desk.job_of_whole_nodes("behind", ["true"])
    follower = desk.start("submit", "--watch", job)
    runs = desk.store / "runs"
    desk.up.wait(lambda: any(runs.glob(f"{name}-*/submission.json")), "the second job's submission")
    (run,) = [path.name for path in runs.glob(f"{name}-*")]
    desk.up.wait(lambda: desk.status(run)["state"] == "pending", "the second job in the queue")
    last = desk.submit(behind)
    time.sleep(8)
    (desk.folder / "go").touch()
    out, err = (text.decode() for text in follower.communicate(timeout=PATIENCE_S))
    assert follower.returncode == 6, err
    assert "hello" in out
    assert re.search(r"submitted to .* as job ", err)
    assert f"{run} pending" in err
    assert re.search(rf"run {run}: exit code 6", err)
    desk.wait(last)


@pytest.mark.one_in(3)
def test_told_before_the_end_of_its_time_a_job_goes_on_later(desk: Desk) -> None:
    # Slurm itself tells, in its own time; for the others the job script does, after five seconds. It passes
    # the signal on beside srun's step, which has all memory of the job.
    launcher = "srun" if desk.scheduler == "slurm" else "ranks"
    more = f'launcher = "{launcher}"\nwalltime_s = 600\n[scheduling]\nwarning_s = 595'
    run = desk.submit(desk.job("goes-on", ["python", "rank.py", "warned"], more=more))
    log = desk.wait(run)
    for rank in range(6):
        said = re.findall(rf"^(?:\[rank {rank}\]|{rank}:) (\w+)$", log, re.MULTILINE)
        assert said == ["ready", "told", "resumed"], log
    assert "the job requests a restart: requeueing it" in log
    record = desk.record(run)
    assert (record["exit_code"], len(record["starts"])) == (0, 2)
    assert desk.status(run)["state"] == "completed"


def test_odd_values_of_variables_reach_every_rank_of_every_start(desk: Desk) -> None:
    """And the log keeps both starts."""
    program = (
        "seen = 'seen.' + __import__('os').environ['RANK']; first = not __import__('os').path.exists(seen); "
        f"open(seen, 'w'); {SHOW}; sys.exit(75 * first)"
    )
    names = json.dumps(list(ODD))
    job = desk.job(
        "odd", ["python", "-c", program], nodes=2, ranks_per_node=1,
        more=f'launcher = "ranks"\nenvironment_from = {names}',
    )  # fmt: skip
    done = desk.up.login(
        ["bareboat", "submit", job], cwd=desk.folder, environment={**desk.environment, **ODD}, path=desk.path
    )
    run = done.stdout.strip()
    starts = desk.wait(run).partition("bareboat: start 2 on ")
    for log in (starts[0], starts[2]):
        said = ranks_said(log)
        assert [shown("\n".join(said[rank])) for rank in (0, 1)] == [ODD, ODD], log
    folder = desk.store / "runs" / run
    assert not [path for path in folder.rglob("*") if path.is_file() and b"-----BEGIN" in path.read_bytes()]


@pytest.mark.one_in(3)
def test_the_newest_run_is_the_one_that_was_submitted_last(desk: Desk) -> None:
    """Also when `status` wrote the end of an older one down meanwhile, which it waited for."""
    words = ["sh", "-c", "until test -e go; do sleep 0.2; done"]
    first = desk.submit(desk.job("first", words, nodes=1, ranks_per_node=1))
    words = ["python", "-c", "import time; time.sleep(8); print('second'); raise SystemExit(7)"]
    after = f'[scheduling]\nafter = ["{first}"]'
    second = desk.submit(desk.job("second", words, nodes=1, ranks_per_node=1, more=after))
    desk.up.wait(lambda: desk.status(first)["starts"], "the first job's start")
    assert desk.status(second)["state"] == "pending"
    (desk.folder / "go").touch()
    desk.up.wait(lambda: desk.status(first)["exit_code"] == 0, "the first job's end")
    assert desk.bareboat("logs", "-f", second).stdout == "second\n"
    waited = desk.bareboat("wait", code=7)
    assert f"run {second} (the newest)" in waited.stderr
    shown = desk.bareboat("logs")
    assert "second" in shown.stdout
    assert f"run {second} (the newest)" in shown.stderr


@pytest.mark.parametrize("desk", ["slurm", "gridengine"], indirect=True)
def test_nobody_waits_for_a_job_that_never_starts(desk: Desk) -> None:
    """Slurm holds it after a start, and Grid Engine where its directory is missing on the node."""
    options = '"-wd /gone"' if desk.scheduler == "gridengine" else ""
    more = f"[scheduling]\nrequeue = true\noptions = [{options}]"
    run = desk.submit(desk.job("never", ["sleep", "300"], nodes=1, ranks_per_node=1, more=more))
    number = desk.status(run)["job_id"]
    if options:
        reason, release = "can't chdir to /gone: No such file or directory", f"qmod -cj {number}"
    else:
        desk.up.wait(lambda: desk.status(run)["starts"], "the job's start")
        desk.up.login(["scontrol", "requeuehold", number])
        reason, release = "job requeued in held state", f"scontrol release {number}"
    desk.up.wait(lambda: reason in desk.status(run)["reason"], "the scheduler's reason")
    remedy = f"try: bareboat cancel {run}   # or correct the cause, then: {release}"
    for verb in (["wait"], ["logs", "-f"]):
        said = desk.bareboat(*verb, run, code=1).stderr
        assert f"{run} never starts: " in said
        assert f" reports: {reason}\n" in said
        assert remedy in said
    shown = desk.bareboat("status", run, code=1).stdout
    assert reason in shown
    assert " ".join(remedy.split()) in " ".join(shown.split())
    desk.bareboat("cancel", run)
    desk.wait(run, code=143)


@pytest.mark.parametrize("desk", ["gridengine"], indirect=True)
def test_limits_and_a_compute_node_of_grid_engine_are_known_before_submission(desk: Desk) -> None:
    for size, named in (({"nodes": 9}, "9 nodes"), ({"nodes": 1, "ranks_per_node": 64}, "64")):
        job = desk.job("large", ["true"], **size)
        refused = desk.bareboat("submit", job, code=3)
        assert named in refused.stderr
        assert "try: " in refused.stderr
    found = json.loads(desk.bareboat("doctor", "--compute", "--json").stdout)
    assert (found["login"]["hostname"], found["compute"]["hostname"] in NODES) == ("login", True)
    assert found["compute"]["unseen"] == []
    assert {"bubblewrap", "native"} <= {each["name"] for each in found["compute"]["engines"] if each["works"]}
    # A job that was cancelled stays listed until its node has ended it.
    assert wait_until(lambda: desk.up.login("qstat -u '*'").stdout == "", limit_s=30)
