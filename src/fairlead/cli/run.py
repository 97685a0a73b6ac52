"""fairlead run: one job, now, with a record of it."""

from __future__ import annotations

import argparse
import os

from fairlead import codec, execute, render
from fairlead.cli import console
from fairlead.cli.common import (
    Context,
    add_common,
    add_dry_run,
    add_engine,
    add_job,
    add_python,
    add_root,
    make_plan,
    prepare,
)
from fairlead.clock import utc_now
from fairlead.model import MemorySample, Record

_SAMPLE_S = 0.5


EXAMPLE = "fairlead run examples/digits.toml"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_job(parser)
    add_engine(parser)
    add_python(parser)
    add_root(parser)
    add_dry_run(parser)


def run(context: Context) -> int:
    """The exit code is that of the job: of its first rank that failed."""
    job, site, image = prepare(context)
    plan = make_plan(context, job, image, site)
    if context.options.dry_run:
        console.result_json(plan) if context.options.json else console.result(render.text(plan))
        return 0
    for warning in plan.warnings:
        console.note(f"warning: {warning}")
    store = context.store
    run_id = store.new_run(job.name)
    folder = store.run(run_id)
    script = folder / "job.sh"
    store.write(script, os.fsencode(render.script(plan)))
    for name in ("meter", "ranks"):
        (folder / name).mkdir()
    environment = {
        **os.environ,
        "FAIRLEAD_METER_DIR": str(folder / "meter"),
        "FAIRLEAD_RUN_DIR": str(folder / "ranks"),
    }
    started_at = utc_now()
    memory: list[MemorySample] = []
    with execute.interrupts_left_to_child():
        live = execute.Live(str(script), run_id=run_id, environment=environment)
        try:
            while (code := live.wait(_SAMPLE_S)) is None:
                memory.append(MemorySample(at_s=live.wall_s, bytes=live.memory_bytes("rss")))
        finally:
            live.stop()
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
        world_size=job.topology.world_size,
        memory=tuple(memory),
        memory_kind="rss",
        peak_memory_bytes=max([live.peak_process_bytes, *(sample.bytes for sample in memory)]),
        load_1min=os.getloadavg()[0],
    )
    store.write(folder / "record.json", codec.to_json(record))
    if context.options.json:
        console.result_json(record)
    elif not context.options.quiet:
        console.note(f"run {run_id}: exit code {code} after {live.wall_s:.1f} s; record in {folder}")
    return code
