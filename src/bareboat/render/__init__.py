"""Plan -> plain bash, and text for people (`summary`). The only directory that quotes; pure.

The script runs by hand, without Bareboat on the cluster, and is written for administrators to read.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator

from msgspec import UNSET

from bareboat import registry
from bareboat.engines import Engine
from bareboat.model import Command, Plan, Start, sweep
from bareboat.mpi.checks import STARTED
from bareboat.render import delivery, fabric, notification, watchdog, words, world
from bareboat.render.pieces import piece as piece
from bareboat.render.place import GIVEN as GIVEN
from bareboat.render.place import Place as Place
from bareboat.render.place import run_and_folder, run_name
from bareboat.render.summary import digest as digest
from bareboat.render.summary import launch_of
from bareboat.render.summary import shown as shown
from bareboat.render.summary import text as text
from bareboat.schedulers import Scheduler
from bareboat_base import __version__
from bareboat_base.printable import counted


def script(plan: Plan, place: Place | None = None, *, runs: str | None = None, rung: int = 1) -> str:
    """The job script of a plan. `runs`: the directory for the runs of a script without a place that the user
    submits; by default `bareboat-runs` in the working directory. `rung`: the number of this plan among the
    ways to start the ranks that one job tries."""
    scheduler = registry.scheduler(plan.scheduler)
    lines = ["#!/usr/bin/env bash", *plan.directives, _head(plan)]
    body = _at_once(plan, rung) if scheduler.IS_LOCAL else _cluster(plan, scheduler, place, runs, rung)
    return "\n".join(["\n".join(lines), *body])


def scripts(plan: Plan, place: Place | None = None) -> Iterator[tuple[str, str]]:
    """Name and text of the job script, and of the scripts of the further ways to start the ranks, which it
    finds in BAREBOAT_CONTROL."""
    yield "job.sh", script(plan, place)
    yield from rungs(plan, place)


def rungs(plan: Plan, place: Place | None = None) -> Iterator[tuple[str, str]]:
    """The scripts of the further ways only."""
    for rung, other in enumerate(plan.otherwise, 2):
        yield f"rung.{rung}.sh", script(other, place, rung=rung)


def shell_script(plan: Plan) -> str | None:
    """The script by which `attach` opens a shell in the job's container, on a node of the job. Its arguments
    are the run's name and its control directory. None where there is no such container."""
    if plan.shell is UNSET:
        return None
    found = [
        "#!/usr/bin/env bash",
        _head(plan),
        _values(plan),
        piece("shell"),
        piece("need"),
        piece("environment_of_job") if plan.job.environment_from else "",
        piece("modules") if plan.job.modules else "",
        _needs(plan),
        _sweep_values(plan),
        _seal(plan.shell),
        "unset BAREBOAT_RUN # the shell is not part of the run, which does not end its processes\n",
        words.passed(plan.shell) + words.exported(plan.shell) + words.opened(plan.shell),
        f"exec {words.command(plan.shell)}\n",
    ]
    return "\n".join(filter(None, found))


def _head(plan: Plan) -> str:
    topology = plan.job.topology
    title = (
        f"{plan.job.name}: {counted(topology.nodes, 'node')} x "
        f"{topology.ranks_per_node} ranks; "
        f"engine {plan.engine}, launcher {plan.launcher}, scheduler {plan.scheduler}"
    )
    return (
        f"# {_one_line(title)}\n"
        f"# Written by Bareboat {__version__}, plan {digest(plan)[:19]}.\n"
        '# It needs bash and the files under "Requirements", but no Bareboat.\n'
    ) + piece("mark")


def _values(plan: Plan, rung: int = 1) -> str:
    """The values of this job that the pieces of bash read from variables."""
    job, watch = plan.job, plan.fabric
    topology = job.topology
    lines = [
        "# What the plan has decided.\n",
        words.values(ranks_per_node=topology.ranks_per_node, world_size=topology.world_size),
        words.values(run_apart=_engine(plan).APART),
    ]
    if plan.mpi_check is not None or rung > 1:
        lines.append(words.values(rung=rung, launch=launch_of(plan), rank_says=STARTED))
    if job.modules:
        lines.append(words.values(site_modules=job.modules))
    if job.environment_from:
        lines.append(words.values(environment_from=job.environment_from))
    if job.sweep is not UNSET:
        lines.append(words.values(sweep_names=tuple(map(sweep.variable, job.sweep.names))))
    if plan.delivery is not UNSET:
        lines.append(delivery.values(plan.delivery))
    return "".join(
        [
            *lines,
            watchdog.values(plan),
            world.values(plan),
            "" if watch is UNSET else fabric.values(plan, watch),
        ]
    )


