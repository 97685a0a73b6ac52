"""bareboat replay: run a lock again and compare the results."""

from __future__ import annotations

import argparse
import os
import shlex
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat import consent, registry, render
from bareboat.cli import console
from bareboat.cli.common import Context, add_common, add_dry_run, add_engine, add_scheduling, add_trust
from bareboat.cli.job import plan_text
from bareboat_base.errors import UsageError
from bareboat_base.printable import counted, one_line, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bareboat.model import Job, Plan
    from bareboat_study.reproduction.comparison import Compared
    from bareboat_study.reproduction.document import Lock
    from bareboat_study.reproduction.replay import Choice, Judgement
    from bareboat_study.reproduction.retrieval import Found

EXAMPLE = "bareboat replay run.lock\n  bareboat replay run.lock --scheduler slurm --tolerance loss=0.05"
_NO_METRIC = (
    "the lock has no metric to compare, and equal exit codes show nothing about the results; "
    "make it again: bareboat lock RUN --metric NAME=PATTERN"
)
_WIDTH = 79


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("file", metavar="FILE", help="lock, from bareboat lock")
    parser.add_argument("--yes", action="store_true", help="agree to run what the lock names")
    parser.add_argument(
        "--image", metavar="REF", help="use this image instead; capture: the active environment"
    )
    parser.add_argument("--code", metavar="DIR", help="directory with the code (default: where it was)")
    parser.add_argument(
        "--path",
        metavar="OLD=NEW",
        action="append",
        help="a path of the lock is elsewhere on this machine",
    )
    parser.add_argument(
        "--tolerance",
        metavar="[NAME=]X",
        action="append",
        help="largest relative difference that counts as equal (default: 0.01)",
    )
    parser.add_argument(
        "--ignore", metavar="NAME", action="append", help="show this metric, but do not judge it"
    )
    add_engine(parser)
    add_scheduling(parser)
    add_trust(parser)
    add_dry_run(parser)


def run(context: Context) -> int:
    """Exit with 0 for equal results, 10 for different ones, 11 where it cannot be replayed here, 13 where
    there is no metric to compare."""
    from bareboat_study.reproduction import comparison, reading, replay, retrieval

    options, session = context.options, context.session
    lock, digest = reading.read(Path(options.file))
    tolerances = comparison.read_tolerances(options.tolerance or (), options.ignore or ())
    _check_flags(lock, options, tolerances.own.keys() | tolerances.ignored)
    wishes = retrieval.Wishes(
        image=options.image, code=options.code, moved=retrieval.read_moved(options.path or ())
    )
    choice = replay.Choice(
        engine=options.engine,
        launcher=options.launcher,
        scheduler=options.scheduler,
    )
    found = replay.find(lock, session, wishes)
    retrieval.check_moved(wishes)
    job = replay.job_of(lock, found, session, choice)
    if options.dry_run:
        return _dry_run(context, lock, found, job, choice)
    _note(lock, found, job)
    replay.check(found)
    _agree(context, lock, digest)
    if found.restores is not None:
        retrieval.restore(lock, found.restores)
    prepared, plan = replay.prepare(lock, job, session, choice)
    _warn(plan)
    run_id = replay.run(
        prepared,
        plan,
        session,
        began=lambda name: console.note(f"run {name}") if not options.quiet else None,
        waiting=lambda state: session.reporter.say(f"{one_line(lock.name)} {state}"),
        stdout_apart=options.json,
    )
    judged = replay.judge(lock, run_id, session, tolerances)
    console.result_json(judged) if options.json else console.result(_verdict(lock, judged))
    return judged.code


def _note(lock: Lock, found: Found, job: Job) -> None:
    """Note what is replayed, and what cannot be compared afterwards."""
    console.note(shown(lock, found, job))
    if not lock.results.metrics:
        console.note(f"warning: {_NO_METRIC}")


def _warn(plan: Plan) -> None:
    for warning in dict.fromkeys(plan.warnings):
        console.note(f"warning: {warning}")


def _check_flags(lock: Lock, options: argparse.Namespace, names: Sequence[str] | set[str]) -> None:
    """Raise UsageError for flags that do not fit the lock."""
    known = lock.results.metrics.keys()
    if unknown := sorted(set(names) - known):
        flag = "--ignore" if unknown[0] in (options.ignore or ()) else "--tolerance"
        raise UsageError(
            f"{flag} names a metric that the lock does not have: {quoted(unknown[0], limit=100)}",
            context=f"metrics: {', '.join(map(one_line, sorted(known))) or 'none'}",
            remedy=f"bareboat replay {shlex.quote(options.file)} --dry-run",
        )


def _dry_run(context: Context, lock: Lock, found: Found, job: Job, choice: Choice) -> int:
    """Show what would be done. Nothing that the lock names runs: a plan is made only with an image of the
    store."""
    from bareboat_study.reproduction import replay

    plans: tuple[Plan, ...] = ()
    is_planned = found.restores is None and not found.missing and context.store.knows(job.image)
    if is_planned and job.engine != registry.BARE_METAL:
        plans = (replay.prepare(lock, job, context.session, choice)[1],)
    if context.options.json:
        console.result_json(
            {"parts": found.parts, "replayable": not found.missing, "plans": [render.shown(p) for p in plans]}
        )
    else:
        console.result(shown(lock, found, job))
        for plan in plans:
            console.result("\n" + plan_text(context, plan))
    replay.check(found)
    return 0


