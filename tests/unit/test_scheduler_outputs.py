"""What OpenPBS and Flux really print (tests/data/schedulers), parsed."""

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import make_job, make_site
from queues import Tools

from bareboat.model import JobState, Outcome, QueueEntry, SchedulerFacts, Scheduling, Topology
from bareboat.model.sweep import Sweep
from bareboat.schedulers import Scheduler
from bareboat.schedulers.flux import Flux
from bareboat.schedulers.pbs import PBS
from bareboat_base.errors import PlanError

DATA = Path(__file__).parents[1] / "data" / "schedulers"
PBS_FILES, FLUX_FILES = "openpbs-23.06.06-{}.txt", "flux-0.88.0-{}.txt"


def pbs(name: str) -> str:
    return (DATA / PBS_FILES.format(name)).read_text()


def flux(name: str) -> str:
    return (DATA / FLUX_FILES.format(name)).read_text()


def outcome(stdout: str, *, argv: Sequence[str] = ("qstat",), stderr: str = "", code: int = 0) -> Outcome:
    return Outcome(argv=tuple(argv), exit_code=code, stdout=stdout, stderr=stderr, wall_s=0.0)


def facts_of(scheduler: Scheduler, answers: Mapping[str, str]) -> SchedulerFacts:
    facts = scheduler.probe(Tools(answers))
    assert facts is not None
    assert facts.remarks == ()
    return facts


@pytest.fixture
def openpbs() -> SchedulerFacts:
    return facts_of(
        PBS(),
        {
            "qsub --version": "pbs_version = 23.06.06\n",
            "qstat -Q": pbs("qstat-Q-f"),
            "qstat -B": pbs("qstat-B-f"),
            "pbsnodes -a": pbs("pbsnodes-a"),
        },
    )


@pytest.fixture
def flux_facts() -> SchedulerFacts:
    return facts_of(
        Flux(),
        {
            "flux version": flux("version"),
            "flux --root queue list": flux("queue-list-format-limits"),
            "flux --root resource list": flux("resource-list-format"),
        },
    )


def test_what_openpbs_starts_never_or_when_somebody_permits_it() -> None:
    (never,) = entries(PBS(), pbs("qstat-f-never")).values()
    assert (never.state, never.stuck) == (JobState.PENDING, "then submit it with fewer resources")
    held = pbs("qstat-f-never").replace("job_state = Q", "job_state = H").partition("    comment = ")[0]
    (by_user,) = entries(PBS(), held.replace("Hold_Types = n", "Hold_Types = u")).values()
    assert (by_user.reason, by_user.stuck) == ("on hold; release it: qrls 126.login", "")
    comment = "    comment = job held, too many failed attempts to run\n"
    (failed,) = entries(PBS(), held.replace("Hold_Types = n", "Hold_Types = s") + comment).values()
    assert "ask an administrator" in failed.stuck


def entries(scheduler: Scheduler, text: str, number: int = 0) -> dict[str, QueueEntry]:
    query = scheduler.queries(["1.login"])[number]
    answer = outcome(text, argv=query.argv)
    assert list(query.odd(answer)) == []
    return {entry.job_id: entry for entry in query.parse(answer)}


# OpenPBS


def test_queues_of_openpbs(openpbs: SchedulerFacts) -> None:
    found = {queue.name: queue for queue in openpbs.partitions}
    assert [name for name, queue in found.items() if queue.up] == ["workq", "small", "route"]
    assert found["workq"].default
    assert (found["workq"].max_time_s, found["small"].max_nodes) == (86400, 1)
    for queue in found.values():
        assert (queue.nodes, queue.cpus_per_node, queue.mem_per_node_bytes) == (3, 4, 8 * 2**30)
    assert openpbs.settings["max_array"] == "10000"


