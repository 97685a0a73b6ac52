"""The machine on which the command was called, and the nodes on which a job runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from bareboat import registry
from bareboat.errors import UsageError
from bareboat.schedulers import assumed_facts

if TYPE_CHECKING:
    from bareboat.model import Job, Site
    from bareboat.session import Session


def probe(session: Session, *, thorough: bool = False) -> Site:
    """The facts about this machine."""
    from bareboat.probe import probe

    return probe(session.store, thorough=thorough)


def compute_node(session: Session, job: Job, login: Site) -> Site | None:
    """The facts that `doctor --compute` stored about the job's nodes; None where it did not run."""
    from bareboat.model import Site

    if job.scheduler in (None, registry.HERE):
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
    if job.scheduler in (None, registry.HERE):
        return job, site
    facts = site.scheduler(job.scheduler)
    if facts is not None and facts.works:
        return job, site
    assumed = assumed_facts(job, registry.scheduler(job.scheduler).TITLE)
    others = tuple(each for each in site.schedulers if each.name != job.scheduler)
    return job, msgspec.structs.replace(site, schedulers=(*others, assumed))
