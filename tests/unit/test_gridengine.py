"""Grid Engine's answers, as 8.1.9 prints them, and what jobs ask it for."""

import time

import msgspec
import pytest
from builders import make_job, make_site
from queues import Tools

from bareboat.model import JobState, Outcome, SchedulerFacts, Scheduling, Site, Topology
from bareboat.schedulers.gridengine import GridEngine

gridengine = GridEngine()

QSTAT = """\
job-ID  prior   name       user         state submit/start at     queue                          slots
----------------------------------------------------------------------------------------------------
      2 0.50500 names      alice        r     11/22/2026 02:57:29 main@c1                            6
      3 0.50500 waits      alice        qw    11/22/2026 02:57:30                                    6
      4 0.50500 again      alice        Rq    11/22/2026 02:57:31                                    6
      5 0.50500 broken     alice        Eqw   11/22/2026 02:57:31                                    6
     22 0.50500 other      bob          r     11/22/2026 02:57:29 main@c2                            6
"""
QACCT = """\
==============================================================
qname        main
hostname     c1
jobname      names
jobnumber    {number}
taskid       undefined
failed       {failed}
exit_status  {code}
"""


def outcome(stdout: str = "", stderr: str = "", code: int = 0) -> Outcome:
    return Outcome(argv=("qsub",), exit_code=code, stdout=stdout, stderr=stderr, wall_s=0.0)


def site(**settings: str) -> Site:
    facts = SchedulerFacts(name="gridengine", version="8.1.9", settings=settings)
    return make_site(schedulers=(facts,))


@pytest.mark.parametrize("text", ["Fri Nov 27 04:48:35 2026", "11/27/2026 04:48:35.123", "-/-", ""])
def test_the_end_of_a_job(text: str) -> None:
    _, ended = gridengine.queries(["2"])
    accounts = QACCT.format(number="2", failed="0", code="137") + f"end_time     {text}\n"
    (entry,) = ended.parse(outcome(accounts))
    at = time.mktime((2026, 11, 27, 4, 48, 35, 0, 0, -1))
    assert entry.ended_at_epoch_s == (at if "04:48" in text else None)


def test_what_the_queue_says() -> None:
    live, *_ = gridengine.queries(["2", "3", "4", "5"])
    found = {entry.job_id: entry for entry in live.parse(outcome(QSTAT))}
    assert {number: entry.state for number, entry in found.items()} == {
        "2": JobState.RUNNING, "3": JobState.PENDING, "4": JobState.PENDING, "5": JobState.PENDING,
    }  # fmt: skip
    assert found["2"].nodes == "c1"
    assert found["5"].reason == "state Eqw: qstat -j 5"
    stuck = "or correct the cause, then: qmod -cj 5"
    assert [entry.stuck for entry in found.values()] == ["", "", "", stuck]
    (held,) = live.parse(outcome(QSTAT.replace(" qw ", "hqw ").splitlines()[3]))
    assert (held.reason, held.stuck) == ("on hold, or waits for another job: qstat -j 3", "")
    assert live.parse(outcome("")) == ()


def test_a_job_that_waits_for_another_may_start_after_its_failure() -> None:
    words = "Grid Engine starts the job also when the one that it waits for failed"
    for after in ((), ("7",)):
        job = make_job(scheduling=Scheduling(after=after), walltime_s=60)
        assert (words in gridengine.warnings(job, site())) == bool(after)


ERRORS = """\
job-array tasks:            1-3:1
error reason          1:      11/28/2026 13:29:54 [1004:121]: error: can't chdir to /gone: No such file
error reason          3:      can not find an unused add_grp_id
scheduling info:            Job is in error state
"""


@pytest.mark.parametrize(
    ("job_id", "reason"),
    [
        ("5", "can't chdir to /gone: No such file"), ("5.1", "can't chdir to /gone: No such file"),
        ("5.2", ""), ("5.3", "can not find an unused add_grp_id"),
    ],
)  # fmt: skip
def test_why_a_job_is_in_an_error_state(job_id: str, reason: str) -> None:
    query = gridengine.error(job_id)
    assert (query.argv, query.parse(outcome(ERRORS))) == (("qstat", "-j", "5"), reason)


@pytest.mark.parametrize(
    ("failed", "code", "state"),
    [
        ("0", "0", JobState.COMPLETED),
        ("0", "3", JobState.FAILED),
        ("100 : assumedly after job", "137", JobState.FAILED),
        ("0", "143", JobState.FAILED),
        ("25  : rescheduling", "99", JobState.UNKNOWN),
        ("26  : opening input/output file", "0", JobState.FAILED),
    ],
)
def test_what_the_accounts_say(failed: str, code: str, state: JobState) -> None:
    _, ended = gridengine.queries(["2"])
    assert ended.argv == ("qacct", "-j", "2")
    (entry,) = ended.parse(outcome(QACCT.format(number="2", failed=failed, code=code)))
    assert entry.state is state
    assert entry.reason == ("" if failed == "0" else failed)
    assert ended.parse(outcome(QACCT.format(number="3", failed=failed, code=code))) == ()
    assert ended.parse(outcome(stderr="error: job id 2 not found", code=1)) == ()


