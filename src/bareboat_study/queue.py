"""A study that is measured in jobs of a scheduler: submitted, followed and collected, point by point.

Each point is one job, in which all arms run on the same nodes. Runs that did not fit into it go on in the
next one. The nodes need no Bareboat, and the job needs no client: whoever resumes the study collects what the
nodes wrote.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bareboat.model import JobState, Matrix, Study
from bareboat.runs import interaction, state, submission
from bareboat.runs.state import Status
from bareboat_base.clock import epoch_s
from bareboat_base.errors import BareboatError, RunError, ToolError, UsageError
from bareboat_base.files import untrusted
from bareboat_base.printable import counted
from bareboat_images.store import Store
from bareboat_study import allocation, blocks, collection, listing, matrix, point_runs

#: Jobs of one study in the queue at the same time.
MOST_JOBS = 50
#: A scheduler may not know a job that it has just accepted.
_UNKNOWN_S = 60.0
#: Jobs one after another that lost a node and completed no run.
_MOST_LOST = 2
_LOST = (JobState.NODE_FAIL, JobState.PREEMPTED)
#: The exit code of a job script that lost its nodes.
_LOST_CODE = 70
#: A shared file system may show late what another node wrote.
_SETTLE_S = 10.0


class AllocationError(RunError):
    """The job of a point ended, and the study cannot go on by itself."""


@dataclass(slots=True)
class _Point:
    """A point while it is followed. `had`: its complete runs when its job was submitted, or first seen."""

    study: Study
    had: int = -1
    lost: int = 0


@dataclass(slots=True)
class Queue:
    """The jobs of a study. `limit_s`: the time limit of its next jobs; None: the job file's.

    `say` shows the progress, `note` what the user must know.
    """

    store: Store
    matrix: Matrix
    say: Callable[[str], None]
    note: Callable[[str], None]
    limit_s: int | None = None
    within_s: float | None = None
    _points: list[_Point] = field(default_factory=list)
    _outage: interaction.Outage = field(default_factory=interaction.Outage)

    def conduct(self, *, wait: bool) -> Matrix:
        """Collect what is complete, and submit a job for each point with runs left that has none; then follow
        the jobs to the end, unless `wait` is false. Returns the matrix with its complete design.

        Raises RunError for a warm-up that failed, AllocationError for a job that did not help, and PlanError
        for one that the scheduler refuses. Jobs that run go on, whatever is raised.
        """
        with self.store.locked(self.matrix.id):
            self._points = [_Point(study) for study in matrix.points(self.store, self.matrix)]
            for number in range(len(self._points)):
                self._collect(number)
            while True:
                self._fix_repeats()
                left = self._left()
                if not left:
                    return self.matrix
                found = self._look(left)
                if found is not None:
                    self._advance(left, found)
                    if not wait:
                        return self.matrix
                    self._tell(left, found)
                time.sleep(self._outage.poll_s)
                for number in left:
                    self._collect(number)

    def _left(self) -> dict[int, list[int]]:
        """The runs that are left, by their point."""
        found: dict[int, list[int]] = {}
        for run, point in matrix.missing(self.store, self.matrix):
            found.setdefault(point, []).append(run)
        return found

    def _collect(self, number: int) -> None:
        point = self._points[number]
        try:
            point.study = collection.collect(self.store, point.study)
        except RunError as error:
            if submission.is_submitted(self.store, point.study.id):
                interaction.cancel(self.store, point.study.id)
            raise self._placed(error, number) from None

    def _fix_repeats(self) -> None:
        """The number of repeats that fits into the time, once all warm-ups are there."""
        if self.matrix.repeats is None and not matrix.missing_warm_ups(self.store, self.matrix):
            self.matrix = matrix.fix_repeats(self.store, self.matrix, self.within_s, note=self.note)
            for point, study in zip(self._points, matrix.points(self.store, self.matrix), strict=True):
                point.study = study

    def _look(self, left: dict[int, list[int]]) -> dict[int, Status] | None:
        """The state of the points' newest jobs; None while the scheduler does not answer."""
        names = {
            number: self._points[number].study.id
            for number in left
            if submission.is_submitted(self.store, self._points[number].study.id)
        }
        try:
            found = state.look(self.store, list(names.values()))
        except ToolError as error:
            self._outage.endure(error)
            return None
        self._outage.end()
        return dict(zip(names, found, strict=True))

    def _advance(self, left: dict[int, list[int]], found: dict[int, Status]) -> None:
        """Submit a job for each point without one, as far as the scheduler may have more."""
        live = sum(_is_live(status) for status in found.values())
        for number, runs in left.items():
            status, point = found.get(number), self._points[number]
            if status is not None and _is_live(status):
                if status.stuck:
                    raise self._placed(self._never_starts(status), number)
                if point.had < 0:
                    point.had = self._done(number)
                continue
            if status is not None and self._has_settled(number, status):
                continue
            if live < MOST_JOBS:
                self._submit(number, runs)
                live += 1

    def _has_settled(self, number: int, status: Status) -> bool:
        """Whether the runs of a job that ended changed what is left. Raises AllocationError where another job
        would not help."""
        point = self._points[number]
        self._collect(number)  # what it wrote between the last look and its end
        deadline = time.monotonic() + (_SETTLE_S if point.had >= 0 and status.starts else 0.0)
        while (done := self._done(number)) == max(point.had, 0) and time.monotonic() < deadline:
            if (error := collection.failure(self.store, point.study)) is not None:
                raise self._placed(error, number)
            time.sleep(0.5)
            self._collect(number)
        if number not in self._left():
            return True
        if point.had < 0:  # of an earlier command, which may have said all this
            return False
        if done > point.had:
            point.lost = 0
            if status.state is JobState.CANCELLED:
                raise self._placed(_cancelled(point.study), number)
            return False
        if status.state in _LOST or status.exit_code == _LOST_CODE:
            point.lost += 1
            if point.lost < _MOST_LOST:
                return False
        raise self._placed(self._fruitless(number, status), number)

    def _never_starts(self, status: Status) -> AllocationError:
        return AllocationError(
            f"the job of {status.submission.run_id} never starts: {status.reason}",
            remedy=f"{status.stuck_remedy}; then: bareboat prove --resume {self.matrix.id}",
        )

    def _fruitless(self, number: int, status: Status) -> AllocationError:
        """Why a job completed no run."""
        study = self._points[number].study
        if status.state is JobState.CANCELLED:
            return _cancelled(study)
        limit_s = status.submission.walltime_s
        if limit_s and (status.exit_code == 0 or status.state is JobState.TIMEOUT):
            return AllocationError(
                f"no run is complete within the time limit of a job, {blocks.duration(limit_s)}",
                remedy=f"bareboat prove --resume {self.matrix.id} --time {2 * limit_s}s",
            )
        said = untrusted.last_lines(submission.output_log(self.store, study.id))
        reason, end = status.reason or f"exit code {status.exit_code}", status.end
        remedy = f"bareboat logs {study.id}; then: bareboat prove --resume {self.matrix.id}"
        if end is not None:
            reason = f"{end.cause.value}: {end.text}"
            remedy = end.remedy or remedy
        return AllocationError(
            f"the job of {study.id} ended and completed no run: {reason}", context=said, remedy=remedy
        )

    def _submit(self, number: int, runs: list[int]) -> None:
        point = self._points[number]
        study, asked = point.study, self.limit_s or point.study.job.walltime_s
        taken = matrix.durations(self.store, self.matrix).get(number, [])
        limit_s = allocation.time_limit_s(asked, taken, len(runs))
        point.had = self._done(number)
        made = allocation.submit(self.store, study, runs, limit_s)
        where = self.matrix.point_text(number)
        what = counted(len(runs), "run")
        limit = "" if limit_s is None else f", time limit {blocks.duration(limit_s)}"
        self.note(f"{study.id}{f' ({where})' if where else ''}: job {made.job_id}, {what}{limit}")

    def _done(self, number: int) -> int:
        return len(point_runs.stored_runs(self.store, self._points[number].study))

    def _tell(self, left: dict[int, list[int]], found: dict[int, Status]) -> None:
        """Show how far the study is."""
        runs = sum(map(len, left.values()))
        jobs = listing.jobs_text(found.values())
        seconds = blocks.seconds_left(
            matrix.durations(self.store, self.matrix), [(run, point) for point in left for run in left[point]]
        )
        time_left = f", about {blocks.duration(seconds)} of measuring" if seconds else ""
        self.say(
            f"{matrix.left_of(self.matrix, runs)}{time_left}" + (f"; of the jobs {jobs}" if jobs else "")
        )

    def _placed(self, error: BareboatError, number: int) -> BareboatError:
        """The error with its point."""
        where = self.matrix.point_text(number)
        return error.at(f"point {where}" if where else "")


