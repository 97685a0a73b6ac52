"""The record of a run that ended, written once."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from msgspec import UNSET, Struct, UnsetType

from bareboat.model import Delivered, MemorySample, Record, Usage, kept_result
from bareboat.model.record import NotFinite
from bareboat.runs import directory, node_resources, sampler_series, state, submission, transports
from bareboat.runs.state import Status
from bareboat_base import codec
from bareboat_base.clock import epoch_s, moment
from bareboat_base.errors import StoreError
from bareboat_base.expressions import expression
from bareboat_base.files import untrusted
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
    made = submission.read(store, run_id)
    if state.from_files(store, made) is None:  # the script was killed, or did not reach its first line
        store.write(store.run(run_id) / "exit_code", f"{code or 1} {int(time.time())}\n".encode())
    status = state.from_files(store, made)
    found = None if status is None else record(store, state.with_cause(store, status, None))
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
        results=results(folder),
        deliveries=deliveries(folder),
        transports=ways,
        fabric_mark=transports.mark(made.fabric, ways) if status.starts else "",
        world_mark=transports.world_mark(folder, made.world_size),
        health=node_resources.read(folder, succeeded=status.shell_code == 0) or UNSET,
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


#: EPOCH NODE HOW SECONDS BYTES
_LINE = expression(r"(\d{1,11}) (\S{1,255}) (unpacked|found|shared) (\d{1,9}) (\d{1,18})", re.ASCII)
_MOST_FILES = 100_000


def deliveries(folder: Path) -> tuple[Delivered, ...]:
    """How the nodes of a run obtained the image, in order of time: one file per node, one line per start.
    Incomplete lines are ignored."""
    found = []
    control = directory.control(folder)
    for path in directory.files_of(control, most=_MOST_FILES):
        if not path.name.startswith("deliveries."):
            continue
        for line in (directory.text(path) or "").splitlines():
            if (parts := _LINE.fullmatch(line)) is not None:
                at, node, how, took, size = parts.groups()
                found.append(
                    Delivered(
                        at_epoch_s=int(at), node=node, how=how, took_s=int(took), archive_bytes=int(size)
                    )
                )
    return tuple(sorted(found, key=lambda each: (each.at_epoch_s, each.node)))


#: Of what containers write: files of ranks, names in one, and characters in a name.
_MOST_RANKS, _MOST_NAMES, _MOST_NAME = 64, 100, 100
#: A result of each of a hundred thousand steps.
_MOST_BYTES = 4 << 20
_MOST_VALUES = 100_000


def results(folder: Path) -> dict[str, float | NotFinite]:
    """Named results that the ranks reported (`Meter.result`): the last value of each name; where several
    ranks report a name, the lowest rank's. Containers write these files, so lines that the meter did not
    write are ignored. `folder`: the run's."""
    return {name: values[-1] for name, values in curves(folder).items()}


def curves(folder: Path) -> dict[str, list[float | NotFinite]]:
    """All values of each name, in the order of the reports, of the lowest rank that reports it."""
    place = folder / directory.RANKS / "results"
    found: dict[str, list[float | NotFinite]] = {}
    files = [path for path in directory.files_of(place, most=_MOST_RANKS) if path.name.isdecimal()]
    for path in sorted(files, key=lambda path: int(path.name)):
        try:
            lines = untrusted.read_text(path, limit=_MOST_BYTES).splitlines()
        except OSError:
            continue
        own: dict[str, list[float | NotFinite]] = {}
        for name, value in filter(None, map(_result, lines)):
            if name in own or (name not in found and len(found) + len(own) < _MOST_NAMES):
                own.setdefault(name, []).append(value)
                del own[name][:-_MOST_VALUES]
        found |= own
    return found


def _result(line: str) -> tuple[str, float | NotFinite] | None:
    import json  # few runs report results

    try:
        name, value = json.loads(line)
        number = kept_result(float(value))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    is_one = isinstance(name, str) and 0 < len(name) <= _MOST_NAME and name.isprintable()
    return (name, number) if is_one else None
