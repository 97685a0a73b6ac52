"""LSF's answers, as its documentation prints them (10.1: bsub, bjobs, bqueues), and what jobs ask it for."""

from __future__ import annotations

import pytest
from builders import make_job, make_site

from bareboat.model import JobState, Outcome, SchedulerFacts, Scheduling, Topology
from bareboat.schedulers.lsf import LSF
from bareboat_base.errors import PlanError, ToolError

lsf = LSF()

BJOBS = """\
17|RUN|-|4*n01:4*n02|-
18|PEND|-|-|Job dependency condition not satisfied;
19|EXIT|7|n01|-
20|EXIT|130|n01|-
21|EXIT|140|n01|-
22|DONE|-|n01:n01|-
23|UNKWN|-|n01|-
Job <99> is not found
"""


def outcome(stdout: str = "", stderr: str = "", code: int = 0) -> Outcome:
    return Outcome(argv=("bsub",), exit_code=code, stdout=stdout, stderr=stderr, wall_s=0.0)


def test_what_the_queue_says() -> None:
    (query,) = lsf.queries(["17", "18"])
    found = {entry.job_id: entry for entry in query.parse(outcome(BJOBS, code=255))}
    assert {number: entry.state for number, entry in found.items()} == {
        "17": JobState.RUNNING, "18": JobState.PENDING, "19": JobState.FAILED, "20": JobState.FAILED,
        "21": JobState.TIMEOUT, "22": JobState.COMPLETED, "23": JobState.UNKNOWN,
    }  # fmt: skip
    assert found["17"].nodes == "n01,n02"
    assert found["18"].reason == "Job dependency condition not satisfied;"
    assert found["22"].nodes == "n01"
    assert {entry.stuck for entry in found.values()} == {""}
    never = "18|PEND|-|-|Dependency condition invalid or never satisfied;\n"
    assert query.parse(outcome(never))[0].stuck == "then submit it again"


@pytest.mark.parametrize(
    "text",
    ["Job <17> is submitted to queue <normal>.\n",
     "Welcome. Job <slots> are free.\nJob <17> is submitted to default queue <normal>.\n",
     "Your fairshare is 2026\nJob <17> is submitted to queue <normal>.\n"],
)  # fmt: skip
def test_the_number_in_a_sentence(text: str) -> None:
    assert lsf.job_id(outcome(text)) == "17"


def test_refusals() -> None:
    with pytest.raises(PlanError):
        lsf.job_id(outcome(stderr="nowhere: No such queue. Job not submitted.", code=255))
    with pytest.raises(ToolError):
        lsf.job_id(outcome("Job not submitted.\n"))


def test_slots_are_counted_for_the_job_and_tiled_over_hosts() -> None:
    job = make_job(
        topology=Topology(nodes=3, ranks_per_node=2, cpus_per_rank=2, gpus_per_rank=1),
        walltime_s=5401, scheduling=Scheduling(after=("3", "4"), requeue=False, options=("-B",)),
    )  # fmt: skip
    lines = lsf.directives(job, make_site(schedulers=(SchedulerFacts(name="lsf", version="10.1"),)))
    assert "#BSUB -n 12" in lines
    assert '#BSUB -R "span[ptile=4]"' in lines
    assert '#BSUB -gpu "num=2"' in lines
    assert "#BSUB -W 1:31" in lines
    assert '#BSUB -w "done(3) && done(4)"' in lines
    assert lines[-2:] == ("#BSUB -rn", "#BSUB -B")
