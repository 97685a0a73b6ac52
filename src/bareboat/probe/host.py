"""The probes' access to the machine."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from bareboat.model import Outcome, Refusal
from bareboat.probe.files import read_text as read_text
from bareboat.probe.permits import SWITCHES as SWITCHES
from bareboat.probe.permits import Trials
from bareboat.schedulers import inherited
from bareboat_base import execute


class RealHost:
    """This machine. `scratch_root` is on the store's file system, because overlays are tested where layers
    are."""

    def __init__(self, scratch_root: Path, *, user: str = "") -> None:
        self.user = user
        self._scratch_root = scratch_root
        self._serials = itertools.count(1)  # engines are probed in parallel
        self._lock = threading.Lock()
        self._absent: dict[str, bool] = {}
        self._deadline: execute.Deadline | None = None
        #: What the node permits; probed at first use.
        self.trials = Trials(self, ("/tmp",), user)

    def which(self, name: str) -> str | None:
        return execute.which(name)

    def run(self, argv: Sequence[str]) -> Outcome:
        return execute.run(argv, environment=inherited.for_queries(os.environ), within=self._deadline)

    def run_all(self, questions: Sequence[Sequence[str]]) -> tuple[Outcome, ...]:
        deadline = self._deadline or execute.Deadline()
        return execute.run_all(questions, deadline, environment=inherited.for_queries(os.environ))

    def for_one_subject(self) -> RealHost:
        """This machine, for questions that share one deadline, which begins now."""
        made = RealHost.__new__(RealHost)
        vars(made).update(vars(self))
        made._deadline = execute.Deadline()
        return made

    def scratch(self) -> str:
        folder = self._scratch_root / f"probe-{next(self._serials)}"
        folder.mkdir()
        return str(folder)

    def absent(self, paths: Sequence[str]) -> tuple[str, ...]:
        with self._lock:
            self._absent.update(
                {path: not os.path.lexists(path) for path in paths if path not in self._absent}
            )
            return tuple(path for path in paths if self._absent[path])

    def user_namespace_obstacle(self) -> Refusal | None:
        return self.trials.obstacle()


def obstacle_of(values: Mapping[str, str], status: str) -> Refusal | None:
    """Like `obstacle`, from the contents of settings' files and /proc/self/status."""
    for path, forbids, remedy in SWITCHES:
        if values[path].strip() == forbids:
            setting = path.removeprefix("/proc/sys/").replace("/", ".")
            return Refusal(f"user namespaces are switched off: {setting}={forbids}", remedy)
    if "Seccomp:\t2" in status:
        return Refusal(
            "a seccomp filter, as in a container, seems to forbid user namespaces",
            "start the outer container with --security-opt seccomp=unconfined",
        )
    return None


def cpus() -> int:
    """The CPUs that this process may use, which may be fewer than the node has."""
    return len(os.sched_getaffinity(0))
