"""The job script of a study's allocation: the arms' scripts, started one after another on the same nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bareboat import render
from bareboat.render import library, words
from bareboat.schedulers import Scheduler
from bareboat_base.printable import counted

#: The directory of the script and its library, in that of the study.
CONTROL = "control"


class Allocation(NamedTuple):
    """What one job of a study measures. `mark`: of the study's processes. `folder`: the directory of the
    study, or of its point, with the arms' scripts in `arms/NUMBER`. `runs`: each run of the study, with its
    arms in order; the first is the warm-up. `files`: the files to which the program writes its metrics.
    `number`: of the study's jobs; an older one ends."""

    study: str
    mark: str
    folder: str
    nodes: int
    directives: Sequence[str]
    arms: Sequence[str]
    runs: Sequence[tuple[int, Sequence[int]]]
    time_limit_s: int | None
    files: Sequence[str] = ()
    number: int = 1


def scripts(scheduler: Scheduler, made: Allocation) -> Iterator[tuple[str, str]]:
    """Name and text of the job script and of its library, for the study's directory `control`."""
    yield "job.sh", script(scheduler, made)
    functions = library.of_allocation(scheduler)
    yield functions.name, functions.text


def script(scheduler: Scheduler, made: Allocation, *, alone: bool = False) -> str:
    """The job script. It skips complete runs when it starts, so it may start any number of times. `alone`:
    with its library; otherwise it finds that in the directory `control` of the study."""
    head = f"{made.study}: {counted(made.nodes, 'node')}; {len(made.runs)} runs of each arm: "
    schedule = [f"{run:04d} {' '.join(map(str, order))}" for run, order in made.runs]
    functions = library.of_allocation(scheduler)
    control = f"{made.folder}/{CONTROL}"
    found = [
        render.head(made.directives, head + ", ".join(made.arms), "for the arms of a study"),
        words.assignments(
            [
                *words.values(
                    features="  ",
                    study=made.folder,
                    allocation=made.number,
                    time_limit_s="" if made.time_limit_s is None else made.time_limit_s,
                    metric_files=tuple(made.files),
                    BAREBOAT_NODES=made.nodes,
                ),
                f"BAREBOAT_JOB={scheduler.JOB_ID}",
                *words.values(
                    BAREBOAT_RUN=made.mark, BAREBOAT_CONTROL=control, BAREBOAT_RUN_DIR=f"{made.folder}/ranks"
                ),
            ]
        ),
        "# A run, and the numbers of its arms in their order.\n" + words.value("schedule", schedule) + "\n",
        functions.text if alone else f". {words.literal(f'{control}/{functions.name}')} || exit 3",
        'main "$@"\n',
    ]
    return "\n".join(found)
