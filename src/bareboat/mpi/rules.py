"""What happens when a launcher starts ranks that use an MPI library: whether they become one world.

A launcher and a library communicate by a PMI. If they have none in common, the worst case is silent: every
rank becomes a singleton, trains a model of its own, and exits with 0. The rules below are the reasons behind
what was measured, pair by pair (docs/mpi.md, tests/contract/test_mpi_local.py, tests/cluster). Pure.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import assert_never

from msgspec import Struct

from bareboat.model import MpiFacts, MpiFamily, Pmi


class Starter(StrEnum):
    """The kind of program that starts the ranks. ORTE is the mpirun of OpenMPI to 4.1, PRRTE that of 5.0 and
    later, Hydra that of MPICH and its derivatives."""

    SRUN = "srun"
    ORTE = "mpirun (ORTE)"
    PRRTE = "mpirun (PRRTE)"
    HYDRA = "mpiexec (Hydra)"


class ProcessManager(Struct, frozen=True, kw_only=True):
    """The program that starts the ranks. `pmi`: the protocol by which ranks get their identity, None for
    `srun --mpi=none`. `pmix_version`: of its PMIx server, None when it is not known. `in_slurm`: inside an
    allocation. `own`: it belongs to the library's installation."""

    starter: Starter
    version: str | None = None
    pmi: Pmi | None = None
    pmix_version: str | None = None
    in_slurm: bool = False
    own: bool = False

    @property
    def title(self) -> str:
        if self.starter is Starter.SRUN:
            return f"srun --mpi={self.pmi.value if self.pmi else 'none'}"
        return f"{self.starter.value} {self.version or 'of unknown version'}"


class Layout(Struct, frozen=True, kw_only=True):
    """The placement of the ranks. `container_per_rank`: ranks of one node are in separate user namespaces, as
    with a launcher outside a rootless container."""

    nodes: int = 1
    ranks_per_node: int = 2
    container_per_rank: bool = False


class Ending(StrEnum):
    """The result for the ranks. SINGLETONS: N worlds of size 1, with exit code 0."""

    WORKS = "one world"
    SINGLETONS = "singletons"
    FAILS = "fails"
    HANGS = "hangs"


class Setting(Struct, frozen=True, kw_only=True):
    """An environment variable of the ranks, and why. A value of None: the launcher's value must not reach
    them; the image's remains."""

    name: str
    value: str | None
    reason: str


class Verdict(Struct, frozen=True, kw_only=True):
    """The result with the settings in the ranks' environment (`ending`), and without them (`bare`)."""

    ending: Ending
    reason: str
    settings: tuple[Setting, ...] = ()
    bare: Ending = Ending.WORKS
    remedy: str = ""

    @property
    def works(self) -> bool:
        return self.ending is Ending.WORKS


def manager_of(mpi: MpiFacts, *, in_slurm: bool, own: bool = False) -> ProcessManager | None:
    """The launcher of an MPI; None where it has none, or an unknown one."""
    if mpi.launcher is None:
        return None
    match mpi.family:
        case MpiFamily.OPENMPI:
            starter = Starter.PRRTE if major(mpi.version) >= 5 else Starter.ORTE
            return ProcessManager(
                starter=starter,
                version=mpi.version,
                pmi=Pmi.PMIX,
                pmix_version=mpi.pmix_version,
                in_slurm=in_slurm,
                own=own,
            )
        case MpiFamily.MPICH | MpiFamily.INTEL | MpiFamily.MVAPICH:
            return ProcessManager(
                starter=Starter.HYDRA, version=mpi.version, pmi=Pmi.PMI1, in_slurm=in_slurm, own=own
            )
        case MpiFamily.CRAY | MpiFamily.UNKNOWN:  # Cray's ranks are started by srun or aprun only
            return None
        case _:
            assert_never(mpi.family)


def judge(launch: ProcessManager, library: MpiFacts, layout: Layout) -> Verdict:
    """The result when `launch` starts ranks that use `library`."""
    if library.family is MpiFamily.UNKNOWN:
        return _no(Ending.FAILS, f"the MPI at {library.library} is of an unknown family")
    if library.family is MpiFamily.OPENMPI:
        return _openmpi(launch, library, layout)
    return _mpich(launch, library, layout)


def major(version: str | None) -> int:
    """The first number of a version; 0 when it is not known."""
    found = re.match(r"v?(\d+)", version or "")
    return int(found[1]) if found else 0


# -- OpenMPI as the library ------------------------------------------------------------------------


