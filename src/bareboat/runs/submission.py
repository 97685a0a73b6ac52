"""Runs of a scheduler: submitted, monitored, cancelled, and recorded.

A run's directory is authoritative: `control` is written by the job script on the compute nodes. The scheduler
is asked only while there is no exit code, and explains a missing one.

    submission.json   what was submitted, and to which scheduler       output.log  what the job printed
    cancelled         Bareboat cancelled it                     end.json    the cause of a failed run's end
    control/          job.sh     the script                   exit_code   CODE EPOCH
                      rung.N.sh  read when the MPI check fails: the next way to start the ranks
                      starts     one line per start: EPOCH NODE JOB-ID
    ranks/            what containers write
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import UNSET

from bareboat import codec, execute, registry, render
from bareboat.clock import utc_now
from bareboat.errors import BareboatError, PlanError, StoreError, Terminated, ToolError, UsageError
from bareboat.files import untrusted
from bareboat.hostlist import shortened
from bareboat.model import (
    End,
    JobStart,
    JobState,
    Outcome,
    Plan,
    QueueEntry,
    Record,
    Site,
    Straggler,
    Submission,
)
from bareboat.printable import one_line
from bareboat.render.watchdog import EXIT_CODE as HUNG
from bareboat.runs import causes, deliveries, directory, mpi_checks, results, transports
from bareboat.runs.progress import look_for_straggler
from bareboat.schedulers import Scheduler, job_name, odd_lines, said
from bareboat.store import Store

log = logging.getLogger("bareboat")

#: The exit codes of runs whose script could not write one.
_CODES = {
    JobState.CANCELLED: 143,
    JobState.PREEMPTED: 143,
    JobState.TIMEOUT: 124,
    JobState.OUT_OF_MEMORY: 137,
    JobState.NODE_FAIL: 70,
    JobState.FAILED: 1,
    JobState.COMPLETED: 1,  # by the scheduler's account, but our script did not finish
}
#: The script that opens a shell in the job's container; a sweep has it next to job.sh.
SHELL = "shell.sh"
#: Controllers restart now and then; a wait of days must survive that.
_OUTAGE_S = 900.0
#: A busy controller may take long to accept a job.
_SUBMISSION_S = 120.0
_CANCELLATION_S = 30.0
#: Then a line says what is waited for.
_NOTICE_S = 5.0
#: How long a shared file system may take to show what another node wrote.
_SETTLE_S = 10.0
#: More than any machine has; limits the length of lists.
_MOST_RANKS = 10_000_000
_MOST_REASON = 10_000
#: The size of the output's end that is searched for the cause.
_LOG_BYTES = 1 << 16
_MOST_JOB_ID = 256
#: EPOCH NODE JOB-ID
_START = re.compile(r"(\d{1,11}) ([\w.-]{1,255}) ([\w.\[\]ƒ-]{1,256})", re.ASCII)
_HOST = re.compile(r"[\w.-]{1,255}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
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
    straggler: Straggler | None = None
    #: Whether one of its files is unreadable; `reason` names it.
    damaged: bool = False
    #: The cause of a failure, as far as known.
    end: End | None = None

    @property
    def over(self) -> bool:
        return self.exit_code is not None


def control_folder(store: Store, run_id: str) -> Path:
    return directory.control(store.run(run_id))


def output_log(store: Store, run_id: str) -> Path:
    return store.run(run_id) / "output.log"


def queue_of(plan: Plan) -> Scheduler:
    scheduler = registry.scheduler(plan.scheduler)
    if scheduler.AT_ONCE:
        raise UsageError(
            f"{plan.scheduler} does not accept submissions", remedy="bareboat run, or --scheduler NAME"
        )
    return scheduler


def describe(plan: Plan, site: Site, run_id: str) -> Submission:
    """The submission, before a scheduler has given it a job ID."""
    return Submission(
        run_id=run_id,
        scheduler=plan.scheduler,
        job_id=None,
        name=plan.job.name,
        nodes=plan.job.topology.nodes,
        world_size=plan.job.topology.world_size,
        engine=plan.engine,
        submitted_at=utc_now(),
        plan_digest=render.digest(plan),
        image_digest=plan.image_digest,
        site_digest=codec.digest(site),
        walltime_s=plan.job.walltime_s,
        fabric=None if plan.fabric is UNSET else plan.fabric,
    )


def hand_over(scheduler: Scheduler, plan: Plan, script: Path, log: str, *arguments: str) -> str:
    """Submit the script with these arguments; return the job ID. Raises PlanError for a refusal."""
    argv = (*scheduler.submit(str(script), log), *arguments)
    stdin = script.read_text(errors="surrogateescape") if scheduler.SUBMITS_STDIN else None
    try:
        number = scheduler.job_id(submit_by(argv, stdin, plan.job.workdir))
        if not is_job_id(scheduler, number):
            raise ToolError(
                f"{argv[0]} returned {one_line(number)!r}, which is not a {scheduler.NAME} job ID"
            )
    except ToolError as error:
        raise ToolError(
            f"{error.message}: the job may or may not have been submitted",
            context=error.context,
            remedy=f"{scheduler.LIST}   # if it lists {job_name(plan.job)}, cancel that job or let it run "
            "before you submit again",
        ) from None
    return number


def submit_by(argv: Sequence[str], stdin: str | None, folder: str | None = None) -> Outcome:
    """Run a submit command, which may take long, and may leave the job itself behind."""
    return execute.run(
        argv, stdin=stdin, timeout_s=execute.patience(_SUBMISSION_S), notice_s=_NOTICE_S, folder=folder,
        may_leave=True,
    )  # fmt: skip


def cancel_by(argv: Sequence[str]) -> Outcome:
    """Run a scheduler's command that cancels a job, which has time: a job must not go on unseen."""
    return execute.run(argv, timeout_s=execute.patience(_CANCELLATION_S), notice_s=_NOTICE_S)


