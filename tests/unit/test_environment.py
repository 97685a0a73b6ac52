"""Whose word counts for a variable that both the job and its launcher set: one rule for all launchers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import environment_of, make_image, make_job, make_rootfs, make_site
from tools import output

from bareboat import registry, render
from bareboat.launchers import RANK_NAMES
from bareboat.model import Joined, MpiFacts, MpiFamily, Plan, Pmi, SchedulerFacts, Topology, Variable
from bareboat.model.sweep import Sweep
from bareboat.mpi.rules import PASSED
from bareboat.plan import plan

OPENMPI = MpiFacts(
    family=MpiFamily.OPENMPI, version="4.1.4", library="/usr/lib/libmpi.so.40", launcher="/usr/bin/mpirun",
    prefix="/usr", speaks=(Pmi.PMIX,), pmix_version="4.2.2", slurm=True,
)  # fmt: skip
IMAGE = make_image(
    frameworks=dict.fromkeys(("torch", "jax", "tensorflow", "horovod", "mpi4py"), "1.0"),
    mpis=(OPENMPI,), mpi_users={"mpi4py": ("libmpi.so.40",)}, glibc="2.36",
)  # fmt: skip
#: Without host-mpi, which is made of srun and mpirun, and wants an image that needs it.
SEVERAL = [name for name in registry.names("launchers") if name not in ("single", "host-mpi")]


def planned(launcher: str, environment: dict[str, str], nodes: int = 2) -> Plan:
    facts = SchedulerFacts(name="slurm", version="23.11", mpi_plugins=("pmix",))
    host = () if launcher != "mpirun" else (OPENMPI,)
    job = make_job(
        command=("python", "train.py"), launcher=launcher, scheduler="slurm", walltime_s=600,
        topology=Topology(nodes=nodes, ranks_per_node=2), environment=environment,
    )  # fmt: skip
    return plan(job, IMAGE, make_rootfs(IMAGE), make_site(schedulers=(facts,), mpis=host))


def given(made: Plan) -> dict[str, str]:
    """What the container is given with a value that is in the script."""
    return {name: value for name, value in environment_of(made.command).items() if isinstance(value, str)}


@pytest.mark.parametrize("launcher", SEVERAL)
def test_who_a_rank_is_the_launcher_says_whatever_the_job_sets(launcher: str) -> None:
    own = {name for name in RANK_NAMES if launcher != "image-mpirun" or not name.startswith("MASTER_")}
    made = planned(launcher, dict.fromkeys(own, "7"))
    assert not {name for name, value in given(made).items() if value == "7"}
    (warning,) = (each for each in made.warnings if "environment" in each)
    assert all(name in warning for name in own)
    assert f"the launcher {launcher}" in warning
    assert not [each for each in planned(launcher, {}).warnings if "environment sets" in each]


@pytest.mark.parametrize("launcher", SEVERAL)
@pytest.mark.parametrize("name", ["GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"])
def test_an_interface_of_the_jobs_goes_over_the_launchers_and_the_plan_says_so(
    launcher: str, name: str
) -> None:
    made = planned(launcher, {name: "ib0"})
    assert given(made)[name] == "ib0"
    told = [each.choice for each in made.decisions if each.subject == "interface"]
    assert told == ([f"{name}=ib0"] if name != "NCCL_SOCKET_IFNAME" else [])
    assert not [each for each in planned(launcher, {}).decisions if each.subject == "interface"]


def test_without_a_launcher_that_tells_names_the_job_may() -> None:
    job = make_job(launcher="single", topology=Topology(), environment={"RANK": "0", "MASTER_PORT": "29500"})
    made = plan(job, IMAGE, make_rootfs(IMAGE), make_site())
    assert (given(made)["RANK"], given(made)["MASTER_PORT"]) == ("0", "29500")
    assert not [each for each in made.warnings if "environment sets" in each]


def test_a_value_of_a_sweep_s_point_is_no_rank_s_name_either() -> None:
    sweep = Sweep(names=("n",), points=(("1",), ("2",)))
    job = make_job(
        launcher="ranks", topology=Topology(ranks_per_node=2), sweep=sweep, command=("true",),
        environment={"MASTER_PORT": "2950{n}", "TAG": "{n}"},
    )  # fmt: skip
    found = environment_of(plan(job, IMAGE, make_rootfs(IMAGE), make_site()).command)
    assert found["TAG"] == Joined((Variable("BAREBOAT_SWEEP_N"),))
    assert "MASTER_PORT" not in found


SAID = "import json, os; print(json.dumps(dict(os.environ)), flush=True)"


@pytest.mark.parametrize("launcher", ["ranks", "jax"])
def test_ranks_see_it_so(launcher: str, tmp_path: Path) -> None:
    """The script, run. What lies around it, from a login or a module, is below the job's word."""
    job = make_job(
        command=(sys.executable, "-c", SAID), launcher=launcher, engine="native", scheduler="local",
        workdir=str(tmp_path), topology=Topology(ranks_per_node=2),
        environment={
            "GLOO_SOCKET_IFNAME": "mine0", "JAX_PLATFORMS": "mine3", "MASTER_PORT": "1", "SLURM_PROCID": "5",
        },
    )  # fmt: skip
    made = plan(job, None, None, make_site())
    (tmp_path / "job.sh").write_text(render.script(made))
    around = {**os.environ, "JAX_PLATFORMS": "theirs"}
    shown = output("bash", "job.sh", cwd=tmp_path, env=around, stdin=subprocess.DEVNULL, timeout=60)
    said = [json.loads(line.partition("] ")[2]) for line in shown.splitlines()]
    assert sorted(each["RANK"] for each in said) == ["0", "1"]
    for each in said:
        assert each["GLOO_SOCKET_IFNAME"] == "mine0"
        assert each["JAX_PLATFORMS"] == "mine3"
        assert int(each["MASTER_PORT"]) >= 20000
        assert each["SLURM_PROCID"] == (each["RANK"] if launcher == "jax" else "5")


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_an_mpi_s_settings_are_the_job_s_and_its_names_are_not(launcher: str) -> None:
    environment = {"OMPI_MCA_btl": "tcp,self", "OMPI_COMM_WORLD_RANK": "5", "SLURM_PROCID": "5"}
    assert all(name.startswith(PASSED) for name in environment)
    made = planned(launcher, environment)
    assert given(made)["OMPI_MCA_btl"] == "tcp,self"
    assert made.prelude.endswith("unset OMPI_MCA_btl # the job's environment has them\n")
    assert not {"OMPI_COMM_WORLD_RANK", "SLURM_PROCID"} & set(given(made))
    assert any("OMPI_COMM_WORLD_RANK, SLURM_PROCID" in each for each in made.warnings)
