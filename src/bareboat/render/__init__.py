"""Plan -> plain bash, and text for people. The only room that quotes; pure.

The script runs by hand, with no Bareboat anywhere, and is meant to be read by an administrator.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, assert_never

import msgspec
from msgspec import UNSET

from bareboat import __version__, bash, codec, registry, sweep
from bareboat.engines import Engine, apart, holds
from bareboat.model import NOT_SHOWN, Command, Plan, Start, looks_secret
from bareboat.mpi.proving import STARTED
from bareboat.render import delivery, fabric, parts, watchdog, words, world
from bareboat.schedulers import Scheduler


class Place(NamedTuple):
    """Where a run is kept: its name and its folder, in which `control` is the script's own and `ranks` what
    containers see. A script without one makes a folder for itself. Of a sweep it is the folder in which each
    point has its own."""

    run_id: str
    folder: str


def piece(name: str) -> str:
    """A whole piece of the script: runtime/NAME.sh."""
    return bash.piece(__name__, f"runtime/{name}")


def script(plan: Plan, place: Place | None = None, *, runs: str | None = None, rung: int = 1) -> str:
    """The job script of a plan. `runs`: where one that the user submits, without a place, makes the
    folders of its runs; without it in `bareboat-runs` of the working folder. `rung`: which way to start the
    ranks it is, of those that one job tries."""
    scheduler = registry.scheduler(plan.scheduler)
    lines = ["#!/usr/bin/env bash", *plan.directives, _head(plan)]
    body = _at_once(plan, rung) if scheduler.AT_ONCE else _cluster(plan, scheduler, place, runs, rung)
    return "\n".join(["\n".join(lines), *body])


def scripts(plan: Plan, place: Place | None = None) -> Iterator[tuple[str, str]]:
    """Name and text of the job script, and of those of the further ways to start the ranks, which it finds
    in BAREBOAT_CONTROL."""
    yield "job.sh", script(plan, place)
    yield from rungs(plan, place)


def rungs(plan: Plan, place: Place | None = None) -> Iterator[tuple[str, str]]:
    """The latter only."""
    for rung, other in enumerate(plan.otherwise, 2):
        yield f"rung.{rung}.sh", script(other, place, rung=rung)


def shell_script(plan: Plan) -> str | None:
    """The script by which `attach` opens a shell in the job's container, on a node of the job. Its arguments
    are the run's name and its folder for control. None where there is no such container."""
    if plan.shell is UNSET:
        return None
    names = plan.job.environment_from
    found = [
        "#!/usr/bin/env bash",
        _head(plan),
        piece("shell"),
        piece("need"),
        parts.SHELL_ENVIRONMENT.format(names=" ".join(names), cases=" | ".join(names)) if names else "",
        _modules(plan),
        _needs(plan),
        *_values(plan),
        "unset BAREBOAT_RUN # the shell is no part of the run: what it starts is not ended with it\n",
        words.passed(plan.shell) + words.exported(plan.shell) + words.opened(plan.shell),
        f"exec {words.command(plan.shell)}\n",
    ]
    return "\n".join(filter(None, found))


def _head(plan: Plan) -> str:
    topology = plan.job.topology
    title = (
        f"{plan.job.name}: {topology.nodes} node{'s' if topology.nodes > 1 else ''} x "
        f"{topology.ranks_per_node} ranks; "
        f"engine {plan.engine}, launcher {plan.launcher}, scheduler {plan.scheduler}"
    )
    return parts.HEAD.format(title=_one_line(title), version=__version__, digest=digest(plan)[:19])


#: Before an engine that holds its command: it counts as one of the script's helpers. Its container gets an
#: environment of its own.
_HOLDER = "BAREBOAT_SCRIPT=$BAREBOAT_RUN "


def _functions(plan: Plan) -> str:
    return f"run_apart={apart(_engine(plan))}\n{piece('processes')}"


def _engine(plan: Plan) -> Engine:
    return registry.engine(plan.engine.partition(":")[0])


