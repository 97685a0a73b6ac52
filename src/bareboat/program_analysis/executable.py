"""Find the program that a job's command starts, before the job starts."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from bareboat import commands, registry
from bareboat.engines import STARTERS
from bareboat.model import Executable, Job, Missing, Site
from bareboat.model.command import Word
from bareboat.plan import sweep
from bareboat.plan.process import command_of, image_workdir
from bareboat.program_analysis.command import MISSING, Fault, Program, Sight, candidates, no_file, resolve
from bareboat_images.model import Image
from bareboat_images.store import Store

#: Directories whose content in a container is unknown before the start.
_AT_START = ("/dev", "/proc", "/run", "/sys")


def look(store: Store, image: Image, site: Site, job: Job) -> Executable | None:
    """The program that the job's command starts; None if nothing is known. `site`: a machine that the job
    runs on."""
    argv = command_of(job, image)
    if not argv or not argv[0]:
        return None
    words = sweep.words(argv, len(job.command), job)
    word = words[0]
    environment = sweep.fixed_environment(job)
    path = environment.get("PATH", image.environment.get("PATH", ""))
    is_path_known = "PATH" in environment or "PATH" not in job.environment  # a sweep's points may differ
    known_path = path if is_path_known else None
    workdir = image_workdir(image) if job.workdir is None else job.workdir
    contains = registry.contains(job.engine)
    sight = sight_of(store, image, job)
    if sight is None:
        return None
    lacks = tuple(each for each in STARTERS if contains and sight.find(each) is None)
    unknown = Executable(word=argv[0], known=False, lacks=lacks)
    if not isinstance(word, str) or not (is_path_known or "/" in word):
        return unknown
    machine = site.architecture
    found = resolve(word, sight, path=path, workdir=workdir, machine=machine)
    missing: tuple[Missing, ...] = ()
    if contains and isinstance(found, Program):
        around = _environment(job, image)
        if image.digest and around is not None:
            missing = _missing(words, found, sight, _Context(around, path, workdir, machine))
    match found:
        case None:
            return unknown
        case Fault(code=code, remedy=remedy):
            if contains and image.digest and job.image == "capture" and code == MISSING:
                here = resolve(word, _of_machine(), path=path, workdir=workdir, machine=machine)
                if isinstance(here, Program):
                    remedy = _capture_remedy(here, sight)
            return Executable(
                word=word,
                code=code,
                reason=found.reason,
                context=found.context,
                remedy=remedy,
                place=sight.source(found.at) or "",
            )
        case Program() if (absent := _absent_script(words, sight, job, known_path, workdir)) is not None:
            return absent
        case Program(mounted=True, place=place) if contains or "/" in word:
            return Executable(word=word, place=place, lacks=lacks, missing=missing)
        case _:
            return Executable(word=word, lacks=lacks, missing=missing)


def _capture_remedy(here: Program, sight: Sight) -> str:
    """What brings a program of this machine into the container: its file, or the interpreter that is missing
    there."""
    lacking: Program | None = here
    while lacking is not None and sight.find(lacking.path) is not None:
        lacking = lacking.interpreter
    if lacking is None or lacking is here:
        return f'set include = ["{here.place}"] under [capture]'
    return f'set programs = ["{os.path.basename(lacking.word)}"] under [capture]'


class _Context(NamedTuple):
    environment: dict[str, str]
    path: str
    workdir: str
    machine: str


def _environment(job: Job, image: Image) -> dict[str, str] | None:
    """The variables of the command; None if its library path is known at the start only."""
    fixed = sweep.fixed_environment(job)
    if "LD_LIBRARY_PATH" in {*job.environment, *job.environment_from} - fixed.keys():
        return None
    return {**image.environment, **fixed}


def _missing(words: Sequence[Word], found: Program, sight: Sight, around: _Context) -> tuple[Missing, ...]:
    """The libraries that the program needs and the container lacks."""
    environment, path, workdir, machine = around
    if any(isinstance(word, str) and word.startswith("LD_LIBRARY_PATH=") for word in words):
        return ()
    known = tuple(word if isinstance(word, str) else "" for word in words)
    plain = commands.program(known) or known
    program: Program | Fault | None = found
    if plain[0] != known[0]:
        program = resolve(plain[0], sight, path=path, workdir=workdir, machine=machine)
    if not isinstance(program, Program):
        return ()
    name = os.path.basename(program.path)
    if program.interpreter is not None:  # a script with a line #!
        program = program.interpreter
    if program.machine is None or name.startswith(("python", "pypy")):
        return ()  # the image's Python was surveyed
    from bareboat.program_analysis import libraries

    loader = libraries.ContainerLoader(sight, environment, workdir, machine)
    return libraries.missing(program.path, program.place, loader)


def _absent_script(
    words: Sequence[Word], sight: Sight, job: Job, path: str | None, workdir: str
) -> Executable | None:
    """The script in an interpreter's command that the interpreter does not find. `path`: None where PATH is
    not known."""
    known = tuple(word if isinstance(word, str) else "" for word in words)
    script = commands.file(known)
    if script is None:
        return None
    places = [os.path.join(workdir, script)]
    if "/" not in script and commands.is_shell(commands.program(known)[0]):
        if path is None:
            return None
        places += candidates(script, path, workdir)
    if any(sight.find(os.path.normpath(each)) is not None for each in places):
        return None
    here = places[0]
    if not os.path.isfile(here) or (job.workdir is None and not script.startswith("/")):
        fault = no_file(script, sight, workdir)
        place = sight.source(fault.at) or ""
        return Executable(word=script, code=MISSING, reason=fault.reason, remedy=fault.remedy, place=place)
    real = os.path.realpath(here)
    leads = f"leads to {real}, which " if os.path.islink(here) else ""
    folder = os.path.dirname(real)
    import json

    return Executable(
        word=script,
        code=MISSING,
        reason=f"{leads}is not in the container",
        context=f"of this machine it shows the working directory, {workdir}, and the job's mounts",
        remedy=f"cd {shlex.quote(folder)}, and run it there; or in a job file: "
        f"mounts = [{json.dumps(folder)}]",
    )


def sight_of(store: Store, image: Image, job: Job) -> Sight | None:
    """The files visible to the job's command; None if the image's files are not on this machine."""
    return _of_container(store, image, job) if registry.contains(job.engine) else _of_machine()


def _of_container(store: Store, image: Image, job: Job) -> Sight | None:
    """The files visible in a container; this machine's files for an environment not captured yet."""
    mounts = {mount.target: mount.source for mount in job.mounts}
    if job.workdir is not None:
        mounts.setdefault(job.workdir, job.workdir)
    if not image.digest:
        return Sight([], mounts={"/": "/", **mounts}, name="this machine")
    layers = store.trees(image)
    flat = store.flat(image.digest)
    tree = flat if flat.is_dir() else None
    if tree is None and not all(layer.is_dir() for layer in layers):
        return None
    return Sight(
        layers,
        tree=tree,
        mounts={**dict.fromkeys(_AT_START), **mounts},
        kept=[prefix.path for prefix in image.prefixes],
        name="the captured environment" if job.image == "capture" else job.image,
    )


def _of_machine() -> Sight:
    return Sight([], mounts={"/": "/"}, name="this machine")