@pytest.mark.parametrize(
    ("topology", "scheduling", "walltime_s", "reason"),
    [
        (Topology(nodes=4), Scheduling(), 60, "the job requires 4 nodes; the queue workq allows 3"),
        (Topology(), Scheduling(mem_per_node_bytes=2**34), 60, "16GiB of memory per node"),
        (Topology(), Scheduling(partition="closed"), 60, "the queue closed does not accept jobs now"),
        (Topology(), Scheduling(partition="route"), 60, None),
        (Topology(nodes=3, ranks_per_node=4), Scheduling(), 60, None),
        (Topology(), Scheduling(after=("17[1].login",)), 60, "cannot wait for one point of a sweep"),
        (Topology(), Scheduling(after=("17[].login",)), 60, None),
    ],
)
def test_what_openpbs_would_never_start_is_refused(
    openpbs: SchedulerFacts, topology: Topology, scheduling: Scheduling, walltime_s: int, reason: str | None
) -> None:
    site = make_site(schedulers=(openpbs,))
    job = make_job(topology=topology, scheduling=scheduling, walltime_s=walltime_s)
    refusal = PBS().objection(job, site)
    assert (refusal is None) == (reason is None)
    assert refusal is None or (reason or "") in refusal.reason


@pytest.mark.parametrize(
    ("limits", "job", "reason"),
    [
        ("resources_max.ncpus = 8", {"topology": Topology(nodes=3, ranks_per_node=4)}, "12 CPUs"),
        ("resources_max.ngpus = 1", {"topology": Topology(nodes=2, gpus_per_rank=1)}, "2 GPUs"),
        ("resources_max.mem = 4gb", {"topology": Topology(nodes=2), "mem": 2**32}, "8GiB of memory per job"),
        ("resources_min.walltime = 00:10:00", {"walltime_s": 599}, "takes jobs of 00:10:00 or more"),
        ("resources_min.walltime = 00:10:00", {"walltime_s": 600}, None),
        ("resources_max.ncpus = 12", {"topology": Topology(nodes=3, ranks_per_node=4)}, None),
        ("started = False", {}, None),
    ],
)
def test_the_limits_of_a_queue(limits: str, job: dict[str, Any], reason: str | None) -> None:
    shown = pbs("qstat-Q-f").replace("    resources_max.walltime = 24:00:00\n", f"    {limits}\n", 1)
    if limits.startswith("started"):
        shown = pbs("qstat-Q-f").replace("started = True", limits, 1)
    facts = facts_of(
        PBS(),
        {
            "qsub --version": "pbs_version = 23.06.06\n", "qstat -Q": shown,
            "qstat -B": pbs("qstat-B-f"), "pbsnodes -a": pbs("pbsnodes-a"),
        },
    )  # fmt: skip
    site = make_site(schedulers=(facts,))
    asked = make_job(
        scheduler="pbs", walltime_s=job.get("walltime_s", 3600), topology=job.get("topology", Topology()),
        scheduling=Scheduling(mem_per_node_bytes=job.get("mem")),
    )  # fmt: skip
    refusal = PBS().objection(asked, site)
    if reason is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert reason in refusal.reason
    stopped = [each for each in PBS().warnings(asked, site) if "is stopped" in each]
    assert bool(stopped) == limits.startswith("started")


@pytest.mark.parametrize(
    ("options", "changes", "reason"),
    [
        (("-l select=1:ncpus=4",), {}, "-l select"),
        (("-l walltime=10:00:00",), {}, "-l walltime"),
        (("-l walltime=10:00:00",), {"walltime_s": None}, None),
        (("-l software=matlab,place=pack",), {}, "place"),
        (("-l software=matlab",), {}, None),
        (("-q other",), {"scheduling": {"partition": "workq"}}, "-q other"),
        (("-N other",), {}, "-N other"),
        (("-W umask=022", "-v A=1"), {}, None),
    ],
)
def test_an_option_that_qsub_would_ignore_is_refused(
    openpbs: SchedulerFacts, options: tuple[str, ...], changes: dict[str, Any], reason: str | None
) -> None:
    facts = {"walltime_s": 60} | changes
    job = make_job(
        scheduler="pbs", topology=Topology(), walltime_s=facts["walltime_s"],
        scheduling=Scheduling(options=options, **facts.get("scheduling", {})),
    )  # fmt: skip
    refusal = PBS().objection(job, make_site(schedulers=(openpbs,)))
    if reason is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert reason in refusal.reason
        assert refusal.remedy


