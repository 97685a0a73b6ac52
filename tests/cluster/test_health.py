"""A job's health certificate, on a Slurm that binds: each fault of a node is found, and health is."""

import json
import re

import pytest
from cluster_jobs import need_program
from clusters import Cluster
from health_faults import FAULTS, Fault, certified


def test_healthy_nodes_are_judged_and_the_job_starts(slurm: Cluster) -> None:
    code, status, log = certified(slurm, "require", script="print('began')")
    assert (code, log.count("began")) == (0, 2), log
    assert status["health"]["marks"] == []
    assert {each["node"] for each in status["health"]["nodes"]} == {"c1", "c2"}
    shown = slurm.login(["bareboat", "status", status["run_id"]]).stdout
    assert "nodes: healthy" in shown


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
