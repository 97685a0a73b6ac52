"""bareboat run: run one job now, and record it."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from msgspec import UNSET

from bareboat import codec, execute, registry, render
from bareboat.cli import console
from bareboat.cli.common import (
    Context,
    add_common,
    add_dry_run,
    add_engine,
    add_job,
    add_python,
    add_root,
    add_trust,
)
from bareboat.cli.job import read_job
from bareboat.cli.wait import as_json
from bareboat.clock import utc_now
from bareboat.errors import ProgramError, StoreError, UsageError
from bareboat.model import MemorySample, Plan, Record, Site
from bareboat.model.sweep import Sweep
from bareboat.runs import directory, mpi_checks, results
from bareboat.runs.progress import look_for_straggler
from bareboat.session import Purpose, planning, preparation

_SAMPLE_S = 0.5
#: Shows a command's output and appends it to the file $0; Ctrl-C goes to the command.
_KEPT = 'set -o pipefail; "$@" 2>&1 | tee -i -a "$0"'


EXAMPLE = "bareboat run examples/digits.toml"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_job(parser)
    add_engine(parser)
    add_python(parser)
    add_root(parser)
    add_trust(parser)
    add_dry_run(parser)


def run(context: Context) -> int:
    """Exit with the code of the job's first rank that failed; for a sweep, with the code of the first point
    that failed."""
    try:
        session = context.session
        prepared = preparation.prepare(session, read_job(context), Purpose.RUN)
        plan, site = planning.plan(session, prepared), prepared.site
    except ProgramError as error:  # the exit code that a shell gives
        error.code = error.status
        raise
    if context.options.dry_run:
        console.result_json(render.shown(plan)) if context.options.json else console.result(render.text(plan))
        return 0
    for warning in () if context.options.quiet else plan.warnings:
        console.note(f"warning: {warning}")
    if plan.job.sweep is not UNSET:
        return _run_sweep(context, plan, plan.job.sweep, site)
    if plan.scheduler != registry.HERE:
        return _run_in_allocation(context, plan, site)
    run_id = context.store.new_run(plan.job.name)
    folder = context.store.run(run_id)
    script = folder / "job.sh"
    with context.store.whole_run(run_id):
        context.store.write(script, os.fsencode(render.script(plan)))
    record = _run_one(context, plan, site, run_id, script)
    mpi_checks.expect(context.store, plan, run_id)
    if context.options.json:
        console.result_json(as_json(record))
    elif not context.options.quiet:
        if record.straggler is not None:
            console.note(record.straggler.text)
        console.note(
            f"run {run_id}: exit code {record.exit_code} after {record.wall_s:.1f} s; record in {folder}"
        )
    return record.exit_code


def _run_in_allocation(context: Context, plan: Plan, site: Site) -> int:
    """Run the job script on the nodes of the scheduler job in which this command was called."""
    from bareboat.runs import allocation, submission

    found = allocation.find(os.environ)
    if found is None or found.scheduler != plan.scheduler:
        raise UsageError(
            f"this shell is not in a {plan.scheduler} job, whose nodes run would use",
            remedy="bareboat submit, or remove scheduler from the job file",
        )
    made = submission.begin(context.store, plan, site, job_id=found.job_id)
    if not context.options.quiet:
        console.note(
            f"run {made.run_id} on {made.nodes} of the {found.nodes} nodes of {found.scheduler} "
            f"job {found.job_id}"
        )
    script = submission.control_folder(context.store, made.run_id) / "job.sh"
    log = submission.output_log(context.store, made.run_id)
    words = ("bash", "-c", _KEPT + (" >&2" if context.options.json else ""), str(log))
    code = execute.run_in_terminal((*words, *found.start, "bash", str(script)))
    record = submission.ended_here(context.store, made.run_id, code)
    mpi_checks.expect(context.store, plan, made.run_id)
    if context.options.json:
        console.result_json(as_json(record))
    elif not context.options.quiet:
        because = f", {record.ended_because}" if record.ended_because else ""
        console.note(f"run {made.run_id}: exit code {record.exit_code}{because} after {record.wall_s:.1f} s")
    return record.exit_code


def _run_sweep(context: Context, plan: Plan, points: Sweep, site: Site) -> int:
    """Run one point after another. A failed point does not stop the others; Ctrl-C does."""
    from bareboat.model import sweep
    from bareboat.runs import sweeps

    run_id = sweeps.make(context.store, plan)
    folder = context.store.run(run_id)
    records: list[Record] = []
    for index, point in enumerate(sweeps.points(context.store, run_id)):
        if not context.options.quiet:
            console.note(f"point {index} of {len(points.points)}: {_shown(sweep.told(points, index))}")
        context.store.run(point).mkdir(parents=True)
        records.append(_run_one(context, plan, site, point, folder / "job.sh"))
        if records[-1].exit_code == 130:
            break
    mpi_checks.expect(context.store, plan, run_id, points=len(records))
    stopped = records[-1].exit_code == 130
    code = 130 if stopped else next((record.exit_code for record in records if record.exit_code), 0)
    if context.options.json:
        console.result_json([as_json(record) for record in records])
    elif not context.options.quiet:
        rows = [("point", "exit", "s", "")]
        for index in range(len(points.points)):
            record = records[index] if index < len(records) else None
            ended = ("not run", "") if record is None else (str(record.exit_code), f"{record.wall_s:.1f}")
            rows.append((str(index), *ended, _shown(sweep.told(points, index))))
        console.note(console.table(rows, right=(0, 1, 2)))
        console.note(f"sweep {run_id}: exit code {code}; records in {folder}/points")
    return code


def _shown(text: str) -> str:
    """The text on one line."""
    return text.encode("unicode_escape").decode()


def _run_one(context: Context, plan: Plan, site: Site, run_id: str, script: Path) -> Record:
    store = context.store
    folder = store.run(run_id)
    with store.whole_run(run_id):
        for name in ("meter", directory.CONTROL, directory.RANKS):
            (folder / name).mkdir()
        for name, text in render.rungs(plan):
            store.write(folder / directory.CONTROL / name, os.fsencode(text))
    environment = {
        **os.environ,
        "BAREBOAT_METER_DIR": str(folder / "meter"),
        "BAREBOAT_CONTROL": str(folder / directory.CONTROL),
        "BAREBOAT_RUN_DIR": str(folder / directory.RANKS),
    }
    started_at = utc_now()
    memory: list[MemorySample] = []
    with execute.interrupts_left_to_child():
        live = execute.Live(
            str(script), run_id=run_id, environment=environment, stdout_apart=context.options.json
        )
        try:
            while (code := live.wait(_SAMPLE_S)) is None:
                memory.append(MemorySample(at_s=live.wall_s, bytes=live.memory_bytes("rss")))
        finally:
            live.stop()
    end = None
    if code:
        from bareboat.runs import causes

        scheduler = registry.scheduler(registry.HERE)
        end = causes.find(causes.Evidence(scheduler=scheduler, code=code, left=True))
    record = Record(
        study=run_id,
        run=0,
        arm=plan.engine,
        warm_up=False,
        position=0,
        started_at=started_at,
        exit_code=code,
        wall_s=live.wall_s,
        plan_digest=render.digest(plan),
        image_digest=plan.image_digest,
        site_digest=codec.digest(site),
        world_size=plan.job.topology.world_size,
        memory=tuple(memory),
        memory_kind="rss",
        peak_memory_bytes=max([live.peak_process_bytes, *(sample.bytes for sample in memory)]),
        load_1min=os.getloadavg()[0],
        results=results.read(folder),
        ended_because=end.words if end is not None else "",
        end=end,
        straggler=look_for_straggler(folder, (site.hostname,) * plan.job.topology.world_size),
        world_mark=directory.world_mark(folder),
    )
    try:
        store.write(folder / "record.json", codec.to_json(record))
    except StoreError as error:
        message = f"{error.message}: the job ended with exit code {code}, but its record was not written"
        raise StoreError(message, context=error.context, remedy=error.remedy) from None
    if plan.check_subject is not None:
        # The same file that a job script writes for a scheduler's run.
        store.write(folder / "exit_code", f"{code} {int(time.time())}\n".encode())
    return record
