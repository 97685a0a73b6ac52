"""A job with the settings that it does not make itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from bareboat import registry

if TYPE_CHECKING:
    from bareboat.config import Settings
    from bareboat.model import Job


def with_settings(job: Job, settings: Settings, *, scheduler: bool = True) -> Job:
    """The job with the user's, project's and site's settings. `scheduler`: whether it may go to a queue."""
    for name in ("engine", "launcher", "scheduler"):
        if name != "scheduler" or scheduler:
            job = msgspec.structs.replace(job, **{name: _over(settings, name, getattr(job, name))})
    scheduling = {
        name: _over(settings, name, getattr(job.scheduling, name))
        for name in ("partition", "account", "qos", "reservation", "constraint")
    }
    job = msgspec.structs.replace(job, scheduling=msgspec.structs.replace(job.scheduling, **scheduling))
    if not job.modules and settings["modules"]:
        modules = tuple(filter(None, settings["modules"].split(",")))
        job = msgspec.structs.replace(job, modules=modules)
    for name in ("delivery", "node_scratch"):
        asked = getattr(job, name)
        found = _over(settings, name, None if asked is UNSET else asked)
        job = msgspec.structs.replace(job, **{name: found.rstrip("/") if found else UNSET})
    return job


def _over(settings: Settings, name: str, value: str | None) -> str | None:
    """Combine a setting with the job's value: flags and environment variables override it; a file's setting
    applies only where the job has none."""
    setting = settings.settings[name]
    if not setting.value or (value is not None and not setting.is_of_command):
        return value
    from bareboat.config import placed

    found: str = setting.value
    with placed(setting):
        if name in ("engine", "launcher", "scheduler"):
            getattr(registry, name)(found)
    return found
