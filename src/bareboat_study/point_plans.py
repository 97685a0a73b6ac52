"""From a study file's request to the plan of each arm at each point."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import msgspec

from bareboat import registry, render
from bareboat.model import Refusal
from bareboat.model.matrix import point_text
from bareboat.session import Prepared, Purpose, planning, preparation, sites
from bareboat_base import codec, digests
from bareboat_base.errors import BareboatError, StoreError, UsageError
from bareboat_study import blocks
from bareboat_study.studyfile import place_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bareboat.model import Image, Job, Matrix, Plan, Site, Study
    from bareboat.model.matrix import Value
    from bareboat.session import Session
    from bareboat_study.matrix import Cell
    from bareboat_study.studyfile import StudyRequest


def cells(session: Session, request: StudyRequest) -> tuple[list[list[Cell]], Site]:
    """The plan and the image of each arm at each point, and the machine.

    Notes too few repeats and a large margin. Raises BareboatError, with the arm and the point, for one that
    cannot run, before anything is measured.
    """
    if not request.prove.is_timed and (few := blocks.few(request.prove.repeats)):
        session.reporter.note(f"warning: {few}: --repeats 10, or repeats under [prove]")
    if request.prove.margin > 0.2:
        means = "arms that differ by less are called equivalent"
        session.reporter.note(f"warning: a margin of {request.prove.margin:.0%}: {means}")
    prepared: dict[str, Prepared] = {}
    bare_metal = registry.engine(registry.BARE_METAL)
    found: list[list[Cell]] = []
    for point, jobs in zip(request.points, request.jobs, strict=True):
        row: list[Cell] = []
        for name, job in zip(request.arms, jobs, strict=True):
            like = _in_container(job, jobs)
            arm = request.arms[jobs.index(like)]
            try:
                ready = _prepared(session, like, prepared)
                arm = name
                refused = isinstance(bare_metal.judge(ready.site, ready.image), Refusal)
                if refused and job.engine == registry.BARE_METAL:
                    if point == request.points[0]:
                        session.reporter.note(f"{name}: this machine's own programs, not those of the image")
                    ready = _prepared(session, msgspec.structs.replace(job, image="capture"), prepared)
                elif like is not job:
                    ready = ready._replace(job=msgspec.structs.replace(ready.job, engine=job.engine))
                row.append((_plan(session, ready), ready.image))
            except BareboatError as error:
                raise error.at(place_of(arm, request.factors, point)) from None
        _check_resources(request, point, row)
        found.append(row)
    known = [each.site for each in prepared.values()]
    engines = {(facts.name, facts.path): facts for site in known for facts in site.engines}
    return found, msgspec.structs.replace(known[0], engines=tuple(engines.values()))


def provide(session: Session, matrix: Matrix, studies: Sequence[Study]) -> None:
    """Make again what the containers of a study start from, where it was removed since, as their plans did.

    Raises BareboatError, with the arm and the point, where an image is not in the store.
    """
    images = {image.digest: image for image in matrix.images}
    for study, values in zip(studies, matrix.points, strict=True):
        for arm, job in zip(study.arms, study.jobs):  # noqa: B905 studies of earlier versions have no jobs
            image = images.get(str(arm.image_digest), study.image)
            try:
                if registry.contains(arm.engine):
                    _provide(session, matrix.site, job, image)
            except BareboatError as error:
                raise error.at(place_of(arm.name, matrix.factors, values)) from None


def _provide(session: Session, site: Site, job: Job, image: Image) -> None:
    if not session.store.knows(image.digest):
        words = f" --python {shlex.quote(job.capture.python)}" if job.capture.python else ""
        raise StoreError(
            f"image {digests.short(image.digest)} of the study is no longer in the store",
            remedy=f"{session.store.how_to_get(image)}{words}; or a new study, without --resume",
        )
    if job.image == "capture":
        job = preparation.located(job, image.environment["PATH"])
    node = sites.compute_node(session, job, site)
    _plan(session, Prepared(job, site, session.store.image(image.digest), node))


def equal_arms(request: StudyRequest, cells: Sequence[Sequence[Cell]]) -> list[tuple[str, str]]:
    """The pairs of arms with the same plan at some point: a comparison of a thing with itself (A/A), which
    measures the method."""
    found = {}
    for row in cells:
        digests = [render.digest(plan) for plan, _ in row]
        for number, digest in enumerate(digests):
            if (first := digests.index(digest)) != number:
                found[request.arms[first], request.arms[number]] = True
    return list(found)


def _in_container(job: Job, jobs: Sequence[Job]) -> Job:
    """The job of an arm in a container that does the same as this one on bare metal; else the job itself. So
    the environment is read once for both."""
    same = (each for each in jobs if msgspec.structs.replace(each, engine=job.engine) == job)
    others = [each for each in same if each.engine != job.engine]
    return others[0] if job.engine == registry.BARE_METAL and others else job


def _prepared(session: Session, job: Job, known: dict[str, Prepared]) -> Prepared:
    """The inputs of the job's plan; the image is captured or pulled once for all points that share it."""
    # What decides about the image: everything but the command's arguments and variables.
    shared = msgspec.structs.replace(job, command=job.command[:1], environment={})
    key = codec.digest(shared)
    if key not in known:
        known[key] = preparation.prepare(session, job, Purpose.PROVE)
    ready = known[key]
    command = (*ready.job.command[:1], *job.command[1:])  # where the program was found
    changed = msgspec.structs.replace(ready.job, command=command, environment=job.environment)
    return ready._replace(job=changed)


def _plan(session: Session, prepared: Prepared) -> Plan:
    """The plan of one arm. The watchdog is off, because the arms wait for each other. In a job of a
    scheduler an arm is started for each run; requeues and warnings are those of the job."""
    job = prepared.job
    scheduling = msgspec.structs.replace(job.scheduling, watchdog_s=None)
    if job.scheduler not in (None, registry.HERE):
        scheduling = msgspec.structs.replace(scheduling, requeue=False, warning_s=0, after=())
    job = msgspec.structs.replace(job, scheduling=scheduling)
    return planning.plan(session, prepared._replace(job=job))


def _check_resources(request: StudyRequest, point: tuple[Value, ...], row: list[Cell]) -> None:
    """Raise UsageError for arms that cannot share one job of the scheduler."""
    first = row[0][0]
    for arm, (plan, _) in zip(request.arms, row, strict=True):
        if (plan.scheduler, plan.job.topology, plan.directives) == (
            first.scheduler, first.job.topology, first.directives,
        ):  # fmt: skip
            continue
        if registry.scheduler(plan.scheduler).IS_LOCAL and registry.scheduler(first.scheduler).IS_LOCAL:
            continue
        where = point_text(request.factors, point)
        differ = sorted({*plan.directives} ^ {*first.directives})
        raise UsageError(
            f"the arms {request.arms[0]!r} and {arm!r} request different resources, and all arms of a point "
            "run in one job",
            context="\n".join(filter(None, (f"point {where}" if where else "", *differ[:6]))),
            remedy="set topology and scheduling for all arms, outside of [arms]",
        )
