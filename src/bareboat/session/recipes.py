"""A recipe for a project's image: its packages, a site's facts, and the base."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bareboat.project.findings import Drafted
from bareboat.project.recipes import choices as asked
from bareboat.project.recipes import composition, definition, dockerfile, reading, wanted
from bareboat.project.recipes.choices import Choices
from bareboat.project.recipes.document import Copy
from bareboat.project.recipes.listed import Listed
from bareboat.project.recipes.lists import KINDS
from bareboat.project.recipes.python_lists import frozen
from bareboat_base import architectures
from bareboat_base.errors import UsageError
from bareboat_base.files import mounts
from bareboat_base.printable import quoted

if TYPE_CHECKING:
    from bareboat.captures.interpreter import Interpreter
    from bareboat.model import Image, Site
    from bareboat.project.recipes.target import TargetSite
    from bareboat.project.recipes.wanted import Base, Wanted
    from bareboat.session import Session

ENVIRONMENT = "environment"
_IMAGE = "image:"


class Request(Struct, frozen=True, kw_only=True):
    """`top`: the project's directory; `script`: relative to it, None for none. `source`: a package list,
    "environment" or "image:NAME"; `site`: of --for."""

    top: Path
    script: str | None
    choices: Choices
    source: str | None = None
    site: str | None = None
    form: str = "dockerfile"


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
    asked.check(request.choices)
    site = site_of(session, request.site) if request.site is not None else None
    base = _base(session, request.choices.base, request.form) if request.choices.base is not None else None
    listed, imported = _packages(session, request)
    found = wanted.complete(
        request.choices,
        listed,
        imported,
        site,
        base,
        os.uname().machine,
        reading.python_version(request.top),
    )
    recipe = composition.compose(found, command)
    copies_all = any(
        "." in step.files for stage in recipe.stages for step in stage.steps if isinstance(step, Copy)
    )
    text = (definition if request.form == "def" else dockerfile).write(recipe)
    warnings = list(found.warnings)
    if request.form == "def" and base is not None and base.image is not None:
        warnings.append(
            f"apptainer cannot read the store: bareboat image save {shlex.quote(base.name)} "
            "sif:base.sif, and --base ./base.sif"
        )
    if copies_all and not (request.top / ".dockerignore").exists():
        warnings.append(
            "the recipe copies the whole directory, and it has no .dockerignore   "
            "# printf '%s\\n' .git .venv '**/__pycache__' > .dockerignore"
        )
    if site is not None and site.node.architecture != os.uname().machine:
        warnings.append(
            f"{site.title} has {site.node.architecture}: build the image on a machine with such a processor"
        )
    return Drafted(
        text=text, summary=_summary(found), warnings=tuple(warnings), facts=_facts(found, warnings)
    )


def _chosen(choices: Choices) -> bool:
    return any((choices.framework, choices.mpi, choices.horovod, choices.nccl, choices.python))


# -- the project -----------------------------------------------------------------------------------


def _packages(session: Session, request: Request) -> tuple[Listed | None, dict[str, str]]:
    """The package list, or what the script imports."""
    source, top = request.source, request.top
    if source is not None and (not source or not source.isprintable()):
        found = repr(source[:60]) if source else "empty"
        raise UsageError(
            f"--from is {found}: not the name of a package list", remedy="--from requirements.txt"
        )
    if source is not None and source.startswith(_IMAGE):
        return _of_image(session, source.removeprefix(_IMAGE)), {}
    if source == ENVIRONMENT:
        interpreter = _interpreter(session, top)
        versions, left_out = reading.installed(interpreter.path, interpreter.prefix)
        return frozen(versions, left_out, f"the environment {interpreter.prefix}", interpreter.version), {}
    if source is not None:
        return reading.read_list(top, source), {}
    if request.choices.framework is None or request.script is None:
        name = reading.find_list(top)
        if name is not None and (request.script is None or request.choices.framework is None):
            return reading.read_list(top, name), {}
    script = request.script
    if script is None and not _chosen(request.choices):
        script = _only_script(top)
    if script is None:
        return None, {}
    if (inline := reading.read_inline(top, script)) is not None:
        return inline, {}
    return None, reading.imported(top, script, _interpreter(session, top).path)


def _only_script(top: Path) -> str:
    """The only script of a directory without a package list. Raises UsageError."""
    from bareboat.project import scripts

    try:
        return scripts.find(top)
    except UsageError as error:
        raise UsageError(
            f"nothing in {top} names the packages of an image",
            context=f"no package list ({', '.join(KINDS)}); {error.message}",
            remedy="bareboat image init SCRIPT.py, or choose: --framework torch --mpi auto",
        ) from None


def _interpreter(session: Session, top: Path) -> Interpreter:
    """The Python of the project's own environment, by its files, else the active one."""
    from bareboat.captures.interpreter import ask, choose
    from bareboat.project import surroundings

    return surroundings.own_environment(top, session.environment) or ask(choose(None))


def _of_image(session: Session, name: str) -> Listed:
    """The Python packages of an image in the store, such as a captured environment."""
    from bareboat_images.sbom import inventory

    image = _stored(session, name)
    if image is None:
        raise UsageError(
            f"image {quoted(name, limit=200)} not found in the store",
            remedy="bareboat image ls; or: bareboat image capture --name NAME",
        )
    with session.store.guarded():
        packages = inventory.take(session.store.trees(image)).packages
    left = ("pip", "setuptools", "wheel", "bareboat")
    versions = {
        each.name: each.version
        for each in packages
        if each.kind == "pypi" and each.version and each.name not in left
    }
    if not versions:
        raise UsageError(
            f"the image {name} has no Python packages", remedy="--from FILE, or --framework NAME"
        )
    return frozen(versions, (), f"the image {name}", image.python_version or "")


# -- the base --------------------------------------------------------------------------------------


def _base(session: Session, name: str, form: str) -> Base:
    """What is known of the base, by its files if it is in the store, else by its name."""
    from bareboat_images.oci import reference

    if reference.looks_like_path(name):
        if form != "def":
            raise UsageError(
                f"the base {name} is a file, which FROM cannot name",
                remedy=f"bareboat image pull {shlex.quote(name[:200])} --name base, and --base base",
            )
        return wanted.base_of_name(name)
    image = _stored(session, name)
    if image is not None:
        _check_system(session, image, name)
        return wanted.Base(
            name=name,
            python=image.python_version or "",
            program=image.python or "python3",
            glibc=image.glibc or "",
            architecture=architectures.machine(image.architecture),
            image=image,
        )
    reference.parse(name, folder=session.folder)
    return wanted.base_of_name(name)


def _stored(session: Session, name: str) -> Image | None:
    from bareboat_images.transfer import locate

    return locate.in_store(name, session.store, folder=session.folder)


def _check_system(session: Session, image: Image, name: str) -> None:
    """Raise UsageError for a base without apt."""

    with session.store.guarded():
        view = session.store.view(image)
        if view.is_file("/usr/bin/apt-get"):
            return
    raise UsageError(
        f"the base {name} has no apt-get: recipes install Debian's or Ubuntu's packages",
        remedy="--base with an image of Debian or Ubuntu",
    )


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