def _agree(context: Context, lock: Lock, digest: str) -> None:
    """Raise UsageError unless the user agrees to run what was shown. It holds for this file as it is."""
    options = context.options
    path = Path(options.file)
    if consent.is_given(path, digest, os.environ):
        return
    if not options.yes:
        question = "Run this? It is the command of whoever made the lock. [y/N] "
        if not console.is_interactive() or options.json or not console.says_yes(question):
            raise UsageError(
                f"{one_line(options.file)} names a command, and nobody agreed to run it",
                context=one_line(f"command: {shlex.join(lock.job.command)}", limit=500),
                remedy=f"bareboat replay {shlex.quote(options.file)} --dry-run; then the same with --yes",
            )
    consent.give(path, digest, os.environ)


def shown(lock: Lock, found: Found, job: Job) -> str:
    """What the lock is, what it runs, and what was found of its parts, for 80 columns."""
    when = f" of {one_line(lock.results.started_at, limit=40)}" if lock.results.started_at else ""
    lines = [f"{lock.kind} {one_line(lock.name)}{when}"]
    rows = [row for part in (_commands, _places, _variables, _ranks) for row in part(job)]
    for part in found.parts:
        rows.append((part.name, one_line(f"{part.state.value}: {part.text}", limit=500)))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        lines += textwrap.wrap(
            value, _WIDTH, initial_indent=f"  {name:<{width}}  ", subsequent_indent=" " * (width + 4),
            break_on_hyphens=False,
        )  # fmt: skip
    for text in lock.not_recorded:
        lines += textwrap.wrap(
            f"not recorded: {one_line(text)}", _WIDTH, initial_indent="  ", subsequent_indent="    "
        )
    return "\n".join(lines)


def _commands(job: Job) -> Iterator[tuple[str, str]]:
    command = shlex.join(job.command) or "what the image runs"
    yield "command", one_line(command, limit=2000)
    container = "WITHOUT a container" if job.engine == registry.BARE_METAL else "in a container"
    yield "runs", container
    if not job.seccomp:
        yield "filter", "without the system call filter, except for its part for the terminal"
    for module in job.modules:
        yield "module", one_line(f"{module}, loaded outside of the container", limit=300)


def _places(job: Job) -> Iterator[tuple[str, str]]:
    if job.workdir is not None:
        yield "directory", f"{one_line(job.workdir, limit=500)} (writable)"
    for mount in job.mounts:
        kind = "writable" if mount.writable else "read-only"
        yield "mount", one_line(f"{mount.source} at {mount.target} ({kind})", limit=500)
    if job.image == "capture":
        python = job.capture.python or "of the active environment"
        yield "captures", one_line(f"Python {python}; it is started outside of the container", limit=500)
        if job.capture.include:
            yield "includes", one_line(", ".join(job.capture.include), limit=500)


def _variables(job: Job) -> Iterator[tuple[str, str]]:
    for name, value in job.environment.items():
        yield "variable", one_line(f"{name}={value}", limit=300)
    for name in job.environment_from:
        yield "variable", one_line(f"{name}, from this shell", limit=300)


def _ranks(job: Job) -> Iterator[tuple[str, str]]:
    topology = job.topology
    yield "ranks", f"{topology.world_size} on {counted(topology.nodes, 'node')}"


def _verdict(lock: Lock, judged: Judgement) -> str:
    """The comparison, and what could explain a difference."""
    from bareboat_study.cli.diff import entry
    from bareboat_study.reproduction.difference import Weight
    from bareboat_study.reproduction.replay import NOT_COMPARED

    lines = ["", console.bold(f"{judged.word}: replay {judged.run} of {one_line(lock.name)}"), ""]
    for each in judged.compared:
        lines += _line(each)
    if judged.code == NOT_COMPARED:
        why = "--ignore leaves no metric to compare" if lock.results.metrics else _NO_METRIC
        lines += textwrap.wrap(why, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    found = [each for each in judged.differences if each.weight in (Weight.STRONG, Weight.POSSIBLE)]
    if found:
        title = (
            "what differs, and could explain it"
            if judged.word == "different"
            else "what differs between lock and replay"
        )
        lines += ["", title]
        for difference in found:
            lines += entry(difference)
        lines.append("  (A: the lock, B: the replay)")
    elif judged.word == "different":
        lines += ["", "nothing that was recorded explains the difference"]
    return "\n".join(lines)


def _line(each: Compared) -> list[str]:
    mark = {True: "equal    ", False: "DIFFERENT", None: "         "}[each.equal]
    text = "" if each.text in ("", "equal") else f" ({each.text})"
    first, second = one_line(each.first), one_line(each.second)
    values = first if first == second else f"{first} -> {second}"
    return textwrap.wrap(
        f"{mark}  {one_line(each.item)}: {values}{text}",
        _WIDTH,
        initial_indent="  ",
        subsequent_indent=" " * 13,
    )
