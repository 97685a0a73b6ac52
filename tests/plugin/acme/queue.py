"""acme-queue: a queue of one machine, which starts each job at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bareboat.model import Job, JobState, Mark, Outcome, QueueEntry, Refusal, SchedulerFacts, Site
from bareboat.schedulers import Allocation, Array, Asks, CountHosts, Query, found_job_id

NAME = "acme-queue"
TITLE = "Acme Queue"
MORE_MEMORY = ("", "less memory for each rank")
AT_ONCE = False
JOB_ID = "$$"
JOB_ID_FORM = r"\d{1,20}"
SIGNALS_BY_FILE = False
WARNS = False
SUBMITS_STDIN = False
MARKS: tuple[Mark, ...] = ()
ARRAY = Array(index="", job_id=JOB_ID)
LIST = "ps"
UNTESTED = ""


def snippet() -> str:
    return """\
hosts() { hostname; }
on_each_node() { bash "$1" "$2" 0 "${@:3}"; }
again() { return 1; }
"""


def allocation(environment: Mapping[str, str], count_hosts: CountHosts) -> Allocation | None:
    number = environment.get("ACME_JOB", "")
    return Allocation(scheduler=NAME, job_id=number, nodes=1, here=False, start=("env",)) if number else None


def probe(asks: Asks) -> SchedulerFacts | None:
    return SchedulerFacts(name=NAME, version="1.0")


def objection(job: Job, site: Site) -> Refusal | None:
    if job.topology.nodes > 1:
        return Refusal("acme-queue has one node", "set nodes = 1 under [topology]")
    return None


def warnings(job: Job, site: Site) -> tuple[str, ...]:
    return ()


def directives(job: Job, site: Site) -> tuple[str, ...]:
    return (f"#ACME ranks={job.topology.world_size}",)


def submit(script: str, log: str) -> tuple[str, ...]:
    return ("sh", "-c", 'setsid bash "$0" > "$1" 2>&1 < /dev/null & echo "$!"', script, log)


def job_id(outcome: Outcome) -> str:
    return found_job_id(outcome, r"^(\d+)$")


def queries(job_ids: Sequence[str]) -> tuple[Query, ...]:
    return (Query(("ps", "-o", "pid=", "-p", ",".join(job_ids)), _entries),)


def _entries(outcome: Outcome) -> tuple[QueueEntry, ...]:
    return tuple(QueueEntry(job_id=each, state=JobState.RUNNING) for each in outcome.stdout.split())


def element(job_id: str, index: int) -> str:
    return job_id


def has_arrays(site: Site) -> bool:
    return False


def cancel(job_id: str) -> tuple[str, ...]:
    return ("kill", job_id)


def attach(job_id: str, words: Sequence[str] | None) -> tuple[str, ...] | None:
    return None
