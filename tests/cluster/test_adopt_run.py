"""An old batch script and its job file, run on a real Slurm and compared."""

from __future__ import annotations

import json

from desks import Desk

PROGRAM = """\
import os
rank = int(os.environ.get("RANK") or os.environ["SLURM_PROCID"])
is_job = "BAREBOAT_RUN" in os.environ
print("rank", rank, "of", os.environ.get("WORLD_SIZE") or os.environ["SLURM_NTASKS"])
if rank == 0:
    print("loss", 0.25 if is_job else 0.5)
    open("same", "w").write("same")
    open("other", "w").write(str(is_job))
raise SystemExit(3 * is_job)
"""
OLD = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --output=never-%j.txt
#SBATCH --time=5
srun python3 program.py
"""


def test_a_batch_script_and_its_job_file_are_run_and_compared(desk: Desk) -> None:
    desk.write("program.py", PROGRAM)
    desk.write("old.sbatch", OLD)
    done = desk.bareboat("init", "--from", "old.sbatch", "--run", "--json", code=1)
    both = json.loads(done.stdout)["comparison"]
    assert [both[who]["exit_code"] for who in ("old", "job")] == [0, 3], done.stderr
    assert [both[who]["files"] for who in ("old", "job")] == [["other", "same"]] * 2
    assert both["old"]["wall_s"] is not None
    assert both["differences"][:3] == [
        "the job failed with exit code 3; the old script did not",
        "1 line with other numbers; 4 equal",
        "  loss 0.5\n  loss 0.25",
    ]
    assert both["differences"][-1] == "1 file with other content: other"
