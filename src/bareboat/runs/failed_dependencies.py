"""Why a job that its scheduler has forgotten never started: the runs that it waited for, by their files."""

from __future__ import annotations

from bareboat.model import Submission
from bareboat.runs import directory, submission
from bareboat_base.errors import StoreError
from bareboat_images.store import Store


def failed(store: Store, made: Submission) -> str:
    """A run of this store that the job depended on and that did not succeed, in words; "" for none."""
    try:
        after = submission.planned_job(store, made.run_id).scheduling.after
        for run_id in submission.submitted(store) if after else ():
            other = submission.read(store, run_id)
            if other.scheduler != made.scheduler:
                continue
            job_ids = submission.job_ids(store, other)
            if not set(after) & {*job_ids}:
                continue
            for folder in (store.run(run_id), *sorted(store.run(run_id).glob("points/*"))):
                if (end := directory.exit_of(folder)) is not None and end[0]:
                    return f"it waited for {run_id}, whose exit code is {end[0]}"
            if job_ids[-1] not in after:
                job = "the first job" if other.job_id in after else "an earlier job"
                return f"it waited for {job} of {run_id}, which went on as another job"
    except StoreError:  # a damaged run is reported as itself
        pass
    return ""