#: Prefix of an engine that holds its command: marks it as one of the script's helpers. Its container gets an
#: environment of its own.
_HOLDER = "BAREBOAT_SCRIPT=$BAREBOAT_RUN "


def _engine(plan: Plan) -> Engine:
    return registry.engine(plan.engine.partition(":")[0])


def _at_once(plan: Plan, rung: int) -> list[str]:
    """The parts of a script for this machine, now: $1 is the run's mark."""
    modules = [piece("modules")] if plan.job.modules else []
    found = [
        _values(plan, rung),
        f'BAREBOAT_RUN="${{1:-{run_name(plan)}-$$}}"\nHERE=\n',
        *map(piece, ("processes", "stop", "need")),
        *modules,
        _needs(plan),
    ]
    if plan.start is Start.PROGRAM:
        return [*found, *_at_once_program(plan, rung)]
    found += [_rung(rung), _sweep_values(plan)]
    if plan.keeps_output or watchdog.is_on(plan):
        found += [piece("at_exit"), piece("run_folder"), _logs(plan) + _make_logs(plan)]
    if plan.keeps_output:
        found.append(_exits(plan))
    here = "BAREBOAT_NODE=0\n" if plan.keeps_output else ""
    if plan.start is Start.RANKS:
        here = "BAREBOAT_NODE=0 BAREBOAT_MASTER=127.0.0.1 BAREBOAT_INTERFACE=lo BAREBOAT_JOB=$$\n"
    if plan.start is Start.RANKS or watchdog.is_on(plan):
        here += "read -r BAREBOAT_HOST < /proc/sys/kernel/hostname\n"
    found += [
        here,
        *watchdog.functions(plan),
        watchdog.begin(plan),
        *world.functions(plan),
        world.begin(plan),
        *([piece("let_save"), piece("port")] if plan.start is Start.RANKS else []),
        piece("secret_here") if plan.secret is True else "",
        _names(plan),
        watchdog.start(plan, node="0"),
        world.start(plan, node="0"),
        *_start(plan),
        watchdog.end(plan, at_once=True),
        world.end(plan),
        *(_first_failure(plan) if plan.keeps_output else []),
    ]
    return [*filter(None, found), piece("end_here")]


def _at_once_program(plan: Plan, rung: int) -> list[str]:
    """The parts where a program (mpirun) starts the ranks on this machine."""
    found = [
        piece("at_exit"),
        *world.functions(plan),
        piece("rank_here"),
        _logs(plan),
        'if [ "$part" = --rank ]; then',
        _sweep_values(plan),
        *watchdog.functions(plan),
        _names(plan),
        watchdog.start(plan, node="0"),
        world.start(plan, node="0"),
        *_start(plan),
        "fi\n",
        piece("run_folder"),
        _exits(plan),
        *watchdog.functions(plan),
        watchdog.begin(plan),
        world.begin(plan),
        piece("port"),
        _program(plan),
        piece("program_here"),
        _rung(rung),
        piece("mpi_check") if plan.mpi_check is not None else "",
        "run job\ncode=$?\n",
        watchdog.end(plan, at_once=True),
        world.end(plan),
        *_first_failure(plan),
    ]
    return [*filter(None, found), piece("end_here")]


