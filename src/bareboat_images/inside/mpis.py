"""Detect the MPIs in an image, and the packages that use one, by reading their files.

For starting ranks, these matter: the family and version of the library, the PMIs that it supports, and
whether its PMIx is bundled or the system's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from bareboat_base.elf import binary
from bareboat_base.elf.binary import Binary
from bareboat_base.expressions import expression
from bareboat_images.layers.view import View
from bareboat_images.model import MpiFacts, MpiFamily, Pmi

#: Symbols of components that are built into OpenMPI 4 and PRRTE.
_BUILT_IN = (
    "mca_pmix_pmix2x_component", "mca_pmix_pmix3x_component", "mca_pmix_pmix4x_component",
    "mca_pmix_ext2x_component", "mca_pmix_ext3x_component", "mca_pmix_s1_component", "mca_pmix_s2_component",
    "mca_ess_slurm_component", "mca_plm_slurm_component", "mca_ras_slurm_component",
    "prte_plm_slurm_module", "prte_mca_plm_slurm_component", "prte_mca_ras_slurm_component",
)  # fmt: skip

#: The part of a library's path after its prefix. Debian and Red Hat install OpenMPI in a deeper directory.
_BELOW_PREFIX = expression(r"/lib(?:64)?(?:/[a-z0-9_]+-linux-(?:gnu|musl)[a-z0-9]*)?(?:/openmpi/lib)?$")

#: The version of PMIx in its library, for the environment variable PMIX_VERSION. (2.x is that of hwloc.)
_PMIX_VERSION = rb"\0([3-9]\.\d{1,2}\.\d{1,2}(?:(?:a|b|rc)\d{1,2})?)\0"

#: Packages that use MPI, and the paths of their extension modules.
_USERS: Mapping[str, tuple[str, re.Pattern[str]]] = {
    "mpi4py": ("mpi4py", expression(r"MPI\..*\.so")),
    "horovod.torch": ("horovod/torch", expression(r"mpi_lib.*\.so")),
    "horovod.tensorflow": ("horovod/tensorflow", expression(r"mpi_lib.*\.so")),
    "horovod.mxnet": ("horovod/mxnet", expression(r"mpi_lib.*\.so")),
}


def find(
    view: View, libraries: Mapping[str, Sequence[tuple[str, str]]], path: Sequence[str]
) -> tuple[MpiFacts, ...]:
    """The MPIs, one for each directory, family and version; the one whose launcher is `mpirun` comes first.

    `libraries`: stem ("mpi", "pmix") -> (version in its name, path). `path`: the image's PATH.
    """
    found: dict[tuple[str, str, str | None], MpiFacts] = {}
    for _, library in libraries.get("mpi", ()):
        mpi = _look(view, library, [place for _, place in libraries.get("pmix", ())])
        if mpi is not None:
            found.setdefault((library.rpartition("/")[0], mpi.family, mpi.version), mpi)
    first = next(
        (real.path for folder in path if (real := view.find(f"{folder}/mpirun")) is not None),
        None,
    )

    def is_not_first(mpi: MpiFacts) -> bool:
        real = view.find(mpi.launcher) if mpi.launcher is not None else None
        return real is None or real.path != first

    return tuple(sorted(found.values(), key=is_not_first))


def users(view: View, folders: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Package -> the MPI libraries that its extension modules are linked to.

    mpi4py's wheels have one module for each binary interface and select one at import; Horovod has one. For a
    Horovod without MPI (Gloo only), the result has no library.
    """
    found: dict[str, tuple[str, ...]] = {}
    for folder in folders:
        for name, (place, module) in _USERS.items():
            modules = [f"{folder}/{place}/{each}" for each in sorted(view.names(f"{folder}/{place}"))]
            modules = [each for each in modules if module.fullmatch(each.rpartition("/")[2])]
            needed: list[str] = []
            for each in modules:
                with view.open(each) as descriptor, binary.read(descriptor) as library:
                    if library is not None:
                        needed += [n for n in library.needed if re.match(r"libmpi(?:ch)?(?:_abi)?\.so", n)]
            if modules:
                found.setdefault(name, tuple(dict.fromkeys(needed)))
    return found


