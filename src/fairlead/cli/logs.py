"""fairlead logs: what a run printed, or prints."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.cli.common import Context, add_common
from fairlead.cli.status import add_run, newest
from fairlead.errors import StoreError, UsageError

if TYPE_CHECKING:
    from fairlead.model import Submission
    from fairlead.store import Store

EXAMPLE = "fairlead logs -f digits-20261120-101500"
_POLL_S = 0.5
#: While there is nothing new, the scheduler is asked so seldom whether the run is over.
_ASK_S = 5.0


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_run(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the run is over")
    parser.add_argument("--rank", metavar="N", type=int, help="what this rank printed, its errors after it")


def run(context: Context) -> int:
    from fairlead import submission

    run_id = newest(context)
    submission.read(context.store, run_id)
    if context.options.rank is not None:
        return _of_rank(context.store, submission.read(context.store, run_id), context.options.rank)
    path = submission.output_log(context.store, run_id)
    if not context.options.follow:
        if not path.exists():
            (status,) = submission.look(context.store, [run_id])
            raise StoreError(
                f"{run_id} has printed nothing yet: it is {status.state.value}",
                context=status.reason,
                remedy=f"fairlead logs -f {run_id}",
            )
        _copy(path, 0)
        return 0
    return _follow(context, run_id, path)


def _follow(context: Context, run_id: str, path: Path) -> int:
    from fairlead import submission

    position, asked, over = 0, 0.0, False
    while True:
        before = position
        position = _copy(path, position)
        if over:
            return 0
        if position == before and time.monotonic() - asked > _ASK_S:
            asked = time.monotonic()
            (status,) = submission.look(context.store, [run_id])
            over = status.over
            if not path.exists():
                reason = f" ({status.reason})" if status.reason else ""
                context.progress.say(f"{run_id} {status.state.value}{reason}")
        if position != before:
            context.progress.end()
        time.sleep(0 if over else _POLL_S)


def _copy(path: Path, position: int) -> int:
    """What stands in the file from there on goes to stdout; the position behind it."""
    try:
        with open(path, "rb") as stream:
            stream.seek(position)
            while data := stream.read(1 << 16):
                position += len(data)
                sys.stdout.buffer.write(data)
    except FileNotFoundError:
        return position
    sys.stdout.flush()
    return position


def _of_rank(store: Store, made: Submission, rank: int) -> int:
    from fairlead import submission

    if not 0 <= rank < made.world_size:
        raise UsageError(
            f"{made.run_id} has {made.world_size} ranks, from 0",
            remedy=f"--rank {made.world_size - 1} or less",
        )
    node, local_rank = divmod(rank, made.world_size // made.nodes)
    folder = submission.ranks_folder(store, made.run_id) / "logs"
    found = [
        path
        for name in ("stdout.log", "stderr.log")
        for pattern in (f"{rank}/{name}", f"{node}/*/attempt_0/{local_rank}/{name}")
        for path in sorted(folder.glob(pattern), key=os.path.getmtime)[-1:]
    ]
    if not found:
        raise UsageError(f"nothing is kept of rank {rank}", remedy="fairlead logs, without --rank")
    for path in found:
        _copy(path, 0)
    return 0
