"""The MPI of an image or of a machine."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field

from bareboat.model.host_files import DriverFile, Mount


class MpiFamily(StrEnum):
    """The family of an MPI. All except OpenMPI derive from MPICH and share its binary interface."""

    OPENMPI = "OpenMPI"
    MPICH = "MPICH"
    INTEL = "Intel MPI"
    MVAPICH = "MVAPICH"
    CRAY = "Cray MPICH"
    UNKNOWN = "unknown"


class Pmi(StrEnum):
    """The protocols with which a launcher gives a rank its identity."""

    PMI1 = "pmi1"
    PMI2 = "pmi2"
    PMIX = "pmix"


class HostLibrary(Struct, frozen=True, kw_only=True):
    """All files that a host's libmpi loads, except the C library. `folders`: place in a prefix
    ("lib/openmpi") -> the host's directory of plug-ins or texts. `asked`: library -> the symbol versions that
    the others require. `glibc`: the newest glibc symbol version that the library `glibc_by` requires."""

    libraries: tuple[DriverFile, ...]
    folders: dict[str, str] = field(default_factory=dict)
    asked: dict[str, tuple[str, ...]] = field(default_factory=dict)
    glibc: str | None = None
    glibc_by: str = ""


class HostMpiTree(Struct, frozen=True, kw_only=True):
    """A host's MPI prepared for one image. `folder`: the links to it; `over`: files of the host that are
    mounted over the image's own of the same name; `left_out`: libraries for which the image's own are
    used."""

    folder: str
    over: tuple[Mount, ...] = ()
    left_out: tuple[str, ...] = ()


class MpiFacts(Struct, frozen=True, kw_only=True):
    """One MPI of an image or of a machine: a library, a launcher, or both.

    `moved`: it is not at its build path. `speaks`: protocols that its library supports. `pmix_version`,
    `pmix_bundled`: of its PMIx, and whether that is its own copy. `slurm`: it was built with Slurm support.
    `origin`: where it was found, as text. `runtime`: for a host's MPI, what its library loads.
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
