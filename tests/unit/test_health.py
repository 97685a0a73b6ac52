"""What ranks may use on each node against what their job requested."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bareboat.health import rules
from bareboat.model.record import Health
from bareboat.render import subject
from bareboat.runs import health

NODE = "2 {node} {cpus} {memory} {gpus} 1 1 1 1000000000 100.000000\n"


def written(folder: Path, *lines: str, looks: str = "", at_s: float = 100.0) -> Health:
    control = folder / "control"
    (control / "world").mkdir(parents=True)
    for number, line in enumerate(lines):
        path = control / f"limits.{line.split()[1]}.{number}"
        path.write_text(line)
        os.utime(path, (at_s, at_s + 5 * number if "skew" in line else at_s))
    (control / "hosts").write_text("c1\nc2\n")
    (control / "world" / "looks.0").write_text(looks)
    found = health.read(folder)
    assert found is not None
    return found


def node(name: str = "c1", cpus: str = "0-1", memory: str = "-", gpus: str = "-") -> str:
    return NODE.format(node=name, cpus=cpus, memory=memory, gpus=gpus)


@pytest.mark.parametrize(
    ("lines", "looks", "marks"),
    [
        ([node(), node("c2", "0-7,9", "1000000000", "2")], "", ()),
        ([node(cpus="1"), node("c2", cpus="0")], "",
         ("c[1-2]: the ranks may use 1 processor, and the job requested 2",)),
        ([node(memory="500000000")], "",
         ("c1: the memory limit is 0.47 GiB, and the job requested 0.93 GiB",)),
        ([node(gpus="1")], "", ("c1: 1 GPU visible, and the job requested 2",)),
        ([node(), node("c2")], "mask 0 0-1 0\nmask 1 0-1 0\nmask 2 0 1\nmask 3 0 1\n",
         ("c2: 2 ranks share 1 processor",)),
        # A line for each rank, as where mpirun starts them.
        ([node().replace("2", "1", 1), node(cpus="0").replace("2", "1", 1)], "", ()),
        ([node(cpus="3").replace("2", "1", 1)] * 2, "",
         ("c1: the ranks may use 1 processor, and the job requested 2",)),
        ([node(cpus="0-1").replace(" 1 1 1 ", " 1 1 4 ")], "",
         ("c1: 2 ranks with 4 threads each on 2 processors: set OMP_NUM_THREADS, or cpus_per_rank under "
          "[topology]",)),
        # On this machine nothing is requested.
        ([node(cpus="1").replace(" 1 1 1 ", " 0 0 1 ")], "", ()),
        ([node("skew1"), node("skew2")], "", ("the clocks of skew1 and skew2 differ by 5.0 s",)),
    ],
)  # fmt: skip
def test_a_mismatch_is_a_mark(tmp_path: Path, lines: list[str], looks: str, marks: tuple[str, ...]) -> None:
    assert written(tmp_path, *lines, looks=looks).marks == marks


@pytest.mark.parametrize("text", ["", "x\n", "2 c1 0-1 - - 1 1 1\n", "2 ../x 0-1 - - 1 1 1 0 -\n"])
def test_damaged_lines_are_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "control").mkdir()
    (tmp_path / "control" / "limits.c1.7").write_text(text)
    assert health.read(tmp_path) is None


def test_the_script_writes_what_this_process_may_use(tmp_path: Path) -> None:
    (tmp_path / "control").mkdir()
    script = (
        "set -u; features=' limits ' start=ranks ranks_per_node=2 requested=(1 1 4 0)\n"
        + subject("common")
        + subject("limits")
        + "\nrecord_limits\n"
    )
    environment = {
        "BAREBOAT_CONTROL": str(tmp_path / "control"), "BAREBOAT_HOST": "c1", "CUDA_VISIBLE_DEVICES": "0,1",
    }  # fmt: skip
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
    found = health.read(tmp_path)
    assert found is not None
    (only,) = found.nodes
    assert rules.processors(only.cpus) == os.sched_getaffinity(0)
    assert (only.ranks, only.gpus, only.gpus_requested, only.threads) == (2, 2, 2, 4)
    assert only.clock_offset_s is not None
    assert abs(only.clock_offset_s) < 1
