"""Runs: followed, waited for, cancelled, read."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn, Self

from bareboat import registry
from bareboat.api import boundary, opened
from bareboat.api.boundary import translated
from bareboat.runs import allocation, creation, interaction, local, output, records, submission, sweeps
from bareboat_base.errors import BareboatError, StoreError, UsageError

if TYPE_CHECKING:
    from bareboat.model import JobState, Plan, Record
    from bareboat.model.sweep import Sweep as Points
    from bareboat.runs.state import Status
    from bareboat.session import Prepared, Session
    from bareboat_images.store import Store


class TimedOut(BareboatError):
    """A run did not end within the time that the caller had for it. The run continues."""


class Run:
    """One run: of this machine, of a scheduler, or one point of a sweep, whose `values` it has."""

    def __init__(self, store: Store, run_id: str, values: Mapping[str, str] | None = None) -> None:
        self._store = store
        self.id = run_id
        self.values = dict(values or {})

    @staticmethod
    @translated()
    def find(name: str) -> Run:
        """The run of this name, else the newest run of the job of this name; a `SweepRun` for a sweep. Raises
        UsageError."""
        store = opened.session().store
        run_id = submission.find(store, boundary.text("the run", name))
        submission.read(store, run_id)
        of = sweeps.of_point(store, run_id)
        return _of(store, run_id) if of is None else Run(store, run_id, of[0].values(of[1]))

    @staticmethod
    @translated()
    def all() -> list[Run]:
        """The runs and sweeps of the store, oldest first."""
        store = opened.session().store
        return [_of(store, name) for name in submission.submitted(store)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and (self._store.root, self.id) == (other._store.root, other.id)

    def __hash__(self) -> int:
        return hash(self.id)

    @translated()
    def status(self) -> Status:
        """What is known of the run now: by its files, and by asking the scheduler if they do not suffice."""
        (found,) = sweeps.look(self._store, [self.id])
        return found

    @property
    def state(self) -> JobState:
        return self.status().state

    @property
    def exit_code(self) -> int | None:
        """None until the run ended."""
        return self.status().exit_code

    @property
    @translated()
    def record(self) -> Record | None:
        """What was measured and found out; None until the run ended."""
        return records.record(self._store, self.status())

    @translated()
    def log(self, *, rank: int | None = None) -> str:
        """What the job printed so far, or one rank's output and then its error output. Raises StoreError
        where there is nothing."""
        number = None if rank is None else boundary.whole("rank", rank)
        return output.read(self._store, self.id, rank=number)

    @translated()
    def wait(self, timeout_s: float | None = None) -> Self:
        """Wait until the run ends. Raises TimedOut after `timeout_s` seconds; ToolError for a run that nobody
        knows, and when the scheduler does not answer for a quarter of an hour."""
        waiting, limit = self._waiting(), _limit(timeout_s)
        while waiting.ended() is None:
            time.sleep(self._pause(limit))
        return self

    def _waiting(self) -> interaction.Waiting:
        return interaction.Waiting(self._store, self.id, look=sweeps.look)

    def _pause(self, limit: float) -> float:
        """How long to wait before the next look. Raises TimedOut."""
        left = limit - time.monotonic()
        if left <= 0:
            raise TimedOut(
                f"{self.id} continues: the wait is over", remedy=f"bareboat.Run.find({self.id!r}).wait()"
            )
        return min(left, interaction.POLL_S)

    @translated()
    def cancel(self) -> None:
        """End the run, unless it is over."""
        sweeps.cancel(self._store, self.id)


class SweepRun(Run):
    """The run of a sweep, which is a sequence of its points' runs."""

    def __init__(self, store: Store, run_id: str, points: Points) -> None:
        super().__init__(store, run_id)
        self._points = points

    def __len__(self) -> int:
        return len(self._points.points)

    def __getitem__(self, index: int) -> Run:
        number = range(len(self))[boundary.whole("the index", index)]
        return Run(self._store, sweeps.points(self._store, self.id)[number], self._points.values(number))

    def __iter__(self) -> Iterator[Run]:
        return (self[index] for index in range(len(self)))

    @property
    def record(self) -> NoReturn:
        raise UsageError(
            "a sweep has a record for each of its points", remedy="[run.record for run in sweep]"
        )


def _of(store: Store, run_id: str) -> Run:
    """The run of this name; a damaged one as a run, whose methods report the damage."""
    try:
        points = sweeps.find(store, run_id)
    except StoreError:
        points = None
    return Run(store, run_id) if points is None else SweepRun(store, run_id, points)


def _limit(timeout_s: float | None) -> float:
    return math.inf if timeout_s is None else time.monotonic() + boundary.number("timeout_s", timeout_s)


def run(session: Session, prepared: Prepared, plan: Plan) -> Run:
    """Run the job here to its end."""
    if plan.scheduler != registry.HERE:
        record = allocation.run(session.store, plan, prepared.site, environment=session.environment)
    else:
        record = local.run(session.store, plan, prepared.site)
    return Run(session.store, record.study)


def run_sweep(session: Session, prepared: Prepared, plan: Plan) -> SweepRun:
    """Run the points here, one after another."""
    assert plan.job.sweep is not None
    run_id, _ = local.run_sweep(session.store, plan, prepared.site)
    return SweepRun(session.store, run_id, plan.job.sweep)


def submit(session: Session, prepared: Prepared, plan: Plan) -> Run:
    made = creation.submit(session.store, plan, prepared.site)
    return Run(session.store, made.run_id)


def submit_sweep(session: Session, prepared: Prepared, plan: Plan) -> SweepRun:
    assert plan.job.sweep is not None
    made = creation.submit(session.store, plan, prepared.site)
    return SweepRun(session.store, made.run_id, plan.job.sweep)
