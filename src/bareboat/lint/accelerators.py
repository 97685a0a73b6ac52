"""Rules about GPUs and what a site binds for them: CUDA, ROCm and glibc against its drivers and GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from bareboat.gpu import versions
from bareboat.lint import site_of
from bareboat.model import GpuDriver, Refusal, Site
from bareboat_base.expressions import expression
from bareboat_base.versions import numbers
from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.recipe import RecipeSubject
from bareboat_images.lint.rule import Hit, Rule, Severity

_CUDA_TAG = expression(r"(?:nvidia/cuda:|cuda)(\d{2})\.(\d)")
_CUDA_WHEEL = expression(r"(?:/whl/|\+)cu(\d{2})(\d)\b")
_FRAMEWORKS = ("torch", "tensorflow", "jaxlib")


def _driver(site: Site | None, vendor: str) -> GpuDriver | None:
    drivers = site.gpu_drivers if site is not None else ()
    return next((driver for driver in drivers if driver.vendor == vendor), None)


def _cuda(subject: ImageSubject) -> Iterator[Hit]:
    image, driver = subject.image, _driver(site_of(subject), "nvidia")
    cuda = image.cuda or versions.cuda_of_build(image.frameworks)
    if cuda is None or driver is None:
        return
    verdict = versions.judge_cuda(cuda, driver, image.cuda_compat)
    if isinstance(verdict, Refusal):
        yield Hit(message=verdict.reason, remedy=verdict.remedy)
    elif verdict.compat or "except for PTX" in verdict.reason:
        yield Hit(message=verdict.reason, severity=Severity.INFO)


def _cuda_recipe(subject: RecipeSubject) -> Iterator[Hit]:
    driver = _driver(site_of(subject), "nvidia")
    if driver is None:
        return
    found: list[tuple[str, int, int]] = []
    for stage in subject.recipe.stages:
        found += [
            (f"{m[1]}.{m[2]}", stage.start.line, stage.start.last)
            for m in _CUDA_TAG.finditer(subject.base(stage))
        ]
    for step in subject.runs:
        found += [
            (f"{m[1]}.{m[2]}", step.line, step.last)
            for m in _CUDA_WHEEL.finditer(step.expanded(step.instruction.text))
        ]
    for cuda, line, last in dict.fromkeys(found):
        verdict = versions.judge_cuda(cuda, driver, None)
        if isinstance(verdict, Refusal):
            yield Hit(
                message=verdict.reason.replace(", without a forward-compatibility package (cuda-compat)", ""),
                line=line,
                last=last,
                severity=Severity.WARNING,
                remedy=f"{verdict.remedy}; on data-centre GPUs a package cuda-compat in the image helps",
            )


def _kernels(subject: ImageSubject) -> Iterator[Hit]:
    site = site_of(subject)
    for name, code in subject.image.gpu_code.items():
        for capability in site.gpu_capabilities if site is not None else ():
            if site is not None and versions.runs_on(code, capability) is False:
                yield Hit(
                    message=f"{name} is built for {', '.join(code)}, and {site.hostname} has a GPU of "
                    "compute "
                    f"capability {capability}"
                )


def _vendor(subject: ImageSubject) -> Iterator[Hit]:
    image, site = subject.image, site_of(subject)
    if site is None or not site.gpu_drivers:
        return
    cuda = image.cuda or versions.cuda_of_build(image.frameworks)
    rocm = image.rocm or versions.rocm_of_build(image.frameworks)
    vendors = {driver.vendor for driver in site.gpu_drivers}
    if cuda and not rocm and vendors == {"amd"}:
        yield Hit(message=f"the image has CUDA {cuda}, and {site.hostname} has AMD's GPUs")
    elif rocm and not cuda and vendors == {"nvidia"}:
        yield Hit(message=f"the image has ROCm {rocm}, and {site.hostname} has NVIDIA's GPUs")
    elif not cuda and not rocm:
        built = [f"{name} {image.frameworks[name]}" for name in _FRAMEWORKS if name in image.frameworks]
        if built:
            yield Hit(
                message=f"{built[0]} has neither CUDA nor ROCm, and {site.hostname} has GPUs",
                severity=Severity.INFO,
                remedy="install the build for GPUs, if jobs use them",
            )


def _old_libc(subject: ImageSubject) -> Iterator[Hit]:
    site, glibc = site_of(subject), subject.image.glibc
    if site is None or (glibc is None and subject.is_musl):
        return
    for driver in site.gpu_drivers:
        refusal = versions.judge_glibc(driver, glibc)
        if refusal is not None:
            yield Hit(message=refusal.reason, remedy=refusal.remedy, severity=Severity.ERROR)
    for mpi in site.mpis:
        needed = mpi.runtime.glibc if mpi.runtime is not None else None
        if needed and glibc and numbers(needed) > numbers(glibc) and subject.image.mpi_users:
            yield Hit(
                message=f"the site's {mpi.title} requires glibc {needed}, and the image has {glibc}: it "
                "cannot be "
                "bound into the image",
                remedy=f"use a base image with glibc {needed} or newer, or rely on the image's own MPI",
            )


RULES = (
    Rule(
        code="BB1301",
        title="The image's glibc is older than the libraries that a site binds into it need.",
        why="The GPU driver's libraries, or the site's MPI, are loaded into the image's programs.",
        remedy="use a base image with a newer glibc",
        image=_old_libc,
        site=True,
    ),
    Rule(
        code="BB1303",
        title="The image's CUDA is newer than the site's driver supports.",
        why="Programs report no GPU, or an unsupported driver. On data-centre GPUs, a "
        "forward-compatibility package (cuda-compat) in the image makes a newer CUDA work.",
        remedy="use an older CUDA, or add cuda-compat on data-centre GPUs",
        severity=Severity.ERROR,
        recipe=_cuda_recipe,
        image=_cuda,
        site=True,
    ),
    Rule(
        code="BB1304",
        title="A framework has no GPU code for the site's GPUs.",
        why='Its first kernel ends with "no kernel image is available for execution on the device".',
        remedy="install a build for these GPUs",
        severity=Severity.ERROR,
        image=_kernels,
        site=True,
    ),
    Rule(
        code="BB1305",
        title="The image is made for GPUs of another vendor, or for none.",
        why="Frameworks compute on processors then, without an error.",
        remedy="install the build for the site's GPUs",
        image=_vendor,
        site=True,
    ),
)
