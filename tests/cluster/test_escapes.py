"""A hostile job on a real Slurm: the host runs nothing that it leaves, and its requeue is no way out."""

import pytest
from desks import Desk

HOSTILE = r"""
import os, pathlib, sys, uuid
folder, home = pathlib.Path(os.environ["BAREBOAT_RUN_DIR"]), pathlib.Path(sys.argv[1])
again = not (home / "been-here").exists()
(home / "been-here").write_text("yes")
for name in ("job.sh", "../control/job.sh", "../job.sh", "script.sh"):
    try:
        text = (folder / name).read_text() if (folder / name).exists() else ""
        (folder / name).write_text(f'#!/bin/bash\ntouch {home}/ESCAPED\n{text}')
    except OSError:
        pass
for name in ("exit_code", "starts", "hosts", "exits.0", "over.0", "mpi_check.log", "again", "signals"):
    link = folder / f"{name}.{uuid.uuid4()}"  # the other rank does the same
    link.symlink_to(home / "mine")
    link.replace(folder / name)
(folder / "agains").write_text("--me\n")
sys.exit(75 if again else 0)
"""


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_that_asks_to_go_on_later_escapes_by_nothing_that_it_leaves(desk: Desk, nodes: int) -> None:
    (desk.folder / "hostile.py").write_text(HOSTILE)
    (desk.folder / "mine").write_text("mine\n")
    words = ["python", "hostile.py", str(desk.folder)]
    more = 'launcher = "ranks"\nengine = "bubblewrap"\n[scheduling]\nrequeue = true'
    run = desk.submit(desk.job("hostile", words, nodes=nodes, ranks_per_node=1, more=more))
    desk.wait(run)
    status = desk.status(run)
    assert (status["state"], status["exit_code"], len(status["starts"])) == ("completed", 0, 2)
    assert not (desk.folder / "ESCAPED").exists()
    assert (desk.folder / "mine").read_text() == "mine\n"
    assert (desk.store / "runs" / run / "control" / "agains").read_text().strip() == status["job_id"]
