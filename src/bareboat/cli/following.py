"""A submitted run, followed: its place in the queue, its start, its output, its end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bareboat.cli import console, logs, wait
from bareboat_base.errors import ToolError

if TYPE_CHECKING:
    from bareboat.cli.common import Context
    from bareboat.runs.state import Status

#: Seconds between two polls of a pending run, and between two queries of the whole queue.
_LOOK_S, _QUEUE_S = 5.0, 30.0
#: A scheduler reports a job as running before its script notes the start; how long to wait for the note, and
#: between two looks.
_NOTE_S, _NOTE_LOOK_S = 15.0, 0.5


def until_over(context: Context, run_id: str) -> int:
    """Follow the run; exit with its exit code."""
    from bareboat.runs import submission, sweeps

    with submission.going_on(run_id):
        started = _until_started(context, run_id)
        # The points of a sweep print at the same time: each has its own log.
        if started and sweeps.find(context.store, run_id) is None:
            logs.copy_until_over(context, run_id, [submission.output_log(context.store, run_id)])
    return wait.until_over(context, run_id)


def _until_started(context: Context, run_id: str) -> bool:
    """Show why the run waits, until it starts (True) or ends before that."""
    from bareboat.model import JobState
    from bareboat.runs import interaction, sweeps

    outage, place = interaction.Outage(), ""
    began = time.monotonic()
    asked, said = 0.0, ""
    noted_by = 0.0
    try:
        while True:
            pause_s = _LOOK_S
            try:
                (status,) = sweeps.look(context.store, [run_id])
            except ToolError as error:
                outage.endure(error)
            else:
                outage.end()
                if status.over:
                    break
                interaction.check_can_start(status)
                if status.state is JobState.RUNNING:
                    noted_by = noted_by or time.monotonic() + _NOTE_S
                    if status.starts or time.monotonic() > noted_by:
                        break
                    pause_s = _NOTE_LOOK_S
                else:
                    if time.monotonic() - asked > _QUEUE_S or not asked:
                        place, asked = interaction.place_in_queue(context.store, run_id), time.monotonic()
                    text = "; ".join(filter(None, (status.reason, place)))
                    said = _show(context, f"{run_id} {status.state.value}: {text or 'no reason given'}", said)
            time.sleep(pause_s)
    finally:
        context.progress.end()
    if status.starts and not context.options.quiet:
        console.note(_start(status, time.monotonic() - began))
    return bool(status.starts) or not status.over


def _show(context: Context, text: str, before: str) -> str:
    """Show the text: as one changing line on a terminal, elsewhere only when it is new."""
    if console.is_live():
        context.progress.say(text)
    elif text != before and not context.options.quiet:
        console.note(text)
    return text


def _start(status: Status, waited_s: float) -> str:
    made = status.submission
    where = status.nodes or status.starts[0].node
    return f"{made.run_id} started on {where} after {waited_s:.0f} s"
