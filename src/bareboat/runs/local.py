"""Runs on this machine, each to its end: one job, or the points of a sweep one after another."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from bareboat import registry, render
from bareboat.engines import BLOCK
from bareboat.model import JobState, Plan, Record, Site, Start, Submission
from bareboat.runs import (
    creation,
    directory,
    mpi_checks,
    records,
    sampler_series,
    state,
    submission,
    supervisor,
)
from bareboat.runs.records import Measured
from bareboat.runs.state import Status
from bareboat.runs.streams import Streams
from bareboat.schedulers import inherited
from bareboat_base import execute
from bareboat_base.clock import utc_now
from bareboat_base.errors import StoreError, Terminated
from bareboat_images.store import Store

#: How often a run is looked at: for its time limit, its interrupts, and what its containers have in memory.
_LOOK_S = 0.5
#: What ends sooner has no sampler, which would start when it is over. The kernel counts what it used.
_SHORT_S = 0.1
#: What ends sooner has no files counted that it wrote to directories of its container.
SHORTEST_S = 0.03
#: How often a container is looked at until it is ready, and the latest time for that.
_READY_S, _LATEST_READY_S = 0.001, 5.0
#: The exit code of a run that Ctrl-C ended, and of one that Bareboat ended.
INTERRUPTED, _TERMINATED = 130, 143
#: In the run's directory: an interrupt came.
_INTERRUPTED = "interrupted"


def run(store: Store, plan: Plan, site: Site, *, stdout_apart: bool = False) -> Record:
    """Run the job and return its record. `stdout_apart`: what it prints goes to stderr."""
    streams = Streams(stdout_apart=stdout_apart, by_rank=plan.keeps_output)
    made = creation.begin(store, plan, site)
    found = _run(store, plan, made, submission.control_folder(store, made.run_id) / "job.sh", streams)
    mpi_checks.expect(store, plan, made.run_id)
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
    not stop the others; Ctrl-C and cancelling the sweep do. Returns the sweep's name and the records
    of the points that ran."""
    assert plan.job.sweep is not None
    from bareboat.runs import sweeps

    streams = Streams(stdout_apart=stdout_apart, by_rank=plan.keeps_output)
    made = creation.make_sweep(store, plan, site)
    folder = store.run(made.run_id)
    found: list[Record] = []
    for index, name in enumerate(sweeps.points(store, made.run_id)):
        each(index)
        with store.guarded():
            for part in (directory.METER, directory.CONTROL, directory.RANKS):
                (store.run(name) / part).mkdir(parents=True)
            for rung, text in render.rungs(plan, render.Place(store.mark(made.run_id), str(folder))):
                store.write(store.run(name) / directory.CONTROL / rung, os.fsencode(text))
        point = msgspec.structs.replace(made, run_id=name, points=0, submitted_at=utc_now())
        found.append(_run(store, plan, point, folder / "job.sh", streams))
        if is_interrupted(store, name) or os.path.lexists(folder / "cancelled"):
            break
        streams = Streams(stdout_apart=stdout_apart, by_rank=plan.keeps_output)
    mpi_checks.expect(store, plan, made.run_id + mpi_checks.FIRST_POINT)
    return made.run_id, found


def is_interrupted(store: Store, run_id: str) -> bool:
    """Whether an interrupt came while it ran. What handles that ends with an exit code of its own."""
    return os.path.lexists(submission.control_folder(store, run_id) / _INTERRUPTED)


def _storage(plan: Plan) -> dict[str, str]:
    """Of the node-local storage, what the job script otherwise starts a program for (limits.sh)."""
    try:
        found = os.statvfs(plan.job.node_scratch or "/tmp")
    except OSError:
        return {}
    values = (found.f_bavail, found.f_blocks, found.f_frsize, found.f_ffree, found.f_files)
    return {"BAREBOAT_STORAGE": " ".join(map(str, values))}


def _environment(plan: Plan, folder: Path) -> dict[str, str]:
    """Of the job script of the run in this directory."""
    return {
        **inherited.outside(os.environ),
        "BAREBOAT_METER_DIR": str(folder / directory.METER),
        "BAREBOAT_CONTROL": str(folder / directory.CONTROL),
        "BAREBOAT_RUN_DIR": str(folder / directory.RANKS),
        **_storage(plan),
    }


def outlast_shortest(live: execute.Live, *, contains: bool) -> None:
    """Wait until the run is among the short ones no more. `contains`: whether files vanish with it."""
    for end_s in (SHORTEST_S, _SHORT_S):
        if live.wait(max(0.0, end_s - live.wall_s)) is not None:
            return
        if contains:
            live.directories().search(live.wall_s)


def _contains(plan: Plan) -> bool:
    """Whether files vanish with the run's one container, which nobody else counts."""
    return plan.start is Start.NODES and registry.engine(plan.engine).CONTAINS


def block(plan: Plan) -> tuple[int, ...]:
    """A pipe for whose end the command waits in its container. None where the engine cannot let it wait, or
    the kernel does not tell what a process waits for."""
    can = _contains(plan) and registry.engine(plan.engine).BLOCKS
    return os.pipe() if can and os.path.exists("/proc/self/syscall") else ()