@contextlib.contextmanager
def going_on(run_id: str) -> Iterator[None]:
    """Inside, stopping Bareboat adds the note that the run continues."""
    try:
        yield
    except (KeyboardInterrupt, Terminated) as stop:
        stop.add_note(
            f"{run_id} continues; to wait: bareboat wait {run_id}; to cancel: bareboat cancel {run_id}"
        )
        raise


def submit(store: Store, plan: Plan, site: Site) -> Submission:
    """Submit the plan's script. Raises PlanError, and leaves nothing, when the scheduler refuses it."""
    scheduler = queue_of(plan)
    submission = begin(store, plan, site)
    script = control_folder(store, submission.run_id) / "job.sh"
    return hand_over_kept(store, scheduler, plan, submission, script)


def ended_here(store: Store, run_id: str, code: int) -> Record:
    """The record of a run whose script was started here and exited with this code."""
    made = read(store, run_id)
    status = _by_its_own_files(store, made)
    if status is None:  # the script was killed, or did not reach its first line
        store.write(store.run(run_id) / "exit_code", f"{code or 1} {int(time.time())}\n".encode())
        status = _by_its_own_files(store, made)
    assert status is not None
    found = record(store, _with_end(store, status, None))
    assert found is not None  # the run ended
    return found


def begin(store: Store, plan: Plan, site: Site, *, job_id: str | None = None) -> Submission:
    """A run's directory with its script, before the script is submitted or started."""
    run_id = store.new_run(plan.job.name)
    folder = store.run(run_id)
    submission = msgspec.structs.replace(describe(plan, site, run_id), job_id=job_id)
    script = folder / directory.CONTROL / "job.sh"
    with store.whole_run(run_id):
        # The nodes must see it when the job starts.
        (folder / directory.CONTROL / "logs").mkdir(parents=True)
        (folder / directory.RANKS).mkdir()
        for name, text in render.scripts(plan, render.Place(run_id, str(folder))):
            store.write(script.with_name(name), os.fsencode(text))
        write_shell(store, plan, script.parent)
        store.write(folder / "plan.json", codec.to_json(render.shown(plan)))
        store.write(folder / "submission.json", codec.to_json(submission))
    return submission


def hand_over_kept(
    store: Store, scheduler: Scheduler, plan: Plan, submission: Submission, script: Path
) -> Submission:
    """Submit, and store the submission with its job ID; a refused run leaves nothing."""
    run_id = submission.run_id
    # A stop in between would lose the ID of a queued job.
    with going_on(run_id), execute.interrupts_held():
        try:
            job_id = hand_over(scheduler, plan, script, str(output_log(store, run_id)))
        except PlanError:
            store.discard(store.run(run_id))
            raise
        submission = msgspec.structs.replace(submission, job_id=job_id)
        with store.whole_run(run_id):
            keep_job_id(store, scheduler, submission)
        try:
            mpi_checks.expect(store, plan, run_id, points=submission.points)
        except StoreError as error:  # the job runs anyway
            log.warning("the result of the MPI check will not be stored: %s", error.message)
    return submission


