"""A job file for a project: what its code and this site reveal, and a plan that shows that it works."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from bareboat import commands, jobfile, registry
from bareboat.project import code, drafts, scripts, surroundings, text, world
from bareboat.project.findings import Draft, Drafted, Findings
from bareboat.session import layers, sites
from bareboat_base.errors import PlanError, ProgramError, UsageError
from bareboat_base.files import untrusted

if TYPE_CHECKING:
    from bareboat.captures.interpreter import Interpreter
    from bareboat.model import Image, Job, Plan, Site
    from bareboat.project.scripts import Script
    from bareboat.session import Session

_PYTHON = "python"
#: Names that mean something else in a project.
_RESERVED = ("bareboat.toml", "pyproject.toml")


class Request(Struct, frozen=True, kw_only=True):
    """What the job file is for. `top`: the project's directory; `script`: relative to it."""

    top: Path
    command: tuple[str, ...]
    script: str | None
    named: str

    @property
    def default_name(self) -> str:
        name = f"{self.named}.toml"
        return f"{self.named}-job.toml" if name in _RESERVED else name


def choose(script: str | None, command: Sequence[str], here: Path) -> Request:
    """The script or command, and its project. Raises UsageError when the script is missing, and when it must
    be named. The command is of one rank, and without programs that only change how it starts."""
    if (starter := commands.starter(command)) is not None:
        raise UsageError(
            f"{starter} starts ranks, and so does Bareboat: a job file has the program alone",
            context=shlex.join(command),
            remedy="bareboat init -- python train.py   # then ranks_per_node and nodes under [topology]",
        )
    command = commands.program(command)
    if script is None:
        script = scripts.of_command(command) if command else scripts.find(here)
    if script is None:
        jobfile.check_script(command, str(here))
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(command[0])) or "job"
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
        raise UsageError(
            f"{script} is not a Python script", remedy=f"give it as a command:  bareboat init -- ./{script}"
        )
    top = here if path.is_relative_to(here) else path.parent
    own = os.path.relpath(path, top)
    # The script's path, seen from the project.
    words = tuple(own if word == script else word for word in command or (_PYTHON, script))
    return Request(top=top, command=words, script=own, named=_plain(path.stem))


def draft(session: Session, request: Request, target: Path) -> Drafted:
    """The job file for `target`: the first choice that the planner accepts. Raises UsageError, and
    ProgramError for a command that the environment does not have."""
    found = _findings(session, request, target)
    made, fault = _chosen(session, found, target)
    content = text.write(found, made, name=os.path.relpath(target), plans=fault)
    return Drafted(
        text=content,
        summary=text.summary(found, made),
        warnings=tuple(_warnings(found, fault)),
        facts={
            "script": found.script,
            "command": list(found.command),
            "framework": found.world.framework,
            "reason": found.world.reason,
            "ranks_per_node": made.ranks,
            "gpus_per_rank": made.gpus,
            "launcher": made.launcher,
            "missing_packages": list(found.around.missing),
            "problem": fault or None,
        },
    )


def _plain(stem: str) -> str:
    return "".join(c if c.isprintable() else "-" for c in stem) or "job"


def _findings(session: Session, request: Request, target: Path) -> Findings:
    from bareboat.captures import describe_of
    from bareboat.captures.interpreter import ask, choose

    top = request.top
    read = scripts.read(top, request.script) if request.script is not None else None
    source = read.code if read is not None else code.Code()
    own = surroundings.own_environment(top, session.environment)
    interpreter = own or ask(choose(None))
    image = describe_of(interpreter)
    site = sites.with_filters(session, sites.probe(session))
    local = read.local if read is not None else frozenset()
    around = surroundings.Surroundings(
        python=os.path.relpath(own.executable, target.parent) if own is not None else None,
        environment=interpreter.prefix,
        lists=surroundings.package_lists(top),
        missing=() if source.fault else surroundings.missing(source, local, interpreter.path),
        places=surroundings.places(top, source, os.path.expanduser("~")),
        checkpoints=surroundings.checkpoints(top),
    )
    judged = world.judge(source)
    command = _runnable(request.command, interpreter)
    if read is None:
        judged = world.of_program(command[0], uses_mpi=_uses_mpi(session, request, image, site))
    return Findings(
        command=command,
        script=request.script,
        code=source,
        world=judged,
        around=around,
        image=image,
        site=site,
        workdir=None if target.parent == top else _named(top, target.parent),
        extra_path=_extra_path(read, interpreter),
        program=_own_program(top, command[0], target.parent),
    )


def _uses_mpi(session: Session, request: Request, image: Image, site: Site) -> bool:
    """Whether the command's program is linked to an MPI, by its file."""
    from bareboat.model import Job, Topology

    job = Job(
        name="init",
        command=request.command,
        workdir=str(request.top),
        topology=Topology(ranks_per_node=2),
        engine=registry.BARE_METAL,
    )
    program = layers.with_linked(session, job, image, site).program
    return program is not None and bool(program.mpi)


