"""A study: designed, measured run after run, and read again.

    runs/ID/matrix.json             the design
    runs/ID/published.csv           what a publication measured, if the study file has such a table
    runs/ID/points/N/study.json     the design at each point, with all arms
    runs/ID/points/N/NNNN/          one run: each arm's record and output

Each run appears by one rename, so no run is counted twice and none is half there.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import secrets
import shlex
import statistics as descriptive
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET

from bareboat import registry, render
from bareboat.model import Arm, Image, Matrix, Plan, Record, Site, Study
from bareboat.runs import provenance
from bareboat_base import __version__, codec
from bareboat_base.clock import utc_now
from bareboat_base.errors import BareboatError, RunError, StoreError, UsageError
from bareboat_base.files import untrusted
from bareboat_base.printable import counted
from bareboat_images.store import Store
from bareboat_study import allocation, blocks, listing, point_runs, published, sequential, turns
from bareboat_study.published import Published
from bareboat_study.quantities import NO_METER
from bareboat_study.studyfile import StudyRequest
from bareboat_study.validity import Failure, failures_of

#: An arm that fails in each of so many first runs fails in all.
_FAILS_ALWAYS = 3
#: The plan of an arm at a point, and its image.
Cell = tuple[Plan, Image]


def design(
    store: Store,
    request: StudyRequest,
    cells: Sequence[Sequence[Cell]],
    site: Site,
    published_table: str | None = None,
) -> Matrix:
    """Write down the design of a new study; nothing has run yet. `cells[point][arm]`; `published_table`: the
    CSV of `published`.
    """
    images = {image.digest: image for row in cells for _, image in row}
    run_id = store.new_run(request.name)
    matrix = Matrix(
        id=run_id,
        created_at=utc_now(),
        name=request.name,
        request=request.digest,
        arms=request.arms,
        factors=request.factors,
        points=request.points,
        metrics=request.metrics[0],
        contrasts=request.contrasts,
        prove=request.prove,
        repeats=None if request.prove.is_timed else request.prove.repeats,
        images=tuple(images.values()),
        site=site,
        bareboat_version=__version__,
        keys=request.keys,
        template=request.template,
        seed=secrets.randbelow(2**31) if request.prove.seed is None else request.prove.seed,
    )
    with store.whole_run(run_id):
        others = [job for row in request.jobs for job in row]
        provenance.keep(store, run_id, request.jobs[0][-1], site, others=others)
        for point, row in enumerate(cells):
            study = study_of(request, cells, site, point, matrix.point_id(point), matrix.created_at)
            study = msgspec.structs.replace(study, seed=matrix.order_seed)
            store.run(study.id).mkdir(parents=True)
            point_runs.keep(store, study)
            if registry.is_queued(study.job.scheduler):
                allocation.write_arms(store, study, [plan for plan, _ in row])
        if published_table is not None:
            store.write(store.run(run_id) / published.NAME, published_table.encode())
        # Last, because a study without it never began.
        _keep(store, matrix)
    return matrix


def study_of(
    request: StudyRequest, cells: Sequence[Sequence[Cell]], site: Site, point: int, name: str, at: str = ""
) -> Study:
    """The study of a point, with all arms."""
    # The job, for the report, is the last arm's, since the first may have another image.
    repeats = blocks.LEAST_REPEATS if request.prove.is_timed else request.prove.repeats
    prove_request = msgspec.structs.replace(request.prove, repeats=repeats)
    return Study(
        id=name,
        created_at=at or utc_now(),
        job=msgspec.structs.replace(request.jobs[point][-1], prove=prove_request),
        arms=tuple(
            Arm(
                name=arm,
                engine=plan.engine,
                plan_digest=render.digest(plan),
                script=allocation.arm_script(plan, name, number),
                launcher=plan.launcher,
                image_digest=image.digest,
            )
            for number, (arm, (plan, image)) in enumerate(zip(request.arms, cells[point], strict=True))
        ),
        image=cells[point][-1][1],
        site=site,
        bareboat_version=__version__,
        point=point,
        metrics=request.metrics[point],
        jobs=request.jobs[point],
    )


# --------------------------------------------------------------------------------------------------
# Reading.


def read(store: Store, run_id: str) -> Matrix:
    """Raises UsageError for a name that is not a study, StoreError for a damaged one."""
    if not listing.is_study(store, run_id):
        if not os.path.lexists(store.run(run_id)):
            raise store.missing_run(run_id)
        raise UsageError(f"{run_id} is not a study", remedy=store.LIST_RUNS)
    return store.read(store.run(run_id) / listing.MATRIX, Matrix)


def find(store: Store, request: StudyRequest | None = None) -> Matrix:
    """The newest study with runs left, else the newest complete one: of this request, or of any. Raises
    UsageError."""
    complete, changed = None, ""
    for run_id in reversed(store.runs()):
        if not listing.is_study(store, run_id):
            continue
        matrix = read(store, run_id)
        if request is not None and matrix.request != request.digest:
            changed = changed or run_id * (matrix.name == request.name)
        elif missing(store, matrix):
            return matrix
        else:
            complete = complete or matrix
    if complete is not None:
        return complete
    raise UsageError(
        "no study found" + (" for this job in its current form" if request else ""),
        context=f"{changed} has the same name: the job changed since it began" if changed else "",
        remedy=f"bareboat prove --resume {changed}   # with its own design; or remove --resume"
        if changed
        else f"{store.LIST_RUNS}; remove --resume to start a new study",
    )


def points(store: Store, matrix: Matrix) -> list[Study]:
    """The design at each point. Raises StoreError."""
    found = []
    for point in range(len(matrix.points)):
        path = store.run(matrix.point_id(point)) / "study.json"
        study = store.read(path, Study)
        is_other = tuple(arm.name for arm in study.arms) != matrix.arms
        # Studies of earlier versions do not record the jobs.
        if is_other or len(study.jobs) not in (0, len(study.arms)):
            raise StoreError(
                f"{path} cannot be read: its arms are not those of the study",
                remedy="restore it from a backup",
            )
        if matrix.repeats is not None:
            prove = msgspec.structs.replace(study.job.prove, repeats=matrix.repeats)
            study = msgspec.structs.replace(study, job=msgspec.structs.replace(study.job, prove=prove))
        found.append(study)
    return found


def measured(store: Store, matrix: Matrix) -> tuple[list[Study], list[list[Record]]]:
    """The design at each point, and its records. Raises StoreError."""
    studies = points(store, matrix)
    return studies, [point_runs.read_records(store, study) for study in studies]


def failures(store: Store, name: str) -> list[Failure]:
    """The failed runs of a study. Raises StoreError."""
    matrix = read(store, name)
    return failures_of(matrix, measured(store, matrix)[1])


def logs(store: Store, name: str) -> list[tuple[str, Path]]:
    """The names and the output of the failed runs; in a study without any, of its newest run."""
    matrix = read(store, name)
    studies, records = measured(store, matrix)
    shown = [(each.name, each.point, each.run, each.arm) for each in failures_of(matrix, records)]
    if not shown and any(records):
        run, point = max((own[-1].run, point) for point, own in enumerate(records) if own)
        shown = [(f"run {run} of {arm}", point, run, arm) for arm in matrix.arms]
    return [(text, point_runs.log_file(store, studies[point], run, arm)) for text, point, run, arm in shown]


def read_published(store: Store, matrix: Matrix) -> list[Published] | None:
    """The rows of the study's published table; None: it has none."""
    path = store.run(matrix.id) / published.NAME
    return published.read(untrusted.read_text(path), str(path)) if os.path.lexists(path) else None


