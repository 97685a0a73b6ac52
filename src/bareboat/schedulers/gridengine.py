"""Grid Engine: tested with Son of Grid Engine 8.1.9; Univa's and Altair's have the same options.

Manuals: http://gridscheduler.sourceforge.net/htmlman/manuals.html (qsub, qstat, qconf, sge_pe, qrsh).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from bareboat import bash
from bareboat.model import (
    Job,
    JobState,
    Outcome,
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
    ErrorQuery,
    Query,
    Scheduler,
)
from bareboat.schedulers.by_partition import MAX_ARRAY
from bareboat.schedulers.gridengine_queues import (
    hosts_of,
    limits_of_queues,
    queues_of,
    seconds,
    size,
    too_much,
)
from bareboat.schedulers.requests import (
    array_range,
    cpus_per_node,
    given,
    gpus_per_node,
    job_name,
    max_concurrent,
    mebibytes,
    quoted,
)
from bareboat.schedulers.tool_output import (
    each_line,
    moment,
    name_in,
    number_or_none,
    output_tail,
    pairs,
    unanswered,
    unresponsive,
)
from bareboat_base.errors import ToolError
from bareboat_base.expressions import expression
from bareboat_base.outcome import signal_of
from bareboat_base.printable import one_line

#: Of `end_time` in the accounts: 8.1.9 and its like, and Univa's.
_TIMES = ("%a %b %d %H:%M:%S %Y", "%m/%d/%Y %H:%M:%S.%f", "%m/%d/%Y %H:%M:%S")
#: https://gridscheduler.sourceforge.net/htmlman/htmlman1/qstat.html ("state")
_STATE = expression(r"[dEhrRsStTNwqPxcmoa]{1,12}")
_MOST_NAMES = 10_000


#: The setting with what a request for GPUs is counted for, and what `qconf -sc` calls that.
GPU_PER = "gpu per"
_PER = {"YES": "slot", "JOB": "job"}


class GridEngine(Scheduler):
    NAME = "gridengine"
    TITLE = "Grid Engine"
    SIGNALS_BY_FILE = True
    AFTER_FAILURE = True
    JOB_ID = '"${JOB_ID:-$$}"'
    JOB_ID_FORM = r"\d{1,20}(\.\d{1,10})?"
    JOB_ID_PRINTED = r"^(\d+)(?:\.\S*)?\s*$"
    REJECTIONS = (("", "qstat -g c   # lists the queues"),)
    JOB_VARIABLE = "JOB_ID"
    VARIABLES = ("SGE_",)
    PING = "qstat -g c"
    LIST = 'qstat -u "$USER"'
    ARRAY = Array(index="$((${SGE_TASK_ID:-0} - 1))", job_id='"${JOB_ID-$$}.${SGE_TASK_ID-}"')

    def snippet(self) -> str:
        return bash.piece(__package__, self.NAME) + "\n" + bash.piece(__package__, "by_host")

    def allocation(self, environment: Mapping[str, str], count_hosts: CountHosts) -> Allocation | None:
        number = environment.get(self.JOB_VARIABLE, "")
        if not number or "SGE_TASK_ID" not in environment:  # JOB_ID alone may be from another program
            return None
        nodes = count_hosts(environment.get("PE_HOSTFILE", ""))
        return Allocation(scheduler=self.NAME, job_id=number, nodes=nodes)

    def probe(self, runner: CommandRunner) -> SchedulerFacts | None:
        if runner.which("qconf") is None or runner.which("qsub") is None:
            return None
        told, queues, environments, complexes, configuration, counts = runner.run_all(
            (
                ("qstat", "-help"), ("qconf", "-sql"), ("qconf", "-spl"), ("qconf", "-sc"),
                ("qconf", "-sconf"), ("qstat", "-g", "c"),
            )
        )  # fmt: skip
        version = one_line(
            (told.stdout or ("" if told.unanswered else told.stderr)).partition("\n")[0], limit=60
        )
        if not queues.ok:
            return unresponsive(self.NAME, self.TITLE, queues, version=version)
        settings: dict[str, str] = {}
        remarks = unanswered(told, environments, complexes, configuration, counts)
        names = _names(queues.stdout, remarks)
        rules = _names(environments.stdout, remarks) if environments.ok else []
        limited, instances, *described = runner.run_all(
            [("qconf", "-sq", ",".join(names)), ("qselect",), *(("qconf", "-sp", name) for name in rules)]
        )
        remarks += unanswered(limited, instances, *described)
        for name, outcome in zip(rules, described, strict=True):
            shown = pairs(outcome.stdout)
            if (
                shown.get("control_slaves", "").upper() == "TRUE"
                or shown.get("allocation_rule") == "$pe_slots"
            ):
                settings[f"pe {name}"] = f"{shown.get('allocation_rule', '')} {shown.get('slots', '')}"
        for resource in ("gpu", "gpus", "ngpus"):
            # name, shortcut, type, relop, requestable, consumable, default, urgency
            kind = re.search(rf"(?m)^{resource}\s+\S+\s+\S+\s+\S+\s+\S+\s+(\S+)", complexes.stdout)
            if kind is not None:
                settings |= {"gpu": resource, GPU_PER: _PER.get(kind[1], "host")}
                break
        hosts = hosts_of(instances.stdout)
        if hosts:
            settings["hosts"] = str(len(set().union(*hosts.values())))
        largest = re.search(r"(?m)^max_aj_tasks\s+(\d{1,12})$", configuration.stdout)
        if largest is not None and int(largest[1]):  # 0: no limit
            settings[MAX_ARRAY] = largest[1]
        return SchedulerFacts(
            name=self.NAME,
            version=version,
            partitions=queues_of(names, counts.stdout, limits_of_queues(limited.stdout, hosts), remarks),
            settings=settings,
            remarks=tuple(remarks),
        )

    def assumptions(self, job: Job) -> tuple[Mapping[str, str], str]:
        slots = cpus_per_node(job)
        words = f'a parallel environment "mpi" with {slots} slots on each node'
        if gpus_per_node(job):
            words += ' and a resource "gpu", counted on each node'
        return {"pe mpi": str(slots), "gpu": "gpu", GPU_PER: "host"}, words

    def objection(self, job: Job, site: Site) -> Refusal | None:
        found = super().objection(job, site)
        if found is not None:
            return found
        facts = site.scheduler(self.NAME)
        assert facts is not None  # excluded by the objection
        if job.scheduling.partition is None and (found := too_much(job, facts)) is not None:
            return found
        if not _is_single(job) and _environment(job, facts) is None:
            rules = ", ".join(
                f"{k[3:]} ({v.split(' ')[0]})" for k, v in facts.settings.items() if k[:3] == "pe "
            )
            return Refusal(
                f"no parallel environment has {cpus_per_node(job)} slots on each of {job.topology.nodes} "
                "nodes",
                f"set ranks_per_node x cpus_per_rank to match one of: {rules or 'none defined'}",
            )
        if gpus_per_node(job) and "gpu" not in facts.settings:
            return Refusal(
                "Grid Engine has no GPU resource on this cluster",
                "set gpus_per_rank = 0 and request a queue with GPUs",
            )
        if gpus_per_node(job) and (found := _uncountable(job, facts)) is not None:
            return found
        for name in ("qos", "constraint"):
            if getattr(job.scheduling, name) is not None:
                return Refusal(
                    f"Grid Engine does not support {name}",
                    f'remove {name}; for resources:  options = ["-l NAME=VALUE"]',
                )
        return None

    def directives(self, job: Job, site: Site) -> tuple[str, ...]:
        scheduling = job.scheduling
        facts = site.scheduler(self.NAME)
        settings = facts.settings if facts is not None else {}
        slots = cpus_per_node(job)
        environment = "" if _is_single(job) else f"{_environment(job, facts)} {slots * job.topology.nodes}"
        gpus = gpus_per_node(job) // (slots if settings.get(GPU_PER) == "slot" else 1)
        options = [f"-N {job_name(job)}", "-S /bin/bash", "-j y", "-cwd"]
        options += given(
            ("-pe {}", environment),
            ("-l h_rt={}", job.walltime_s),
            ("-l h_vmem={}M", -(-mebibytes(scheduling.mem_per_node_bytes) // slots)),  # per slot
            (f"-l {settings.get('gpu', 'gpu')}={{}}", gpus),
            ("-l exclusive=true", scheduling.exclusive),
            ("-q {}", quoted(scheduling.partition)),
            ("-P {}", quoted(scheduling.account)),
            ("-ar {}", quoted(scheduling.reservation)),
            ("-hold_jid {}", ",".join(scheduling.after)),
            ("-r y" if scheduling.requeue else "-r n", True),
            ("-t {}", array_range(job, first=1)),
            ("-tc {}", max_concurrent(job)),
        )
        return tuple(f"#$ {option}" for option in (*options, *scheduling.options))

    def submit(self, script: str, log: str) -> tuple[str, ...]:
        return ("qsub", "-terse", "-o", log, script)

    def log_pattern(self, path: str, *, is_array: bool = False) -> str:
        return f"{path}.$TASK_ID" if is_array else path

    def element_logs(self, path: str, index: int) -> tuple[str, ...]:
        return (f"{path}.{index + 1}",)

    def queries(self, job_ids: Sequence[str]) -> tuple[Query, ...]:
        wanted = frozenset(job_ids)

        def live(outcome: Outcome) -> tuple[QueueEntry, ...]:
            if not outcome.ok:
                raise ToolError("qstat does not answer", context=output_tail(outcome), remedy="qstat -g c")
            found = []
            for line in outcome.stdout.splitlines():
                words = line.split()
                if len(words) < 5:
                    continue
                job_id = words[0] if words[0] in wanted else f"{words[0]}.{words[-1]}"
                if job_id not in wanted:
                    continue
                nodes = next((word.partition("@")[2] for word in words[5:] if "@" in word), "")
                state = JobState.RUNNING if set(words[4]) & set("rtsSTN") else JobState.PENDING
                if not _STATE.fullmatch(words[4]):
                    state = JobState.UNKNOWN
                found.append(
                    QueueEntry(
                        job_id=job_id, state=state, nodes=nodes, reason=_why_it_waits(words[4], words[0]),
                        stuck=f"or correct the cause, then: qmod -cj {job_id}" if "E" in words[4] else "",
                    )
                )  # fmt: skip
            return tuple(found)

        def ended(outcome: Outcome) -> tuple[QueueEntry, ...]:
            # One paragraph for each start of a job or of an element.
            found: dict[str, QueueEntry] = {}
            for paragraph in re.split(r"(?m)^=+$", outcome.stdout):
                for entry in _accounted(paragraph, wanted):
                    found[entry.job_id] = entry
            return tuple(found.values())

        # JOB.ELEMENT: each element is reported separately.
        apart = ("-g", "d") if any("." in job_id for job_id in job_ids) else ()
        return (
            Query(("qstat", *apart, "-u", "*"), live, _odd),
            *(
                Query(("qacct", "-j", number), ended, _odd_accounting)
                for number in dict.fromkeys(job_id.partition(".")[0] for job_id in job_ids)
            ),
        )

    def error(self, job_id: str) -> ErrorQuery:
        number, _, element = job_id.partition(".")

        def parse(outcome: Outcome) -> str:
            # "error reason   ELEMENT:   DATE TIME [UID:PID]: error: TEXT"
            line = re.search(rf"(?m)^error reason\s+{element or 1}:\s+(.+)$", outcome.stdout)
            found = line and re.fullmatch(r"(?:[\d/]+ [\d:]+ \[\d+:\d+\]: )?(?:error: )?(.+)", line[1])
            return one_line(found[1]) if found else ""

        return ErrorQuery(("qstat", "-j", number), parse)

    def element(self, job_id: str, index: int) -> str:
        return f"{job_id}.{index + 1}"

    def cancel(self, job_id: str) -> tuple[str, ...]:
        number, _, task = job_id.partition(".")
        return ("qdel", number, "-t", task) if task else ("qdel", number)


def _uncountable(job: Job, facts: SchedulerFacts) -> Refusal | None:
    """Why the number of GPUs cannot be requested: a consumable is counted for each slot, or once for a job,
    on its first node."""
    gpus, slots, resource = gpus_per_node(job), cpus_per_node(job), facts.settings["gpu"]
    per = facts.settings.get(GPU_PER)
    if per == "slot" and gpus % slots:
        return Refusal(
            f"{resource} is counted per slot: {gpus} GPUs cannot be requested for {slots} slots on a node",
            f"set cpus_per_rank and ranks_per_node so that a node has {gpus} slots or fewer, or ask the "
            f"administrator to count {resource} by JOB (qconf -mc)",
        )
    if per == "job" and job.topology.nodes > 1:
        return Refusal(
            f"{resource} is counted once for a job, on its first node, and the job requires GPUs on "
            f"{job.topology.nodes} nodes",
            "set nodes = 1 under [topology]",
        )
    return None


def _names(text: str, remarks: list[str]) -> list[str]:
    """The names in a list of qconf, limited to a plausible number."""
    return each_line("qconf", text, lambda line: name_in(line.strip()), remarks)[:_MOST_NAMES]


def _environment(job: Job, facts: SchedulerFacts | None) -> str | None:
    """The parallel environment with the job's slots: a fixed number per node, or all on one node."""
    wanted = cpus_per_node(job)
    for key, value in sorted((facts.settings if facts is not None else {}).items()):
        if not key.startswith("pe "):
            continue
        rule, _, slots = value.partition(" ")
        fits = rule == str(wanted) or (job.topology.nodes == 1 and rule == "$pe_slots")
        if fits and (not slots.isdigit() or int(slots) >= wanted * job.topology.nodes):
            return key.removeprefix("pe ")
    return None


