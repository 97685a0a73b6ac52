"""Programs that known Python packages start, and which of them an environment lacks. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import NamedTuple


class Starts(NamedTuple):
    """A package and a program that it starts. `brought_by`: a pattern of packages that include the program
    where this one finds it; `only_with`: a pattern of packages without which it does not start the
    program."""

    package: str
    program: str
    brought_by: str = ""
    only_with: str = ""


_CUDA = r"nvidia_cuda_runtime(_cu\d+)?"
_NVCC = r"nvidia_cuda_nvcc(_cu\d+)?"

#: With names of packages as returned by `normal`. Packages that include the program (imageio-ffmpeg, Triton's
#: ptxas) are not listed.
STARTS = (
    Starts("gitpython", "git"),
    Starts("pydub", "ffmpeg"),
    Starts("ffmpeg_python", "ffmpeg"),
    Starts("ffmpy", "ffmpeg"),
    Starts("openai_whisper", "ffmpeg"),
    Starts("graphviz", "dot"),
    Starts("pytesseract", "tesseract"),
    Starts("pdf2image", "pdftoppm"),
    Starts("pypandoc", "pandoc", brought_by="pypandoc_binary"),
    Starts("pycuda", "nvcc"),
    Starts("tensorflow", "ptxas", brought_by=_NVCC, only_with=_CUDA),
    Starts("jax_cuda12_plugin", "ptxas", brought_by=_NVCC),
    Starts("jax_cuda13_plugin", "ptxas", brought_by=_NVCC),
)


def lacking(packages: Collection[str], has: Callable[[str], bool]) -> dict[str, str]:
    """Package -> the program that it starts and the environment lacks. `has`: whether a program is on its
    PATH."""

    def any_like(pattern: str) -> bool:
        return any(re.fullmatch(pattern, name) for name in packages)

    return {
        each.package: each.program
        for each in STARTS
        if each.package in packages
        and not (each.only_with and not any_like(each.only_with))
        and not (each.brought_by and any_like(each.brought_by))
        and not has(each.program)
    }


def normal(name: str) -> str:
    """The normalised name of a package, with underscores as in file names
    (https://packaging.python.org/en/latest/specifications/name-normalization/)."""
    return re.sub(r"[-_.]+", "_", name).lower()
