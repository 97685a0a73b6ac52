"""Running a lock again: what it takes, in the order in which it is done, and the judgement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from bareboat import registry
from bareboat.session import Purpose, planning, preparation
from bareboat.session.defaults import with_settings
from bareboat_base import codec
from bareboat_base.errors import BareboatError, ImageError, PlanError, StoreError
from bareboat_study.reproduction import comparison, making, retrieval, study_comparison, study_retrieval
from bareboat_study.reproduction.comparison import Compared, Tolerances
from bareboat_study.reproduction.difference import Difference
from bareboat_study.reproduction.document import Lock, LockedStudy
from bareboat_study.reproduction.retrieval import Found, Wishes
from bareboat_study.reproduction.study_comparison import Outcome
from bareboat_study.reproduction.study_difference import compare

if TYPE_CHECKING:
    from bareboat.model import Job, Plan, Site
    from bareboat.session import Prepared, Session
    from bareboat_study.matrix import Cell
    from bareboat_study.studyfile import StudyRequest

#: Exit codes.
EQUAL, DIFFERENT, NOT_REPLAYABLE, UNDECIDED, NOT_COMPARED = 0, 10, 11, 12, 13
_WORDS = {
    EQUAL: "equal",
    DIFFERENT: "different",
    UNDECIDED: "undecided",
    NOT_COMPARED: "no metric to compare",
}


class NotReplayableError(BareboatError):
    """Something that the lock needs cannot be had here."""

    code = NOT_REPLAYABLE


class Choice(Struct, frozen=True, kw_only=True):
    """Where and how to replay. `repeats`: of a study; None: as many as before."""

    engine: str | None = None
    launcher: str | None = None
    scheduler: str | None = None
    repeats: int | None = None


class Judgement(Struct, frozen=True, kw_only=True):
    """The outcome of a replay. `code`: its exit code. `values`: of each arm of a study; `changed`:
    which of them differ and are not judged."""

    run: str
    code: int
    word: str
    compared: tuple[Compared, ...]
    differences: tuple[Difference, ...]
    values: tuple[Compared, ...] = ()
    changed: tuple[str, ...] = ()


def find(lock: Lock, session: Session, wishes: Wishes) -> Found:
    """What can be had of the lock, with the progress of checksums."""
    try:
        find_parts = retrieval.find if lock.study is None else study_retrieval.find
        progress = session.reporter.bytes
        return find_parts(lock, session.store, wishes, environment=session.environment, progress=progress)
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
    if lock.study is not None:
        return any(cell.job.topology.nodes > 1 for row in lock.study.cells for cell in row)
    return lock.kind == "run" and lock.job.topology.nodes > 1


def job_of(lock: Lock, found: Found, session: Session, choice: Choice) -> Job:
    """The job for this site, with the user's choices. What belongs to the lock's site is left out."""
    job = retrieval.without_place(found.job)
    engine = choice.engine
    if engine is None and lock.job.engine == registry.BARE_METAL:
        engine = registry.BARE_METAL
    job = msgspec.structs.replace(
        job,
        engine=engine,
        launcher=choice.launcher,
        scheduler=choice.scheduler if is_submitted(lock, choice) else None,
        # The result must not depend on earlier runs. A study has a cache of its own.
        kernel_cache=False if lock.study is None else job.kernel_cache,
    )
    return with_settings(job, session.settings, scheduler=is_submitted(lock, choice))


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


def of_study(found: Outcome) -> int:
    """The exit code of a compared study."""
    if False in found.judged:
        return DIFFERENT
    if not found.is_compared:
        return NOT_COMPARED
    return EQUAL if all(found.judged) else UNDECIDED


def request_of(
    lock: Lock, matrix: LockedStudy, found: Found, session: Session, choice: Choice
) -> StudyRequest:
    """The request of a study for this site, with the user's choices."""
    from bareboat_study.studyfile import StudyRequest

    if "scheduler" in matrix.factors:
        raise NotReplayableError(
            "the study compares schedulers, and a replay is measured under one",
            remedy="measure it again from its study file: bareboat prove FILE",
        )
    submitted = is_submitted(lock, choice)
    repeats = choice.repeats if choice.repeats is not None else matrix.repeats
    prove = msgspec.structs.replace(matrix.prove, repeats=repeats, within_s=None, quick=False)
    keeps = [study_retrieval.heads(matrix, arm) for arm in range(len(matrix.arms))]
    jobs = tuple(
        tuple(
            _job_of_arm(msgspec.structs.replace(job, prove=prove), own, session, choice, submitted=submitted)
            for job, own in zip(row, keeps, strict=True)
        )
        for row in found.jobs
    )
    if submitted and any(job.scheduler is None for row in jobs for job in row):
        raise NotReplayableError(
            f"the study needs {max(job.topology.nodes for row in jobs for job in row)} nodes",
            remedy="bareboat replay … --scheduler NAME",
        )
    return StudyRequest(
        name=lock.job.name,
        arms=matrix.arms,
        fixed=tuple(frozenset(keys) for keys in matrix.fixed),
        factors=matrix.factors,
        points=matrix.points,
        metrics=found.metrics,
        contrasts=matrix.contrasts,
        prove=prove,
        jobs=jobs,
        digest=codec.digest([lock.name, *(codec.digest(job) for row in jobs for job in row)]),
    )


