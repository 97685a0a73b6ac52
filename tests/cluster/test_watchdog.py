"""A run that hangs on a real cluster: found, and ended on all nodes."""

import shutil
import sys
from pathlib import Path

import pytest
from clusters import Cluster, need_this_system
from desks import Desk, desk_on

from bareboat.hostlist import shortened

LAB = Path(__file__).parents[1] / "lab"


@pytest.fixture
def training(slurm: Cluster, tmp_path: Path) -> Desk:
    need_this_system()
    pytest.importorskip("torch")
    made = desk_on(slurm, "slurm", Path(sys.executable), tmp_path.name)
    shutil.copy(LAB / "training.py", made.folder)
    return made


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("launcher", ["torchrun", "ranks"])
def test_a_hung_rank_ends_the_run(training: Desk, launcher: str) -> None:
    """Rank 1 is slow all the time, and rank 3 stops while the others wait for it in an all-reduce."""
    desk = training
    words = ["python", "training.py", ".", "--slow", "1", "--hang", "3", "--hang-at", "20"]
    more = f'launcher = "{launcher}"\nengine = "bubblewrap"\n[scheduling]\nwatchdog_s = 40'
    run = desk.submit(desk.job("hung", words, nodes=2, ranks_per_node=2, more=more))
    folder = desk.store / "runs" / run
    control, progress = folder / "control", folder / "ranks" / "progress"
    desk.up.wait(
        lambda: all(
            (progress / str(rank)).exists() and (progress / str(rank)).read_text().count("\n") == 20
            for rank in range(4)
        ),
        "four ranks at the twentieth step",
        timeout_s=300,
    )
    live = desk.status(run)
    assert live["state"] == "running"
    desk.wait(run, code=71)
    first, second = (control / "hosts").read_text().split()
    desk.up.wait(lambda: not desk.left(run), "no process left on any node")
    status = desk.status(run)
    assert (status["state"], status["exit_code"], len(status["starts"])) == ("failed", 71, 1)
    assert status["hosts"] == shortened((first, second))
    assert status["reason"].startswith("hung: ")
    assert desk.record(run)["exit_code"] == 71
    assert desk.record(run)["ended_because"] == status["reason"]
    table = desk.bareboat("status", run, code=None).stdout
    assert status["hosts"] in table
