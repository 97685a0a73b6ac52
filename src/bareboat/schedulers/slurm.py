"""Slurm. Manuals: https://slurm.schedmd.com/man_index.html (tested with 22.05 and 24.11)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from bareboat import bash
from bareboat.model import (
    Job,
    JobState,
    Mark,
    Outcome,
    Partition,
    QueueEntry,
    SchedulerFacts,
    Site,
)
from bareboat.schedulers import (
    CLUSTER,
    Allocation,
    Array,
    ClusterQuery,
    CommandRunner,
    CountHosts,
    Query,
    Scheduler,
)
from bareboat.schedulers.by_partition import CLOSED, MAX_ARRAY
from bareboat.schedulers.requests import (
    array_range,
    clock,
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
    number,
    number_or_none,
    output_tail,
    unanswered,
    unresponsive,
    version_in,
)
from bareboat_base.errors import ToolError

#: A plug-in in the list of `srun --mpi=list`, which has one per line, or commas.
_MPI_PLUGIN = re.compile(r"\b(pmix(?:_v\d+)?|pmi2|pmi1|cray_shasta|none|openmpi)\b")
#: What salloc reports of its tasks, which are the ranks: srun would give the one task of a step no more.
_OF_TASKS = ("SLURM_CPUS_PER_TASK", "SLURM_TRES_PER_TASK")
_CANCELLED = r"slurmstepd(-\S+)?: error: \*\*\* (JOB|STEP) \S+ ON .* CANCELLED AT .* DUE TO "
_STATES = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED"), JobState.PENDING),
    **dict.fromkeys(("SPECIAL_EXIT", "RESV_DEL_HOLD"), JobState.PENDING),
    **dict.fromkeys(("RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "STOPPED"), JobState.RUNNING),
    **dict.fromkeys(("SUSPENDED", "RESIZING"), JobState.RUNNING),
    "COMPLETED": JobState.COMPLETED,
    "FAILED": JobState.FAILED,
    **dict.fromkeys(("BOOT_FAIL", "NODE_FAIL"), JobState.NODE_FAIL),
    **dict.fromkeys(("CANCELLED", "REVOKED"), JobState.CANCELLED),
    "PREEMPTED": JobState.PREEMPTED,
    **dict.fromkeys(("TIMEOUT", "DEADLINE"), JobState.TIMEOUT),
    "OUT_OF_MEMORY": JobState.OUT_OF_MEMORY,
}  # https://slurm.schedmd.com/squeue.html#SECTION_JOB-STATE-CODES


#: Patterns of what `sbatch` prints for a refusal that was not predicted, and the remedies.
_REJECTIONS = (
    (
        r"AssocMax|AssocGrp",
        "use another --account: this one has expired or is exhausted; sacctmgr show associations users=$USER",
    ),
    (r"[Ii]nvalid account", "sacctmgr show associations users=$USER format=account,partition"),
    (r"[Ii]nvalid partition|partition", "sinfo"),
    (r"[Ii]nvalid qos|QOS", "sacctmgr show qos format=name,maxwall,maxtres"),
    (r"node configuration|not available", "sinfo -N -l   # lists the nodes' resources"),
    (r"[Rr]eservation", "scontrol show reservation"),
    (r"feature", "sinfo -o '%P %f'   # lists the nodes' features"),
    (r"[Tt]ime limit", "sinfo -o '%P %l'   # lists the time limits"),
    (r"dependency", "remove after from [scheduling], or name existing jobs"),
    (r"Unable to contact|slurm_load", "scontrol ping"),
    ("", "correct [scheduling] in the job file, or ask the administrator"),
)


class Slurm(Scheduler):
    NAME = "slurm"
    TITLE = "Slurm"
    WARNS = True
    RESTART = r".*(CANCELLED|CANCELED) AT .* DUE TO (JOB REQUEUE|PREEMPTION|NODE FAILURE).*"
    MARKS = (
        Mark(
            pattern=r"slurmstepd(-\S+)?: error: .*([Ee]xceeded (job |step )?memory limit|oom[-_]kill event)",
            state=JobState.OUT_OF_MEMORY,
        ),
        Mark(pattern=r"srun: error: .*: Out Of Memory", state=JobState.OUT_OF_MEMORY),
        Mark(pattern=_CANCELLED + "TIME LIMIT", state=JobState.TIMEOUT),
        Mark(pattern=_CANCELLED + "PREEMPTION", state=JobState.PREEMPTED),
        Mark(pattern=_CANCELLED + "NODE FAILURE", state=JobState.NODE_FAIL),
    )
    PARTITION = "partition"
    NEEDS_PARTITION = True
    PING = "scontrol ping"
    IN_SLURM = True
    CLUSTERS = ClusterQuery(("scontrol", "show", "config"), r"^ClusterName\s*=\s*([\w.-]{1,255})\s*$")
    JOB_ID = '"${SLURM_JOB_ID:-$$}"'
    JOB_ID_FORM = r"\d{1,20}(_\d{1,10})?(\+\d{1,10})?"
    JOB_ID_PRINTED = r"^(\d+)(?:;.*)?$"
    REJECTIONS = _REJECTIONS
    JOB_VARIABLE = "SLURM_JOB_ID"
    VARIABLES = ("SLURM_",)
    LIST = "squeue --me"
    ARRAY = Array(
        index="${SLURM_ARRAY_TASK_ID-}", job_id='"${SLURM_ARRAY_JOB_ID-$$}_${SLURM_ARRAY_TASK_ID-}"'
    )

    def snippet(self) -> str:
        return bash.piece(__package__, self.NAME)

    def allocation(self, environment: Mapping[str, str], count_hosts: CountHosts) -> Allocation | None:
        number, nodes = environment.get(self.JOB_VARIABLE, ""), environment.get("SLURM_JOB_NUM_NODES", "")
        if not (number.isdecimal() and nodes.isdecimal()):
            return None
        here = "SLURMD_NODENAME" in environment  # else salloc's shell, on the login node
        words = ("srun", f"--jobid={number}", "--overlap", "--mem=0", "--nodes=1", "--ntasks=1", "--mpi=none")
        return Allocation(
            scheduler=self.NAME, job_id=number, nodes=int(nodes), here=here, start=() if here else words,
            of_tasks={name: environment[name] for name in _OF_TASKS if name in environment},
        )  # fmt: skip

    def probe(self, runner: CommandRunner) -> SchedulerFacts | None:
        if runner.which("sbatch") is None or runner.which("sinfo") is None:
            return None
        # Concurrently: a busy controller takes seconds for each.
        told, shown, every, nodes, plugins, config, associations = runner.run_all(
            (
                ("sbatch", "--version"),
                ("scontrol", "--oneliner", "show", "partition"),
                ("scontrol", "--all", "--oneliner", "show", "partition"),
                ("sinfo", "--noheader", "--format=%R|%c|%m|%G"),
                ("srun", "--mpi=list"),
                self.CLUSTERS.argv,
                ("sacctmgr", "--noheader", "--parsable2", "show", "associations", f"users={runner.user}",
                 "format=account"),
            )
        )  # fmt: skip
        # "slurm 24.11.5"; on Debian "slurm-wlm 22.05.8".
        version = version_in(told.stdout, r"slurm\S*\s+(\d[\w.-]*)")
        if not shown.ok:
            return unresponsive(self.NAME, self.TITLE, shown, version=version)
        remarks = unanswered(told, nodes, plugins, config, associations)
        partitions = _partitions(shown.stdout, nodes.stdout, remarks)
        accounts, settings = _accounts(associations, config.stdout)
        hidden, closed = _unlisted(every.stdout if every.ok else "", partitions, nodes.stdout)
        if closed:
            settings[CLOSED] = ",".join(closed)
        if name := self.CLUSTERS.name(config):
            settings[CLUSTER] = name
        # Elements are numbered from 0, so this is the first invalid number.
        largest = re.search(r"^MaxArraySize\s*=\s*(\d{1,12})$", config.stdout, re.MULTILINE)
        if largest is not None:
            settings[MAX_ARRAY] = largest[1]
        return SchedulerFacts(
            name=self.NAME,
            version=version,
            partitions=(*partitions, *hidden),
            accounts=accounts,
            mpi_plugins=tuple(dict.fromkeys(_MPI_PLUGIN.findall(plugins.stdout + plugins.stderr))),
            settings=settings,
            remarks=tuple(remarks),
        )

    def directives(self, job: Job, site: Site) -> tuple[str, ...]:
        topology, scheduling = job.topology, job.scheduling
        elements = array_range(job)
        if max_concurrent(job):
            elements = f"{elements}%{max_concurrent(job)}"
        named = ("partition", "account", "qos", "reservation", "constraint")
        options = given(
            ("--job-name={}", job_name(job)),
            ("--nodes={}", topology.nodes),
            ("--ntasks-per-node={}", topology.ranks_per_node),
            ("--cpus-per-task={}", topology.cpus_per_rank or 1),
            ("--gres=gpu:{}", gpus_per_node(job)),
            ("--mem={}M", mebibytes(scheduling.mem_per_node_bytes)),
            ("--time={}", job.walltime_s and clock(-(-job.walltime_s // 60) * 60)),  # Slurm counts minutes
            *((f"--{name}={{}}", quoted(getattr(scheduling, name))) for name in named),
            ("--exclusive", scheduling.exclusive),
            ("--dependency=afterok:{}", ":".join(scheduling.after)),
            ("--kill-on-invalid-dep=yes", scheduling.after),  # else it waits forever for a job that failed
            ("--requeue" if scheduling.requeue else "--no-requeue", True),
            ("--signal=B:USR1@{}", scheduling.warning_s),  # B: to the script, which passes it on
            ("--open-mode=append", True),
            ("--array={}", elements),
        )
        return tuple(f"#SBATCH {option}" for option in (*options, *scheduling.options))

    def submit(self, script: str, log: str) -> tuple[str, ...]:
        return ("sbatch", "--parsable", f"--output={log}", script)

    def log_pattern(self, path: str, *, is_array: bool = False) -> str:
        return path.replace("%", "%%") + (".%a" if is_array else "")

    def element_logs(self, path: str, index: int) -> tuple[str, ...]:
        return (f"{path}.{index}",)

    def queries(self, job_ids: Sequence[str]) -> tuple[Query, ...]:
        wanted = frozenset(job_ids)

        # ARRAY_ELEMENT is needed to separate an array's elements. Query by the array's ID, since a list of
        # thousands of elements is too long for an argument.
        arrays = any("_" in job_id for job_id in job_ids)
        asked = dict.fromkeys(job_id.partition("_")[0] for job_id in job_ids)

        def live(outcome: Outcome) -> tuple[QueueEntry, ...]:
            if not outcome.ok:
                raise ToolError(
                    "squeue does not answer", context=output_tail(outcome), remedy="scontrol ping"
                )
            return tuple(
                entry for entry in map(_entry, outcome.stdout.splitlines()) if entry.job_id in wanted
            )

        def ended(outcome: Outcome) -> tuple[QueueEntry, ...]:
            # Without accounting, only the run's own exit code is known.
            entries = map(_entry, outcome.stdout.splitlines()) if outcome.ok else ()
            return tuple(
                msgspec.structs.replace(entry, job_id=job_id)
                for entry in entries
                for job_id in _elements(entry.job_id, wanted)
                if not arrays or job_id in wanted
            )

        return (
            # All states: the controller knows a job's end for some minutes, the accounts later.
            Query(
                ("squeue", "--noheader", "--me", "--states=all", *(["--array"] if arrays else []),
                 "--format=%i|%T|%r|%N|%e"),
                live,
                _odd,
            ),
            Query(
                ("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={','.join(asked)}",
                 f"--format={'JobID' if arrays else 'JobIDRaw'},State,Reason,NodeList,End"),
                ended, _odd,
            ),
        )  # fmt: skip

    def element(self, job_id: str, index: int) -> str:
        return f"{job_id}_{index}"

    def cancel(self, job_id: str) -> tuple[str, ...]:
        return ("scancel", job_id)

    def attach(self, job_id: str, words: Sequence[str] | None) -> tuple[str, ...] | None:
        words = words or _SHELL
        if "_" in job_id:  # srun accepts only an element's own job ID, which squeue knows
            return ("bash", "-c", _ATTACH, job_id, *words)
        return ("srun", f"--jobid={job_id}", "--overlap", "--mem=0", "--nodes=1", "-n1", "--pty", *words)


def _partitions(shown: str, nodes: str, remarks: list[str]) -> tuple[Partition, ...]:
    """The partitions from `scontrol -o show partition` and `sinfo -h -o '%R|%c|%m|%G'` (numbers may end with
    +)."""
    largest: dict[str, tuple[int, int, int]] = {}

    def read_nodes(line: str) -> None:
        name, cpus, mem_mb, gres = line.strip().split("|")
        counts = re.findall(r"gpu(?::[A-Za-z_][\w.-]*)?(?::(\d+))?", gres)
        now = (
            number(cpus.rstrip("+")),
            number(mem_mb.rstrip("+")),
            sum(number(each or "1") for each in counts),
        )
        before = largest.get(name, (0, 0, 0))
        largest[name] = (max(before[0], now[0]), max(before[1], now[1]), max(before[2], now[2]))

    def read_partition(line: str) -> Partition:
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        name = name_in(fields["PartitionName"])
        cpus_each, mem_each, gpus_each = largest.get(name, (0, 0, 0))
        accounts = fields.get("AllowAccounts", "ALL")
        return Partition(
            name=name,
            default=fields.get("Default") == "YES",
            # DOWN queues jobs, and DRAIN starts those that it has.
            up=fields.get("State", "UP") in ("UP", "DOWN"),
            starts=fields.get("State", "UP") in ("UP", "DRAIN"),
            nodes=number_or_none(fields.get("TotalNodes", "")),
            max_nodes=number_or_none(fields.get("MaxNodes", "")),
            max_time_s=seconds(fields.get("MaxTime", "UNLIMITED")),
            cpus_per_node=cpus_each or None,
            mem_per_node_bytes=mem_each * 2**20 if mem_each > 1 else None,
            gpus_per_node=gpus_each if name in largest else None,
            accounts=() if accounts in ("ALL", "(null)") else tuple(accounts.split(",")),
        )

    each_line("sinfo", nodes, read_nodes, remarks)
    return tuple(each_line("scontrol", shown, read_partition, remarks))


def _unlisted(
    every: str, listed: Sequence[Partition], nodes: str
) -> tuple[tuple[Partition, ...], tuple[str, ...]]:
    """The partitions that only `scontrol --all` shows: those that are hidden, and the names of those that are
    not open to the user's groups."""
    known = {partition.name for partition in listed}
    found = [each for each in _partitions(every, nodes, []) if each.name not in known]
    visible = set(re.findall(r"(?m)^PartitionName=(\S+) .*\bHidden=NO\b", every))
    return (
        tuple(each for each in found if each.name not in visible),
        tuple(each.name for each in found if each.name in visible),
    )


