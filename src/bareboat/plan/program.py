"""Whether the job's program exists and is executable, as far as that is known before the start."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from bareboat import commands
from bareboat.engines import Engine
from bareboat.model import Executable, Job, Missing, MpiFacts
from bareboat.plan.gpus import Gpu
from bareboat.schedulers import Scheduler
from bareboat_base.errors import PlanError, ProgramError

#: The exit code of the dynamic loader.
_NOT_FOUND = 127


def check_starters(program: Executable | None, engine: Engine) -> None:
    """Raise PlanError for an image without the programs with which the engine starts commands."""
    lacks = [] if program is None else [each for each in engine.STARTS_BY if each in program.lacks]
    if lacks:
        raise PlanError(
            f"{engine.NAME} starts commands by {' and '.join(lacks)}, which the image does not have",
            remedy="--engine bubblewrap or apptainer, which need nothing in the image",
        )


def check_program(
    job: Job,
    program: Executable | None,
    engine: Engine,
    gpu: Gpu,
    scheduler: Scheduler,
    host_mpi: MpiFacts | None,
) -> tuple[Executable | UnsetType, tuple[str, ...]]:
    """What each node must check before it starts the command (UNSET: nothing), and warnings.

    Raises ProgramError for a program that cannot be executed.
    """
    if program is None or not program.known:
        return UNSET, ()
    if gpu.driver is not None and any(file.name == program.word for file in gpu.driver.programs):
        return UNSET, ()  # the driver's own tools are mounted with it
    if not program.code:
        missing = _missing(program, gpu, host_mpi) if engine.CONTAINS else ()
        if missing and not (program.place and job.scheduling.after):
            raise _lacking(job, program, missing)
        return (program if program.place else UNSET), tuple(map(_unloadable, missing))
    if not scheduler.IS_LOCAL and "/" not in program.word and not engine.CONTAINS:
        return UNSET, (
            f'"{program.word}" {program.reason}; the job fails with exit code {program.code} '
            "unless the compute nodes have it",
        )
    if program.place and job.scheduling.after:
        return program, ()  # an earlier job may write it
    raise ProgramError(
        f'"{program.word}" {program.reason}',
        context=program.context,
        remedy=program.remedy,
        status=program.code,
    )


def _missing(program: Executable, gpu: Gpu, host_mpi: MpiFacts | None) -> tuple[Missing, ...]:
    """The libraries that the container lacks and does not get from the host."""
    given = {file.name for file in gpu.driver.libraries} if gpu.driver is not None else set()
    if host_mpi is not None and host_mpi.runtime is not None:
        given |= {file.name for file in host_mpi.runtime.libraries}
    return tuple(each for each in program.missing if each.library not in given)


def _lacking(job: Job, program: Executable, missing: tuple[Missing, ...]) -> ProgramError:
    names = list(dict.fromkeys(each.library for each in missing))
    shown = " and ".join(names) if len(names) < 3 else f"{', '.join(names[:4])}" + " …" * (len(names) > 4)
    word = next(iter(commands.program(job.command)), program.word)
    own = _name(word)
    others = [each for each in missing if _name(each.needed_by) != own]
    them = "them" if len(names) > 1 else "it"
    remedy = f"use an image that has {them}: add what has {them} to its Dockerfile, then bareboat image build"
    if job.image == "capture":
        remedy = f'set programs = ["{word}"] under [capture], where this machine has {them}'
    return ProgramError(
        f'"{word}" requires {shown}, which the image does not have',
        context="; ".join(f"{each.library} is required by {each.needed_by}" for each in others[:4]),
        remedy=remedy,
        status=_NOT_FOUND,
    )


def _unloadable(missing: Missing) -> str:
    return (
        f"{missing.needed_by} requires {missing.library}, which the image does not have: use an image "
        "that has it, unless a job in `after` replaces the program"
    )


def _name(path: str) -> str:
    return path.rpartition("/")[2]