def missing(store: Store, matrix: Matrix) -> list[tuple[int, int]]:
    """(run, point) of the runs that are left, in their order; only warm-ups while the number of repeats is
    not known."""
    left = _left(store, matrix, matrix.planned_runs)
    # The number of repeats follows from the warm-ups, so a study without it has runs left.
    return left or ([] if matrix.repeats else blocks.schedule(matrix.order_seed, len(matrix.points), 0)[:1])


def missing_warm_ups(store: Store, matrix: Matrix) -> list[tuple[int, int]]:
    """(0, point) of the points without one."""
    return _left(store, matrix, 0)


def _left(store: Store, matrix: Matrix, repeats: int) -> list[tuple[int, int]]:
    order = blocks.schedule(matrix.order_seed, len(matrix.points), repeats)
    return [each for each in order if not (store.run(matrix.point_id(each[1])) / f"{each[0]:04d}").is_dir()]


def unfinished(store: Store) -> Iterator[Matrix]:
    """The studies with runs left, except damaged ones."""
    for name in store.runs():
        with contextlib.suppress(StoreError):
            if listing.is_study(store, name) and missing(store, matrix := read(store, name)):
                yield matrix


def durations(store: Store, matrix: Matrix) -> dict[int, list[float]]:
    """The seconds of each point's runs, in order, all arms together."""
    found = {}
    for point, study in enumerate(points(store, matrix)):
        found[point] = [point_runs.took_s(store, study, run) for run in point_runs.stored_runs(store, study)]
    return {point: seconds for point, seconds in found.items() if seconds}


