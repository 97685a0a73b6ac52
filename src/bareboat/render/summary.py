"""A plan for people and records: its text, its digest, and the plan without secret values. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

import msgspec
from msgspec import UNSET

from bareboat.model import NOT_SHOWN, Command, Decision, Plan, looks_secret
from bareboat.model.keys import changed as changed_keys
from bareboat_base import codec

#: Characters of a reason in the short form of a plan.
_EASY = 90


def digest(plan: Plan) -> str:
    """The digest of what the plan does. It excludes what is true only now: warnings, for example about the
    load, and results of earlier MPI checks. It also excludes values that may be secrets: a reader of a record
    could guess them from it."""
    plan = _without(msgspec.structs.replace(plan, warnings=()), looks_secret)
    facts = msgspec.to_builtins(plan) | {"job": msgspec.to_builtins(dict(changed_keys(plan.job)))}
    # `own_points` are part of the mount points.
    for name in ("check_subject", "notes", "otherwise", "own_points", "inner_points", "shell", "missing"):
        facts.pop(name, None)
    return codec.digest(facts)


def shown(plan: Plan) -> Plan:
    """The plan as it may be printed and stored: with the names of environment variables, without their
    values."""
    return _without(plan, lambda _name: True)


def _without(plan: Plan, hides: Callable[[str], bool]) -> Plan:
    """The plan without the values of these environment variables."""

    def changed(command: Command) -> Command:
        sealed = command.sealed
        if sealed is UNSET:
            return command
        pairs = zip(sealed.names, sealed.values, strict=True)
        values = tuple(NOT_SHOWN if hides(name) else value for name, value in pairs)
        return msgspec.structs.replace(command, sealed=msgspec.structs.replace(sealed, values=values))

    job = plan.job
    environment = {name: NOT_SHOWN if hides(name) else value for name, value in job.environment.items()}
    return msgspec.structs.replace(
        plan,
        job=msgspec.structs.replace(job, environment=environment),
        command=changed(plan.command),
        mpi_check=None if plan.mpi_check is None else changed(plan.mpi_check),
        otherwise=tuple(_without(other, hides) for other in plan.otherwise),
        shell=UNSET if plan.shell is UNSET else changed(plan.shell),
    )


def _remarks(plan: Plan) -> list[str]:
    return [*(f"  {note}" for note in plan.notes), *(f"  warning: {each}" for each in plan.warnings)]


def brief(plan: Plan) -> str:
    """A line for each decision with the first part of its reason, and where the rest is."""
    lines = [_title(plan), ""]
    width = max(len(decision.subject) for decision in plan.decisions)
    for decision in plan.decisions:
        lines.append(f"  {decision.subject:<{width}}  {decision.choice}: {_short(decision.reason)}")
    lines += _remarks(plan)
    if plan.missing is not UNSET:
        lines += ["", *(f"first, run and submit will {_short(each)}" for each in plan.missing)]
    rejected = any(each.rejected for each in plan.decisions)
    others = "all reasons and rejected alternatives" if rejected else "all reasons"
    lines += ["", f"{others}: bareboat plan -v"]
    return "\n".join(lines)


def _title(plan: Plan) -> str:
    return f"{plan.job.name}: {shlex.join(plan.job.command) or 'what the image runs'}"


def _short(text: str) -> str:
    """The first parts of a reason, as many as are easy to read; none with only a program's path."""
    first, *rest = [part for part in text.split("; ") if not part.startswith("/")] or [text]
    for part in rest:
        if len(first) + len(part) > _EASY:
            break
        first += f"; {part}"
    return first


def _decision(decision: Decision, width: int) -> Iterator[str]:
    yield f"  {decision.subject:<{width}}  {decision.choice}"
    yield f"  {'':<{width}}    because {decision.reason}"
    for other in decision.rejected:
        remedy = f"  ({other.remedy})" if other.remedy else ""
        yield f"  {'':<{width}}    not {other.choice}: {other.reason}{remedy}"


def text(plan: Plan) -> str:
    """The decisions with their reasons and the rejected alternatives, for a terminal."""
    width = max(len(decision.subject) for decision in plan.decisions)
    lines = [_title(plan), ""]
    for decision in plan.decisions:
        lines += _decision(decision, width)
    if plan.otherwise:
        lines.append(f"  if its MPI check fails in the job: {', then '.join(map(launch_of, plan.otherwise))}")
    lines += _remarks(plan)
    if plan.missing is not UNSET:
        lines += ["", "  first, run and submit will", *(f"    {each}" for each in plan.missing)]
        lines += ["", "no plan digest before that"]
    else:
        lines += ["", f"plan {digest(plan)}"]
    return "\n".join(lines)


def launch_of(plan: Plan) -> str:
    """A description of what starts the ranks."""
    if plan.check_subject is None:
        return f"the launcher {plan.launcher}"
    return plan.check_subject.launch or plan.check_subject.step.partition(" x ")[0]
