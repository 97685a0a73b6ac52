"""The planner: (job, image, site) -> Plan. A pure function: no disk, no process, no environment.

What can be known to fail fails here, with the reason and the command that mends it.
"""

from __future__ import annotations

from fairlead import registry
from fairlead.model import Decision, Image, Job, Plan, Rootfs, Site
from fairlead.plan.container import make_container, mount_points, requirements
from fairlead.plan.engine import choose_engine
from fairlead.plan.launcher import choose_launcher, compose
from fairlead.plan.scheduler import choose_scheduler


def plan(job: Job, image: Image | None, rootfs: Rootfs | None, site: Site) -> Plan:
    """Decide everything. `image` and `rootfs` are None for a job on bare metal without a capture.

    Raises PlanError when the job cannot run as asked.
    """
    decisions: list[Decision] = []
    scheduler = choose_scheduler(job, site, decisions)
    engine, suitable = choose_engine(job, image, site, decisions)
    launcher = choose_launcher(job, image, decisions)
    container = make_container(job, image, rootfs, site, engine, suitable, decisions)
    command = compose(job, image, site, engine, launcher, container)
    return Plan(
        job=job,
        image_digest=image.digest if image is not None and engine.CONTAINS else None,
        engine=engine.NAME,
        launcher=launcher.NAME,
        scheduler=scheduler,
        command=command,
        decisions=tuple(decisions),
        warnings=registry.scheduler(scheduler).warnings(job.topology, site),
        requirements=requirements(job, image, container),
        needs_flat=container.flat is not None,
        mount_points=mount_points(container) if suitable.mount_points else (),
        rank_log=launcher.RANK_LOG,
    )
