"""PBS: Torque, and PBS Professional with OpenPBS where they differ.

Torque: https://support.adaptivecomputing.com/ (6.1, Administrator Guide, Commands Overview).
PBS Professional: https://2021.help.altair.com/2021.1/PBSProfessional/PBSUserGuide2021.1.pdf
Slurm also has a front end with Torque's commands (contribs/torque), without PBS_NODEFILE:
Slurm's own commands then reach the nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import structs

from bareboat import bash
from bareboat.model import (
    Job,
    JobState,
    Mark,
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
    Query,
    Scheduler,
    pbs_queues,
)
from bareboat.schedulers.requests import (
    array_range,
    clock,
    cpus_per_node,
    given,
    gpus_per_node,
    job_name,
    max_concurrent,
    mebibytes,
    quoted,
)
from bareboat.schedulers.tool_output import (
    check_answered,
    moment,
    number_or_none,
    pairs,
    unanswered,
    unresponsive,
    version_in,
)

_STATES = {
    **dict.fromkeys("QHWTM", JobState.PENDING),
    **dict.fromkeys("BRESU", JobState.RUNNING),
    **dict.fromkeys("CFX", JobState.COMPLETED),
}
#: Exit codes of a job that the server terminated. Both report signals as 256 and more.
_ENDED_BY_TORQUE = {"-10": JobState.OUT_OF_MEMORY, "-11": JobState.TIMEOUT}
_ENDED_BY_PRO = {"-26": JobState.OUT_OF_MEMORY, "-27": JobState.OUT_OF_MEMORY, "-29": JobState.TIMEOUT}


#: Patterns of what `qsub` prints, and the remedies.
_REJECTIONS = (
    ("queue", "qstat -Q -f   # shows the queues and their limits"),
    (
        "resource",
        "correct the resources under [topology] and [scheduling]; qmgr -c 'list resource' lists them",
    ),
    ("depend", "run the job that failed again, or remove it from after under [scheduling]"),
    ("", "bareboat submit --dry-run   # shows the plan; bareboat plan --script the #PBS lines"),
)
#: The keys to use instead of options of `-l`.
_INSTEAD = {
    "-l walltime": "set walltime_s, and remove it from options",
    "-l place": "set exclusive under [scheduling], and remove it from options",
    "-l mem": "set mem_per_node_bytes under [scheduling], and remove it from options",
    **dict.fromkeys(
        ("-l select", "-l nodes"),
        "set the keys under [topology], and constraint under [scheduling] for other resources of a node",
    ),
}
#: The substate of a job that qdel ended.
_DELETED = "91"


class PBS(Scheduler):
    NAME = "pbs"
    TITLE = "PBS"
    SIGNALS_BY_FILE = True
    MARKS = (
        Mark(pattern=r"=>> PBS: job killed: p?v?mem .*exceeded limit", state=JobState.OUT_OF_MEMORY),
        Mark(pattern=r"=>> PBS: job killed: walltime .*exceeded limit", state=JobState.TIMEOUT),
        Mark(pattern=r"=>> PBS: job killed: node \d+ .*requested job", state=JobState.NODE_FAIL),
    )
    UNTESTED = (
        "no test runs the servers of PBS Professional, OpenPBS and Torque; OpenPBS's output is parsed in "
        "tests, and Torque's commands run on Slurm"
    )
    JOB_ID = '"${PBS_JOBID:-${SLURM_JOB_ID:-$$}}"'
    JOB_ID_FORM = r"\d{1,20}(\[\d{0,10}\])?(\.[A-Za-z0-9_][A-Za-z0-9_.-]{0,200})?"
    JOB_ID_PRINTED = r"^(\d+(?:\[\d*\])?(?:\.[\w.-]+)?)\s*$"
    REJECTIONS = _REJECTIONS
    JOB_VARIABLE = "PBS_JOBID"
    VARIABLES = ("PBS_",)
    PING = "qstat -B"
    LIST = 'qstat -u "$USER"'
    # Professional's variable, and Torque's. On Slurm there is none: each point is a job of its own.
    ARRAY = Array(index="${PBS_ARRAY_INDEX:-${PBS_ARRAYID-}}", job_id=JOB_ID)

    def snippet(self) -> str:
        return bash.piece(__package__, "pbs") + "\n" + bash.piece(__package__, "by_host")

    def allocation(self, environment: Mapping[str, str], count_hosts: CountHosts) -> Allocation | None:
        number = environment.get(self.JOB_VARIABLE, "")
        if not number:
            return None
        nodes = count_hosts(environment.get("PBS_NODEFILE", ""))
        return Allocation(scheduler=self.NAME, job_id=number, nodes=nodes)

    def probe(self, runner: CommandRunner) -> SchedulerFacts | None:
        if (
            runner.which("qsub") is None
            or runner.which("pbsnodes") is None
            or runner.which("qconf") is not None
        ):
            return None
        about, queues, server, nodes = runner.run_all(
            (("qsub", "--version"), ("qstat", "-Q", "-f"), ("qstat", "-B", "-f"), ("pbsnodes", "-a"))
        )
        if about.unanswered:
            return unresponsive(self.NAME, self.TITLE, about)
        version, flavour = _flavour(about.stdout + about.stderr)
        if flavour == "front":
            version = version_in(runner.run(["sinfo", "--version"]).stdout)
        remarks = unanswered(queues, server, nodes)
        known = queues.ok and flavour != "front"
        return SchedulerFacts(
            name=self.NAME,
            version=version,
            detail="Torque's commands on Slurm" if flavour == "front" else "",
            partitions=pbs_queues.queues(queues.stdout, server.stdout, nodes.stdout, remarks)
            if known
            else (),
            settings={"flavour": flavour, **pbs_queues.settings(server.stdout if known else "")},
            remarks=tuple(remarks),
        )

    def objection(self, job: Job, site: Site) -> Refusal | None:
        found = super().objection(job, site)
        if found is None and job.scheduling.qos is not None and self._flavour_at(site) == "pro":
            return Refusal("PBS Professional does not support qos", "remove qos, or use --partition")
        if found is None and self._flavour_at(site) == "pro":
            point = next((each for each in job.scheduling.after if re.search(r"\[\d+\]", each)), None)
            if point is not None:
                return Refusal(
                    f"PBS Professional cannot wait for one point of a sweep ({point})",
                    "name the whole sweep in after under [scheduling]",
                )
        if found is None:
            found = self._twice(job, site)
        if found is None and max_concurrent(job) is not None and not self.has_arrays(site):
            return Refusal(
                "Torque's commands on Slurm do not support arrays: each point is a job of its own",
                "remove --at-once, or use --scheduler slurm",
            )
        return found

    def _twice(self, job: Job, site: Site) -> Refusal | None:
        """An option of the job that sets what a directive of its keys sets: qsub takes the first of two."""
        keys = structs.replace(job, scheduling=structs.replace(job.scheduling, options=()))
        ours = {name: line for line in self.directives(keys, site) for name in _set_by(line)}
        for option in job.scheduling.options:
            for name in _set_by(option):
                if name in ours:
                    return Refusal(
                        f'options: "{option}" and the job\'s own "{ours[name]}" set the same, and qsub takes '
                        "only the first",
                        _INSTEAD.get(name, "remove it from options under [scheduling]"),
                    )
        return None

    def warnings(self, job: Job, site: Site) -> tuple[str, ...]:
        found = super().warnings(job, site)
        if job.sweep is not None and not job.scheduling.requeue and self._flavour_at(site) == "pro":
            found += ("PBS accepts only sweeps with requeue = true: a point that loses its node runs again",)
        return found

    def directives(self, job: Job, site: Site) -> tuple[str, ...]:
        flavour = self._flavour_at(site)
        scheduling = job.scheduling
        options = [f"-N {job_name(job)[: 15 if flavour == 'torque' else 230]}", "-j oe"]
        options += _resources_pro(job) if flavour == "pro" else _resources_torque(job)
        at, is_pro = scheduling.reservation, flavour == "pro"
        options += given(
            ("-l walltime={}", job.walltime_s and clock(job.walltime_s)),
            ("-W {}", at and not is_pro and quoted(f"x=FLAGS:ADVRES:{at}")),
            ("-q {}", quoted((is_pro and at) or scheduling.partition)),  # a reservation is a queue there
            ("-A {}", quoted(scheduling.account)),
            ("-l {}", scheduling.qos and quoted(f"qos={scheduling.qos}")),
        )
        elements = array_range(job)
        if elements is not None and flavour != "front":
            if flavour == "pro" and elements == "0-0":
                elements = "0-1:2"  # arrays of one element fail
            limit = f"%{max_concurrent(job)}" if max_concurrent(job) else ""
            options.append(f"{'-J' if flavour == 'pro' else '-t'} {elements}{limit}")
        if scheduling.after:
            options.append("-W depend=afterok:" + ":".join(scheduling.after))
        if flavour != "front":
            # Professional accepts only arrays that may run again.
            again = scheduling.requeue or (flavour == "pro" and elements is not None)
            options.append(f"-r {'y' if again else 'n'}")
        lines = [f"#PBS {option}" for option in (*options, *scheduling.options)]
        if flavour == "front":  # its qsub has no such options and passes the script to sbatch
            lines += [f"#SBATCH --{'' if scheduling.requeue else 'no-'}requeue", "#SBATCH --open-mode=append"]
        return tuple(lines)

    def submit(self, script: str, log: str) -> tuple[str, ...]:
        folder, _, name = log.rpartition("/")
        # OpenPBS refuses other characters in -o, but not in the directory to which the path is relative.
        where, log = ((), log) if log.isascii() else (("env", "-C", folder), name)
        return (*where, "qsub", "-j", "oe", "-o", log, script)  # Slurm's front end ignores -j in #PBS lines

    def log_pattern(self, path: str, *, is_array: bool = False) -> str:
        return f"{path}.^array_index^" if is_array else path

    def element_logs(self, path: str, index: int) -> tuple[str, ...]:
        # Torque does not replace the pattern, and adds the number.
        return (f"{path}.{index}", f"{path}.^array_index^-{index}")

    def queries(self, job_ids: Sequence[str]) -> tuple[Query, ...]:
        # It fails for a job that the server has forgotten, but still reports the others. -x: Professional
        # also reports ended jobs; Torque does not support it, and forgets jobs after some minutes.
        # 17[3].server: an element; -t with the array's own ID reports all of them.
        asked = dict.fromkeys(re.sub(r"\[\d+\]", "[]", job_id) for job_id in job_ids)
        apart = ("-t",) if any("[]" in number for number in asked) else ()

        def now(outcome: Outcome) -> tuple[QueueEntry, ...]:
            # Without a history, which is the default of OpenPBS, the server forgets a job at its end.
            gone = {_number(name) for name in re.findall(_UNKNOWN, outcome.stdout + outcome.stderr)}
            lost = [
                QueueEntry(job_id=job_id, state=JobState.LOST, reason="it keeps no history of ended jobs")
                for job_id in job_ids
                if _number(job_id) in gone
            ]
            return (*_entries(outcome), *lost)

        live = Query(("qstat", *apart, "-f", *asked), now, _odd)
        if not any("." in number for number in asked):  # of Slurm's front end, whose qstat has no -x
            return (live,)
        return live, Query(("qstat", "-x", *apart, "-f", *asked), _entries)

    def element(self, job_id: str, index: int) -> str:
        return job_id.replace("[]", f"[{index}]")

    def has_arrays(self, site: Site) -> bool:
        return self._flavour_at(site) != "front"

    def _flavour_at(self, site: Site) -> str:
        facts = site.scheduler(self.NAME)
        return facts.settings.get("flavour", "torque") if facts is not None else "torque"

    def assumptions(self, job: Job) -> tuple[Mapping[str, str], str]:
        return {"flavour": "pro"}, "PBS Professional or OpenPBS"

    def cancel(self, job_id: str) -> tuple[str, ...]:
        return ("qdel", job_id)


def _set_by(option: str) -> list[str]:
    """What a directive or an option sets: its letter, of -l and -W each name."""
    words = re.match(r"(?:#PBS\s+)?(-\w)\s*(.*)", option.strip())
    if words is None:
        return []
    if words[1] not in ("-l", "-W"):
        return [words[1]]
    return [f"{words[1]} {name}" for name in re.findall(r"(?:^|,)\s*[\"']?(\w+)=", words[2])]


def _flavour(text: str) -> tuple[str, str]:
    """`pbs_version = 20.0.1` (Professional), `Version: 6.1.3` (Torque), or the usage of Slurm's front."""
    if pro := version_in(text, r"pbs_version\s*=\s*([\w.-]+)"):
        return pro, "pro"
    torque = version_in(text, r"[Vv]ersion:?\s*(\d[\w.]*)")
    return torque, "torque" if torque else "front"


