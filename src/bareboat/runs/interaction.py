"""What users do with submitted runs: wait for them, cancel them, open a shell in them."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import time
from collections.abc import Callable, Sequence

from bareboat import registry
from bareboat.model import JobState, Submission
from bareboat.runs import directory, environment, queries, supervisor
from bareboat.runs.state import Status, look
from bareboat.runs.submission import SHELL, cancel_by, job_id_now
from bareboat.runs.supervisor import Presence
from bareboat.schedulers import inherited
from bareboat.schedulers.tool_output import output_tail
from bareboat_base import execute
from bareboat_base.errors import BareboatError, StoreError, ToolError
from bareboat_images.store import Store

log = logging.getLogger("bareboat")

#: Controllers restart now and then; a wait of days must survive that.
_OUTAGE_S = 900.0
#: Polls of an unknown run, for a minute: the scheduler may not show it yet.
_MOST_UNKNOWN = 30
#: Seconds between two polls of a run.
POLL_S = 2.0


def check_can_start(status: Status) -> None:
    """Raise BareboatError for a run whose job never starts by itself."""
    if status.stuck:
        made = status.submission
        title = registry.scheduler(made.scheduler).TITLE
        raise BareboatError(
            f"{made.run_id} never starts: {title} reports: {status.reason}", remedy=status.stuck_remedy
        )


class Outage:
    """Tolerate a scheduler that does not answer for a while. `poll_s`: seconds between two queries."""

    poll_s = POLL_S

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


class Waiting:
    """Looks after a run until it ends. `each`: called with every status."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        *,
        each: Callable[[Status], None] = lambda _status: None,
        look: Callable[[Store, Sequence[str]], list[Status]] = look,
    ) -> None:
        self._store, self._run_id, self._each, self._look = store, run_id, each, look
        self._outage = Outage()
        self._unknown = 0

    def ended(self) -> Status | None:
        """The run's status once it ended, else None. Raises BareboatError for a run that never starts, and
        ToolError for one that stays unknown, and when the scheduler has not answered for a quarter of an
        hour."""
        try:
            (status,) = self._look(self._store, [self._run_id])
        except ToolError as error:
            self._outage.endure(error)
            return None
        self._outage.end()
        self._each(status)
        if status.over:
            return status
        check_can_start(status)
        self._unknown = self._unknown + 1 if status.state is JobState.UNKNOWN else 0
        if status.state is JobState.UNKNOWN:
            queries.check_cluster(status.submission)
        if self._unknown > _MOST_UNKNOWN:
            raise ToolError(status.reason, remedy=f"bareboat logs {self._run_id}")
        return None


def wait(
    store: Store,
    run_id: str,
    *,
    each: Callable[[Status], None],
    poll_s: float = POLL_S,
    look: Callable[[Store, Sequence[str]], list[Status]] = look,
) -> Status:
    """Wait until the run ends."""
    waiting = Waiting(store, run_id, each=each, look=look)
    while (status := waiting.ended()) is None:
        time.sleep(poll_s)
    return status


def cancel(store: Store, run_id: str) -> None:
    """Cancel the job, unless it already ended."""
    (status,) = look(store, [run_id])
    if status.over:
        return
    if status.submission.supervisor:
        _cancel_here(store, status)
        return
    queries.check_cluster(status.submission)
    job_id = job_id_now(store, status.submission)
    if job_id is None:
        supervisor.check_submitted(status.submission)
        raise ToolError(status.reason, remedy="find the job in the queue by its name")
    with contextlib.suppress(StoreError):  # a full disk must not keep the job running
        store.write(store.run(run_id) / "cancelled", b"")
    outcome = cancel_by(registry.scheduler(status.submission.scheduler).cancel(job_id))
    if not outcome.ok:
        (status,) = look(store, [run_id])
        if not status.over:
            (store.run(run_id) / "cancelled").unlink(missing_ok=True)
            raise ToolError(f"{outcome.argv[0]} did not cancel job {job_id}", context=output_tail(outcome))
    environment.remove(store, directory.control(store.run(run_id)))


def _cancel_here(store: Store, status: Status) -> None:
    """Terminate a run on this machine: its job script, which terminates all other processes."""
    made, folder = status.submission, store.run(status.submission.run_id)
    _check_machine(made, f"bareboat cancel {made.run_id}")
    if status.state is JobState.PENDING:
        raise BareboatError(
            f"{made.run_id} has not started, and cannot be cancelled alone",
            remedy=f"bareboat cancel {made.run_id.rpartition('.')[0]}   # the whole sweep",
        )
    with contextlib.suppress(StoreError):  # a full disk must not keep the job running
        store.write(folder / "cancelled", b"")
    script = supervisor.read(folder)
    if not supervisor.terminate(script) and supervisor.presence(made.supervisor) is not Presence.HERE:
        execute.end_strays(store.mark(made.run_id))


def _check_machine(made: Submission, remedy: str) -> None:
    """Raise BareboatError for a run of another machine that shares the store."""
    if supervisor.presence(made.supervisor) is Presence.ELSEWHERE:
        raise BareboatError(
            f"{made.run_id} was started on {made.host}, whose processes this machine does not see",
            remedy=f"ssh -t {made.host} {remedy}",
        )


def attach(store: Store, run_id: str, *, host: bool = False) -> int:
    """Open a shell on the job's first node in this terminal, in the job's container or on the node itself;
    return its exit code."""
    (status,) = look(store, [run_id])
    queries.check_cluster(status.submission)
    if status.state is not JobState.RUNNING:
        raise BareboatError(
            f"{run_id} is {status.state.value}, not running", remedy=f"bareboat status {run_id}"
        )
    scheduler = registry.scheduler(status.submission.scheduler)
    if scheduler.IS_LOCAL:
        _check_machine(status.submission, f"bareboat attach {run_id}")
        return execute.run_in_terminal(
            (os.environ.get("SHELL") or "bash",) if host else _shell_words(store, run_id)
        )
    words = None if host else _shell_words(store, run_id)
    argv = scheduler.attach(job_id_now(store, status.submission) or "", words)
    if argv is None:
        way = "" if words is None else f" {shlex.join(words)}"
        raise BareboatError(
            f"{scheduler.NAME} cannot open a shell in a running job" + ("" if host else "'s container"),
            remedy=f"ssh -t {status.starts[-1].node}{way}" if status.starts else f"bareboat status {run_id}",
        )
    return execute.run_in_terminal(argv, environment=inherited.for_queries(os.environ))


def _shell_words(store: Store, run_id: str) -> tuple[str, ...]:
    """The command that opens a shell in a run's container, on a node of its job."""
    folder = store.run(run_id)
    own, whole = folder / directory.CONTROL / SHELL, folder.parent.parent / SHELL
    script = whole if folder.parent.name == "points" and os.path.lexists(whole) else own
    if not os.path.lexists(script):
        raise BareboatError(
            f"{script} is missing: it opens the shell in the container of {run_id}",
            remedy=f"bareboat attach --host {run_id}",
        )
    return ("bash", str(script), store.mark(run_id), str(folder / directory.CONTROL))
