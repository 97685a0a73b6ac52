"""Facts about the content of an image: its MPIs, network libraries and CUDA."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field

from bareboat_base.host_files import DriverFile


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


class FabricLibrary(Struct, frozen=True, kw_only=True):
    """A network library of an image: "libibverbs", "libfabric", "UCX", "NCCL" or "NCCL plug-in". `parts`:
    what it supports: providers of libibverbs and libfabric, transports of UCX, by their own names."""

    name: str
    version: str | None = None
    path: str = ""
    parts: tuple[str, ...] = ()


class CudaCompat(Struct, frozen=True, kw_only=True):
    """The forward-compatibility package (cuda-compat) of an image: in `folder`, the user-space half of the
    driver whose version is `driver`."""

    folder: str
    driver: str


class Linked(Struct, frozen=True, kw_only=True):
    """MPI facts from the files of a job's command. `program`: the one named in messages; `mpi`: the libraries
    that it is linked to; `unknown`: why it cannot be judged."""

    program: str
    mpi: tuple[str, ...] = ()
    unknown: str = ""
