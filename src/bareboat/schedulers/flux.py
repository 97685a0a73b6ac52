"""Flux: https://flux-framework.readthedocs.io/projects/flux-core/en/latest/man1/

Each job, and each shell of `flux alloc`, is in a Flux of its own, which knows only what was submitted to it.
Jobs are submitted to, and looked for in, the outermost one, wherever that happens: `flux --root`, since 0.71.
The parsers are tested on the output of flux-core 0.88.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from bareboat import bash
from bareboat.model import Job, JobState, Outcome, Partition, QueueEntry, Refusal, SchedulerFacts, Site
from bareboat.schedulers import Allocation, Array, CommandRunner, CountHosts, Query, Scheduler
from bareboat.schedulers.requests import given, job_name, max_concurrent, quoted
from bareboat.schedulers.tool_output import (
    check_answered,
    each_line,
    name_in,
    number_or_none,
    unanswered,
    unresponsive,
    version_in,
)

_RESULTS = {
    "COMPLETED": JobState.COMPLETED,
    "FAILED": JobState.FAILED,
    "CANCELED": JobState.CANCELLED,
    "TIMEOUT": JobState.TIMEOUT,
}

_FLUX = ("flux", "--root")
#: The fields of `flux queue list` and `flux jobs`, in this order.
_QUEUE = (
    "queuem", "enabled.ascii", "started.ascii", "defaults.timelimit", "limits.timelimit",
    "limits.range.nnodes", "limits.min.nnodes", "limits.max.nnodes", "limits.range.ncores",
)  # fmt: skip
_JOB = (
    "id", "state", "result", "nodelist", "contextual_info", "exception.occurred", "exception.type",
    "exception.severity", "exception.note", "inactive_reason", "returncode", "waitstatus",
    "t_cleanup",
)  # fmt: skip
#: Patterns of what `flux batch` prints, and the remedies.
_REJECTIONS = (
    ("dependency", "run the job that failed again, or remove it from after under [scheduling]"),
    ("queue", "flux --root queue list"),
    ("", "flux --root resource list"),
)
_RESOURCES = "{state}|{nnodes}|{ncores}|{ngpus}|{nodelist}"
_ENDED_BY = {"node-failure": JobState.NODE_FAIL, "dependency": JobState.DEPENDENCY}


class Flux(Scheduler):
    NAME = "flux"
    TITLE = "Flux"
    SIGNALS_BY_FILE = True
    MORE_MEMORY = ("topology.nodes", "more nodes under [topology]: Flux gives memory with them")
    UNTESTED = "no test runs a real Flux; driven by hand on flux-core 0.88, whose output is parsed in tests"
    JOB_ID = '"${FLUX_ENCLOSING_ID:-${FLUX_JOB_ID:-$$}}"'
    JOB_ID_FORM = r"([ƒf][1-9A-HJ-NP-Za-km-z]{1,20}|\d{1,20})"
    JOB_ID_PRINTED = r"^([ƒf]\w+|\d+)\s*$"
    REJECTIONS = _REJECTIONS
    JOB_VARIABLE = "FLUX_JOB_ID"
    VARIABLES = ("FLUX_",)
    PING = "flux --root resource list"
    LIST = "flux --root jobs"
    # `flux bulksubmit` submits many jobs, but lists and cancels them one by one.
    ARRAY = Array(index="", job_id=JOB_ID)

    def snippet(self) -> str:
        return bash.piece(__package__, self.NAME)

    def allocation(self, environment: Mapping[str, str], count_hosts: CountHosts) -> Allocation | None:
        number = environment.get("FLUX_ENCLOSING_ID", "")
        if not number or self.JOB_VARIABLE in environment:  # a step of a job has its nodes in use
            return None
        nodes = count_hosts(("flux", "hostlist", "--expand", "--delimiter=\n", "local"))
        return Allocation(scheduler=self.NAME, job_id=number, nodes=nodes)

    def probe(self, runner: CommandRunner) -> SchedulerFacts | None:
        if runner.which("flux") is None:
            return None
        about, queues, resources = runner.run_all(
            (
                ("flux", "version"),
                (*_FLUX, "queue", "list", "-n", "-o", "|".join(f"{{{name}}}" for name in _QUEUE)),
                (*_FLUX, "resource", "list", "-n", "-s", "all", "-o", _RESOURCES),
            )
        )
        version = version_in(about.stdout, r"(?m)^commands:\s*(\S+)")
        if not queues.ok:
            return unresponsive(self.NAME, self.TITLE, queues)
        remarks = unanswered(about, resources)
        nodes = re.search(r"^all\|(\d{1,9})\|", resources.stdout, re.MULTILINE)
        count = int(nodes[1]) if nodes is not None else None
        partitions = each_line("flux", queues.stdout, lambda line: _partition(line, count), remarks)
        return SchedulerFacts(
            name=self.NAME,
            version=version,
            partitions=tuple(filter(None, partitions)),
            settings={} if count is None else {"nodes": str(count)},
            remarks=tuple(remarks),
        )

    def objection(self, job: Job, site: Site) -> Refusal | None:
        found = super().objection(job, site)
        if found is not None:
            return found
        for name in ("qos", "reservation", "account"):
            if getattr(job.scheduling, name) is not None:
                return Refusal(
                    f"Flux does not support {name}", f'remove {name}; for a bank:  options = ["--bank=NAME"]'
                )
        facts = site.scheduler(self.NAME)
        most = number_or_none(facts.settings.get("nodes", "")) if facts is not None else None
        if most is not None and job.topology.nodes > most:
            return Refusal(
                f"the job requires {job.topology.nodes} nodes; this Flux has {most}",
                f"set nodes = {most} or fewer under [topology]",
            )
        if max_concurrent(job) is not None:
            return Refusal(
                "Flux does not support array jobs or a limit on a sweep's points", "remove --at-once"
            )
        if job.scheduling.mem_per_node_bytes is not None:
            return Refusal("Flux allocates memory with cores and nodes", "remove mem_per_node_bytes")
        return None

    def directives(self, job: Job, site: Site) -> tuple[str, ...]:
        topology, scheduling = job.topology, job.scheduling
        options = given(
            ("--job-name={}", job_name(job)),
            ("--nodes={}", topology.nodes),
            ("--nslots={}", topology.nodes * topology.ranks_per_node),
            ("--cores-per-slot={}", topology.cpus_per_rank or 1),
            ("--gpus-per-slot={}", topology.gpus_per_rank),
            ("--time-limit={}s", job.walltime_s),
            ("--queue={}", quoted(scheduling.partition)),
            ("--requires={}", quoted(scheduling.constraint)),
            ("--exclusive", scheduling.exclusive),
            *(("--dependency=afterok:{}", number) for number in scheduling.after),
        )
        return tuple(f"#flux: {option}" for option in (*options, *scheduling.options))

    def submit(self, script: str, log: str) -> tuple[str, ...]:
        return (*_FLUX, "batch", f"--output={log}", script)

    def queries(self, job_ids: Sequence[str]) -> tuple[Query, ...]:
        form = "|".join(f"{{{name}}}" for name in _JOB)
        return (Query((*_FLUX, "jobs", "-n", "-o", form, *job_ids), _entries, _odd),)

    def cancel(self, job_id: str) -> tuple[str, ...]:
        return (*_FLUX, "cancel", job_id)


def _partition(line: str, nodes: int | None) -> Partition | None:
    """A line of `flux queue list`; None for a Flux without queues, whose name is empty."""
    name, enabled, started, _, limit, _, _, most, _ = (word.strip() for word in line.split("|"))
    if not name:
        return None
    return Partition(
        name=name_in(name.rstrip("*")),
        default=name.endswith("*"),
        up=enabled == "y",
        starts=started == "y",
        nodes=nodes,
        max_nodes=number_or_none(most),
        max_time_s=None if limit in ("", "inf") else int(float(limit)),
    )


def _fields(line: str) -> dict[str, str] | None:
    """A line of `flux jobs`. The exception's note, which may have the separator, is what is left."""
    words = [word.strip() for word in line.split("|")]
    after = len(_JOB) - _JOB.index("exception.note") - 1
    if len(words) < len(_JOB):
        return None
    before = len(_JOB) - after - 1
    note = "|".join(words[before:-after])
    return dict(zip(_JOB, (*words[:before], note, *words[-after:]), strict=True))


