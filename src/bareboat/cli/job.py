"""The job of a command line: its job file or command, with the flags applied."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bareboat import render
from bareboat.cli import console
from bareboat.cli.folding import folded
from bareboat.model.job import KEYS
from bareboat.model.keys import replaced, value_of
from bareboat_base.errors import UsageError
from bareboat_base.files import untrusted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from bareboat.cli.common import Context
    from bareboat.model import Job, Plan, Topology

#: Of a short plan in a pipe or a file. The long one has a line for each reason there.
_PIPE_WIDTH = 80
#: The flags that only a scheduler uses.
_SCHEDULERS = tuple(
    key.dest
    for name, key in KEYS.items()
    if key.flags and (name.startswith("scheduling.") or name in ("delivery", "node_scratch"))
)


def read_job(context: Context) -> Job:
    """The job of FILE, `SCRIPT.py …` or `-- COMMAND`, with the flags applied."""
    from bareboat import jobfile

    options = context.options
    # `prove` measures on this machine unless the job itself names a scheduler.
    queued = hasattr(options, "scheduler") and (options.verb != "prove" or options.scheduler is not None)
    settings = context.settings.of_queue(queued)
    command = getattr(options, "command", None)
    if options.file and command:
        remedy = shlex.join(["bareboat", options.verb, "--", *command])
        raise UsageError("a job file and a command were both given", remedy=remedy)
    if options.file:
        job = jobfile.read_job(
            Path(options.file), settings, image=options.image, assignments=options.assignments
        )
    elif command or options.image:
        job = jobfile.job_of_command(
            command or (),
            settings,
            workdir=os.getcwd(),
            image=options.image,
            assignments=options.assignments,
        )
        _check_flags_of_script(options)
    else:
        job = jobfile.read_job(_job_file_here(context), settings, assignments=options.assignments)
    return with_flags(options, job)


def _check_flags_of_script(options: argparse.Namespace) -> None:
    """Raise UsageError for Bareboat's flags that follow a script, if its text does not name them."""
    given: dict[str, list[int]] = getattr(options, "flags_of_script", {})
    if not given:
        return
    _, script, *words = options.command
    try:
        text = untrusted.read_bytes(script, follow=True).decode(errors="replace")
    except OSError:
        return
    flags = [flag for flag in given if not _names(text, flag)]
    places = [at for flag in flags for at in given[flag] if at < len(words)]
    if flags:
        rest = [word for at, word in enumerate(words) if at not in places]
        meant = [*options.own_words, *(words[at] for at in places), script, *rest]
        kept = [*options.own_words, "--", *options.command]
        shown = f"{' and '.join(flags)} {'follow' if flags[1:] else 'follows'} {script}"
        before, own = (shlex.join(["bareboat", options.verb, *each]) for each in (meant, kept))
        raise UsageError(
            f"{shown}, which does not name {'them' if flags[1:] else 'it'}",
            context=f"a flag of the script: {own}",
            remedy=f"{before}   # a flag of Bareboat",
        )


def _names(text: str, flag: str) -> bool:
    """Whether a script has a flag or, as libraries make flags of them, a parameter of this name."""
    name = flag[2:].replace("-", "[-_]") if flag.startswith("--") else re.escape(flag)
    return re.search(rf"(?<!\w){name}(?!\w)", text) is not None


def _job_file_here(context: Context) -> Path:
    """The job file of the working directory, for a command that names none. Anybody could put one into a
    directory that all may write to, so it must be the user's own. Raises UsageError."""
    from bareboat_base.files import ownership

    path = Path("job.toml")
    if not os.path.lexists(path):
        raise UsageError("nothing to run", remedy="give a job file, a Python script, or a command after --")
    if (doubt := ownership.doubt(path)) is not None:
        verb = context.options.verb
        raise UsageError(
            f"nothing to run: {path.absolute()} is not taken unless it is named, since others can change it",
            context=str(doubt),
            remedy=f"bareboat {verb} job.toml   # after a look into it",
        )
    context.progress.note(f"note: {context.options.verb} takes {path}")
    return path


