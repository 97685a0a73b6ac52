"""The report of one run that is not a study: what ran, how it was planned, how it ended, time and memory."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat.model import Decision
from bareboat.printable import one_line

if TYPE_CHECKING:
    from bareboat.model import MemorySample, Record
    from bareboat.runs.state import Status


class _Image(Struct, frozen=True):
    """Of a job: the image that it names."""

    image: str = ""


class _Plan(Struct, frozen=True):
    """What is shown of a stored plan, whose commands are not read again."""

    job: _Image
    engine: str
    launcher: str
    decisions: tuple[Decision, ...]


_BARS = "▁▂▃▄▅▆▇█"
_MOST_BARS = 40
_MOST_TEXT = 2000


def run(context: Context, run_id: str) -> int:
    from bareboat import registry
    from bareboat.cli.wait import as_json
    from bareboat.runs import records, state

    store = context.store
    (status,) = state.look(store, [run_id])
    record = records.record(store, status)
    path = store.run(run_id) / "plan.json"
    plan = store.read(path, _Plan) if os.path.lexists(path) else None
    if context.options.json:
        console.result_json(
            {
                "run_id": run_id,
                "state": status.state.value,
                "reason": status.reason,
                "submission": status.submission,
                "record": None if record is None else as_json(record),
                "plan": plan,
            }
        )
        return 0
    made = status.submission
    title = made.host if made.supervisor else f"{registry.scheduler(made.scheduler).TITLE} job {made.job_id}"
    rows = [*_facts(status, title, plan), *_measured(record)]
    width = max(len(name) for name, _ in rows)
    console.result(console.bold(run_id))
    for name, text in rows:
        console.result(f"  {name:<{width}}  {one_line(text, limit=_MOST_TEXT)}")
    if plan is not None:
        console.result("plan")
        for decision in plan.decisions:
            console.result(f"  {decision.subject:<{width}}  {decision.choice}: {decision.reason}")
    return 0


def _facts(status: Status, where: str, plan: _Plan | None) -> Iterator[tuple[str, str]]:
    made = status.submission
    yield "command", shlex.join(made.command) or "what the image runs"
    yield "where", where
    yield (
        "image",
        f"{plan.job.image} {made.image_digest or ''}" if plan is not None else str(made.image_digest),
    )
    yield "engine", made.engine + (f", launcher {plan.launcher}" if plan is not None else "")
    yield "ranks", f"{made.world_size} on {made.nodes} node{'s' if made.nodes > 1 else ''}"
    yield "state", status.state.value
    if status.exit_code is not None:
        yield "exit code", str(status.exit_code)
    if status.reason:
        yield "cause", status.reason


def _measured(record: Record | None) -> Iterator[tuple[str, str]]:
    if record is None:
        return
    yield "started", record.started_at
    yield "time", f"{record.wall_s:.1f} s"
    for each in record.deliveries:
        yield "image copy", f"{each.took_s} s on {each.node}: {each.how}"
    if record.peak_memory_bytes:
        curve = _curve(record.memory)
        yield (
            "memory",
            f"at most {record.peak_memory_bytes / 2**20:,.1f} MiB" + (f"  {curve}" if curve else ""),
        )
    for name, value in record.results.items():
        yield name, str(value)


def _curve(samples: Sequence[MemorySample]) -> str:
    """The memory over time; each bar is the largest of its samples."""
    if len(samples) < 2:
        return ""
    size = -(-len(samples) // _MOST_BARS)
    peaks = [max(s.bytes for s in samples[at : at + size]) for at in range(0, len(samples), size)]
    most = max(*peaks, 1)
    return "".join(_BARS[peak * (len(_BARS) - 1) // most] for peak in peaks)
