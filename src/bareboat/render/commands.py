"""The functions of a job script that differ between jobs: its requirements and its commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from msgspec import UNSET

from bareboat.model import Command, Plan, Start
from bareboat.render import words
from bareboat.render.values import engine_of

#: Prefix of an engine that holds its command: marks it as one of the script's helpers. Its container gets an
#: environment of its own.
_HOLDER = "BAREBOAT_SCRIPT=$BAREBOAT_RUN"


def of_job(plan: Plan) -> Iterator[str]:
    yield requirements(plan)
    if plan.prelude:
        yield _function("rank_names", "".join(f"  {line}\n" for line in plan.prelude.splitlines()))
    if plan.start is Start.PROGRAM:
        argv = [*map(words.quoted, plan.program), '"$@"']
        yield _function("program", words.lines(["exec", *argv]) + "\n", "starts the ranks")
    yield from _engine_data(plan.command)
    yield from _commands(plan)


def of_shell(plan: Plan) -> Iterator[str]:
    """For a shell in the job's container."""
    assert plan.shell is not UNSET
    yield requirements(plan)
    yield from _engine_data(plan.shell)
    body = _variables(plan.shell) + words.lines(["exec", *words.groups(plan.shell)]) + "\n"
    yield _function("shell_command", body)


def requirements(plan: Plan) -> str:
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
