"""Compiled GPU kernels, kept between the runs of an image in a project.

A kernel that a job loads is code: an archive belongs to one user, project and image, and to one kind of node.
Nodes work on copies. Triton and MIOpen can fail where several nodes write to one directory on NFS:
https://github.com/triton-lang/triton/issues/11512, https://github.com/ROCm/rocm-libraries/pull/1612
"""

from __future__ import annotations

import hashlib

from msgspec import UNSET, Struct, UnsetType, structs

from bareboat.engines import KERNELS, Container
from bareboat.model import Decision, Image, Job, KernelCache, Plan, Rootfs
from bareboat.plan.situation import EngineChoice

#: Environment variables that name the directories of caches.
#: CUDA's driver: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables
#: PyTorch: https://docs.pytorch.org/tutorials/recipes/torch_compile_caching_configuration_tutorial.html
#: JAX: https://docs.jax.dev/en/latest/persistent_compilation_cache.html
#: MIOpen: https://rocm.docs.amd.com/projects/MIOpen/en/latest/cache.html
#: CuPy: https://docs.cupy.dev/en/latest/reference/environment.html
_VARIABLES = (
    "CUDA_CACHE_PATH", "CUPY_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR", "MIOPEN_CUSTOM_CACHE_DIR",
    "MIOPEN_USER_DB_PATH", "PYTORCH_KERNEL_CACHE_PATH", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR",
)  # fmt: skip
_SUBJECT = "kernel cache"


class Kernels(Struct, frozen=True):
    """`settings`: environment variables with fixed values."""

    cache: KernelCache | UnsetType = UNSET
    settings: dict[str, str] = {}
    decisions: tuple[Decision, ...] = ()

    def shown_in(self, container: Container) -> Container:
        if self.cache is UNSET:
            return container
        return structs.replace(container, kernels=True, passed=(*container.passed, *self.cache.variables))


def choose_kernel_cache(
    job: Job, image: Image | None, rootfs: Rootfs | None, choice: EngineChoice, container: Container
) -> Kernels:
    """Where compiled kernels are kept. On bare metal only a study keeps them: other runs use the user's
    own."""
    if not choice.gpu.passed:
        return Kernels()
    if not job.kernel_cache:
        return _not_kept("kernel_cache = false")
    place = choice.enclosure.run_folder(container, KERNELS)
    if place is None:
        return _not_kept(f"{choice.engine.NAME} shows no directory of the node")
    of_image = {} if image is None or not choice.engine.CONTAINS else image.environment
    taken = {*job.environment, *job.environment_from, *of_image}
    variables = tuple(name for name in _VARIABLES if name not in taken)
    if not variables:
        return Kernels()
    cache = KernelCache(
        folder="" if rootfs is None else rootfs.kernel_caches,
        key=_key(job, image) if choice.engine.CONTAINS else "",
        place=place if isinstance(place, str) else "",
        variables=variables,
    )
    # The driver's default, which was 256 MiB in older drivers.
    settings = {} if "CUDA_CACHE_MAXSIZE" in taken else {"CUDA_CACHE_MAXSIZE": str(1 << 30)}
    if not choice.engine.CONTAINS:
        return Kernels(cache, settings)
    decision = Decision(
        subject=_SUBJECT,
        choice="compiled GPU kernels are kept between runs"
        + (f", in {_path(cache)}" if cache.folder else ""),
        reason="of this project and image only; each node uses a copy in its temporary directory; "
        "kernel_cache = false keeps none",
    )
    return Kernels(cache, settings, (decision,))


def of_study(plan: Plan, key: str) -> Plan:
    """The plan of an arm, whose kernels are kept for this study only: all arms begin without any."""
    if plan.kernel_cache is UNSET:
        return plan
    return structs.replace(
        plan,
        kernel_cache=structs.replace(plan.kernel_cache, key=f"studies/{key}"),
        otherwise=tuple(of_study(other, key) for other in plan.otherwise),
    )


def _not_kept(reason: str) -> Kernels:
    return Kernels(decisions=(Decision(subject=_SUBJECT, choice="none", reason=reason),))


def _key(job: Job, image: Image | None) -> str:
    """The directory of a project's archives, below that of the image."""
    project = hashlib.sha256((job.workdir or "").encode(errors="surrogateescape")).hexdigest()[:16]
    digest = "" if image is None else image.digest
    return f"{digest.rpartition(':')[2] or 'not-captured'}/{project}"


def _path(cache: KernelCache) -> str:
    return f"{cache.folder}/{cache.key}"