def _look(view: View, path: str, pmixes: Sequence[str]) -> MpiFacts | None:
    with view.open(path) as descriptor, binary.read(descriptor) as library:
        family = _family(library) if library is not None else None
        if library is None or family is None:  # a wrapper, such as a profiling library
            return None
        version = _version(family, library) or _header_version(view, path)
        prefix = _BELOW_PREFIX.sub("", path.rpartition("/")[0]) or "/usr"
        own_launcher = _launcher(view, path, family)
        if family is not MpiFamily.OPENMPI:
            return MpiFacts(
                family=family,
                version=version,
                library=path,
                launcher=own_launcher,
                prefix=prefix,
                speaks=_mpich_speaks(library),
                slurm=library.holds(b"--with-slurm"),
                origin="in the image",
            )
        components = _components(view, path)
        speaks = _openmpi_speaks(library, components)
        bundled, pmix_version = _pmix(view, path, components, pmixes)
        return MpiFacts(
            family=family,
            version=version,
            library=path,
            launcher=own_launcher,
            prefix=prefix,
            moved=_is_moved(view, path, prefix),
            speaks=speaks,
            pmix_version=pmix_version if Pmi.PMIX in speaks else None,
            pmix_bundled=bundled and Pmi.PMIX in speaks,
            slurm=any("slurm" in name for name in components),
            origin="in the image",
        )


def _header_version(view: View, path: str) -> str | None:
    """The version in mpi.h, in an image with MPI headers."""
    folder = path.rpartition("/")[0]
    prefix = folder.rpartition("/")[0]
    for header in (f"{prefix}/include/mpi.h", f"{folder}/include/mpi.h"):
        text = (view.read(header, most=512 * 1024) or b"").decode("utf-8", "replace")
        parts = [
            re.search(rf"^#define\s+OMPI_{part}_VERSION\s+(\d+)", text, re.MULTILINE)
            for part in ("MAJOR", "MINOR", "RELEASE")
        ]
        told = re.search(
            r'^#define\s+(?:MVAPICH2?_VERSION|I_MPI_VERSION|MPICH_VERSION)\s+"([^"\n]{1,40})"',
            text,
            re.MULTILINE,
        )
        if all(parts):
            return ".".join(part[1] for part in parts if part)
        if told:
            return told[1]
    return None


def _components(view: View, path: str) -> frozenset[str]:
    """The names of OpenMPI's plugins: files next to the library, or built into its libraries."""
    folder = path.rpartition("/")[0]
    names: set[str] = set()
    for plugins in ("openmpi", "openmpi/lib/openmpi3", "openmpi/lib/openmpi", "pmix", "prte"):
        names.update(name for name in view.names(f"{folder}/{plugins}") if "mca_" in name)
    for candidate in _beside(view, path, r"lib(?:open-pal|open-rte|prrte)\.so\.\d+"):
        with view.open(candidate) as descriptor, binary.read(descriptor) as library:
            if library is not None:
                names.update(name for name in _BUILT_IN if library.names(name))
    return frozenset(names)


def _beside(view: View, path: str, pattern: str) -> Iterator[str]:
    """Libraries of the same installation: in the library's directory, or in `openmpi` below it."""
    folder = path.rpartition("/")[0]
    for place in (folder, f"{folder}/openmpi"):
        for name in sorted(view.names(place)):
            if re.fullmatch(pattern, name):
                yield f"{place}/{name}"


def _openmpi_speaks(library: Binary, components: frozenset[str]) -> tuple[Pmi, ...]:
    """The PMIs that an OpenMPI supports; before 5.0, one plugin for each.
    Source: https://docs.open-mpi.org/en/main/launching-apps/slurm.html"""
    spoken = []
    if "libpmix.so.2" in library.needed or any(
        re.search(r"mca_pmix_(?:ext|pmix)\d", name) for name in components
    ):
        spoken.append(Pmi.PMIX)
    if any("mca_pmix_s2" in name for name in components):
        spoken.append(Pmi.PMI2)
    if any("mca_pmix_s1" in name for name in components):
        spoken.append(Pmi.PMI1)
    return tuple(spoken)


def _pmix(
    view: View, path: str, components: frozenset[str], pmixes: Sequence[str]
) -> tuple[bool, str | None]:
    """Whether the PMIx is bundled with the library, and its version."""
    own = list(_beside(view, path, r"libpmix\.so\.2(?:\.\d+)*"))
    inside = [name for name in components if re.search(r"mca_pmix_pmix\d", name)]
    if inside:  # OpenMPI 4 with a bundled copy, compiled into a plugin or into libopen-pal
        line = (re.findall(r"mca_pmix_pmix(\d)x", inside[0]) or [""])[0]
        # Only versions with this major number: libopen-pal contains OpenMPI's version too.
        pattern = _PMIX_VERSION.replace(b"[3-9]", line.encode() or b"[3-9]")
        folder = path.rpartition("/")[0]
        plugins = [f"{folder}/openmpi/{name}" for name in inside if name.endswith(".so")]
        for candidate in (*plugins, *_beside(view, path, r"libopen-pal\.so\.\d+")):
            with view.open(candidate) as descriptor, binary.read(descriptor) as copy:
                told = copy.search(pattern) if copy is not None else None
            if told:
                return True, told
        return True, line or None
    bundled = bool(own) and not path.startswith("/usr/lib")
    for candidate in (*own, *pmixes):
        with view.open(candidate) as descriptor, binary.read(descriptor) as shared:
            told = shared.search(_PMIX_VERSION) if shared is not None else None
        if told:
            return bundled, told
    return bundled, None


