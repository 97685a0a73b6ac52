"""For which GPUs a framework's kernels are built, and whether they run on those of a site. Pure.

Machine code for capability X.Y ("sm_80") runs on GPUs of X.Z with Z >= Y; the driver compiles PTX for X.Y
("compute_80") for any GPU of X.Y or newer. Of names that end with a letter, code with "a" is for that GPU
alone, and code with "f" for its family, and their PTX for no other.
https://docs.nvidia.com/cuda/cuda-c-programming-guide/ ("Application Compatibility")
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from bareboat_base.expressions import expression

_CODE = expression(r"(?P<kind>sm|compute)_(?P<major>\d{1,2})(?P<minor>\d)(?P<only>[af]?)")
_CAPABILITY = expression(r"(\d{1,2})\.(\d)")


def capabilities(text: str) -> tuple[str, ...]:
    """The capabilities that `nvidia-smi --query-gpu=compute_cap --format=csv,noheader` printed."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(dict.fromkeys(line for line in lines if _CAPABILITY.fullmatch(line)))


def runs_on(code: Sequence[str], capability: str) -> bool | None:
    """Whether any of the code runs there; None where neither is known."""
    wanted = _CAPABILITY.fullmatch(capability)
    built = [found for each in code if (found := _CODE.fullmatch(each)) is not None]
    if wanted is None or not built:
        return None
    gpu = int(wanted[1]), int(wanted[2])
    return any(_runs(each, gpu) for each in built)


def _runs(code: re.Match[str], gpu: tuple[int, int]) -> bool:
    own = int(code["major"]), int(code["minor"])
    if code["only"] == "a":
        return own == gpu
    if code["kind"] == "sm" or code["only"] == "f":
        return own[0] == gpu[0] and own[1] <= gpu[1]
    return own <= gpu