def keep_job_id(store: Store, scheduler: Scheduler, submission: Submission) -> None:
    """Write the submission with its job ID. If that fails, cancel the job, which could not be found again,
    and raise StoreError."""
    assert submission.job_id is not None
    try:
        store.write(store.run(submission.run_id) / "submission.json", codec.to_json(submission))
    except StoreError as error:
        argv = scheduler.cancel(submission.job_id)
        is_cancelled = cancel_by(argv).ok
        job = f"{scheduler.NAME} job {submission.job_id}"
        done = f"{job} was cancelled" if is_cancelled else f"{job} is still in the queue"
        remedy = error.remedy if is_cancelled else shlex.join(argv)
        raise StoreError(f"{error.message}; {done}", context=error.context, remedy=remedy) from None


def read(store: Store, run_id: str) -> Submission:
    path = store.run(run_id) / "submission.json"
    if not os.path.lexists(path):
        if (element := _element(store, run_id)) is not None:
            return element
        raise UsageError(
            f"{run_id} was not submitted to a scheduler"
            if path.parent.exists()
            else f"run {run_id} not found",
            remedy="bareboat status   # lists submitted runs",
        )
    made = store.read(path, Submission)
    scheduler = _scheduler(made.scheduler)
    knows = scheduler is not None and not scheduler.AT_ONCE
    for is_right, what in (
        (made.run_id == run_id, "it names another run"),
        (knows, f"it names the scheduler {one_line(made.scheduler)!r}"),
        (0 < made.nodes <= made.world_size <= _MOST_RANKS, "its numbers of nodes and ranks"),
        (0 <= made.points <= _MOST_RANKS, "its number of points"),
        (made.job_id is None or scheduler is None or is_job_id(scheduler, made.job_id), "its job ID"),
    ):
        if not is_right:
            raise directory.damaged(path, OSError(0, f"it is not a valid submission: {what}"))
    return made


def _scheduler(name: str) -> Scheduler | None:
    try:
        return registry.scheduler(name)
    except BareboatError:
        return None


def _element(store: Store, run_id: str) -> Submission | None:
    """A point of a sweep that was submitted as an array job."""
    name, _, number = run_id.rpartition(".")
    if not number.isdecimal() or not name or not os.path.lexists(store.run(name) / "submission.json"):
        return None
    whole = read(store, name)
    if int(number) >= whole.points:
        return None
    job_id = whole.job_id
    if job_id is not None:
        job_id = registry.scheduler(whole.scheduler).element(job_id, int(number))
    return msgspec.structs.replace(whole, run_id=run_id, job_id=job_id, points=0)


def submitted(store: Store) -> list[str]:
    """The submitted runs, oldest first."""
    return [name for name in store.runs() if os.path.lexists(store.run(name) / "submission.json")]


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
            status = _by_its_own_files(store, submission)
            numbers[run_id] = job_id_now(store, submission)
        except StoreError as error:
            found[run_id] = _damaged(submission, error)
            continue
        if status is not None and (status.exit_code == 0 or _is_recorded(store, run_id)):
            found[run_id] = status
        else:
            open_runs.setdefault(submission.scheduler, []).append(submission)
    for name, submissions in open_runs.items():
        try:
            entries = ask(name, [number for s in submissions if (number := numbers[s.run_id]) is not None])
        except ToolError as error:
            if must_answer:
                raise
            reason = f"{error.message}; try: {error.remedy}"
            for submission in submissions:
                found[submission.run_id] = _silent(store, submission, reason)
            continue
        for submission in submissions:
            # A script that is terminated writes a code, and does not know whether it will be restarted.
            entry = entries.get(numbers[submission.run_id] or "")
            try:
                found[submission.run_id] = _explained(store, submission, entry)
            except StoreError as error:
                found[submission.run_id] = _damaged(submission, error)
    return [found[run_id] for run_id in run_ids]


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


