"""Whose word counts for a variable that the job's `[environment]` names and a launcher gives its ranks, too:
the launcher's for what tells a rank who it is and where it meets the others (`Passed.own`), since the same
value for all ranks would be wrong for all but one; the job's for everything else. One rule for all launchers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from fairlead.launchers import Passed
from fairlead.model import Decision, Job

#: Variables with a network interface that launchers work out on the node.
INTERFACES = ("GLOO_SOCKET_IFNAME", "HOROVOD_GLOO_IFACE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """`passed`: the names whose values come from the job script; `prelude`: lines of bash that take what the
    job sets itself out of what is passed by the beginning of its name."""

    passed: tuple[str, ...]
    prelude: str
    warnings: tuple[str, ...]


def is_own(name: str, passed: Passed) -> bool:
    """Whether the launcher alone says what this variable is."""
    return any(fnmatchcase(name, pattern) for pattern in passed.own)


def settle(job: Job, passed: Passed, launcher: str, decisions: list[Decision]) -> Settled:
    named = sorted(job.environment)
    ours = [name for name in named if not is_own(name, passed)]
    decisions += [
        Decision(
            subject="interface",
            choice=f"{name}={job.environment[name]}",
            reason="the job's environment says so; no other is looked for",
        )
        for name in ours
        if name in INTERFACES and passed.own
    ]
    shadowed = [name for name in ours if name.startswith(passed.prefixes)]
    return Settled(
        passed=tuple(name for name in passed.names if name not in ours),
        prelude=f"unset {' '.join(shadowed)} # the job's environment has them\n" if shadowed else "",
        warnings=_warnings([name for name in named if name not in ours], launcher),
    )


def _warnings(names: Iterable[str], launcher: str) -> tuple[str, ...]:
    listed = ", ".join(names)
    if not listed:
        return ()
    return (
        f"the job's environment sets {listed}, which the launcher {launcher} tells each rank itself: "
        "the job's word is not heeded; leave it out",
    )
