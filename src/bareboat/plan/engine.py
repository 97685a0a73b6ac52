"""Which engine holds the container: the cheapest that is sound for this job on this site."""

from __future__ import annotations

from collections.abc import Callable

from bareboat import registry
from bareboat.engines import Enclosure, Engine, untested
from bareboat.errors import PlanError
from bareboat.model import Decision, Image, Job, Refusal, Rejected, Site
from bareboat.plan.ranking import Ranking

#: How many ways out an error names, the cheapest engine's first.
_WAYS_OUT = 3

#: What a job can do without, the first way out where it is what no engine gives.
_AS_A_TREE = 'form = "tree", or --form tree'
_READ_ONLY = "leave writable = true out"


def choose_engine(
    job: Job,
    image: Image | None,
    site: Site,
    decisions: list[Decision],
    attempt: Callable[[Engine, Enclosure], None],
) -> tuple[Engine, Enclosure]:
    """The engine asked for, else that which costs this job least of those that hold a container.

    `attempt` raises PlanError for what this job wants and the engine cannot do.
    """
    rejected = []
    failed: PlanError | None = None  # the first that would work, but for something in the job
    chosen: tuple[Engine, Enclosure] | None = None
    ranking = Ranking(job, image, site)
    for name in ranking.sorted(_candidates(job, image, site)):
        engine = registry.engine(name)
        verdict = engine.judge(site, image)
        if isinstance(verdict, Enclosure) and job.writable:
            verdict = _if_writable(engine, verdict)
        if isinstance(verdict, Enclosure) and job.form == "file":
            obstacle = file_obstacle(engine, site)
            verdict = verdict if obstacle is None else Refusal(obstacle, _AS_A_TREE)
        if isinstance(verdict, Enclosure) and chosen is None:
            try:
                attempt(engine, verdict)
            except PlanError as error:
                failed = failed or error
                verdict = Refusal(error.message, remedy=error.remedy)
        if isinstance(verdict, Refusal):
            rejected.append(Rejected(choice=name, reason=verdict.reason, remedy=verdict.remedy))
        elif not engine.CONTAINS and not job.engine:
            rejected.append(
                Rejected(
                    choice=name,
                    reason="it is no container: taken only when asked for",
                    remedy=f"--engine {name}",
                )
            )
        elif chosen is not None:
            reason = untested(engine) or ranking.why_not(name, chosen[0].NAME)
            rejected.append(Rejected(choice=name, reason=reason))
        else:
            chosen = engine, verdict
    if chosen is None:
        raise failed or _no_engine(job, rejected, bare_metal=registry.engine("native").judge(site, image))
    decisions.append(
        Decision(
            subject="engine",
            choice=chosen[0].NAME,
            reason="; ".join(
                filter(
                    None, ["asked for" if job.engine else "", chosen[1].reason, ranking.why(chosen[0].NAME)]
                )
            ),
            rejected=tuple(rejected),
        )
    )
    return chosen


def _candidates(job: Job, image: Image | None, site: Site) -> list[str]:
    """Every engine, in each of its modes."""
    if job.engine and ":" in job.engine:
        _check_mode(job.engine, image, site)
    names = [job.engine] if job.engine else registry.names("engines")
    return [mode for name in names for mode in registry.modes(name)]


def _check_mode(name: str, image: Image | None, site: Site) -> None:
    """Raises PlanError for a mode that the engine has not: with those that it has, and what they say here."""
    base = name.partition(":")[0]
    modes = registry.modes(base)
    if name in modes or modes == (base,):
        return  # the registry tells of an engine without modes
    lines, works = [], []
    for mode in modes:
        verdict = registry.engine(mode).judge(site, image)
        if isinstance(verdict, Enclosure):
            works.append(mode)
        lines.append(f"{mode}: {'works here' if mode in works else verdict.reason}")
    remedy = "; or: ".join(f"--engine {mode}" for mode in works) or "bareboat doctor"
    raise PlanError(f"there is no engine {name}", context="\n".join(lines), remedy=remedy)


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


def _if_writable(engine: Engine, verdict: Enclosure) -> Enclosure | Refusal:
    """Whether the engine can also let the command write anywhere in the image, as the job asks."""
    if engine.CONTAINS and not engine.STACKS:
        return Refusal("it shows the image read-only, and writable = true asks for more", _READ_ONLY)
    if engine.CONTAINS and not verdict.overlay:
        return Refusal("writable = true needs an overlay, and this user cannot mount one here", _READ_ONLY)
    return verdict


def _no_engine(job: Job, rejected: list[Rejected], *, bare_metal: Enclosure | Refusal) -> PlanError:
    blocking = [r for r in rejected if r.choice != "native"] or rejected
    lines = [f"{r.choice}: {r.reason}" for r in _told_once(rejected)]
    remedies = sorted(
        (r.remedy for r in blocking if r.remedy), key=lambda r: r not in (_AS_A_TREE, _READ_ONLY)
    )
    ways = list(dict.fromkeys(remedies))[:_WAYS_OUT] or ["bareboat doctor"]
    if job.engine and len(lines) == 1:
        message = f"the engine {job.engine} cannot run here: {rejected[0].reason}"
    elif job.engine:
        message = f"the engine {job.engine} cannot run here, in none of its modes"
    else:
        message = "no engine on this machine can run a container"
        if job.writable:
            message += " that can be written to, as writable = true asks"
        elif job.form == "file":
            message += ' with the image as one file, as form = "file" asks'
    on_this_machine = isinstance(bare_metal, Enclosure) and job.engine != "native"
    native = "; or, without a container: --engine native" if on_this_machine else ""
    return PlanError(
        message, context="\n".join(lines) if len(lines) > 1 else "", remedy="; or: ".join(ways) + native
    )


def _told_once(rejected: list[Rejected]) -> list[Rejected]:
    """An engine whose modes all fail for one reason is told as one."""
    told: list[Rejected] = []
    for each in rejected:
        name = each.choice.partition(":")[0]
        if told and told[-1].reason == each.reason and told[-1].choice.partition(":")[0] == name:
            told[-1] = Rejected(choice=name, reason=each.reason, remedy=each.remedy)
        else:
            told.append(each)
    return told
