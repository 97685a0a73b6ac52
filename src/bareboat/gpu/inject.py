"""Pure: what a container gets of a GPU driver: mounts, environment variables, and those of the scheduler.

The driver's libraries are often among the host's own (/usr/lib64 holds libcuda.so.1 and libc.so.6). So a
directory of links names only the driver's files, and their host directories are mounted next to it, outside
of any search path. Both are below /run, which is writable in every container: no engine needs a mount point
in the image, and a start costs two or three mounts, however many files a driver has.
"""

from __future__ import annotations

from collections.abc import Mapping

from bareboat.model import CudaCompat, DriverFile, GpuDriver, Mount

#: The links in a container, and the parent of the host's directories.
TOP = "/run/bareboat"
PLACE, HOST = f"{TOP}/driver", f"{TOP}/host"
LIBRARIES, PROGRAMS = f"{PLACE}/lib", f"{PLACE}/bin"

#: Which GPUs the command may use, as chosen by the scheduler or the caller.
_CHOICE = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS",
)  # fmt: skip
#: How one GPU is shared by several processes.
_SHARING = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
PASSED = (*_CHOICE, *_SHARING)

#: An image's request for all GPUs. The scheduler's choice counts; and hooks of container tools, which these
#: variables enable, would add the driver a second time.
IGNORED = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")


def links(driver: GpuDriver) -> dict[str, str]:
    """The directory of links: name -> target, as the container sees it."""
    folders = _folders(driver)
    found = {}
    for kind, files in (("lib", driver.libraries), ("bin", driver.programs)):
        for file in files:
            folder, _, name = file.path.rpartition("/")
            found[f"{kind}/{file.name}"] = f"{HOST}/{folders.index(folder)}/{name}"
    return found


def mounts(driver: GpuDriver, folder: str) -> tuple[Mount, ...]:
    """The mounts; `folder` holds the links."""
    files = [Mount(source=source, target=f"{HOST}/{i}") for i, source in enumerate(_folders(driver))]
    return (*([Mount(source=folder, target=PLACE)] if files else []), *files, *driver.sockets)


def environment(given: Mapping[str, str], driver: GpuDriver, compat: CudaCompat | None) -> dict[str, str]:
    """The command's environment with the driver's variables. The driver's directories come first: an image's
    libraries of another version cannot work with this machine's kernel module."""
    libraries = [compat.folder] if compat is not None else []
    if driver.libraries:
        libraries.append(LIBRARIES)
    made = dict(given)
    if libraries:
        made["LD_LIBRARY_PATH"] = _joined(*libraries, given.get("LD_LIBRARY_PATH"))
    if any(file.name == "libcuda.so.1" for file in driver.libraries):
        # Triton would run ldconfig, whose cache is the host's. (triton/backends/nvidia/driver.py)
        made.setdefault("TRITON_LIBCUDA_PATH", LIBRARIES)
    if driver.programs:
        made["PATH"] = _joined(PROGRAMS, given.get("PATH"))
    return made


def without_own_libraries(driver: GpuDriver) -> GpuDriver:
    """The driver with its devices only, for an image with its own user-space libraries, such as ROCm's."""
    import msgspec

    return msgspec.structs.replace(driver, libraries=(), programs=(), glibc=None, glibc_by="")


def _folders(driver: GpuDriver) -> list[str]:
    files: tuple[DriverFile, ...] = (*driver.libraries, *driver.programs)
    return list(dict.fromkeys(file.path.rpartition("/")[0] for file in files))


def _joined(*parts: str | None) -> str:
    return ":".join(part for part in parts if part)