def _is_live(status: Status) -> bool:
    """Whether the job may still run. One that its scheduler has not known for a while does not."""
    if status.over:
        return False
    if status.state is not JobState.UNKNOWN or status.damaged:
        return True
    return time.time() - epoch_s(status.submission.submitted_at) < _UNKNOWN_S


def _cancelled(study: Study) -> AllocationError:
    return AllocationError(
        f"the job of {study.id} was cancelled; its complete runs are kept",
        remedy=f"bareboat prove --resume {study.whole}",
    )


def jobs_of(store: Store, name: str) -> list[str]:
    """The runs of a name: of a study in a scheduler's jobs, its points with a job; else the run itself."""
    if not listing.is_study(store, name):
        return [name]
    found = submitted(store, matrix.read(store, name))
    if not found:
        raise UsageError(
            f"{name} is a study without a scheduler's job",
            remedy="press Ctrl-C where it is measured; bareboat status lists the runs",
        )
    return found


def is_queued(store: Store, name: str) -> bool:
    """Whether the name is a run that was submitted or started, or a study with a scheduler's job."""
    if listing.is_study(store, name):
        return bool(submitted(store, matrix.read(store, name)))
    return submission.is_submitted(store, name)


def live_jobs(store: Store, found: Matrix) -> list[str]:
    """The points whose jobs wait or run."""
    known = state.look(store, submitted(store, found), must_answer=False)
    return [status.submission.run_id for status in known if _is_live(status)]


def submitted(store: Store, found: Matrix) -> list[str]:
    """The points for which a job was submitted."""
    return [study.id for study in matrix.points(store, found) if submission.is_submitted(store, study.id)]