def _named(top: Path, folder: Path) -> str:
    """The project's directory in a job file that lies in `folder`."""
    near = os.path.relpath(top, folder)
    return near if near.count("..") <= 2 else str(top)


def _runnable(command: tuple[str, ...], interpreter: Interpreter) -> tuple[str, ...]:
    """The command with the Python of the environment."""
    first = command[0]
    if os.path.realpath(first) == os.path.realpath(interpreter.executable) and "/" in first:
        first = _PYTHON
    if first != _PYTHON:
        return command
    if not os.path.exists(os.path.join(os.path.dirname(interpreter.executable), first)):
        first = "python3"
    return (first, *command[1:])


def _extra_path(read: Script | None, interpreter: Interpreter) -> tuple[str, ...]:
    """Directories with modules that the script imports, other than its own, which Python searches."""
    if read is None:
        return ()
    own = os.path.normpath(os.path.dirname(read.name) or ".")
    installed = {os.path.realpath(path) for path in interpreter.path}
    return tuple(
        sorted(root for root in read.roots if root != own and os.path.realpath(root) not in installed)
    )


def _own_program(top: Path, program: str, folder: Path) -> str | None:
    """The ELF file of the project that the command starts, for a job file in `folder`."""
    if "/" not in program or program.startswith("/"):
        return None
    try:
        if untrusted.read_head(top / program, limit=4) != b"\x7fELF":
            return None
    except OSError:
        return None
    path = os.path.relpath(top / program, folder)
    return path if "/" in path else f"./{path}"


def _chosen(session: Session, found: Findings, target: Path) -> tuple[Draft, str]:
    """The first draft that the planner accepts, with a launcher that fits the script; and why none is."""
    last, fault = None, ""
    for each in drafts.drafts(found):
        last = each
        try:
            plan = _plan(session, found, each, target)
        except ProgramError:
            raise
        except PlanError as error:
            fault = error.message
            continue
        if each.ranks == 1 or not found.world.launchers or plan.launcher in found.world.launchers:
            return _with_planned(each, plan), ""
        for other in drafts.with_launchers(each, found):
            try:
                _plan(session, found, other, target)
            except PlanError:
                continue
            return other, ""
        expected = " or ".join(found.world.launchers)
        lacking = f"the planner chooses the launcher {plan.launcher}, and the script is made for {expected}"
        fault = (
            f"{lacking}: {', '.join(found.around.missing)} not installed" if found.around.missing else lacking
        )
        return each, fault
    assert last is not None
    return last, fault


def _with_planned(draft: Draft, plan: Plan) -> Draft:
    """The draft with the planner's launcher and its reason, for a comment."""
    if draft.ranks == 1:
        return draft
    reason = next((each.reason for each in plan.decisions if each.subject == "launcher"), "")
    return structs.replace(draft, why={**draft.why, "planned": f"{plan.launcher}: {reason}"})


def _plan(session: Session, found: Findings, draft: Draft, target: Path) -> Plan:
    from bareboat.model import CodeFacts
    from bareboat.plan import plan
    from bareboat.program_analysis.executable import look
    from bareboat.runs.programs import provide

    job = _job(session, found, draft, target)
    site: Site = found.site
    if job.scheduler is not None:
        site = provide(session.store, site)
    node = sites.compute_node(session, job, site)
    image = found.image
    described = layers.described_with_site_layer(session, job, image, site, node)
    program = look(session.store, image, node or site, job)
    return plan(job, described, None, site, node=node, code=CodeFacts(program=program))


def _job(session: Session, found: Findings, draft: Draft, target: Path) -> Job:
    """The job as `bareboat plan` reads it from the file. An error there is a fault of this program."""
    from bareboat.session.defaults import with_settings
    from bareboat_base.toml import TomlFile

    content = text.write(found, draft, name=target.name).encode()
    file = TomlFile(target, content)
    job = jobfile.job_of(
        file, session.settings, folder=target.parent.resolve(), called=jobfile.name_of(target)
    )
    return with_settings(job, session.settings)


def _warnings(found: Findings, fault: str) -> list[str]:
    warnings = []
    if found.code.fault:
        warnings.append(f"{found.script} was not read: {found.code.fault}; complete the job file by hand")
    if found.around.missing:
        missing = ", ".join(found.around.missing)
        warnings.append(
            f"the environment {found.around.environment} lacks {missing}; try: {found.around.install}"
        )
    if fault:
        warnings.append(f"the job cannot run here yet: {fault}")
    required = [argument.name for argument in found.code.arguments if argument.required]
    if required and len(found.command) <= 2:
        warnings.append(f"the script requires arguments: {', '.join(required)}; add them to the command")
    return warnings
