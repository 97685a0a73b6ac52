"""How a sweep's points change a plan: words and variables whose values only the job script knows."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from bareboat.model import CodeFacts, Decision, Job, Joined, Site, Variable, Word
from bareboat.model import sweep as sweeps
from bareboat.model.sweep import Sweep
from bareboat.schedulers import Scheduler, inherited


def variables(job: Job) -> tuple[str, ...]:
    """The variables of the job script that identify the point for the command."""
    if job.sweep is None:
        return ()
    return tuple(sweeps.variable(name) for name in (sweeps.INDEX, *job.sweep.names))


def words(argv: Sequence[str], own: int, job: Job) -> tuple[Word, ...]:
    """The command's words. Placeholders occur only in the last `own`, which are the job's; the others are the
    image's or a launcher's."""
    if job.sweep is None:
        return tuple(argv)
    first = len(argv) - own
    return (*argv[:first], *(_word(text, job.sweep) for text in argv[first:]))


def fixed_environment(job: Job) -> dict[str, str]:
    """The job's variables that are the same at every point."""
    return {name: word for name, word in _environment(job).items() if isinstance(word, str)}


def given(job: Job) -> tuple[tuple[str, Joined], ...]:
    """The job's variables that differ between points, by name."""
    found = sorted(_environment(job).items())
    return tuple((name, word) for name, word in found if isinstance(word, Joined))


def _environment(job: Job) -> Mapping[str, str | Joined]:
    if job.sweep is None:
        return job.environment
    return {name: _word(text, job.sweep) for name, text in job.environment.items()}


def _word(text: str, sweep: Sweep) -> str | Joined:
    found = sweeps.parse(text, sweep.names)
    parts = [part if isinstance(part, str) else Variable(sweeps.variable(part.name)) for part in found]
    fixed = [part for part in parts if isinstance(part, str)]
    return "".join(fixed) if len(fixed) == len(parts) else Joined(tuple(parts))


def warnings(job: Job, code: CodeFacts) -> tuple[str, ...]:
    """The values that no word of the command and no variable of the job has: a program that does not read
    their own variables does the same at every point. And the scheduler's number of an array's element, where
    the code reads it and the job does not set it: Bareboat's arrays, if there are any, begin at 0."""
    if job.sweep is None or not job.command:
        return ()
    numbered = (
        f"{file} reads {name}, which Bareboat does not set to a value of the sweep: set it under "
        f'[environment], as {name} = "{{{job.sweep.names[0]}}}"'
        for name, file in code.job_variables
        if inherited.of_element(name) and name not in job.environment
    )
    texts = (*job.command, *job.environment.values())
    parts = [part for text in texts for part in sweeps.parse(text, job.sweep.names)]
    used = {part.name for part in parts if not isinstance(part, str)}
    # With its number alone, a program finds its values itself.
    names = () if used == {sweeps.INDEX} else job.sweep.names
    unused = (
        f"the command has no {{{name}}}: the program gets its values as {sweeps.variable(name)} only; if it "
        f"does not read this, use {{{name}}} in the command or under [environment]"
        for name in names
        if name not in used
    )
    return (*numbered, *unused)


def decisions(job: Job, site: Site, scheduler: Scheduler) -> tuple[Decision, ...]:
    if job.sweep is None:
        return ()
    count, at_once = len(job.sweep.points), job.sweep.at_once
    if scheduler.IS_LOCAL:
        reason = "one after another on this machine"
    elif scheduler.has_arrays(site):
        reason = f"one array job of {scheduler.NAME}"
    else:
        reason = f"{scheduler.NAME} has no array jobs here: a job for each point"
    first = shlex.join(sweeps.fill(word, job.sweep, 0) for word in job.command)
    return (
        Decision(
            subject="sweep",
            choice=f"{count} points of {', '.join(job.sweep.names)}"
            + (f", {at_once} at once" if at_once is not None else ""),
            reason=f"{reason}; the first runs: {first or 'what the image runs'}",
        ),
    )