def _openmpi(launch: ProcessManager, library: MpiFacts, layout: Layout) -> Verdict:
    is_5 = major(library.version) >= 5
    if launch.pmi is not Pmi.PMIX and launch.pmi not in library.speaks:
        return _openmpi_without_pmi(launch, library)
    if launch.pmi is not Pmi.PMIX:
        return _yes(f"both support {launch.pmi}", [*_place(library), *_container(library, layout)])
    if Pmi.PMIX not in library.speaks:
        if launch.starter is Starter.ORTE and major(launch.version) == major(library.version):
            return _yes("launcher and library are of one line of OpenMPI", _place(library))
        return _no(
            Ending.FAILS,
            f"{library.title} was built without PMIx, which {launch.title} uses",
            "use an image whose OpenMPI is 4.0 or later",
        )
    if major(library.version) in (1, 2):
        return _no(
            Ending.FAILS,
            f"{library.title} uses PMIx 1, which current servers do not support",
            "use an image whose OpenMPI is 4.0 or later",
        )
    if launch.starter is Starter.PRRTE and 0 < major(library.pmix_version) < 4 and layout.nodes > 1:
        return _no(
            Ending.FAILS,
            f"the PMIx {library.pmix_version} inside {library.title} cannot read what {launch.title} "
            "sends it about ranks on several nodes",
            "start the ranks by the image's own mpirun, or by srun --mpi=pmix",
        )
    settings = [*_place(library), *_container(library, layout)]
    if launch.starter is not Starter.SRUN and not launch.own:
        given = {setting.name for setting in settings}  # a value of the library's own
        settings += [Setting(name=n, value=None, reason=why) for n, why in _LEAKS.items() if n not in given]
    gds = _exchange(launch, library)
    if layout.container_per_rank:
        settings += [*([] if gds else [_NO_STORE]), _NO_MUNGE]
    settings += gds
    bare = Ending.WORKS
    reason = f"{library.title} and {launch.title} both support PMIx"
    if gds and launch.pmix_version is not None:
        bare = Ending.FAILS
    if launch.starter is Starter.PRRTE and not is_5:
        settings.append(_ASK_PMIX)
        if not launch.in_slurm:
            bare = Ending.SINGLETONS
        reason = f"{library.title} is set to use PMIx, which {launch.title} supports"
    elif launch.starter is Starter.ORTE and is_5 and layout.nodes > 1:
        bare = Ending.HANGS
        settings.append(_PLAIN_COLLECTIVES)
    return _yes(reason, settings, bare=bare)


def _openmpi_without_pmi(launch: ProcessManager, library: MpiFacts) -> Verdict:
    """The result for OpenMPI's ranks that get no identity by a PMI which they support."""
    if major(library.version) < 5 and launch.in_slurm:
        return _no(
            Ending.FAILS,
            f"{library.title} sees that Slurm started it and was not built with Slurm's PMI",
            "srun --mpi=list   # should name pmix",
        )
    return _no(
        Ending.SINGLETONS,
        f"{library.title} has no PMI in common with {launch.title}: every rank would be a singleton",
        "start the ranks by OpenMPI's mpirun, or by srun --mpi=pmix",
    )


def _exchange(launch: ProcessManager, library: MpiFacts) -> list[Setting]:
    """The setting for clients before 4, which fail at the unknown name `shmem2` that PMIx servers from 5 on
    offer first. All of them know `hash`."""
    client, server = major(library.pmix_version), major(launch.pmix_version)
    if client and client < 4 and (server >= 5 or not server):
        return [
            Setting(
                name="PMIX_MCA_gds",
                value="hash",
                reason=f"the library's PMIx {library.pmix_version} does not know the shmem2 that a PMIx 5 "
                "server offers",
            )
        ]
    return []


_NO_STORE = Setting(
    name="PMIX_MCA_gds",
    value="hash",
    reason="the container does not show the directory in which the node's PMIx server shares memory",
)
_NO_MUNGE = Setting(
    name="PMIX_MCA_psec",
    value="native",
    reason="the container has no munge; user and group are enough for the PMIx server of the same node",
)
_ASK_PMIX = Setting(
    name="OMPI_MCA_schizo",
    value="^orte,slurm",
    reason="else OpenMPI 4 takes ranks that neither ORTE nor srun started for singletons, without a word",
)
_PLAIN_COLLECTIVES = Setting(
    name="OMPI_MCA_coll",
    value="^han,adapt",
    reason="coll/han of OpenMPI 5 spins for ever where ORTE started the ranks on several nodes",
)


def _place(library: MpiFacts) -> list[Setting]:
    """OpenMPI searches its plugins and texts in the directory it was built for, unless set otherwise."""
    if library.moved and library.prefix is not None:
        return [
            Setting(
                name="OPAL_PREFIX",
                value=library.prefix,
                reason="the library lies elsewhere than it was built for",
            )
        ]
    return []


def singleton(library: MpiFacts) -> tuple[Setting, ...]:
    """What a library depends on in a process without an MPI launcher: an MPI world of its own.

    OpenMPI 4 starts a daemon for each and immediately chooses how to reach other nodes; without ssh on PATH,
    as in most images, MPI_Init ends the process.
    """
    if library.family is not MpiFamily.OPENMPI:
        return ()
    settings = _place(library)
    if major(library.version) < 5:
        settings.append(
            Setting(
                name="OMPI_MCA_plm",
                value="isolated",
                reason="else OpenMPI 4 ends a process that no MPI launcher started where there is no ssh",
            )
        )
    return tuple(settings)


