"""The user's notification at the end of a run: sent for runs on this machine, and its result for all.

For a scheduler's run nothing is left to do here: the scheduler sends a mail itself, and the job script starts
a command (render/runtime/notification.sh). The command's exit code never changes that of the run.

    notification        CODE EPOCH, in control/ of a run, in the directory of a sweep
    notification.log    what the command printed
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from bareboat.model import JobState, Plan
from bareboat.runs import directory
from bareboat_base import execute
from bareboat_base.errors import StoreError, ToolError
from bareboat_images.store import Store

log = logging.getLogger("bareboat")

_LIMIT_S = 20.0


def send(store: Store, plan: Plan, run_id: str, state: JobState, exit_code: int) -> None:
    """Start the command of a run on this machine that ended; log and keep its failure."""
    words = plan.job.end_command
    if not words:
        return
    environment = {
        **os.environ,
        "BAREBOAT_NOTIFY_RUN": run_id,
        "BAREBOAT_NOTIFY_STATE": state.value,
        "BAREBOAT_NOTIFY_EXIT_CODE": str(exit_code),
        "BAREBOAT_NOTIFY_JOB_ID": "",
    }
    path = _path(store, run_id)
    try:
        done = execute.run(
            words, environment=environment, timeout_s=_LIMIT_S, folder=plan.job.workdir,
            watch=execute.Watch(may_leave=True),
        )  # fmt: skip
        code, said = done.exit_code, done.stdout + done.stderr
    except ToolError as error:
        code, said = 124, error.message
    try:
        store.write(path.with_name("notification.log"), said.encode(errors="surrogateescape"))
        store.write(path, f"{code} {int(time.time())}\n".encode())
    except StoreError as error:
        log.warning("the result of the notification was not kept: %s", error.message)
    if code:
        log.warning("%s", _failure(path, code))


def failure(store: Store, run_id: str) -> str:
    """That the command failed, in words; "" where it did not. Raises StoreError for a damaged file."""
    path = _path(store, run_id)
    found = directory.ended(path)
    return _failure(path, found[0]) if found is not None and found[0] else ""


def _failure(path: Path, code: int) -> str:
    return f"the notification failed with exit code {code}: {path}.log"


def _path(store: Store, run_id: str) -> Path:
    folder = store.run(run_id)
    is_sweep = os.path.lexists(folder / "sweep.json")
    return (folder if is_sweep else directory.control(folder)) / "notification"
