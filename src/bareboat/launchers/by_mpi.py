"""Shared by the launchers of MPI programs: each is one way of starting them (bareboat.mpi.start_methods)."""

from __future__ import annotations

import textwrap
from typing import assert_never

from msgspec import structs

from bareboat import transport_logs
from bareboat.launchers import RANK_NAMES, RANK_VARIABLES, Launch, Passed, Surroundings, threads
from bareboat.model import CheckSubject, Image, Job, MpiFacts, Refusal, Word, digestible
from bareboat.mpi import checks, inject, rules
from bareboat.mpi.rules import OWN, PASSED, Layout, Setting, Starter
from bareboat.mpi.start_methods import MpiSite, Rung, Step, library_of, mpi_site_of, needs_mpi, walk
from bareboat.mpi.start_methods import users as users_of
from bareboat_base import __version__, codec

#: In the words of a launcher, for the words before the name of its daemon, which keep signals from it.
HOLDS = "HOLDS"
#: How long the MPI check waits for missing ranks.
CHECK_TIMEOUT_S = 120.0
#: `Launcher.SETS` of the launchers that come with an MPI.
SETS = ("OMPI_", "PMI", "MPI_LOCAL")


def mpi_site(job: Job, around: Surroundings) -> MpiSite:
    found = mpi_site_of(around.site, plugins=around.mpi_plugins, in_slurm=around.in_slurm)
    broken = {**around.site.broken_launches, **checks.broken(around.mpi_checks, site(job, around))}
    failed = checks.failed_steps(around.mpi_checks, context(job, around)) if around.mpi_checks else {}
    return structs.replace(found, failed=failed, broken=broken)


def context(job: Job, around: Surroundings) -> str:
    """A digest of what determines, besides the step, whether ranks become one world."""
    topology = job.topology
    return codec.digest(
        {
            "site": site(job, around),
            "image": around.image.digest if around.image is not None else None,
            "engine": around.engine,
            "several": [topology.nodes > 1, topology.ranks_per_node > 1],
            "environment": digestible(job.environment),
            "environment_from": job.environment_from,
            "mpis": [[mpi.title, mpi.library] for mpi in around.site.mpis],
        }
    )


def site(job: Job, around: Surroundings) -> str:
    """A digest of what determines, for any image, whether a launcher starts ranks."""
    return codec.digest(
        {
            "bareboat": __version__,
            "scheduler": around.scheduler,
            "partition": job.scheduling.partition,
            "modules": job.modules,
            "plugins": around.mpi_plugins,
            "mpis": [mpi.launcher for mpi in around.site.mpis],
            "system": [around.site.distribution, around.site.glibc],
        }
    )


def layout(job: Job, around: Surroundings) -> Layout:
    return Layout(
        nodes=job.topology.nodes,
        ranks_per_node=job.topology.ranks_per_node,
        container_per_rank=around.contains,
    )


def judge(rung: Rung, name: str, job: Job, around: Surroundings) -> Step | Refusal:
    """The step of this launcher."""
    if job.launcher != name and not needs_mpi(around.image):
        return Refusal(
            "nothing in the environment uses MPI", remedy=f'set launcher = "{name}", if something does'
        )
    if job.launcher != name and lacks_mpi(around.image):
        return _BUILT_WITHOUT
    found = walk(around.image, mpi_site(job, around), layout(job, around), only=frozenset({rung}))
    if isinstance(found, Refusal):
        reasons = "; ".join(f"{each.choice}: {each.reason}" for each in found.rejected)
        return Refusal(
            reasons or found.reason,
            remedy=next((each.remedy for each in found.rejected if each.remedy), found.remedy),
        )
    return found


_BUILT_WITHOUT = Refusal(
    "the image's Horovod is built without MPI: each rank would train a model of its own",
    remedy='set site_layer = ["horovod"] in the job file',
)


def lacks_mpi(image: Image | None) -> bool:
    """Whether all that would use MPI is a Horovod that was built without it."""
    found = users_of(image)
    return bool(found) and all(
        name.startswith("horovod") and not libraries for name, libraries in found.items()
    )


def launch(found: Step, job: Job, around: Surroundings) -> Launch:
    """The part that all launchers of MPI programs have in common."""
    own = library_of(around.image) if around.image is not None else None
    library = found.library or own
    users = ", ".join(sorted(users_of(around.image)))
    why = f"{users} use{'s' if ',' not in users else ''} " if users else "it uses "
    reasons: dict[str, list[str]] = {}
    for each in found.settings:
        if each.value is not None:
            reasons.setdefault(each.reason, []).append(f"{each.name}={each.value}")
    settings = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    subject, warning = None, ""
    if job.topology.world_size > 1 and not has_python(around.image):
        warning = (
            "nothing checks that the ranks find each other: the MPI check needs Python 3 in the image; "
            "compare the world size that the program prints"
        )
    elif job.topology.world_size > 1:
        manager = found.launch.title if found.launch is not None and not found.launch.own else ""
        subject = CheckSubject(
            step=found.key, context=context(job, around), launch=manager, site=site(job, around)
        )
    before = checks.passed(around.mpi_checks, subject) if subject is not None else None
    given = {each.name: each.value for each in found.settings if each.value is not None}
    return Launch(
        reason=f"{why}{library.title if library else 'MPI'}; {found.choice}: {found.reason}"
        + (f"; with {settings}" if settings else ""),
        environment={**threads(job), **given},
        host_mpi=found.library if found.rung is Rung.HOST_LIBRARY else None,
        check_subject=subject,
        note=f"{found.choice} passed the MPI check here on {before.day}: {before.said}"
        if before is not None
        else "",
        warning=warning,
        runner=_runner(job, around.image),
    )


