"""What ranks may use on each node against what their job requested."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from builders import make_job, make_site
from tools import completed, tool

from bareboat import health, render
from bareboat.model import Topology
from bareboat.model.record import Health, NodeLimits
from bareboat.mpi.text import program
from bareboat.plan import plan
from bareboat.render import subject
from bareboat.runs import node_resources

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
    found = node_resources.read(folder)
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
        ([node(cpus="0-1").replace(" 1 1 1 ", " 0 0 8 ")], "",
         ("c1: 2 ranks with 8 threads each on 2 processors: set OMP_NUM_THREADS, or cpus_per_rank under "
          "[topology]",)),
        ([node("skew1"), node("skew2")], "", ("the clocks of skew1 and skew2 differ by 5.0 s",)),
    ],
)  # fmt: skip
def test_a_mismatch_is_a_mark(tmp_path: Path, lines: list[str], looks: str, marks: tuple[str, ...]) -> None:
    assert written(tmp_path, *lines, looks=looks).marks == marks


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("150 500000 1000000 5 10", "the CPU quota is 1.5 processors, and the job requested 2"),
        ("- 500000 100000000 5 10", "node-local storage is nearly full: 0.48 GiB left"),
        ("- 5000000 100000000 0 10", ""),
        ("- 500000 1000000 0 0", ""),
        ("- -", ""),
    ],
)
def test_quotas_and_storage(tmp_path: Path, line: str, text: str) -> None:
    found = written(tmp_path, f"{node().strip()} {line}\n")
    assert found.marks == ((f"c1: {text}",) if text else ())
    assert found.text == (f"c1: {text}" if text else "healthy")


@pytest.mark.parametrize(
    ("lines", "used", "age_s", "succeeded", "count"),
    [
        ([node(gpus="2")], ["gpu-0"], 100, False, 1),
        ([node(gpus="2")], ["gpu-0"], 30, False, None),
        ([node(gpus="2")], ["gpu-0"], 30, True, 1),
        ([node(gpus="2")], ["gpu-0"], 8, True, None),  # too short to know
        ([node(gpus="2")], [], 100, False, None),
        ([node(gpus="2")], [], 100, True, 0),
        ([node(gpus="2")], ["gpu-1", "gpu-0"], 100, True, 2),
        # Each of two ranks sees one.
        ([node(gpus="1").replace("2", "1", 1)] * 2, ["gpu-0"], 100, True, 1),
    ],
)
def test_gpus_that_no_rank_uses(
    tmp_path: Path, lines: list[str], used: list[str], age_s: int, succeeded: bool, count: int | None
) -> None:
    folder = tmp_path / "control" / "usage" / "c1"
    folder.mkdir(parents=True)
    (folder / "gpus.csv").write_text("monotonic_s,device\n1.0,\n" + "".join(f"2.0,{each}\n" for each in used))
    at_s = time.time() - age_s
    os.utime(folder / "gpus.csv", (at_s, at_s))
    for number, line in enumerate(lines):
        (tmp_path / "control" / f"limits.c1.{number}").write_text(line)
    found = node_resources.read(tmp_path, succeeded=succeeded)
    assert found is not None
    assert found.nodes[0].gpus_used == count
    assert found.marks == (
        (f"c1: the ranks use {count} of 2 GPUs",) if count is not None and count < 2 else ()
    )


def test_gpus_are_counted_when_all_ranks_have_done_a_step(tmp_path: Path) -> None:
    folder, steps = tmp_path / "control" / "usage" / "c1", tmp_path / "ranks" / "progress"
    folder.mkdir(parents=True)
    steps.mkdir(parents=True)
    (folder / "gpus.csv").write_text("monotonic_s,device\n1.0,\n1.0,gpu-0\n")
    os.utime(folder / "gpus.csv", (time.time() - 30,) * 2)
    for pid in (1, 2):
        (tmp_path / "control" / f"limits.c1.{pid}").write_text(node(gpus="1").replace("2", "1", 1))

    def used(*ranks: int, age_s: int) -> int | None:
        for rank in ranks:
            (steps / str(rank)).write_text("1 0.1\n")
        os.utime(steps, (time.time() - age_s,) * 2)
        found = node_resources.read(tmp_path)
        assert found is not None
        return found.nodes[0].gpus_used

    assert used(0, age_s=20) is None
    assert used(1, age_s=5) is None
    assert used(age_s=20) == 1


def test_the_program_judges_as_status_does(tmp_path: Path) -> None:
    control = tmp_path / "control"
    control.mkdir()
    (control / "limits.c1.1").write_text(node(cpus="1"))
    (control / "limits.damaged.1").write_text("x")
    words = ["python3", "-I", "-S", "-c", program(health), control]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    seen = node_resources.read(tmp_path)
    assert seen is not None
    assert done.stdout == f"{seen.marks[0]}\n"


def test_a_job_that_requires_health_is_not_started_where_nothing_can_judge_it(tmp_path: Path) -> None:
    (tmp_path / "control").mkdir()
    script = (
        "set -u; features=' health ' start=ranks ranks_per_node=1 requested=(0 0 0 0)\n"
        "unhealthy_code=72 health_program=; finish() { exit $1; }; rm() { :; }\n"
        + "\n".join(map(subject, ("common", "limits", "health"))) + "\ncheck_health\n"
    )  # fmt: skip
    environment = {"BAREBOAT_CONTROL": str(tmp_path / "control"), "BAREBOAT_HOST": "c1", "PATH": "/none"}
    done = subprocess.run(["/bin/bash", "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 72


@pytest.mark.parametrize("text", ["", "x\n", "2 c1 0-1 - - 1 1 1\n", "2 ../x 0-1 - - 1 1 1 0 -\n"])
def test_damaged_lines_are_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "control").mkdir()
    (tmp_path / "control" / "limits.c1.7").write_text(text)
    assert node_resources.read(tmp_path) is None


def recorded(folder: Path, text: str = subject("limits"), **more: str) -> NodeLimits:
    """What the script writes of this process."""
    (folder / "control").mkdir()
    head = "set -u; features=' ' start=ranks ranks_per_node=2 requested=(1 1 4 0)\n"
    script = f"{head}{subject('common')}{text}\nrecord_limits\n"
    environment = {"BAREBOAT_CONTROL": str(folder / "control"), "BAREBOAT_HOST": "c1", **more}
    done = completed([tool("bash"), "-c", script], env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = node_resources.read(folder)
    assert found is not None
    return found.nodes[0]


def test_the_script_writes_what_this_process_may_use(tmp_path: Path) -> None:
    only = recorded(tmp_path, CUDA_VISIBLE_DEVICES="0,1")
    assert health.processors(only.cpus) == os.sched_getaffinity(0)
    assert (only.ranks, only.gpus, only.gpus_requested, only.threads) == (2, 2, 2, 4)
    assert only.clock_offset_s is not None
    assert abs(only.clock_offset_s) < 1
    assert only.scratch_free is not None


def test_no_program_is_started_for_what_bareboat_knows_of_storage(tmp_path: Path) -> None:
    only = recorded(tmp_path, BAREBOAT_STORAGE="25 100 4096 10 40", PATH="/nonexistent")
    assert only.scratch_free == 0.25


@pytest.mark.parametrize(
    ("cgroup", "files"),
    [
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "4096", "a/b/cpu.max": "150000 100000"}),
        ("0::/", {"memory.max": "4096", "cpu.max": "150000 100000"}),
        (
            "4:memory:/a\n3:cpu,cpuacct:/a/b",
            {
                "memory/a/memory.limit_in_bytes": "4096", "memory/memory.limit_in_bytes": "9" * 18,
                "cpu/a/b/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_quota_us": "75000",
                "cpu/a/cpu.cfs_period_us": "50000",
            },
        ),
    ],
)  # fmt: skip
def test_the_smallest_limit_of_the_control_groups_around_it(
    tmp_path: Path, cgroup: str, files: dict[str, str]
) -> None:
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    (tmp_path / "cgroup").write_text(f"{cgroup}\n")
    text = subject("limits").replace("/sys/fs", f"{tmp_path}/sys/fs")
    only = recorded(tmp_path, text.replace("/proc/self/cgroup", f"{tmp_path}/cgroup"))
    assert (only.memory_bytes, only.cpu_quota) == (4096, 1.5)


def test_threads_are_those_of_the_command() -> None:
    job = make_job(environment={"OMP_NUM_THREADS": "8"}, topology=Topology(), launcher=None, engine="native")
    script = render.script(plan(job, None, None, make_site()))
    assert "requested=(0 0 8 0)" in script
