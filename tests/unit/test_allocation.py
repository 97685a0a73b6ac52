"""The job in which Bareboat runs, by the variables that schedulers set there."""

from pathlib import Path

from bareboat.runs import allocation


def test_slurm() -> None:
    assert allocation.find({}) is None
    given = {"SLURM_JOB_ID": "17", "SLURM_JOB_NUM_NODES": "2"}
    found = allocation.find(given)
    assert found is not None
    assert (found.scheduler, found.job_id, found.nodes, found.here) == ("slurm", "17", 2, False)
    assert found.started("a")[:2] == ("srun", "--jobid=17"), "salloc's shell is on no node of the job"
    of_tasks = {"SLURM_CPUS_PER_TASK": "2", "SLURM_TRES_PER_TASK": "cpu=2"}
    found = allocation.find({**given, **of_tasks})
    assert found is not None
    words = found.started("a")
    assert words[:4] == ("env", *(f"--unset={name}" for name in of_tasks), "srun"), "all of its processors"
    assert words[-4:] == ("env", "SLURM_CPUS_PER_TASK=2", "SLURM_TRES_PER_TASK=cpu=2", "a")
    found = allocation.find({**given, "SLURMD_NODENAME": "c1"})
    assert found is not None
    assert (found.here, found.start) == (True, ())


def test_those_whose_shell_is_on_the_first_node(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("c1 2 main@c1\nc2 2 main@c2\nc1 1 x\n\n")
    for name, variables in (
        ("gridengine", {"JOB_ID": "5", "PE_HOSTFILE": str(hosts), "SGE_TASK_ID": "undefined"}),
        ("pbs", {"PBS_JOBID": "5", "PBS_NODEFILE": str(hosts)}),
    ):
        found = allocation.find(variables)
        assert found is not None
        assert (found.scheduler, found.job_id, found.nodes, found.here) == (name, "5", 2, True)
    assert allocation.find({"JOB_ID": "5"}) is None, "anybody's variable"
    found = allocation.find({"PBS_JOBID": "5", "PBS_NODEFILE": str(tmp_path / "none")})
    assert found is not None
    assert found.nodes == 1