def _resources_torque(job: Job) -> Iterator[str]:
    words = [f"nodes={job.topology.nodes}", f"ppn={cpus_per_node(job)}"]
    if gpus_per_node(job):
        words.append(f"gpus={gpus_per_node(job)}")
    if job.scheduling.constraint is not None:
        words.append(job.scheduling.constraint)
    yield "-l " + quoted(":".join(words))
    if job.scheduling.mem_per_node_bytes is not None:
        yield f"-l mem={mebibytes(job.scheduling.mem_per_node_bytes) * job.topology.nodes}mb"  # for the job
    if job.scheduling.exclusive:
        yield "-l naccesspolicy=singlejob"


def _resources_pro(job: Job) -> Iterator[str]:
    words = [
        f"select={job.topology.nodes}",
        f"ncpus={cpus_per_node(job)}",
        f"mpiprocs={job.topology.ranks_per_node}",
    ]
    if gpus_per_node(job):
        words.append(f"ngpus={gpus_per_node(job)}")
    if job.scheduling.mem_per_node_bytes is not None:
        words.append(f"mem={mebibytes(job.scheduling.mem_per_node_bytes)}mb")
    if job.scheduling.constraint is not None:
        words.append(job.scheduling.constraint)
    yield "-l " + quoted(":".join(words))
    yield "-l place=scatter" + (":excl" if job.scheduling.exclusive else "")


