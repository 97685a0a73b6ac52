"""The job script of a study's allocation: the arms' scripts, started one after another on the same nodes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from bareboat.render import words
from bareboat.render.pieces import piece
from bareboat.schedulers import Scheduler
from bareboat_base import __version__
from bareboat_base.printable import counted


class Allocation(NamedTuple):
    """What one job of a study measures. `folder`: the directory of the study, or of its point, with the arms'
    scripts in `arms/NUMBER`. `runs`: each run of the study, with its arms in order; the first is the warm-up.
    `files`: the files to which the program writes its metrics. `number`: of the study's jobs; an older one
    ends."""

    study: str
    folder: str
    nodes: int
    directives: Sequence[str]
    arms: Sequence[str]
    runs: Sequence[tuple[int, Sequence[int]]]
    time_limit_s: int | None
    files: Sequence[str] = ()
    number: int = 1


def script(scheduler: Scheduler, made: Allocation) -> str:
    """The job script. It skips complete runs when it starts, so it may start any number of times."""
    arms = ", ".join(made.arms)
    nodes = counted(made.nodes, "node")
    head = f"{made.study}: {nodes}; {len(made.runs)} runs of each arm: {arms}"
    schedule = "".join(
        f"  {shlex.quote(' '.join([f'{run:04d}', *map(str, order)]))}\n" for run, order in made.runs
    )
    found = [
        "#!/usr/bin/env bash",
        *made.directives,
        "# " + "".join(each if each.isprintable() else "?" for each in head),
        f"# Written by Bareboat {__version__}. It needs bash, and on all nodes what its arms need, but no "
        "Bareboat.",
        piece("mark"),
        words.values(study=made.folder, allocation=made.number)
        + words.values(time_limit_s="" if made.time_limit_s is None else made.time_limit_s)
        + words.values(metric_files=tuple(made.files))
        + f"# A run, and the numbers of its arms in their order.\nschedule=(\n{schedule})\n",
        piece("allocation_seen"),
        f"BAREBOAT_NODES={made.nodes}\n"
        f"BAREBOAT_JOB={scheduler.JOB_ID}\n"
        f"BAREBOAT_RUN={shlex.quote(made.study)}\n"
        "BAREBOAT_CONTROL=$study/control BAREBOAT_RUN_DIR=$study/ranks\n"
        "read -r BAREBOAT_HOST < /proc/sys/kernel/hostname\n",
        piece("begin"),
        scheduler.snippet(),
        piece("allocation"),
    ]
    return "\n".join(found)