# --------------------------------------------------------------------------------------------------
# Measuring.


def conduct(
    store: Store,
    matrix: Matrix,
    *,
    say: Callable[[str], None],
    note: Callable[[str], None],
    within_s: float | None = None,
    alone: Sequence[str] = (),
) -> Matrix:
    """Do all missing runs. Returns the matrix with its complete design.

    A failed run is stored with its reason; a failed warm-up raises RunError. Stored runs are kept whatever
    stops the study. `within_s`: another time than the design's, before the number of repeats is known; a
    study until decided pauses after it, or after the design's where it does not resume.
    `alone`: the words of `bareboat run` that start the job alone, for the remedy of a first run that failed.
    """
    began_s = time.monotonic()
    with store.locked(matrix.id):
        limit_s = within_s or (None if durations(store, matrix) else matrix.prove.within_s)
        until_s = began_s + limit_s if limit_s and matrix.prove.until_decided else math.inf
        warm_ups = missing_warm_ups(store, matrix)
        try:
            _do(store, matrix, warm_ups, say)
        except RunError as error:
            if not alone or len(matrix.points) > 1 or durations(store, matrix):
                raise
            raise _first_failure(store, matrix, error, alone) from None
        studies = points(store, matrix) if warm_ups else []
        if studies and not any(each.metered or each.metrics for each in studies):
            note(NO_METER)
        for text in dict.fromkeys(each.written for each in studies if each.written):
            note(text)
        if matrix.repeats is None:
            matrix = fix_repeats(store, matrix, within_s, note=note)
        for runs in sequential.planned(matrix.prove)[:-1]:
            _do(store, matrix, [each for each in missing(store, matrix) if each[0] <= runs], say, until_s)
            matrix = _decided(store, matrix)
        _do(store, matrix, missing(store, matrix), say, until_s)
    return matrix


def _first_failure(store: Store, matrix: Matrix, error: RunError, alone: Sequence[str]) -> RunError:
    """The error with the run alone as its remedy, and stored for the list of runs."""
    engines = {arm.name: arm.engine for arm in points(store, matrix)[0].arms}
    is_bare = engines.get(error.message.partition(": ")[0]) == registry.BARE_METAL
    command = shlex.join(["bareboat", "run", *(["--engine", registry.BARE_METAL] if is_bare else []), *alone])
    text = ": ".join((error.message, *error.context.strip().splitlines()[:1]))
    listing.keep_failure(store, matrix.id, f"{text}; try: {command}")
    own = error.remedy and "bareboat run …" not in error.remedy
    return error if own else error.but(remedy=command)


def _decided(store: Store, matrix: Matrix) -> Matrix:
    """The study at a look, which ends if its runs decide."""
    if matrix.decided_after is not UNSET:
        return matrix
    from bareboat_study import analysis

    (study,), (records,) = measured(store, matrix)
    try:
        found = analysis.analyse(study, records)
    except UsageError:  # too few runs ended well
        return matrix
    if found.is_complete:
        matrix = msgspec.structs.replace(matrix, decided_after=found.planned)
        _keep(store, matrix)
    return matrix


