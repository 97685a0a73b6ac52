"""From a prepared job to its plan, with the files that the plan needs: a tree, a tar, one file; and its
plans at other sites, from the facts that `doctor --export` wrote there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from bareboat import registry
from bareboat.session import images, layers, sites, variants
from bareboat_base.errors import PlanError

if TYPE_CHECKING:
    from bareboat.model import CodeFacts, Image, Job, Plan, Rootfs, Site
    from bareboat.session import Prepared, Session
    from bareboat.session.sites import Facts
    from bareboat_images.store import Store


def plan(session: Session, prepared: Prepared) -> Plan:
    """Plan the job; unpack the image or write it as one file where the plan needs that."""
    return sites.with_engines(
        session, prepared.site, lambda site: _plan(session, prepared._replace(site=site))
    )


def _plan(session: Session, prepared: Prepared) -> Plan:
    from bareboat.deployment import mounts
    from bareboat.deployment.present import present
    from bareboat.mpi.start_methods import needs_mpi
    from bareboat.plan import plan as decide
    from bareboat.runs import mpi_checks

    job, site, image, node, to_capture = prepared
    store, reporter = session.store, session.reporter
    mounts.check(store, image, job)
    rootfs = None  # None for an environment that is described but not captured
    if image.digest:
        rootfs = present(store, image, site, job, node=node)
    before = mpi_checks.gather(store) if image.mpis or needs_mpi(image) else ()
    shown = look_at_code(store, image, job, node or site, home=site.home)

    def planned(rootfs: Rootfs | None) -> Plan:
        return decide(job, image, rootfs, site, node=node, mpi_checks=before, code=shown)

    made = planned(rootfs)
    if rootfs is None:
        is_captured = registry.contains(made.engine)
        return msgspec.structs.replace(made, missing=to_capture) if is_captured else made
    if made.needs_flat or made.packs is not None or made.mount_points:
        from bareboat.deployment import roots

        if session.looks and (missing := roots.missing(store, image, made)):
            return msgspec.structs.replace(made, missing=missing)
        try:
            made = roots.settle(store, image, rootfs, made, planned, progress=reporter.bytes)
        finally:
            reporter.end()
    return made


def look_at_code(store: Store, image: Image, job: Job, site: Site, *, home: str) -> CodeFacts:
    """What the job's code shows before the start, in the image that it runs in: its facts, the modules that
    it does not find, and its program. `site`: a machine that the job runs on."""
    from bareboat.program_analysis import executable, imports
    from bareboat.runs import code

    return msgspec.structs.replace(
        code.facts(job, home),
        absent=imports.absent(store, image, job),
        program=executable.look(store, image, site, job),
    )


class Outlook(Struct, frozen=True, kw_only=True):
    """What a site would do with a job: run it by a plan, or refuse it with an error."""

    site: str
    result: Plan | PlanError


def outlook(session: Session, job: Job, facts: Facts) -> Outlook:
    """The outlook of a job at a site. Settings of this site must not be part of the job."""
    registry.load_plugins()
    try:
        # It is the load when the facts were collected, not that of the job.
        login = msgspec.structs.replace(facts.login or sites.probe(session), load_1min=0.0)
        return Outlook(site=facts.title, result=_plan_elsewhere(session, job, login, facts.node))
    except PlanError as error:
        return Outlook(site=facts.title, result=error)


def _plan_elsewhere(session: Session, job: Job, login: Site, node: Site | None) -> Plan:
    from bareboat.plan import plan

    if job.scheduler is None:
        job = msgspec.structs.replace(job, scheduler=login.working_scheduler)
    if not registry.is_queued(job.scheduler):
        node = None
    job = variants.settle(session, job, login, node)
    image = _image_elsewhere(session, job, login, node)
    shown = look_at_code(session.store, image, job, node or login, home=login.home)
    return plan(job, image, None, login, node=node, code=shown)


def _image_elsewhere(session: Session, job: Job, login: Site, node: Site | None) -> Image:
    """The job's image with the site's layer; a capture is described from this machine."""
    if job.image != "capture":
        image = images.of_job(session, job, (node or login).architecture)
    else:
        from bareboat.captures import describe

        image = describe(job.capture)
    return layers.with_site_layer(session, job, image, login, node)
