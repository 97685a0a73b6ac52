"""IBM Spectrum LSF, from its documentation: https://www.ibm.com/docs/en/spectrum-lsf/10.1.0"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from bareboat import bash
from bareboat.model import (
    Job,
    JobState,
    Mark,
    Outcome,
    Partition,
    QueueEntry,
    Refusal,
    SchedulerFacts,
    Site,
)
from bareboat.schedulers import (
    Allocation,
    Array,
    CommandRunner,
    CountHosts,
    Query,
    Scheduler,
)
from bareboat.schedulers.requests import (
    array_range,
    cpus_per_node,
    gpus_per_node,
    job_name,
    max_concurrent,
    mebibytes,
    quoted,
)
from bareboat.schedulers.tool_output import (
    check_answered,
    each_line,
    found_job_id,
    name_in,
    number_or_none,
    output_tail,
    unanswered,
    unresponsive,
    version_in,
)
from bareboat_base.errors import PlanError
from bareboat_base.outcome import signal_of

#: https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=information-termination-reasons-displayed-by-bacct-bhist-bjobs
_TERMS = {
    "TERM_MEMLIMIT": JobState.OUT_OF_MEMORY,
    "TERM_SWAP": JobState.OUT_OF_MEMORY,
    "TERM_RUNLIMIT": JobState.TIMEOUT,
    "TERM_DEADLINE": JobState.TIMEOUT,
    "TERM_WINDOW": JobState.TIMEOUT,
    "TERM_PREEMPT": JobState.PREEMPTED,
    "TERM_OWNER": JobState.CANCELLED,
    "TERM_FORCE_OWNER": JobState.CANCELLED,
    "TERM_ADMIN": JobState.CANCELLED,
    "TERM_FORCE_ADMIN": JobState.CANCELLED,
}
_STATES = {
    "PEND": JobState.PENDING,
    "PSUSP": JobState.PENDING,
    "WAIT": JobState.PENDING,
    "PROV": JobState.PENDING,
    "RUN": JobState.RUNNING,
    "USUSP": JobState.RUNNING,
    "SSUSP": JobState.RUNNING,
    "DONE": JobState.COMPLETED,
    "EXIT": JobState.FAILED,
    "UNKWN": JobState.UNKNOWN,
    "ZOMBI": JobState.UNKNOWN,
}


class LSF(Scheduler):
    NAME = "lsf"
    TITLE = "LSF"
    SIGNALS_BY_FILE = True
    SUBMITS_STDIN = True  # only there does bsub read #BSUB lines
    #: bsub appends its report to the output.
    MARKS = tuple(Mark(pattern=rf"{word}: ", state=state) for word, state in _TERMS.items())
    UNTESTED = "not tested with a real LSF; written from its documentation"
    JOB_ID = '"${LSB_JOBID:-$$}"'
    JOB_ID_FORM = r"\d{1,20}(\[\d{1,10}\])?"
    JOB_VARIABLE = "LSB_JOBID"
    VARIABLES = ("LSB_",)
    PING = "lsid"
    LIST = "bjobs"
    ARRAY = Array(index="$((${LSB_JOBINDEX:-0} - 1))", job_id='"${LSB_JOBID:-$$}[${LSB_JOBINDEX:-0}]"')

    def snippet(self) -> str:
        return bash.piece(__package__, self.NAME) + "\n" + bash.piece("bareboat.schedulers", "by_host")

    def allocation(self, environment: Mapping[str, str], count_hosts: CountHosts) -> Allocation | None:
        number = environment.get(self.JOB_VARIABLE, "")
        if not number:
            return None
        nodes = count_hosts(environment.get("LSB_DJOB_HOSTFILE", ""))
        return Allocation(scheduler=self.NAME, job_id=number, nodes=nodes)

    def probe(self, runner: CommandRunner) -> SchedulerFacts | None:
        if runner.which("bsub") is None:
            return None
        told, queues = runner.run_all(
            (("lsid",), ("bqueues", "-o", "queue_name status max delimiter='|'", "-noheader"))
        )
        version = version_in(told.stdout, r"LSF (?:Standard|Suite|Advanced|Community|Express)?\D*(\d[\d.]*)")
        if not queues.ok:
            return unresponsive(self.NAME, self.TITLE, queues)
        remarks = unanswered(told)

        def read(line: str) -> Partition:
            name, status, _ = line.split("|")
            name = name_in(name.strip())
            return Partition(name=name, up="Open:Active" in status)

        partitions = each_line("bqueues", queues.stdout, read, remarks)
        return SchedulerFacts(
            name=self.NAME, version=version, partitions=tuple(partitions), remarks=tuple(remarks)
        )

    def objection(self, job: Job, site: Site) -> Refusal | None:
        found = super().objection(job, site)
        if found is None and job.scheduling.qos is not None:
            return Refusal(
                "LSF does not support qos", 'remove qos; for a service class:  options = ["-sla NAME"]'
            )
        return found

    def directives(self, job: Job, site: Site) -> tuple[str, ...]:
        scheduling, topology = job.scheduling, job.topology
        slots = cpus_per_node(job)
        name, elements = job_name(job), array_range(job, first=1)
        if elements is not None:
            name = f'"{name}[{elements}]' + (f"%{max_concurrent(job)}" if max_concurrent(job) else "") + '"'
        options = [f"-J {name}", f"-n {slots * topology.nodes}", f'-R "span[ptile={slots}]"']
        if gpus_per_node(job):
            options.append(f'-gpu "num={gpus_per_node(job)}"')  # per host
        if job.walltime_s is not None:
            minutes = -(-job.walltime_s // 60)
            options.append(f"-W {minutes // 60}:{minutes % 60:02d}")
        if scheduling.mem_per_node_bytes is not None:
            options.append(f'-R "rusage[mem={mebibytes(scheduling.mem_per_node_bytes)}MB/host]"')
        if scheduling.constraint is not None:
            options.append(f'-R "select[{scheduling.constraint}]"')
        for flag, value in (
            ("-q", scheduling.partition),
            ("-P", scheduling.account),
            ("-U", scheduling.reservation),
        ):
            if value is not None:
                options.append(f"{flag} {quoted(value)}")
        if scheduling.exclusive:
            options.append("-x")
        if scheduling.after:
            options.append('-w "' + " && ".join(f"done({number})" for number in scheduling.after) + '"')
        options.append("-r" if scheduling.requeue else "-rn")
        return tuple(f"#BSUB {option}" for option in (*options, *scheduling.options))

    def submit(self, script: str, log: str) -> tuple[str, ...]:
        return ("bsub", "-o", log)

    def log_pattern(self, path: str, *, is_array: bool = False) -> str:
        return f"{path}.%I" if is_array else path

    def element_logs(self, path: str, index: int) -> tuple[str, ...]:
        return (f"{path}.{index + 1}",)

    def job_id(self, outcome: Outcome) -> str:
        if not outcome.ok:
            raise PlanError("LSF rejected the job", context=output_tail(outcome), remedy="bqueues")
        return found_job_id(outcome, r"Job <(\d+)> is submitted")

    def queries(self, job_ids: Sequence[str]) -> tuple[Query, ...]:
        # JOB[ELEMENT]: queried by the array's ID, which reports all elements.
        arrays = any("[" in job_id for job_id in job_ids)
        index = "jobindex " if arrays else ""
        columns = f"jobid {index}stat exit_code exec_host pend_reason exit_reason delimiter='|'"
        asked = dict.fromkeys(job_id.partition("[")[0] for job_id in job_ids)
        return (
            Query(
                ("bjobs", "-a", "-noheader", "-o", columns, *asked),
                _elements_of(job_ids) if arrays else _entries,
                _odd,
            ),
        )

    def element(self, job_id: str, index: int) -> str:
        return f"{job_id}[{index + 1}]"

    def cancel(self, job_id: str) -> tuple[str, ...]:
        return ("bkill", job_id)

    def attach(self, job_id: str, words: Sequence[str] | None) -> tuple[str, ...] | None:
        return None if words is not None else ("battach", "-L", "/bin/bash", job_id)


_FORGOTTEN = r"is not found|no (matching|unfinished)? ?jobs? found"


#: The pending reason of a job that waited for one that failed.
_NEVER = "ependency condition invalid or never satisfied"


def _odd(outcome: Outcome) -> list[str]:
    """The lines that do not begin with a job ID, or are too short."""
    return [
        line
        for line in outcome.stdout.splitlines()
        if line.strip()
        and (line.count("|") < 4 or not line.partition("|")[0].strip().isdecimal())
        and not re.search(_FORGOTTEN, line, re.IGNORECASE)
    ]


def _elements_of(job_ids: Sequence[str]) -> Callable[[Outcome], tuple[QueueEntry, ...]]:
    wanted = frozenset(job_ids)

    def parse(outcome: Outcome) -> tuple[QueueEntry, ...]:
        check_answered(outcome, _FORGOTTEN)
        found = []
        for line in outcome.stdout.splitlines():
            number, _, rest = line.partition("|")
            index, _, rest = rest.partition("|")
            named = [number.strip(), f"{number.strip()}[{index.strip()}]"]
            for entry in _entries(msgspec.structs.replace(outcome, stdout=f"{number}|{rest}")):
                found += [msgspec.structs.replace(entry, job_id=name) for name in named if name in wanted]
        return tuple(found)

    return parse


def _entries(outcome: Outcome) -> tuple[QueueEntry, ...]:
    check_answered(outcome, _FORGOTTEN)
    found = []
    for line in outcome.stdout.splitlines():
        words = line.split("|")
        if len(words) < 5 or not words[0].strip().isdecimal():
            continue
        number, state, code, hosts, reason = (word.strip() for word in words[:5])
        told = _STATES.get(state, JobState.UNKNOWN)
        ended = words[5].strip() if len(words) > 5 else "-"
        if told is JobState.FAILED and ended not in ("-", ""):
            told, reason = _TERMS.get(ended.partition(":")[0], told), ended
        elif told is JobState.FAILED and code == "140":  # TERM_RUNLIMIT's SIGUSR2
            told = JobState.TIMEOUT
        nodes = ",".join(
            dict.fromkeys(re.sub(r"^\d+\*", "", host) for host in hosts.split(":") if host != "-")
        )
        found.append(
            QueueEntry(
                job_id=number,
                state=told,
                reason="" if reason == "-" else reason,
                stuck="then submit it again" if told is JobState.PENDING and _NEVER in reason else "",
                nodes=nodes,
                signal=signal_of(number_or_none(code) or 0) if told is JobState.FAILED else 0,
            )
        )
    return tuple(found)
