"""bareboat wait: wait for a run and exit with its exit code."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from bareboat.cli import console
from bareboat.cli.common import Context, add_common
from bareboat.cli.status import add_run, newest
from bareboat_base.errors import BareboatError

if TYPE_CHECKING:
    from bareboat.model import Record

EXAMPLE = "bareboat wait digits-20261120-101500 && bareboat logs digits-20261120-101500"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_run(parser)


def run(context: Context) -> int:
    """Exit with the job's exit code."""
    return until_over(context, newest(context))


def as_json(record: Record) -> dict[str, Any]:
    """A run's record for JSON, with its name under the key that all commands use."""
    from msgspec import to_builtins

    return {"run_id": record.study, **to_builtins(record)}


def marks(record: Record) -> list[str]:
    """The warnings that a run's end shows."""
    return [mark for mark in (record.fabric_mark, record.world_mark, *record.health_marks) if mark]


def until_over(context: Context, run_id: str) -> int:
    from bareboat.runs import state, submission, sweeps

    began = time.monotonic()

    def show(status: state.Status) -> None:
        if status.over:
            return
        reason = f" ({status.reason})" if status.reason else ""
        context.progress.say_state(f"{run_id} {status.state.value}{reason}")

    try:
        with submission.going_on(run_id):
            status = sweeps.wait(context.store, run_id, each=show)
    finally:
        context.progress.end()
    records = sweeps.records_of(context.store, status)
    if status.exit_code is None:
        raise BareboatError(
            f"{run_id} is {status.state.value}: {status.reason}", remedy=f"bareboat logs {run_id}"
        )
    if context.options.json:
        plain = [as_json(record) for record in records]
        console.result_json(plain if status.points else plain[0])
    elif not context.options.quiet:
        for mark in dict.fromkeys(mark for record in records for mark in marks(record)):
            console.note(f"warning: {mark}")
        again = (
            f", started {len(status.starts)} times" if len(status.starts) > 1 and not status.points else ""
        )
        how = "" if status.shell_code == status.exit_code else f"{status.state.value}, "
        console.note(
            f"run {run_id}: {how}exit code {status.exit_code}{again} "
            f"(waited {time.monotonic() - began:.1f} s)"
        )
        console.note_end(status.end, otherwise=status.reason)
        console.note(f"output: bareboat logs {run_id}")
    assert status.shell_code is not None
    return status.shell_code
