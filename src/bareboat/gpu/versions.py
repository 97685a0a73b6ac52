"""Pure: which CUDA a driver supports, and whether an image can load the driver's libraries.

Sources: the table "CUDA Toolkit and Corresponding Driver Versions" of
https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/ and
https://docs.nvidia.com/deploy/cuda-compatibility/
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from bareboat.model import CudaCompat, GpuDriver, Refusal
from bareboat_base.expressions import expression
from bareboat_base.versions import numbers

#: CUDA -> the first Linux driver that supports it.
FIRST_DRIVERS = {
    "9.0": "384.81", "9.1": "390.46", "9.2": "396.26", "10.0": "410.48", "10.1": "418.39", "10.2": "440.33",
    "11.0": "450.36.06", "11.1": "455.23", "11.2": "460.27.03", "11.3": "465.19.01", "11.4": "470.42.01",
    "11.5": "495.29.05", "11.6": "510.39.01", "11.7": "515.43.04", "11.8": "520.61.05",
    "12.0": "525.60.13", "12.1": "530.30.02", "12.2": "535.54.03", "12.3": "545.23.06", "12.4": "550.54.14",
    "12.5": "555.42.02", "12.6": "560.28.03", "12.7": "565.57.01", "12.8": "570.26", "12.9": "575.51.03",
    "13.0": "580.65.06", "13.1": "590.44.01",
}  # fmt: skip

#: CUDA's major version -> the first driver that supports all of it, by minor-version compatibility.
FIRST_OF_MAJOR = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}

#: The oldest driver's kernel module that a forward-compatibility package can work with.
_FIRST_FOR_COMPAT = "418.40"
#: Products that support forward compatibility: data-centre GPUs. (Some RTX boards do, too, but their names do
#: not distinguish them.)
_DATA_CENTRE = expression(
    r"\b(Tesla|GH200|GB[23]00|A[18]00|H[128]00|B[123]00|A(2|10|16|30|40)|H20|L(2|4|20|40)S?|[PV]100S?|P4|P40|T4"
    r"|K80|M60)\b"
)
_NOT_DATA_CENTRE = expression(r"\b(GeForce|TITAN|Quadro|RTX)\b", re.IGNORECASE)


class Served(Struct, frozen=True):
    """It works, and how. `compat`: through the image's forward-compatibility package."""

    reason: str
    compat: bool = False


def newest_cuda(driver: str) -> str | None:
    """The newest CUDA that a driver supports by itself; None for a driver that is too old or unknown."""
    served = [cuda for cuda, first in FIRST_DRIVERS.items() if numbers(first) <= numbers(driver)]
    return max(served, key=numbers, default=None)


def judge_cuda(cuda: str, driver: GpuDriver, compat: CudaCompat | None) -> Served | Refusal:
    """Whether the driver supports an image's CUDA."""
    if not driver.version:
        return Served("the driver's version is unknown; its libraries are used without a check")
    have, wanted = numbers(driver.version), numbers(cuda)[:2]
    newest = newest_cuda(driver.version)
    if newest is not None and wanted <= numbers(newest):
        return Served(f"driver {driver.version} supports CUDA up to {newest}, and the image has {cuda}")
    last = max(FIRST_DRIVERS.values(), key=numbers)
    first = FIRST_OF_MAJOR.get(wanted[0])
    if have[0] > numbers(last)[0]:
        return Served(
            f"driver {driver.version} is newer than any known to Bareboat; assuming that it supports {cuda}"
        )
    if first is not None and have >= numbers(first):
        return Served(
            f"driver {driver.version} is for CUDA {newest} and the image has {cuda}: within CUDA {wanted[0]} "
            "this works, except for PTX compiled at run time"
        )
    needed = FIRST_DRIVERS.get(".".join(map(str, wanted))) or f"for CUDA {cuda}"
    if first is not None:
        needed = first
    old = f"driver {driver.version} supports CUDA up to {newest or '(unknown)'}, and the image has {cuda}"
    remedy = f"use an image with CUDA {newest or '11'} or older, or a node with driver {needed} or newer"
    if compat is None:
        return Refusal(f"{old}, without a forward-compatibility package (cuda-compat)", remedy)
    compat_cuda = newest_cuda(compat.driver)
    package = f"the image's forward-compatibility package {compat.driver}"
    if compat_cuda is None or numbers(compat_cuda) < wanted:
        return Refusal(f"{old}; {package} is too old for this", remedy)
    if have < numbers(_FIRST_FOR_COMPAT):
        return Refusal(f"{old}; {package} needs driver {_FIRST_FOR_COMPAT} or newer", remedy)
    others = [m for m in driver.models if not _DATA_CENTRE.search(m) or _NOT_DATA_CENTRE.search(m)]
    if others or not driver.models:
        what = others[0] if others else "a GPU of unknown model"
        return Refusal(
            f"{old}; {package} supports only data-centre GPUs, and this machine has {what}", remedy
        )
    return Served(f"{old}: {package} is used, which these data-centre GPUs support", compat=True)


def judge_glibc(driver: GpuDriver, image_glibc: str | None) -> Refusal | None:
    """The refusal when an image's glibc cannot load the driver's libraries; None when it can."""
    if driver.glibc is None:
        return None
    if image_glibc is None:
        return Refusal(
            f"the driver's libraries require glibc {driver.glibc} or newer, and the image has no known glibc",
            "use an image with glibc; Alpine's musl cannot load them",
        )
    if numbers(driver.glibc) > numbers(image_glibc):
        return Refusal(
            f"the driver's {driver.glibc_by} requires glibc {driver.glibc}, and the image has {image_glibc}",
            f"use an image with glibc {driver.glibc} or newer",
        )
    return None


def cuda_of_build(frameworks: Mapping[str, str]) -> str | None:
    """The newest CUDA in the versions of packages, such as torch 2.3.0+cu121."""
    found = [
        f"{told[1]}.{told[2]}"
        for version in frameworks.values()
        if (told := re.search(r"\+cu(\d\d)(\d)$", version))
    ]
    return max(found, key=numbers, default=None)


def rocm_of_build(frameworks: Mapping[str, str]) -> str | None:
    """The newest ROCm in the versions of packages, such as torch 2.3.0+rocm6.0."""
    found = [
        told[1] for version in frameworks.values() if (told := re.search(r"\+rocm(\d+(?:\.\d+)+)$", version))
    ]
    return max(found, key=numbers, default=None)


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
