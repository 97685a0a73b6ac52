"""Plan -> plain bash, and text for people. The only room that quotes; pure.

The script runs by hand, with no Fairlead anywhere, and is meant to be read by an administrator.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple, assert_never

import msgspec
from msgspec import UNSET

from fairlead import __version__, codec, registry, sweep
from fairlead.model import Plan, Start
from fairlead.render import delivery, fabric, parts, watchdog, words
from fairlead.schedulers import Scheduler


class Place(NamedTuple):
    """Where a run is kept: its name and its folder. A script without one makes a folder for itself. Of a
    sweep it is the folder in which each point has its own."""

    run_id: str
    folder: str


def script(plan: Plan, place: Place | None = None) -> str:
    """The job script of a plan."""
    scheduler = registry.scheduler(plan.scheduler)
    lines = ["#!/usr/bin/env bash", *plan.directives, _head(plan)]
    body = _at_once(plan) if scheduler.AT_ONCE else _cluster(plan, scheduler, place)
    return "\n".join(["\n".join(lines), *body])


def _head(plan: Plan) -> str:
    topology = plan.job.topology
    title = (
        f"{plan.job.name}: {topology.nodes} node{'s' if topology.nodes > 1 else ''} x "
        f"{topology.ranks_per_node} ranks; "
        f"engine {plan.engine}, launcher {plan.launcher}, scheduler {plan.scheduler}"
    )
    return parts.HEAD.format(title=_one_line(title), version=__version__, digest=digest(plan)[:19])


def _at_once(plan: Plan) -> list[str]:
    """For this machine, now: $1 is the run's mark."""
    found = [f'FAIRLEAD_RUN="${{1:-{_run_name(plan)}-$$}}"\nHERE=\n', parts.FUNCTIONS, parts.STOP, parts.NEED]
    found += [_modules(plan), _needs(plan)] if plan.job.modules else [_needs(plan)]
    if plan.start is Start.PROGRAM:
        return [*found, *_at_once_program(plan)]
    found += _values(plan)
    if plan.keeps_output or watchdog.is_on(plan):
        found.append(parts.RUN_FOLDER)
    if plan.keeps_output:
        found.append(parts.LOGS)
    if plan.start is Start.RANKS or watchdog.is_on(plan):
        found.append(parts.HOST)
    found += [watchdog.functions(plan), watchdog.begin(plan)]
    if plan.start is Start.NODES and plan.keeps_output:
        found.append("FAIRLEAD_NODE=0\n")
    if plan.start is Start.RANKS:
        found.append(
            parts.LET_SAVE
            + "\nFAIRLEAD_NODE=0 FAIRLEAD_MASTER=127.0.0.1 FAIRLEAD_INTERFACE=lo FAIRLEAD_JOB=$$\n"
            + parts.PORT
        )
    found += [watchdog.start(plan, node="0"), _start(plan), watchdog.end(plan, at_once=True)]
    if plan.keeps_output:
        found.append(_first_failure(plan))
    return [*filter(None, found), parts.END]


def _at_once_program(plan: Plan) -> list[str]:
    """A program (mpirun) starts the ranks on this machine."""
    found = [
        parts.AT_ONCE_RANK,
        'if [ "$part" = --rank ]; then',
        *_values(plan),
        watchdog.functions(plan),
        watchdog.start(plan, node="0"),
        _start(plan),
        "fi\n",
        parts.RUN_FOLDER,
        watchdog.functions(plan),
        watchdog.begin(plan),
        parts.PORT,
        parts.AT_ONCE_PROGRAM.format(program=words.joined(plan.program)),
    ]
    if plan.proof is not None:
        found.append(parts.AT_ONCE_PROOF)
    found += ["run job\ncode=$?\n", watchdog.end(plan, at_once=True), _first_failure(plan)]
    return [*filter(None, found), parts.END]


