"""The examples of `bareboat init --example`, as their README says: copied, planned, and run with the real
framework, on bare metal and in a container, and some on two nodes of a real Slurm."""

import json
import re
import subprocess
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from cluster_jobs import run_job
from clusters import Cluster
from environments import BASE_PYTHON, site_packages
from tools import installed


@dataclass(frozen=True)
class Expected:
    """`environment`: in the lab, or "" for one with NumPy only. `launcher`: which the planner chooses; "": by
    what MPI there is. `lines`: patterns of the output; `number`: of one, which is from `low` to `high`."""

    environment: str
    launcher: str
    lines: tuple[str, ...]
    number: str = ""
    low: float = 0
    high: float = 0


EXPECTED = {
    "pytorch-ddp": Expected(
        "frameworks/lightning",
        "torchrun",
        ("training on {size} ranks", "saved model.pt"),
        r"test accuracy ([\d.]+)",
        0.97,
        1,
    ),
    "pytorch-fsdp": Expected(
        "frameworks/lightning",
        "torchrun",
        (r"rank 0 holds 5\d,\d+ of 108,192 weights", "saved model.pt: 108,192"),
        r"step 100: loss ([\d.]+)",
        0.1,
        1.5,
    ),
    "lightning": Expected(
        "frameworks/lightning",
        "torchrun",
        ("training on {size} ranks",),
        r"epoch 10: val_loss ([\d.]+)",
        0,
        0.02,
    ),
    "accelerate": Expected(
        "frameworks/lightning",
        "torchrun",
        ("training on {size} ranks",),
        r"epoch 5: .*accuracy ([\d.]+)",
        0.9,
        1,
    ),
    "keras": Expected(
        "frameworks/keras",
        "jax",
        ("training on {size} processes", "saved weights.npz"),
        r"epoch 4: accuracy ([\d.]+)",
        0.85,
        1,
    ),
    "jax": Expected(
        "frameworks/jax", "jax", ("training on {size} processes",), r"step 1000: loss ([\d.]+)", 0, 0.02
    ),
    "tensorflow-multiworker": Expected(
        "frameworks/tensorflow",
        "tensorflow",
        ("training on {size} replicas",),
        r"epoch 4: .*accuracy ([\d.]+)",
        0.9,
        1,
    ),
    "horovod": Expected(
        "horovod/env", "", ("training on {size} ranks",), r"largest error of a weight ([\d.]+)", 0, 0.05
    ),
    "mpi4py": Expected(
        "horovod/env",
        "",
        ("128 x 128 points on {size} ranks", "saved plate.npy"),
        r"mean temperature ([\d.]+)",
        17,
        25,
    ),
    "c-mpi": Expected(
        "", "", ("100000000 intervals on {size} ranks",), r"pi is ([\d.]+)", 3.14159265, 3.14159266
    ),
    "r": Expected(
        "",
        "ranks",
        (r"rank 0 of {size}: 1000 draws", r"rank 1 of {size}: 1000 draws"),
        r"rank 1 .* slope ([\d.]+)",
        1.8,
        2.2,
    ),
    "sweep": Expected(
        "",
        "single",
        ("lr 0.01, seed 1: test loss", "lr 1.0, seed 2: test loss"),
        r"lr 0.1, seed 1: .*accuracy ([\d.]+)",
        0.85,
        1,
    ),
    "preemptible": Expected(
        "frameworks/lightning",
        "single",
        ("starting at step 0",),
        r"finished 2000 steps, loss ([\d.]+)",
        0,
        20,
    ),
    "batch-inference": Expected(
        "", "ranks", ("rank 0 of {size}: 6 of 6 files predicted", "rank 1 of {size}: 6 of 6 files predicted")
    ),
}


