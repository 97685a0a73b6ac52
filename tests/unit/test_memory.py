"""The memory that a rank gets where the job asks for none: the site's default, from what schedulers print."""

from __future__ import annotations

import pytest
from builders import make_image, make_job, make_site

from bareboat import registry
from bareboat.model import Decision, DefaultMemory, Partition, SchedulerFacts, Scheduling, Topology
from bareboat.plan.memory import choose_memory
from bareboat.schedulers import gridengine_queues, lsf, pbs, slurm

GB = 10**9


def told(
    default: DefaultMemory | None, *, frameworks: tuple[str, ...] = (), scheduler: str = "slurm",
    cluster: DefaultMemory | None = None, exclusive: bool = False, asked: int | None = None,
    options: tuple[str, ...] = (),
) -> tuple[tuple[Decision, ...], tuple[str, ...]]:  # fmt: skip
    partition = Partition(name="main", default=True, cpus_per_node=64, default_memory=default)
    facts = SchedulerFacts(name=scheduler, version="1", partitions=(partition,), default_memory=cluster)
    job = make_job(
        scheduler=scheduler, topology=Topology(nodes=2, ranks_per_node=4, cpus_per_rank=2),
        scheduling=Scheduling(mem_per_node_bytes=asked, exclusive=exclusive, options=options),
    )  # fmt: skip
    image = make_image(frameworks=dict.fromkeys(frameworks, "1"))
    warnings, decisions = choose_memory(
        job, image, make_site(schedulers=(facts,)), registry.scheduler(scheduler)
    )
    return decisions, warnings


def memory(per: str, size: int, *, virtual: bool = False) -> DefaultMemory:
    return DefaultMemory(bytes=size, per=per, setting="x=1", virtual=virtual)


@pytest.mark.parametrize(
    ("per", "each"), [("cpu", "2.0 GB"), ("node", "250 MB"), ("job", "125 MB"), ("rank", "1.0 GB")]
)
def test_a_rank_s_share(per: str, each: str) -> None:
    ((decision,), warnings) = told(memory(per, GB))
    assert decision.choice == f"{each} for each rank"
    assert "the site's default, x=1" in decision.reason
    assert warnings == ()


def test_what_counts_before_what() -> None:
    assert told(None) == ((), ())
    assert told(memory("cpu", GB), cluster=memory("cpu", 9 * GB))[0][0].choice == "2.0 GB for each rank"
    assert told(None, cluster=memory("cpu", 9 * GB))[0][0].choice == "18.0 GB for each rank"
    assert told(memory("cpu", GB), exclusive=True)[0][0].choice == "16.0 GB for each rank"
    assert told(memory("cpu", GB), asked=12 * GB) == ((), ())
    # Options of the user's own decide, and are not read.
    assert told(memory("cpu", GB), options=("--mem-per-cpu=4G",)) == ((), ())


def test_a_framework_that_needs_more_is_warned_of() -> None:
    small = memory("rank", 400 << 20)
    assert told(small, frameworks=("torch",))[1] == ()
    (warning,) = told(small, frameworks=("tensorflow", "torch"))[1]
    assert "a rank gets 419 MB, and TensorFlow alone takes 504 MB of memory" in warning
    assert f"set mem_per_node_bytes = {2 * (481 << 20) * 4} or more" in warning
    assert told(None, asked=GB, frameworks=("torch",))[1]
    virtual = memory("rank", 600 << 20, virtual=True)
    (warning,) = told(virtual, frameworks=("torch",), scheduler="gridengine")[1]
    assert "of virtual memory" in warning


def test_slurm_s_partitions() -> None:
    nodes = "main|4|16000|(null)\n"
    shown = "PartitionName=main DefMemPerNode=UNLIMITED TotalNodes=2\n"
    assert slurm._partitions(shown, nodes, [])[0].default_memory is None
    shown = "PartitionName=main DefMemPerCPU=1500 TotalNodes=2\n"
    found = slurm._partitions(shown, nodes, [])[0].default_memory
    assert found == DefaultMemory(bytes=1500 << 20, per="cpu", setting="DefMemPerCPU=1500")


def test_grid_engine_s_complexes_and_queues() -> None:
    line = "h_vmem  h_vmem  MEMORY  <=  YES  {0}  {1}  0\n"
    assert gridengine_queues.default_memory_of(line.format("NO", "0")) is None
    assert (
        gridengine_queues.default_memory_of(line.format("NO", "2G")) is None
    )  # no consumable: it counts nothing
    found = gridengine_queues.default_memory_of(line.format("YES", "2G"))
    assert found is not None
    assert (found.bytes, found.per, found.virtual) == (2 << 30, "cpu", True)
    shown = "qname  main\nh_vmem  INFINITY\nqname  big\nh_vmem  4G\n"
    main, big = gridengine_queues.limits_of_queues(shown, {}).values()
    assert main.default_memory is None
    assert big.default_memory is not None
    assert big.default_memory.bytes == 4 << 30


def test_pbs_and_lsf_queues() -> None:
    """Of their manuals."""
    queue = "Queue: batch\n    queue_type = Execution\n    enabled = True\n    started = True\n    {}\n"
    (found,) = pbs._queues(queue.format("default_chunk.mem = 2gb"), "", "", [])
    assert found.default_memory == DefaultMemory(bytes=2 << 30, per="node", setting="default_chunk.mem = 2gb")
    assert pbs._queues(queue.format("resources_default.mem = 0b"), "", "", [])[0].default_memory is None
    shown = "QUEUE: normal\n\nDEFAULT LIMITS:\n MEMLIMIT\n      2 G\n\nMAXIMUM LIMITS:\n MEMLIMIT\n  9 G\n"
    assert lsf._default_memory(shown)["normal"].bytes == 2 << 30
    assert lsf._default_memory("QUEUE: idle\n  -- no limits\n") == {}