def test_the_parallel_environment_is_the_one_with_so_many_slots_a_node() -> None:
    rules = {"pe each2": "2 999", "pe each4": "4 8", "pe smp": "$pe_slots 999", "pe mpi": "$round_robin 999"}

    def lines(nodes: int, ranks_per_node: int) -> tuple[str, ...]:
        job = make_job(topology=Topology(nodes=nodes, ranks_per_node=ranks_per_node))
        assert gridengine.objection(job, site(**rules)) is None
        return gridengine.directives(job, site(**rules))

    assert "#$ -pe each2 6" in lines(3, 2)
    assert "#$ -pe each4 8" in lines(2, 4)
    assert "#$ -pe smp 3" in lines(1, 3)
    assert not any("-pe" in line for line in lines(1, 1))
    for nodes, ranks_per_node in ((3, 3), (3, 4)):  # no rule of three; each4 has 8 slots in all
        job = make_job(topology=Topology(nodes=nodes, ranks_per_node=ranks_per_node))
        objection = gridengine.objection(job, site(**rules))
        assert objection is not None
        assert "each2 (2)" in objection.remedy


def test_what_it_does_not_have_is_refused() -> None:
    one = Topology()
    for job in (
        make_job(topology=one, scheduling=Scheduling(qos="short")),
        make_job(topology=one, scheduling=Scheduling(constraint="skylake")),
        make_job(topology=Topology(gpus_per_rank=1)),
    ):
        assert gridengine.objection(job, site()) is not None


@pytest.mark.parametrize(
    ("per", "topology", "asked"),
    [
        ("slot", Topology(cpus_per_rank=8, gpus_per_rank=1), None),
        ("slot", Topology(cpus_per_rank=2, gpus_per_rank=4), "2"),
        ("job", Topology(cpus_per_rank=8, gpus_per_rank=1), "1"),
        ("job", Topology(nodes=2, cpus_per_rank=8, gpus_per_rank=1), None),
        ("host", Topology(nodes=2, cpus_per_rank=8, gpus_per_rank=1), "1"),
    ],
)
def test_gpus_are_asked_for_as_they_are_counted(per: str, topology: Topology, asked: str | None) -> None:
    """A consumable of the kind YES is counted for each slot: one GPU for 8 slots would be 8 GPUs."""
    job = make_job(scheduler="gridengine", topology=topology, walltime_s=60)
    where = site(**{"pe each2": "2 99", "pe each8": "8 99", "gpu": "gpu", "gpu per": per})
    refused = gridengine.objection(job, where)
    assert (refused is not None) == (asked is None), refused
    if asked is not None:
        assert f"#$ -l gpu={asked}" in gridengine.directives(job, where)


QUEUES = """\
qname                 main
hostlist              @allhosts
slots                 4,[c1=8],[@large=2]
h_rt                  24:00:00,[c1=01:00:00]
h_vmem                INFINITY

qname                 long
hostlist              c7
slots                 1,[c7.site=2], \\
                      [c8.site=3]
h_rt                  INFINITY
h_vmem                4G
"""
INSTANCES = "main@c1\nmain@c2\nlong@c2\nlong@c7.site\n"


TOOLS = Tools({
    "qconf -sql": "main\nlong\n", "qconf -sq": QUEUES, "qconf": "", "qselect": INSTANCES,
    "qstat -help": "SGE 8.1.9", "qstat": "", "qsub": "",
})  # fmt: skip


def test_what_the_queues_allow_is_read() -> None:
    facts = gridengine.probe(TOOLS)
    assert facts is not None
    found = [(q.name, q.nodes, q.cpus_per_node, q.max_time_s) for q in facts.partitions]
    assert found == [("main", 2, 8, 86400), ("long", 2, 3, None)]
    assert (facts.settings["hosts"], facts.remarks) == ("3", ())


@pytest.mark.parametrize(
    ("queue", "nodes", "cpus", "walltime_s", "reason"),
    [
        (None, 9, 1, 60, "the job requires 9 nodes; the queues of this cluster have 3"),
        ("main", 3, 1, 60, "the job requires 3 nodes; the queue main allows 2"),
        (None, 1, 12, 60,
         "the job requires 12 CPUs per node; the queues of this cluster have 11 slots on a node"),
        ("long", 1, 4, 60, "the job requires 4 CPUs per node; the queue long has 3 CPUs"),
        ("main", 1, 1, 86401, "the job requires 24:00:01; the queue main allows 24:00:00"),
        # Together, two queues have what none of them has.
        (None, 3, 1, 60, None), (None, 1, 11, 60, None), (None, 1, 1, 90000, None),
    ],
)  # fmt: skip
def test_a_job_that_no_queue_can_start_is_refused(
    queue: str | None, nodes: int, cpus: int, walltime_s: int, reason: str | None
) -> None:
    facts = gridengine.probe(TOOLS)
    assert facts is not None
    settings = {**facts.settings, "pe smp": "$pe_slots 999", "pe each1": "1 999"}
    job = make_job(
        topology=Topology(nodes=nodes, cpus_per_rank=cpus), walltime_s=walltime_s,
        scheduling=Scheduling(partition=queue),
    )  # fmt: skip
    where = make_site(schedulers=(msgspec.structs.replace(facts, settings=settings),))
    objection = gridengine.objection(job, where)
    assert (objection.reason if objection is not None else None) == reason
