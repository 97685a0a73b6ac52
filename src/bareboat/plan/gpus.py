"""Which GPU driver of the host the container gets, and whether the image can work with it.

A job that requests GPUs and cannot use them is refused. A job that does not request GPUs, with an image that
could use them, runs without and with a warning: CUDA builds of frameworks also run on CPUs.
"""

from __future__ import annotations

from msgspec import Struct, structs

from bareboat.engines import Engine
from bareboat.gpu import inject, versions
from bareboat.model import CudaCompat, Decision, GpuDriver, Image, Job, Mount, Refusal, Rejected, Rootfs, Site
from bareboat.schedulers import Scheduler
from bareboat_base.errors import PlanError

_SUBJECT = "GPU driver"
_DOCTOR = "bareboat doctor  # shows what was found of the driver"


class Gpu(Struct, frozen=True):
    """What the container gets; empty for a job without GPUs."""

    driver: GpuDriver | None = None
    mounts: tuple[Mount, ...] = ()
    compat: CudaCompat | None = None
    passed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()


class _Wish(Struct, frozen=True):
    """The requirements of the job and the image for GPUs."""

    asked: bool
    cuda: str | None
    rocm: str | None

    def __str__(self) -> str:
        has = [f"{name} {v}" for name, v in (("CUDA", self.cuda), ("ROCm", self.rocm)) if v is not None]
        return f"the image has {' and '.join(has)}" if has else "the job asks for GPUs"


def choose_driver(
    job: Job,
    image: Image | None,
    rootfs: Rootfs | None,
    site: Site,
    engine: Engine,
    scheduler: Scheduler,
) -> Gpu:
    """Choose the driver. Raises PlanError when the job requests GPUs and cannot use them in this image."""
    wish = _Wish(
        asked=job.topology.gpus_per_rank > 0,
        cuda=(image.cuda or versions.cuda_of_build(image.frameworks)) if image is not None else None,
        rocm=(image.rocm or versions.rocm_of_build(image.frameworks)) if image is not None else None,
    )
    if not wish.asked and ((wish.cuda is None and wish.rocm is None) or not site.gpu_drivers):
        return Gpu()
    passed = tuple(name for name in inject.PASSED if name not in job.environment)
    unable = _built_for_cpus(wish, image) or _built_for_others(wish, image, site)
    if not engine.CONTAINS:
        return Gpu(passed=passed, warnings=unable)
    driver = _driver(wish, site, scheduler)
    fault = _fault(wish, driver, image, site, scheduler)
    if fault is None and driver is None:
        decision = Decision(
            subject=_SUBJECT,
            choice="none",
            reason=f"the job asks for GPUs by {scheduler.NAME}, and no driver is known of its nodes",
        )
        return Gpu(passed=passed, warnings=unable, decisions=(decision,))
    if fault is not None:
        if wish.asked:
            raise PlanError(
                f"the GPUs cannot be used in this image: {fault.reason}",
                context="\n".join(driver.notes) if driver is not None else "",
                remedy=fault.remedy,
            )
        decision = Decision(
            subject=_SUBJECT,
            choice="none",
            reason="the job asks for no GPUs, and those of this machine cannot be used in this image",
            rejected=(Rejected(choice=_named(driver), reason=fault.reason, remedy=fault.remedy),),
        )
        return Gpu(warnings=(f"the job runs without GPUs: {fault.reason}",), decisions=(decision,))
    assert driver is not None
    given = _given(wish, driver, image, rootfs, passed)
    return structs.replace(given, warnings=(*given.warnings, *unable))


#: Frameworks with builds for CPUs only; their names for users.
_FRAMEWORKS = {
    "torch": "PyTorch",
    "tensorflow": "TensorFlow",
    "tensorflow_cpu": "TensorFlow",
    "jaxlib": "JAX",
}


def _built_for_cpus(wish: _Wish, image: Image | None) -> tuple[str, ...]:
    """A warning for a job that requests GPUs where no framework could use one. An environment that is only
    described may find CUDA in a module of the site, unless its version is a build for CPUs."""
    if not wish.asked or image is None or wish.cuda is not None or wish.rocm is not None:
        return ()
    found = [
        f"{called} {version}"
        for name, called in _FRAMEWORKS.items()
        if (version := image.frameworks.get(name)) and (image.digest or version.endswith("+cpu"))
    ]
    if not found:
        return ()
    return (
        f"the job asks for GPUs, and the image has neither CUDA nor ROCm: {', '.join(found)} would compute "
        "on CPUs; install the build for GPUs, or set gpus_per_rank = 0",
    )