def _runner(job: Job, image: Image | None) -> str:
    if job.topology.world_size == 1 or "mpi4py" not in users_of(image):
        return ""
    from bareboat.mpi import text  # few jobs need it

    return text.main_of(text.run_script)


def launch_from_outside(
    found: Step, job: Job, around: Surroundings, program: tuple[Word, ...], *, rank: str, local_rank: str
) -> Launch:
    """How a program outside the container starts each rank in a container of its own. `rank`, `local_rank`:
    bash expressions of a rank's numbers."""
    common = launch(found, job, around)
    return structs.replace(
        common,
        passed=Passed(RANK_VARIABLES, PASSED, (*RANK_NAMES, *OWN)),
        program=program,
        prelude=prelude(found, job, rank=rank, local_rank=local_rank),
        mpi_check=mpi_check(job, around, None if common.host_mpi is None else inject.inside(common.host_mpi)),
    )


def has_python(image: Image | None) -> bool:
    """Whether the container can run the MPI check; an environment that is only described has Python."""
    return image is None or not image.digest or image.python is not None


def unjudged(image: Image | None, job: Job) -> str:
    """A warning where the job's program may use MPI and its launcher does not support MPI."""
    if job.topology.world_size == 1:
        return ""
    users = ", ".join(sorted(users_of(image)))
    if users:
        return f"{users} would use MPI: with this launcher each rank is a world of its own"
    program = image.program if image is not None else None
    if program is None:
        return ""
    return (
        f"it is not known whether {program.program} uses MPI ({program.unknown}); if it does, each rank "
        "becomes a world of its own: set launcher to one of srun, mpirun, image-mpirun"
    )


def alone(name: str, job: Job, around: Surroundings) -> Refusal | None:
    """Why a launcher without MPI support is not chosen by default: programs that use MPI would run as N
    singletons without an error. None when there is no such program."""
    if job.launcher == name or not needs_mpi(around.image) or job.topology.world_size == 1:
        return None
    if lacks_mpi(around.image):
        return _BUILT_WITHOUT
    found = walk(around.image, mpi_site(job, around), layout(job, around))
    users = ", ".join(sorted(users_of(around.image)))
    return Refusal(
        f"{users} would find N worlds of one rank each",
        remedy=found.remedy
        if isinstance(found, Refusal)
        else f'set launcher = "{name}", if nothing uses MPI',
    )


def singleton(image: Image | None) -> tuple[Setting, ...]:
    """The settings with which the MPI library starts as a singleton in a process without an MPI launcher."""
    library = library_of(image) if image is not None else None
    return rules.singleton(library) if library is not None else ()


def ranks(starter: Starter, job: Job) -> tuple[str, ...]:
    """Options for the number of ranks, their placement, and the variables that they get besides the
    launcher's own: srun and Hydra pass on the whole environment. Within the CPUs that the scheduler gives,
    ranks are not bound, because training starts threads of its own."""
    topology = job.topology
    size, each = str(topology.world_size), topology.ranks_per_node
    match starter:
        case Starter.ORTE | Starter.PRRTE:
            names = [word for name in job.environment_from for word in ("-x", name)]
            return (
                *("-n", size, "--map-by", f"ppr:{each}:node", "--bind-to", "none", "--oversubscribe"),
                *names,
            )
        case Starter.HYDRA:
            return ("-n", size, "-ppn", str(each))
        case Starter.SRUN:
            raise AssertionError("srun has a launcher of its own")
        case _:
            assert_never(starter)


def daemons(starter: Starter) -> tuple[str, ...]:
    """The option by which a launcher starts its daemons on other nodes: by HOLDS, which the planner replaces
    for a launcher of the host, and the relay for one of the image. Hydra has none."""
    match starter:
        case Starter.ORTE:
            return ("--mca", "orte_launch_agent", f"{HOLDS} orted")
        case Starter.PRRTE:
            return ("--prtemca", "prte_launch_agent", f"{HOLDS} prted")
        case _:
            return ()


def prelude(found: Step, job: Job, *, rank: str, local_rank: str) -> str:
    """Set the names that PyTorch and others read, from those of the starter, and unset what the starter
    exported for itself. `rank`, `local_rank`: bash expressions."""
    taken = sorted({each.name for each in found.settings})
    lines = [
        f"RANK={rank}",
        f"LOCAL_RANK={local_rank} LOCAL_WORLD_SIZE={job.topology.ranks_per_node}",
    ]
    if taken:
        lines.append(" \\\n  ".join(textwrap.wrap(f"unset {' '.join(taken)}", 100, break_long_words=False)))
    return "\n".join(lines) + "\n"


def mpi_check(job: Job, around: Surroundings, library: MpiFacts | None = None) -> tuple[str, ...] | None:
    """The command by which the ranks check before the job that they find each other. It tests mpi4py's
    library, or otherwise the one that Horovod and other programs load: `library`, or the image's own."""
    image = around.image
    if job.topology.world_size == 1 or not has_python(image):
        return None
    if library is None and image is not None:
        library = library_of(image)
    direct = image is None or "mpi4py" not in users_of(image)
    # Between nodes the transport matters, and here it costs the job nothing to report it.
    asked = transport_logs.asked(library.family) if library is not None and job.topology.nodes > 1 else {}
    set_already = {*job.environment, *(image.environment if image is not None else ())}
    return checks.command(
        around.python,
        size=job.topology.world_size,
        timeout_s=CHECK_TIMEOUT_S,
        library=library.library if library is not None and direct else None,
        tell={name: value for name, value in asked.items() if name not in set_already},
    )