def test_a_job_that_waits_for_its_time_or_is_suspended_says_so() -> None:
    text = pbs("qstat-f-never").partition("    comment = ")[0]
    at = "    Execution_Time = Fri Nov 27 03:00:00 2026\n"
    (waits,) = entries(PBS(), text.replace("job_state = Q", "job_state = W") + at).values()
    assert (waits.state, waits.reason) == (JobState.PENDING, "waits until Fri Nov 27 03:00:00 2026")
    comment = "    comment = Job run at Fri Nov 27 at 01:00 on (c1:ncpus=1)\n"
    (stopped,) = entries(PBS(), text.replace("job_state = Q", "job_state = S") + comment).values()
    assert (stopped.state, stopped.reason) == (JobState.RUNNING, "suspended by the scheduler")


def test_jobs_of_openpbs_that_have_not_ended() -> None:
    found = entries(PBS(), pbs("qstat-f-mixed"))
    assert {number: entry.state for number, entry in found.items()} == {
        "125.login": JobState.RUNNING,
        "126.login": JobState.PENDING,
        "128.login": JobState.RUNNING,
        "129.login": JobState.PENDING,
        "132[].login": JobState.RUNNING,
        "133.login": JobState.RUNNING,
        "135.login": JobState.RUNNING,
    }
    assert found["125.login"].nodes == "c1,c3"


@pytest.mark.parametrize(
    ("name", "state", "code", "signal", "reason"),
    [
        ("exit7", JobState.FAILED, 7, 0, "failed"),
        ("kill9", JobState.FAILED, 137, 0, "failed"),
        ("memory", JobState.OUT_OF_MEMORY, None, 0, "exceeded resource mem"),
        ("walltime", JobState.TIMEOUT, None, 0, "exceeded resource walltime"),
        ("deleted", JobState.CANCELLED, None, 15, "terminated by user1@login"),
        ("dependency-failed", JobState.DEPENDENCY, None, 0, "afterok:130.login@login"),
    ],
)
def test_jobs_of_openpbs_that_ended(
    name: str, state: JobState, code: int | None, signal: int, reason: str
) -> None:
    (entry,) = entries(PBS(), pbs(f"qstat-x-f-{name}"), 1).values()
    assert (entry.state, entry.exit_code, entry.signal) == (state, code, signal)
    assert reason in entry.reason


