"""The status of runs: from the files in a run's directory, and from the scheduler where they do not suffice.

The scheduler is asked only while there is no exit code, and explains a missing one.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from bareboat import commands, registry
from bareboat.hostlist import shortened
from bareboat.model import End, JobStart, JobState, Outcome, QueueEntry, Record, Submission
from bareboat.model.submission import HUNG
from bareboat.runs import directory, environment, queries, supervisor
from bareboat.runs.submission import (
    control_folder,
    failed_dependency,
    job_id_now,
    output_log,
    planned_job,
    read,
    scheduler_logs,
    starts,
)
from bareboat.runs.supervisor import Presence
from bareboat.schedulers import Scheduler
from bareboat.schedulers.tool_output import odd_lines
from bareboat_base import codec, execute
from bareboat_base.clock import epoch_s
from bareboat_base.errors import StoreError, ToolError
from bareboat_base.expressions import expression
from bareboat_base.files import untrusted
from bareboat_base.printable import one_line
from bareboat_images.store import Store

if TYPE_CHECKING:
    from bareboat.runs.causes import Evidence

#: The exit codes of runs whose script could not write one.
CODES = {
    JobState.CANCELLED: 143,
    JobState.PREEMPTED: 143,
    JobState.TIMEOUT: 124,
    JobState.OUT_OF_MEMORY: 137,
    JobState.NODE_FAIL: 70,
    JobState.FAILED: 1,
    JobState.DEPENDENCY: 1,
    JobState.COMPLETED: 1,  # by the scheduler's account, but our script did not finish
}
#: How long a shared file system may take to show what another node wrote.
_SETTLE_S = 10.0
#: The size of the output's end that is searched for the cause.
_LOG_BYTES = 1 << 16
_HOST = expression(r"[\w.-]{1,255}", re.ASCII)


class Status(Struct, frozen=True, kw_only=True):
    """The status of a run. `exit_code` is None until it ends; `reason`: why it waits, or how it ended."""

    submission: Submission
    state: JobState
    exit_code: int | None
    ended_at_epoch_s: int | None = None
    starts: tuple[JobStart, ...] = ()
    reason: str = ""
    nodes: str = ""
    #: The statuses of a sweep's points, in order.
    points: tuple[Status, ...] = ()
    #: What to do about a job that never starts by itself; "" for others.
    stuck: str = ""
    #: Whether one of its files is unreadable; `reason` names it.
    damaged: bool = False
    #: The cause of a failure, as far as known.
    end: End | None = None
    #: The newest job: a restart may be a new one. Of a sweep, its array job.
    job_id: str | None = None

    @property
    def over(self) -> bool:
        return self.exit_code is not None or self.state.over

    @property
    def shell_code(self) -> int | None:
        """The exit code of commands about the run: its own, but not 0 for one that was ended from outside."""
        is_cut = self.exit_code == 0 and self.state is not JobState.COMPLETED
        return CODES.get(self.state, 1) if is_cut else self.exit_code

    @property
    def result(self) -> str:
        """Its exit code; its state before the end, and where the exit code does not show how it ended."""
        is_own = self.exit_code is not None and self.exit_code == self.shell_code
        return str(self.exit_code) if is_own else self.state.value

    @property
    def stuck_remedy(self) -> str:
        return f"bareboat cancel {self.submission.run_id}   # {self.stuck}" if self.stuck else ""


def look(store: Store, run_ids: Sequence[str], *, must_answer: bool = True) -> list[Status]:
    """The status of runs; each scheduler is asked once for all its runs without an exit code. Unless
    `must_answer` is false, raises ToolError for a scheduler that does not answer, and StoreError for an
    unreadable run; otherwise these are unknown. A run with a damaged file is unknown."""
    found: dict[str, Status] = {}
    open_runs: dict[str, list[Submission]] = {}
    numbers: dict[str, str | None] = {}
    for run_id in run_ids:
        try:
            submission = read(store, run_id)
        except StoreError as error:
            if must_answer:
                raise
            found[run_id] = unreadable(run_id, error)
            continue
        try:
            if submission.supervisor:
                found[run_id] = of_this_machine(store, submission)
                continue
            status = from_files(store, submission)
            numbers[run_id] = job_id_now(store, submission)
        except StoreError as error:
            found[run_id] = _damaged(submission, error)
            continue
        is_done = status is not None and status.exit_code == 0 and not signal_of_stop(store.run(run_id))
        if status is not None and (is_done or _is_recorded(store, run_id)):
            found[run_id] = status
        else:
            open_runs.setdefault(submission.scheduler, []).append(submission)
    until = time.monotonic() + _SETTLE_S  # for all of them: files of many late runs arrive together
    for name, submissions in open_runs.items():
        deadline = execute.Deadline()
        try:
            foreign = {s.run_id: why for s in submissions if (why := queries.other_cluster(s, deadline))}
            own = [numbers[s.run_id] for s in submissions if s.run_id not in foreign]
            entries = ask(name, [number for number in own if number is not None], deadline)
        except ToolError as error:
            if must_answer:
                raise
            reason = f"{error.message}; try: {error.remedy}"
            for submission in submissions:
                found[submission.run_id] = _silent(store, submission, reason)
            continue
        for submission in submissions:
            if submission.run_id in foreign:
                found[submission.run_id] = _silent(store, submission, foreign[submission.run_id])
                continue
            # A script that is terminated writes a code, and does not know whether it will be restarted.
            entry = entries.get(numbers[submission.run_id] or "")
            try:
                found[submission.run_id] = _explained(store, submission, entry, until)
            except StoreError as error:
                found[submission.run_id] = _damaged(submission, error)
    for run_id, status in found.items():
        if status.over and not status.submission.supervisor:
            environment.remove(store, control_folder(store, run_id))
    return [
        structs.replace(found[run_id], job_id=numbers.get(run_id, found[run_id].submission.job_id))
        for run_id in run_ids
    ]


def of_this_machine(store: Store, made: Submission) -> Status:
    """The status of a run that Bareboat started on this machine, or on another with the same store."""
    folder = store.run(made.run_id)
    if _is_recorded(store, made.run_id):
        record = store.read(folder / "record.json", Record)
        start_s = epoch_s(record.started_at)
        return Status(
            submission=made,
            state=record.end.state if record.end is not None else JobState.COMPLETED,
            exit_code=record.exit_code,
            ended_at_epoch_s=None if record.wall_s is None else start_s + round(record.wall_s),
            starts=(started_at(made, record.started_at),),
            reason=record.ended_because,
            end=record.end,
        )
    has_begun = os.path.lexists(folder)
    began = (started_at(made, made.submitted_at),) if has_begun else ()

    def status(state: JobState, reason: str = "") -> Status:
        return Status(submission=made, state=state, exit_code=None, starts=began, reason=reason)

    presence = supervisor.presence(made.supervisor)
    if presence is Presence.ELSEWHERE:
        return status(JobState.UNKNOWN, f"{made.host} runs it, or ran it: ask there")
    if not has_begun:  # a point of a sweep
        if presence is Presence.HERE:
            return status(JobState.PENDING, "the points run one after another")
        return status(JobState.CANCELLED, "not run: the sweep was stopped before")
    if presence is Presence.HERE:
        return status(JobState.RUNNING, _with_request(store, made, ""))
    if any(execute.processes_of(store.mark(made.run_id), helpers=True)):
        return status(JobState.RUNNING, "Bareboat was killed; the processes of the run are still there")
    return status(JobState.LOST, "Bareboat was killed, or the machine was restarted; no exit code is known")


def _with_request(store: Store, made: Submission, reason: str) -> str:
    """Why the run waits, and that its cancellation was requested: it ends some seconds later."""
    is_requested = os.path.lexists(store.run(made.run_id) / "cancelled")
    return "; ".join(filter(None, ("cancellation requested" if is_requested else "", reason)))


def started_at(made: Submission, moment: str) -> JobStart:
    """The start of a run on this machine."""
    return JobStart(at_epoch_s=epoch_s(moment), node=made.host, job_id="")


def _silent(store: Store, submission: Submission, reason: str) -> Status:
    try:
        began = starts(store, submission.run_id)
    except StoreError as error:
        return _damaged(submission, error)
    return Status(submission=submission, state=JobState.UNKNOWN, exit_code=None, starts=began, reason=reason)


def _damaged(submission: Submission, error: StoreError) -> Status:
    return Status(
        submission=submission, state=JobState.UNKNOWN, exit_code=None, reason=error.message, damaged=True
    )


def unreadable(run_id: str, error: StoreError) -> Status:
    """The status of a run whose submission cannot be read, for a list of runs."""
    nothing = Submission(
        run_id=run_id, scheduler="?", job_id=None, name="", nodes=1, world_size=1, engine="", submitted_at="",
        plan_digest="", image_digest=None, site_digest="",
    )  # fmt: skip
    return _damaged(nothing, error)


def from_files(store: Store, submission: Submission) -> Status | None:
    """The end of the run as written by the job script, or by Bareboat in its place."""
    folder = store.run(submission.run_id)
    if (told := directory.exit_of(folder)) is None:
        return None
    number, ended_at = told
    end = _kept_end(folder)
    if end is not None:
        state = end.state
    elif number in (143, 130):
        state = JobState.CANCELLED
    else:
        state = JobState.FAILED if number else JobState.COMPLETED
    return Status(
        submission=submission,
        state=state,
        exit_code=number,
        ended_at_epoch_s=ended_at or None,
        starts=starts(store, submission.run_id),
        reason=end.words if end is not None else "",
        nodes=shortened(_nodes(store, submission)),
        end=end,
    )


def signal_of_stop(folder: Path) -> int:
    """The signal with which a scheduler, a user or a terminal ended the run, as its job script got it; 0 for
    none. Its processes may have saved their state and exited with 0."""
    names = {path.suffix[1:] for path in directory.control(folder).glob("passed.*")}
    return next((getattr(signal, f"SIG{name}") for name in ("INT", "TERM", "HUP") if name in names), 0)


def _kept_end(folder: Path) -> End | None:
    """The stored cause of the end. Raises DamagedRunError."""
    path = folder / "end.json"
    said = directory.text(path)
    if said is None:
        return None
    try:
        return codec.from_json(said.encode(), End, what=str(path))
    except StoreError:
        raise directory.damaged(path, OSError(0, "it does not hold a cause")) from None


def _nodes(store: Store, submission: Submission) -> tuple[str, ...]:
    """The nodes of the newest start, in order; () before a start."""
    said = directory.text(control_folder(store, submission.run_id) / "hosts") or ""
    found = tuple(host for host in said.split() if _HOST.fullmatch(host))
    if submission.supervisor:
        return (submission.host,)
    if len(found) != submission.nodes:  # for one node the script writes no list
        began = starts(store, submission.run_id)
        found = (began[-1].node,) if began and submission.nodes == 1 else ()
    return found


def _is_recorded(store: Store, run_id: str) -> bool:
    return os.path.lexists(store.run(run_id) / "record.json")


def ask(name: str, job_ids: list[str], deadline: execute.Deadline | None = None) -> dict[str, QueueEntry]:
    """What the scheduler reports about jobs. If some lines of its answer cannot be parsed, a job that is
    missing is unknown, not ended."""
    found: dict[str, QueueEntry] = {}
    odd: list[str] = []
    scheduler = registry.scheduler(name)
    deadline = deadline or execute.Deadline()
    for query in scheduler.queries(job_ids) if job_ids else ():
        if all(job_id in found for job_id in job_ids):
            break
        outcome = queries.run(query.argv, within=deadline)
        for entry in query.parse(outcome):
            found.setdefault(entry.job_id, entry)
        odd += odd_lines(query.argv[0], list(query.odd(outcome)))
    for job_id in job_ids if odd else ():
        found.setdefault(job_id, QueueEntry(job_id=job_id, state=JobState.UNKNOWN, reason="; ".join(odd)))
    return _with_errors(scheduler, found, deadline)


def _with_errors(
    scheduler: Scheduler, found: dict[str, QueueEntry], deadline: execute.Deadline
) -> dict[str, QueueEntry]:
    """The entries, with why jobs are stuck where another command of the scheduler shows it."""
    outcomes: dict[tuple[str, ...], Outcome] = {}
    for job_id, entry in found.items():
        query = scheduler.error(job_id) if entry.stuck else None
        if query is None:
            continue
        if query.argv not in outcomes:
            outcomes[query.argv] = queries.run(query.argv, within=deadline)
        if reason := query.parse(outcomes[query.argv]):
            found[job_id] = structs.replace(entry, reason=reason)
    return found


def _explained(store: Store, submission: Submission, entry: QueueEntry | None, until: float) -> Status:
    """The status of a run without an exit code, from the scheduler's report. `until`: how long to wait for
    files that another node wrote."""
    began = starts(store, submission.run_id)
    cancelled = os.path.lexists(store.run(submission.run_id) / "cancelled")
    if entry is not None and not entry.state.over:
        return Status(
            submission=submission, state=entry.state, exit_code=None, starts=began,
            reason=_with_request(store, submission, entry.reason), nodes=entry.nodes,
            stuck="" if cancelled else entry.stuck,
        )  # fmt: skip
    folder = store.run(submission.run_id)
    is_gone = entry is not None and entry.state is JobState.LOST
    is_late = began and (entry is not None or cancelled)
    may_come = is_late or (is_gone and not cancelled)
    while (status := from_files(store, submission)) is None and may_come and time.monotonic() < until:
        time.sleep(0.2)
    if status is not None:
        return with_cause(store, status, entry)
    if entry is None and not cancelled:
        if supervisor.is_submitting(submission):
            return Status(
                submission=submission, state=JobState.PENDING, exit_code=None,
                reason=f"being submitted: {submission.scheduler} has not returned a job ID yet",
            )  # fmt: skip
        reason = f"{submission.scheduler} no longer knows the job, and there is no exit code"
        if submission.job_id is None:
            reason = f"it is unknown whether {submission.scheduler} accepted the job: it returned no job ID"
        return Status(
            submission=submission, state=JobState.UNKNOWN, exit_code=None, starts=began, reason=reason
        )
    if entry is not None and is_gone and not began:
        words = failed_dependency(store, submission)
        entry = structs.replace(entry, state=JobState.DEPENDENCY, reason=words) if words else entry
    if cancelled and (entry is None or entry.state in (JobState.COMPLETED, JobState.LOST)):
        # Some forget a job that never ran, others report it as completed.
        at = None if entry is None else entry.ended_at_epoch_s
        entry = QueueEntry(job_id="", state=JobState.CANCELLED, ended_at_epoch_s=at)
    assert entry is not None
    code = 128 + entry.signal if 0 < entry.signal <= 64 else CODES.get(entry.state, 1)
    if entry.state is JobState.FAILED and entry.exit_code and not entry.signal:
        code = entry.exit_code
    if cancelled and entry.state in (JobState.CANCELLED, JobState.FAILED):
        code = CODES[JobState.CANCELLED]  # whichever signal the scheduler used
    # Not when somebody first asked: without accounts it is unknown.
    ended_at = entry.ended_at_epoch_s
    if ended_at is not None and began:  # the clocks of nodes differ
        ended_at = max(ended_at, began[-1].at_epoch_s)
    status = Status(
        submission=submission, state=JobState.FAILED, exit_code=code, starts=began, ended_at_epoch_s=ended_at,
        nodes=shortened(_nodes(store, submission)),
    )  # fmt: skip
    status = explained(store, status, entry, left=False)
    if is_gone and not cancelled:  # only the files of the run show why
        status = structs.replace(status, exit_code=CODES.get(status.state, 1))
    store.write(folder / "end.json", codec.to_json(status.end))
    store.write(folder / "exit_code", f"{status.exit_code} {ended_at or 0}\n".encode())
    return status


def with_cause(store: Store, status: Status, entry: QueueEntry | None) -> Status:
    """Add the cause to a run that failed or was ended from outside; it is found once and stored."""
    folder = store.run(status.submission.run_id)
    stop = 0 if status.exit_code else signal_of_stop(folder)
    if status.end is not None or not (status.exit_code or stop):
        return status
    is_done = entry is not None and entry.state is JobState.COMPLETED  # somebody else's signal
    if stop and is_done and not os.path.lexists(folder / "cancelled"):
        return status
    status = explained(store, status, entry, stop=stop)
    store.write(folder / "end.json", codec.to_json(status.end))
    return status


def explained(
    store: Store,
    status: Status,
    entry: QueueEntry | None = None,
    *,
    left: bool = True,
    timed_out: bool = False,
    stop: int = 0,
) -> Status:
    """The status of a run that failed, with the cause. `left`: the script wrote the exit code; `timed_out`:
    Bareboat ended the run at its time limit; `stop`: the signal that ended a run with exit code 0."""
    from bareboat.runs import causes  # here, because most runs succeed

    assert status.exit_code is not None
    made, began, ended_at = status.submission, status.starts, status.ended_at_epoch_s
    run_id = made.run_id
    evidence = causes.Evidence(
        scheduler=registry.scheduler(made.scheduler),
        code=status.exit_code,
        stop=stop,
        left=left,
        entry=entry if entry is not None and entry.state.over else None,
        log=_tail(output_log(store, run_id)),
        scheduler_log=_tail(*scheduler_logs(store, made)),
        cancelled=os.path.lexists(store.run(run_id) / "cancelled"),
        timed_out=timed_out,
        began=bool(began),
        starts=len(began),
        ran_s=ended_at - began[-1].at_epoch_s if began and ended_at else None,
        walltime_s=made.walltime_s,
        hung=status.exit_code == HUNG
        and os.path.lexists(control_folder(store, run_id) / "watch" / "verdict"),
        store=str(store.root),
        is_python=bool(program := commands.program(made.command)) and commands.is_python(program[0]),
    )
    end = causes.find(evidence)
    assert end is not None  # there is a code or a signal
    end = end if made.image_digest is None else _with_remedy(store, run_id, end, evidence)
    return structs.replace(status, state=end.state, reason=end.words, end=end)


def _with_remedy(store: Store, run_id: str, end: End, evidence: Evidence) -> End:
    """The end of a run in a container, with the remedy where this machine has what was not found there."""
    from bareboat.runs import causes

    program, path = causes.missing_program(evidence), causes.missing_path(end)
    if program is None and path is None:
        return end
    try:
        job = planned_job(store, run_id)
    except StoreError:
        return end
    if program is not None and job.image == "capture" and execute.which(program):
        remedy = f'programs = ["{program}"] under [capture]: it is on PATH here, and not in the container'
        return structs.replace(end, key="capture.programs", remedy=remedy)
    if path is not None:
        full = os.path.realpath(os.path.join(job.workdir or "/", os.path.expanduser(path)))
        is_written = any(said in end.text for said in ("Read-only file system", "Parent directory"))
        if is_written and (os.path.isfile(full) or os.path.splitext(full)[1]):
            full = os.path.dirname(full)
        is_there, note = os.path.exists(full), ": it exists here, not in the container"
        if is_written:
            note = "" if is_there else f", after: mkdir {shlex.quote(full)}"
        if os.access(full if is_there else os.path.dirname(full), os.W_OK) if is_written else is_there:
            mount = one_line(full, limit=4096) + ":rw" * is_written
            flag = shlex.quote(f'mounts=["{mount}"]')
            return structs.replace(end, key="mounts", remedy=f'mounts = ["{mount}"], or --set {flag}{note}')
    return end


def _tail(*paths: Path) -> str:
    """The end of logs, one after another, without those that are missing or were replaced by the job."""
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            found.append(untrusted.read_tail(path, limit=_LOG_BYTES).decode(errors="replace"))
    return "\n".join(found)