def fix_repeats(
    store: Store, matrix: Matrix, within_s: float | None, *, note: Callable[[str], None]
) -> Matrix:
    """Choose the number of repeats that fits into the time, by the warm-ups, and store it."""
    taken = durations(store, matrix)
    warm_ups_s = [taken[point][0] for point in sorted(taken)]
    # In two runs of each point that takes turns, each arm is also alone, which takes as long as a run.
    has_alone = (turns.has_alone(each, 2) for each in points(store, matrix))
    alone_s = 2 * sum(itertools.compress(warm_ups_s, has_alone))
    within_s = within_s or matrix.prove.within_s or 0.0
    repeats = blocks.repeats_within(matrix.id, within_s, warm_ups_s, alone_s)
    matrix = msgspec.structs.replace(matrix, repeats=repeats)
    for study in points(store, matrix):
        point_runs.keep(store, study)
    _keep(store, matrix)
    few = f"; {blocks.few(repeats)}" if blocks.few(repeats) else ""
    what, time = counted(len(matrix.points), "point"), blocks.duration(within_s)
    note(f"{repeats} repeats of {what} fit into {time} if each takes as long as the warm-up{few}")
    return matrix


def _do(
    store: Store,
    matrix: Matrix,
    left: Sequence[tuple[int, int]],
    say: Callable[[str], None],
    until_s: float = math.inf,
) -> None:
    """Do these runs, in their order; none that would probably end after `until_s`, once there are two."""
    studies = points(store, matrix)
    scripts = {point: point_runs.write_scripts(store, studies[point]) for _, point in left}
    taken = durations(store, matrix)
    for number, (run, point) in enumerate(left):
        if run > blocks.LEAST_REPEATS and time.monotonic() + descriptive.median(taken[point]) > until_s:
            return
        head = _head(matrix, taken, left[number:])

        def below(text: str, head: str = head) -> None:
            say(f"{head}: {text}")

        try:
            studies[point] = point_runs.measure(store, studies[point], run, scripts[point], say=below)
        except BareboatError as error:
            where = matrix.point_text(point)
            if not isinstance(error, RunError | UsageError) or not where:
                raise
            raise error.at(f"point {where}") from None
        taken.setdefault(point, []).append(point_runs.took_s(store, studies[point], run))
        if run == _FAILS_ALWAYS:
            _check_some_ended_well(store, matrix, point)


def _check_some_ended_well(store: Store, matrix: Matrix, point: int) -> None:
    """Raise RunError where an arm failed in each of the first runs: it would fail in the others, too."""
    failed = [each for each in failures(store, matrix.id) if each.point == point]
    for last in failed:
        if last.run == _FAILS_ALWAYS == sum(each.arm == last.arm for each in failed):
            raise RunError(
                f"{last.arm}: the first {_FAILS_ALWAYS} runs after the warm-up failed",
                context=last.text.replace("; ", ";\n"),
                remedy=f"bareboat logs {matrix.id}; for the others: bareboat prove --resume {matrix.id}",
            )


def _head(matrix: Matrix, taken: Mapping[int, Sequence[float]], left: Sequence[tuple[int, int]]) -> str:
    """The run that begins, for display, and what is left after it."""
    (run, _point), where = left[0], matrix.point_text(left[0][1])
    most = "at most " if matrix.prove.until_decided else ""
    label = "warm-up" if run == 0 else f"run {run} of {most}{matrix.repeats}"
    seconds = blocks.seconds_left(taken, left)
    time = f", about {blocks.duration(seconds)}" if seconds else ""
    return f"{label}; {where}; {left_of(matrix, len(left))}{time}" if where else f"{label}{time}"


def left_of(matrix: Matrix, number: int) -> str:
    """The number of runs that are left, for display. A run has all arms of one point."""
    runs = counted(number, "run") + " left"
    return runs if matrix.repeats else f"{runs} before the number of repeats is known"


def _keep(store: Store, matrix: Matrix) -> None:
    store.write(store.run(matrix.id) / listing.MATRIX, codec.to_json(matrix))
