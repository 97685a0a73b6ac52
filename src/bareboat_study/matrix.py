"""A study of several arms at several points: designed, measured run after run, and read again.

    runs/ID/matrix.json             the design
    runs/ID/published.csv           what a publication measured, if the study file has such a table
    runs/ID/points/N/study.json     each point is a study of its own, with all arms
    runs/ID/points/N/NNNN/          one run: each arm's record and output

Each run appears by one rename, as in other studies, so no run is counted twice and none is half there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec

from bareboat import render
from bareboat.model import Arm, Image, Job, Matrix, Plan, Record, Site, Study
from bareboat.model.matrix import with_repeats
from bareboat.runs import provenance
from bareboat_base import __version__, codec
from bareboat_base.clock import utc_now
from bareboat_base.errors import BareboatError, RunError, UsageError
from bareboat_base.files import untrusted
from bareboat_base.printable import counted
from bareboat_images.store import LIST_RUNS, Store
from bareboat_study import allocation, blocks, prove, published, turns
from bareboat_study.published import Published
from bareboat_study.studyfile import StudyRequest

FILE = "matrix.json"

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
    CSV of `study/published.py`.
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
        repeats=None if request.prove.within_s else request.prove.repeats,
        images=tuple(images.values()),
        site=site,
        bareboat_version=__version__,
        fixed=tuple(tuple(sorted(keys)) for keys in request.fixed),
        seed=turns.drawn_seed(request.prove.seed),
    )
    with store.whole_run(run_id):
        others = [job for row in request.jobs for job in row]
        provenance.keep(store, run_id, request.jobs[0][-1], site, others=others)
        for point, row in enumerate(cells):
            study = study_of(request, cells, site, point, matrix.point_id(point), matrix.created_at)
            study = msgspec.structs.replace(study, seed=matrix.order_seed)
            store.run(study.id).mkdir(parents=True)
            prove.keep(store, study)
            if allocation.is_queued(study):
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
    return Study(
        id=name,
        created_at=at or utc_now(),
        job=_job(request, point),
        arms=_arms(request, cells[point]),
        image=cells[point][-1][1],
        site=site,
        bareboat_version=__version__,
        point=point,
        metrics=request.metrics[point],
        jobs=request.jobs[point],
    )


def _arms(request: StudyRequest, row: Sequence[Cell]) -> tuple[Arm, ...]:
    return tuple(
        Arm(
            name=name,
            engine=plan.engine,
            plan_digest=render.digest(plan),
            script=allocation.arm_script(plan),
            image_digest=image.digest,
        )
        for name, (plan, image) in zip(request.arms, row, strict=True)
    )


def _job(request: StudyRequest, point: int) -> Job:
    """The job of a point, for its report: the last arm's, since the first may have another image."""
    repeats = blocks.LEAST_REPEATS if request.prove.within_s else request.prove.repeats
    prove_request = msgspec.structs.replace(request.prove, repeats=repeats)
    return msgspec.structs.replace(request.jobs[point][-1], prove=prove_request)


# --------------------------------------------------------------------------------------------------
# Reading.


def is_matrix(store: Store, run_id: str) -> bool:
    return os.path.lexists(store.run(run_id) / FILE)


def read(store: Store, run_id: str) -> Matrix:
    return store.read(store.run(run_id) / FILE, Matrix)


def find(store: Store, request: StudyRequest) -> Matrix:
    """The newest study of this file with runs left, else the newest complete one. Raises UsageError."""
    complete = None
    for run_id in reversed(store.runs()):
        if is_matrix(store, run_id) and (matrix := read(store, run_id)).request == request.digest:
            if missing(store, matrix):
                return matrix
            complete = complete or matrix
    if complete is not None:
        return complete
    others = [run_id for run_id in store.runs() if is_matrix(store, run_id)]
    changed = [run_id for run_id in others if read(store, run_id).name == request.name]
    raise UsageError(
        "no study found for this file in its current form",
        context=f"{changed[-1]} has the same name: the file changed since it began" if changed else "",
        remedy=f"bareboat prove --resume {changed[-1]}   # with its own design; or remove --resume"
        if changed
        else f"{LIST_RUNS}; remove --resume to start a new study",
    )


def points(store: Store, matrix: Matrix) -> list[Study]:
    return [
        store.read(store.run(matrix.point_id(point)) / "study.json", Study)
        for point in range(len(matrix.points))
    ]


def read_records(store: Store, matrix: Matrix) -> list[list[Record]]:
    """The records of each point."""
    return [prove.read_records(store, _with_repeats(study, matrix)) for study in points(store, matrix)]


def read_published(store: Store, matrix: Matrix) -> list[Published] | None:
    """The rows of the study's published table; None: it has none."""
    path = store.run(matrix.id) / published.NAME
    return published.read(untrusted.read_text(path), str(path)) if os.path.lexists(path) else None


