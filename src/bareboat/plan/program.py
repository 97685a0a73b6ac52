"""Whether the job's program exists and is executable, as far as that is known before the start."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from bareboat.engines import LOADER, Engine
from bareboat.model import Executable, Job
from bareboat.plan.gpus import Gpu
from bareboat.schedulers import Scheduler
from bareboat_base.errors import PlanError, ProgramError


def check_starters(program: Executable | None, engine: Engine) -> None:
    """Raise PlanError for an image without the programs with which the engine starts commands, and for a
    static program under an engine that depends on the dynamic loader."""
    lacks = [] if program is None else [each for each in engine.STARTS_BY if each in program.lacks]
    if program is not None and LOADER in lacks:
        raise PlanError(
            f"{program.word} is a static program, and {engine.NAME} keeps programs in the image by a library "
            "that the dynamic loader loads",
            remedy="another engine, or another mode of it: bareboat doctor",
        )
    if lacks:
        raise PlanError(
            f"{engine.NAME} starts commands by {' and '.join(lacks)}, which the image does not have",
            remedy="--engine bubblewrap or apptainer, which need nothing in the image",
        )


def check_program(
    job: Job, program: Executable | None, engine: Engine, gpu: Gpu, scheduler: Scheduler
) -> tuple[Executable | UnsetType, tuple[str, ...]]:
    """What each node must check before it starts the command (UNSET: nothing), and warnings.

    Raises ProgramError for a program that cannot be executed.
    """
    if program is None or not program.known:
        return UNSET, ()
    if gpu.driver is not None and any(file.name == program.word for file in gpu.driver.programs):
        return UNSET, ()  # the driver's own tools are mounted with it
    if not program.code:
        return (program if program.place else UNSET), ()
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
