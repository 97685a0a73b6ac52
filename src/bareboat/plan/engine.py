"""Which engine runs the container: the first of the registry that is correct for this job on this site."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bareboat import registry
from bareboat.engines import Enclosure, Engine
from bareboat.model import Decision, Image, Job, Plan, Refusal, Rejected, Site
from bareboat_base.errors import NoEngineError, PlanError

#: Number of remedies that an error lists, the preferred engine's first.
_WAYS_OUT = 3

#: The first remedy when no engine supports an option that the job can do without.
_AS_A_TREE = 'form = "tree", or --form tree'
_READ_ONLY = "leave writable = true out"


@contextmanager
def engine_errors() -> Iterator[None]:
    """Convert a PlanError within to NoEngineError."""
    try:
        yield
    except PlanError as error:
        raise NoEngineError(error.message, context=error.context, remedy=error.remedy) from error


def choose_engine(
    job: Job, image: Image | None, site: Site, under: Callable[[Engine, Enclosure], Plan]
) -> tuple[Decision, Plan]:
    """The requested engine, or else the first container engine for this job.

    `under`: makes the rest of the plan with an engine. Raises NoEngineError.
    """
    rejected = []
    failed: NoEngineError | None = None  # the first engine that works but does not fit the job
    chosen: tuple[Engine, Enclosure, Plan] | None = None
    for name in _candidates(job, image, site):
        engine = registry.engine(name)
        if chosen is not None and name.partition(":")[0] in site.unprobed:
            reason = f"not probed; {_why_not(engine, chosen[0])}"
            rejected.append(Rejected(choice=name, reason=reason))
            continue
        verdict = engine.judge(site, image)
        if isinstance(verdict, Enclosure):
            verdict = _obstacle(engine, verdict, job, site) or verdict
        made: Plan | None = None
        if isinstance(verdict, Enclosure) and chosen is None and (engine.CONTAINS or job.engine):
            try:
                made = under(engine, verdict)
            except NoEngineError as error:
                failed = failed or error
                verdict = Refusal(error.message, error.remedy)
        if isinstance(verdict, Refusal):
            rejected.append(Rejected(choice=name, reason=verdict.reason, remedy=verdict.remedy))
        elif made is not None:
            chosen = engine, verdict, made
        elif not engine.CONTAINS and not job.engine:
            rejected.append(
                Rejected(
                    choice=name,
                    reason="not a container; used only when requested",
                    remedy=f"--engine {name}",
                )
            )
        elif chosen is not None:
            rejected.append(Rejected(choice=name, reason=_why_not(engine, chosen[0])))
    if chosen is None:
        raise failed or _no_engine(job, image, site, rejected)
    engine, enclosure, made_under = chosen
    reasons = ("asked for" if job.engine else "", enclosure.reason)
    decision = Decision(
        subject="engine",
        choice=engine.NAME,
        reason="; ".join(filter(None, reasons)),
        rejected=tuple(rejected),
    )
    return decision, made_under


def _why_not(engine: Engine, chosen: Engine) -> str:
    return engine.UNTESTED or f"{chosen.NAME} comes first"


def _obstacle(engine: Engine, enclosure: Enclosure, job: Job, site: Site) -> Refusal | None:
    """Why the engine cannot show the image in the form that the job requests."""
    if job.writable and (refusal := _unwritable(engine, enclosure)) is not None:
        return refusal
    obstacle = file_obstacle(engine, site) if job.form == "file" else None
    return None if obstacle is None else Refusal(obstacle, _AS_A_TREE)


def _candidates(job: Job, image: Image | None, site: Site) -> list[str]:
    """Every engine, in each of its modes; last, those without a container."""
    if job.engine and ":" in job.engine:
        _check_mode(job.engine, image, site)
    names = [job.engine] if job.engine else registry.names("engines")
    modes = [mode for name in names for mode in registry.modes(name)]
    return sorted(modes, key=lambda name: not registry.engine(name).CONTAINS)


def _check_mode(name: str, image: Image | None, site: Site) -> None:
    """Raise PlanError for an unknown mode, with the engine's modes and their status here."""
    base = name.partition(":")[0]
    modes = registry.modes(base)
    if name in modes or modes == (base,):
        return  # the registry reports an engine without modes
    lines, works = [], []
    for mode in modes:
        verdict = registry.engine(mode).judge(site, image)
        if isinstance(verdict, Enclosure):
            works.append(mode)
        lines.append(f"{mode}: {'works here' if mode in works else verdict.reason}")
    remedy = "; or: ".join(f"--engine {mode}" for mode in works) or "bareboat doctor"
    raise PlanError(f"unknown engine {name}", context="\n".join(lines), remedy=remedy)


def file_obstacle(engine: Engine, site: Site) -> str | None:
    """Why the engine cannot run the image as one file here; None when it can, or needs no image."""
    if not engine.CONTAINS:
        return None
    if not engine.FILES:
        return "it runs images that are trees of files"
    facts = site.engine(engine.NAME)
    fault = None if facts is None else facts.files.get(engine.FILES[0])
    if fault is None:
        return f"running a {engine.FILES[0]} was not tried: bareboat doctor"
    return f"a {engine.FILES[0]} cannot be run here: {fault}" if fault else None


def _unwritable(engine: Engine, enclosure: Enclosure) -> Refusal | None:
    """Why the engine cannot let the command write anywhere in the image, as the job requests; None when it
    can."""
    if engine.CONTAINS and not engine.STACKS:
        return Refusal("it shows the image read-only, and writable = true asks for more", _READ_ONLY)
    if engine.CONTAINS and not enclosure.overlay:
        return Refusal("writable = true needs an overlay, and this user cannot mount one here", _READ_ONLY)
    return None


def _no_engine(job: Job, image: Image | None, site: Site, rejected: list[Rejected]) -> NoEngineError:
    bare = [name for name in registry.names("engines") if not registry.engine(name).CONTAINS]
    blocking = [r for r in rejected if r.choice not in bare] or rejected
    lines = [f"{r.choice}: {r.reason}" for r in _without_repeats(rejected)]
    remedies = sorted(
        (r.remedy for r in blocking if r.remedy), key=lambda r: r not in (_AS_A_TREE, _READ_ONLY)
    )
    last = "remove engine, or --engine: Bareboat chooses one that can" if job.engine else "bareboat doctor"
    ways = list(dict.fromkeys(remedies))[:_WAYS_OUT] or [last]
    if job.engine and len(lines) == 1:
        message = f"the engine {job.engine} cannot run here: {rejected[0].reason}"
    elif job.engine:
        message = f"the engine {job.engine} cannot run here in any mode"
    else:
        message = "no engine on this machine can run a container"
        if job.writable:
            message += " that can be written to, as writable = true asks"
        elif job.form == "file":
            message += ' with the image as one file, as form = "file" asks'
    without = next(
        (each for each in bare if isinstance(registry.engine(each).judge(site, image), Enclosure)), None
    )
    native = f"; or, without a container: --engine {without}" if without not in (None, job.engine) else ""
    return NoEngineError(
        message, context="\n".join(lines) if len(lines) > 1 else "", remedy="; or: ".join(ways) + native
    )


def _without_repeats(rejected: list[Rejected]) -> list[Rejected]:
    """Merge the modes of an engine that all fail for the same reason."""
    told: list[Rejected] = []
    for each in rejected:
        name = each.choice.partition(":")[0]
        if told and told[-1].reason == each.reason and told[-1].choice.partition(":")[0] == name:
            told[-1] = Rejected(choice=name, reason=each.reason, remedy=each.remedy)
        else:
            told.append(each)
    return told
