"""A job's health certificate, on a Slurm that binds: each fault of a node is found, and health is."""

from __future__ import annotations

import json
import re

import pytest
from cluster_jobs import MPI, need_on_nodes, need_program, run_job, write_job
from clusters import Cluster
from health_faults import FAULTS, Fault, certified


def test_healthy_nodes_are_measured_and_the_job_starts(slurm: Cluster) -> None:
    code, status, log = certified(slurm, "require", script="print('began')")
    assert (code, log.count("began")) == (0, 2), log
    assert status["health"]["marks"] == []
    assert {each["node"] for each in status["health"]["nodes"]} == {"c1", "c2"}
    assert {(each["node"], each["link_to"]) for each in status["health"]["measured"]} == {
        ("c1", "c2"),
        ("c2", "c1"),
    }
    shown = slurm.login(["bareboat", "status", status["run_id"]]).stdout
    assert "nodes: healthy" in shown


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_the_all_reduce_of_mpi_is_measured(slurm: Cluster, launcher: str) -> None:
    need_on_nodes(MPI)
    more = 'engine = "native"\nhealth = "require"'
    job = write_job(slurm, f"mpi-{launcher}", MPI, "from mpi4py import MPI", more=more)
    ended = run_job(slurm, job, "--launcher", launcher)
    assert ended.code == 0, ended.log
    health = json.loads(slurm.login(["bareboat", "status", "--json", ended.run_id]).stdout)[0]["health"]
    assert health["marks"] == [], health
    assert [each["ranks"] for each in health["nodes"]] == [2, 2], health
    assert len(health["measured"]) == 2, health
    assert health["all_reduce_latency_s"] > 0, health
    assert health["all_reduce_bytes_s"] > 0, health


@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: each.name.replace(" ", "-"))
def test_a_fault_is_found(slurm: Cluster, fault: Fault) -> None:
    need_program(fault.needs)
    # GPUs are judged by what the ranks use.
    health = "report" if "GPU" in fault.name else "require"
    with fault.begin(slurm) as environment:
        code, status, log = certified(slurm, health, fault, environment, gpus=2)
    said = (code, json.dumps(status["health"]), log)
    marks = status["health"]["marks"]
    assert any(re.search(fault.mark, mark) for mark in marks), said
    if health == "require":
        assert code == 72, said
        assert "the job is not started: " in log, said
        assert status["end"]["cause"] == "unhealthy nodes", said
