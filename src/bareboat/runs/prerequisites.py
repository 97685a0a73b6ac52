"""Why a job that its scheduler has forgotten never started: the runs that it waited for, by their files."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from bareboat.model import Submission
from bareboat.runs import directory, submission
from bareboat_base.errors import StoreError
from bareboat_images.store import Store


class _Scheduling(Struct):
    after: tuple[str, ...] = ()


class _Job(Struct):
    scheduling: _Scheduling


class _Plan(Struct):
    job: _Job


def failed(store: Store, made: Submission) -> str:
    """A run of this store that the job depended on and that did not succeed, in words; "" for none."""
    try:
        after = store.read(store.run(made.run_id) / "plan.json", _Plan).job.scheduling.after
        for run_id in submission.submitted(store) if after else ():
            other = submission.read(store, run_id)
            if other.scheduler != made.scheduler or other.job_id not in after:
                continue
            for folder in (store.run(run_id), *sorted(store.run(run_id).glob("points/*"))):
                if (code := _exit_code(folder)) not in (None, 0):
                    return f"it waited for {run_id}, whose exit code is {code}"
    except StoreError:  # a damaged run is reported as itself
        pass
    return ""


def _exit_code(folder: Path) -> int | None:
    for path in (directory.control(folder) / "exit_code", folder / "exit_code"):
        if (found := directory.ended(path)) is not None:
            return found[0]
    return None
