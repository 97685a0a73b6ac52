"""The scheduler job in which Bareboat itself runs: salloc, an interactive job, or a user's script."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat import registry
from bareboat.schedulers import Allocation, inherited
from bareboat_base import execute
from bareboat_base.errors import ToolError, UsageError

if TYPE_CHECKING:
    from bareboat.model import Plan, Record, Site, Submission
    from bareboat_images.store import Store

#: Shows a command's output and appends it to the file $0; Ctrl-C goes to the command.
_KEPT = 'set -o pipefail; "$@" 2>&1 | tee -i -a "$0"'


def find(environment: Mapping[str, str]) -> Allocation | None:
    """Detect the job from environment variables; None outside of a job."""
    names = registry.names("schedulers")
    if len(inherited.outside(environment)) == len(environment):  # their modules need not be imported
        names = tuple(name for name in names if name not in registry.BUILT_IN["schedulers"])
    for name in names:
        found = registry.scheduler(name).allocation(environment, _count_hosts)
        if found is not None:
            return found
    return None


def run(
    store: Store,
    plan: Plan,
    site: Site,
    *,
    environment: Mapping[str, str],
    started: Callable[[Submission, Allocation], None] = lambda _submission, _allocation: None,
    stdout_apart: bool = False,
) -> Record:
    """Run the job script on the nodes of the scheduler job in which Bareboat runs, and return the run's
    record. `started`: called before the script starts. `stdout_apart`: what it prints goes to stderr."""
    from bareboat.runs import creation, mpi_checks, records, submission

    found = find(environment)
    if found is None or found.scheduler != plan.scheduler:
        raise UsageError(
            f"this shell is not in a {plan.scheduler} job, whose nodes run would use",
            remedy="bareboat submit, or remove scheduler from the job file",
        )
    made = creation.begin(store, plan, site, job_id=found.job_id)
    started(made, found)
    script = submission.control_folder(store, made.run_id) / "job.sh"
    log = submission.output_log(store, made.run_id)
    words = ("bash", "-c", _KEPT + (" >&2" if stdout_apart else ""), str(log))
    code = execute.run_in_terminal((*words, *found.started("bash", str(script))))
    record = records.ended_here(store, made.run_id, code)
    mpi_checks.expect(store, plan, made.run_id)
    return record


def _count_hosts(source: str | tuple[str, ...]) -> int:
    """Count the different hosts in a host file, or in what a command prints; 1 without any."""
    try:
        if isinstance(source, tuple):
            lines = execute.run(source).stdout.splitlines()
        else:
            lines = Path(source).read_text(errors="replace").splitlines() if source else []
    except (OSError, ToolError):
        lines = []
    return len({line.split()[0] for line in lines if line.strip()}) or 1
