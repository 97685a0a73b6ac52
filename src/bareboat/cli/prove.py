"""bareboat prove: measure the container's cost for a job, compared with bare metal."""

from __future__ import annotations

import argparse
import contextlib
import os

import msgspec

from bareboat import registry, render
from bareboat.cli import console, study_flags
from bareboat.cli.command_line import amount, number
from bareboat.cli.common import (
    Context,
    add_common,
    add_dry_run,
    add_engine,
    add_environment,
    add_job,
    add_scheduling,
)
from bareboat.cli.job import check_waits, note_ignored, plan_text, read_job
from bareboat.cli.study_progress import StudyProgress
from bareboat.model import Job, Plan, Study
from bareboat.session import Purpose, planning, preparation
from bareboat_base.errors import BareboatError, Terminated, UsageError

EXAMPLE = (
    "bareboat prove examples/digits.toml\n  bareboat prove --repeats 20 train.py"
    "\n  bareboat prove --scheduler slurm -N 2 -t 2h study.toml"
)


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_job(parser)
    add_scheduling(parser)
    add_engine(parser)
    add_environment(parser)
    _add_design(parser)
    parser.add_argument(
        "--resume",
        action="store_true",
        help="resume STUDY, or the newest unfinished study (of FILE)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default="report.html",
        help="path of the report (default: report.html)",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace a file that is no report of a run in the store"
    )
    parser.add_argument(
        "--within",
        type=amount("--within", "prove.within_s"),
        metavar="TIME",
        help="time for a study of several arms or points, such as 2h: chooses the number of repeats",
    )
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help="with a scheduler: print the study's name and do not follow its jobs",
    )
    parser.add_argument("--list", action="store_true", help="list the built-in studies, which FILE can name")
    parser.add_argument(
        "--scale",
        choices=("laptop", "cluster", "paper"),
        help="size of a built-in study: two cores and 15 minutes (default), several nodes, or as published",
    )
    add_dry_run(parser)


