"""One job at other sites: its plan from the facts that `doctor --export` wrote there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from bareboat import registry
from bareboat.session import images, layers, sites, variants
from bareboat_base.errors import PlanError

if TYPE_CHECKING:
    from bareboat.model import Image, Job, Plan, Site
    from bareboat.session import Session
    from bareboat.session.sites import Facts


class Outlook(Struct, frozen=True, kw_only=True):
    """What a site would do with a job: run it by a plan, or refuse it with an error."""

    site: str
    result: Plan | PlanError


def look(session: Session, job: Job, facts: Facts) -> Outlook:
    """The outlook of a job at a site. Settings of this site must not be part of the job."""
    registry.load_plugins()
    try:
        # It is the load when the facts were collected, not that of the job.
        login = msgspec.structs.replace(facts.login or sites.probe(session), load_1min=0.0)
        return Outlook(site=facts.title, result=_plan(session, job, login, facts.node))
    except PlanError as error:
        return Outlook(site=facts.title, result=error)


def _plan(session: Session, job: Job, login: Site, node: Site | None) -> Plan:
    from bareboat.plan import plan
    from bareboat.session import code

    if job.scheduler is None:
        job = msgspec.structs.replace(job, scheduler=login.working_scheduler)
    if not registry.is_queued(job.scheduler):
        node = None
    job = variants.settle(session, job, login, node)
    image = _image(session, job, login, node)
    shown = code.look(session.store, image, job, node or login, home=login.home)
    return plan(job, image, None, login, node=node, code=shown)


def _image(session: Session, job: Job, login: Site, node: Site | None) -> Image:
    """The job's image with the site's layer; a capture is described from this machine."""
    if job.image != "capture":
        image = images.of_job(session, job, (node or login).architecture)
    else:
        from bareboat.captures import describe

        image = describe(job.capture)
    return layers.with_site_layer(session, job, image, login, node)
