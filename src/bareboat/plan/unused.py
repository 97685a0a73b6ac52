"""What a job sets and nothing uses in this plan, by the table of keys."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from bareboat.model import Decision, Job
from bareboat.model.job import KEYS
from bareboat.model.keys import value_of
from bareboat_base.printable import one_line


def decisions(job: Job, *, contains: bool, is_local: bool) -> tuple[Decision, ...]:
    """A decision for each kind of plan whose keys have no effect in this one. `contains`: whether the engine
    makes containers; `is_local`: whether the job runs here at once."""
    lacking = {"schedulers": is_local, "containers": not contains}
    return tuple(
        Decision(subject="without effect", choice=", ".join(names), reason=f"only {users} use it")
        for users, are_absent in lacking.items()
        if are_absent and (names := _set(job, users.removesuffix("s")))
    )


def warnings(job: Job, *, contains: bool) -> tuple[str, ...]:
    """Those that change what the command finds."""
    found = []
    if not contains:
        found += [
            f"the mount of {one_line(mount.source)} at {one_line(mount.target)} has no effect: without a "
            "container, the command finds this machine's files"
            for mount in job.mounts
            if mount.source != mount.target
        ]
    if job.image != "capture" and (names := _set(job, "capture")):
        has = "has" if len(names) == 1 else "have"
        found.append(f"{', '.join(names)} {has} no effect: the image is {one_line(job.image)}, not a capture")
    return tuple(found)


def _set(job: Job, user: str) -> list[str]:
    """The keys that only this uses and that the job sets; none that settings complete, which are a site's."""
    return [name for name, default in _defaults(user).items() if value_of(job, name) != default]


@functools.cache
def _defaults(user: str) -> Mapping[str, Any]:
    usual = Job(name="usual", command=("true",), workdir=None)
    names = [name for name, key in KEYS.items() if key.used_by == user and not key.is_setting]
    return MappingProxyType({name: value_of(usual, name) for name in names})
