"""PBS Professional and Flux: by fakes that follow their documentation (tests/fakes/fake_queue.py).

What the real ones do is not shown here. On real ones the same is in tests/cluster/test_queues.py.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import forked
import pytest
from desks import ranks_said
from processes import left_after
from tools import linked
from watch import wait_until

HERE = Path(__file__).parents[1]
COMMANDS = {
    "pbs": ("qsub", "qstat", "qdel", "qrerun", "pbsnodes", "pbs_tmrsh"),
    "flux": ("flux",),
}
#: The real commands that this machine may have; and podman, whose pause process would outlive the test.
HIDDEN = "sbatch|sinfo|squeue|srun|scontrol|qconf|qsub|qstat|qdel|qacct|pbsnodes|podman"


Bareboat = Callable[..., tuple[int, str, str]]


@pytest.fixture(params=COMMANDS)
def scheduler(request: pytest.FixtureRequest, disk: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = str(request.param)
    programs = disk / "bin"
    programs.mkdir()
    for program in COMMANDS[name]:
        (programs / program).symlink_to(HERE / "fakes" / "fake_queue.py")
    (disk / "queue").mkdir()
    monkeypatch.setenv("FAKE_QUEUE", str(disk / "queue"))
    # One in memory is refused for jobs of several nodes.
    monkeypatch.setenv("BAREBOAT_STORE", str(disk / "store"))
    monkeypatch.setenv("PATH", f"{programs}:{linked('/usr/bin:/bin', HIDDEN)}")
    shutil.copy(HERE / "lab" / "rank.py", disk)
    return name


@pytest.fixture
def bareboat(disk: Path) -> Bareboat:
    def run(*words: str, timeout_s: float = 120.0) -> tuple[int, str, str]:
        done = forked.run(*words, cwd=disk, timeout_s=timeout_s)
        return done.returncode, done.stdout, done.stderr

    return run


def submit(bareboat: Bareboat, folder: Path, what: str, more: str = "") -> str:
    words = json.dumps([sys.executable, "rank.py", what])
    (folder / "job.toml").write_text(
        f'name = "{what}-{os.getpid()}"\ncommand = {words}\nengine = "native"\nlauncher = "ranks"\n{more}\n'
        "[topology]\nnodes = 2\nranks_per_node = 2\n"
    )
    code, out, err = bareboat("submit", "job.toml")
    assert code == 0, err
    return out.strip()


def log(folder: Path, run: str) -> str:
    path = folder / "store" / "runs" / run / "output.log"
    return path.read_text() if path.exists() else ""


def all_said(path: Path) -> bool:
    return path.exists() and len(ranks_said(path.read_text())) == 4


def test_ranks_on_two_hosts_know_their_names(scheduler: str, bareboat: Bareboat, disk: Path) -> None:
    run = submit(bareboat, disk, "tell")
    code, _, err = bareboat("wait", run)
    assert code == 0, err + log(disk, run)
    told = {rank: json.loads(lines[0]) for rank, lines in ranks_said(log(disk, run)).items()}
    assert [told[rank]["LOCAL_RANK"] for rank in range(4)] == ["0", "1", "0", "1"]
    assert {names["WORLD_SIZE"] for names in told.values()} == {"4"}
    (status,) = json.loads(bareboat("status", run, "--json")[1])
    assert (status["scheduler"], status["state"]) == (scheduler, "completed")


def test_the_first_failure_gives_the_code(scheduler: str, bareboat: Bareboat, disk: Path) -> None:
    run = submit(bareboat, disk, "fail")
    code, _, err = bareboat("wait", run)
    assert code == 7, f"{scheduler}: {err}" + log(disk, run)
    assert "bareboat: rank 3 on " in log(disk, run)
    assert left_after(run) == []


@pytest.mark.thorough
def test_told_before_the_end_it_goes_on_later(scheduler: str, bareboat: Bareboat, disk: Path) -> None:
    more = "walltime_s = 600\n[scheduling]\nwarning_s = 598"
    run = submit(bareboat, disk, "warned", more)
    code, _, err = bareboat("wait", run)
    assert code == 0, f"{scheduler}: {err}" + log(disk, run)
    said = ranks_said(log(disk, run))
    assert [said[rank] for rank in range(4)] == [["ready", "told", "resumed"]] * 4
    record = json.loads((disk / "store" / "runs" / run / "record.json").read_text())
    assert len(record["starts"]) == 2


def test_cancel(scheduler: str, bareboat: Bareboat, disk: Path) -> None:
    run = submit(bareboat, disk, "sleep")
    assert wait_until(lambda: len(ranks_said(log(disk, run))) >= 4, limit_s=60)
    (status,) = json.loads(bareboat("status", run, "--json")[1])
    assert status["state"] == "running", scheduler
    assert bareboat("cancel", run)[0] == 0
    assert bareboat("wait", run)[0] == 143
    (status,) = json.loads(bareboat("status", run, "--json")[1])
    assert status["state"] == "cancelled"
    assert left_after(run) == []


def test_the_end_of_a_job_leaves_one_of_its_name_in_another_store(
    scheduler: str, bareboat: Bareboat, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = time.strftime("%Y%m%d-%H%M%S", time.gmtime(time.time() + 3600))
    for name in ("store", "other"):
        (disk / name / "runs" / f"x-{later}").mkdir(parents=True)
    runs = []
    for name in ("store", "other"):
        monkeypatch.setenv("BAREBOAT_STORE", str(disk / name))
        runs.append(submit(bareboat, disk, "sleep"))
        assert wait_until(partial(all_said, disk / name / "runs" / runs[-1] / "output.log"), limit_s=60)
    assert runs[0] == runs[1], scheduler
    assert bareboat("cancel", runs[1])[0] == 0
    assert bareboat("wait", runs[1])[0] == 143
    assert len(left_after(runs[1], 0)) >= 4  # of the other
    monkeypatch.setenv("BAREBOAT_STORE", str(disk / "store"))
    (status,) = json.loads(bareboat("status", runs[0], "--json")[1])
    assert status["state"] == "running"
    assert bareboat("cancel", runs[0])[0] == 0
    assert bareboat("wait", runs[0])[0] == 143
    assert left_after(runs[0]) == []
