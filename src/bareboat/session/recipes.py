"""A recipe for a project's image: its packages, a site's facts, and the base."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bareboat.program_analysis.imports import OTHER_NAMES
from bareboat.project.draft import Drafted
from bareboat.project.recipes import composition, lists, wanted
from bareboat.project.recipes.lists import KINDS, Listed, normal
from bareboat.project.recipes.wanted import Choices
from bareboat.runs import code
from bareboat_base.errors import UsageError
from bareboat_base.expressions import expression
from bareboat_base.files import mounts, untrusted
from bareboat_base.printable import one_line

if TYPE_CHECKING:
    from bareboat.model import Site
    from bareboat.project.recipes.target import TargetSite
    from bareboat.project.recipes.wanted import Wanted
    from bareboat.session import Session


class Request(Struct, frozen=True, kw_only=True):
    """`top`: the project's directory; `script`: relative to it, None for none. `source`: a package list;
    `site`: of --for."""

    top: Path
    script: str | None
    choices: Choices
    source: str | None = None
    site: str | None = None


def place(text: str | None, here: Path) -> tuple[Path, str | None]:
    """The project's directory and the script of an argument. Raises UsageError where there is neither."""
    if text is not None and (not text or not text.isprintable()):
        found = repr(text[:60]) if text else "an empty name"
        raise UsageError(
            f"{found} is no directory and no script", remedy="bareboat image init .   # this directory"
        )
    path = Path(os.path.abspath(here / (text or ".")))
    if path.is_dir():
        return path, None
    if not os.path.lexists(path):
        above = shlex.quote(mounts.existing(str(path.parent)))
        raise UsageError(f"{path} not found", remedy=f"ls {above}   # then name a directory, or a script")
    if path.suffix != ".py":
        raise UsageError(
            f"{path} is neither a directory nor a Python script",
            remedy=f"bareboat image init {shlex.quote(str(path.parent))}",
        )
    top = here if path.is_relative_to(here) else path.parent
    return top, os.path.relpath(path, top)


def write(session: Session, request: Request, command: str) -> Drafted:
    """The recipe. `command`: how to write it again. Raises UsageError and PlanError."""
    wanted.check_choices(request.choices)
    site = site_of(session, request.site) if request.site is not None else None
    listed, imported = _packages(request)
    found = wanted.complete(
        request.choices, listed, imported, site, os.uname().machine, computes_on_cpus=_computes_on_cpus()
    )
    warnings = list(found.warnings)
    if listed is not None and listed.builds and not (request.top / ".dockerignore").exists():
        warnings.append(
            "the recipe copies the whole directory, and it has no .dockerignore   "
            "# printf '%s\\n' .git .venv '**/__pycache__' > .dockerignore"
        )
    if site is not None and site.node.architecture != os.uname().machine:
        warnings.append(
            f"{site.title} has {site.node.architecture}: build the image on a machine with such a processor"
        )
    return Drafted(
        text=composition.compose(found, command),
        summary=_summary(found),
        warnings=tuple(warnings),
        facts=_facts(found, warnings),
    )


def _chosen(choices: Choices) -> bool:
    return any((choices.framework, choices.mpi, choices.horovod))


# -- the project -----------------------------------------------------------------------------------


def _packages(request: Request) -> tuple[Listed | None, dict[str, str]]:
    """The package list, or what the script imports."""
    from bareboat.captures.interpreter import ask, choose

    source, top = request.source, request.top
    if source is not None and (not source or not source.isprintable()):
        found = repr(source[:60]) if source else "empty"
        raise UsageError(
            f"--from is {found}: not the name of a package list", remedy="--from requirements.txt"
        )
    if source is not None:
        return _read_list(top, source), {}
    if request.choices.framework is None or request.script is None:
        name = _find_list(top)
        if name is not None and (request.script is None or request.choices.framework is None):
            return _read_list(top, name), {}
    script = request.script
    if script is None and not _chosen(request.choices):
        raise UsageError(
            f"nothing in {top} names the packages of an image",
            context=f"no package list ({', '.join(KINDS)})",
            remedy="bareboat image init SCRIPT.py, or choose: --framework torch --mpi auto",
        )
    if script is None:
        return None, {}
    return None, _imported(top, script, ask(choose(None)).path)


def _computes_on_cpus() -> bool:
    """Whether the active environment has a framework, and no CUDA."""
    from bareboat.captures import describe_of
    from bareboat.captures.interpreter import ask, choose

    image = describe_of(ask(choose(None)))
    return image.cuda is None and bool({"torch", "tensorflow", "jax"} & image.frameworks.keys())