def _at_once(plan: Plan, rung: int) -> list[str]:
    """For this machine, now: $1 is the run's mark."""
    named = f'BAREBOAT_RUN="${{1:-{_run_name(plan)}-$$}}"\nHERE=\n'
    found = [named, _functions(plan), piece("stop"), piece("need")]
    found += [_modules(plan), _needs(plan)] if plan.job.modules else [_needs(plan)]
    if plan.start is Start.PROGRAM:
        return [*found, *_at_once_program(plan, rung)]
    found += [_rung(plan, rung), *_values(plan)]
    if plan.keeps_output or watchdog.is_on(plan):
        found.append(piece("run_folder"))
    if plan.keeps_output:
        found += [_logs(plan), _exits(plan)]
    if plan.start is Start.RANKS or watchdog.is_on(plan):
        found.append(parts.HOST)
    found += [watchdog.functions(plan), watchdog.begin(plan), world.functions(plan), world.begin(plan)]
    if plan.start is Start.NODES and plan.keeps_output:
        found.append("BAREBOAT_NODE=0\n")
    if plan.start is Start.RANKS:
        found.append(
            piece("let_save")
            + "\nBAREBOAT_NODE=0 BAREBOAT_MASTER=127.0.0.1 BAREBOAT_INTERFACE=lo BAREBOAT_JOB=$$\n"
            + piece("port")
        )
    found += [
        piece("secret_here") if plan.secret is True else "",
        watchdog.start(plan, node="0"),
        world.start(plan, node="0"),
        _start(plan),
        watchdog.end(plan, at_once=True),
        world.end(plan),
    ]
    if plan.keeps_output:
        found.append(_first_failure(plan))
    return [*filter(None, found), piece("end_here")]


def _at_once_program(plan: Plan, rung: int) -> list[str]:
    """A program (mpirun) starts the ranks on this machine."""
    found = [
        world.functions(plan),
        piece("rank_here"),
        'if [ "$part" = --rank ]; then',
        *_values(plan),
        watchdog.functions(plan),
        watchdog.start(plan, node="0"),
        world.start(plan, node="0"),
        _start(plan),
        "fi\n",
        piece("run_folder"),
        watchdog.functions(plan),
        watchdog.begin(plan),
        world.begin(plan),
        piece("port"),
        parts.AT_ONCE_PROGRAM.format(program=words.joined(plan.program)),
        _rung(plan, rung),
        _proof(plan, rung, "exit"),
    ]
    found += ["run job\ncode=$?\n", watchdog.end(plan, at_once=True), world.end(plan), _first_failure(plan)]
    return [*filter(None, found), piece("end_here")]


def _cluster(plan: Plan, scheduler: Scheduler, place: Place | None, runs: str | None, rung: int) -> list[str]:
    """For a scheduler: the first node's part, and every node's."""
    alone = plan.job.topology.nodes == 1
    sweep_name = shlex.quote(place.run_id) if place else _run_name(plan)
    brought = plan.delivery
    by_program = plan.start is Start.PROGRAM
    # A program that starts the ranks ends them by its own rules.
    saves = plan.start is not Start.PROGRAM and plan.keeps_output
    start = _start(plan)
    interface = ""
    if "BAREBOAT_INTERFACE" in start:  # each program that looks for it would be one of every start's
        interface = parts.CLUSTER_INTERFACE_ALONE if alone else piece("interface")
    found = [
        parts.CLUSTER_ARGUMENTS.format(
            nodes=plan.job.topology.nodes,
            job_id=scheduler.JOB_ID if plan.job.sweep is UNSET else scheduler.ARRAY.job_id,
            or_rank=", or with --rank for every rank" if by_program else "",
            more=delivery.ARGUMENT if by_program and brought is not UNSET else "",
            **_run_and_folder(plan, scheduler, place, runs),
        ),
        *([] if plan.job.sweep is UNSET else [parts.SWEEP_ARGUMENTS.format(example=f"{sweep_name}.0")]),
        _functions(plan),
        _exits(plan),
        piece("deliver"),
        "" if scheduler.SIGNALS_BY_FILE else piece("signal"),
        watchdog.functions(plan),
        world.functions(plan),
        parts.CLUSTER_NODE_HEAD,
        piece("signals_by_file") if scheduler.SIGNALS_BY_FILE else "",
        piece("stop"),
        piece("need"),
        _environment_read(plan, scheduler),
        _modules(plan),
        _needs(plan),
        "" if brought is UNSET else delivery.for_node(brought, plan.start, watches=scheduler.SIGNALS_BY_FILE),
        interface,
        piece("let_save") if saves else "",
        piece("secret_on_node") if plan.secret is True else "",
        *_values(plan),
        watchdog.start(plan, node="$BAREBOAT_NODE"),
        world.start(plan, node="$BAREBOAT_NODE"),
        start,
        parts.CLUSTER_NODE_END.format(exits=_exits_of_node(plan)) if saves else "",
        parts.END,
        "fi\n",
        "" if plan.job.sweep is UNSET or rung > 1 else piece("sweep_first"),
        "" if plan.job.sweep is UNSET or not plan.otherwise else parts.SWEEP_RUNGS,
        piece("begin") if rung == 1 else _rung(plan, rung),
        piece("first"),
        _logs(plan) if plan.keeps_output else "",
        piece("secret") if plan.secret is True else "",
        _nodes(plan, scheduler),
        piece("lost") if rung == 1 else "",
        watchdog.begin(plan),
        world.begin(plan),
        _warning(plan, scheduler) if rung == 1 else "",
        _modules(plan) if plan.start is Start.PROGRAM and rung == 1 else "",
        parts.CLUSTER_MASTER_ALONE if alone else piece("master"),
        piece("port"),
        parts.CLUSTER_RUN.format(start=_everywhere(plan)),
    ]
    if by_program and brought is not UNSET:
        found.append(delivery.for_first(warns=_warning(plan, scheduler) != ""))
    found += [
        _proof(plan, rung, "finish"),
        *fabric.before(plan),
        "run job\ncode=$?\n",
        delivery.LEAVE if by_program and brought is not UNSET else "",
        watchdog.end(plan, at_once=False),
        world.end(plan),
        *fabric.after(plan),
        _first_failure(plan),
        parts.CLUSTER_AGAIN_FIRST if plan.job.scheduling.requeue and rung > 1 else "",
        piece("again") if plan.job.scheduling.requeue else "",
    ]
    return [*filter(None, found), 'finish "$code"\n']


