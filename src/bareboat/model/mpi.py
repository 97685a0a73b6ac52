"""The MPI of an image or of a machine."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field

from bareboat.model.host_files import DriverFile, Mount


class MpiFamily(StrEnum):
    """Whose MPI it is. All but OpenMPI are made from MPICH's source and share its binary interface."""

    OPENMPI = "OpenMPI"
    MPICH = "MPICH"
    INTEL = "Intel MPI"
    MVAPICH = "MVAPICH"
    CRAY = "Cray MPICH"
    UNKNOWN = "unknown"


class Pmi(StrEnum):
    """The protocols by which whoever started a rank tells it who it is."""

    PMI1 = "pmi1"
    PMI2 = "pmi2"
    PMIX = "pmix"


class HostLibrary(Struct, frozen=True, kw_only=True):
    """All that a host's libmpi loads, but the C library. `folders`: place in a prefix ("lib/openmpi") -> the
    host's directory of plugins or texts. `asked`: library -> the symbol versions that the others ask of it.
    `glibc`: the newest version of glibc's symbols that the library `glibc_by` asks for."""

    libraries: tuple[DriverFile, ...]
    folders: dict[str, str] = field(default_factory=dict)
    asked: dict[str, tuple[str, ...]] = field(default_factory=dict)
    glibc: str | None = None
    glibc_by: str = ""


class HostMpiTree(Struct, frozen=True, kw_only=True):
    """A host's MPI made ready for one image. `folder`: the links to it; `over`: files of the host that are
    mounted over the image's own of the same name; `left_out`: libraries of which the image's own serve."""

    folder: str
    over: tuple[Mount, ...] = ()
    left_out: tuple[str, ...] = ()


class MpiFacts(Struct, frozen=True, kw_only=True):
    """One MPI of an image or of a machine: a library, a launcher, or both.

    `moved`: it lies elsewhere than it was built for. `speaks`: what its library understands.
    `pmix_version`, `pmix_bundled`: of the PMIx that it speaks with, and whether that is its own copy.
    `slurm`: it was built with parts for Slurm. `origin`: where it was found, in words. `runtime`: of a
    host's, what its library loads.
    """

    family: MpiFamily
    version: str | None = None
    library: str | None = None
    launcher: str | None = None
    prefix: str | None = None
    moved: bool = False
    speaks: tuple[Pmi, ...] = ()
    pmix_version: str | None = None
    pmix_bundled: bool = False
    slurm: bool = False
    origin: str = ""
    runtime: HostLibrary | None = None

    @property
    def title(self) -> str:
        return f"{self.family.value} {self.version}" if self.version else self.family.value
