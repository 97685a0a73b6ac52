"""acme-queue: a queue of one machine, which starts each job at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bareboat.model import Job, JobState, Outcome, QueueEntry, Refusal, SchedulerFacts, Site
from bareboat.schedulers import Allocation, Array, CommandRunner, CountHosts, Query, Scheduler
from bareboat.schedulers.tool_output import found_job_id


class Queue(Scheduler):
    NAME = "acme-queue"
    TITLE = "Acme Queue"
    MORE_MEMORY = ("", "less memory for each rank")
    JOB_ID = "$$"
    ARRAY = Array(index="", job_id=JOB_ID)
    LIST = "ps"

    def snippet(self) -> str:
        return """\
hosts() { hostname; }
on_each_node() { bash "$1" "$2" 0 "${@:3}"; }
again() { return 1; }
"""

    def allocation(self, environment: Mapping[str, str], count_hosts: CountHosts) -> Allocation | None:
        number = environment.get("ACME_JOB", "")
        if not number:
            return None
        return Allocation(scheduler=self.NAME, job_id=number, nodes=1, here=False, start=("env",))

    def probe(self, runner: CommandRunner) -> SchedulerFacts | None:
        return SchedulerFacts(name=self.NAME, version="1.0")

    def objection(self, job: Job, site: Site) -> Refusal | None:
        if job.topology.nodes > 1:
            return Refusal("acme-queue has one node", "set nodes = 1 under [topology]")
        return None

    def warnings(self, job: Job, site: Site) -> tuple[str, ...]:
        return ()

    def directives(self, job: Job, site: Site) -> tuple[str, ...]:
        return (f"#ACME ranks={job.topology.world_size}",)

    def submit(self, script: str, log: str) -> tuple[str, ...]:
        return ("sh", "-c", 'setsid bash "$0" > "$1" 2>&1 < /dev/null & echo "$!"', script, log)

    def job_id(self, outcome: Outcome) -> str:
        return found_job_id(outcome, r"^(\d+)$")

    def queries(self, job_ids: Sequence[str]) -> tuple[Query, ...]:
        return (Query(("ps", "-o", "pid=", "-p", ",".join(job_ids)), _entries),)

    def cancel(self, job_id: str) -> tuple[str, ...]:
        return ("kill", job_id)


def _entries(outcome: Outcome) -> tuple[QueueEntry, ...]:
    return tuple(QueueEntry(job_id=each, state=JobState.RUNNING) for each in outcome.stdout.split())