def _launch(plan: Plan) -> str:
    """What starts the ranks, in words."""
    if plan.proves is None:
        return f"the launcher {plan.launcher}"
    return plan.proves.launch or plan.proves.step.partition(" x ")[0]


def _rung(plan: Plan, rung: int) -> str:
    """The beginning of the first part of a script that another one reads."""
    return "" if rung == 1 else parts.RUNG.format(title=shlex.quote(_launch(plan)))


def _proof(plan: Plan, rung: int, end: str) -> str:
    if plan.proof is None:
        return ""
    return parts.PROOF.format(
        rung=rung, next_rung=rung + 1, started=STARTED, launch=shlex.quote(_launch(plan)), end=end
    )


def _environment_read(plan: Plan, scheduler: Scheduler) -> str:
    """For nodes that are reached one by one."""
    names = plan.job.environment_from
    if not names or not _by_host(scheduler):
        return ""
    return parts.ENVIRONMENT_READ.format(names=" ".join(names))


def _nodes(plan: Plan, scheduler: Scheduler) -> str:
    """The scheduler's functions of bash for the nodes."""
    names = plan.job.environment_from
    handed = ""
    if names and _by_host(scheduler):
        handed = parts.ENVIRONMENT_HANDED.format(names=" ".join(names))
    return handed + scheduler.snippet()


def _by_host(scheduler: Scheduler) -> bool:
    """Whether its nodes are reached one by one, without the job's environment."""
    return "hand_on" in scheduler.snippet()


