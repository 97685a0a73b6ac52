"""bareboat prove, of a study file: several arms, points and metrics."""

from __future__ import annotations

import dataclasses
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from bareboat import registry, render
from bareboat.cli import console, study_flags
from bareboat.cli.common import Context
from bareboat.cli.job import check_waits, note_ignored, plan_text, read_job, with_flags
from bareboat.model import Matrix
from bareboat.model.matrix import point_text
from bareboat_base import codec
from bareboat_base.errors import BareboatError, PlanError, Terminated, UsageError
from bareboat_base.printable import counted

if TYPE_CHECKING:
    from bareboat.model import Job, Site
    from bareboat_study.matrix import Cell
    from bareboat_study.studyfile import StudyRequest


def request_of(context: Context) -> StudyRequest | None:
    """The request of a study file, or of any job for a scheduler; None for other jobs."""
    options = context.options
    from bareboat_base.toml import TomlFile
    from bareboat_study import studyfile

    asked = options.scheduler
    if asked is not None:
        registry.scheduler(asked)
    if not options.file or options.command:
        if not registry.is_queued(asked):
            return None
        request = studyfile.study_of_job(read_job(context))
        return _checked(request)
    file = TomlFile(Path(options.file))
    queue = asked or file.values.get("scheduler")
    if not studyfile.is_study(file) and not registry.is_queued(queue):
        return None
    if options.engine and "arms" in file.values:
        raise UsageError(
            "--engine cannot be combined with [arms], which names the engine of each arm",
            context=file.at("arms"),
            remedy=f'remove --engine, or set engine = "{options.engine}" in an arm',
        )
    request = studyfile.read_study(file, context.settings, image=options.image)
    jobs = tuple(
        tuple(_with_flags(context, job, fixed) for job, fixed in zip(row, request.fixed, strict=True))
        for row in request.jobs
    )
    prove = request.prove
    if options.within is not None:
        prove = msgspec.structs.replace(prove, within_s=options.within)
    elif options.repeats is not None:  # goes over the file's time
        prove = msgspec.structs.replace(prove, within_s=msgspec.UNSET)
    digest = request.digest if asked is None else codec.digest([request.digest, asked])
    request = dataclasses.replace(request, jobs=jobs, prove=prove, digest=digest)
    return _checked(request)


def _checked(request: StudyRequest) -> StudyRequest:
    """The request, unless its design is for other studies."""
    if request.prove.until_decided is True:
        raise UsageError(
            "until_decided is for one container against bare metal, on this machine",
            key="prove.until_decided",
            remedy="remove it; set repeats, or within_s",
        )
    return request


def _with_flags(context: Context, job: Job, fixed: frozenset[str]) -> Job:
    """The job with flags and settings, except for what its arm sets itself."""
    changed = with_flags(context, job)
    return msgspec.structs.replace(changed, **{key: getattr(job, key) for key in fixed if key != "topology"})


def run(context: Context, request: StudyRequest, published: str | None) -> int:
    """Design and conduct a new study, or resume the newest of this file. `published`: the CSV of a
    publication's figures."""
    options = context.options
    from bareboat.cli.libraries import check_library
    from bareboat_study import matrix
    from bareboat_study import published as tables

    if options.resume:
        return resume(context, matrix.find(context.store, request))
    if published is not None:
        rows = tables.read(published, tables.NAME)
        tables.check(rows, request.factors, tables.NAME)
        metrics = [metric.name for point in request.metrics for metric in point]
        for text in tables.unused(
            rows, arms=request.arms, metrics=metrics, factors=request.factors, name=tables.NAME
        ):
            console.note(f"warning: {text}")
    from bareboat_study import planning as studies

    if not options.dry_run and not options.no_wait:
        check_library()  # before an environment is captured
    cells, site = studies.cells(context.session, request)
    for first, second in studies.equal_arms(request, cells):
        console.note(f"the arms {first!r} and {second!r} have the same plan: this measures the method (A/A)")
    if options.dry_run:
        _show(context, request, cells, site)
        return 0
    if not registry.is_queued(request.jobs[0][-1].scheduler):
        check_waits(options)
        return _measure(context, matrix.design(context.store, request, cells, site, published))
    return _follow(context, matrix.design(context.store, request, cells, site, published), new=True)


