"""bareboat logs: show a run's output."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from bareboat.cli import console
from bareboat.cli.argument_parser import number
from bareboat.cli.common import Context, add_common
from bareboat.cli.status import add_run, newest
from bareboat.runs import directory
from bareboat_base.errors import StoreError, ToolError, UsageError
from bareboat_base.expressions import expression
from bareboat_base.files import untrusted
from bareboat_base.printable import one_line

if TYPE_CHECKING:
    from bareboat.model import End

EXAMPLE = "bareboat logs -f digits-20261120-101500"
_POLL_S = 0.5
#: The prefix with which job scripts and torchrun mark a rank's lines.
_RANK = expression(r"\[rank (\d+)\] (.*)", re.DOTALL)
#: The end of what a scheduler wrote.
_MOST_SCHEDULER_BYTES = 1 << 16
#: Interval of scheduler queries while there is no new output, in seconds.
_ASK_S = 5.0


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_run(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="follow the output until the run ends")
    parser.add_argument(
        "--rank", metavar="N", type=number("--rank"), help="show this rank's output, then its error output"
    )


def run(context: Context) -> int:
    from bareboat.model import JobState
    from bareboat.runs import output, state, submission, sweeps
    from bareboat_study import listing

    options = context.options
    run_id = newest(context, studies=not options.follow and options.rank is None)
    if not submission.is_submitted(context.store, run_id) and listing.is_study(context.store, run_id):
        from bareboat_study import matrix

        return _of_study(context, matrix.logs(context.store, run_id))
    made = submission.read(context.store, run_id)
    if made.points:
        if options.follow or options.rank is not None:
            raise UsageError(
                f"{run_id} is a sweep with {made.points} points",
                remedy=f"name one point: bareboat logs -f {run_id}.0",
            )
        return _of_several(context, "run_id", sweeps.logs(context.store, run_id))
    if options.rank is not None:
        paths = output.of_rank(context.store, made, options.rank)
        if options.follow:
            console.note_end(follow(context, run_id, paths, options.rank))
        else:
            for path in paths:
                _copy(path, 0, _Lines(options.rank) if options.json else None)
        if not any(os.path.lexists(path) for path in paths):
            raise UsageError(
                f"no output of rank {options.rank} was kept", remedy="bareboat logs, without --rank"
            )
        return 0
    path = submission.output_log(context.store, run_id)
    if not context.options.follow:
        if not os.path.lexists(path) and not submission.scheduler_logs(context.store, made):
            (status,) = state.look(context.store, [run_id])
            yet, remedy = (" yet", f"bareboat logs -f {run_id}") if not status.over else ("", "")
            if status.over and status.state is not JobState.CANCELLED:
                remedy = "bareboat doctor --compute   # checks that the nodes see the store"
            raise StoreError(
                f"no output{yet} from {run_id}, which is {status.state.value}",
                context=status.reason,
                remedy=remedy,
            )
        _copy(path, 0, _Lines() if options.json else None)
        _show_scheduler(context, run_id)
        with contextlib.suppress(ToolError):  # the output is there, also where the scheduler does not answer
            (status,) = state.look(context.store, [run_id])
            console.note_end(status.end)
        return 0
    console.note_end(follow(context, run_id, [path]))
    return 0


class _Lines:
    """Output as JSON lines {"rank": …, "line": …}; rank is null where unknown. `more`: keys of every line;
    `rank`: of all lines."""

    def __init__(self, rank: int | None = None, **more: str) -> None:
        self._rank, self._more, self._rest = rank, more, b""

    def write(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._say(line)

    def end(self) -> None:
        """Print the last line, which may lack a newline."""
        if self._rest:
            self._say(self._rest)
            self._rest = b""

    def _say(self, line: bytes) -> None:
        rank, text = self._rank, line.decode(errors="replace")
        if rank is None and (found := _RANK.fullmatch(text)) is not None:
            rank, text = int(found[1]), found[2]
        console.json_line({**self._more, "rank": rank, "line": text})


def _of_study(context: Context, logs: list[tuple[str, Path]]) -> int:
    """Print the output of a study's runs, one after another."""
    if context.options.follow or context.options.rank is not None:
        raise UsageError(
            f"{context.options.run} is a study; of its runs, the end of the output is kept",
            remedy="remove -f and --rank",
        )
    return _of_several(context, "run", logs)