def _odd(outcome: Outcome) -> list[str]:
    return [line for line in outcome.stdout.splitlines() if line.strip() and _fields(line) is None]


def _entries(outcome: Outcome) -> tuple[QueueEntry, ...]:
    check_answered(outcome, r"unknown|not found|no such")
    return tuple(
        QueueEntry(
            job_id=job["id"],
            state=_state(job),
            reason=_reason(job),
            nodes=job["nodelist"],
            exit_code=number_or_none(job["returncode"]),
            # "0.0" before the end.
            ended_at_epoch_s=number_or_none(job["t_cleanup"].partition(".")[0]) or None,
        )
        for line in outcome.stdout.splitlines()
        if (job := _fields(line)) is not None
    )


def _reason(job: dict[str, str]) -> str:
    """The contextual information is the nodes of a running job, and an estimate that changes with each query
    for one that waits for resources."""
    if job["exception.note"] or job["state"] == "INACTIVE":
        return job["exception.note"] or job["inactive_reason"]
    waits = _state(job) is JobState.PENDING and not job["contextual_info"].startswith("eta:")
    if waits and job["contextual_info"] == "held":
        return f"held; release it: flux job urgency {job['id']} default"
    return job["contextual_info"] if waits else ""


def _state(job: dict[str, str]) -> JobState:
    match job["state"]:
        case "RUN" | "CLEANUP":
            return JobState.RUNNING
        case "NEW" | "DEPEND" | "PRIORITY" | "SCHED":
            return JobState.PENDING
        case "INACTIVE":
            by_exception = _ENDED_BY.get(job["exception.type"])
            if job["exception.note"].startswith("node failure on "):  # of the first node: type exec
                by_exception = JobState.NODE_FAIL
            return by_exception or _RESULTS.get(job["result"], JobState.UNKNOWN)
        case _:
            return JobState.UNKNOWN