#: A server's message about a job that it does not know. Of one that has ended, the message names the end.
_UNKNOWN = r"Unknown Job Id(?: Error)? (\d[\w\[\].-]{0,250})"
#: The servers' messages about unknown jobs.
_FORGOTTEN = r"unknown job|has finished|not found|no such job"


def _number(job_id: str) -> str:
    """The number of a job or of an element's array, without the server."""
    return re.sub(r"\[\d*\]", "[]", job_id.partition(".")[0])


def _odd(outcome: Outcome) -> list[str]:
    """The lines before the first job, except messages about unknown jobs."""
    before = re.split(r"(?m)^Job Id:", outcome.stdout, maxsplit=1)[0]
    return [
        line
        for line in before.splitlines()
        if line.strip() and not re.search(_FORGOTTEN, line, re.IGNORECASE)
    ]


def _entries(outcome: Outcome) -> tuple[QueueEntry, ...]:
    # Not all versions support -x.
    if "-x" not in outcome.argv:
        check_answered(outcome, _FORGOTTEN)
    # Long values continue in the next line after a tab; Slurm's front end also has a tab before names.
    text = re.sub(r"\n\t(?![A-Za-z_][\w.]* = )", "", outcome.stdout)
    found = []
    for paragraph in re.split(r"(?m)^Job Id:\s*", text)[1:]:
        number, _, rest = paragraph.partition("\n")
        values = pairs(rest, " = ")
        state = _state(values)
        status = number_or_none(values.get("exit_status") or values.get("Exit_status", ""))
        comment = values.get("comment", "")
        above = status - 256 if status is not None else 0
        hosts = re.findall(r"([\w.-]+)/", values.get("exec_host", ""))
        found.append(
            QueueEntry(
                job_id=number.strip(),
                state=state,
                reason=_pause(values) or comment or _why_it_waits(values, state, number.strip()),
                stuck=_stuck(comment) if state is JobState.PENDING else "",
                nodes=",".join(dict.fromkeys(hosts)),
                signal=above if state.over and 0 < above <= 64 else 0,
                exit_code=status if state.over and above < 0 else None,
                ended_at_epoch_s=_ended_at(values) if state.over else None,
            )
        )
    return tuple(found)


