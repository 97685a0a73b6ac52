"""bareboat prove: what is measured, by the command line or a study file, and the measurement."""

from __future__ import annotations

import dataclasses
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bareboat import jobfile, registry, render
from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat.cli.job import note_ignored, plan_text, read_job, with_flags, words_of_run
from bareboat.model import Job, Matrix, ProveRequest
from bareboat.model.job import KEYS
from bareboat.model.keys import value_of
from bareboat.model.matrix import point_text
from bareboat.session import preparation, sites
from bareboat_base import codec
from bareboat_base.errors import BareboatError, PlanError, Terminated, UsageError
from bareboat_base.printable import counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from bareboat.model import Site
    from bareboat_base.toml import TomlFile
    from bareboat_study.matrix import Cell
    from bareboat_study.studyfile import StudyRequest


def request_of(context: Context) -> StudyRequest:
    """The request of a study file, or of any job: in a container, against bare metal."""
    options = context.options
    from bareboat_base.toml import TomlFile
    from bareboat_study import studyfile

    asked = options.scheduler
    if asked is not None:
        registry.scheduler(asked)
    file = TomlFile(Path(options.file)) if options.file and not options.command else None
    if file is not None:
        jobfile.set_keys(file, options.assignments)
    if file is None or not studyfile.is_study(file):
        request = studyfile.study_of_job(read_job(context))
    else:
        request = _of_file(context, file)
    prove = request.prove
    if options.within is not None:
        prove = msgspec.structs.replace(prove, within_s=options.within)
    elif options.repeats is not None and not options.until_decided:
        prove = msgspec.structs.replace(prove, within_s=None, until_decided=False)  # the file's design
    digest = request.digest if asked is None else codec.digest([request.digest, asked])
    return _designed(context, dataclasses.replace(request, prove=prove, digest=digest))


def _of_file(context: Context, file: TomlFile) -> StudyRequest:
    """The request of a study file, with flags and settings."""
    from bareboat_study import studyfile

    options = context.options
    if options.engine and "arms" in file.values:
        raise UsageError(
            "--engine cannot be combined with [arms], which names the engine of each arm",
            context=file.at("arms"),
            remedy=f'remove --engine, or set engine = "{options.engine}" in an arm',
        )
    request = studyfile.read_study(
        file, context.settings.of_queue(options.scheduler is not None), image=options.image
    )
    jobs = tuple(
        tuple(_with_flags(context, job, keys) for job, keys in zip(row, request.keys, strict=True))
        for row in request.jobs
    )
    return dataclasses.replace(request, jobs=jobs)


def _designed(context: Context, request: StudyRequest) -> StudyRequest:
    """The request with the design of --until-decided, which is for two arms at one point on this machine."""
    from bareboat_study import sequential

    options, prove = context.options, request.prove
    is_until_decided = options.until_decided or prove.until_decided
    is_queued = registry.is_queued(request.jobs[0][-1].scheduler)
    is_pair = len(request.arms) == 2 and len(request.points) == 1
    if is_until_decided and (is_queued or not is_pair or request.metrics[0]):
        flag = "--until-decided" if options.until_decided else "until_decided"
        raise UsageError(
            f"{flag} is for one container against bare metal, on this machine",
            key="" if options.until_decided else "prove.until_decided",
            remedy="use --repeats N",
        )
    if options.until_decided:
        repeats = options.repeats or max(prove.repeats, sequential.MOST_RUNS)
        prove = msgspec.structs.replace(prove, until_decided=True, repeats=repeats)
    return dataclasses.replace(request, prove=prove)


def _with_flags(context: Context, job: Job, keys: Mapping[str, object]) -> Job:
    """The job with the flags, except for the keys that its arm sets itself."""
    fixed = {key.partition(".")[0] for key in keys} - {"topology"}
    changed = with_flags(context.options, job)
    return msgspec.structs.replace(changed, **{key: getattr(job, key) for key in fixed})


def run(context: Context, request: StudyRequest, published: str | None) -> int:
    """Design and conduct a new study, or resume the newest of this job. `published`: the CSV of a
    publication's figures."""
    options = context.options
    from bareboat.cli.libraries import check_library
    from bareboat_study import matrix
    from bareboat_study import point_plans as studies
    from bareboat_study import published as tables
    from bareboat_study.cli import report_export

    if options.resume:
        return resume(context, matrix.find(context.store, request))
    is_queued = registry.is_queued(request.jobs[0][-1].scheduler)
    if not options.dry_run and not (is_queued and options.no_wait):
        check_library()  # before an environment is captured
    if published is not None:
        tables.check(tables.read(published, tables.NAME), request.factors, tables.NAME)
    if not is_queued:
        _check_waits(options)
        sites.note_scheduler(context.session, request.jobs[0][-1].scheduler)
    cells, site = studies.cells(context.session, request)
    for first, second in studies.equal_arms(request, cells):
        console.note(f"the arms {first!r} and {second!r} have the same plan: this measures the method (A/A)")
    if options.dry_run:
        _show(context, request, cells, site)
        return 0
    found = matrix.design(context.store, request, cells, site, published)
    if options.output is not None:
        path = os.fsencode(os.path.abspath(options.output))
        context.store.write(context.store.run(found.id) / report_export.PAGE_PATH, path)
    return _follow(context, found, new=True) if is_queued else _measure(context, found)