def missing(store: Store, matrix: Matrix) -> list[tuple[int, int]]:
    """(run, point) of the runs that are left, in their order; only warm-ups while the number of repeats is
    not known."""
    repeats = matrix.repeats or 0
    order = blocks.schedule(matrix.order_seed, len(matrix.points), repeats)
    left = [(run, point) for run, point in order if not _is_done(store, matrix, point, run)]
    # The number of repeats follows from the warm-ups, so a study without it has runs left.
    return left or ([] if matrix.repeats else order[:1])


def _is_done(store: Store, matrix: Matrix, point: int, run: int) -> bool:
    return (store.run(matrix.point_id(point)) / f"{run:04d}").is_dir()


def durations(store: Store, matrix: Matrix) -> dict[int, list[float]]:
    """The seconds of each point's runs, in order, all arms together."""
    found: dict[int, list[float]] = {}
    for point, study in enumerate(points(store, matrix)):
        done = range((matrix.repeats or 0) + 1)
        seconds = [prove.took_s(store, study, run) for run in done if _is_done(store, matrix, point, run)]
        if seconds:
            found[point] = seconds
    return found


# --------------------------------------------------------------------------------------------------
# Measuring.


def conduct(
    store: Store,
    matrix: Matrix,
    *,
    say: Callable[[str], None],
    note: Callable[[str], None],
    within_s: float | None = None,
) -> Matrix:
    """Do all missing runs. Returns the matrix with its complete design.

    A failed run is stored with its reason; a failed warm-up raises RunError. Stored runs are kept whatever
    stops the study. `within_s`: another time than the design's, before the number of repeats is known.
    """
    with store.locked(matrix.id):
        left = missing(store, matrix)
        if matrix.repeats is None:
            _do(store, matrix, missing_warm_ups(store, matrix), say)
            matrix = fix_repeats(store, matrix, within_s, note=note)
            left = missing(store, matrix)
        _do(store, matrix, left, say)
    return matrix


def missing_warm_ups(store: Store, matrix: Matrix) -> list[tuple[int, int]]:
    """(0, point) of the points without one."""
    return [
        (run, point)
        for run, point in blocks.schedule(matrix.order_seed, len(matrix.points), 0)
        if not _is_done(store, matrix, point, run)
    ]


def fix_repeats(
    store: Store, matrix: Matrix, within_s: float | None, *, note: Callable[[str], None]
) -> Matrix:
    """Choose the number of repeats that fits into the time, by the warm-ups, and write it down."""
    within_s = within_s or matrix.prove.within_s or 0.0
    taken = durations(store, matrix)
    repeats = blocks.repeats_within(within_s, [taken[point][0] for point in sorted(taken)])
    matrix = with_repeats(matrix, repeats)
    for study in points(store, matrix):
        prove.keep(store, _with_repeats(study, matrix))
    _keep(store, matrix)
    note(f"{repeats} repeats of {counted(len(matrix.points), 'point')} fit into {blocks.duration(within_s)}")
    return matrix


def _do(store: Store, matrix: Matrix, left: Sequence[tuple[int, int]], say: Callable[[str], None]) -> None:
    studies = points(store, matrix)
    scripts = {point: prove.write_scripts(store, studies[point]) for _, point in left}
    taken = durations(store, matrix)
    for number, (run, point) in enumerate(left):
        label = "warm-up" if run == 0 else f"repeat {run} of {matrix.repeats}"
        where = matrix.point_text(point)
        seconds = blocks.seconds_left(taken, left[number:])
        parts = (
            label,
            where,
            left_of(matrix, len(left) - number) + (f", about {blocks.duration(seconds)}" if seconds else ""),
        )
        head = "; ".join(filter(None, parts))
        try:
            studies[point] = prove.measure(
                store,
                studies[point],
                run,
                scripts[point],
                say=prove.headed(say, head),
                keep_failures=True,
                keep_logs=True,
            )
        except BareboatError as error:
            if not isinstance(error, RunError | UsageError) or not where:
                raise
            context = f"point {where}\n{error.context}" if error.context else f"point {where}"
            raise error.but(context=context) from None
        taken.setdefault(point, []).append(prove.took_s(store, studies[point], run))


def left_of(matrix: Matrix, number: int) -> str:
    """The number of runs that are left, for display. A run has all arms of one point."""
    runs = counted(number, "run") + " left"
    return runs if matrix.repeats else f"{runs} before the number of repeats is known"


def _with_repeats(study: Study, matrix: Matrix) -> Study:
    if matrix.repeats in (None, study.job.prove.repeats):
        return study
    request = msgspec.structs.replace(study.job.prove, repeats=matrix.repeats)
    return msgspec.structs.replace(study, job=msgspec.structs.replace(study.job, prove=request))


def _keep(store: Store, matrix: Matrix) -> None:
    store.write(store.run(matrix.id) / FILE, codec.to_json(matrix))