def _is_single(job: Job) -> bool:
    return job.topology.nodes == 1 and cpus_per_node(job) == 1


def _why_it_waits(state: str, number: str) -> str:
    """Why the job does not start yet, by its letters; "" when they do not show it."""
    if "E" in state:
        return f"state {state}: qstat -j {number}"
    return f"on hold, or waits for another job: qstat -j {number}" if "h" in state else ""


def _odd(outcome: Outcome) -> list[str]:
    """The lines of qstat that are neither a job's nor its heading."""
    return [
        line
        for line in outcome.stdout.splitlines()
        if (words := line.split())
        and words[0] != "job-ID"
        and not re.fullmatch(r"-+", words[0])
        and not (len(words) >= 5 and words[0].isdecimal() and _STATE.fullmatch(words[4]))
    ]


def _odd_accounting(outcome: Outcome) -> list[str]:
    found = re.search(r"(?m)^jobnumber\s+\d+", outcome.stdout)
    return [] if found or not outcome.ok else [line for line in outcome.stdout.splitlines() if line.strip()]


def _limit_reached(values: dict[str, str]) -> JobState | None:
    """The requested limit (qacct's `category`) that the job had reached when it was killed, since the
    accounts have one entry for h_rt, h_cpu and h_vmem. None where it reached none."""
    asked = dict(re.findall(r"\b([hs]_(?:rt|cpu|vmem|rss))=([\w.:]+)", values.get("category", "")))
    used = {"rt": values.get("ru_wallclock", ""), "cpu": values.get("cpu", "")}
    for name, state in (("rt", JobState.TIMEOUT), ("cpu", JobState.TIMEOUT)):
        spent = re.match(r"[0-9]{1,12}(\.[0-9]{0,6})?", used[name])
        for limit in (asked.get(f"h_{name}", ""), asked.get(f"s_{name}", "")):
            if spent is not None and limit and float(spent[0]) >= seconds(limit):
                return state
    peak = size(values.get("maxvmem", ""))
    for name in ("h_vmem", "s_vmem"):
        limit_bytes = size(asked.get(name, ""))
        # The accounts are written some time after the kill.
        slots = number_or_none(values.get("slots", "")) or 1
        if peak and limit_bytes and peak >= 0.95 * limit_bytes * slots:
            return JobState.OUT_OF_MEMORY
    return None


def _accounted(paragraph: str, wanted: Collection[str]) -> Iterator[QueueEntry]:
    """The entry of a paragraph of qacct, if its job is one of those."""
    values = pairs(paragraph)
    job_id = values.get("jobnumber", "")
    if job_id not in wanted:
        job_id += "." + values.get("taskid", "")
    if job_id not in wanted:
        return
    # "137                  (Killed)", or the number alone.
    code, failed = values.get("exit_status", "").split(" ")[0], values.get("failed", "")
    state = JobState.COMPLETED if code == "0" and failed == "0" else JobState.FAILED
    killed = signal_of(number_or_none(code) or 0)
    if killed or failed.startswith("37"):
        state = _limit_reached(values) or state
    known = code.isdecimal() and failed[:1].isdecimal()
    if failed.startswith("25") or not known:  # "25 : rescheduling"
        state = JobState.UNKNOWN
    # "100 : assumedly after job": the job was killed by an unknown sender.
    reason = "" if failed == "0" else failed
    yield QueueEntry(
        job_id=job_id,
        state=state,
        reason=reason,
        signal=killed,
        ended_at_epoch_s=moment(values.get("end_time", ""), *_TIMES),
    )
