"""From a prepared job to its plan, with the files that the plan needs: a tree, a tar, one file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from bareboat import registry
from bareboat.session import sites

if TYPE_CHECKING:
    from bareboat.model import Plan, Rootfs
    from bareboat.session import Prepared, Session


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
    from bareboat.session import code

    job, site, image, node, to_capture = prepared
    store, reporter = session.store, session.reporter
    mounts.check(store, image, job)
    rootfs = None  # None for an environment that is described but not captured
    if image.digest:
        rootfs = present(store, image, site, job, node=node)
    before = mpi_checks.gather(store) if image.mpis or needs_mpi(image) else ()
    shown = code.look(store, image, job, node or site, home=site.home)

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
