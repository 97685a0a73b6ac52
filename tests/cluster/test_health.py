"""A job's health certificate, on a Slurm that binds: each fault of a node is found, and health is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cluster_jobs import write_job
from clusters import Cluster
from health_faults import FAULTS, Fault

PYTHON = Path("/usr/bin/python3")


def certified(
    up: Cluster,
    health: str,
    script: str = "pass",
    *,
    topology: str = "",
    environment: dict[str, str] | None = None,
) -> tuple[int, dict[str, Any], str]:
    """Exit code, health and log of a job."""
    job = write_job(up, "certified", PYTHON, script, ranks=1, more=f'engine = "native"\nhealth = "{health}"')
    job.write_text(job.read_text().replace("[topology]", f"[topology]\ncpus_per_rank = 2\n{topology}"))
    given = environment or {}
    words = ["bareboat", "submit", "--json", str(job), "--launcher", "ranks"]
    run = json.loads(up.login(words, cwd=job.parent, environment=given).stdout)["run_id"]
    code = up.login(["bareboat", "wait", run], check=False).returncode
    log = up.login(["bareboat", "logs", run], check=False)
    status = up.login(["bareboat", "status", "--json", run], check=False)
    return code, json.loads(status.stdout)[0], log.stdout + log.stderr


def test_healthy_nodes_are_measured_and_the_job_starts(slurm: Cluster) -> None:
    code, status, log = certified(slurm, "require", "print('began')")
    assert (code, log.count("began")) == (0, 2), log
    assert status["health"]["marks"] == []
    assert {each["node"] for each in status["health"]["nodes"]} == {"c1", "c2"}
    assert {(each["node"], each["link_to"]) for each in status["health"]["measured"]} == {
        ("c1", "c2"),
        ("c2", "c1"),
    }
    shown = slurm.login(["bareboat", "status", status["run_id"]]).stdout
    assert "nodes: healthy" in shown


@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: each.name.replace(" ", "-"))
def test_a_fault_is_found(slurm: Cluster, fault: Fault) -> None:
    # GPUs are judged by what the ranks use.
    health = "report" if "GPU" in fault.name else "require"
    with fault.begin(slurm) as environment:
        code, status, log = certified(
            slurm, health, fault.script, topology=fault.more.format(gpus=2), environment=environment
        )
    said = (code, status, log)
    marks = status["health"]["marks"]
    assert any(re.search(fault.mark, mark) for mark in marks), said
    if health == "require":
        assert code == 72, said
        assert "the job is not started: " in log, said
        assert status["end"]["cause"] == "unhealthy nodes", said