def _job_of_arm(job: Job, keeps: set[str], session: Session, choice: Choice, *, submitted: bool) -> Job:
    """The job of an arm for this site. What the study compares stays, whatever the flags and settings."""
    keeps = {*keeps, "engine"} if job.engine == registry.BARE_METAL else keeps
    made = retrieval.without_place(job, keeps)
    made = msgspec.structs.replace(
        made,
        engine=made.engine or choice.engine,
        launcher=made.launcher or choice.launcher,
        scheduler=choice.scheduler if submitted else None,
    )
    changed = with_settings(made, session.settings, scheduler=submitted)
    own = {key: getattr(made, key) for key in ("engine", "launcher", "modules", "delivery") if key in keeps}
    return msgspec.structs.replace(changed, **own)


def cells_of(request: StudyRequest, session: Session) -> tuple[list[list[Cell]], Site]:
    """The plan of each arm at each point. Raises NotReplayableError where one cannot run here."""
    from bareboat_study import point_plans as studies

    try:
        return studies.cells(session, request)
    except (PlanError, ImageError) as error:
        raise NotReplayableError(error.message, context=error.context, remedy=error.remedy) from None


def measure(
    request: StudyRequest,
    cells: list[list[Cell]],
    site: Site,
    session: Session,
    *,
    began: Callable[[str], None],
) -> str:
    """Measure a study here, or in a scheduler's jobs, and wait for its end. Returns its name; `began` is
    called with it."""
    from bareboat_study import matrix
    from bareboat_study.queue import Queue

    store, reporter = session.store, session.reporter
    made = matrix.design(store, request, cells, site)
    began(made.id)
    try:
        if registry.is_queued(request.jobs[0][-1].scheduler):
            Queue(store, made, say=reporter.say, note=reporter.note).conduct(wait=True)
        else:
            matrix.conduct(store, made, say=reporter.say, note=reporter.note)
    finally:
        reporter.end()
    return made.id


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
    outcome = None
    if lock.study is not None and replayed.study is not None:
        outcome = study_comparison.of_studies(lock.study, replayed.study, tolerances)
        found, code = [*outcome.ratios], of_study(outcome)
    else:
        found = comparison.of_runs(lock.results, replayed.results, tolerances)
        code = of_runs(found)
    return Judgement(
        run=run_id,
        code=code,
        word=_WORDS[code],
        compared=tuple(found),
        differences=tuple(compare(lock, replayed)),
        values=outcome.values if outcome is not None else (),
        changed=outcome.changed if outcome is not None else (),
    )