def _by_its_own_files(store: Store, submission: Submission) -> Status | None:
    """The end of the run as written by the job script, or by Bareboat in its place."""
    folder = store.run(submission.run_id)
    control = directory.control(folder)
    for path in (control / "exit_code", folder / "exit_code"):
        if (told := directory.ended(path)) is None:
            continue
        number, ended_at = told
        end = _kept_end(folder)
        # For runs from before end.json existed.
        because = one_line(directory.text(folder / "ended_because") or "", limit=_MOST_REASON)
        if not because and number == HUNG and (hang := _hang(store, submission.run_id)):
            because = f"hung: {hang}"
        if end is not None and number:
            state, because = end.state, end.words
        elif because:
            state = next((s for s in JobState if because.startswith(s.value)), JobState.FAILED)
        elif number in (143, 130):
            state = JobState.CANCELLED
        else:
            state = JobState.COMPLETED if number == 0 else JobState.FAILED
        return Status(
            submission=submission,
            state=state,
            exit_code=number,
            ended_at_epoch_s=ended_at,
            starts=starts(store, submission.run_id),
            reason=because,
            nodes=shortened(_nodes(store, submission)),
            end=end if number else None,
        )
    return None


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
    if len(found) != submission.nodes:  # for one node the script writes no list
        began = starts(store, submission.run_id)
        found = (began[-1].node,) if began and submission.nodes == 1 else ()
    return found


def find_straggler(store: Store, submission: Submission) -> Straggler | None:
    """The slowest of the ranks that report their steps, if one is significantly slow."""
    nodes, each = _nodes(store, submission), submission.world_size // submission.nodes
    if not nodes:
        return None
    return look_for_straggler(
        store.run(submission.run_id), tuple(node for node in nodes for _ in range(each))
    )


def straggler_of(store: Store, status: Status) -> Straggler | None:
    """The slowest rank of a run that continues, or that ended and is recorded."""
    path = store.run(status.submission.run_id) / "record.json"
    if status.over and os.path.lexists(path):
        return store.read(path, Record).straggler
    return status.straggler


def _hang(store: Store, run_id: str) -> str:
    """The watchdog's finding about a run that it terminated; "" for other runs."""
    control = control_folder(store, run_id)
    if not os.path.lexists(control / "watch" / "verdict"):
        return ""
    said = directory.text(control / "stacks" / "summary") or "no rank printed or reported anything"
    return one_line("; ".join(said.splitlines()), limit=_MOST_REASON)


def _is_recorded(store: Store, run_id: str) -> bool:
    return os.path.lexists(store.run(run_id) / "record.json")


def job_id_now(store: Store, submission: Submission) -> str | None:
    """The current job ID: where the scheduler cannot requeue, a job resubmits itself. Raises StoreError for
    text that is not a job ID, since it becomes part of a command."""
    path = control_folder(store, submission.run_id) / "agains"
    words = (directory.text(path) or "").split()
    if not words:
        return submission.job_id
    if not is_job_id(registry.scheduler(submission.scheduler), words[-1]):
        raise directory.damaged(path, OSError(0, f"{one_line(words[-1], limit=40)!r} is not a job ID"))
    return words[-1]


def is_job_id(scheduler: Scheduler, text: str) -> bool:
    """Whether the text is a job ID of the scheduler: only then may it be part of a command."""
    return len(text) <= _MOST_JOB_ID and re.fullmatch(scheduler.JOB_ID_FORM, text, re.ASCII) is not None


def starts(store: Store, run_id: str) -> tuple[JobStart, ...]:
    """The starts of a run; incomplete lines, for example from a full file system, are ignored."""
    said = directory.text(control_folder(store, run_id) / "starts") or ""
    return tuple(
        JobStart(at_epoch_s=int(part[1]), node=part[2], job_id=part[3])
        for line in said.splitlines()
        if (part := _START.fullmatch(line)) is not None
    )


def ask(name: str, job_ids: list[str]) -> dict[str, QueueEntry]:
    """What the scheduler reports about jobs. If some lines of its answer cannot be parsed, a job that is
    missing is unknown, not ended."""
    found: dict[str, QueueEntry] = {}
    odd: list[str] = []
    scheduler = registry.scheduler(name)
    deadline = execute.Deadline()
    for query in scheduler.queries(job_ids) if job_ids else ():
        if all(job_id in found for job_id in job_ids):
            break
        outcome = execute.run(query.argv, within=deadline)
        for entry in query.parse(outcome):
            found.setdefault(entry.job_id, entry)
        odd += odd_lines(query.argv[0], list(query.odd(outcome)))
    for job_id in job_ids if odd else ():
        found.setdefault(job_id, QueueEntry(job_id=job_id, state=JobState.UNKNOWN, reason="; ".join(odd)))
    return found