def _pause(values: dict[str, str]) -> str:
    """Of a job that waits for its time (qsub -a), or that was suspended: its comment is older."""
    match values.get("job_state"):
        case "W":
            return f"waits until {values.get('Execution_Time') or 'its start time'}"
        case "S" | "U":
            return (
                "suspended by the scheduler"
                if values["job_state"] == "S"
                else "suspended by the node's owner"
            )
        case _:
            return ""


def _why_it_waits(values: dict[str, str], state: JobState, job_id: str) -> str:
    """Why a job without a comment does not start; "" when unknown."""
    if state is not JobState.DEPENDENCY and values.get("job_state") != "H":
        return ""
    by_user = "u" in values.get("Hold_Types", "")
    return values.get("depend") or ("on hold" + (f"; release it: qrls {job_id}" if by_user else ""))


def _stuck(comment: str) -> str:
    """What to do about a job with this comment that never starts by itself; "" for others."""
    if "too many failed attempts to run" in comment:
        return "or ask an administrator to correct the cause and release it"
    return "then submit it with fewer resources" if comment.startswith("Can Never Run") else ""


def _ended_at(values: dict[str, str]) -> int | None:
    """`obittime` is Professional's, `comp_time` Torque's; versions of both without these keep the time of the
    last change, which for a job that ended is its end."""
    text = values.get("obittime") or values.get("comp_time") or values.get("mtime", "")
    return number_or_none(text) or moment(text, "%a %b %d %H:%M:%S %Y")


def _state(values: dict[str, str]) -> JobState:
    """The state of a job from its attributes in `qstat -f`."""
    state = _STATES.get(values.get("job_state", ""), JobState.UNKNOWN)
    if state is not JobState.COMPLETED:
        return state
    if values.get("substate") == _DELETED:
        return JobState.CANCELLED
    torque, pro = values.get("exit_status", ""), values.get("Exit_status", "")
    if not torque and not pro and "stime" not in values and "depend" in values:
        return JobState.DEPENDENCY
    if (torque or pro) in ("0", ""):
        return state
    return (_ENDED_BY_TORQUE if torque else _ENDED_BY_PRO).get(torque or pro, JobState.FAILED)
