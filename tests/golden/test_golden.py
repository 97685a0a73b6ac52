"""The job scripts as users get them. Each golden file is compared byte by byte, parsed and linted.

After a change that is meant: `pytest tests/golden --update-golden`, then read `git diff tests/golden`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import fake_digest, make_driver, make_image, make_job, make_rootfs, make_site
from tools import tool

from fairlead import render
from fairlead.model import (
    Image,
    Job,
    Mount,
    Plan,
    Prefix,
    Process,
    SchedulerFacts,
    Scheduling,
    Site,
    Topology,
)
from fairlead.plan import plan

HERE = Path(__file__).parent
ONE = Topology()
#: Everything at once: spaces, quotes, an environment inside the working folder, a mount to write to.
FULL = make_job(
    name="digits, 2 ranks",
    workdir="/home/ada/my digits",
    command=("python", "digits.py", "--note", "it's $5", ""),
    mounts=(
        Mount(source="/data/digits", target="/data"),
        Mount(source="/scratch/ada/out", target="/home/ada/my digits/out", writable=True),
    ),
)
IMAGE = make_image(prefixes=(Prefix(path="/home/ada/my digits/.venv", layer=fake_digest("c")),))


#: An image from elsewhere with a process of its own, in a folder that it does not have.
SERVER = make_image(
    prefixes=(), python=None, reference="docker.io/library/server:1",
    process=Process(entrypoint=("/entry", "--say"), command=("serve", "a b"), workdir="/srv/app",
                    workdir_missing=True, user="1000"),
)  # fmt: skip


def _site(*, overlay: bool = True) -> Site:
    site = make_site()
    return msgspec.structs.replace(
        site,
        engines=tuple(
            msgspec.structs.replace(facts, overlay=overlay and facts.overlay) for facts in site.engines
        ),
    )


def _plan(job: Job, site: Site, image: Image = IMAGE) -> Plan:
    return plan(job, image, make_rootfs(image), site)


def _cluster(name: str, launcher: str, **facts: Any) -> Plan:
    """Everything that a job can ask of a scheduler, on two nodes of two ranks."""
    site = make_site(schedulers=(SchedulerFacts(name=name, version="1", **facts),))
    job = make_job(
        scheduler=name,
        launcher=launcher,
        walltime_s=5400,
        topology=Topology(nodes=2, ranks_per_node=2, cpus_per_rank=4, gpus_per_rank=1),
        scheduling=Scheduling(
            partition="long", mem_per_node_bytes=64 * 2**30, warning_s=300, exclusive=True, after=("17",),
            account=None if name == "flux" else "physics",
        )
        if name != "flux"
        else Scheduling(partition="long", warning_s=300, exclusive=True, after=("17",)),
        modules=("cuda/12.4",),
    )  # fmt: skip
    return _plan(job, site)


CASES = {
    "slurm": lambda: _cluster("slurm", "torchrun"),
    "slurm-ranks": lambda: _cluster("slurm", "ranks"),
    "gridengine": lambda: _cluster("gridengine", "ranks", settings={"pe mpi8": "8 64", "gpu": "gpu"}),
    "torque": lambda: _cluster("pbs", "torchrun", settings={"flavour": "torque"}),
    "pbspro": lambda: _cluster("pbs", "torchrun", settings={"flavour": "pro"}),
    "lsf": lambda: _cluster("lsf", "torchrun"),
    "flux": lambda: _cluster("flux", "torchrun"),
    "bubblewrap-stacked": lambda: _plan(FULL, _site()),
    "bubblewrap-flat": lambda: _plan(FULL, _site(overlay=False)),
    "native": lambda: _plan(msgspec.structs.replace(FULL, engine="native"), _site()),
    "torchrun": lambda: _plan(make_job(topology=ONE, launcher="torchrun"), _site()),
    "image-process": lambda: _plan(make_job(topology=ONE, command=(), workdir=None), _site(), SERVER),
    "single": lambda: _plan(make_job(topology=ONE, command=("bash", "-c", "exit 3")), _site()),
    "gpu": lambda: _plan(
        make_job(topology=Topology(gpus_per_rank=1), command=("python", "train.py")),
        msgspec.structs.replace(_site(), gpus=("/dev/nvidia0",), gpu_drivers=(make_driver(),)),
    ),
    "single-native": lambda: _plan(make_job(topology=ONE, engine="native"), _site()),
}


@pytest.mark.parametrize("name", CASES)
def test_the_job_script_is_the_golden_one(name: str, request: pytest.FixtureRequest) -> None:
    script = render.script(CASES[name]())
    golden = HERE / f"{name}.sh"
    if request.config.getoption("--update-golden"):
        golden.write_text(script, encoding="utf-8")
    assert script == golden.read_text(encoding="utf-8"), (
        f"{golden.name} differs; when that is meant: pytest tests/golden --update-golden"
    )


def test_every_golden_file_belongs_to_a_case() -> None:
    assert {path.stem for path in HERE.glob("*.sh")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_bash_can_parse_the_golden_script(name: str) -> None:
    done = subprocess.run(
        [tool("bash"), "-n", HERE / f"{name}.sh"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_shellcheck_finds_nothing_in_the_golden_scripts() -> None:
    # Hints are not counted: words of the job hold `$` on purpose, and a trap calls a function unseen.
    # SC2097 and SC2098 are about run_pids, which hides the mark from grep and gives it as an argument.
    # SC2034 and SC2043 are about the loop that passes variables on by their names.
    options = ["--severity=warning", "--exclude=SC2097,SC2098,SC2034,SC2043"]
    scripts = [HERE / f"{name}.sh" for name in CASES]
    done = subprocess.run(
        [tool("shellcheck"), *options, *scripts], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