def resume(context: Context, found: Matrix) -> int:
    """Conduct the missing runs of a study."""
    from bareboat.cli.libraries import check_library
    from bareboat_study import blocks, matrix

    _check_unchanged(context, found)
    if context.options.dry_run:
        left = matrix.missing(context.store, found)
        if context.options.json:
            console.result_json({"study": found.id, "runs_left": len(left), "repeats": found.repeats})
        else:
            seconds = blocks.seconds_left(matrix.durations(context.store, found), left)
            time = f", about {blocks.duration(seconds)}" if seconds else ""
            console.result(f"{found.id}: {matrix.left_of(found, len(left))}{time}")
        return 0
    if registry.is_queued(matrix.points(context.store, found)[0].job.scheduler):
        return _follow(context, found)
    check_library()
    return _measure(context, found)


def _check_unchanged(context: Context, found: Matrix) -> None:
    """Raise UsageError for a flag that would change the design."""
    from bareboat_study import matrix

    options = context.options
    job = matrix.points(context.store, found)[0].job
    design = study_flags.designed(job, seed=found.order_seed, env_from=options.env_from or [])
    design |= {name: getattr(found.prove, name) for name in ("repeats", "margin", "confidence")}
    # Of the command the points have their own; the time is that of the next jobs.
    free = ("command", "time") if registry.is_queued(job.scheduler) else ("command",)
    design |= {name: getattr(options, name) for name in free}
    study_flags.refuse_changes(options, found.id, design)
    if options.within is not None and found.repeats is not None:
        raise UsageError(
            f"--within cannot change the study {found.id}: it has {found.repeats} repeats",
            remedy="remove --within",
        )


def _show(context: Context, request: StudyRequest, cells: list[list[Cell]], site: Site) -> None:
    """The design, and the plan of each arm at the first point."""
    from bareboat_study import layouts, turns

    prove = request.prove
    rows = [[plan for plan, _ in row] for row in cells]
    if context.options.json:
        console.result_json(
            {
                "arms": request.arms,
                "factors": request.factors,
                "points": request.points,
                "metrics": request.metrics[0],
                "contrasts": request.contrasts,
                "repeats": None if prove.within_s else prove.repeats,
                "within_s": prove.within_s or None,
                "margin": prove.margin,
                "seed": None if prove.seed is UNSET else prove.seed,
                "plans": [[render.shown(plan) for plan in row] for row in rows],
            }
        )
        return
    if registry.is_queued(rows[0][0].job.scheduler):
        console.result(_first_script(context, request, cells, site))
    for name, plan in zip(request.arms, rows[0], strict=True):
        console.result(f"{console.bold('arm ' + name)}\n{plan_text(context, plan)}\n")
    points = len(request.points)
    console.result("points:")
    for number, point in enumerate(request.points[:20]):
        console.result(f"  {number:>3}  {point_text(request.factors, point) or 'the job as it is'}")
    if points > 20:
        console.result(f"  … and {points - 20} more")
    for metric in request.metrics[0]:
        source = metric.pattern or metric.series or f"{metric.file} {metric.key}"
        console.result(f"metric {metric.name}: {source}")
    arms = len(request.arms)
    if prove.within_s:
        amount = f"1 warm-up, then as many repeats as fit into {prove.within_s:g} s"
    else:
        amount = f"1 warm-up and {prove.repeats} repeats: {(prove.repeats + 1) * points * arms} runs"
    drawn = layouts.request_text(prove, is_queued=registry.is_queued(rows[0][0].job.scheduler))
    console.result(
        f"would do, for {counted(points, 'point')} and {arms} arms: {amount}; "
        f"margin {prove.margin:.1%}, {turns.seed_text(prove.seed)}, {drawn}\n"
        "the time is known after the warm-up: bareboat prove --resume --dry-run"
    )