def seconds(text: str) -> int | None:
    """Slurm's D-HH:MM:SS, HH:MM:SS, MM:SS or minutes; None for no limit and for other text."""
    part = r"([0-9]{1,9})"
    found = re.fullmatch(rf"(?:{part}-)?{part}(?::{part})?(?::{part})?", text)
    if found is None:
        return None
    days, *rest = (int(part) if part is not None else None for part in found.groups())
    first, second, third = rest
    assert first is not None
    if days is not None:
        return ((days * 24 + first) * 60 + (second or 0)) * 60 + (third or 0)
    if third is not None:
        return (first * 60 + (second or 0)) * 60 + third
    if second is not None:
        return first * 60 + second
    return first * 60


def _accounts(told: Outcome, config: str) -> tuple[tuple[str, ...] | None, dict[str, str]]:
    """The accounts of this user from slurmdbd, if used, and whether Slurm enforces them."""
    settings = {}
    enforced = re.search(r"^AccountingStorageEnforce\s*=\s*(.*)$", config, re.MULTILINE)
    if enforced is not None and "associations" in enforced[1]:
        settings["accounts"] = "enforced"
    if not re.search(r"^AccountingStorageType\s*=\s*accounting_storage/slurmdbd", config, re.MULTILINE):
        return None, settings
    if not told.ok:
        return None, settings
    return tuple(dict.fromkeys(filter(None, told.stdout.split()))), settings


