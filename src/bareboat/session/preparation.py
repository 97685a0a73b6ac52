"""From a job to the inputs of its plan: this machine, and the image, captured or pulled."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from bareboat import registry
from bareboat.session import Prepared, Purpose, images, layers, sites, variants
from bareboat_base import digests
from bareboat_base.errors import PlanError, UsageError
from bareboat_base.printable import one_line

if TYPE_CHECKING:
    from bareboat.captures.command import CapturedCommand
    from bareboat.captures.interpreter import Interpreter
    from bareboat.captures.snapshot import Snapshot
    from bareboat.model import CaptureRequest, Image, Job, Site
    from bareboat.session import Session


def prepare(session: Session, job: Job, purpose: Purpose) -> Prepared:
    """The job, this site, and the job's image.

    `capture` stores the active environment unless it is stored already; a session that looks describes it
    instead, without a digest. A bare-metal job needs only a description of it, except for a study. Jobs that
    cannot run are refused before a capture spends time and space.
    """
    job = _without_container(_in_allocation(session, job, purpose), purpose)
    if not session.looks:
        check_variables(session, job)
    if purpose is Purpose.PROVE and job.sweep is not None:
        raise UsageError(
            "prove measures one job, and this job is a sweep", remedy="remove [sweep] from the job file"
        )
    with _unchanged_environment(session, job, purpose) as unchanged:
        site = sites.probe_for(session, job, purpose)
        return sites.with_engines(
            session, site, lambda site: _prepare(session, job, purpose, site, unchanged)
        )


def _is_captured(job: Job, purpose: Purpose) -> bool:
    return job.image == "capture" and (registry.contains(job.engine) or purpose is Purpose.PROVE)


@contextlib.contextmanager
def _unchanged_environment(
    session: Session, job: Job, purpose: Purpose
) -> Iterator[Callable[[], Snapshot | None]]:
    """Inside, whether the active environment is still the one that was captured is found out in the
    background, because that takes as long as all else."""
    if not _is_captured(job, purpose):
        yield lambda: None
        return
    from bareboat.captures import snapshot
    from bareboat.captures.interpreter import choose

    with snapshot.reading(session.store, choose(job.capture.python), job.capture) as unchanged:
        yield unchanged


def _prepare(
    session: Session, job: Job, purpose: Purpose, site: Site, unchanged: Callable[[], Snapshot | None]
) -> Prepared:
    if purpose is Purpose.SUBMIT and not registry.is_queued(job.scheduler):
        job = msgspec.structs.replace(job, scheduler=sites.scheduler_here(site))
    queued = registry.is_queued(job.scheduler)
    if purpose is Purpose.PLAN or (purpose is Purpose.PROVE and session.looks and queued):
        job, site = sites.planned_for(session, job, site)
    if registry.is_queued(job.scheduler) and job.scheduling.after:
        from bareboat.runs import dependencies

        names, note = job.scheduling.after, session.reporter.note
        after = dependencies.job_ids(session.store, job.scheduler, names, note=note)
        job = msgspec.structs.replace(job, scheduling=msgspec.structs.replace(job.scheduling, after=after))
    check_mounts(session, job)
    site = sites.equipped(session, job, site)
    node = sites.compute_node(session, job, site)
    job = variants.settle(session, job, site, node)
    if job.image != "capture":
        image = images.of_job(session, job, (node or site).architecture)
        return Prepared(job, site, layers.with_site_layer(session, job, image, site, node), node)
    kept = unchanged() if _is_captured(job, purpose) else None
    return _with_capture(session, job, purpose, site, node, kept)


def _with_capture(
    session: Session, job: Job, purpose: Purpose, site: Site, node: Site | None, kept: Snapshot | None
) -> Prepared:
    """The job in the active environment, which is captured unless the session only looks."""
    from bareboat.captures import describe_of, facts, look_up, look_up_unchanged, snapshot
    from bareboat.captures.interpreter import ask, choose
    from bareboat.model import CodeFacts
    from bareboat.plan import plan
    from bareboat.program_analysis.executable import look

    python = choose(job.capture.python)
    interpreter = ask(python) if kept is None else kept.interpreter
    job = located(job, facts.environment(interpreter)["PATH"])
    known = None if kept is None else look_up_unchanged(kept, session.store, _command(job))
    warn_of_unseen(session, job, interpreter)
    if job.capture.python is None and python == sys.executable:
        _note_other_python(session, job, interpreter)
    is_captured = _is_captured(job, purpose)
    missing: tuple[str, ...] = ()
    if known is None and is_captured and session.looks:
        seen = look_up(job.capture, session.store, _command(job), interpreter=interpreter)
        known, missing = (None, (seen,)) if isinstance(seen, str) else (seen, ())
    if known is not None:
        return Prepared(job, site, layers.with_site_layer(session, job, known, site, node), node)
    described = describe_of(interpreter)
    if not is_captured:
        return Prepared(job, site, layers.with_linked(session, job, described, site), node)
    image = layers.with_site_layer(session, job, described, site, node)
    if session.looks:
        return Prepared(job, site, image, node, missing)
    # What cannot run is refused before a capture spends time and space.
    code = CodeFacts(program=look(session.store, described, node or site, job))
    plan(job, image, None, site, node=node, code=code)
    changed = one_line(snapshot.changed(session.store, interpreter.executable))
    why = f"; {changed} changed; the capture before is kept: bareboat image du" if changed else ""
    image, is_new = capture(session, job.capture, _command(job), interpreter=interpreter)
    if is_new:
        session.reporter.note(
            f"captured the environment: {digests.short(image.digest)}, {image.size_bytes / 1e6:,.0f} MB, "
            f"{image.inodes:,} files and directories{why}"
        )
    return Prepared(job, site, layers.with_site_layer(session, job, image, site, node), node)


def capture(
    session: Session,
    request: CaptureRequest,
    command: CapturedCommand | None = None,
    *,
    interpreter: Interpreter | None = None,
    fresh: bool = False,
) -> tuple[Image, bool]:
    """The environment with the command as an image, and whether it was stored now: it is not where it is
    unchanged. `interpreter`: its Python, if it has been asked; `fresh`: read all files again."""
    from bareboat.captures import capture

    report = session.reporter.bytes
    try:
        return capture(
            request, session.store, command=command, interpreter=interpreter, fresh=fresh, progress=report
        )
    finally:
        session.reporter.end()


def warn_of_unseen(session: Session, job: Job, interpreter: Interpreter) -> None:
    """Warn of packages that a script finds in this shell and not in the job."""
    from bareboat.captures.interpreter import unseen

    found = [] if "PYTHONPATH" in job.environment else unseen(interpreter, session.environment)
    if found:
        others = f" and {len(found) - 2} more directories" if len(found) > 2 else ""
        session.reporter.warn(
            f"the job does not find the packages in {', '.join(found[:2])}{others} (pip install --user, "
            "PYTHONPATH), or finds other versions; install them into a virtual environment, or set mounts, "
            "and PYTHONPATH under [environment]"
        )


def _note_other_python(session: Session, job: Job, interpreter: Interpreter) -> None:
    """Name the Python of this shell, where no environment is active and Bareboat runs in another one."""
    from bareboat import commands
    from bareboat.captures.interpreter import of_shell

    words = commands.program(job.command)
    other = of_shell(words[0], interpreter, session.environment.get("PATH", "")) if words else None
    if other is not None:
        session.reporter.note(
            f"the job runs {interpreter.executable}, which runs Bareboat; {words[0]} in this shell is "
            f"{other}: --python {shlex.quote(other)} takes that one"
        )


def check_variables(session: Session, job: Job) -> None:
    """Raise UsageError for a variable of environment_from that is not set here."""
    missing = [name for name in job.environment_from if name not in session.environment]
    if missing:
        raise UsageError(
            f"environment_from: not set in this shell: {', '.join(missing)}",
            remedy=f"export {missing[0]}=…, or remove it from environment_from",
        )


def check_mounts(session: Session, job: Job) -> None:
    """Raise UsageError for a mount whose source does not exist; warn of one that nodes of a queue may have,
    which each node then checks."""
    missing = [mount.source for mount in job.mounts if not os.path.exists(mount.source)]
    if not missing:
        return
    shown = one_line(missing[0])
    if registry.is_queued(job.scheduler):
        session.reporter.warn(
            f"the mount source {shown} does not exist on this machine; each node must have it"
        )
        return
    raise UsageError(
        f"the mount source {shown} does not exist",
        key="mounts",
        remedy=f"mkdir -p {shlex.quote(missing[0])}" if missing[0].isprintable() else "correct mounts",
    )


def _without_container(job: Job, purpose: Purpose) -> Job:
    """A job with shims, whose tools start the containers. Raises UsageError for what contradicts that."""
    if not job.shim:
        return job
    if purpose is Purpose.PROVE:
        raise UsageError(
            "prove compares a container with bare metal, and the tools of a job with shim = true start "
            "containers of their own",
            key="shim",
            remedy="bareboat run",
        )
    if job.image != "capture":
        raise UsageError(
            "shim = true runs the command without a container, so image has no effect",
            key="image",
            remedy="leave image out, or shim; the commands of the script name their images",
        )
    if registry.contains(job.engine) and job.engine is not None:
        raise UsageError(
            f"shim = true runs the command without a container, and engine is {job.engine}: "
            "a container starts no other",
            key="engine",
            remedy=f"--engine {registry.BARE_METAL}",
        )
    return msgspec.structs.replace(job, engine=registry.BARE_METAL)


def _in_allocation(session: Session, job: Job, purpose: Purpose) -> Job:
    """The job inside the scheduler job in which this command was called: `run` uses its nodes; the other
    commands note what they use instead."""
    from bareboat.runs import allocation

    found = allocation.find(session.environment)
    if found is None or job.scheduler not in (None, found.scheduler):
        return job
    where = f"{found.scheduler} job {found.job_id}"
    if purpose is Purpose.SUBMIT:
        session.reporter.note(
            f"this shell is in {where}: submit starts a new job; bareboat run uses the nodes of this one"
        )
    if purpose is Purpose.PROVE and job.scheduler is not None:
        session.reporter.note(
            f"this shell is in {where}: prove starts new jobs; without a scheduler it measures on this node"
        )
        return job
    if purpose is Purpose.PROVE and not found.here:
        at_terminal = msgspec.structs.replace(found, start=(*found.start, "--pty"))
        raise UsageError(
            f"this shell is in {where}, but not on one of its nodes: prove would measure this machine",
            remedy=shlex.join(at_terminal.started("bareboat", "prove")) + " …",
        )
    if purpose is not Purpose.RUN or (found.here and job.topology.nodes == 1 and job.scheduler is None):
        return job
    if job.topology.nodes > found.nodes:
        raise PlanError(
            f"the job needs {job.topology.nodes} nodes, but {where} has {found.nodes}",
            remedy=f"set nodes = {found.nodes} under [topology], or bareboat submit",
        )
    if job.sweep is not None:
        raise UsageError(
            f"a sweep cannot share the nodes of {where}, in which this shell runs",
            remedy="bareboat submit, or bareboat run on a node of the job",
        )
    # Requeueing the job would terminate this shell.
    scheduling = msgspec.structs.replace(job.scheduling, requeue=False)
    return msgspec.structs.replace(job, scheduler=found.scheduler, scheduling=scheduling)


def located(job: Job, path: str) -> Job:
    """The job with the path of a program that is on this shell's PATH, and not on that of the environment."""
    from bareboat_base import execute

    if not job.command or "PATH" in job.environment or not _is_included(job.command[0]):
        return job
    program = job.command[0]
    if "/" in program or execute.which(program, path=path) is not None:
        return job
    found = execute.which(program)
    if found is None:
        return job
    return msgspec.structs.replace(job, command=(os.path.abspath(found), *job.command[1:]))


def _command(job: Job) -> CapturedCommand | None:
    """The command, if it is outside of the Python environment. Of one in a mounted directory, its libraries
    count."""
    program = job.command[0] if job.command else ""
    if not _is_included(program):
        return None
    from bareboat.captures.command import CapturedCommand
    from bareboat.plan.container import lies_under
    from bareboat_base import execute

    found = execute.which(os.path.join(job.workdir or "", program) if "/" in program else program)
    if found is None:
        return None
    found = os.path.abspath(found)
    shown = tuple(each for each in (job.workdir, *(mount.source for mount in job.mounts)) if each)
    is_shown = "/" in program and any(lies_under(found, each) for each in shown)
    return CapturedCommand(found, shown, is_shown)


def _is_included(program: str) -> bool:
    """Whether a command may be added to a capture. A Python is the environment's own."""
    return bool(program) and re.fullmatch(r"(python|pypy)[0-9.]*", os.path.basename(program)) is None
