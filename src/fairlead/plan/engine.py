"""Which engine holds the container: the cheapest that is sound for this job on this site."""

from __future__ import annotations

from fairlead import registry
from fairlead.engines import Engine, Suitable, Unsuitable
from fairlead.errors import PlanError
from fairlead.model import Decision, Image, Job, Rejected, Site

#: How many ways out an error names, the cheapest engine's first.
_WAYS_OUT = 3


def choose_engine(
    job: Job, image: Image | None, site: Site, decisions: list[Decision]
) -> tuple[Engine, Suitable]:
    """The engine asked for, else the first, in the registry's order of cost, that holds a container."""
    rejected = []
    chosen: tuple[Engine, Suitable] | None = None
    for name in [job.engine] if job.engine else registry.names("engines"):
        engine = registry.engine(name)
        verdict = engine.judge(site, image)
        if isinstance(verdict, Unsuitable):
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
            rejected.append(Rejected(choice=name, reason=f"{chosen[0].NAME} costs less to start"))
        else:
            chosen = engine, verdict
    if chosen is None:
        raise _no_engine(job, rejected)
    decisions.append(
        Decision(
            subject="engine",
            choice=chosen[0].NAME,
            reason=("asked for; " if job.engine else "") + chosen[1].reason,
            rejected=tuple(rejected),
        )
    )
    return chosen


def _no_engine(job: Job, rejected: list[Rejected]) -> PlanError:
    blocking = [r for r in rejected if r.choice != "native"] or rejected
    lines = [f"{r.choice}: {r.reason}" for r in rejected]
    ways = list(dict.fromkeys(r.remedy for r in blocking if r.remedy))[:_WAYS_OUT] or ["fairlead doctor"]
    if job.engine:
        message = f"the engine {job.engine} cannot run here: {rejected[0].reason}"
    else:
        message = "no engine on this machine can hold a container"
    native = "" if job.engine == "native" else "; or, without a container: --engine native"
    return PlanError(
        message, context="\n".join(lines) if not job.engine else "", remedy="; or: ".join(ways) + native
    )