def _add_design(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a study's design."""
    parser.add_argument(
        "--repeats",
        type=number("--repeats", "prove.repeats"),
        metavar="N",
        help="number of measured runs, without the warm-up",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="measure for about a minute: fewer runs, so a wide interval",
    )
    parser.add_argument(
        "--until-decided",
        action="store_true",
        help="end once the verdict is clear, after at most 40 runs, or --repeats; error rates are kept",
    )
    parser.add_argument(
        "--margin",
        type=number("--margin", "prove.margin"),
        metavar="X",
        help="largest relative difference that counts as equal",
    )
    parser.add_argument(
        "--confidence",
        type=number("--confidence", "prove.confidence"),
        metavar="X",
        help="confidence level of intervals and tests",
    )
    parser.add_argument(
        "--seed", type=number("--seed", "prove.seed"), metavar="N", help="random seed of the arms' order"
    )


def run(context: Context) -> int:
    """Exit with 0 when the study is complete, whatever its verdict."""
    options = context.options
    from bareboat.cli import prove_builtin, report_export

    if options.list:
        return prove_builtin.show_list(context)
    from bareboat.cli.libraries import check_installed, check_library
    from bareboat_study import prove

    options.output = report_export.claim_page(context, options.output)

    check_installed()
    builtin = prove_builtin.resolve(context)
    published = prove_builtin.read_published(context, builtin=builtin)
    if (code := _study_of_arms(context, published)) is not None:
        if published is not None:
            prove_builtin.write_numbers(context)
        return code
    check_waits(options)
    if options.within is not None:
        raise UsageError(
            "--within is for study files: with [arms], [sweep] or [metrics]", remedy="use --repeats N"
        )
    if not options.dry_run:
        check_library()  # before an environment is captured
    if options.resume:
        study = _study_to_resume(context)
        design = study_flags.designed(study.job, seed=study.order_seed, env_from=options.env_from or [])
        study_flags.refuse_changes(options, study.id, design)
        preparation.check_variables(context.session, study.job)
    else:
        session = context.session
        prepared = preparation.prepare(session, _designed(context, read_job(context)), Purpose.PROVE)
        plans = planning.arms(session, prepared)
        if options.dry_run:
            _show(context, prepared.job, plans)
            return 0
        study = prove.design_study(context.store, prepared.job, plans, prepared.image, prepared.site)
    if options.dry_run:
        missing = prove.missing_runs(context.store, study)
        if options.json:
            console.result_json({"run_id": study.id, "missing_runs": missing})
        elif missing:
            console.result(f"would do runs {missing} of {study.id}")
        else:
            console.result(f"{study.id} is complete; its result: bareboat report {study.id}")
        return 0
    return _measure(context, study)


def _study_of_arms(context: Context, published: str | None) -> int | None:
    """Conduct or resume a study of several arms, points or metrics; None where the job has one of each."""
    from bareboat.cli import prove_study
    from bareboat.cli.status import find
    from bareboat_study import listing, matrix

    options, store = context.options, context.store
    if options.resume and options.file and not os.path.exists(options.file):
        with contextlib.suppress(UsageError):  # it is no run's name
            named = find(context, options.file, lambda run: listing.is_study(store, run))
            options.file = named if listing.is_study(store, named) else options.file
    if options.resume and options.file and options.file in store.runs():
        found = matrix.read(store, options.file) if matrix.is_matrix(store, options.file) else None
        return None if found is None else prove_study.resume(context, found)
    if options.resume and not options.file and not options.command and not options.image:
        newest = next((run_id for run_id in reversed(store.runs()) if _is_unfinished(context, run_id)), None)
        if newest is None or not matrix.is_matrix(store, newest):
            return None
        return prove_study.resume(context, matrix.read(store, newest))
    request = prove_study.request_of(context)
    if request is None:
        return None
    if options.quick and registry.is_queued(request.jobs[0][-1].scheduler):
        raise UsageError("--quick measures on this machine", remedy="use --repeats N, or remove --scheduler")
    if options.quick:
        raise UsageError(
            "--quick is for one container against bare metal", remedy="bareboat prove --within 5m …"
        )
    if options.until_decided:
        raise UsageError(
            "--until-decided is for one container against bare metal, on this machine",
            remedy="use --repeats N, or --within TIME",
        )
    return prove_study.run(context, request, published)


def _is_unfinished(context: Context, run_id: str) -> bool:
    from bareboat_study import matrix, prove

    store = context.store
    if matrix.is_matrix(store, run_id):
        return bool(matrix.missing(store, matrix.read(store, run_id)))
    if not (store.run(run_id) / "study.json").exists():
        return False
    return bool(prove.missing_runs(store, prove.read_study(store, run_id)))


def _designed(context: Context, job: Job) -> Job:
    """The job with the design of --quick, or of --until-decided."""
    from bareboat_study import sequential

    options = context.options
    if options.until_decided:
        if options.quick:
            raise UsageError(
                "--quick and --until-decided cannot be used together", remedy="remove one of them"
            )
        repeats = options.repeats or max(job.prove.repeats, sequential.MOST_RUNS)
        changed = msgspec.structs.replace(job.prove, until_decided=True, repeats=repeats)
        return msgspec.structs.replace(job, prove=changed)
    if not options.quick:
        return job
    if options.repeats is not None:
        raise UsageError("--quick and --repeats cannot be used together", remedy="remove one of them")
    return msgspec.structs.replace(job, prove=msgspec.structs.replace(job.prove, quick=True))


def _study_to_resume(context: Context) -> Study:
    """The named study, or the newest one with runs left: of the given job, or of any."""
    from bareboat_study import prove

    asked = context.options.file
    if asked and asked in context.store.runs():
        return prove.read_study(context.store, asked)
    job = read_job(context) if asked or context.options.command or context.options.image else None
    return prove.find_study(context.store, job)


def _show(context: Context, job: Job, plans: tuple[Plan, Plan]) -> None:
    from bareboat_study import layouts, sequential, turns

    if context.options.json:
        console.result_json([render.shown(plan) for plan in plans])
        return
    for plan in plans:
        console.result(plan_text(context, plan) + "\n")
    prove = job.prove
    runs = f"{prove.repeats} measured runs"
    if prove.quick is True:
        runs = f"at most {runs}, as many as fit into a minute"
    if prove.until_decided is True:
        *early, last = sequential.looks(prove.repeats)
        ends = ", ".join(map(str, early)) or last
        runs = f"at most {last} measured runs; it ends after {ends} if decided then"
    console.result(
        f"would do 1 warm-up and {runs}; margin {prove.margin:.1%}, {turns.seed_text(prove.seed)}, "
        f"{layouts.request_text(prove, is_queued=False)}"
    )


def _measure(context: Context, study: Study) -> int:
    from bareboat.cli import report_export
    from bareboat.cli.report import show
    from bareboat_study import listing, prove, quick

    note_ignored(context)
    if not context.options.quiet:
        console.note(f"study {study.id}: {study.arms[0].name} versus {study.arms[1].name}")
    try:
        study = prove.conduct(context.store, study, say=StudyProgress(context.progress).say)
    except (KeyboardInterrupt, Terminated, BareboatError):
        context.progress.end()
        done = study.job.prove.repeats + 1 - len(prove.missing_runs(context.store, study))
        console.warn(
            f"\nstopped after {done} of {study.job.prove.repeats + 1} runs, which are kept\n"
            f"resume with: bareboat prove --resume {study.id}"
        )
        raise
    context.progress.end()
    options = context.options
    found = report_export.read_studies(context, [study.id])
    request = report_export.Request(("html",), None, str(options.output), options.force)
    listing.keep_verdicts(context.store, found)
    files = report_export.study_files(found, request.formats)
    try:
        where = report_export.write(context, request, files, [study.id])
    except UsageError as error:  # another program wrote the file meanwhile
        raise error.but(remedy=f"bareboat report {study.id} -o NAME.html") from None
    show(context, found, where)
    if quick.is_quick(study) and not context.options.json:
        console.result(quick.sentence(study, found[0][2].comparison))
    return 0