def _is_moved(view: View, path: str, prefix: str) -> bool:
    """Whether the compiled-in prefix differs from the actual one, so plugins and help files are not found.
    https://docs.open-mpi.org/en/main/installing-open-mpi/installation-location.html"""
    for candidate in _beside(view, path, r"libopen-pal\.so\.\d+"):
        with view.open(candidate) as descriptor, binary.read(descriptor) as library:
            built_for = (
                library.search(rb"\0(/[^\0]{1,200})\0+\$\{exec_prefix\}/bin\0")
                if library is not None
                else None
            )
        if built_for is not None:
            real = view.find(built_for)
            return (real.path if real is not None else built_for) != prefix
    return False


def _launcher(view: View, path: str, family: MpiFamily) -> str | None:
    prefix = path.rpartition("/")[0].rpartition("/")[0]
    names = ["mpirun", "mpiexec.hydra", "mpiexec"]
    if prefix.startswith("/usr/lib"):  # Debian: all launchers in one directory
        names = ["mpirun.openmpi"] if family is MpiFamily.OPENMPI else ["mpirun.mpich", "mpiexec.hydra"]
        names += ["mpirun"]
    for folder in (f"{prefix}/bin", "/usr/bin"):
        for name in names:
            if name in view.names(folder) and view.is_file(f"{folder}/{name}"):
                return f"{folder}/{name}"
    return None


def _family(library: Binary) -> MpiFamily | None:
    """Identify the family by text that only its library contains; all except OpenMPI derive from MPICH."""
    if library.holds(b"Open MPI v%d.%d.%d") or library.holds(b"Open MPI repo revision"):
        return MpiFamily.OPENMPI
    if library.holds(b"Intel(R) MPI Library"):
        return MpiFamily.INTEL
    if library.holds(b"CRAY MPICH"):
        return MpiFamily.CRAY
    if library.holds(b"MVAPICH2 Version") or library.holds(b"MVAPICH Version"):
        return MpiFamily.MVAPICH
    if library.holds(b"MPICH Version:"):
        return MpiFamily.MPICH
    return MpiFamily.UNKNOWN if library.names("MPI_Init") else None


def _version(family: MpiFamily, library: Binary) -> str | None:
    match family:
        case MpiFamily.OPENMPI:
            return library.text("ompi_version_string") or library.search(
                rb"MCA component version (\d{1,2}\.\d{1,2}\.\d{1,2}[a-z0-9]{0,8})\0"
            )
        case MpiFamily.INTEL:
            return library.search(rb"\0(20\d\d\.\d{1,2}(?:\.\d{1,2})?)\0")
        case MpiFamily.CRAY:
            return library.search(rb"CRAY MPICH version (\d{1,2}\.\d{1,2}\.\d{1,3})")
        case MpiFamily.MPICH:
            # In a build without this symbol, the version follows the configure options.
            return library.text("MPII_Version_string") or library.search(
                rb"--with-device=[^\0]{1,9000}\0[\0-\x7f]{0,600}?\0([345]\.\d{1,2}(?:\.\d{1,2})?(?:[a-z]+\d{1,2})?)\0"
            )
        case _:
            return None


def _mpich_speaks(library: Binary) -> tuple[Pmi, ...]:
    """The PMIs that a library derived from MPICH supports: "fullinit" is the first command of PMI-2, PMI_FD
    has the file descriptor for PMI-1.
    Source: https://github.com/pmodels/mpich/blob/main/doc/wiki/design/PMI_v2_Wire_Protocol.md
    """
    spoken = []
    needed = " ".join(library.needed)
    loads = library.holds(b"I_MPI_PMI_LIBRARY\0") or library.holds(
        b"I_MPI_PMI_LIBRARY "
    )  # if the variable is set
    if "libpmix.so" in needed or (loads and library.holds(b"PMIx_Init\0")):
        spoken.append(Pmi.PMIX)
    if "libpmi2.so" in needed or library.holds(b"fullinit\0") or (loads and library.holds(b"PMI2_Init\0")):
        spoken.append(Pmi.PMI2)
    if re.search(r"libpmi\.so", needed) or library.holds(b"PMI_FD\0"):
        spoken.append(Pmi.PMI1)
    return tuple(spoken)
