"""The MPIs of this machine: the launchers on PATH, and MPIs in environment modules. Each command has a pure
parser."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from msgspec import Struct, structs

from bareboat.model import MpiFacts, MpiFamily, Outcome, Pmi
from bareboat.probe.host import RealHost
from bareboat_base.errors import ToolError
from bareboat_base.printable import one_line
from bareboat_base.versions import numbers

#: The names of launchers. Debian has both families in parallel, under different names.
_LAUNCHERS = ("mpirun", "mpiexec", "mpiexec.hydra", "mpirun.openmpi", "mpirun.mpich", "mpiexec.mpich")

#: Usual names of MPI modules.
_MODULES = {
    "openmpi": MpiFamily.OPENMPI,
    "mpich": MpiFamily.MPICH,
    "mvapich": MpiFamily.MVAPICH,
    "mvapich2": MpiFamily.MVAPICH,
    "intelmpi": MpiFamily.INTEL,
    "intel-mpi": MpiFamily.INTEL,
    "intel-oneapi-mpi": MpiFamily.INTEL,
    "impi": MpiFamily.INTEL,
    "cray-mpich": MpiFamily.CRAY,
}
_DEEPEST_MODULE = 4
_MOST_MODULES = 200
#: Limit of the text searched for a version, since a search may take quadratic time.
_MOST_VERSION = 20_000
_MOST_REMARK = 400


def launchers(host: RealHost, remarks: list[str]) -> tuple[MpiFacts, ...]:
    """The launchers on PATH in order, each installation once. They share a deadline; for one that hangs, as
    some do on a login node with a broken fabric, there is a remark."""
    found: dict[tuple[MpiFamily, str | None, str | None], MpiFacts] = {}
    host = host.for_one_subject()
    paths = [path for name in _LAUNCHERS if (path := host.which(name)) is not None]
    for path, said in zip(paths, host.run_all([(path, "--version") for path in paths]), strict=True):
        facts = _launcher(host, path, said, remarks)
        if facts is not None:
            found.setdefault((facts.family, facts.version, facts.prefix), facts)
    return tuple(found.values())


def parse_version(text: str) -> tuple[MpiFamily, str] | None:
    """The family and version of a launcher from its `--version`; None when it cannot be parsed."""
    for family, pattern in (
        (MpiFamily.OPENMPI, r"\((?:Open MPI|OpenRTE)\)\s+(\d[\w.]*)"),
        (MpiFamily.OPENMPI, r"\(PRRTE\)\s+(\d[\w.]*)"),
        (MpiFamily.INTEL, r"Intel\(R\) MPI Library.*Version\s+(20\d\d[\w.]*)"),
        (MpiFamily.MVAPICH, r"MVAPICH2?.*?Version:?\s+(\d[\w.]*)"),
        (MpiFamily.MPICH, r"HYDRA build details:\s+Version:\s+(\d[\w.]*)"),
    ):
        found = re.search(pattern, text[:_MOST_VERSION])
        if found:
            return family, found[1][:60]
    return None


class OmpiInfo(Struct, frozen=True, kw_only=True):
    """The facts of `ompi_info --parsable`: build prefix and supported protocols."""

    prefix: str
    speaks: tuple[Pmi, ...]
    pmix_bundled: bool
    slurm: bool


def parse_ompi_info(text: str) -> OmpiInfo:
    """Parse the output of ompi_info. Raises ToolError for other text."""
    lines = dict(re.findall(r"^(path:prefix|ompi:version:full|config:cli):(.*)$", text, re.MULTILINE))
    components = set(re.findall(r"^mca:(\w+:\w+):version:", text, re.MULTILINE))
    if "path:prefix" not in lines or "ompi:version:full" not in lines:
        raise ToolError("the output of ompi_info --parsable cannot be parsed", context=text[:2000])
    new = numbers(lines["ompi:version:full"])[:1] >= (5,)
    options = lines.get("config:cli", "")
    spoken = []
    if new or any(re.fullmatch(r"pmix:(?:ext|pmix)\d\w*", each) for each in components):
        spoken.append(Pmi.PMIX)
    if "pmix:s2" in components:
        spoken.append(Pmi.PMI2)
    if "pmix:s1" in components:
        spoken.append(Pmi.PMI1)
    return OmpiInfo(
        prefix=lines["path:prefix"],
        speaks=tuple(spoken),
        pmix_bundled="--with-pmix=internal" in options
        or any(re.fullmatch(r"pmix:pmix\d\w*", each) for each in components),
        # 5.0 builds it by default, and lists it elsewhere.
        slurm="plm:slurm" in components or (new and "--without-slurm" not in options),
    )


def modules(folders: Iterable[str]) -> tuple[MpiFacts, ...]:
    """MPIs available as modules, by the names of module files:  `openmpi/4.1.5`, `gcc/12/openmpi/4.1`."""
    found: dict[str, MpiFacts] = {}
    for folder in folders:
        for name in _module_names(folder) if folder.startswith("/") else ():
            parts = name.split("/")
            for at, part in enumerate(parts[:-1]):
                family = _MODULES.get(part.lower())
                version = re.match(r"v?(\d+(?:\.\d+)*)", parts[at + 1])
                if family is not None and version is not None:
                    found.setdefault(
                        name, MpiFacts(family=family, version=version[1], origin=f"module {name}")
                    )
            if len(found) == _MOST_MODULES:
                return tuple(found.values())
    return tuple(found.values())


def _module_names(folder: str) -> Iterator[str]:
    for top, folders, files in os.walk(folder):
        below = os.path.relpath(top, folder)
        depth = 0 if below == "." else below.count("/") + 1
        if depth == _DEEPEST_MODULE:
            folders.clear()
        folders.sort()
        for file in sorted(files):
            if not file.startswith("."):
                yield os.path.normpath(f"{below}/{file.removesuffix('.lua')}")


def _launcher(host: RealHost, path: str, said: Outcome, remarks: list[str]) -> MpiFacts | None:
    """The facts about a launcher, from `--version` and its other output."""
    if said.unanswered:
        remarks.append(one_line(said.stderr, limit=_MOST_REMARK))
        return None
    told = parse_version(said.stdout + said.stderr)
    real = os.path.realpath(path)
    prefix = os.path.dirname(os.path.dirname(real))
    if told is None:
        # Possibly a site's wrapper: it is shown, but not used.
        first = next(
            (line.strip() for line in (said.stdout + said.stderr).splitlines() if line.strip()), "nothing"
        )
        return MpiFacts(
            family=MpiFamily.UNKNOWN,
            launcher=path,
            prefix=prefix,
            origin=f"on PATH; cannot parse --version: {one_line(first, limit=120)}",
        )
    import glob

    family, version = told
    if family is MpiFamily.OPENMPI:
        return _openmpi(host, path, version, prefix, remarks)
    library = _library(
        (f"{prefix}/lib", f"{prefix}/lib64", f"{prefix}/lib/release"), ("libmpi.so.12", "libmpich.so.12")
    )
    return MpiFacts(
        family=family,
        version=version,
        library=library or _library(glob.glob("/usr/lib/*-linux-gnu"), ("libmpich.so.12",)),
        launcher=path,
        prefix=prefix,
        speaks=(Pmi.PMI2, Pmi.PMI1),
        slurm=bool(re.search(r"Launchers available:.*\bslurm\b", said.stdout)) or family is MpiFamily.INTEL,
        origin="on PATH",
    )


def _openmpi(host: RealHost, path: str, version: str, prefix: str, remarks: list[str]) -> MpiFacts:
    beside = os.path.join(os.path.dirname(path), "ompi_info")
    program = beside if os.path.exists(beside) else host.which("ompi_info")
    said, asked = (None, None)
    if program is not None:
        said, asked = host.run_all(((program, "--parsable"), (program, "--parsable", "--path", "libdir")))
        if said.unanswered:
            remarks.append(one_line(said.stderr, limit=_MOST_REMARK))
    known = MpiFacts(
        family=MpiFamily.OPENMPI, version=version, launcher=path, prefix=prefix, origin="on PATH"
    )
    if said is None or not said.ok:
        return structs.replace(known, origin="on PATH; supported PMIs unknown without ompi_info")
    try:
        info = parse_ompi_info(said.stdout)
    except ToolError as error:
        return structs.replace(known, origin=f"on PATH; supported PMIs unknown: {error.message}")
    told = re.search(r"^path:libdir:(/.*)$", asked.stdout, re.MULTILINE) if asked is not None else None
    # Its own location first, since a wheel reports its build prefix.
    folders = (f"{prefix}/lib", f"{prefix}/lib64", told[1] if told else "")
    return structs.replace(
        known,
        library=_library(folders, ("libmpi.so.40", "libmpi.so")),
        moved=info.prefix != prefix,
        speaks=info.speaks,
        pmix_bundled=info.pmix_bundled,
        slurm=info.slurm,
    )


def _library(folders: Iterable[str], names: Iterable[str]) -> str | None:
    for folder in folders:
        for name in names:
            if os.path.exists(f"{folder}/{name}"):
                return os.path.realpath(f"{folder}/{name}")
    return None