def _explained(store: Store, submission: Submission, entry: QueueEntry | None) -> Status:
    """The status of a run without an exit code, from the scheduler's report."""
    began = starts(store, submission.run_id)
    if entry is not None and not entry.state.over:
        return Status(
            submission=submission, state=entry.state, exit_code=None, starts=began,
            reason=entry.reason, nodes=entry.nodes,
            straggler=find_straggler(store, submission) if entry.state is JobState.RUNNING else None,
        )  # fmt: skip
    folder = store.run(submission.run_id)
    cancelled = os.path.lexists(folder / "cancelled")
    deadline = time.monotonic() + (_SETTLE_S if (entry is not None or cancelled) and began else 0.0)
    while (status := _by_its_own_files(store, submission)) is None and time.monotonic() < deadline:
        time.sleep(0.2)
    if status is not None:
        return _with_end(store, status, entry)
    if entry is None and not cancelled:
        reason = f"{submission.scheduler} no longer knows the job, and there is no exit code"
        if submission.job_id is None:
            reason = f"it is unknown whether {submission.scheduler} accepted the job: it returned no job ID"
        return Status(
            submission=submission, state=JobState.UNKNOWN, exit_code=None, starts=began, reason=reason
        )
    if cancelled and (entry is None or entry.state is JobState.COMPLETED):
        # Some forget a job that never ran, others report it as completed.
        entry = QueueEntry(job_id="", state=JobState.CANCELLED)
    assert entry is not None
    code = 128 + entry.signal if 0 < entry.signal <= 64 else _CODES.get(entry.state, 1)
    if cancelled and entry.state in (JobState.CANCELLED, JobState.FAILED):
        code = _CODES[JobState.CANCELLED]  # whichever signal the scheduler used
    ended_at = int(time.time())
    end = _find_end(store, submission, code, ended_at, began, entry=entry, left=False)
    store.write(folder / "end.json", codec.to_json(end))
    store.write(folder / "exit_code", f"{code} {ended_at}\n".encode())
    return Status(
        submission=submission, state=end.state, exit_code=code, starts=began, reason=end.words,
        ended_at_epoch_s=ended_at, nodes=shortened(_nodes(store, submission)), end=end,
    )  # fmt: skip


def _with_end(store: Store, status: Status, entry: QueueEntry | None) -> Status:
    """Add the cause to a failed run, which is found once and stored."""
    run_id = status.submission.run_id
    told = status.end is not None or os.path.lexists(store.run(run_id) / "ended_because")
    if not status.exit_code or told:
        return status
    end = _find_end(
        store, status.submission, status.exit_code, status.ended_at_epoch_s, status.starts,
        entry=entry, left=True,
    )  # fmt: skip
    store.write(store.run(run_id) / "end.json", codec.to_json(end))
    return dataclasses.replace(status, state=end.state, reason=end.words, end=end)


def _find_end(
    store: Store,
    submission: Submission,
    code: int,
    ended_at: int | None,
    began: Sequence[JobStart],
    *,
    entry: QueueEntry | None,
    left: bool,
) -> End:
    run_id = submission.run_id
    try:
        log = untrusted.read_tail(output_log(store, run_id), limit=_LOG_BYTES).decode(errors="replace")
    except OSError:  # missing, or replaced by the job
        log = ""
    end = causes.find(
        causes.Evidence(
            scheduler=registry.scheduler(submission.scheduler),
            code=code,
            left=left,
            entry=entry if entry is not None and entry.state.over else None,
            log=log,
            cancelled=os.path.lexists(store.run(run_id) / "cancelled"),
            began=bool(began),
            starts=len(began),
            ran_s=ended_at - began[-1].at_epoch_s if began and ended_at else None,
            walltime_s=submission.walltime_s,
            hang=_hang(store, run_id) if code == HUNG else "",
            store=str(store.root),
        )
    )
    assert end is not None  # the code is not 0
    return end


class Outage:
    """Tolerate a scheduler that does not answer for a while."""

    def __init__(self) -> None:
        self._began: float | None = None

    def endure(self, error: ToolError) -> None:
        """Raise the error when it has lasted too long."""
        if self._began is None:
            self._began = time.monotonic()
            log.warning("%s; retrying for %.0f minutes", error.message, _OUTAGE_S / 60)
        if time.monotonic() - self._began > _OUTAGE_S:
            raise error

    def end(self) -> None:
        self._began = None


