"""Which value applies to a variable that the job's `[environment]` sets and a launcher sets for its ranks
too: the launcher's for a rank's identity and rendezvous (`Passed.own`), because one value for all ranks would
be wrong for all but one; otherwise the job's. One rule for all launchers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from bareboat.launchers import Passed
from bareboat.model import CodeFacts, Decision, Image, Job, Joined, Site, Variable, looks_secret
from bareboat.schedulers import Scheduler, inherited
from bareboat_base.argument_limits import fault
from bareboat_base.errors import PlanError
from bareboat_base.paths import DEFAULT_PATH

#: Variables with a network interface that launchers determine on the node.
INTERFACES = ("GLOO_SOCKET_IFNAME",)
#: In `Site.other_tools`: the shims' directory in the store.
SHIMS = "shims"
#: Their directory, for scripts that set PATH again.
_FOLDER = "BAREBOAT_SHIMS"


class Settled(Struct, frozen=True, kw_only=True):
    """`passed`: the names whose values come from the job script; `prelude`: lines of bash that unset
    variables passed by prefix which the job sets itself."""

    passed: tuple[str, ...]
    prelude: str
    warnings: tuple[str, ...]
    decisions: tuple[Decision, ...]


def is_own(name: str, passed: Passed) -> bool:
    """Whether only the launcher may set this variable."""
    return not inherited.of_element(name) and any(fnmatchcase(name, pattern) for pattern in passed.own)


def of_job(job: Job, code: CodeFacts, scheduler: Scheduler, *, starts_ranks: bool) -> tuple[str, ...]:
    """The variables of the scheduler's job that the code reads: the command gets them where they are set.
    `starts_ranks`: in the container; OpenMPI's mpirun that finds SLURM_JOBID would do so by srun."""
    names = () if scheduler.IS_LOCAL else dict(code.job_variables)
    others = inherited.GRID_ENGINE if scheduler.NAME != "gridengine" else ()
    taken = {*job.environment, *job.environment_from, *others, *(("SLURM_JOBID",) if starts_ranks else ())}
    return tuple(name for name in names if name not in taken and not inherited.of_element(name))


def check_size(job: Job, image: Image | None, words: Iterable[str]) -> None:
    """Raise PlanError when the job's command and variables, with the image's, exceed Linux's limit for
    starting a program: the engine would fail at the start of the job."""
    given = {} if image is None else image.environment
    if (reason := fault(words, {**given, **job.environment})) is not None:
        raise PlanError(
            f"the job {reason}",
            context=f"the image sets {len(given):,} variables, the job {len(job.environment):,}",
            remedy="set fewer or shorter variables under [environment]; write long values to a file",
        )


def settle(job: Job, passed: Passed, launcher: str) -> Settled:
    taken = [name for name in job.environment_from if _is_launchers(name, passed)]
    if taken:
        raise PlanError(
            f"environment_from names {', '.join(taken)}, which the launcher {launcher} itself passes on",
            remedy="leave it out of environment_from",
        )
    decisions = [
        Decision(
            subject="environment",
            choice=f"{name}, by name",
            reason="environment_from: its value comes from the environment in which the job is run or "
            "submitted, and Bareboat writes it down nowhere",
        )
        for name in job.environment_from
    ]
    named = sorted(job.environment)
    ours = [name for name in named if not is_own(name, passed)]
    decisions += [
        Decision(
            subject="interface",
            choice=f"{name}={job.environment[name]}",
            reason="set in the job's environment",
        )
        for name in ours
        if name in INTERFACES and passed.own
    ]
    shadowed = [name for name in ours if name.startswith(passed.prefixes)]
    return Settled(
        passed=tuple(name for name in passed.names if name not in ours),
        prelude=f"unset {' '.join(shadowed)} # the job's environment has them\n" if shadowed else "",
        warnings=(
            *_ignored([name for name in named if name not in ours], launcher),
            *_secret([name for name in ours if looks_secret(name)]),
        ),
        decisions=tuple(decisions),
    )


def _is_launchers(name: str, passed: Passed) -> bool:
    return is_own(name, passed) or name in passed.names or name.startswith(passed.prefixes)


def _secret(names: Sequence[str]) -> Iterator[str]:
    listed = ", ".join(f'"{name}"' for name in names)
    if names:
        yield (
            f"the values of {', '.join(names)} under [environment] are written into the job script, which "
            f"only you can read; environment_from = [{listed}] passes them on without writing them down"
        )


def _ignored(names: Sequence[str], launcher: str) -> Iterator[str]:
    if names:
        yield (
            f"the job's environment sets {', '.join(names)}, which the launcher {launcher} sets for each "
            "rank: the job's value is ignored; remove it"
        )


def choose_shims(
    job: Job, image: Image | None, site: Site
) -> tuple[tuple[tuple[str, Joined], ...], tuple[Decision, ...]]:
    """The variables of a command with shims of other tools: they come first on PATH, then the job's or else
    the job script's directories, and those of the environment."""
    folder = site.other_tools.get(SHIMS)
    if not job.shim or folder is None:
        return (), ()
    own = (image.environment.get("PATH") if image is not None else None) or DEFAULT_PATH
    path = Joined((f"{folder}:", Variable("PATH"), f":{own}"))
    if "PATH" in job.environment:
        path = Joined((f"{folder}:{job.environment['PATH']}",))
    decision = Decision(
        subject="shims",
        choice=f"{folder} is the first directory on PATH",
        reason="asked for: shim = true; a tool that a node has on PATH has priority over its shim"
        if job.shim is True
        else f'asked for: shim = "{job.shim}"; the shims replace tools that a node has on PATH',
    )
    return (("PATH", path), (_FOLDER, Joined((folder,)))), (decision,)
