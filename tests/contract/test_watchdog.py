"""The watchdog on this machine: real ranks that hang."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import make_job, make_site
from environments import Captured
from processes import bareboat, environment, left_after
from tools import interpreter, tool

from bareboat import render
from bareboat.model import SchedulerFacts, Scheduling, Topology
from bareboat.plan import plan

pytestmark = pytest.mark.thorough

#: Rank 2 reads and reads; the others wait for it.
HANGS = """\
import os, threading, time
rank = int(os.environ.get("RANK", 0))
def wait_for_all():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
def read():
    time.sleep(600)
print("here", rank)
read() if rank == int(os.environ["ODD"]) else wait_for_all()
"""


def job(
    folder: Path, captured: Captured, script: str, *, ranks: int = 3, watchdog_s: int = 6, more: str = "",
    odd: int = 2, python: Path | None = None,
) -> Path:  # fmt: skip
    (folder / "script.py").write_text(script)
    path = folder / "watched.toml"
    python = python or captured.python
    path.write_text(
        f'command = ["{python}", "script.py"]\n{more}\n[environment]\nODD = "{odd}"\n'
        f"[topology]\nranks_per_node = {ranks}\n[scheduling]\nwatchdog_s = {watchdog_s}\n"
        f'[capture]\npython = "{python}"\n'
    )
    return path


@pytest.mark.parametrize("engine", ["bubblewrap", "udocker:P1"])
def test_a_run_that_hangs_ends(captured: Captured, tmp_path: Path, engine: str) -> None:
    if engine != "bubblewrap":
        tool("udocker")
    path = job(tmp_path, captured, HANGS, more=f'engine = "{engine}"\nlauncher = "ranks"')
    code, out, said = bareboat("run", path, store=captured.store.root, cwd=tmp_path)
    assert code == 71, said
    assert sorted(out.splitlines()) == [f"[rank {rank}] here {rank}" for rank in range(3)]
    assert "hung: no rank" in said
    assert left_after("watched-") == []


TWO_NODES = """\
import os, time
rank, folder = int(os.environ["RANK"]), os.environ["BAREBOAT_RUN_DIR"] + "/progress"
def evaluate():
    for step in range(50):
        open(f"{folder}/1", "a").close()  # a touch is enough
        os.utime(f"{folder}/1")
        time.sleep(0.2)
    open("evaluated", "w").close()
if rank == 1:
    evaluate()
time.sleep(600)
"""


def test_nodes_wait_for_each_other_before_they_call_it_a_hang(tmp_path: Path) -> None:
    """The parts of two nodes, both on this machine: node 0, which is to judge, says nothing at all
    while node 1 evaluates."""
    (tmp_path / "script.py").write_text(TWO_NODES)
    site = make_site(engines=(), schedulers=(SchedulerFacts(name="slurm", version="1"),))
    made = plan(
        make_job(
            command=(sys.executable, "script.py"), workdir=str(tmp_path), scheduler="slurm", launcher="ranks",
            engine="native", topology=Topology(nodes=2), scheduling=Scheduling(watchdog_s=6), environment={},
        ),
        None, None, site,
    )  # fmt: skip
    script, folder = tmp_path / "job.sh", tmp_path / "control"
    script.write_text(render.script(made))
    for name in ("control/watch", "control/logs", "ranks/progress"):  # by the first node's first part
        (tmp_path / name).mkdir(parents=True)
    mark = f"watched-{os.getpid()}"
    parts = [
        subprocess.Popen(
            ["bash", script, "--node", str(node), mark, folder, "127.0.0.1", "29999", "job"],
            stdin=subprocess.DEVNULL, env={**os.environ, "SLURM_JOB_ID": "1"},
        )
        for node in (0, 1)
    ]  # fmt: skip
    told_too_early = False
    while any(part.poll() is None for part in parts):
        evaluated = (tmp_path / "evaluated").exists()
        told_too_early |= not evaluated and (folder / "watch" / "verdict").exists()
        time.sleep(0.1)
    assert not told_too_early
    assert (tmp_path / "evaluated").exists()
    assert (folder / "watch" / "verdict").exists()
    assert left_after("watched-") == []


REPORTS = """\
import os, time
rank, folder = int(os.environ["RANK"]), os.environ["BAREBOAT_RUN_DIR"] + "/progress"
if rank == 0:  # evaluates, and prints nothing
    for step in range(45):
        time.sleep(0.2)
        with open(f"{folder}/{rank}", "a") as file:
            file.write(f"{step} 0.2\\n")
    open("go", "w").close()
else:  # waits for it, and says nothing at all
    while not os.path.exists("go"):
        time.sleep(0.1)
print("over")
"""


def test_a_long_quiet_run_whose_one_rank_reports_is_left_alone(captured: Captured, tmp_path: Path) -> None:
    path = job(tmp_path, captured, REPORTS, ranks=2, more='launcher = "ranks"\nengine = "bubblewrap"')
    code, out, said = bareboat("run", path, store=captured.store.root, cwd=tmp_path)
    assert (code, sorted(out.splitlines())) == (0, ["[rank 0] over", "[rank 1] over"]), said
    assert "hangs" not in said


MPI = """\
from mpi4py import MPI
import sys, time
world = MPI.COMM_WORLD
sys.stdout.write(f"here {world.rank}\\n")
def read():
    time.sleep(600)
read() if world.rank == 1 else world.barrier()
"""


def test_ranks_that_mpirun_started_are_watched_too(
    captured: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = interpreter("mpi/debian")
    monkeypatch.setenv("PATH", f"{python.parent}:{os.environ['PATH']}")
    more = 'engine = "bubblewrap"\nlauncher = "mpirun"'
    path = job(tmp_path, captured, MPI, ranks=2, more=more, python=python)
    code, out, said = bareboat("run", path, store=captured.store.root, cwd=tmp_path)
    assert code == 71, said
    assert sorted(out.splitlines()) == ["here 0", "here 1"]
    assert left_after("watched-") == []


def test_a_run_that_ends_well_is_not_held_up(captured: Captured, tmp_path: Path) -> None:
    """Neither its output nor its input, nor its exit code."""
    script = (
        "import sys\nprint(sys.stdin.read(), end='')\nprint('no end', end='', file=sys.stderr)\nsys.exit(4)"
    )
    path = job(tmp_path, captured, script, ranks=1, watchdog_s=600, more='engine = "bubblewrap"')
    done = subprocess.run(
        [sys.executable, "-m", "bareboat", "run", "-q", path], input="a\nb", text=True, capture_output=True,
        env=environment(captured.store.root), cwd=tmp_path, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (4, "a\nb")
    assert "no end" in done.stderr
    assert left_after("watched-") == []
