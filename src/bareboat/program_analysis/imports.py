"""The modules that a job's Python program imports for certain, and that its container does not have."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from bareboat import commands, registry
from bareboat.model import Job
from bareboat.plan import sweep
from bareboat.plan.process import command_of, image_workdir
from bareboat.program_analysis import python_path
from bareboat.program_analysis.command import Sight, candidates
from bareboat.program_analysis.executable import sight_of
from bareboat_base.expressions import expression
from bareboat_base.paths import DEFAULT_PATH
from bareboat_images.model import Image
from bareboat_images.store import Store

if TYPE_CHECKING:
    from bareboat.program_analysis.executed_imports import Import

_PYTHON = expression(r"python[\d.]*")
_START = expression(r"-[bBdEiIOPqsSuvx]*([cm])?(.*)")
#: Words with which a program may end before it imports anything.
_HELP = {"-h", "--help", "--version", "--helpfull"}
_SYSTEM = ("/usr/bin", "/bin", "/usr/local/bin")


class AbsentImports(NamedTuple):
    """What no place of the container has. `python`: the interpreter; `path`: the directories of PYTHONPATH;
    not `is_certain`: the interpreter may find them by code of its own."""

    python: str
    path: tuple[str, ...]
    imports: tuple[Import, ...]
    is_certain: bool


class _Start(NamedTuple):
    """A Python that runs a script, or with the option -c or -m what follows it."""

    python: str
    option: str
    word: str


def absent(store: Store, image: Image, job: Job, named: frozenset[str] | None) -> AbsentImports | None:
    """What the program of a job imports for certain and no place has; None where that is nothing, or is not
    known. `named`: the modules that its files import, None where they were not read."""
    environment = {**image.environment, **sweep.fixed_environment(job)}
    if _is_open(job, image, environment) or (sight := sight_of(store, image, job)) is None:
        return None
    workdir = image_workdir(image) if job.workdir is None else job.workdir
    argv = command_of(job, image)
    known = [word if isinstance(word, str) else "" for word in sweep.words(argv, len(job.command), job)]
    start = _start(known, sight, environment.get("PATH") or DEFAULT_PATH, workdir)
    if start is None or (_is_other_machine(job) and os.path.dirname(start.python) in _SYSTEM):
        return None
    given = [os.path.join(workdir, each) for each in environment.get("PYTHONPATH", "").split(":") if each]
    search = python_path.find(start.python, sight, given)
    if search is None:
        return None
    folder = workdir
    if not start.option:
        node = sight.find(start.word)
        folder = os.path.dirname(node.path if node is not None else start.word)
    places = (folder, *search.given, *search.added)
    present = search.installed.union(*(python_path.names(sight, each) for each in places))
    if not start.option and named is not None and named <= present:
        return None
    from bareboat.program_analysis import executed_imports

    imports = executed_imports.find(start.option, start.word, folder, sight, search)
    first = {each.name: each for each in reversed(imports) if each.name not in present}
    if not first:
        return None
    return AbsentImports(start.python, search.given, tuple(reversed(first.values())), search.is_whole)


def _is_open(job: Job, image: Image, environment: dict[str, str]) -> bool:
    """Whether modules may come from places that are not known before the start."""
    path = environment.get("PYTHONPATH", "")
    return bool(
        job.modules
        or job.site_layer
        or image.site_layer is not None
        or job.scheduling.after  # an earlier job may write them
        or {"PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONNOUSERSITE", "PYTHONUSERBASE"} & job.environment.keys()
        or "PYTHONPATH" in job.environment.keys() - environment.keys()
        or "$" in path
        or not _HELP.isdisjoint(job.command)
    )


def _is_other_machine(job: Job) -> bool:
    return registry.is_queued(job.scheduler) and not registry.contains(job.engine)


def _start(words: list[str], sight: Sight, path: str, workdir: str) -> _Start | None:
    """The Python that a command starts; None for other programs, and where it is not seen."""
    plain = commands.program(words)
    if not plain or any(word.startswith("PYTHON") for word in words[: len(words) - len(plain)]):
        return None
    program = _seen(plain[0], sight, path, workdir)
    if program is None:
        return None
    if _PYTHON.fullmatch(os.path.basename(program)):
        return _with_words(program, plain[1:], workdir)
    head = (python_path.text_of(sight, program) or b"")[:256].partition(b"\n")[0]
    named = os.fsdecode(head).removeprefix("#!").split() if head.startswith(b"#!") else []
    if len(named) == 2 and os.path.basename(named[0]) == "env":
        python = _seen(named[1], sight, path, workdir)
        named = [] if python is None else [python]
    if not named or not _PYTHON.fullmatch(os.path.basename(named[0])):
        return None
    return _Start(named[0], "", program)


def _with_words(python: str, words: tuple[str, ...], workdir: str) -> _Start | None:
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            return _Start(python, "", os.path.join(workdir, word)) if word not in ("", "-") else None
        if word in ("-W", "-X"):
            next(rest, "")
        elif not word.startswith(("-W", "-X")):
            if (found := _START.fullmatch(word)) is None:
                return None
            if found[1]:
                target = found[2] or next(rest, "")
                return _Start(python, f"-{found[1]}", target) if target else None
            if found[2]:
                return None
    return None


def _seen(word: str, sight: Sight, path: str, workdir: str) -> str | None:
    """The path without . and .. at which a program is found, its links not followed."""
    places = map(os.path.normpath, candidates(word, path, workdir))
    return next((each for each in places if sight.find(each) is not None), None)