def cases(names: Iterable[str]) -> list[object]:
    """The examples, of which most need a framework of the lab."""
    marked = {name: [pytest.mark.frameworks] if EXPECTED[name].environment else [] for name in names}
    return [pytest.param(name, marks=marks) for name, marks in marked.items()]


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with NumPy, and nothing that starts ranks."""
    import numpy

    folder = tmp_path_factory.mktemp("small-gallery") / "env"
    subprocess.run([BASE_PYTHON, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = Path(numpy.__file__).parents[1]
    for found in packages.glob("numpy*"):
        subprocess.run(["cp", "-a", str(found), str(site_packages(folder))], check=True)
    return folder


def environment(name: str, small: Path) -> Path:
    return installed(name) if name else small


class Copied:
    """A copy of an example in the shared home, and its activated environment."""

    def __init__(self, up: Cluster, name: str, home: Path, where: str) -> None:
        self.up = up
        self.folder = up.home / f"gallery-{name}-{where}"
        self.job = self.folder / "job.toml"
        self.path = f"{home / 'bin'}:{up.path}"
        self.variables = {"VIRTUAL_ENV": str(home)}
        subprocess.run(["rm", "-rf", self.folder], check=True)
        self("init", "--example", name, "-o", str(self.folder), cwd=up.home)
        if (self.folder / "Makefile").exists():
            up.login(["make"], cwd=self.folder)

    def __call__(self, *words: str, cwd: Path | None = None) -> str:
        done = self.up.login(
            ["bareboat", *words], cwd=cwd or self.folder, path=self.path, environment=self.variables,
            check=False, timeout_s=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


def check(name: str, output: str, size: int) -> None:
    expected = EXPECTED[name]
    for line in expected.lines:
        assert re.search(line.format(size=size), output), output
    if expected.number:
        found = re.search(expected.number, output)
        assert found, output
        assert expected.low <= float(found[1]) <= expected.high, output


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("engine", ["native", "bubblewrap"])
@pytest.mark.parametrize("name", cases(EXPECTED))
def test_an_example_on_one_machine(slurm: Cluster, small: Path, name: str, engine: str) -> None:
    expected = EXPECTED[name]
    copied = Copied(slurm, name, environment(expected.environment, small), engine)
    world = tomllib.loads(copied.job.read_text()).get("topology", {}).get("ranks_per_node", 1)
    plan = copied("plan", "--engine", engine, "job.toml")
    if expected.launcher:
        assert re.search(rf"^  launcher +{expected.launcher}\b", plan, re.MULTILINE), plan
    output = copied("run", "--engine", engine, "job.toml")
    check(name, output, world)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", cases(["pytorch-ddp", "jax", "tensorflow-multiworker", "horovod", "mpi4py", "r"])
)
def test_an_example_on_two_nodes(slurm: Cluster, small: Path, name: str) -> None:
    copied = Copied(slurm, name, environment(EXPECTED[name].environment, small), "slurm")
    memory = ("--mem", "4GiB")
    ended = run_job(
        slurm, copied.job, "-N", "2", "--ranks-per-node", "1", "--scheduler", "slurm", *memory,
        path=copied.path, environment=copied.variables, submit_limit_s=300,
    )  # fmt: skip
    assert ended.code == 0, ended.log
    check(name, ended.log, 2)


@pytest.mark.slow
@pytest.mark.frameworks
def test_the_preemptible_run_is_requeued_and_continues(slurm: Cluster, small: Path) -> None:
    copied = Copied(slurm, "preemptible", environment("frameworks/lightning", small), "requeue")
    job = copied.job.read_text()
    copied.job.write_text(job.replace('"2000"', '"2000", "--pause", "0.01"'))
    submitted = copied("submit", "--json", "--scheduler", "slurm", "--mem", "2GiB", "--quiet", "job.toml")
    found = json.loads(submitted)

    def log() -> str:
        """What was printed so far; of a run that is pending, nothing."""
        done = slurm.login(["bareboat", "logs", found["run_id"]], path=copied.path, check=False)
        return done.stdout

    slurm.wait(lambda: "step 200:" in log(), "the training has begun")
    slurm.login(["scancel", "--batch", "-s", "USR1", str(found["job_id"])])
    slurm.wait(lambda: "continuing at step" in log(), "the job is started again")
    copied("wait", found["run_id"])
    output = log()
    saved = re.search(r"saved a checkpoint at step (\d+)", output)
    assert saved, output
    assert f"continuing at step {saved[1]}" in output
    assert "finished 2000 steps" in output
