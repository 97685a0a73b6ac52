"""The job scripts as users get them: compared byte by byte, parsed and linted. Four are kept whole, and of
each other the difference to the nearest one before it.

After a change that is meant: `pytest tests/golden --update-golden`, then read `git diff tests/golden`.
"""

import difflib
import functools
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import fake_digest, make_image, make_job, make_rootfs
from builders import make_site as make_bare_site
from tools import completed, tool

from bareboat import registry, render
from bareboat.engines import FILTERS
from bareboat.model import (
    Image,
    Job,
    Mount,
    MpiFacts,
    MpiFamily,
    Plan,
    Pmi,
    Prefix,
    Process,
    SchedulerFacts,
    Scheduling,
    ScratchEntry,
    Site,
    Topology,
)
from bareboat.model.fabric import Interface, Kind, Network, Port
from bareboat.model.sweep import Sweep
from bareboat.plan import plan
from bareboat.render import study_script
from bareboat_images.model import FabricLibrary


def make_site(**changes: Any) -> Site:
    """A site with the filters of system calls, as every real one has."""
    filters = {FILTERS: "/scratch/ada/store/programs/2262571a73a496c1"}
    return make_bare_site(**changes | {"other_tools": filters | changes.get("other_tools", {})})


HERE = Path(__file__).parent
#: The scripts that are kept whole: on this machine, of ranks that the scheduler's program starts, of ranks
#: that the script starts itself, and of a study's job.
WHOLE = ("bubblewrap-held", "slurm-srun", "gridengine", "study-slurm")
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
#: What an image may have where the container gets folders to write to.
HELD = (
    ScratchEntry(path="/home/ada/.pyenv", leads_to="/home/ada/.pyenv", is_folder=True),
    ScratchEntry(path="/tmp/a tool", leads_to="/opt/a tool", is_folder=True),
)


def _plan(job: Job, *held: ScratchEntry, image: Image = IMAGE) -> Plan:
    rootfs = msgspec.structs.replace(make_rootfs(image), in_scratch=held)
    return plan(job, image, rootfs, make_site())


def _cluster(name: str, launcher: str, delivery: str | None = None, **facts: Any) -> Plan:
    """Everything that a job can ask of a scheduler, on two nodes of two ranks."""
    site = make_site(schedulers=(SchedulerFacts(name=name, version="1", **facts),))
    job = make_job(
        scheduler=name,
        launcher=launcher,
        walltime_s=5400,
        topology=Topology(nodes=2, ranks_per_node=2, cpus_per_rank=4, gpus_per_rank=1),
        scheduling=Scheduling(
            partition="long", mem_per_node_bytes=64 * 2**30, warning_s=300, exclusive=True, after=("17",),
            account="physics")
        if name != "flux"
        else Scheduling(partition="long", warning_s=300, exclusive=True, after=("17",)),
        modules=("cuda/12.4",),
        delivery=delivery,
    )  # fmt: skip
    return plan(job, IMAGE, make_rootfs(IMAGE), site)


#: An image with Debian's OpenMPI, and with Horovod, JAX and TensorFlow all at once.
OPENMPI = MpiFacts(
    family=MpiFamily.OPENMPI, version="4.1.4", library="/usr/lib/libmpi.so.40", launcher="/usr/bin/mpirun",
    prefix="/usr", speaks=(Pmi.PMIX,), pmix_version="4.2.2", slurm=True,
)  # fmt: skip
MPI_IMAGE = make_image(
    mpis=(OPENMPI,), mpi_users={"mpi4py": ("libmpi.so.40",)}, prefixes=(),
    frameworks={"mpi4py": "4.1", "horovod": "0.28.1", "jax": "0.10.2", "tensorflow": "2.15.1"},
)  # fmt: skip


def _mpi(launcher: str, scheduler: str = "slurm", nodes: int = 2, **asked: Any) -> Plan:
    facts = SchedulerFacts(name="slurm", version="1", mpi_plugins=("none", "pmi2", "pmix", "pmix_v4"))
    host = msgspec.structs.replace(OPENMPI, version="5.0.3", launcher="/opt/sw/bin/mpirun", prefix="/opt/sw")
    site = make_site(schedulers=(facts,), mpis=(host,), other_tools={"ssh": "/usr/bin/ssh"})
    if scheduler == "flux":
        site = msgspec.structs.replace(site, schedulers=(SchedulerFacts(name="flux", version="1"),))
    job = make_job(
        scheduler=scheduler, launcher=launcher, walltime_s=5400,
        topology=Topology(nodes=nodes, ranks_per_node=2, cpus_per_rank=4), **asked,
    )  # fmt: skip
    return plan(job, MPI_IMAGE, make_rootfs(MPI_IMAGE), site)


