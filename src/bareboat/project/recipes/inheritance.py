"""What a base already has: a framework with CUDA, an MPI; and whether the site can use it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from bareboat.gpu.versions import judge_cuda
from bareboat.model import Image, Refusal
from bareboat.mpi.start_methods import Step, library_of
from bareboat.project.recipes import target
from bareboat.project.recipes.target import TargetSite


class Inherited(Struct, frozen=True, kw_only=True):
    """`text`: what the base has, for a comment; `cuda`: "" for none; `mpi`: the site can start its MPI, whose
    reason is `start`."""

    text: str
    cuda: str = ""
    mpi: bool = False
    start: str = ""
    warnings: tuple[str, ...] = ()


def inherit(image: Image, name: str, names: tuple[str, ...], site: TargetSite | None) -> Inherited:
    """`names`: packages of the framework that the recipe is for."""
    found = {each: image.frameworks[each] for each in names if each in image.frameworks}
    parts = [f"{each} {version}" for each, version in found.items()]
    warnings = []
    if image.cuda:
        parts.append(f"CUDA {image.cuda}")
        gpu = site.gpu if site is not None else None
        if gpu is not None and gpu.vendor == "nvidia":
            verdict = judge_cuda(image.cuda, gpu, image.cuda_compat)
            if isinstance(verdict, Refusal):
                warnings.append(f"the base {name}: {verdict.reason}   # {verdict.remedy}")
            else:
                parts.append(verdict.reason)
    library = library_of(image)
    start, can_start = "", False
    if library is not None:
        parts.append(library.title)
        taken = target.start(site, image) if site is not None else None
        can_start = not isinstance(taken, Refusal)
        start = taken.choice if isinstance(taken, Step) else taken.reason if taken is not None else ""
        if not can_start:
            warnings.append(f"the base {name}: the site cannot start its {library.title}: {start}")
    return Inherited(
        text=", ".join(parts),
        cuda=image.cuda or "",
        mpi=can_start,
        start=start,
        warnings=tuple(warnings),
    )


def has(image: Image | None, names: tuple[str, ...]) -> Mapping[str, str]:
    """The packages of a framework that an image has."""
    return {each: image.frameworks[each] for each in names if image is not None and each in image.frameworks}