def _of_several(context: Context, key: str, logs: list[tuple[str, Path]]) -> int:
    """Print outputs one after another, each below its name; as JSON, with the name under `key`."""
    for name, path in logs:
        if not context.options.json:
            console.result(f"==> {name} <==")
        _copy(path, 0, _Lines(None, **{key: name}) if context.options.json else None)
        if key == "run_id":
            _show_scheduler(context, name)
    return 0


def _show_scheduler(context: Context, run_id: str) -> None:
    """Show what the scheduler itself wrote about the run: notes, since it is not the job's output."""
    from bareboat import registry
    from bareboat.runs import submission

    made = submission.read(context.store, run_id)
    for path in submission.scheduler_logs(context.store, made):
        try:
            data = untrusted.read_tail(path, limit=_MOST_SCHEDULER_BYTES)
        except OSError as error:
            raise directory.damaged(path, error) from None
        for line in data.decode(errors="replace").splitlines():
            if line.strip():
                console.note(f"from {registry.scheduler(made.scheduler).TITLE}: {one_line(line)}")


def follow(context: Context, run_id: str, paths: Sequence[Path], rank: int | None = None) -> End | None:
    """Copy what is written to the files until the run ended; until they are there, show why it waits."""
    from bareboat.runs import interaction, state, submission

    asked, over, outage = 0.0, False, interaction.Outage()
    end: End | None = None
    position = dict.fromkeys(paths, 0)
    lines = {path: _Lines(rank) if context.options.json else None for path in paths}
    with submission.going_on(run_id):
        while True:
            before = dict(position)
            for path in paths:
                position[path] = _copy(path, position[path], lines[path], to_end=over)
            if over:
                if rank is None:
                    _show_scheduler(context, run_id)
                return end
            if position == before and time.monotonic() - asked > _ASK_S:
                asked = time.monotonic()
                try:
                    (status,) = state.look(context.store, [run_id])
                except ToolError as error:
                    outage.endure(error)
                else:
                    outage.end()
                    over, end = status.over, status.end
                    interaction.check_can_start(status)
                    if not any(os.path.lexists(path) for path in paths):
                        reason = f" ({status.reason})" if status.reason else ""
                        context.progress.say_state(f"{run_id} {status.state.value}{reason}")
            if position != before:
                context.progress.end()
            time.sleep(0 if over else _POLL_S)


def _copy(path: Path, position: int, lines: _Lines | None, *, to_end: bool = True) -> int:
    """Copy the file from `position` on to stdout unchanged; return the new position. `to_end`: the file is
    complete. Raises StoreError for what is not a regular file, since a job may replace it."""
    try:
        stream = open(untrusted.open_regular(path), "rb")  # noqa: SIM115  (closed below)
    except (FileNotFoundError, NotADirectoryError):
        return position
    except OSError as error:
        raise directory.damaged(path, error) from None
    with stream:
        if os.fstat(stream.fileno()).st_size < position:
            position = 0  # somebody emptied it
        stream.seek(position)
        while data := _read(stream, path):
            position += len(data)
            if lines is None:
                console.result_bytes(data)
            else:
                lines.write(data)
    if lines is not None and to_end:
        lines.end()
    return position


def _read(stream: BinaryIO, path: Path) -> bytes:
    """The next part. Only errors of the file are the run's; those of the output are not."""
    try:
        return stream.read(1 << 16)
    except OSError as error:
        raise directory.damaged(path, error) from None
