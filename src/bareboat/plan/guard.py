"""Which filter of system calls the command runs under."""

from __future__ import annotations

from bareboat.engines import FILTERS, PROGRAMS_IN_STORE, Engine, Guard, Seccomp, refusal
from bareboat.launchers import Launcher
from bareboat.model import Decision, Job, Requirement, Site, Word
from bareboat_base import seccomp

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


def hold(program: tuple[Word, ...], launcher: Launcher, site: Site) -> tuple[Word, ...]:
    """The words of a launcher on the host, for which signals to the run wait, as for its daemons on other
    nodes: they would end their ranks a second after one, and these get the signal themselves."""
    folder = site.other_tools.get(FILTERS)
    if folder is None or not launcher.HOLDS or refusal(site, PROGRAMS_IN_STORE) is not None:
        return program
    guard = Guard(folder, full=False)
    holder = " ".join(map(str, guard.start(("env",), seccomp.HOLD)))
    name, daemon = ("PRTE_MCA_prte", "prted") if "--prtemca" in program else ("OMPI_MCA_orte", "orted")
    agents = [f"{name}_launch_agent={holder} {daemon}"] if " " not in folder else []  # split at blanks
    # Hydra, unlike the others, starts its ranks with the signals that wait for itself.
    return (*guard.start(("env", *agents, *program), seccomp.HOLD), *guard.start(("env",), seccomp.RELEASE))


def filter_needed(guard: Guard | None, program: tuple[Word, ...]) -> tuple[Requirement, ...]:
    """The requirement of the programs in the store: a node that does not see them must not run the job."""
    if guard is not None:
        folder = guard.folder
    elif program and str(program[0]).endswith(f"/{seccomp.START}"):
        folder = str(program[0]).rpartition("/")[0]
    else:
        return ()
    return (Requirement(path=folder, what="the seccomp filter", remedy="bareboat plan JOB"),)
