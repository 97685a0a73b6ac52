"""Which filter of system calls the command runs under."""

from __future__ import annotations

from collections.abc import Sequence

from bareboat.engines import FILTERS, PROGRAMS_IN_STORE, Engine, Guard, Seccomp, programs, refusal
from bareboat.launchers import Launcher
from bareboat.launchers.by_mpi import HOLDS
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


def front(guard: Guard | None, engine: Engine, site: Site) -> tuple[Guard | None, Sequence[str]]:
    """The program that stays between the job script and the engine, and what it does."""
    first = [
        *([] if guard is None else [seccomp.Mode.KEYS]),
        *([seccomp.Mode.SESSION] if engine.ENDS_FIRST else []),
    ]
    return guard or _programs(site), [
        *first,
        seccomp.Mode.STAY,
        *([] if engine.HOLDS else [seccomp.Mode.RELEASE]),
    ]


def _programs(site: Site) -> Guard | None:
    return Guard(folder, full=False) if (folder := programs(site)) else None


def hold(program: tuple[Word, ...], launcher: Launcher, site: Site) -> tuple[Word, ...]:
    """The words of a launcher on the host, for which signals to the run wait, as for its daemons on other
    nodes: they would end their ranks a second after one, and these get the signal themselves."""
    guard = _programs(site)
    if guard is None or not launcher.HOLDS:
        return _held(program, "")
    holder = (
        f"{' '.join(map(str, guard.start(('env',), seccomp.Mode.STAY)))} " if " " not in guard.folder else ""
    )
    # Hydra, unlike the others, starts its ranks with the signals that wait for itself.
    held = guard.start(("env", *_held(program, holder)), seccomp.Mode.STAY)
    return (*held, *guard.start(("env",), seccomp.Mode.RELEASE))


def _held(program: tuple[Word, ...], holder: str) -> tuple[Word, ...]:
    """The words with what holds the launcher's daemons, which it splits at blanks, in the place of HOLDS."""
    return tuple(word.replace(f"{HOLDS} ", holder) if isinstance(word, str) else word for word in program)


def filter_needed(guard: Guard | None, program: tuple[Word, ...]) -> tuple[Requirement, ...]:
    """The requirement of the programs in the store: a node that does not see them must not run the job."""
    if guard is not None:
        folder = guard.folder
    elif program and str(program[0]).endswith(f"/{seccomp.START}"):
        folder = str(program[0]).rpartition("/")[0]
    else:
        return ()
    return (Requirement(path=folder, what="the programs of Bareboat", remedy="bareboat plan JOB"),)
