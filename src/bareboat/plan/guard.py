"""Which filter of system calls the command runs under."""

from __future__ import annotations

from bareboat.engines import FILTERS, PROGRAMS_IN_STORE, Engine, Guard, Seccomp, refusal
from bareboat.model import Decision, Job, Requirement, Site

_OFF = "seccomp = false"


def choose_guard(job: Job, engine: Engine, site: Site) -> tuple[Guard | None, tuple[Decision, ...]]:
    """The filter that Bareboat gives the engine; None where the engine uses its own, or there is none."""
    if not engine.CONTAINS:
        return None, ()
    kind = engine.SECCOMP
    folder = site.other_tools.get(FILTERS)
    is_on = job.seccomp
    if kind is Seccomp.OWN:
        choice = f"{engine.NAME}'s own filter" if is_on else "no filter"
        reason = "what it is configured with" if is_on else f"asked for by {_OFF}"
        reason += "; the container has no controlling terminal and cannot type into one"
    elif kind is Seccomp.NONE:
        choice, reason = "no filter of Bareboat's", f"no filter is made for {engine.NAME}"
    elif folder is None:
        choice, reason = "no filter", f"none for {site.architecture}, or this kernel has no seccomp"
    elif kind is Seccomp.FULL and is_on:
        choice = "Podman's default list"
        reason = f"system calls outside it are refused, and so is typing into your terminal; {_OFF} ends that"
    else:
        choice = "a filter for the terminal only"
        why = (
            f"asked for by {_OFF}" if kind is Seccomp.FULL else f"what {engine.NAME} itself allows is allowed"
        )
        reason = f"typing into your terminal is refused; {why}"
    decided = (Decision(subject="seccomp", choice=choice, reason=reason),)
    if folder is None or kind not in (Seccomp.FULL, Seccomp.TERMINAL):
        return None, decided
    runs = refusal(site, PROGRAMS_IN_STORE) is None
    return Guard(folder, full=kind is Seccomp.FULL and is_on, runs=runs), decided


def filter_needed(guard: Guard | None) -> tuple[Requirement, ...]:
    """The requirement of a filter: a node that does not see it must not run the job."""
    if guard is None:
        return ()
    return (Requirement(path=guard.folder, what="the seccomp filter", remedy="bareboat plan JOB"),)
