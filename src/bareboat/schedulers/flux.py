"""Flux, from its documentation: https://flux-framework.readthedocs.io/projects/flux-core/en/latest/man1/"""

from __future__ import annotations

from collections.abc import Sequence

from bareboat import bash
from bareboat.model import Job, JobState, Outcome, Partition, QueueEntry, Refusal, SchedulerFacts, Site
from bareboat.schedulers import Array, CommandRunner, Query, Scheduler
from bareboat.schedulers.requests import gpus_per_node, job_name, mail_to, max_concurrent
from bareboat.schedulers.tool_output import (
    check_answered,
    each_line,
    found_job_id,
    name_in,
    output_tail,
    unanswered,
    unresponsive,
    version_in,
)
from bareboat_base.errors import PlanError

_RESULTS = {
    "COMPLETED": JobState.COMPLETED,
    "FAILED": JobState.FAILED,
    "CANCELED": JobState.CANCELLED,
    "TIMEOUT": JobState.TIMEOUT,
}


class Flux(Scheduler):
    NAME = "flux"
    TITLE = "Flux"
    SIGNALS_BY_FILE = True
    MORE_MEMORY = ("topology.nodes", "more nodes under [topology]: Flux gives memory with them")
    UNTESTED = "not tested with a real Flux; written from its documentation"
    JOB_ID = '"${FLUX_ENCLOSING_ID:-${FLUX_JOB_ID:-$$}}"'
    JOB_ID_FORM = r"([ƒf][1-9A-HJ-NP-Za-km-z]{1,20}|\d{1,20})"
    JOB_VARIABLE = "FLUX_JOB_ID"
    VARIABLES = ("FLUX_",)
    PING = "flux resource list"
    LIST = "flux jobs"
    # `flux bulksubmit` submits many jobs, but lists and cancels them one by one.
    ARRAY = Array(index="", job_id=JOB_ID)

    def snippet(self) -> str:
        return bash.piece(__package__, self.NAME)

    def probe(self, runner: CommandRunner) -> SchedulerFacts | None:
        if runner.which("flux") is None:
            return None
        told, queues = runner.run_all(
            (
                ("flux", "version"),
                ("flux", "queue", "list", "--no-header", "--format={queue}|{enabled}|{started}"),
            )
        )
        version = version_in(told.stdout, r"(?m)^commands:\s*(\S+)")
        if not queues.ok:
            return unresponsive(self.NAME, self.TITLE, queues)
        remarks = unanswered(told)

        def read(line: str) -> Partition | None:
            name, enabled, started = (word.strip() for word in line.split("|"))
            if not name:  # a Flux without queues
                return None
            up = "✗" not in enabled + started
            return Partition(name=name_in(name.rstrip("*")), default=name.endswith("*"), up=up)

        partitions = tuple(filter(None, each_line("flux", queues.stdout, read, remarks)))
        return SchedulerFacts(name=self.NAME, version=version, partitions=partitions, remarks=tuple(remarks))

    def objection(self, job: Job, site: Site) -> Refusal | None:
        found = super().objection(job, site)
        if found is not None:
            return found
        for name in ("qos", "reservation", "account"):
            if getattr(job.scheduling, name) is not None:
                return Refusal(
                    f"Flux does not support {name}", f'remove {name}; for a bank:  options = ["--bank=NAME"]'
                )
        if max_concurrent(job) is not None:
            return Refusal(
                "Flux does not support array jobs or a limit on a sweep's points", "remove --at-once"
            )
        if mail_to(job) is not None:
            return Refusal("Flux sends no mail", 'set notify = ["COMMAND"], or remove notify')
        if job.scheduling.mem_per_node_bytes is not None:
            return Refusal("Flux allocates memory with cores and nodes", "remove mem_per_node_bytes")
        return None

    def directives(self, job: Job, site: Site) -> tuple[str, ...]:
        topology, scheduling = job.topology, job.scheduling
        options = [
            f"--job-name={job_name(job)}",
            f"--nodes={topology.nodes}",
            f"--nslots={topology.nodes * topology.ranks_per_node}",
            f"--cores-per-slot={topology.cpus_per_rank or 1}",
        ]
        if gpus_per_node(job):
            options.append(f"--gpus-per-slot={topology.gpus_per_rank}")
        if job.walltime_s is not None:
            options.append(f"--time-limit={job.walltime_s}s")
        if scheduling.partition is not None:
            options.append(f"--queue={scheduling.partition}")
        if scheduling.constraint is not None:
            options.append(f"--requires={scheduling.constraint}")
        if scheduling.exclusive:
            options.append("--exclusive")
        options += [f"--dependency=afterok:{number}" for number in scheduling.after]
        return tuple(f"#flux: {option}" for option in (*options, *scheduling.options))

    def submit(self, script: str, log: str) -> tuple[str, ...]:
        return ("flux", "batch", f"--output={log}", script)

    def job_id(self, outcome: Outcome) -> str:
        if not outcome.ok:
            raise PlanError(
                "Flux rejected the job", context=output_tail(outcome), remedy="flux resource list"
            )
        return found_job_id(outcome, r"^([ƒf]\w+|\d+)\s*$")

    def queries(self, job_ids: Sequence[str]) -> tuple[Query, ...]:
        form = "{id}|{state}|{result}|{nodelist}|{contextual_info}"
        return (
            Query(("flux", "jobs", "--all", "--no-header", f"--format={form}", *job_ids), _entries, _odd),
        )

    def cancel(self, job_id: str) -> tuple[str, ...]:
        return ("flux", "cancel", job_id)


def _odd(outcome: Outcome) -> list[str]:
    return [line for line in outcome.stdout.splitlines() if line.strip() and line.count("|") < 4]


def _entries(outcome: Outcome) -> tuple[QueueEntry, ...]:
    check_answered(outcome, r"unknown|not found|no such")
    found = []
    for line in outcome.stdout.splitlines():
        words = [word.strip() for word in line.split("|")]
        if len(words) < 5:
            continue
        number, state, result, nodes, reason = words[:5]
        if state in ("RUN", "CLEANUP"):
            told = JobState.RUNNING
        elif state == "INACTIVE":
            told = _RESULTS.get(result, JobState.UNKNOWN)
        elif state in ("NEW", "DEPEND", "PRIORITY", "SCHED"):
            told = JobState.PENDING
        else:
            told = JobState.UNKNOWN
        found.append(QueueEntry(job_id=number, state=told, reason=reason, nodes=nodes))
    return tuple(found)