def with_flags(options: argparse.Namespace, job: Job) -> Job:
    """The job with the flags that are no settings."""
    import msgspec

    job = replaced(job, dict(_of_flags(options, job)))
    job = msgspec.structs.replace(job, topology=_shared(job.topology, options))
    if (at_once := getattr(options, "at_once", None)) is not None:
        if job.sweep is None:
            raise UsageError("--at-once needs a sweep, and the job has no [sweep]", remedy="remove --at-once")
        job = msgspec.structs.replace(job, sweep=msgspec.structs.replace(job.sweep, at_once=at_once))
    return job


def _of_flags(options: argparse.Namespace, job: Job) -> Iterator[tuple[str, Any]]:
    """The keys that flags set, with their values; without those of settings and of a study's design."""
    for name, key in KEYS.items():
        value = getattr(options, key.dest, None) if key.flags and not key.is_setting else None
        if value is None or value is False or name == "image" or name.startswith("prove."):
            continue
        key.check_value(key.flags[-1], tuple(value) if isinstance(value, list) else value)
        yield name, tuple(dict.fromkeys((*value_of(job, name), *value))) if isinstance(value, list) else value


def words_of_run(options: argparse.Namespace) -> list[str]:
    """The words of `bareboat run` that start the job on this machine; none where they are not known."""
    if options.file and os.path.isfile(options.file):
        return [*_words_of_job(options), options.file]
    return [*_words_of_job(options), "--", *options.command] if options.command else []


def _words_of_job(options: argparse.Namespace) -> list[str]:
    """The flags that make the job what it is, as they were given: not those of schedulers and of studies."""
    found: list[str] = []
    for name, key in KEYS.items():
        value = getattr(options, key.dest, None) if key.flags and key.dest not in _SCHEDULERS else None
        if value is None or value is False or name == "scheduler" or name.startswith("prove."):
            continue
        flag = key.flags[-1]
        for each in value if isinstance(value, list) else [value]:
            text = str(each) if key.range is None else key.range.written(each)
            found += [flag] if each is True else [flag, text]
    more = (("--ntasks", options.ntasks), ("--gpus", options.gpus), ("--policy", options.policy))
    for flag, value in more:
        found += [flag, str(value)] if value is not None else []
    found += ["--require-digest"] * bool(options.require_digest)
    return found + [word for each in options.assignments for word in ("--set", each)]


def note_ignored(context: Context) -> None:
    """Note the flags that have no effect on a run on this machine."""
    given = [name for name in _SCHEDULERS if getattr(context.options, name, None) is not None]
    if given:
        flags = ", ".join("--" + name.replace("_", "-") for name in given)
        context.progress.note(f"note: runs on this machine ignore {flags}: only schedulers use them")


def show_plan(context: Context, plan: Plan) -> None:
    """Print the decisions; with --verbose, all reasons and the rejected alternatives."""
    if context.options.json:
        console.result_json(render.shown(plan))
    else:
        width = console.width() or (None if context.options.verbose else _PIPE_WIDTH)
        console.result(folded(plan_text(context, plan), width))


def plan_text(context: Context, plan: Plan) -> str:
    """The plan as short as the flags ask for."""
    return render.text(plan) if context.options.verbose else render.brief(plan)


def show_warnings(plan: Plan) -> None:
    for warning in plan.warnings:
        console.note(f"warning: {warning}")


def _shared(topology: Topology, options: argparse.Namespace) -> Topology:
    """The topology with the flags' numbers in all, as of srun -n and --gpus, which are divided evenly."""
    import msgspec

    if (ranks := options.ntasks) is not None:
        per_node = _share(ranks, topology.nodes, "--ntasks", f"{topology.nodes:,} nodes")
        topology = msgspec.structs.replace(topology, ranks_per_node=per_node)
    if (gpus := options.gpus) is not None:
        per_rank = _share(gpus, topology.world_size, "--gpus", f"{topology.world_size:,} processes")
        topology = msgspec.structs.replace(topology, gpus_per_rank=per_rank)
    return topology


def _share(total: int, parts: int, flag: str, shown: str) -> int:
    share, rest = divmod(total, parts)
    if rest:
        raise UsageError(
            f"{flag} is {total:,}, which cannot be divided evenly over {shown}",
            remedy=f"{flag} {parts * (share + 1)}",
        )
    return share
