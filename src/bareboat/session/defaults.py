"""A job with the settings that it does not make itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bareboat import registry
from bareboat.config import OF_JOBS, placed
from bareboat.model.keys import replaced, value_of

if TYPE_CHECKING:
    from bareboat.config import Settings
    from bareboat.model import Job


def with_settings(job: Job, settings: Settings, *, scheduler: bool = True) -> Job:
    """The job with the user's, project's and site's settings. `scheduler`: whether it may go to a queue."""
    values: dict[str, Any] = {}
    for name, key in OF_JOBS.items():
        setting, value = settings.settings[name], value_of(job, key)
        if key.startswith("prove.") or not setting.value or (name == "scheduler" and not scheduler):
            continue
        if value and not (setting.is_of_command and isinstance(value, str)):
            continue  # flags and environment variables go over the job's text, files only complete the job
        with placed(setting):
            if name in ("engine", "launcher", "scheduler"):
                registry.check(name, setting.value, called=setting.called(name))
        values[key] = setting.value
        if name == "modules":
            values[key] = tuple(filter(None, setting.value.split(",")))
        elif name == "node_scratch":
            values[key] = setting.value.rstrip("/")
    return replaced(job, values)