_NEVER_SATISFIED = "DependencyNeverSatisfied"


#: Reasons for which a pending job never starts by itself, and what to do. Texts of several words are
#: slurmctld's, for jobs that it holds after a failed start.
_STUCK = (
    (r"JobHoldMaxRequeue|.*requeued[ _](?:in[ _])?held.*", "or correct the cause, then: scontrol release {}"),
    (
        r"BadConstraints|PartitionTimeLimit|MaxMemPerLimit|(?:QOS|Assoc)Max\w+Per(?:Job|Node)\w*|QOSMin\w+",
        "then submit it with other requests",
    ),
    (r"Invalid(?:Account|QOS)|(?:Account|QOS)NotAllowed", "then submit it with another account or qos"),
)
#: The same for a job that starts when somebody permits it.
_WAITS_FOR_SOMEBODY = {
    "JobHeldUser": "release it: scontrol release {}",
    "JobHeldAdmin": "only an administrator can release it",
    "PartitionDown": "its partition starts no jobs now: sinfo",
    "PartitionInactive": "its partition starts no jobs now: sinfo",
}


def _odd(outcome: Outcome) -> list[str]:
    """The lines that do not begin with the ID and state of a job."""
    shape = re.compile(r"\d[\w\[\],%+.-]*\|[A-Z_]+(?: by \d+)?\+?(?:\||$)")
    return [line for line in outcome.stdout.splitlines() if line.strip() and not shape.match(line.strip())]


