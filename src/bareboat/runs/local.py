"""Runs on this machine, each to its end: one job, or the points of a sweep one after another."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import UNSET

from bareboat import execute, registry, render
from bareboat.clock import utc_now
from bareboat.model import JobState, MemorySample, Plan, Record, Site
from bareboat.runs import causes, directory, mpi_checks, records, submission, sweeps
from bareboat.runs.progress import look_for_straggler
from bareboat.runs.records import Measured
from bareboat.runs.state import Status
from bareboat.store import Store

_SAMPLE_S = 0.5
#: The exit code of a run that Ctrl-C ended.
INTERRUPTED = 130


def run(store: Store, plan: Plan, site: Site, *, stdout_apart: bool = False) -> Record:
    """Run the job and return its record. `stdout_apart`: what it prints goes to stderr."""
    run_id = store.new_run(plan.job.name)
    script = store.run(run_id) / "job.sh"
    with store.whole_run(run_id):
        store.write(script, os.fsencode(render.script(plan)))
    found = _run(store, plan, site, run_id, script, stdout_apart=stdout_apart)
    mpi_checks.expect(store, plan, run_id)
    return found


def run_sweep(
    store: Store,
    plan: Plan,
    site: Site,
    *,
    each: Callable[[int], None] = lambda _index: None,
    stdout_apart: bool = False,
) -> tuple[str, list[Record]]:
    """Run one point after another, and call `each` with the number of a point before it. A failed point does
    not stop the others; Ctrl-C does. Returns the sweep's name and the records of the points that ran."""
    assert plan.job.sweep is not UNSET
    run_id = sweeps.make(store, plan)
    found: list[Record] = []
    for index, point in enumerate(sweeps.points(store, run_id)):
        each(index)
        store.run(point).mkdir(parents=True)
        script = store.run(run_id) / "job.sh"
        found.append(_run(store, plan, site, point, script, stdout_apart=stdout_apart))
        if found[-1].exit_code == INTERRUPTED:
            break
    mpi_checks.expect(store, plan, run_id, points=len(found))
    return run_id, found


def _run(store: Store, plan: Plan, site: Site, run_id: str, script: Path, *, stdout_apart: bool) -> Record:
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
        live = execute.Live(str(script), run_id=run_id, environment=environment, stdout_apart=stdout_apart)
        try:
            while (code := live.wait(_SAMPLE_S)) is None:
                memory.append(MemorySample(at_s=live.wall_s, bytes=live.memory_bytes("rss")))
        finally:
            live.stop()
    end = None
    if code:
        end = causes.find(causes.Evidence(scheduler=registry.scheduler(registry.HERE), code=code, left=True))
    status = Status(
        submission=submission.describe(plan, site, run_id),
        state=end.state if end is not None else JobState.COMPLETED,
        exit_code=code,
        reason=end.words if end is not None else "",
        straggler=look_for_straggler(folder, (site.hostname,) * plan.job.topology.world_size),
        end=end,
    )
    measured = Measured(
        started_at=started_at,
        wall_s=live.wall_s,
        memory=tuple(memory),
        peak_memory_bytes=max([live.peak_process_bytes, *(sample.bytes for sample in memory)]),
        load_1min=os.getloadavg()[0],
    )
    found = records.record(store, status, measured)
    assert found is not None
    if plan.check_subject is not None:
        # The same file that a job script writes for a scheduler's run.
        store.write(folder / "exit_code", f"{code} {int(time.time())}\n".encode())
    return found
