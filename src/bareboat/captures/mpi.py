"""Files that an MPI library loads by name at run time, so no file lists them as needed: plugins, settings,
texts; and its launchers.

Without /etc/openmpi, Debian's OpenMPI hangs in half of its starts: those settings disable drivers for
hardware that the machine lacks.
"""

from __future__ import annotations

import glob
import os
import re

from bareboat_base.expressions import expression

_LIBRARY = expression(r"libmpi(?:ch)?\.so\.(?P<abi>12|40)(?:\.\d+)*")

#: Relative to the library's directory: plugins of OpenMPI and PMIx, where `make install`, Debian and Red Hat
#: install them.
_BESIDE = (
    "openmpi/lib/openmpi3",
    "openmpi/lib/openmpi",
    "pmix",
    "pmix2/lib",
    "pmix2/share",
    "prte",
    "libfabric",
    "ucx",
)
_SHARED = (
    *(f"share/{name}" for name in ("openmpi", "pmix", "prte")),
    *(f"etc/{name}-mca-params.conf" for name in ("openmpi", "pmix", "prte")),
    *(f"etc/{name}-default-hostfile" for name in ("openmpi", "prte")),
)
_SYSTEM = (
    "/etc/openmpi",
    f"/etc/openmpi-{os.uname().machine}",
    "/etc/pmix",
    "/etc/pmix-mca-params.conf",
    "/etc/prte",
)
_PROGRAMS = {
    "40": ("mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.openmpi", "orterun", "orted", "prterun", "prte",
           "prted", "ompi_info"),
    "12": ("mpirun", "mpiexec", "mpiexec.hydra", "mpirun.mpich", "mpiexec.mpich", "hydra_pmi_proxy",
           "hydra_bstrap_proxy", "mpichversion"),
}  # fmt: skip


def runtime(library: str) -> list[str]:
    """The paths that belong to a libmpi, given by its real path; empty for other files."""
    named = _LIBRARY.fullmatch(os.path.basename(library))
    if named is None:
        return []
    folder = os.path.dirname(library)
    prefix = re.sub(r"/lib(?:64)?(?:/[a-z0-9_]+-linux-(?:gnu|musl)[a-z0-9]*)?(?:/openmpi/lib)?$", "", folder)
    beside = [] if named["abi"] == "12" else [f"{folder}/{name}" for name in _BESIDE]
    if beside and not os.path.isdir(f"{folder}/openmpi/lib"):  # otherwise it contains headers too
        beside.append(f"{folder}/openmpi")
    found = [place for place in beside if os.path.isdir(place)]
    found += glob.glob(f"{folder}/libmca_common_*.so*")
    if named["abi"] == "40":
        found += [f"{prefix}/{name}" for name in _SHARED]
        found += _SYSTEM if prefix == "/usr" else ()
    found += [f"{prefix}/bin/{name}" for name in _PROGRAMS[named["abi"]]]
    return [path for path in dict.fromkeys(found) if os.path.exists(path)]