def _cluster(plan: Plan, scheduler: Scheduler, place: Place | None, runs: str | None, rung: int) -> list[str]:
    """The parts for a scheduler: the first node's and every node's."""
    job = plan.job
    alone, sweeps = job.topology.nodes == 1, job.sweep is not UNSET
    by_program, brings = plan.start is Start.PROGRAM, plan.delivery is not UNSET
    # A program that starts the ranks ends them by its own rules.
    saves = not by_program and plan.keeps_output
    hands_on = bool(job.environment_from) and "hand_on" in scheduler.snippet()
    modules = piece("modules") if job.modules else ""
    start = _start(plan)
    interface = ""
    if "BAREBOAT_INTERFACE" in "".join([_names(plan), *start]):
        # Each program that looks it up adds to the time of every start.
        interface = "BAREBOAT_INTERFACE=lo\n" if alone else piece("interface")
    found = [
        _values(plan, rung),
        f"BAREBOAT_NODES={job.topology.nodes}\n"
        f"BAREBOAT_JOB={scheduler.ARRAY.job_id if sweeps else scheduler.JOB_ID}\n",
        piece("arguments"),
        run_and_folder(plan, scheduler, place, runs) + _logs(plan),
        f"sweep_name={shlex.quote(place.run_id) if place else run_name(plan)}\n" + piece("sweep_point")
        if sweeps
        else "",
        piece("processes"),
        _exits(plan),
        piece("deliver"),
        "" if scheduler.SIGNALS_BY_FILE else piece("signal"),
        piece("at_exit"),
        *watchdog.functions(plan),
        *world.functions(plan),
        'if [ "$part" != --first ]; then',
        piece("node"),
        piece("signals_by_file") if scheduler.SIGNALS_BY_FILE else "",
        piece("stop"),
        piece("need"),
        piece("environment_read") if hands_on else "",
        modules,
        _needs(plan),
        *([piece("image"), piece("image_by_rank" if by_program else "image_by_node")] if brings else []),
        interface,
        piece("let_save") if saves else "",
        piece("secret_on_node") if plan.secret is True else "",
        _sweep_values(plan),
        _names(plan),
        piece("sampler") + ('[ "$what" = check ] || ' if by_program else "") + "start_sampler\n",
        watchdog.start(plan, node="$BAREBOAT_NODE"),
        world.start(plan, node="$BAREBOAT_NODE"),
        *start,
        piece("node_end") if saves else "",
        '[ "$code" -eq 0 ] || end_run\nexit "$code"\n',
        "fi\n",
        piece("sweep_first") if sweeps and rung == 1 else "",
        '(umask 077 && cp "${BAREBOAT_CONTROL%/points/*}"/rung.*.sh "$BAREBOAT_CONTROL")\n'
        if sweeps and plan.otherwise
        else "",
        piece("begin") if rung == 1 else _rung(rung),
        piece("first"),
        _make_logs(plan),
        piece("secret") if plan.secret is True else "",
        piece("hand_on") if hands_on else "",
        scheduler.snippet(),
        piece("lost") if rung == 1 else "",
        notification.command(plan) if rung == 1 else "",
        watchdog.begin(plan),
        world.begin(plan),
        _warning(plan, scheduler) if rung == 1 else "",
        modules if by_program and rung == 1 else "",
        "BAREBOAT_MASTER=127.0.0.1\n" if alone else piece("master"),
        piece("port"),
        *([_program(plan), piece("program_on_cluster")] if by_program else [piece("nodes")]),
        piece("image_first") if by_program and brings else "",
        piece("mpi_check") if plan.mpi_check is not None else "",
        *fabric.before(plan),
        "run job\ncode=$?\n",
        "" if alone else _complete(plan, saves=saves),
        "leave_images 10\n" if by_program and brings else "",
        watchdog.end(plan, at_once=False),
        world.end(plan),
        *fabric.after(plan),
        *_first_failure(plan),
    ]
    if job.scheduling.requeue:
        # A requeued job begins with the script of the first way.
        found += ["script=$BAREBOAT_CONTROL/job.sh\n" if rung > 1 else "", piece("again")]
    return [*filter(None, found), 'finish "$code"\n']


def _complete(plan: Plan, *, saves: bool) -> str:
    """Check that all nodes, or a program's ranks, have ended; the image's mpirun checks this itself."""
    topology = plan.job.topology
    if saves:
        return words.values(end_files="over", end_count=topology.nodes) + piece("complete")
    if plan.start is Start.PROGRAM:
        return words.values(end_files="exits", end_count=topology.world_size) + piece("complete")
    return ""


def _rung(rung: int) -> str:
    """The beginning of the first part of a script that another script sources."""
    return "" if rung == 1 else piece("rung")


def _sweep_values(plan: Plan) -> str:
    """The values of a sweep's point."""
    return "" if plan.job.sweep is UNSET else piece("sweep_values")


def _warning(plan: Plan, scheduler: Scheduler) -> str:
    walltime_s, warning_s = plan.job.walltime_s, plan.job.scheduling.warning_s
    if not warning_s or scheduler.WARNS or walltime_s is None:
        return ""
    return words.values(warning_after_s=max(walltime_s - warning_s, 0)) + piece("warning")


def _program(plan: Plan) -> str:
    return f'program() {{ # starts the ranks\n  exec {words.joined(plan.program)} "$@"\n}}\n'


def _names(plan: Plan) -> str:
    """The function that sets the names of the launcher's ranks."""
    lines = "".join(f"  {line}\n" for line in plan.prelude.splitlines())
    return f"rank_names() {{\n{lines}}}\n" if lines else ""