def _elements(job_id: str, wanted: Collection[str]) -> list[str]:
    """sacct reports elements that never ran together: 17_[2,4-6%2]."""
    number, _, listed = job_id.partition("_[")
    if not listed:
        return [job_id]
    ranges = re.findall(r"(\d{1,9})(?:-(\d{1,9}))?(?=[,\]%])", listed.partition("%")[0].rstrip("]") + "]")
    return [
        each
        for each in wanted
        if each.startswith(f"{number}_") and (index := number_or_none(each[len(number) + 1 :])) is not None
        if any(int(first) <= index <= int(last or first) for first, last in ranges)
    ]


def _entry(line: str) -> QueueEntry:
    number, state, reason, nodes, ended = (*line.strip().split("|"), "", "", "", "")[:5]
    word, _, who = state.partition(" ")  # "CANCELLED by 1000"
    if reason in ("None", ""):
        reason = f"{who} (user ID)" if re.fullmatch(r"by \d+", who) else ""
    raised = re.match(r"RaisedSignal:(\d{1,2})", reason)
    job_state = _STATES.get(word.rstrip("+"), JobState.UNKNOWN)
    if reason == _NEVER_SATISFIED and job_state in (JobState.PENDING, JobState.CANCELLED):
        job_state = JobState.DEPENDENCY
    stuck = ""
    if job_state is JobState.PENDING:
        stuck = next((words for shape, words in _STUCK if re.fullmatch(shape, reason)), "").format(number)
        reason += f"; {what}".format(number) if (what := _WAITS_FOR_SOMEBODY.get(reason)) else ""
    return QueueEntry(
        job_id=number,
        state=job_state,
        reason=reason,
        stuck=stuck,
        signal=int(raised[1]) if raised is not None else 0,
        nodes="" if nodes == "None assigned" else nodes,
        # Of a job that runs, when its time limit will end it.
        ended_at_epoch_s=moment(ended, "%Y-%m-%dT%H:%M:%S") if job_state.over else None,
    )


_ATTACH = (
    'exec srun --jobid="$(squeue --noheader --jobs="$0" --format=%A)" --overlap --mem=0 --nodes=1 --ntasks=1 '
    '--pty "$@"'
)


_SHELL = ("bash", "-i")
