"""Running a lock again: what it takes, in the order in which it is done, and the judgement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from bareboat import registry
from bareboat.session import Purpose, planning, preparation
from bareboat_base.errors import BareboatError, ImageError, PlanError, StoreError
from bareboat_study.reproduction import comparison, making, retrieval
from bareboat_study.reproduction.comparison import Compared, Tolerances
from bareboat_study.reproduction.difference import Difference, compare
from bareboat_study.reproduction.document import Lock
from bareboat_study.reproduction.retrieval import Found, Wishes

if TYPE_CHECKING:
    from bareboat.model import Job, Plan
    from bareboat.session import Prepared, Session

#: Exit codes.
EQUAL, DIFFERENT, NOT_REPLAYABLE, NOT_COMPARED = 0, 10, 11, 13
_WORDS = {
    EQUAL: "equal",
    DIFFERENT: "different",
    NOT_COMPARED: "no metric to compare",
}


class NotReplayableError(BareboatError):
    """Something that the lock needs cannot be had here."""

    code = NOT_REPLAYABLE


class Choice(Struct, frozen=True, kw_only=True):
    """Where and how to replay."""

    engine: str | None = None
    launcher: str | None = None
    scheduler: str | None = None


class Judgement(Struct, frozen=True, kw_only=True):
    """The outcome of a replay. `code`: its exit code."""

    run: str
    code: int
    word: str
    compared: tuple[Compared, ...]
    differences: tuple[Difference, ...]


def find(lock: Lock, session: Session, wishes: Wishes) -> Found:
    """What can be had of the lock, with the progress of checksums."""
    try:
        return retrieval.find(
            lock, session.store, wishes, environment=session.environment, progress=session.reporter.bytes
        )
    finally:
        session.reporter.end()


def check(found: Found) -> None:
    """Raise NotReplayableError where a part is missing."""
    missing = found.missing
    if missing:
        lines = [f"{part.name}: {part.text}" for part in missing]
        lines += [f"  {part.remedy}" for part in missing[1:] if part.remedy]
        count = f"{len(missing)} parts of the lock are" if len(missing) > 1 else "a part of the lock is"
        raise NotReplayableError(f"{count} missing here", context="\n".join(lines), remedy=missing[0].remedy)


def is_submitted(lock: Lock, choice: Choice) -> bool:
    """Whether the replay is given to a scheduler: where one is named, or for several nodes."""
    if choice.scheduler is not None:
        return choice.scheduler != registry.HERE
    return lock.job.topology.nodes > 1


def job_of(lock: Lock, found: Found, session: Session, choice: Choice) -> Job:
    """The job for this site, with the user's choices. What belongs to the lock's site is left out."""
    job = found.job.elsewhere()
    engine = choice.engine
    if engine is None and lock.job.engine == registry.BARE_METAL:
        engine = registry.BARE_METAL
    job = msgspec.structs.replace(
        job,
        engine=engine,
        launcher=choice.launcher,
        scheduler=choice.scheduler if is_submitted(lock, choice) else None,
        kernel_cache=False,  # the result must not depend on earlier runs
    )
    return session.settings.of_queue(is_submitted(lock, choice)).completed(job)


def prepare(lock: Lock, job: Job, session: Session, choice: Choice) -> tuple[Prepared, Plan]:
    """The plan of a run. Raises NotReplayableError where the job cannot run here."""
    purpose = Purpose.SUBMIT if is_submitted(lock, choice) else Purpose.RUN
    refused: tuple[type[BareboatError], ...] = (PlanError, ImageError)
    if session.looks:
        refused += (StoreError,)
    try:
        prepared = preparation.prepare(session, job, purpose)
        return prepared, planning.plan(session, prepared)
    except refused as error:
        raise NotReplayableError(error.message, context=error.context, remedy=error.remedy) from None


def run(
    prepared: Prepared,
    plan: Plan,
    session: Session,
    *,
    began: Callable[[str], None],
    waiting: Callable[[str], None],
    stdout_apart: bool,
) -> str:
    """Run or submit it, and wait for its end. Returns the name of the run. `began`: called with the name of a
    submitted run; `waiting`: with its state."""
    store = session.store
    if plan.scheduler == registry.HERE:
        from bareboat.runs import local

        return local.run(store, plan, prepared.site, stdout_apart=stdout_apart).study
    from bareboat.runs import creation, submission, sweeps

    made = creation.submit(store, plan, prepared.site)
    began(made.run_id)
    try:
        with submission.going_on(made.run_id):
            sweeps.wait(store, made.run_id, each=lambda status: waiting(status.state.value))
    finally:
        session.reporter.end()
    return made.run_id


def of_runs(found: Sequence[Compared]) -> int:
    """The exit code of compared runs. Equal exit codes alone show nothing about the results."""
    if any(each.equal is False for each in found):
        return DIFFERENT
    return EQUAL if any(each.equal and each.item != comparison.EXIT_CODE for each in found) else NOT_COMPARED


def judge(lock: Lock, run_id: str, session: Session, tolerances: Tolerances) -> Judgement:
    """Compare the lock with the run that replayed it."""
    reporter = session.reporter
    maker = making.Maker(
        session.store, metrics=lock.patterns, strict=False, say=reporter.say, progress=reporter.bytes
    )
    try:
        replayed = maker.lock(run_id)
    finally:
        reporter.end()
    found = comparison.of_runs(lock.results, replayed.results, tolerances)
    code = of_runs(found)
    return Judgement(
        run=run_id,
        code=code,
        word=_WORDS[code],
        compared=tuple(found),
        differences=tuple(compare(lock, replayed)),
    )