def _first_script(context: Context, request: StudyRequest, cells: list[list[Cell]], site: Site) -> str:
    """The job script of the first point."""
    from bareboat_study import allocation, matrix

    study = matrix.study_of(request, cells, site, 0, f"{request.name}.0")
    repeats = 0 if request.prove.within_s else request.prove.repeats
    return allocation.script(context.store, study, range(repeats + 1), study.job.walltime_s)


def _measure(context: Context, found: Matrix) -> int:
    from bareboat_study import matrix

    note_ignored(context)
    if not context.options.quiet:
        count = counted(len(found.points), "point")
        console.note(f"study {found.id}: {', '.join(found.arms)}; {count}")
    try:
        found = matrix.conduct(
            context.store,
            found,
            say=context.progress.say,
            note=context.progress.note,
            within_s=context.options.within,
        )
    except (KeyboardInterrupt, Terminated, BareboatError) as error:
        context.progress.end()
        if found.repeats is None and not matrix.missing_warm_ups(context.store, found):
            state = "stopped after the warm-up, which is kept"
        else:
            state = f"stopped with {matrix.left_of(found, len(matrix.missing(context.store, found)))}"
            state += "; the others are kept" if matrix.durations(context.store, found) else ""
        lines = [f"\n{state}", f"resume with: bareboat prove --resume {found.id}"]
        file = context.options.file
        if isinstance(error, BareboatError) and file and os.path.isfile(file):
            # --resume would not read it again: the design of a study is fixed.
            lines.append(f"after a change of the study file: bareboat prove {shlex.quote(file)}")
        console.warn("\n".join(lines))
        raise
    context.progress.end()
    from bareboat.cli.study_result import report

    return report(context, found, context.options.output)


def _follow(context: Context, found: Matrix, *, new: bool = False) -> int:
    """Measure in the scheduler's jobs: submit what has no job, and follow them. A `new` study whose first job
    is refused leaves nothing."""
    from bareboat_study import matrix
    from bareboat_study.queue import Queue, has_job, live_jobs

    options, store = context.options, context.store
    if new and not matrix.points(store, found)[0].job.scheduling.exclusive:
        context.progress.note(
            "other jobs, also those of other points, may share the nodes and disturb the measurement; "
            "to prevent this: exclusive = true under [scheduling]"
        )
    queue = Queue(
        store,
        found,
        say=context.progress.say,
        note=context.progress.note,
        limit_s=options.time,
        within_s=options.within,
    )
    try:
        found = queue.conduct(wait=not options.no_wait)
    except (KeyboardInterrupt, Terminated, BareboatError) as error:
        context.progress.end()
        if new and isinstance(error, PlanError) and not has_job(store, found):
            store.discard(store.run(found.id))
            raise
        left = matrix.left_of(found, len(matrix.missing(store, found)))
        live = live_jobs(store, found)
        console.warn(
            f"\n{left}; the others are kept"
            + (
                f"\njobs that go on: {', '.join(live)}; to cancel: bareboat cancel {' '.join(live)}"
                if live
                else ""
            )
            + f"\nresume with: bareboat prove --resume {found.id}"
        )
        if not isinstance(error, BareboatError):
            error.add_note("the study's jobs continue")
        raise
    context.progress.end()
    if matrix.missing(store, found):
        if options.json:
            console.result_json({"study": found.id, "runs_left": len(matrix.missing(store, found))})
        else:
            console.result(found.id)
            if not options.quiet:
                console.note(f"  next: bareboat status {found.id}; then bareboat prove --resume {found.id}")
        return 0
    from bareboat.cli.libraries import check_library
    from bareboat.cli.study_result import report

    check_library()
    return report(context, found, options.output)
