"""Plan -> plain bash, and text for people (`summary`). The only directory that quotes; pure.

A job script is directives, values, the functions that differ between jobs, and the library of bash functions
(`runtime/*.sh`), which decide by the values. It runs by hand, without Bareboat on the cluster, and is written
for administrators to read.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator

from msgspec import UNSET

from bareboat import registry
from bareboat.model import Command, Plan, Start
from bareboat.render import library, values, words
from bareboat.render.library import Library
from bareboat.render.library import subject as subject
from bareboat.render.place import GIVEN as GIVEN
from bareboat.render.place import Place as Place
from bareboat.render.place import library_path, name_run
from bareboat.render.summary import brief as brief
from bareboat.render.summary import digest as digest
from bareboat.render.summary import shown as shown
from bareboat.render.summary import text as text
from bareboat.render.values import engine_of
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
        *_functions_of_job(plan),
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
        *_functions_of_shell(plan),
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


#: Prefix of an engine that holds its command: marks it as one of the script's helpers. Its container gets an
#: environment of its own.
_HOLDER = "BAREBOAT_SCRIPT=$BAREBOAT_RUN"


def _functions_of_job(plan: Plan) -> Iterator[str]:
    yield _requirements(plan)
    if plan.prelude:
        yield _function("rank_names", "".join(f"  {line}\n" for line in plan.prelude.splitlines()))
    if plan.start is Start.PROGRAM:
        argv = [*map(words.quoted, plan.program), '"$@"']
        yield _function("program", words.lines(["exec", *argv]) + "\n", "starts the ranks")
    yield from _engine_data(plan.command)
    yield from _commands(plan)


def _functions_of_shell(plan: Plan) -> Iterator[str]:
    """For a shell in the job's container."""
    assert plan.shell is not UNSET
    yield _requirements(plan)
    yield from _engine_data(plan.shell)
    body = _variables(plan.shell) + words.lines(["exec", *words.groups(plan.shell)]) + "\n"
    yield _function("shell_command", body)


def _requirements(plan: Plan) -> str:
    calls = [["need", r.path, r.what, r.remedy] for r in plan.requirements]
    if plan.executable is not UNSET:
        place = plan.executable.place
        remedies = (
            f"chmod +x {shlex.quote(place)}",
            f"ls -l {shlex.quote(place.rpartition('/')[0] or '/')}   # all nodes must see the file",
        )
        calls.append(["need_program", f'"{plan.executable.word}"', place, *remedies])
    body = "".join(words.lines(list(map(words.literal, call))) + "\n" for call in calls)
    return _function("requirements", body or "  return 0\n")


def _engine_data(command: Command) -> Iterator[str]:
    """What an engine gets besides its arguments: values through a descriptor, and variables."""
    if entries := words.sealed_entries(command):
        seal = "seal" if words.is_small(command) else "seal_long"
        yield _function("seal_environment", words.lines([seal, *entries]) + "\n")
    if (each := words.passed_words(command)) is not None:
        yield _function("pass_variable", f"  passed+=({each})\n", "$name with its $value")


def _commands(plan: Plan) -> Iterator[str]:
    """The job's command, and that of the MPI check, in the same container."""
    # The script waits for a rank that it started itself, to keep its exit code.
    start = [] if plan.start is Start.RANKS else ["exec"]
    if engine_of(plan).HOLDS:
        start.insert(0, _HOLDER)
    job, before = words.groups(plan.command), _variables(plan.command)
    if plan.mpi_check is not None:
        check, before_check = words.groups(plan.mpi_check), _variables(plan.mpi_check)
        shared = next((n for n, (a, b) in enumerate(zip(job, check, strict=False)) if a != b), 0)
        if shared > 1 and before == before_check:
            # Bash expands the arguments of the container before it runs: what they need is set before that.
            is_inside = not any("passed[@]" in each for each in (*job[shared:], *check[shared:]))
            inside = before if is_inside else ""
            yield _function("container", inside + words.lines([*start, *job[:shared], '"$@"']) + "\n")
            start, job, check = ["container"], job[shared:], check[shared:]
            before = before_check = "" if is_inside else before
        yield _function("check_command", before_check + words.lines([*start, *check]) + "\n")
    yield _function("job_command", before + words.lines([*start, *job]) + "\n")


def _variables(command: Command) -> str:
    """The lines before a command that pass on environment variables."""
    found = []
    if (names := words.passed_names(command)) is not None:
        found.append(words.lines(["pass_variables", *names]))
    if exports := words.exports(command):
        found.append(words.lines(["export", *exports]))
    return "".join(f"{each}\n" for each in found)


def _function(name: str, body: str, comment: str = "") -> str:
    comment = comment and f" # {comment}"
    line = f"{name}() {{ {body.strip()}; }}{comment}"
    if "\n" in body.strip() or "#" in body or len(line) > words.WIDTH:
        line = f"{name}() {{{comment}\n{body}}}"
    return line + "\n"
