"""What `status` says of each way in which a job ends badly, on a real Slurm and a real Grid Engine."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from clusters import TREE, Cluster
from desks import Desk, desk_on


def python_says(line: str) -> list[str]:
    return ["python3", "-c", f"import os, sys, time\n{line}\n"]


SLEEPS = python_says("time.sleep(300)")
SAVES = python_says(
    "import signal\nsignal.signal(15, lambda *_: time.sleep(2) or os._exit(7))\ntime.sleep(300)"
)
COMPLETES = python_says(
    "import signal\nsignal.signal(15, lambda *_: time.sleep(2) or os._exit(0))\ntime.sleep(300)"
)
TAKES_2_GB = python_says("held = b'1' * 2_000_000_000\ntime.sleep(60)")


def submit(desk: Desk, name: str, command: Sequence[str], *, more: str = "", options: str = "") -> str:
    table = f"[scheduling]\nrequeue = false\noptions = [{options}]"
    return desk.submit(
        desk.job(name, command, nodes=1, ranks_per_node=1, more=f'engine = "native"\n{more}\n{table}')
    )


def found(desk: Desk, run: str) -> tuple[str, str, str, str]:
    """State, cause and key as `status` and the record have them, and the words of both and of `wait`."""
    said = desk.bareboat("wait", run, code=None).stderr
    status, record = desk.status(run), desk.record(run)
    assert status["end"] == record["end"]
    assert status["reason"] == record["ended_because"]
    assert status["reason"] in said.replace("\n  try:", "; try:")
    assert status["end"]["cause"] in desk.bareboat("status", run, code=None).stdout
    return status["state"], status["end"]["cause"], status["end"]["key"], status["reason"]


def check(desk: Desk, expected: dict[str, tuple[str, str, str, str]]) -> None:
    told = {run: found(desk, run) for run in expected}
    print(*(f"{run}: {words}" for run, words in told.items()), sep="\n")
    assert {run: each[:3] for run, each in told.items()} == {run: each[:3] for run, each in expected.items()}
    for run, (*_, words) in expected.items():
        assert re.search(words, told[run][3]), told[run]


@pytest.mark.slow
def test_slurm(slurm: Cluster, tmp_path: Path, python: Path) -> None:
    desk = desk_on(slurm, "slurm", python, tmp_path.name)
    lost = submit(desk, "lost", SLEEPS, options='"--nodelist=c2", "--exclusive"')
    late = submit(desk, "late", COMPLETES, more="walltime_s = 60")
    # Without accounting, no job has priority over another.
    options = '"--qos=scavenge", "--nodelist=c3", "--exclusive"'
    yields = () if TREE else (submit(desk, "yields", SLEEPS, options=options),)
    unseen = submit(desk, "unseen", ["true"], options='"--begin=now+5"')
    folder = desk.store / "runs" / unseen
    folder.rename(folder.with_name("away"))
    for run in (lost, *yields):
        slurm.wait(lambda run=run: (desk.store / "runs" / run / "control" / "starts").exists(), "its start")
    slurm.kill_node("c2")
    # No key asks for memory: the site gives 1.5 GB for each CPU.
    memory = submit(desk, "memory", TAKES_2_GB)
    raises = submit(desk, "raises", python_says("{}['loss']"))
    full = submit(desk, "full", python_says("open('/dev/full', 'wb', 0).write(b'1')"))
    crashes = submit(desk, "crashes", ["sh", "-c", "kill -SEGV $$"])
    ends = submit(desk, "ends", ["sh", "-c", "exit 3"])
    other = submit(desk, "other", SAVES, options='"--nodelist=c1"')
    mine = submit(desk, "mine", COMPLETES, options='"--nodelist=c1"')
    first = submit(desk, "first", ["true"], options='"--nodelist=c3", "--exclusive"')
    numbers = {run: desk.status(run)["job_id"] for run in (other, mine)}
    for run in (other, mine):
        slurm.wait(lambda run=run: (desk.store / "runs" / run / "control" / "starts").exists(), "its start")
    slurm.login(["scancel", numbers[other]])
    desk.bareboat("cancel", mine)
    slurm.wait(lambda: slurm.login("squeue -h -a -n unseen").stdout == "", "the end of what cannot start")
    shutil.rmtree(folder, ignore_errors=True)  # Slurm 24.11 makes the directory of the job's output
    folder.with_name("away").rename(folder)
    expected = {
        memory: (
            "out of memory",
            "memory",
            "scheduling.mem_per_node_bytes",
            r"exceeded memory limit|Exceeded",
        ),
        late: ("timeout", "time limit", "walltime_s", "TimeLimit"),
        lost: ("node failed", "node failure", "scheduling.requeue", "NodeDown|node failed"),
        **dict.fromkeys(yields, ("preempted", "preemption", "scheduling.requeue", "preempted")),
        raises: ("failed", "Python exception", "", "KeyError: 'loss'"),
        full: ("failed", "full file system", "", "No space left on device"),
        crashes: ("failed", "signal", "", r"signal 11 \(SIGSEGV\)"),
        ends: ("failed", "exit code", "", "exited with 3"),
        other: ("cancelled", "cancelled", "", "not by Bareboat"),
        mine: ("cancelled", "cancelled", "", "by bareboat cancel"),
        unseen: ("failed", "never started", "", "the job script was never started"),
    }
    check(desk, expected)
    assert desk.status(other)["exit_code"] == 7  # its own, after the signal
    assert desk.status(late)["exit_code"] == desk.record(mine)["exit_code"] == 0
    desk.wait(late, code=124)
    desk.wait(first)


@pytest.mark.slow
def test_grid_engine(gridengine: Cluster, tmp_path: Path, python: Path) -> None:
    """Its accounts do not say who killed a job; a limit that it had reached, they do."""
    desk = desk_on(gridengine, "gridengine", python, tmp_path.name)
    memory = submit(desk, "memory", TAKES_2_GB, options='"-l h_vmem=1G"')
    late = submit(desk, "late", SLEEPS, more="walltime_s = 5")
    raises = submit(desk, "raises", python_says("{}['loss']"))
    full = submit(desk, "full", python_says("open('/dev/full', 'wb', 0).write(b'1')"))
    crashes = submit(desk, "crashes", ["sh", "-c", "kill -SEGV $$"])
    ends = submit(desk, "ends", ["sh", "-c", "exit 3"])
    other, mine = submit(desk, "other", SLEEPS), submit(desk, "mine", SLEEPS)
    for run in (other, mine):
        gridengine.wait(
            lambda run=run: (desk.store / "runs" / run / "control" / "starts").exists(), "its start"
        )
    gridengine.login(["qdel", desk.status(other)["job_id"]])
    desk.bareboat("cancel", mine)
    expected = {
        memory: ("out of memory", "memory", "scheduling.mem_per_node_bytes", "MemoryError"),
        late: ("timeout", "time limit", "walltime_s", "h_rt|timeout"),
        raises: ("failed", "Python exception", "", "KeyError: 'loss'"),
        full: ("failed", "full file system", "", "No space left on device"),
        crashes: ("failed", "signal", "", r"signal 11 \(SIGSEGV\)"),
        ends: ("failed", "exit code", "", "exited with 3"),
        other: ("failed", "signal", "", "sender unknown"),
        mine: ("cancelled", "cancelled", "", "by bareboat cancel"),
    }
    check(desk, expected)