#: InfiniBand, beside a management network of the same adapter's kind, and a bridge of a VM tool.
NETWORK = Network(
    ports=(
        Port(kind=Kind.INFINIBAND, device="mlx5_0", active=True, rate_gbps=200),
        Port(kind=Kind.ROCE, device="mlx5_1", active=True, rate_gbps=25),
    ),
    interfaces=(
        Interface(name="eth0", up=True, routed=True),
        Interface(name="virbr0", up=False, routed=True, private=True),
    ),
)


def _fabric() -> Plan:
    image = msgspec.structs.replace(MPI_IMAGE, fabrics=(FabricLibrary(name="libibverbs", parts=("mlx5",)),))
    facts = SchedulerFacts(name="slurm", version="1", mpi_plugins=("none", "pmi2", "pmix", "pmix_v4"))
    job = make_job(
        scheduler="slurm", launcher="srun", fabric="mark", topology=Topology(nodes=2, ranks_per_node=2)
    )
    return plan(job, image, make_rootfs(image), make_site(schedulers=(facts,), network=NETWORK))


def _sweep(name: str, **facts: Any) -> Plan:
    """Six points, two at once where the scheduler can, each on two nodes of two ranks."""
    site = make_site(schedulers=(SchedulerFacts(name=name, version="1", **facts),))
    points = tuple((lr, seed) for lr in ("0.1", "0.01") for seed in ("1", "2", "3"))
    job = make_job(
        scheduler=name, launcher="ranks", walltime_s=5400,
        topology=Topology(nodes=1 if name == "local" else 2, ranks_per_node=2),
        command=("python", "train.py", "--lr={lr}", "--seed", "{seed}"), environment={"TAG": "lr {lr}"},
        sweep=Sweep(names=("lr", "seed"), points=points, at_once=None if name in ("flux", "local") else 2),
    )  # fmt: skip
    return plan(job, IMAGE, make_rootfs(IMAGE), site)


def _watched() -> Plan:
    """With a watchdog."""
    site = make_site(schedulers=(SchedulerFacts(name="slurm", version="1"),), mpis=(OPENMPI,))
    job = make_job(
        scheduler="slurm", launcher="ranks", topology=Topology(nodes=2, ranks_per_node=2),
        scheduling=Scheduling(watchdog_s=600),
    )  # fmt: skip
    return plan(job, MPI_IMAGE, make_rootfs(MPI_IMAGE), site)


def _study(name: str, **facts: Any) -> str:
    """The script of a study's job: three arms, a warm-up and two runs, on two nodes."""
    site = make_site(schedulers=(SchedulerFacts(name=name, version="1", **facts),))
    job = make_job(
        scheduler=name, walltime_s=5400, topology=Topology(nodes=2, ranks_per_node=2, cpus_per_rank=4),
        scheduling=Scheduling(partition="long"),
    )  # fmt: skip
    scheduler = registry.scheduler(name)
    return study_script.script(
        scheduler,
        study_script.Allocation(
            study="ifca-20261123-120000.0",
            mark="8c7b0d9a41e2f356-ifca-20261123-120000.0",
            folder="/scratch/ada/store/runs/ifca-20261123-120000/points/0",
            nodes=2,
            directives=scheduler.directives(job, site),
            arms=("bare", "bubblewrap", "udocker"),
            runs=((0, (1, 0, 2)), (1, (0, 2, 1)), (2, (2, 0, 1))),
            time_limit_s=5400,
            files=("/home/ada/digits/out put.json",),
        ),
    )


def _arm() -> str:
    """The script of an arm, which the script of the study's job starts for each run."""
    return render.script(_mpi("srun"), render.GIVEN)


CASES: dict[str, Callable[[], Plan | str]] = {
    "study-slurm": lambda: _study("slurm"),
    "study-arm": _arm,
    "sweep-local": lambda: _sweep("local"),
    "sweep-slurm": lambda: _sweep("slurm"),
    "sweep-gridengine": lambda: _sweep("gridengine", settings={"pe each2": "2 64"}),
    "sweep-flux": lambda: _sweep("flux"),
    "slurm-srun-fabric": _fabric,
    "slurm-srun": lambda: _mpi("srun"),
    "slurm-mpirun": lambda: _mpi("mpirun"),
    "flux-mpirun": lambda: _mpi("mpirun", "flux"),
    "local-mpirun": lambda: _mpi("mpirun", "local", 1),
    "slurm": lambda: _cluster("slurm", "torchrun"),
    "slurm-ranks": lambda: _cluster("slurm", "ranks"),
    "gridengine": lambda: _cluster("gridengine", "ranks", settings={"pe mpi8": "8 64", "gpu": "gpu"}),
    "torque": lambda: _cluster("pbs", "torchrun", settings={"flavour": "torque"}),
    "pbspro": lambda: _cluster("pbs", "torchrun", settings={"flavour": "pro"}),
    "watchdog-slurm-ranks": _watched,
    "flux": lambda: _cluster("flux", "torchrun"),
    "gridengine-delivery": lambda: _cluster(
        "gridengine", "ranks", "node", settings={"pe mpi8": "8 64", "gpu": "gpu"}
    ),
    "slurm-srun-delivery": lambda: _mpi("srun", delivery="node", node_scratch="/local/scratch"),
    "bubblewrap-flat": lambda: _plan(FULL),
    "bubblewrap-held": lambda: _plan(FULL, *HELD),
    "bubblewrap-writable": lambda: _plan(msgspec.structs.replace(FULL, writable=True)),
    "torchrun": lambda: _plan(make_job(topology=ONE, launcher="torchrun")),
    "image-process": lambda: _plan(make_job(topology=ONE, command=(), workdir=None), image=SERVER),
}


