"""The values in the head of a job script: the features of the job, and what the functions of the library read
from variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import UNSET

from bareboat import registry, transport_logs
from bareboat.engines import Engine
from bareboat.model import Delivery, KernelCache, Plan, Start, Word, sweep
from bareboat.model.fabric import FabricWatch
from bareboat.model.submission import HUNG, UNHEALTHY
from bareboat.mpi.checks import STARTED
from bareboat.render import words
from bareboat.render.place import GIVEN, Place, run_name
from bareboat.render.summary import launch_of
from bareboat.schedulers import Scheduler
from bareboat_base import seccomp

#: Names of what a job needs, by which the library's functions decide.
Features = frozenset[str]
#: Those whose functions are a file of their own, in the library's order.
WITH_FUNCTIONS = (
    "sweep", "modules", "health", "delivery", "mpi_nodes", "watching", "watchdog", "world", "fabric",
    "discarded", "kernel_cache",
)  # fmt: skip

#: By which OpenMP and the libraries of linear algebra read how many threads to start.
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS")

#: Maximum seconds between two polls of the watchdog. It adds to the time until a hang is noticed.
_LONGEST_LOOK_S = 10


def engine_of(plan: Plan) -> Engine:
    return registry.engine(plan.engine.partition(":")[0])


def features(plan: Plan, scheduler: Scheduler, place: Place | None) -> Features:
    job, scheduling = plan.job, plan.job.scheduling
    leads = plan.start is Start.PROGRAM and job.topology.nodes > 1
    found = {
        # What stays beside the command shows by the signals that wait for it that all processes got them.
        "canary": not _holds(plan.command.argv),
        "delivery": plan.delivery is not UNSET,
        # Not in a study: the arms must not differ.
        "discarded": engine_of(plan).CONTAINS and place != GIVEN,
        "ends_first": engine_of(plan).ENDS_FIRST,
        "environment_from": bool(job.environment_from),
        # Not in a study, whose arms do nothing else than the job.
        "health": job.health == "require" and place != GIVEN,
        "interface": "BAREBOAT_INTERFACE" in plan.prelude + words.text_of(plan.command),
        "kernel_cache": plan.kernel_cache is not UNSET,
        "log": not scheduler.IS_LOCAL and (job.sweep is not None or (place is not None and place.log)),
        "meter": place == GIVEN,
        "modules": bool(job.modules),
        "mpi_check": plan.mpi_check is not None,
        # A launcher on the first node may need help to find the others. All MPIs support Slurm.
        "mpi_nodes": leads and not scheduler.IN_SLURM and "on_host()" in scheduler.snippet(),
        "names": bool(plan.prelude),
        "no_limits": job.health is False,
        # A job that names its launcher may mean ranks that start others.
        "one_world": plan.watches_world is True and not job.launcher,
        "output": plan.keeps_output,
        "requeue": scheduling.requeue,
        "rungs": bool(plan.otherwise),
        "sealed": words.opens(plan.command),
        "secret": plan.secret is True,
        "signals_by_file": scheduler.SIGNALS_BY_FILE,
        "sweep": job.sweep is not None,
        "warning": _warning_s(plan, scheduler) is not None,
        "watchdog": bool(scheduling.watchdog_s),
        "watching": bool(scheduling.watchdog_s) or plan.watches_world is True,
        "world": plan.watches_world is True,
        **_fabric_features(plan),
    }
    return Features(name for name, is_on in found.items() if is_on)


def _holds(argv: Sequence[Word]) -> bool:
    """Whether signals wait for the program in front of the words."""
    return len(argv) > 1 and str(argv[0]).endswith(f"/{seccomp.START}") and seccomp.Mode.STAY in str(argv[1])


def of_job(
    plan: Plan, scheduler: Scheduler, place: Place | None, rung: int, found: Features
) -> Sequence[str]:
    """The assignments; the features are the first line."""
    return [
        words.value("features", f" {' '.join(sorted(found))} "),
        *_each(plan, scheduler, place, rung, found),
    ]


def _each(plan: Plan, scheduler: Scheduler, place: Place | None, rung: int, found: Features) -> Iterator[str]:
    job, topology = plan.job, plan.job.topology
    start = {Start.NODES: "nodes", Start.RANKS: "ranks", Start.PROGRAM: "program"}[plan.start]
    yield from words.values(
        start=start,
        ranks_per_node=topology.ranks_per_node,
        world_size=topology.world_size,
        run_apart=engine_of(plan).APART,
        rung=rung,
        requested=_requested(plan, scheduler),
    )
    if job.node_scratch is not None:
        yield from words.values(scratch=job.node_scratch)
    if "health" in found:
        yield from words.values(unhealthy_code=UNHEALTHY)
    if plan.mpi_check is not None or rung > 1:
        yield from words.values(launch=launch_of(plan), rank_says=STARTED)
    if job.modules:
        yield from words.values(site_modules=job.modules)
    if job.environment_from:
        yield from words.values(environment_from=job.environment_from)
    if job.sweep is not None:
        yield from words.values(sweep_names=tuple(map(sweep.variable, job.sweep.names)))
    if plan.delivery is not UNSET:
        yield from delivery(plan.delivery)
    if plan.kernel_cache is not UNSET:
        yield from _kernel_cache(plan.kernel_cache)
    yield from _watchdog(plan)
    if scheduler.IS_LOCAL:
        yield from words.values(run_name=run_name(plan))
    else:
        yield from _cluster(plan, scheduler, place)


def _requested(plan: Plan, scheduler: Scheduler) -> tuple[str, ...]:
    """Processors, GPUs and threads of a rank, bytes of memory of a node; zeros for what is not requested."""
    topology, sealed = plan.job.topology, plan.command.sealed
    environment: Mapping[str, object] = plan.command.environment
    if sealed is not UNSET:
        environment = dict(zip(sealed.names, sealed.values, strict=True))
    threads = [
        int(text)
        for name in _THREADS
        if isinstance(text := environment.get(name), str) and text.isdecimal() and len(text) < 6
    ]
    found = (
        0 if scheduler.IS_LOCAL else topology.cpus_per_rank or 1,
        topology.gpus_per_rank,
        max(threads, default=0),
        plan.job.scheduling.mem_per_node_bytes or 0,
    )
    return tuple(map(str, found))


def _cluster(plan: Plan, scheduler: Scheduler, place: Place | None) -> Iterator[str]:
    job = plan.job
    if (warning_s := _warning_s(plan, scheduler)) is not None:
        yield from words.values(warning_after_s=warning_s)
    if plan.fabric is not UNSET and _looks(plan.fabric):
        yield from _fabric(plan, plan.fabric)
    number = scheduler.JOB_ID
    if job.sweep is not None:
        yield from words.values(
            sweep_name=place.mark if place else run_name(plan), sweep_points=len(job.sweep.points)
        )
        number = scheduler.ARRAY.job_id
    yield from (f"BAREBOAT_NODES={job.topology.nodes}", f"BAREBOAT_JOB={number}")


def _warning_s(plan: Plan, scheduler: Scheduler) -> int | None:
    """Seconds until the script itself sends SIGUSR1; None where it does not."""
    walltime_s, warning_s = plan.job.walltime_s, plan.job.scheduling.warning_s
    if scheduler.IS_LOCAL or not warning_s or scheduler.WARNS or walltime_s is None:
        return None
    return max(walltime_s - warning_s, 0)


def delivery(found: Delivery) -> Iterator[str]:
    """Of an image that is copied to node-local storage (runtime/delivery.sh)."""
    return words.values(
        image_archive=found.archive,
        image_name=found.name,
        image_shared=found.shared,
        image_own="" if found.own is UNSET else found.own,
        BAREBOAT_TREES=found.folder,
        image_inodes=found.inodes,
    )


def _kernel_cache(cache: KernelCache) -> Iterator[str]:
    return words.values(
        kernel_cache=f"{cache.folder}/{cache.key}" if cache.folder and cache.key else "",
        kernel_variables=cache.variables,
        kernel_place=cache.place,
    )


def _watchdog(plan: Plan) -> Iterator[str]:
    topology, limit_s = plan.job.topology, plan.job.scheduling.watchdog_s or 0
    if not limit_s:
        return
    by_rank = plan.start is Start.PROGRAM
    yield from words.values(
        quiet_limit_s=limit_s,
        look_s=max(1, min(_LONGEST_LOOK_S, limit_s // 10)),
        units=topology.world_size if by_rank else topology.nodes,
        unit_ranks=1 if by_rank else topology.ranks_per_node,
        by_lines=1 if by_rank else "",
        hung_code=HUNG,
    )


def _looks(watch: FabricWatch) -> bool:
    return bool(watch.there) and (watch.mpi_check or watch.nccl)


def _fabric_features(plan: Plan) -> dict[str, bool]:
    """What ranks that fell back to TCP cause is decided by `fabric_required`."""
    watch = plan.fabric
    if watch is UNSET:
        return {}
    looks = _looks(watch)
    return {
        "fabric": watch.nccl or bool(watch.there),
        "fabric_check": looks and watch.mpi_check and watch.program and plan.mpi_check is not None,
        "fabric_watch": looks and bool(_watched(watch)),
        "fabric_required": watch.required,
    }


def _fabric(plan: Plan, watch: FabricWatch) -> Iterator[str]:
    # In the MPI check one log is for all ranks; with NCCL each process has a file.
    tellers = plan.job.topology.world_size if watch.nccl else 1
    return words.values(
        fabric_there=watch.there,
        fabric_tellers=tellers,
        fabric_logs=_watched(watch),
    )


def _watched(watch: FabricWatch) -> tuple[str, ...]:
    """The files in the ranks' directory that a watcher reads; none when the MPI check, which the script runs
    itself, reports everything."""
    # The image's own mpirun checks its ranks itself.
    checks = ("mpi_check.log",) if watch.mpi_check and not watch.program else ()
    return checks + ((transport_logs.NCCL_FOLDER,) if watch.nccl else ())