def _container(library: MpiFacts, layout: Layout) -> list[Setting]:
    """OpenMPI 5 itself detects that the ranks are in different user namespaces."""
    if layout.container_per_rank and layout.ranks_per_node > 1 and major(library.version) < 5:
        return [
            Setting(
                name="OMPI_MCA_btl_vader_single_copy_mechanism",
                value="none",
                reason="between user namespaces no rank may read another's memory (CMA): "
                "large messages would wait for ever",
            )
        ]
    return []


#: What an mpirun exports for its own installation, and would make the ranks load its files.
_LEAKS = {
    "LD_LIBRARY_PATH": "it leads to the launcher's libmpi, which the ranks would load unseen",
    "OPAL_PREFIX": "it leads to the launcher's plugins",
    "PMIX_PREFIX": "it leads to the launcher's PMIx plugins",
    "PMIX_INSTALL_PREFIX": "it leads to the launcher's PMIx plugins",
    "PRTE_PREFIX": "it leads to the launcher's plugins",
    "OMPI_MCA_mca_base_component_path": "Debian's mpirun exports it: the library would load the launcher's "
    "plugins",
    "OMPI_LIBDIR_LOC": "it leads to the launcher's libraries",
}


# -- MPICH and its derivatives as the library ------------------------------------------------------


def _mpich(launch: ProcessManager, library: MpiFacts, layout: Layout) -> Verdict:
    spoken = launch.pmi in library.speaks
    # Hydra and Slurm's plugin for PMI-2 support both of the older wire protocols.
    old = {Pmi.PMI1, Pmi.PMI2}
    if launch.starter is Starter.HYDRA:
        spoken = bool(old & set(library.speaks))
    if spoken:
        settings = _mpich_container(library, layout)
        if launch.starter is Starter.HYDRA and not launch.own:
            settings.append(Setting(name="LD_LIBRARY_PATH", value=None, reason=_LEAKS["LD_LIBRARY_PATH"]))
        bare = Ending.HANGS if _mpich_container(library, layout) else Ending.WORKS
        return _yes(f"both support {launch.pmi or 'PMI'}", settings, bare=bare)
    if launch.pmi is Pmi.PMIX:
        if library.family is MpiFamily.MPICH and major(library.version) >= 5:
            return _no(
                Ending.FAILS,
                f"{library.title} was built without PMIx, which {launch.title} uses "
                '("unsupported PMI version PMIx")',
                "start the ranks by srun --mpi=pmi2, or by MPICH's own mpiexec",
            )
        return _no(
            Ending.SINGLETONS,
            f"{library.title} was built without PMIx and has no PMI in common with {launch.title}: "
            "each rank becomes a world of its own",
            "start the ranks by srun --mpi=pmi2, or by its own mpiexec",
        )
    return _no(
        Ending.SINGLETONS,
        f"nothing gives the ranks their identity: every rank would be a singleton under {launch.title}",
        "srun --mpi=list   # should name pmi2 or pmix",
    )


def _mpich_container(library: MpiFacts, layout: Layout) -> list[Setting]:
    if not layout.container_per_rank or layout.ranks_per_node < 2:
        return []
    settings = [
        Setting(
            name="UCX_POSIX_USE_PROC_LINK",
            value="n",
            reason="UCX shares memory through /proc/PID/fd, which is closed between user namespaces",
        ),
        Setting(
            name="UCX_TLS",
            value="^cma",
            reason="between user namespaces no rank may read another's memory (CMA)",
        ),
    ]
    if library.family is MpiFamily.INTEL:  # has no UCX of its own, and was not measured
        return []
    old = library.family is MpiFamily.MVAPICH and major(library.version) < 3
    name = "MV2_SMP_USE_CMA" if old else "MPIR_CVAR_CH4_CMA_ENABLE"
    return [*settings, Setting(name=name, value="0", reason=settings[1].reason)]


def _yes(reason: str, settings: list[Setting], *, bare: Ending = Ending.WORKS) -> Verdict:
    return Verdict(ending=Ending.WORKS, reason=reason, settings=tuple(settings), bare=bare)


def _no(ending: Ending, reason: str, remedy: str = "") -> Verdict:
    return Verdict(ending=ending, reason=reason, bare=ending, remedy=remedy)


# -- what the ranks get from the launcher ----------------------------------------------------------

#: Prefixes of the variables by which launchers identify ranks. A container with an empty environment must let
#: them in, except those that a Setting unsets.
PASSED = (
    "PMIX_",
    "PMI_",
    "PMI2_",
    "OMPI_",
    "PRTE_",
    "SLURM_",
    "MPI_LOCAL",
    "HYDI_",
    "MPIEXEC_",
)

#: Of these, by shell patterns, the identity of a rank. The rest is settings, for example `OMPI_MCA_…`.
OWN = (
    "OMPI_COMM_WORLD_*",
    "OMPI_UNIVERSE_SIZE",
    "PMIX_RANK",
    "PMIX_NAMESPACE",
    "PMIX_SERVER_*",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_FD",
    "PMI_PORT",
    "PMI2_*",
    "MPI_LOCAL*",
    "SLURM_*",
)