def test_elements_of_an_array_of_openpbs() -> None:
    running = entries(PBS(), pbs("qstat-t-f-array-running"))
    assert [running[f"132[{index}].login"].state for index in range(3)] == [
        JobState.RUNNING, JobState.RUNNING, JobState.PENDING,
    ]  # fmt: skip
    ended = entries(PBS(), pbs("qstat-x-t-f-array-finished"), 1)
    elements = [ended[f"132[{index}].login"] for index in range(3)]
    assert [(element.state, element.exit_code) for element in elements] == [
        (JobState.COMPLETED, 0), (JobState.FAILED, 1), (JobState.FAILED, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("stderr", "remedy"),
    [
        ("qsub: Unknown queue", "qstat -Q -f"),
        ("qsub: Queue is not enabled", "qstat -Q -f"),
        ("qsub: Job violates queue and/or server resource limits", "qstat -Q -f"),
        ("qsub: Unknown resource: foo", "correct the resources"),
        ("qsub: illegal -J value", "bareboat submit --dry-run"),
    ],
)
def test_remedies_of_openpbs_fit_the_message(stderr: str, remedy: str) -> None:
    assert stderr in pbs("error-messages")
    with pytest.raises(PlanError) as caught:
        PBS().job_id(outcome("", stderr=stderr, code=170))
    assert caught.value.remedy.startswith(remedy)


def test_a_sweep_that_must_not_run_again_is_still_accepted_by_openpbs(openpbs: SchedulerFacts) -> None:
    assert "cannot submit non-rerunable Array Job" in pbs("error-messages")
    site = make_site(schedulers=(openpbs,))
    job = make_job(scheduling=Scheduling(requeue=False), sweep=Sweep(names=("x",), points=(("1",), ("2",))))
    assert "#PBS -r y" in PBS().directives(job, site)
    assert any("a point that loses its node runs again" in each for each in PBS().warnings(job, site))
    alone = make_job(scheduling=Scheduling(requeue=False))
    assert "#PBS -r n" in PBS().directives(alone, site)


# Flux


def test_queues_of_flux(flux_facts: SchedulerFacts) -> None:
    found = {queue.name: queue for queue in flux_facts.partitions}
    assert [name for name, queue in found.items() if queue.up] == ["main", "small"]
    assert [queue.default for queue in found.values()] == [True, False, False]
    assert [queue.max_time_s for queue in found.values()] == [7200, 600, None]
    assert [queue.max_nodes for queue in found.values()] == [None, 1, None]
    assert all(queue.nodes == 3 for queue in found.values())
    assert flux_facts.version == "0.88.0"


@pytest.mark.parametrize(
    ("topology", "partition", "walltime_s", "reason"),
    [
        (Topology(), None, 7201, "the job requires 02:00:01; the queue main allows 02:00:00"),
        (Topology(nodes=4), None, 60, "the job requires 4 nodes; the queue main allows 3"),
        (
            Topology(nodes=2),
            "small",
            60,
            "the job requires 2 nodes; the queue small allows 1; enough nodes in: main",
        ),
        (Topology(), "closed", 60, "the queue closed does not accept jobs now"),
        (Topology(nodes=3), "main", 7200, None),
    ],
)
def test_what_flux_would_never_start_is_refused(
    flux_facts: SchedulerFacts, topology: Topology, partition: str | None, walltime_s: int, reason: str | None
) -> None:
    site = make_site(schedulers=(flux_facts,))
    job = make_job(topology=topology, scheduling=Scheduling(partition=partition), walltime_s=walltime_s)
    refusal = Flux().objection(job, site)
    assert (refusal.reason if refusal is not None else None) == reason


def test_a_flux_without_queues() -> None:
    text = "".join(f"|{'y|y|inf|inf|0-inf|0|inf|0-inf'}\n" for _ in range(1))
    facts = facts_of(
        Flux(),
        {
            "flux version": flux("version"),
            "flux --root queue list": text,
            "flux --root resource list": flux("resource-list-format"),
        },
    )
    assert facts.partitions == ()
    refusal = Flux().objection(make_job(topology=Topology(nodes=4)), make_site(schedulers=(facts,)))
    assert refusal is not None
    assert refusal.reason == "the job requires 4 nodes; this Flux has 3"


def test_jobs_of_flux() -> None:
    # Recorded without the time of the end, the last field.
    lines = "".join(f"{line}|0.0\n" for line in flux("jobs-mixed").splitlines() if line.count("|") == 11)
    found = entries(Flux(), lines)
    assert len(found) == 23
    assert {number: found[number].state for number in ("ƒ92SV9Wzb", "ƒ91puSkib", "ƒ91HoBpkw")} == {
        "ƒ92SV9Wzb": JobState.PENDING, "ƒ91puSkib": JobState.RUNNING, "ƒ91HoBpkw": JobState.RUNNING,
    }  # fmt: skip
    assert found["ƒ92SV9Wzb"].reason == "depends:after-success=ƒ8yp1mP1h"
    timeout, failed, cancelled, lost = (
        found[number] for number in ("ƒ8znZ9zNT", "ƒ5Qg2jLjH", "ƒ4iGqpTSw", "ƒ2h8pjhTV")
    )
    assert (timeout.state, timeout.reason) == (JobState.TIMEOUT, "resource allocation expired")
    assert (failed.state, failed.exit_code, failed.reason) == (JobState.FAILED, 4, "Exit 4")
    assert (cancelled.state, cancelled.reason) == (JobState.CANCELLED, "Canceled")
    assert (lost.state, lost.nodes) == (JobState.NODE_FAIL, "c[1-2]")
    assert lost.reason == "node failure on c2 (shell rank 1)"


def test_a_dependency_of_flux_that_can_never_be_satisfied() -> None:
    line = next(line for line in flux("jobs-node-failure-dependency").splitlines() if "dependency" in line)
    number, state, result, nodes, kind, severity, note, reason, code = line.split("|")
    fields = [number, state, result, nodes, "", "True", kind, severity, note, reason, code, "256", "0.0"]
    (entry,) = entries(Flux(), "|".join(fields) + "\n").values()
    assert entry.state is JobState.DEPENDENCY
    assert entry.reason == "dependency after-success=ƒBWjafFxK can never be satisfied"


@pytest.mark.parametrize(
    ("state", "info", "reason"),
    [
        ("SCHED", "eta:3.2m", ""),
        ("SCHED", "eta:now", ""),
        ("SCHED", "held", "held; release it: flux job urgency ƒ1 default"),
        ("RUN", "c[1-2]", ""),
    ],
)
def test_the_reason_of_flux_does_not_change_with_each_query(state: str, info: str, reason: str) -> None:
    (entry,) = entries(Flux(), f"ƒ1|{state}|||{info}|False|||||||\n").values()
    assert entry.reason == reason


def test_the_loss_of_the_first_node_of_a_flux_job() -> None:
    line = "ƒ5hsApJ3|INACTIVE|FAILED|c[1-2]|c[1-2]|True|exec|0|node failure on c1 (rank 1)|x|137|35072|0.0\n"
    (entry,) = entries(Flux(), line).values()
    assert (entry.state, entry.reason) == (JobState.NODE_FAIL, "node failure on c1 (rank 1)")


def test_a_separator_in_the_note_of_flux() -> None:
    line = "ƒ1|INACTIVE|FAILED|c1|c1|True|exec|0|a|b|Exit 1|1|256|1795716183.974799\n"
    (entry,) = entries(Flux(), line).values()
    assert (entry.reason, entry.exit_code, entry.ended_at_epoch_s) == ("a|b", 1, 1795716183)


def test_a_rejected_dependency_of_flux() -> None:
    stderr = flux("jobs-dependency-cancel-hold").splitlines()[0]
    with pytest.raises(PlanError) as caught:
        Flux().job_id(outcome("", stderr=stderr, code=1))
    assert "remove it from after" in caught.value.remedy


def test_the_end_of_jobs_of_pbs() -> None:
    (entry,) = entries(PBS(), pbs("qstat-x-f-kill9"), 1).values()
    told = re.search(r"mtime = (.*)", pbs("qstat-x-f-kill9"))
    assert told is not None
    assert entry.ended_at_epoch_s == time.mktime(time.strptime(told[1]))
    torque = "Job Id: 1.login\n    job_state = C\n    exit_status = 271\n    comp_time = 1795716183\n"
    assert entries(PBS(), torque)["1.login"].ended_at_epoch_s == 1795716183


# Outputs in other forms than Bareboat requests


@pytest.mark.parametrize("name", ["qstat", "qstat-t", "qstat-u", "qstat-x", "qstat-f-F-json-running"])
def test_a_table_or_json_of_openpbs_is_no_job_and_is_shown(name: str) -> None:
    query = PBS().queries(["125.login"])[0]
    (path,) = DATA.glob(f"openpbs-23.06.06-{name}.*")
    answer = outcome(path.read_text(), argv=query.argv)
    assert query.parse(answer) == ()
    assert list(query.odd(answer)) == [line for line in answer.stdout.splitlines() if line.strip()]


@pytest.mark.parametrize(
    "name",
    ["queue-list-color", "queue-list-format", "queue-list-noqueues-color", "queue-list-noqueues-format"],
)
def test_a_table_of_flux_is_no_queue_and_is_shown(name: str) -> None:
    answers = {"flux version": flux("version"), "flux --root queue list": flux(name),
               "flux --root resource list": flux("resource-list")}  # fmt: skip
    facts = Flux().probe(Tools(answers))
    assert facts is not None
    assert (facts.partitions, facts.settings) == ((), {})
    lines = flux(name).splitlines()
    shown = [remark for remark in facts.remarks if remark.startswith("flux printed a line that cannot be")]
    assert len(shown) == min(3, len(lines))
