"""Where a run's files are, in bash: the script's own directory and that of its ranks."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from msgspec import UNSET

from bareboat.model import Plan
from bareboat.schedulers import Scheduler


class Place(NamedTuple):
    """Where a run is kept: its name and its directory, with `control` for the script and `ranks` for
    containers. A script without a place makes a directory itself. For a sweep it is the directory of the
    points' directories."""

    run_id: str
    folder: str


#: For a script that is started repeatedly, as in a study: its arguments are the run's name and directory.
GIVEN = Place("", "")

_GIVEN = """\
if [ "$part" = --first ]; then
  BAREBOAT_RUN=$1
  BAREBOAT_CONTROL=$2/control
fi
BAREBOAT_RUN_DIR=${BAREBOAT_CONTROL%/*}/ranks
export BAREBOAT_METER_DIR=${BAREBOAT_CONTROL%/*}/meter
"""


def run_name(plan: Plan) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in plan.job.name)


def run_and_folder(plan: Plan, scheduler: Scheduler, place: Place | None, runs: str | None) -> str:
    """The lines with which the first node determines the run's name and directories, or uses the given
    name."""
    if place == GIVEN:
        return _GIVEN
    name = run_name(plan)
    # Without a working directory on the host: where the job was submitted.
    folder = '"$PWD"' if plan.job.workdir is None else shlex.quote(plan.job.workdir)
    folder = f"{folder}/bareboat-runs" if runs is None else shlex.quote(runs)
    run = shlex.quote(place.run_id) if place else name
    if plan.job.sweep is not UNSET:
        own = shlex.quote(place.folder) if place else f"{folder}/{name}"
        run, folder = f"{run}.{scheduler.ARRAY.index}", f"{own}/points/${{BAREBOAT_RUN##*.}}"
    elif place:
        folder = shlex.quote(place.folder)
    else:
        run, folder = f"{name}-$BAREBOAT_JOB", f"{folder}/{name}-$BAREBOAT_JOB"
    return (
        'if [ "$part" = --first ]; then\n'
        f'  BAREBOAT_RUN="${{1:-{run}}}"\n'
        f"  BAREBOAT_CONTROL={folder}/control\n"
        "fi\n"
        "BAREBOAT_RUN_DIR=${BAREBOAT_CONTROL%/*}/ranks\n"
    )
