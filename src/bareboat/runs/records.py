"""The record of a run that ended, written once."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import UNSET, Struct, UnsetType

from bareboat.model import MemorySample, Record, Usage
from bareboat.runs import deliveries, directory, node_resources, results, sampler_series, state, transports
from bareboat.runs.state import Status
from bareboat_base import codec
from bareboat_base.clock import epoch_s, moment
from bareboat_base.errors import StoreError
from bareboat_images.store import Store


class Measured(Struct, frozen=True, kw_only=True):
    """What only the process that started the run could measure. `wall_s`: None where nobody knows when the
    run ended. `peak_memory_bytes`: the most of one process."""

    started_at: str
    wall_s: float | None
    peak_memory_bytes: int
    load_1min: float
    usage: Usage | UnsetType = UNSET


def ended_here(store: Store, run_id: str, code: int) -> Record:
    """The record of a run whose script was started here and exited with this code."""
    found = record(store, state.ended_here(store, run_id, code))
    assert found is not None  # the run ended
    return found


def record(store: Store, status: Status, measured: Measured | None = None) -> Record | None:
    """The run's record, written once when it ended."""
    if status.exit_code is None:
        return None
    made = status.submission
    folder = store.run(made.run_id)
    path = folder / "record.json"
    if os.path.lexists(path):
        return store.read(path, Record)
    measured = measured or _measured(folder, status)
    ways, memory = transports.read(folder), _memory(measured.usage)
    found = Record(
        study=made.run_id,
        run=0,
        arm=made.engine,
        warm_up=False,
        position=0,
        started_at=measured.started_at,
        exit_code=status.exit_code,
        wall_s=measured.wall_s,
        plan_digest=made.plan_digest,
        image_digest=made.image_digest,
        site_digest=made.site_digest,
        world_size=made.world_size,
        memory=memory,
        memory_kind="rss",
        peak_memory_bytes=max([measured.peak_memory_bytes, *(each.bytes for each in memory)]),
        load_1min=measured.load_1min,
        usage=measured.usage,
        scheduler=made.scheduler,
        job_id=status.job_id or made.job_id or "",
        starts=status.starts,
        ended_because=status.reason,
        end=status.end,
        results=results.read(folder),
        deliveries=deliveries.read(folder),
        transports=ways,
        fabric_mark=transports.mark(made.fabric, ways) if status.starts else "",
        world_mark=transports.world_mark(folder, made.world_size),
        health=node_resources.read(folder, succeeded=status.exit_code == 0) or UNSET,
    )
    try:
        store.write(path, codec.to_json(found))
    except StoreError as error:
        message = (
            f"{error.message}: the job ended with exit code {status.exit_code}, but its record was not "
            "written"
        )
        raise StoreError(message, context=error.context, remedy=error.remedy) from None
    return found


def _measured(folder: Path, status: Status) -> Measured:
    """What is known of a run that a scheduler started."""
    began = status.starts[0].at_epoch_s if status.starts else epoch_s(status.submission.submitted_at)
    ended_at = status.ended_at_epoch_s if status.starts else began
    return Measured(
        started_at=moment(began),
        wall_s=None if ended_at is None else float(ended_at - began),
        peak_memory_bytes=0,
        load_1min=0.0,
        usage=_usage(folder / directory.CONTROL, status),
    )


def _usage(control: Path, status: Status) -> Usage | UnsetType:
    """What the samplers of a job's nodes wrote."""
    return sampler_series.read(
        sampler_series.folders(control, status.starts[-1].node if status.starts else ""), began_s=None
    )


def _memory(usage: Usage | UnsetType) -> tuple[MemorySample, ...]:
    """What all processes of the run had resident, as its samplers saw it."""
    curve = () if usage is UNSET else zip(usage.at_s, usage.curves.get("rss_bytes", ()), strict=False)
    return tuple(MemorySample(at_s=at_s, bytes=int(value)) for at_s, value in curve)