def resume(context: Context, found: Matrix) -> int:
    """Conduct the missing runs of a study."""
    from bareboat.cli.libraries import check_library
    from bareboat_study import blocks, matrix, point_plans

    studies = matrix.points(context.store, found)
    job = studies[0].job
    _check_unchanged(context, found, job)
    if matrix.missing(context.store, found):
        point_plans.provide(context.session, found, studies)
    if context.options.dry_run:
        left = matrix.missing(context.store, found)
        if context.options.json:
            console.result_json({"study": found.id, "runs_left": len(left), "repeats": found.repeats})
        elif not left:
            console.result(f"{found.id} is complete; its result: bareboat report {found.id}")
        else:
            seconds = blocks.seconds_left(matrix.durations(context.store, found), left)
            time = f", about {blocks.duration(seconds)}" if seconds else ""
            console.result(f"{found.id}: {matrix.left_of(found, len(left))}{time}")
        return 0
    preparation.check_variables(context.session, job)
    if registry.is_queued(job.scheduler):
        return _follow(context, found)
    _check_waits(context.options)
    check_library()
    return _measure(context, found)


def _check_unchanged(context: Context, found: Matrix, job: Job) -> None:
    """Raise UsageError for a flag that would change the design."""
    options = context.options
    design = designed_flags(job, found.prove, seed=found.order_seed, env_from=options.env_from or [])
    # Several points have a command each; the time is that of the next jobs.
    free = ("command",) * bool(found.factors) + ("time",) * registry.is_queued(job.scheduler)
    design |= {name: getattr(options, name) for name in free}
    refuse_changes(options, found.id, design)
    if options.within is not None and found.repeats is not None and not found.prove.until_decided:
        raise UsageError(
            f"--within cannot change the study {found.id}: it has {found.repeats} repeats",
            remedy="remove --within",
        )


def designed_flags(job: Job, prove: ProveRequest, *, seed: int, env_from: list[str]) -> dict[str, object]:
    """The values of a study's flags by its job. `env_from`: the names that were passed now."""
    job = msgspec.structs.replace(job, prove=prove)
    return {
        **{
            key.dest: value_of(job, name)
            for name, key in KEYS.items()
            if key.flags and name != "prove.within_s"
        },
        "command": list(job.command),
        "ntasks": job.topology.world_size,
        "gpus": job.topology.world_size * job.topology.gpus_per_rank,
        "env_from": [name for name in env_from if name in job.environment_from],
        "seed": seed,
    }


def refuse_changes(options: argparse.Namespace, study: str, design: Mapping[str, object]) -> None:
    """Raise UsageError for a flag that would change a study's design. `design`: the value of each flag, and
    the same value again is accepted; a flag that it lacks is refused."""
    for name in (*design, "policy", "require_digest", "assignments"):
        requested = getattr(options, name)
        if requested is None or requested is False or requested in ([], design.get(name)):
            continue
        flag = {"command": "-- COMMAND", "assignments": "--set"}.get(name, f"--{name.replace('_', '-')}")
        raise UsageError(
            f"{flag} cannot change the study {study}: {_was(name, design)}",
            remedy=f"remove {flag}, or remove --resume to start a new study",
        )


def _was(name: str, design: Mapping[str, object]) -> str:
    if name not in design:
        return "its design is fixed" if name == "assignments" else "its images were checked before"
    value = design[name]
    return f"its {name} is not set" if value is None else f"it has {name} = {value}"


