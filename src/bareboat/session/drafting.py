"""A job file for a project: what its script's imports and this site say."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from bareboat import commands, jobfile
from bareboat.captures import interpreter
from bareboat.project import draft as drafts
from bareboat.project import world
from bareboat.project.draft import Drafted
from bareboat.runs import code
from bareboat.session import sites
from bareboat_base import execute
from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line, quoted

if TYPE_CHECKING:
    from bareboat.session import Session


class Request(Struct, frozen=True, kw_only=True):
    """What the job file is for. `top`: the project's directory; `script`: relative to it."""

    top: Path
    command: tuple[str, ...]
    script: str | None
    named: str


def default_name(named: str) -> str:
    """The name of a job file, which means nothing else in a project."""
    return f"{named}-job.toml" if named in ("bareboat", "pyproject") else f"{named}.toml"


def choose(script: str | None, command: Sequence[str], here: Path) -> Request:
    """The script or command, and its project. Raises UsageError when the script is missing. The command is of
    one rank, and without programs that only change how it starts."""
    if (starter := commands.starter(command)) is not None:
        raise UsageError(
            f"{starter} starts ranks, and so does Bareboat: a job file has the program alone",
            context=shlex.join(command),
            remedy="bareboat init -- python train.py   # then ranks_per_node and nodes under [topology]",
        )
    command = commands.program(command)
    if script is None:
        if not command:
            raise UsageError(
                "no script was named",
                remedy="bareboat init SCRIPT.py; or a command: bareboat init -- COMMAND",
            )
        script = _script_of(command)
    if script is None:
        jobfile.check_script(command, str(here))
        if "/" not in command[0] and execute.which(command[0]) is None:
            raise UsageError(
                f"{quoted(command[0])} is not a program of this machine",
                remedy="correct the command: bareboat init -- python train.py",
            )
        read = commands.file(command)
        name = Path(read).stem if read else os.path.basename(command[0])
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", name) or "job"
        return Request(top=here, command=command, script=None, named=name)
    path = Path(os.path.abspath(here / script))
    if path.is_dir():
        raise UsageError(
            f"{script} is a directory, not a Python script",
            remedy=f"bareboat init {shlex.quote(script)}/SCRIPT.py",
        )
    if not os.path.lexists(path):
        raise UsageError(f"script {script!r} not found", remedy=f"ls {shlex.quote(str(path.parent)[:500])}")
    if path.suffix != ".py" and not command:
        meant = f"./{script}" if os.access(path, os.X_OK) else f"PROGRAM {script}"
        remedy = f"bareboat init -- {meant}; of a batch script: bareboat init --from {script}"
        raise UsageError(f"{script} is not a Python script", remedy=remedy)
    top = here if path.is_relative_to(here) else path.parent
    own = os.path.relpath(path, top)
    # The script's path, seen from the project.
    words = tuple(own if word == script else word for word in command or (_python(), script))
    named = "".join(c if c.isprintable() else "-" for c in path.stem) or "job"
    return Request(top=top, command=words, script=own, named=named)


def _script_of(command: Sequence[str]) -> str | None:
    """The Python script that the command starts; None for a module, and for other programs."""
    if command[0].endswith(".py"):
        return command[0]
    script = commands.file(command) if commands.is_python(command[0]) else None
    return script if script is not None and script.endswith(".py") else None


def _python() -> str:
    """The name of the environment's interpreter: not each has one that is called `python`."""
    beside = os.path.join(os.path.dirname(interpreter.choose(None)), "python")
    return "python" if os.path.exists(beside) else "python3"


def draft(session: Session, request: Request, target: Path) -> Drafted:
    """The job file for `target`. Raises UsageError."""
    site = sites.probe(session)
    judged, warnings = world.of_program(request.command[0]), []
    if request.script is not None:
        source = code.merged(request.top, request.script)
        judged = world.judge(source)
        if source.fault:
            warnings.append(f"{request.script} was not read: {source.fault}; complete the job file by hand")
    folder = None if target.parent == request.top else _named(request.top, target.parent)
    name = os.path.relpath(target)
    text = drafts.write(request.command, judged, site, name=name, workdir=folder)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{one_line(shlex.join(request.command))} is not UTF-8, and a job file is",
            remedy="rename the file, or run it without a job file:  bareboat run -- COMMAND",
        ) from None
    sizes = drafts.sized(judged, site)
    return Drafted(
        text=text,
        summary=drafts.summary(judged, site),
        warnings=tuple(warnings),
        facts={
            "script": request.script,
            "command": list(request.command),
            "framework": judged.framework,
            "reason": judged.reason,
            "ranks_per_node": sizes.ranks,
            "gpus_per_rank": sizes.gpus,
        },
    )


def _named(top: Path, folder: Path) -> str:
    """The project's directory in a job file that lies in `folder`."""
    near = os.path.relpath(top, folder)
    return near if near.count("..") <= 2 else str(top)
