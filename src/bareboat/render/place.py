"""Where a run's files are, in bash: the script's own directory and that of its ranks."""

from __future__ import annotations

from typing import NamedTuple

from bareboat.model import Plan
from bareboat.render.words import literal
from bareboat.schedulers import Scheduler


class Place(NamedTuple):
    """Where a run is kept: its mark and its directory, with `control` for the script and `ranks` for
    containers. A script without a place makes a directory itself. For a sweep it is the directory of the
    points' directories. `log`: the script itself writes the run's log, not who starts it."""

    mark: str
    folder: str
    log: bool = True


#: For a script that is started repeatedly, as in a study: its arguments are the run's mark and directory.
GIVEN = Place("", "", log=False)


def run_name(plan: Plan) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in plan.job.name)


def name_run(plan: Plan, scheduler: Scheduler, place: Place | None, runs: str | None) -> str:
    """The function with which the first node determines the run's mark and directory: $1 is the mark where it
    is given, $2 then the directory of a run that is started repeatedly."""
    if place == GIVEN:
        return _function("BAREBOAT_RUN=$1", "BAREBOAT_CONTROL=$2/control")
    name = run_name(plan)
    # Without a working directory on the host: where the job was submitted.
    folder = '"$PWD"' if plan.job.workdir is None else literal(plan.job.workdir)
    folder = f"{folder}/bareboat-runs" if runs is None else literal(runs)
    run = literal(place.mark) if place else name
    if plan.job.sweep is not None:
        own = literal(place.folder) if place else f"{folder}/{name}"
        run, folder = f"{run}.{scheduler.ARRAY.index}", f"{own}/points/${{BAREBOAT_RUN##*.}}"
    elif place:
        folder = literal(place.folder)
    else:
        run, folder = f"{name}-$BAREBOAT_JOB", f"{folder}/{name}-$BAREBOAT_JOB"
    return _function(f'BAREBOAT_RUN="${{1:-{run}}}"', f"BAREBOAT_CONTROL={folder}/control")


def _function(*lines: str) -> str:
    return "name_run() {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def library_path(plan: Plan, place: Place, name: str) -> str:
    """The library's file, as a word of the script: next to the script that Bareboat wrote. Schedulers start a
    copy of that in another directory."""
    if place == GIVEN:
        return f'"${{BASH_SOURCE[0]%/*}}"/{name}'
    folder = place.folder if plan.job.sweep is not None else f"{place.folder}/control"
    return literal(f"{folder}/{name}")