def wait(
    store: Store,
    run_id: str,
    *,
    each: Callable[[Status], None],
    poll_s: float = 2.0,
    look: Callable[[Store, Sequence[str]], list[Status]] = look,
) -> Status:
    """Poll until the run ends, and call `each` with every status. Raises ToolError for an unknown run, and
    when the scheduler does not answer for a quarter of an hour."""
    unknown = 0
    outage = Outage()
    while True:
        try:
            (status,) = look(store, [run_id])
        except ToolError as error:
            outage.endure(error)
            time.sleep(poll_s)
            continue
        outage.end()
        each(status)
        if status.over:
            return status
        unknown = unknown + 1 if status.state is JobState.UNKNOWN else 0
        if unknown * poll_s > 60:
            raise ToolError(status.reason, remedy=f"bareboat logs {run_id}")
        time.sleep(poll_s)


def record(store: Store, status: Status) -> Record | None:
    """The run's record, written once when it ended."""
    if status.exit_code is None:
        return None
    submission = status.submission
    path = store.run(submission.run_id) / "record.json"
    if os.path.lexists(path):
        return store.read(path, Record)
    began = status.starts[0].at_epoch_s if status.starts else status.ended_at_epoch_s or 0
    ways = transports.read(store.run(submission.run_id))
    made = Record(
        study=submission.run_id,
        run=0,
        arm=submission.engine,
        warm_up=False,
        position=0,
        started_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        exit_code=status.exit_code,
        wall_s=float((status.ended_at_epoch_s or began) - began),
        plan_digest=submission.plan_digest,
        image_digest=submission.image_digest,
        site_digest=submission.site_digest,
        world_size=submission.world_size,
        scheduler=submission.scheduler,
        job_id=submission.job_id or "",
        starts=status.starts,
        ended_because=status.reason,
        end=status.end,
        results=results.read(store.run(submission.run_id)),
        deliveries=deliveries.read(store.run(submission.run_id)),
        straggler=find_straggler(store, submission),
        transports=ways,
        fabric_mark=transports.mark(submission.fabric, ways) if status.starts else "",
        world_mark=transports.world_mark(store.run(submission.run_id), submission.world_size),
    )
    store.write(path, codec.to_json(made))
    return made


def cancel(store: Store, run_id: str) -> None:
    """Cancel the job, unless it already ended."""
    (status,) = look(store, [run_id])
    if status.over:
        return
    job_id = job_id_now(store, status.submission)
    if job_id is None:
        raise ToolError(status.reason, remedy="find the job in the queue by its name")
    with contextlib.suppress(StoreError):  # a full disk must not keep the job running
        store.write(store.run(run_id) / "cancelled", b"")
    outcome = cancel_by(registry.scheduler(status.submission.scheduler).cancel(job_id))
    if not outcome.ok:
        (status,) = look(store, [run_id])
        if not status.over:
            (store.run(run_id) / "cancelled").unlink(missing_ok=True)
            raise ToolError(f"{outcome.argv[0]} did not cancel job {job_id}", context=said(outcome))


def attach(store: Store, run_id: str, *, host: bool = False) -> int:
    """Open a shell on the job's first node in this terminal, in the job's container or on the node itself;
    return its exit code."""
    (status,) = look(store, [run_id])
    if status.state is not JobState.RUNNING:
        raise BareboatError(
            f"{run_id} is {status.state.value}, not running", remedy=f"bareboat status {run_id}"
        )
    scheduler = registry.scheduler(status.submission.scheduler)
    words = None if host else _shell_words(store, run_id)
    argv = scheduler.attach(job_id_now(store, status.submission) or "", words)
    if argv is None:
        way = "" if words is None else f" {shlex.join(words)}"
        raise BareboatError(
            f"{scheduler.NAME} cannot open a shell in a running job" + ("" if host else "'s container"),
            remedy=f"ssh -t {status.starts[-1].node}{way}" if status.starts else f"bareboat status {run_id}",
        )
    return execute.run_in_terminal(argv)


def _shell_words(store: Store, run_id: str) -> tuple[str, ...]:
    """The command that opens a shell in a run's container, on a node of its job."""
    folder = store.run(run_id)
    own, whole = folder / directory.CONTROL / SHELL, folder.parent.parent / SHELL
    script = whole if folder.parent.name == "points" and os.path.lexists(whole) else own
    if not os.path.lexists(script):
        raise BareboatError(
            f"an earlier version of Bareboat submitted {run_id} and stored nothing about its container",
            remedy=f"bareboat attach --host {run_id}",
        )
    return ("bash", str(script), run_id, str(folder / directory.CONTROL))


def write_shell(store: Store, plan: Plan, folder: Path) -> None:
    """Write the script with which `attach` opens a shell in the job's container."""
    text = render.shell_script(plan)
    if text is not None:
        store.write(folder / SHELL, os.fsencode(text))
