"""The processes of runs on this machine: whether they still exist, and how to terminate them.

Bareboat's own process and the job script are named as in the store (`store.owner`): host, boot and PID
namespace, process ID and start time. So a process that got the ID of an earlier one is not mistaken for it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from enum import Enum, auto
from pathlib import Path

from bareboat.model import Submission
from bareboat.runs import directory
from bareboat_base.clock import epoch_s
from bareboat_base.errors import BareboatError
from bareboat_base.expressions import expression
from bareboat_images.store import is_dead, owner, owner_of

#: In a run's directory: the name of its job script's process.
_FILE = "process"
_NAME = expression(r"(?P<host>.+)-(?P<boot>[0-9a-f]*)-(?P<namespace>\d+)-(?P<pid>\d+)-\d+", re.ASCII)


#: The time after which nobody on another machine still submits a run.
_SUBMISSION_S = 600.0


class Presence(Enum):
    #: It exists, on this machine.
    HERE = auto()
    #: It ended.
    GONE = auto()
    #: Another machine or container has it, or had it.
    ELSEWHERE = auto()


def presence(name: str) -> Presence:
    found, here = _NAME.fullmatch(name), _NAME.fullmatch(owner())
    if found is None or here is None or found["host"] != here["host"]:
        return Presence.ELSEWHERE
    if found["boot"] != here["boot"]:
        # Many machines have the name localhost.
        is_restarted = found["boot"] and here["boot"] and not here["host"].startswith("localhost")
        return Presence.GONE if is_restarted else Presence.ELSEWHERE
    if found["namespace"] != here["namespace"]:
        return Presence.ELSEWHERE
    return Presence.GONE if is_dead(name) else Presence.HERE


def is_submitting(made: Submission) -> bool:
    """Whether a process submits the run now. One of another machine does so for some minutes at most."""
    if made.job_id is not None or not made.submitter:
        return False
    where, age_s = presence(made.submitter), time.time() - epoch_s(made.submitted_at)
    return where is Presence.HERE or (where is Presence.ELSEWHERE and age_s < _SUBMISSION_S)


def check_submitted(made: Submission) -> None:
    """Raise BareboatError for a run that is being submitted: it has no job ID to cancel."""
    if is_submitting(made):
        raise BareboatError(
            f"{made.run_id} is being submitted: {made.scheduler} has not returned a job ID yet",
            remedy=f"bareboat cancel {made.run_id}   # again when it has one, or Ctrl-C where you submit it",
        )


def write(folder: Path, pid: int) -> None:
    """Keep the name of a run's job script, so that it can be cancelled."""
    with contextlib.suppress(OSError):  # a full disk: then it is found by the run's mark
        (folder / _FILE).write_text(owner_of(pid))


def read(folder: Path) -> str:
    """The name of a run's job script; "" before it started."""
    return directory.text(folder / _FILE) or ""


def terminate(name: str) -> bool:
    """Send SIGTERM to the process; False if it ended or is of another machine.
    Raises PermissionError for another user's process."""
    found = _NAME.fullmatch(name)
    if found is None:
        return False
    try:
        descriptor = os.pidfd_open(int(found["pid"]))
    except ProcessLookupError:
        return False
    try:
        # The descriptor stays with the process that it was opened for; only now is it known to be the one.
        if presence(name) is not Presence.HERE:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
            signal.pidfd_send_signal(descriptor, signal.SIGCONT)
    finally:
        os.close(descriptor)
    return True
