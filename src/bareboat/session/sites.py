"""The machine on which the command was called, and the nodes on which a job runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from bareboat import registry
from bareboat.session import Purpose
from bareboat_base.errors import UsageError

if TYPE_CHECKING:
    from bareboat.model import Job, Site
    from bareboat.probe import Needs
    from bareboat.session import Session


def probe(session: Session, *, needs: Needs | None = None, thorough: bool = False) -> Site:
    """The facts about this machine; with `needs`, only those."""
    from bareboat.probe import probe

    registry.load_plugins()
    return probe(session.store, needs, thorough=thorough)


def probe_for(session: Session, job: Job, purpose: Purpose) -> Site:
    """The facts that this job's plan needs, if the engine that costs it least can run it; else `unprobed` of
    the site names the engines that are left. A plan that is shown weighs everything, but of engines only the
    one that the job names."""
    from bareboat.plan import ranking
    from bareboat.probe import Needs

    shown = purpose is Purpose.PLAN
    engine = job.engine.partition(":")[0] if job.engine else None if shown else ranking.least(job)
    scheduler = job.scheduler or registry.HERE
    topology = job.topology
    needs = Needs(
        engines=None if engine is None else tuple({engine: "", registry.BARE_METAL: ""}),
        # submit without a scheduler takes the first that works.
        schedulers=None
        if shown or (purpose is Purpose.SUBMIT and scheduler == registry.HERE)
        else (scheduler,),
        # Ranks, launchers, and what decides between images for one MPI each.
        mpis=shown
        or topology.world_size > 1
        or bool(job.launcher)
        or job.sweep is not UNSET
        or "{" in job.image,
    )
    return probe(session, needs=needs)


def equipped(session: Session, job: Job, site: Site) -> Site:
    """The site with the programs of Bareboat that the job's nodes need."""
    if registry.is_queued(job.scheduler):
        from bareboat.runs.programs import provide, provide_py_spy

        site = provide(session.store, site)
        if job.scheduling.watchdog_s:
            site = provide_py_spy(session.store, site)
    return with_filters(session, site)


def compute_node(session: Session, job: Job, login: Site) -> Site | None:
    """The facts that `doctor --compute` stored about the job's nodes; None where it did not run."""
    from bareboat.model import Site

    if not registry.is_queued(job.scheduler):
        return None
    from bareboat.probe.compute import site_name

    path = session.store.site(site_name(job, login))
    if not path.exists():
        return None
    from bareboat.runs.programs import provide

    return with_filters(session, provide(session.store, session.store.read(path, Site)))


def with_filters(session: Session, site: Site) -> Site:
    """The site with the system call filters in the store."""
    from bareboat.runs.programs import provide_filters

    return provide_filters(session.store, site)


def scheduler_here(site: Site) -> str:
    """The machine's scheduler. Raises UsageError where there is none."""
    if not site.schedulers:
        raise UsageError(
            "no scheduler found on this machine",
            remedy="log in to the cluster, or run the job on this machine: bareboat run",
        )
    return next((each for each in site.schedulers if each.works), site.schedulers[0]).name


def planned_for(session: Session, job: Job, site: Site) -> tuple[Job, Site]:
    """The job for this machine's scheduler, as `submit` takes it, unless one is requested or this shell is in
    a job; and the site with what is assumed of a requested scheduler that is not here."""
    from bareboat.runs import allocation

    if job.scheduler is None and allocation.find(session.environment) is None:
        working = next((each.name for each in site.schedulers if each.works), None)
        return msgspec.structs.replace(job, scheduler=working), site
    if not registry.is_queued(job.scheduler):
        return job, site
    facts = site.scheduler(job.scheduler)
    if facts is not None and facts.works:
        return job, site
    assumed = registry.scheduler(job.scheduler).assumed(job)
    others = tuple(each for each in site.schedulers if each.name != job.scheduler)
    return job, msgspec.structs.replace(site, schedulers=(*others, assumed))
