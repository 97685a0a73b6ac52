"""Which release of a framework a site's GPUs can run. Pure.

A driver is judged by the rules that plan jobs: `bareboat.gpu.versions`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from bareboat.gpu.versions import FIRST_DRIVERS, FIRST_OF_MAJOR, judge_cuda
from bareboat.model import GpuDriver, Refusal
from bareboat.project.recipes.catalogue import FOR_CPUS, WITH_CUDA, Release
from bareboat.project.recipes.target import TargetSite
from bareboat_base.errors import PlanError, UsageError
from bareboat_base.versions import numbers


class Chosen(Struct, frozen=True, kw_only=True):
    """`release`: None without a framework. `cuda`: what its packages bring, "" for none."""

    release: Release | None
    cuda: str = ""
    reason: str = ""
    warnings: tuple[str, ...] = ()


def choose(framework: str, asked: str, site: TargetSite | None, machine: str) -> Chosen:
    """`framework`: "torch", "tensorflow", "jax" or "none"; `asked`: "auto", "none" or a version. Raises
    UsageError for a version that no release has, PlanError where the site's GPUs can run none."""
    if framework == "none":
        return _without_framework(asked, site)
    if asked == "none":
        return Chosen(release=FOR_CPUS[framework], reason="--cuda none")
    found = [each for each in WITH_CUDA[framework] if machine in each.machines]
    if asked != "auto":
        fitting = [each for each in found if _within(each.cuda, asked)]
        if not fitting:
            raise UsageError(
                f"no known release of {framework} for {machine} brings CUDA {asked} or older",
                context="known: " + ", ".join(f"{each.requirement} with CUDA {each.cuda}" for each in found),
                remedy=f"--cuda {found[0].cuda}" if found else "--cuda none",
            )
        found = fitting
    if not found:
        return Chosen(
            release=FOR_CPUS[framework],
            reason=f"no release of {framework} for {machine} brings CUDA",
            warnings=(f"no release of {framework} for {machine} brings CUDA: the image computes on CPUs",),
        )
    if site is None:
        first = found[0]
        return Chosen(release=first, cuda=first.cuda, reason=_unknown_driver(first.cuda, "no site was named"))
    driver = site.gpu
    if driver is None:
        return _without_gpu(framework, found[0], asked, site)
    if driver.vendor != "nvidia":
        raise PlanError(
            f"Bareboat knows no release of {framework} for GPUs of {driver.vendor.upper()}",
            remedy="--cuda none, or an image of the GPU's vendor: bareboat image pull",
        )
    return _for_driver(framework, found, driver, site)


def _for_driver(framework: str, found: list[Release], driver: GpuDriver, site: TargetSite) -> Chosen:
    refused: list[str] = []
    for each in found:
        if unfit := _unfit(each, site):
            refused.append(f"{each.requirement}: {unfit}")
            continue
        verdict = judge_cuda(each.cuda, driver, None)
        if isinstance(verdict, Refusal):
            refused.append(f"{each.requirement}: {verdict.reason}")
            continue
        reason = verdict.reason.replace("the image has", "this release has")
        return Chosen(release=each, cuda=each.cuda, reason=reason)
    oldest = FIRST_OF_MAJOR.get(numbers(found[-1].cuda)[0], FIRST_DRIVERS.get(found[-1].cuda, ""))
    raise PlanError(
        f"no known release of {framework} runs on the GPUs of {site.title}",
        context="\n".join(refused),
        remedy=f"--cuda none, or nodes with driver {oldest} or newer",
    )


def listed(packages: Mapping[str, str]) -> tuple[str, str] | None:
    """A framework in a package list, and the CUDA that its release brings; None where neither is known."""
    for framework, releases in WITH_CUDA.items():
        version = packages.get(framework, "")
        for each in releases:
            if version and each.requirement.rpartition("==")[2] == version.partition("+")[0]:
                tagged = re.search(r"\+cu(\d\d)(\d)$", version)
                if "+" in version and tagged is None:
                    return None
                cuda = f"{tagged[1]}.{tagged[2]}" if tagged else each.cuda
                return f"{framework} {version}", cuda
    return None


def judge_listed(packages: Mapping[str, str], site: TargetSite | None) -> str:
    """What is wrong with the listed framework on the site's GPUs; "" for nothing."""
    found = listed(packages)
    if found is None or site is None or site.gpu is None or site.gpu.vendor != "nvidia":
        return ""
    verdict = judge_cuda(found[1], site.gpu, None)
    return f"{found[0]} has CUDA {found[1]}: {verdict.reason}" if isinstance(verdict, Refusal) else ""


def _without_framework(asked: str, site: TargetSite | None) -> Chosen:
    if asked not in ("auto", "none"):
        return Chosen(release=None, cuda=asked, reason="asked for")
    driver = site.gpu if site is not None else None
    if asked == "none" or driver is None or driver.vendor != "nvidia":
        return Chosen(release=None)
    return Chosen(release=None, cuda=driver.cuda or "", reason=f"driver {driver.version} supports it")


def _without_gpu(framework: str, first: Release, asked: str, site: TargetSite) -> Chosen:
    partition = site.unseen_gpus
    if not partition and asked == "auto":
        return Chosen(release=FOR_CPUS[framework], reason=f"{site.node.hostname} has no GPU")
    what = f"{site.node.hostname} has no GPU"
    if partition:
        what += f", and the nodes of partition {partition}, which have, were not probed"
    return Chosen(
        release=first,
        cuda=first.cuda,
        reason=_unknown_driver(first.cuda, what),
        warnings=(f"{what}: the driver is not known   # bareboat doctor --compute"
                  + (f" --partition {partition}" if partition else ""),),
    )  # fmt: skip


def _unknown_driver(cuda: str, why: str) -> str:
    first = FIRST_OF_MAJOR.get(numbers(cuda)[0], FIRST_DRIVERS.get(cuda, ""))
    return f"{why}; it requires driver {first} or newer"


def _unfit(release: Release, site: TargetSite) -> str:
    """Why the kernels of a release do not run on the site's GPUs; "" where they do."""
    oldest, newest = release.capabilities
    for each in site.node.gpu_capabilities:
        if numbers(each) < numbers(oldest):
            return f"it has no code for GPUs of compute capability {each}, only from {oldest}"
        if numbers(each)[0] > numbers(newest)[0]:
            return f"it has no code for GPUs of compute capability {each}, only up to {newest}"
    return ""


def _within(cuda: str, asked: str) -> bool:
    return numbers(cuda)[0] == numbers(asked)[0] and numbers(cuda) <= numbers(asked)