def _start(plan: Plan) -> list[str]:
    """The command, and the lines that start it."""
    names = "  rank_names\n" if plan.prelude else ""
    given = words.passed(plan.command) + words.exported(plan.command)
    opened = words.opened(plan.command)
    command = words.command(plan.command)
    holder = _HOLDER if _engine(plan).HOLDS else ""
    barrier = watchdog.BARRIER if watchdog.is_on(plan) else ""
    barrier += world.STOP if world.is_watched(plan) else ""
    if plan.start is Start.RANKS:
        body = f"{names}{textwrap.indent(opened, '  ')}{given}  {holder}{command}\n"
        return [_seal(plan.command), _function("job_command", body), piece("ranks") + barrier]
    before, inside, after = _around(plan)
    body = f"{inside}{names}{given}  {holder}exec {command}\n"
    found = [_seal(plan.command), _function("job_command", body)]
    what, last = "job", ""
    if plan.start is Start.PROGRAM:
        what = '"$what"'
        before = "WORLD_SIZE=$world_size MASTER_ADDR=$BAREBOAT_MASTER MASTER_PORT=$BAREBOAT_PORT\n" + before
        before_names = "rank_names; " if plan.prelude else ""
        # Launchers return one code for all ranks. The program that started the ranks ends the others.
        last = (
            f'[ "$what" = check ] || ({before_names}echo "${{RANK:-?}} $code") '
            '>> "$BAREBOAT_CONTROL/exits.$BAREBOAT_HOST"\nexit "$code"\n'
        )
        if plan.mpi_check is not None:
            given = words.passed(plan.mpi_check) + words.exported(plan.mpi_check)
            body = f'{inside}{names}  echo "$rank_says"\n{given}  exec {words.command(plan.mpi_check)}\n'
            found.append(_function("check_command", body))
    closed = "exec {sealed}<&-\n" if opened else ""
    start = f'{before}{opened}start_command {what}\n{closed}{after[0]}wait "$child"\ncode=$?\n{after[1]}'
    return [*found, piece("start_command"), start + barrier + last]


def _function(name: str, body: str) -> str:
    return f"{name}() {{\n{body}}}\n"


def _seal(command: Command) -> str:
    if not words.opened(command):
        return ""
    return piece("seal" if words.is_small(command) else "seal_long")


def _around(plan: Plan) -> tuple[str, str, tuple[str, str]]:
    """The lines that keep the output of a command started once: before its start, in front of it, and after
    its start and its end."""
    if not plan.keeps_output:
        return watchdog.output(plan)
    return piece("follow") + "\n", "  exec 6>&-\n", ("", "followed\n")


def _needs(plan: Plan) -> str:
    found = [
        f"need {shlex.quote(r.path)} {shlex.quote(r.what)} {shlex.quote(r.remedy)}" for r in plan.requirements
    ]
    names = piece("environment_from") if plan.job.environment_from else ""
    return "\n".join(["# Requirements.", *found, _executable(plan) + names])


def _executable(plan: Plan) -> str:
    if plan.executable is UNSET:
        return ""
    place = plan.executable.place
    remedies = (
        f"chmod +x {shlex.quote(place)}",
        f"ls -l {shlex.quote(place.rpartition('/')[0] or '/')}   # all nodes must see the file",
    )
    return (
        piece("program") + shlex.join(["need_program", f'"{plan.executable.word}"', place, *remedies]) + "\n"
    )


def _by_ranks(plan: Plan) -> bool:
    """Whether the ranks themselves keep their exit codes and output, from inside their container."""
    return plan.start is Start.NODES


def _logs(plan: Plan) -> str:
    """The line with the directory of the ranks' output."""
    if not plan.keeps_output:
        return "rank_logs=\n"
    return f"rank_logs=${'BAREBOAT_RUN_DIR' if _by_ranks(plan) else 'BAREBOAT_CONTROL'}/logs\n"


def _make_logs(plan: Plan) -> str:
    if not plan.keeps_output:
        return ""
    there = "" if _by_ranks(plan) else '[ -d "$rank_logs" ] || '
    return f'{there}mkdir "$rank_logs" || exit 3\n'


def _exits(plan: Plan) -> str:
    return piece("exits_of_ranks" if _by_ranks(plan) else "exits_of_script")


def _first_failure(plan: Plan) -> list[str]:
    return [piece("first_failure"), *([piece("last_output")] if plan.keeps_output else [])]


def _one_line(text: str) -> str:
    return "".join(_visible(text))


def _visible(text: Iterable[str]) -> Iterator[str]:
    """The text on one line: a newline in a job's name would end the comment."""
    for character in text:
        yield character if character.isprintable() else "?"