def _run_and_folder(
    plan: Plan, scheduler: Scheduler, place: Place | None, runs: str | None
) -> dict[str, str]:
    """The run's name and its folder, as words of bash."""
    name = _run_name(plan)
    # Without a folder of the host's to work in, where it is handed over.
    folder = '"$PWD"' if plan.job.workdir is None else shlex.quote(plan.job.workdir)
    folder = f"{folder}/bareboat-runs" if runs is None else shlex.quote(runs)
    if plan.job.sweep is not UNSET:
        own = shlex.quote(place.folder) if place else f"{folder}/{name}"
        return {
            "run": f"{shlex.quote(place.run_id) if place else name}.{scheduler.ARRAY.index}",
            "folder": f"{own}/points/${{BAREBOAT_RUN##*.}}",
        }
    return {
        "run": shlex.quote(place.run_id) if place else f"{name}-$BAREBOAT_JOB",
        "folder": shlex.quote(place.folder) if place else f"{folder}/{name}-$BAREBOAT_JOB",
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
    arguments = '"$BAREBOAT_RUN" "$BAREBOAT_CONTROL" "$BAREBOAT_MASTER" "$BAREBOAT_PORT" "$1"'
    if plan.start is Start.PROGRAM:
        return f'{words.joined(plan.program)} bash "$script" --rank 0 {arguments}'
    return f"everywhere --node {arguments}"


def _start(plan: Plan) -> str:
    topology = plan.job.topology
    prelude = "".join(f"  {line}\n" for line in plan.prelude.splitlines())
    passed = words.passed(plan.command) + words.exported(plan.command)
    command = words.command(plan.command)
    opened = words.opened(plan.command)
    around = {"opened": opened, "closed": parts.CLOSED if opened else ""}
    barrier = watchdog.BARRIER if watchdog.is_on(plan) else ""
    barrier += world.STOP if world.is_watched(plan) else ""
    holder = _HOLDER if holds(_engine(plan)) else ""
    match plan.start:
        case Start.NODES:
            once = parts.ONCE.format(
                prelude=prelude + passed, holder=holder, command=command, **around, **_around(plan)
            )
            return once + barrier
        case Start.RANKS:
            ranks = parts.RANKS.format(
                prelude=prelude,
                command=_after(opened and f"  {opened}", passed, holder + command),
                ranks_per_node=topology.ranks_per_node,
                world_size=topology.world_size,
            )
            return ranks + barrier
        case Start.PROGRAM:
            proof = plan.proof
            return parts.RANK.format(
                prelude=prelude,
                command=_after(passed, holder + "exec " + command),
                proof=""
                if proof is None
                else parts.RANK_PROOF.format(
                    started=STARTED,
                    command=_after(
                        words.passed(proof), words.exported(proof), "exec " + words.command(proof)
                    ),
                ),
                world_size=topology.world_size,
                barrier=barrier,
                **around,
                **watchdog.output(plan),
            )
        case _:
            assert_never(plan.start)


def _after(*lines: str) -> str:
    """Lines that are indented by two, and the command behind them; all but the first word's indentation."""
    return ("".join(lines[:-1]) + "  " + lines[-1]).lstrip()


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
    names = ""
    if plan.job.environment_from:
        names = parts.ENVIRONMENT_FROM.format(names=" ".join(plan.job.environment_from))
    return "\n".join(["# What must be there.", *found, _executable(plan) + names])


def _executable(plan: Plan) -> str:
    if plan.executable is UNSET:
        return ""
    place = plan.executable.place
    quoted = {
        "word": f'"{plan.executable.word}"',
        "place": place,
        "chmod": f"chmod +x {shlex.quote(place)}",
        "remedy": f"ls -l {shlex.quote(place.rpartition('/')[0] or '/')}   # all nodes must see the file",
    }
    return parts.EXECUTABLE.format(**{name: shlex.quote(text) for name, text in quoted.items()})


def _modules(plan: Plan) -> str:
    if not plan.job.modules:
        return ""
    return parts.MODULES.format(modules=" ".join(map(shlex.quote, plan.job.modules)))


def _by_ranks(plan: Plan) -> bool:
    """Whether the ranks keep their exit codes and output by themselves, from inside their container."""
    return plan.start is Start.NODES


def _logs(plan: Plan) -> str:
    return parts.LOGS_OF_RANKS if _by_ranks(plan) else parts.LOGS


def _exits(plan: Plan) -> str:
    if not _by_ranks(plan):
        return ""
    return parts.EXITS_OF_RANKS.format(world_size=plan.job.topology.world_size)


def _exits_of_node(plan: Plan) -> str:
    if _by_ranks(plan):
        return 'exits "$BAREBOAT_NODE" 1'
    return 'cat "$BAREBOAT_CONTROL/exits.$BAREBOAT_NODE" 2>/dev/null'


def _first_failure(plan: Plan) -> str:
    if _by_ranks(plan):
        exits, show = f"exits 0 {plan.job.topology.world_size}", parts.LAST_OUTPUT_OF_RANKS
    else:
        exits, show = 'cat "$BAREBOAT_CONTROL"/exits.* 2>/dev/null', parts.LAST_OUTPUT
    return parts.FIRST_FAILURE.format(exits=exits, show=show if plan.keeps_output else "")


def _run_name(plan: Plan) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in plan.job.name)


def digest(plan: Plan) -> str:
    """The digest of what will be done. What tells of the moment does not count: warnings (the load, say), and
    what was proved before. Nor do values that may be secrets: who sees a record could guess them by it."""
    facts = msgspec.to_builtins(_without(msgspec.structs.replace(plan, warnings=()), looks_secret))
    # Of the mount points, `own_points` are a part.
    for name in ("proves", "notes", "otherwise", "own_points", "shell"):
        facts.pop(name, None)
    return codec.digest(facts)


def shown(plan: Plan) -> Plan:
    """The plan as it may be printed and kept: with the names of environment variables, and no values."""
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
        proof=None if plan.proof is None else changed(plan.proof),
        otherwise=tuple(_without(other, hides) for other in plan.otherwise),
        shell=UNSET if plan.shell is UNSET else changed(plan.shell),
    )


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
    if plan.otherwise:
        lines.append(f"  if its MPI check fails in the job: {', then '.join(map(_launch, plan.otherwise))}")
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
