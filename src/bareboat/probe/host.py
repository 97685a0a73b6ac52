"""The probes' access to the machine."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from bareboat.model import Outcome, Refusal
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
        self._deadline: execute.Deadline | None = None
        #: What the node permits; probed at first use.
        self.trials = Trials(self)

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

    def user_namespace_obstacle(self) -> Refusal | None:
        return self.trials.obstacle()


def cpus() -> int:
    """The CPUs that this process may use, which may be fewer than the node has."""
    return len(os.sched_getaffinity(0))
