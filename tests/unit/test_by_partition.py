"""What can be known before a job is queued."""

from typing import Any

import pytest
from builders import make_job, make_site
from hypothesis import given
from hypothesis import strategies as st

from bareboat import registry
from bareboat.model import Job, Partition, Refusal, SchedulerFacts, Scheduling, Site, Topology
from bareboat.schedulers.requests import cpus_per_node, gpus_per_node

SLURM = registry.scheduler("slurm")

MAIN = Partition(
    name="main", default=True, nodes=3, max_time_s=86400, cpus_per_node=4, mem_per_node_bytes=2**34,
    gpus_per_node=2,
)  # fmt: skip
SMALL = Partition(name="small", nodes=3, max_nodes=1, max_time_s=600, accounts=("research",))
RETIRED = Partition(name="retired", up=False, nodes=100)
STOPPED = Partition(name="stopped", starts=False, nodes=100)
FOREIGN = Partition(name="foreign", accounts=("biology",))


def site(*partitions: Partition, **facts: Any) -> Site:
    return make_site(schedulers=(SchedulerFacts(name="slurm", version="1", partitions=partitions, **facts),))


def objection(job: Job, where: Site) -> Refusal | None:
    return SLURM.objection(job, where)


def reason(job: Job, where: Site) -> str:
    found = objection(job, where)
    assert found is not None
    return found.reason


def job(nodes: int = 1, ranks_per_node: int = 1, walltime_s: int | None = None, **table: Any) -> Job:
    topology = {name: table.pop(name) for name in ("cpus_per_rank", "gpus_per_rank") if name in table}
    return make_job(
        topology=Topology(nodes=nodes, ranks_per_node=ranks_per_node, **topology),
        scheduling=Scheduling(**table), walltime_s=walltime_s,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "said", "remedy"),
    [
        (job(partition="smal"), "cluster; did you mean 'small'", "one of: main, small"),
        (job(partition="retired"), "does not accept jobs now", "one of: main, small"),
        (job(nodes=2, partition="small"), "allows 1; enough nodes in: main", "nodes = 1"),
        (job(ranks_per_node=5), "requires 5 CPUs per node; the partition main has 4", "[topology], to at"),
        (job(gpus_per_rank=3), "requires 3 GPUs", "gpus_per_rank"),
        (job(walltime_s=90000), "requires 25:00:00; the partition main allows 24:00:00", "86400"),
        (job(mem_per_node_bytes=2**35), "requires 32GiB of memory", "[scheduling], to at most 16GiB"),
        (job(partition="no", account="physics"), "'no' does not exist", "one of: main"),
        (job(partition="small", account="physics"), "not accept the account 'physics'", "one of: research"),
    ],
)
def test_what_cannot_be_had_is_said_with_a_remedy(asked: Job, said: str, remedy: str) -> None:
    found = objection(asked, site(MAIN, SMALL, RETIRED, STOPPED, FOREIGN, accounts=("research", "physics")))
    assert found is not None
    assert said in found.reason
    assert found.remedy.endswith(remedy) or "one of" not in remedy
    assert remedy in found.remedy


def test_a_site_without_the_scheduler_an_account_or_a_default() -> None:
    one = job()
    assert "slurm is not installed" in reason(one, make_site())
    down = make_site(schedulers=(SchedulerFacts(name="slurm", version="", works=False, detail="mute"),))
    assert reason(one, down) == "mute"
    assert "no default partition" in reason(one, site(SMALL))
    nobody = site(MAIN, accounts=(), settings={"accounts": "enforced"})
    assert "has no account" in reason(one, nobody)
    assert objection(one, site(MAIN, accounts=())) is None
    assert objection(one, site(MAIN, accounts=None)) is None


LIMIT = st.none() | st.integers(1, 64)
MEMORY = st.none() | st.integers(1, 64).map(lambda mebibytes: mebibytes * 2**20)


@given(
    partition=st.builds(
        Partition, name=st.just("p"), default=st.just(True), nodes=LIMIT, max_nodes=LIMIT, max_time_s=LIMIT,
        cpus_per_node=LIMIT, gpus_per_node=st.none() | st.integers(0, 8), mem_per_node_bytes=MEMORY,
    ),
    topology=st.builds(
        Topology, nodes=st.integers(1, 70), ranks_per_node=st.integers(1, 8),
        cpus_per_rank=st.none() | st.integers(1, 16), gpus_per_rank=st.integers(0, 2),
    ),
    walltime_s=LIMIT,
    mem=MEMORY,
)  # fmt: skip
def test_a_job_is_refused_exactly_when_a_known_limit_is_passed(
    partition: Partition, topology: Topology, walltime_s: int | None, mem: int | None
) -> None:
    asked = make_job(topology=topology, walltime_s=walltime_s, scheduling=Scheduling(mem_per_node_bytes=mem))
    pairs = (
        (topology.nodes, partition.nodes),
        (topology.nodes, partition.max_nodes),
        (cpus_per_node(asked), partition.cpus_per_node),
        (gpus_per_node(asked), partition.gpus_per_node),
        (walltime_s, partition.max_time_s),
        (mem, partition.mem_per_node_bytes),
    )
    too_much = any(asks is not None and limit is not None and asks > limit for asks, limit in pairs)
    assert (objection(asked, site(partition)) is not None) == too_much


def test_a_job_without_a_time_is_warned() -> None:
    (warning,) = SLURM.warnings(job(), site(MAIN))
    assert "at most 24:00:00" in warning
    assert SLURM.warnings(job(walltime_s=60), site(MAIN)) == ()