# -- the site --------------------------------------------------------------------------------------


def site_of(session: Session, text: str) -> TargetSite:
    """The site that --for names: this machine, facts in the store, or a file of `doctor --export`."""
    from bareboat.project.recipes.target import TargetSite
    from bareboat.session import sites

    if text == "here":
        login = sites.probe(session)
        node = sites.compute_node(session, _job_here(session, login), login)
        title = "this machine"
    else:
        title, known, node = sites.named(session, text)
        login = known or sites.probe(session)
    return TargetSite(title=title, login=login, node=node or login, probed_node=node is not None)


def _job_here(session: Session, login: Site) -> Any:
    from bareboat.model import Job, Scheduling

    settings = session.settings
    return Job(
        name="init",
        command=("true",),
        workdir="/",
        scheduler=settings["scheduler"] or login.working_scheduler,
        scheduling=Scheduling(partition=settings["partition"]),
    )


# -- what is said ----------------------------------------------------------------------------------


def _summary(found: Wanted) -> str:
    parts = [f"from {found.base}"]
    if found.listed is not None:
        parts.append(found.listed.file)
    if found.release is not None:
        parts.append(found.release.requirement)
    if found.cuda:
        parts.append(f"CUDA {found.cuda}")
    if found.mpi is not None:
        parts.append(found.mpi.facts.title)
    if found.choices.horovod:
        parts.append("Horovod")
    return ", ".join(parts)


def _facts(found: Wanted, warnings: list[str]) -> dict[str, Any]:
    return {
        "base": found.base,
        "python": found.python,
        "list": found.listed.file if found.listed is not None else None,
        "locked": found.listed.locked if found.listed is not None else None,
        "framework": found.release.requirement if found.release is not None else None,
        "cuda": found.cuda or None,
        "mpi": found.mpi.title if found.mpi is not None else None,
        "site": found.site.title if found.site is not None else None,
        "reasons": {name: why for name, why in found.why.items() if why},
        "warnings": warnings,
    }


#: Lock files of real projects have up to some MB.
_LARGEST = 64 << 20
_VERSION = expression(r"[0-9A-Za-z.!+_-]{1,100}")


def _find_list(top: Path) -> str | None:
    """The package list of a directory: the first of the known ones, with its companion."""
    for name, kind in lists.KINDS.items():
        companion = lists.COMPANIONS.get(kind)
        if not (top / name).is_file() or (companion is not None and not (top / companion).is_file()):
            continue
        if kind != "project" or lists.names_packages(_content(top / name)):
            return name
    return None


def _read_list(top: Path, name: str) -> Listed:
    """Read a list, relative to `top`. Raises UsageError."""
    path = top / name
    if os.path.isabs(name) or ".." in Path(name).parts:
        raise UsageError(
            f"the package list {one_line(name)} is outside the directory {top}",
            remedy="give the directory of the list: bareboat image init DIR --from FILE",
        )
    kind = lists.KINDS.get(os.path.basename(name), "requirements")
    companion = ""
    if (other := lists.COMPANIONS.get(kind)) is not None:
        companion = _content(path.with_name(other))
    return lists.read(name, _content(path), companion)


def _imported(top: Path, script: str, path: Iterable[str]) -> dict[str, str]:
    """The packages that a script and its modules import -> the version that the environment `path` has, ""
    for none. Raises UsageError for a script that cannot be read."""
    read = code.merged(top, script)
    if read.fault:
        raise UsageError(
            f"{one_line(script)} cannot be read: {read.fault}",
            remedy="name its packages in requirements.txt",
        )
    versions = dict(_distributions(path))
    names = {each.package for each in read.imports if each.is_outer}
    foreign = sorted(names - {""} - set(sys.stdlib_module_names) - code.own_packages(top, script))
    asked = dict.fromkeys(normal(OTHER_NAMES.get(name, name)) for name in foreign)
    return {name: versions.get(name, "") for name in asked if name}


def _distributions(path: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Name and version of what is installed, the first that Python finds last."""
    for each in reversed(list(metadata.distributions(path=list(path)))):
        with contextlib.suppress(KeyError, OSError, ValueError, TypeError):
            name, version = each.metadata["Name"], each.version
            if name and version and _VERSION.fullmatch(version):
                yield normal(one_line(name)), version


def _content(path: Path) -> str:
    try:
        return untrusted.read_bytes(path, limit=_LARGEST, follow=True).decode()
    except OSError as error:
        raise untrusted.unreadable(path, error) from None
    except ValueError:
        raise UsageError(f"{path} is not UTF-8 text", remedy=f"file {shlex.quote(str(path))}") from None