def _cluster(plan: Plan, scheduler: Scheduler, place: Place | None) -> list[str]:
    """For a scheduler: the first node's part, and every node's."""
    alone = plan.job.topology.nodes == 1
    sweep_name = shlex.quote(place.run_id) if place else _run_name(plan)
    brought = plan.delivery
    by_program = plan.start is Start.PROGRAM
    # A program that starts the ranks ends them by its own rules.
    saves = plan.start is not Start.PROGRAM and plan.keeps_output
    start = _start(plan)
    interface = ""
    if "FAIRLEAD_INTERFACE" in start:  # each program that looks for it would be one of every start's
        interface = parts.CLUSTER_INTERFACE_ALONE if alone else parts.CLUSTER_INTERFACE
    found = [
        parts.CLUSTER_ARGUMENTS.format(
            nodes=plan.job.topology.nodes,
            job_id=scheduler.JOB_ID if plan.job.sweep is UNSET else scheduler.ARRAY.job_id,
            or_rank=", or with --rank for every rank" if by_program else "",
            more=delivery.ARGUMENT if by_program and brought is not UNSET else "",
            **_run_and_folder(plan, scheduler, place),
        ),
        *([] if plan.job.sweep is UNSET else [parts.SWEEP_ARGUMENTS.format(example=f"{sweep_name}.0")]),
        parts.FUNCTIONS,
        parts.CLUSTER_DELIVER,
        "" if scheduler.SIGNALS_BY_FILE else parts.CLUSTER_SIGNAL,
        watchdog.functions(plan),
        parts.CLUSTER_NODE_HEAD,
        parts.CLUSTER_WATCH if scheduler.SIGNALS_BY_FILE else "",
        parts.STOP,
        parts.NEED,
        _modules(plan),
        _needs(plan),
        "" if brought is UNSET else delivery.for_node(brought, plan.start, watches=scheduler.SIGNALS_BY_FILE),
        interface,
        parts.LET_SAVE if saves else "",
        *_values(plan),
        watchdog.start(plan, node="$FAIRLEAD_NODE"),
        start,
        parts.CLUSTER_NODE_END if saves else "",
        parts.END,
        "fi\n",
        "" if plan.job.sweep is UNSET else parts.SWEEP_FIRST,
        parts.CLUSTER_FIRST,
        parts.LOGS if plan.keeps_output else "",
        parts.CLUSTER_SECRET if " --secret " in start else "",
        scheduler.SNIPPET if plan.job.sweep is UNSET else scheduler.ARRAY.snippet,
        parts.CLUSTER_LOST,
        watchdog.begin(plan),
        _warning(plan, scheduler),
        _modules(plan) if plan.start is Start.PROGRAM else "",
        parts.CLUSTER_MASTER_ALONE if alone else parts.CLUSTER_MASTER,
        parts.PORT,
        parts.CLUSTER_RUN.format(start=_everywhere(plan)),
    ]
    if by_program and brought is not UNSET:
        found.append(delivery.for_first(warns=_warning(plan, scheduler) != ""))
    if plan.proof is not None:
        found.append(parts.CLUSTER_PROOF)
    found += [
        *fabric.before(plan),
        "run job\ncode=$?\n",
        delivery.LEAVE if by_program and brought is not UNSET else "",
        watchdog.end(plan, at_once=False),
        *fabric.after(plan),
        _first_failure(plan),
        parts.CLUSTER_AGAIN if plan.job.scheduling.requeue else "",
    ]
    return [*filter(None, found), 'finish "$code"\n']


def _run_and_folder(plan: Plan, scheduler: Scheduler, place: Place | None) -> dict[str, str]:
    """The run's name and its folder, as words of bash."""
    name = _run_name(plan)
    # Without a folder of the host's to work in, where it is handed over.
    folder = '"$PWD"' if plan.job.workdir is None else shlex.quote(plan.job.workdir)
    if plan.job.sweep is not UNSET:
        own = shlex.quote(place.folder) if place else f"{folder}/fairlead-runs/{name}"
        return {
            "run": f"{shlex.quote(place.run_id) if place else name}.{scheduler.ARRAY.index}",
            "folder": f"{own}/points/${{FAIRLEAD_RUN##*.}}/ranks",
        }
    return {
        "run": shlex.quote(place.run_id) if place else f"{name}-$FAIRLEAD_JOB",
        "folder": shlex.quote(place.folder) if place else f"{folder}/fairlead-runs/{name}-$FAIRLEAD_JOB",
    }


def _values(plan: Plan) -> list[str]:
    """Of a sweep: the values of the point."""
    if plan.job.sweep is UNSET:
        return []
    return [parts.SWEEP_VALUES.format(names=" ".join(map(sweep.variable, plan.job.sweep.names)))]