def _show(context: Context, request: StudyRequest, cells: list[list[Cell]], site: Site) -> None:
    """The design, and the plan of each arm at the first point; with -v also the job script there."""
    from bareboat_study import allocation, blocks, layouts, matrix, sequential

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
                "repeats": None if prove.is_timed else prove.repeats,
                "within_s": prove.within_s or None,
                "margin": prove.margin,
                "seed": prove.seed,
                "plans": [[render.shown(plan) for plan in row] for row in rows],
            }
        )
        return
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
    if prove.within_s and prove.is_timed:
        amount = f"1 warm-up, then as many repeats of that length as fit into {prove.within_s:g} s"
    elif prove.until_decided:
        *early, last = sequential.looks(prove.repeats)
        ends = ", ".join(map(str, early)) or last
        amount = f"1 warm-up and at most {last} repeats; it ends after {ends} if decided then"
        amount += f", and pauses after {blocks.duration(prove.within_s)}" if prove.within_s else ""
    else:
        amount = f"1 warm-up and {prove.repeats} repeats: {(prove.repeats + 1) * points * arms} runs"
    drawn = layouts.request_text(prove, rows[0][0].job.scheduler)
    seed = "seed drawn for the study" if prove.seed is None else f"seed {prove.seed}"
    console.result(
        f"would do, for {counted(points, 'point')} and {arms} arms: {amount}; "
        f"margin {prove.margin:.1%}, {seed}, {drawn}\n"
        "the time is known after the warm-up: bareboat prove --resume --dry-run"
    )
    if registry.is_queued(rows[0][0].job.scheduler) and not context.options.verbose:
        console.result("the job script: add -v")
    elif registry.is_queued(rows[0][0].job.scheduler):
        study = matrix.study_of(request, cells, site, 0, f"{request.name}.0")
        runs = range(1 if prove.is_timed else prove.repeats + 1)
        script = allocation.script(context.store, study, runs, study.job.walltime_s)
        console.result(f"\nthe job script of the first point:\n{script}")


def _measure(context: Context, found: Matrix) -> int:
    from bareboat_study import matrix

    note_ignored(context)
    known = [(arm.name, arm.engine) for arm in matrix.points(context.store, found)[0].arms]
    plain = {registry.BARE_METAL, *found.arms}  # engines that need no mention
    arms = ", ".join(f"{name} ({engine})" if engine not in plain else name for name, engine in known)
    count = f"; {counted(len(found.points), 'point')}" if found.factors else ""
    console.note(f"study {found.id}: {arms}{count}")
    try:
        found = matrix.conduct(
            context.store,
            found,
            say=context.progress.say,
            note=context.progress.note,
            within_s=context.options.within,
            alone=words_of_run(context.options),
        )
    except (KeyboardInterrupt, Terminated, BareboatError) as error:
        context.progress.end()
        is_first = len(found.points) == 1 and not matrix.durations(context.store, found)
        if isinstance(error, BareboatError) and is_first:  # nothing can be resumed
            raise
        if found.repeats is None and not matrix.missing_warm_ups(context.store, found):
            state = "stopped after the warm-up, which is kept"
        else:
            state = f"stopped with {matrix.left_of(found, len(matrix.missing(context.store, found)))}"
            state += "; the others are kept" if matrix.durations(context.store, found) else ""
        lines = [f"\n{state}", *_resume_line(found, error)]
        file = context.options.file
        if isinstance(error, BareboatError) and file and os.path.isfile(file):
            # --resume would not read it again: the design of a study is fixed.
            lines.append(f"after a change of {shlex.quote(file)}: bareboat prove {shlex.quote(file)}")
        console.warn("\n".join(lines))
        raise
    context.progress.end()
    from bareboat_study.cli.result import report

    return report(context, found)


def _resume_line(found: Matrix, error: BaseException) -> list[str]:
    """The command that resumes a study which stopped; none where the error itself has one."""
    is_known = isinstance(error, BareboatError) and "--resume" in error.remedy
    return [] if is_known else [f"resume with: bareboat prove --resume {found.id}"]


def _check_waits(options: argparse.Namespace) -> None:
    """Raise UsageError for --no-wait where the study runs on this machine."""
    if options.no_wait:
        raise UsageError(
            "--no-wait is for studies in a scheduler's jobs",
            remedy="add --scheduler NAME, or remove --no-wait",
        )


def _follow(context: Context, found: Matrix, *, new: bool = False) -> int:
    """Measure in the scheduler's jobs: submit what has no job, and follow them. A `new` study whose first job
    is refused leaves nothing."""
    from bareboat_study import matrix
    from bareboat_study.queue import Queue, live_jobs, submitted

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
        if new and isinstance(error, PlanError) and not submitted(store, found):
            store.discard(store.run(found.id))
            raise
        left = matrix.left_of(found, len(matrix.missing(store, found)))
        live = live_jobs(store, found)
        lines = [f"\n{left}; the others are kept"]
        if live:
            lines.append(f"jobs that go on: {', '.join(live)}; to cancel: bareboat cancel {' '.join(live)}")
        console.warn("\n".join([*lines, *_resume_line(found, error)]))
        if not isinstance(error, BareboatError):
            error.add_note("the study's jobs continue")
        raise
    context.progress.end()
    if matrix.missing(store, found):
        if options.json:
            console.result_json({"study": found.id, "runs_left": len(matrix.missing(store, found))})
        else:
            console.result(found.id)
            console.note(f"  next: bareboat status {found.id}; then bareboat prove --resume {found.id}")
        return 0
    from bareboat.cli.libraries import check_library
    from bareboat_study.cli.result import report

    check_library()
    return report(context, found)