@pytest.mark.parametrize("name", CASES)
def test_the_job_script_is_the_golden_one(name: str, request: pytest.FixtureRequest) -> None:
    golden = HERE / f"{name}.{'sh' if name in WHOLE else 'diff'}"
    found = _text(name) if name in WHOLE else _nearest(name)
    if request.config.getoption("--update-golden"):
        golden.write_text(found, encoding="utf-8")
    assert found == golden.read_text(encoding="utf-8"), (
        f"{golden.name} differs; when that is meant: pytest tests/golden --update-golden"
    )


@functools.cache
def _text(name: str) -> str:
    return _shown(CASES[name]())


def _nearest(name: str) -> str:
    """The shortest difference to a script that is kept whole or comes before it, with its name."""
    order = [*WHOLE, *(each for each in CASES if each not in WHOLE)]
    return min(
        (_difference(each, name) for each in order[: order.index(name)]), key=lambda text: text.count("\n")
    )


def _difference(base: str, name: str) -> str:
    lines = [_text(each).splitlines() for each in (base, name)]
    changes = [line for line in difflib.unified_diff(*lines, n=0, lineterm="") if not line.startswith("@@")]
    return "\n".join((f"# as {base}, but", *changes[2:])) + "\n"


def test_every_golden_file_belongs_to_a_case() -> None:
    assert {path.stem for path in HERE.glob("*.sh")} == set(WHOLE)
    assert {path.stem for path in HERE.glob("*.diff")} == set(CASES) - set(WHOLE)


def _script(made: Plan | str) -> str:
    return made if isinstance(made, str) else render.script(made)


def _shown(made: Plan | str) -> str:
    """The script without the text of its library and without digests: what differs between jobs."""
    text = _script(made)
    if not isinstance(made, str):
        text = text.replace(render.job_library(made).inner, "# Here is the library.\n")
    return re.sub(r"(\blib-|\btext_|sha256:)[0-9a-f]{12}\b", r"\1DIGEST", text)


@pytest.mark.parametrize("name", CASES)
def test_bash_can_parse_the_script(name: str) -> None:
    text = os.fsencode(_script(CASES[name]()))
    done = subprocess.run([tool("bash"), "-n"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("name", CASES)
def test_a_script_can_be_read(name: str) -> None:
    """Without `eval`, and short: the library is the same for all jobs."""
    lines = _text(name).splitlines()
    assert len(lines) <= 91
    assert not [line for line in lines if re.search(r"\beval\b", line) or len(line) > 110]


@pytest.mark.parametrize("name", CASES)
def test_variables_are_passed_on_after_they_are_collected(name: str) -> None:
    """In the function that uses them: bash expands the arguments of a function before it runs."""
    text = _text(name)
    for function in re.findall(r"^\w+\(\) \{.*?(?:^\}|; \}$)", text, re.DOTALL | re.MULTILINE):
        if "passed[@]" in function:
            assert function.find("pass_variables") in range(function.find("passed[@]"))


def test_shellcheck_finds_nothing_in_the_scripts(tmp_path: Path, exhaustive: bool) -> None:
    # Hints are not counted: words of the job hold `$` on purpose, and a trap calls a function unseen.
    # SC2097 and SC2098 are about run_pids, which hides the mark from grep and gives it as an argument.
    # SC2034, SC2043 and SC2191 are about the loop that passes variables on by their names.
    # SC2064 is about at_exit, which is given commands.
    # SC2154 is about values of features that a script does not have; tests/unit looks at them.
    # SC1090 is about the script of another way to start the ranks.
    options = ["--severity=warning", "--exclude=SC1090,SC2097,SC2098,SC2034,SC2043,SC2064,SC2154,SC2191"]
    scripts = []
    # They have the same library, whose files have a test of their own.
    for name in [*CASES][:: 1 if exhaustive else 8]:
        scripts.append(tmp_path / f"{name}.sh")
        scripts[-1].write_bytes(os.fsencode(_script(CASES[name]())))
    done = completed([tool("shellcheck"), *options, *scripts])
    assert (done.returncode, done.stdout) == (0, "")
