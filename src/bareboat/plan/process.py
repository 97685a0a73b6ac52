"""Which process runs, where and as which user: the job's command, or the image's, by Docker's rules.

https://docs.docker.com/reference/dockerfile/#understand-how-cmd-and-entrypoint-interact
https://docs.docker.com/reference/cli/docker/container/run/#entrypoint
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Sequence

from msgspec import Struct

from bareboat.engines import Engine
from bareboat.model import Decision, Image, Job, Process, Rejected, Site
from bareboat_base.errors import PlanError

#: The image does not determine the command's user: it runs as the user who starts it.
IDENTITY = ("HOME", "USER", "LOGNAME")


class Workload(Struct, frozen=True, kw_only=True):
    """What each rank runs, before launcher and engine. `own`: the number of its last words that are the
    job's."""

    argv: tuple[str, ...]
    workdir: str
    own: int = 0


def command_of(job: Job, image: Image | None) -> tuple[str, ...]:
    """The words of the job and the image; empty where neither has a command."""
    own = image.process if image is not None else Process()
    # As with `docker run --entrypoint`: the job's entrypoint also removes the image's CMD, which contains
    # arguments for the image's ENTRYPOINT.
    match job.entrypoint:
        case None:
            entrypoint, default = ((), own.command) if job.command else (own.entrypoint, own.command)
        case True:
            entrypoint, default = own.entrypoint, own.command
        case False:
            entrypoint, default = (), ()
        case tuple():
            entrypoint, default = job.entrypoint, ()
    return (*entrypoint, *(job.command or default))


def choose_process(
    job: Job, image: Image | None, site: Site, engine: Engine
) -> tuple[Workload, tuple[Decision, ...]]:
    """Choose the process. Raises PlanError when neither the job nor the image has a command."""
    own = image.process if image is not None else Process()
    argv = command_of(job, image)
    if not argv or not argv[0]:
        raise _no_command(job, image)
    decisions = _about_argv(job, own, argv)
    if job.workdir is not None:
        workdir = job.workdir
    elif engine.CONTAINS:
        workdir = image_workdir(image)
        decisions.append(
            Decision(
                subject="working directory",
                choice=f"{workdir}, the image's own",
                reason='no directory of this machine is mounted; workdir = "." mounts the job file\'s',
            )
        )
    else:
        raise PlanError(
            f"on bare metal ({engine.NAME}) the image's working directory does not exist",
            remedy='set workdir = "."',
        )
    if engine.CONTAINS and image is not None:
        decisions += _about_user(image, site)
    return Workload(argv=argv, workdir=workdir, own=len(job.command)), tuple(decisions)


def image_workdir(image: Image | None) -> str:
    """The image's WORKDIR; `/` where it sets none, as with Docker."""
    return posixpath.normpath("/" + (image.process.workdir if image is not None else "").lstrip("/"))


def _no_command(job: Job, image: Image | None) -> PlanError:
    remedy = 'set command = ["python", "train.py"] in the job file, or name one after --'
    own = image.process if image is not None else Process()
    if not own.entrypoint and not own.command:
        named = image is not None and image.reference
        why = f": the image {named} has neither CMD nor ENTRYPOINT" if named else ""
        return PlanError(f"the job has no command{why}", remedy=remedy)
    if job.entrypoint is False:
        return PlanError(
            "the job has no command: entrypoint = false leaves the image's ENTRYPOINT and CMD out",
            remedy="leave entrypoint out for the image's own process, or set command",
        )
    return PlanError("the first word of what the image runs is empty", remedy=remedy)


def _about_argv(job: Job, own: Process, argv: Sequence[str]) -> list[Decision]:
    """What was added before the job's command, or omitted; empty when there was nothing to decide."""
    entrypoint = f"ENTRYPOINT {shlex.join(own.entrypoint)}" if own.entrypoint else ""
    cmd = f"CMD {shlex.join(own.command)}" if own.command else ""
    rejected: list[Rejected] = []
    match job.entrypoint:
        case None if not job.command:
            reason = f"the job names no command: the image's {' and '.join(filter(None, (entrypoint, cmd)))}"
        case None | False:
            if not entrypoint:
                return []
            reason = "the job's command runs as it is"
            why = (
                "asked for: entrypoint = false" if job.entrypoint is False else "no command is wrapped unseen"
            )
            remedy = "" if job.entrypoint is False else "entrypoint = true"
            rejected.append(Rejected(choice=f"the image's {entrypoint} before it", reason=why, remedy=remedy))
        case True:
            reason = "asked for: " + (
                f"the image's {entrypoint} before the command"
                if entrypoint
                else "the image has no ENTRYPOINT"
            )
            if not job.command:
                reason += f", then its {cmd}" if cmd else ""
        case tuple():
            reason = "asked for: the job's entrypoint" + (f" in place of {entrypoint}" if entrypoint else "")
            if cmd and not job.command:
                rejected.append(
                    Rejected(
                        choice=f"the image's {cmd} after it",
                        reason="it is meant for the image's own ENTRYPOINT",
                        remedy="set command",
                    )
                )
    return [Decision(subject="process", choice=shlex.join(argv), reason=reason, rejected=tuple(rejected))]


def _about_user(image: Image, site: Site) -> list[Decision]:
    """Report the image's USER, HOME and similar variables that are ignored, where they differ."""
    asked = []
    user, _, group = image.process.user.partition(":")
    if user not in ("", site.user, str(site.uid)) or (group and group != str(site.gid)):
        asked.append(f"user {image.process.user}")
    own = {"HOME": site.home, "USER": site.user, "LOGNAME": site.user}
    for name in IDENTITY:
        if (value := image.environment.get(name)) not in (None, own[name]):
            asked.append(f"{name}={value}")
    if not asked:
        return []
    return [
        Decision(
            subject="user",
            choice=f"{site.user} ({site.uid}:{site.gid}), home {site.home}",
            reason=f"the image asks for {', '.join(asked)}, but without root a command runs as who starts it",
        )
    ]
