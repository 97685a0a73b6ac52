"""What a job inherits from the allocation in which it is submitted: nothing."""

import json
from pathlib import Path

import pytest
from builders import make_job
from tools import executable

from bareboat import registry
from bareboat.model import Scheduling
from bareboat.probe.host import RealHost
from bareboat.runs import creation, state, submission
from bareboat.schedulers import inherited

OF_THE_USER = {
    "PATH": "/bin",
    "SLURM_CONF": "/etc/slurm.conf",
    "SLURM_CLUSTERS": "other",
    "SBATCH_ACCOUNT": "mine",
    "PBS_EXEC": "/opt/pbs",
    "PBS_SERVER": "server",
    "PBS_CONF_FILE": "/etc/pbs.conf",
    "PBS_DEFAULT": "server",
    "SGE_ROOT": "/opt/sge",
    "SGE_CELL": "default",
    "SGE_CLUSTER_NAME": "lab",
    "LSF_ENVDIR": "/opt/lsf",
    "LSB_DEFAULTQUEUE": "normal",
    "FLUX_URI": "local:///run/flux/local",
    "OMPI_MCA_btl": "tcp,self",
    "HYDRA_LAUNCHER": "ssh",
    "JOB_NAME": "a variable of the user's",
    "QUEUE": "another",
}
OF_THE_JOB = (
    "SLURM_JOB_ID", "SLURM_CPU_BIND", "SLURM_CPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_MEM_PER_CPU",
    "SLURM_CLUSTER_NAME", "SLURMD_NODENAME", "SBATCH_MEM_PER_CPU", "SBATCH_EXPORT", "SRUN_CPUS_PER_TASK",
    "SALLOC_PARTITION", "PBS_JOBID", "PBS_NODEFILE", "PBS_O_WORKDIR", "SGE_TASK_LAST", "SGE_O_HOST",
    "PE_HOSTFILE", "LSB_JOBID", "LSB_DJOB_HOSTFILE", "LS_JOBPID", "FLUX_JOB_ID", "FLUX_KVS_NAMESPACE",
    "PMI_FD", "PMI2_SIZE", "PMIX_SERVER_URI2", "OMPI_COMMAND", "HYDI_CONTROL_FD", "MPI_LOCALNRANKS",
)  # fmt: skip


def test_what_describes_the_allocation_goes_and_what_names_the_cluster_stays() -> None:
    environment = OF_THE_USER | dict.fromkeys(OF_THE_JOB, "1")
    assert inherited.for_submission(environment, Scheduling()) == OF_THE_USER


def test_names_of_grid_engine_that_others_use_go_in_its_jobs_alone() -> None:
    environment = {"SGE_TASK_ID": "undefined", "JOB_ID": "5", "NSLOTS": "4", "QUEUE": "all.q", "HOME": "/h"}
    assert inherited.outside(environment) == {"HOME": "/h"}


def test_a_ranks_settings_of_its_mpi_are_the_launchers() -> None:
    environment = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_MCA_ess": "pmi", "PMIX_MCA_gds": "hash", "HOME": "/h"}
    assert inherited.outside(environment) == {"HOME": "/h"}


@pytest.mark.parametrize(
    "scheduling",
    [
        Scheduling(account="given"),
        Scheduling(options=("--account=given",)),
        Scheduling(options=("-A given",)),
    ],
    ids=["key", "option", "short option"],
)
def test_a_users_default_gives_way_to_the_jobs_own_value(scheduling: Scheduling) -> None:
    environment = {"SBATCH_ACCOUNT": "default", "SBATCH_QOS": "short"}
    assert inherited.for_submission(environment, scheduling) == {"SBATCH_QOS": "short"}


def test_a_submit_command_does_not_see_the_allocation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "sbatch"
    executable(program, "#!/usr/bin/env python3\nimport json, os\nprint(json.dumps(dict(os.environ)))\n")
    for name in OF_THE_JOB:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    found = json.loads(creation.submit_by([str(program)], None, make_job()).stdout)
    assert not found.keys() & set(OF_THE_JOB)
    assert found["SLURM_CONF"] == "/etc/slurm.conf"


#: A user's own, for the lists that they read.
OF_LISTS = ("SQUEUE_PARTITION", "SQUEUE_FORMAT2", "SINFO_PARTITION", "SCANCEL_STATE", "SLURM_TIME_FORMAT")


def test_what_a_user_sets_for_lists_changes_no_answer_about_jobs_and_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: with SQUEUE_PARTITION, a job that runs is not in the answer of squeue."""
    seen = tmp_path / "seen"
    for name in ("squeue", "sacct", "scancel", "sinfo"):
        executable(tmp_path / name, f"#!/bin/sh\nenv >> {seen}\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    for name in OF_LISTS:
        monkeypatch.setenv(name, "x")
    state.ask("slurm", ["5"])
    submission.cancel_by(registry.scheduler("slurm").cancel("5"))
    host = RealHost(tmp_path)
    host.run(["sinfo"])
    host.run_all([("sinfo",)])
    names = [line.partition("=")[0] for line in seen.read_text().splitlines()]
    assert names.count("SLURM_CONF") == 5
    assert not set(names) & set(OF_LISTS)