def keep_first(live: execute.Live, blocked: tuple[int, ...]) -> None:
    """Open the directories of the container as soon as it is ready; then its command goes on."""
    try:
        with contextlib.suppress(PermissionError):  # nor can its directories be opened
            while blocked and live.wait(_READY_S) is None and live.wall_s < _LATEST_READY_S:
                if live.directories().has_waiting(blocked[0]):
                    break
    finally:
        for descriptor in blocked:
            os.close(descriptor)


def _watch(
    live: execute.Live,
    plan: Plan,
    control: Path,
    are_unheeded: Callable[..., bool],
) -> bool:
    """Look at the run until it ends or has to be ended. Returns whether its time is over. `are_unheeded`: of
    the interrupts that it got."""
    contains = _contains(plan)
    outlast_shortest(live, contains=contains)
    if live.poll() is None:
        live.sample(sampler_series.of_node(control))
    while live.wait(_LOOK_S) is None:
        if contains:
            live.directories().search(live.wall_s)
        if plan.job.walltime_s is not None and live.wall_s > plan.job.walltime_s:
            return True
        if are_unheeded(handled=live.handles_interrupts()):
            break
    return False


def _run(store: Store, plan: Plan, made: Submission, script: Path, streams: Streams) -> Record:
    """Run the script to its end and record it, also when Bareboat is terminated."""
    folder = store.run(made.run_id)
    control = folder / directory.CONTROL
    environment = _environment(plan, folder)
    started_at = utc_now()
    stopped: BaseException | None = None
    timed_out = False
    live: execute.Live | None = None
    log, is_interrupted = submission.output_log(store, made.run_id), False
    try:
        with execute.interrupts_left_to_child() as interrupts, streams.copied(log):
            blocked = block(plan)
            live = execute.Live(
                str(script),
                mark=store.mark(made.run_id),
                environment=environment | ({BLOCK: str(blocked[0])} if blocked else {}),
                streams=streams.descriptors,
                descriptors=blocked[:1],
            )
            stderr = os.dup(streams.descriptors[1])  # it has no end before this is closed
            streams.started(live.pid)
            try:
                supervisor.write(folder, live.pid)
                if os.path.lexists(folder / "cancelled"):  # before the script's process was known
                    live.ask_to_stop()
                keep_first(live, blocked)
                timed_out = _watch(live, plan, control, interrupts.are_unheeded)
            finally:
                live.stop()
                is_interrupted = interrupts.count > 0
                live.report_discarded(script.parent, environment, stderr)
                os.close(stderr)
    except (KeyboardInterrupt, Terminated, StoreError) as stop:
        if live is None:
            raise
        stopped = stop
    measured = Measured(
        started_at=started_at,
        wall_s=live.wall_s,
        peak_memory_bytes=live.peak_process_bytes,
        load_1min=os.getloadavg()[0],
        usage=sampler_series.read(
            sampler_series.folders(control), began_s=live.spawned_ns / 1e9, exact=live.totals
        ),
    )
    code = _code(store, made, live.poll() or 0, is_interrupted=is_interrupted)
    ended = _ended(store, made, started_at, code, live.wall_s, timed_out=timed_out)
    found = records.record(store, ended, measured)
    assert found is not None
    _note_end(store, plan, made, found)
    if stopped is not None:
        if isinstance(stopped, Terminated) and found.exit_code != _TERMINATED:
            stopped.code = found.exit_code  # the command's own
        stopped.add_note(f"run {made.run_id}: exit code {found.exit_code}; all its processes have ended")
        raise stopped
    return found


def _code(store: Store, made: Submission, code: int, *, is_interrupted: bool) -> int:
    """The exit code of the run whose script has this one. An interrupt is noted in its directory."""
    if is_interrupted:
        store.write(submission.control_folder(store, made.run_id) / _INTERRUPTED, b"")
    return INTERRUPTED if is_interrupted and code == _TERMINATED else code


def _note_end(store: Store, plan: Plan, made: Submission, found: Record) -> None:
    """Write and send what others read of a run that ended."""
    if found.exit_code:  # it may be the engine or the launcher: the next command tries them again
        for name in (plan.engine.partition(":")[0], "launchers"):
            with contextlib.suppress(OSError):
                store.kept_facts(name).unlink(missing_ok=True)
    if plan.check_subject is not None:
        # The same file that a job script writes for a scheduler's run.
        path = store.run(made.run_id) / "exit_code"
        store.write(path, f"{found.exit_code} {int(time.time())}\n".encode())


def _ended(
    store: Store, made: Submission, started_at: str, code: int, wall_s: float, *, timed_out: bool
) -> Status:
    began = (state.started_at(made, started_at),)
    status = Status(
        submission=made,
        state=JobState.COMPLETED,
        exit_code=state.CODES[JobState.TIMEOUT] if timed_out else code,
        ended_at_epoch_s=began[0].at_epoch_s + round(wall_s),
        starts=began,
    )
    if status.exit_code:
        return state.explained(store, status, timed_out=timed_out)
    interrupt = signal.SIGINT if is_interrupted(store, made.run_id) else 0
    stop = interrupt or state.signal_of_stop(store.run(made.run_id))
    return state.explained(store, status, stop=stop) if stop else status