def _warning(plan: Plan, scheduler: Scheduler) -> str:
    walltime_s, warning_s = plan.job.walltime_s, plan.job.scheduling.warning_s
    if not warning_s or scheduler.WARNS or walltime_s is None:
        return ""
    return parts.CLUSTER_WARNING.format(after_s=max(walltime_s - warning_s, 0))


def _everywhere(plan: Plan) -> str:
    """The words that start the job on all nodes, from the first one."""
    arguments = '"$FAIRLEAD_RUN" "$FAIRLEAD_RUN_DIR" "$FAIRLEAD_MASTER" "$FAIRLEAD_PORT" "$1"'
    if plan.start is Start.PROGRAM:
        return f'{words.joined(plan.program)} bash "$script" --rank 0 {arguments}'
    return f"everywhere --node {arguments}"


def _start(plan: Plan) -> str:
    topology = plan.job.topology
    prelude = "".join(f"  {line}\n" for line in plan.prelude.splitlines())
    passed = words.passed(plan.command)
    command = words.command(plan.command)
    barrier = watchdog.BARRIER if watchdog.is_on(plan) else ""
    match plan.start:
        case Start.NODES:
            once = parts.ONCE.format(prelude=prelude + passed, command=command, **_around(plan))
            return once + barrier
        case Start.RANKS:
            ranks = parts.RANKS.format(
                prelude=prelude,
                command=passed.lstrip() + ("  " if passed else "") + command,
                ranks_per_node=topology.ranks_per_node,
                world_size=topology.world_size,
            )
            return ranks + barrier
        case Start.PROGRAM:
            proof = plan.proof
            return parts.RANK.format(
                prelude=prelude,
                command=passed.lstrip() + ("  exec " if passed else "exec ") + command,
                proof=""
                if proof is None
                else parts.RANK_PROOF.format(
                    command=words.passed(proof).lstrip() + "  exec " + words.command(proof)
                ),
                world_size=topology.world_size,
                barrier=barrier,
                **watchdog.output(plan),
            )
        case _:
            assert_never(plan.start)


def _around(plan: Plan) -> dict[str, str]:
    """What stands around the command that is started once, for what it prints."""
    if not plan.keeps_output:
        return watchdog.output(plan)
    follow = parts.FOLLOW.format(ranks_per_node=plan.job.topology.ranks_per_node)
    return {"keep": follow, "kept": "6>&- ", "close": "", "drain": parts.FOLLOWED}


def _needs(plan: Plan) -> str:
    found = [
        f"need {shlex.quote(r.path)} {shlex.quote(r.what)} {shlex.quote(r.remedy)}" for r in plan.requirements
    ]
    return "\n".join(["# What must be there.", *found, ""])


def _modules(plan: Plan) -> str:
    if not plan.job.modules:
        return ""
    return parts.MODULES.format(modules=" ".join(map(shlex.quote, plan.job.modules)))


def _first_failure(plan: Plan) -> str:
    return parts.FIRST_FAILURE.format(show=parts.LAST_OUTPUT if plan.keeps_output else "")


def _run_name(plan: Plan) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in plan.job.name)


def digest(plan: Plan) -> str:
    """The digest of what will be done. What tells of the moment does not count: warnings (the load, say), and
    what was proved before."""
    facts = msgspec.to_builtins(msgspec.structs.replace(plan, warnings=()))
    for name in ("proves", "notes"):
        del facts[name]
    return codec.digest(facts)


def text(plan: Plan) -> str:
    """The decisions with their reasons and the rejected alternatives, for a terminal."""
    command = shlex.join(plan.job.command) or "what the image runs"
    lines = [f"{plan.job.name}: {command}", ""]
    width = max(len(decision.subject) for decision in plan.decisions)
    for decision in plan.decisions:
        lines.append(f"  {decision.subject:<{width}}  {decision.choice}")
        lines.append(f"  {'':<{width}}    because {decision.reason}")
        for other in decision.rejected:
            remedy = f"  ({other.remedy})" if other.remedy else ""
            lines.append(f"  {'':<{width}}    not {other.choice}: {other.reason}{remedy}")
    lines += [f"  {note}" for note in plan.notes]
    lines += [f"  warning: {warning}" for warning in plan.warnings]
    lines += ["", f"plan {digest(plan)}"]
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return "".join(_visible(text))


def _visible(text: Iterable[str]) -> Iterator[str]:
    """A job's name may hold anything; in a comment a newline would end the comment."""
    for character in text:
        yield character if character.isprintable() else "?"
