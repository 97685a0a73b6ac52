"""Plan -> plain bash, and text for people (`summary`). The only directory that quotes; pure.

A job script is directives, values, the functions that differ between jobs, and the library of bash functions
(`runtime/*.sh`), which decide by the values. It runs by hand, without Bareboat on the cluster, and is written
for administrators to read.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from msgspec import UNSET

from bareboat import registry
from bareboat.model import Plan
from bareboat.render import commands, library, values, words
from bareboat.render.library import Library
from bareboat.render.library import subject as subject
from bareboat.render.place import GIVEN as GIVEN
from bareboat.render.place import Place as Place
from bareboat.render.place import library_path, name_run
from bareboat.render.summary import brief as brief
from bareboat.render.summary import digest as digest
from bareboat.render.summary import shown as shown
from bareboat.render.summary import text as text
from bareboat_base import __version__
from bareboat_base.printable import counted


def script(
    plan: Plan, place: Place | None = None, *, runs: str | None = None, rung: int = 1, alone: bool = False
) -> str:
    """The job script of a plan. `runs`: the directory for the runs of a script without a place that the user
    submits; by default `bareboat-runs` in the working directory. `rung`: the number of this plan among the
    ways to start the ranks that one job tries. Without a place, or `alone`, it contains its library."""
    head, made = _parts(plan, place, runs, rung)
    if alone or place is None:
        return f"{head}\n{made.inner}\n{_MAIN}"
    return f"{head}\n. {library_path(plan, place, made.name)} || exit 3\n{_MAIN}"


_MAIN = 'main "$@"\n'


def job_library(plan: Plan, place: Place | None = None) -> Library:
    """The library of the plan's script."""
    scheduler = registry.scheduler(plan.scheduler)
    return library.of_job(plan, scheduler, values.features(plan, scheduler, place))


def _parts(plan: Plan, place: Place | None, runs: str | None, rung: int) -> tuple[str, Library]:
    """The script above its library, and that."""
    scheduler = registry.scheduler(plan.scheduler)
    features = values.features(plan, scheduler, place)
    found = [
        head(plan.directives, _title(plan), f"plan {digest(plan)[:19]}"),
        words.assignments(values.of_job(plan, scheduler, place, rung, features)),
        *([] if scheduler.IS_LOCAL else [name_run(plan, scheduler, place, runs)]),
        *commands.of_job(plan),
    ]
    return "\n".join(found), library.of_job(plan, scheduler, features)


def scripts(plan: Plan, place: Place | None = None) -> Iterator[tuple[str, str]]:
    """Name and text of the job script, of the scripts of the further ways to start the ranks, which it finds
    in BAREBOAT_CONTROL, and of their libraries."""
    made = {"job.sh": script(plan, place), **dict(rungs(plan, place))}
    for each in () if place is None else (plan, *plan.otherwise):
        found = job_library(each, place)
        made[found.name] = found.text
    yield from made.items()


def rungs(plan: Plan, place: Place | None = None) -> Iterator[tuple[str, str]]:
    """The scripts of the further ways only."""
    for rung, other in enumerate(plan.otherwise, 2):
        yield f"rung.{rung}.sh", script(other, place, rung=rung)


def shell_script(plan: Plan) -> str | None:
    """The script by which `attach` opens a shell in the job's container, on a node of the job. Its arguments
    are the run's name and its control directory. None where there is no such container."""
    if plan.shell is UNSET:
        return None
    scheduler = registry.scheduler(plan.scheduler)
    features = values.features(plan, scheduler, None) & {"environment_from", "modules", "sweep"}
    if words.opens(plan.shell):
        features |= {"sealed"}
    found = [
        head((), _title(plan), f"plan {digest(plan)[:19]}"),
        words.assignments(values.of_job(plan, scheduler, None, 1, features)),
        *commands.of_shell(plan),
        library.of_shell(plan, features).inner,
        _MAIN,
    ]
    return "\n".join(found)


def head(directives: Iterable[str], title: str, origin: str) -> str:
    """The first lines of every script."""
    lines = ["#!/usr/bin/env bash", *directives]
    lines += [f"# {line}" for line in textwrap.wrap(_one_line(title), words.WIDTH - 2)]
    lines += [
        f"# Written by Bareboat {__version__}, {origin}. It needs bash, but no Bareboat.",
        "set -u",
        "unset BAREBOAT_RUN # the mark of the run's processes; this shell gets it as an argument",
    ]
    return "\n".join(lines) + "\n"


def _title(plan: Plan) -> str:
    topology = plan.job.topology
    return (
        f"{plan.job.name}: {counted(topology.nodes, 'node')} x {topology.ranks_per_node} ranks; "
        f"engine {plan.engine}, launcher {plan.launcher}, scheduler {plan.scheduler}"
    )


def _one_line(text: str) -> str:
    """A newline in a job's name would end the comment."""
    return "".join(each if each.isprintable() else "?" for each in text)