def _built_for_others(wish: _Wish, image: Image | None, site: Site) -> tuple[str, ...]:
    """A warning for a job that requests GPUs for which a framework has no kernels."""
    if not wish.asked or image is None:
        return ()
    return tuple(
        f"{_FRAMEWORKS.get(name, name)} {image.frameworks.get(name, '')} is built for {', '.join(code)}, and "
        f"{site.hostname} has a GPU of compute capability {capability}, which runs none of these; install a "
        "build for it, or use other GPUs"
        for name, code in image.gpu_code.items()
        for capability in site.gpu_capabilities
        if versions.runs_on(code, capability) is False
    )


def _driver(wish: _Wish, site: Site, scheduler: Scheduler) -> GpuDriver | None:
    """The driver of the vendor that the image is made for, else the first. If other nodes run the job, an
    incomplete driver here does not show theirs."""
    found = {
        driver.vendor: driver
        for driver in site.gpu_drivers
        if scheduler.IS_LOCAL or driver.libraries or driver.vendor == "amd"
    }
    if wish.cuda is not None and "nvidia" in found:
        return found["nvidia"]
    if wish.rocm is not None and "amd" in found:
        return found["amd"]
    return next(iter(found.values()), None)


def _fault(
    wish: _Wish, driver: GpuDriver | None, image: Image | None, site: Site, scheduler: Scheduler
) -> Refusal | None:
    """Why the driver cannot be used in the image."""
    if driver is None:
        if not scheduler.IS_LOCAL:  # its nodes may have what this machine lacks
            return None
        return Refusal(f"{site.hostname} has no GPU driver", _DOCTOR)
    if not driver.devices and scheduler.IS_LOCAL:
        return Refusal(
            f"{site.hostname} has {_named(driver)}, but no device of a GPU", "run it on a node with GPUs"
        )
    made_for = {"nvidia": wish.cuda, "amd": wish.rocm}[driver.vendor]
    if made_for is None and (wish.cuda or wish.rocm):
        return Refusal(f"{wish}, and here is {_named(driver)}", "take an image that is made for these GPUs")
    if driver.vendor == "nvidia":
        if not driver.libraries:
            return Refusal("libcuda.so.1 of the driver was not found on this machine", _DOCTOR)
        if wish.cuda is not None:
            verdict = versions.judge_cuda(wish.cuda, driver, image.cuda_compat if image is not None else None)
            if isinstance(verdict, Refusal):
                return verdict
    if image is None or not image.digest or (driver.vendor == "amd" and wish.rocm is not None):
        return None  # an environment that is only described has the machine's glibc
    return versions.judge_glibc(driver, image.glibc)


def _given(
    wish: _Wish,
    driver: GpuDriver,
    image: Image | None,
    rootfs: Rootfs | None,
    passed: tuple[str, ...],
) -> Gpu:
    compat = None
    reason = str(wish)
    if driver.vendor == "nvidia" and wish.cuda is not None:
        verdict = versions.judge_cuda(wish.cuda, driver, image.cuda_compat if image is not None else None)
        reason = verdict.reason
        if isinstance(verdict, versions.Served) and verdict.compat and image is not None:
            compat = image.cuda_compat
    if driver.vendor == "amd" and wish.rocm is not None:
        driver = inject.without_own_libraries(driver)
        reason += ": its own libraries are used, and the devices of the host"
    what = [f"{len(driver.libraries)} libraries", *(file.name for file in driver.programs)]
    decision = Decision(
        subject=_SUBJECT,
        choice=f"{_named(driver)}, found by {driver.source}"
        + (f": {', '.join(what)}" if driver.libraries else ""),
        reason=reason,
    )
    mounts: tuple[Mount, ...] = ()
    if rootfs is not None:
        folder = rootfs.drivers.get(driver.vendor)
        if folder is None and inject.links(driver):
            raise PlanError("the directory of links to the driver's files was not made", remedy=_DOCTOR)
        mounts = inject.mounts(driver, folder or "")
    return Gpu(
        driver=driver,
        mounts=mounts,
        compat=compat,
        passed=passed,
        warnings=driver.notes,
        decisions=(decision,),
    )


def _named(driver: GpuDriver | None) -> str:
    return f"{driver.vendor} {driver.version}".rstrip() if driver is not None else "none"
