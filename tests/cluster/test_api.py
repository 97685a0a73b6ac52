"""The Python API on a login node of a real Slurm cluster: submit, wait, read, cancel, sweep."""

import json
from pathlib import Path

from desks import PATIENCE_S, Desk

_PROGRAM = """
import asyncio, json, sys
import bareboat

python = sys.argv[1]
capture = {"python": python}
job = bareboat.Job(["sh", "-c", "echo rank $RANK of $WORLD_SIZE; exit 3"], name="api",
                   nodes=3, ranks_per_node=2, launcher="ranks", capture=capture)
found = {"scheduler": job.plan(scheduler="slurm").scheduler}
run = job.submit(walltime_s="10 min").wait()
found["run"] = [run.exit_code, run.state.value, run.record.world_size, run.log(rank=5)]
assert bareboat.Run.find("api") == run

async def several():
    each = [bareboat.Job(["sh", "-c", f"exit {n}"], name=f"n{n}", capture=capture) for n in (0, 4)]
    runs = [one.submit() for one in each]
    await asyncio.gather(*(asyncio.to_thread(run.wait) for run in runs))
    return [run.exit_code for run in runs]

found["several"] = asyncio.run(several())
points = bareboat.sweep(
    bareboat.Job(["sh", "-c", "echo lr={lr}"], name="points", capture=capture), lr=[0.1, 0.01]
).submit(at_once=1)
points.wait()
found["points"] = [[run.values["lr"], run.exit_code, run.log()] for run in points]
long = bareboat.Job(["sleep", "600"], name="long", capture=capture).submit()
long.cancel()
found["cancelled"] = long.wait(120).state.value
print(json.dumps(found))
"""


def test_a_program_submits_waits_reads_and_cancels(desk: Desk, installed: Path) -> None:
    program = desk.write("program.py", _PROGRAM)
    own = installed / "python"
    done = desk.up.login(
        [own, program, desk.python],
        check=False, cwd=desk.folder, environment=desk.environment, path=desk.path, timeout_s=2 * PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["scheduler"] == "slurm"
    assert found["run"] == [3, "failed", 6, "rank 5 of 6\n"]
    assert found["several"] == [0, 4]
    assert [each[:2] for each in found["points"]] == [["0.1", 0], ["0.01", 0]]
    assert ["lr=0.1" in found["points"][0][2], "lr=0.01" in found["points"][1][2]] == [True, True]
    assert found["cancelled"] == "cancelled"
