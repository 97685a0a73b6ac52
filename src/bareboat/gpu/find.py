"""The GPU drivers of a machine, found like the vendors' own container tools find them.

NVIDIA: the loader's cache, then the directories of drivers that ldconfig does not know
(WSL, driver containers, NixOS). Which libraries: the lists "compute", "utility" and "video" of
libnvidia-container. Libraries with another version than the kernel module are left over from updates and
cannot work. https://github.com/NVIDIA/libnvidia-container/blob/main/src/nvc_info.c

AMD: the devices of https://rocm.docs.amd.com/projects/install-on-linux/en/latest/how-to/docker.html and the
list of Apptainer's etc/rocmliblist.conf.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping

from bareboat.gpu import versions
from bareboat.model import DriverFile, GpuDriver, Mount
from bareboat_base import architectures
from bareboat_base.elf import binary, cache
from bareboat_base.expressions import expression
from bareboat_base.files.root import Root
from bareboat_base.versions import numbers

_NVIDIA_LIBRARIES = frozenset({
    "libcuda", "libcudadebugger", "libnvidia-opencl", "libnvidia-gpucomp", "libnvidia-ptxjitcompiler",
    "libnvidia-fatbinaryloader", "libnvidia-allocator", "libnvidia-compiler", "libnvidia-pkcs11",
    "libnvidia-pkcs11-openssl3", "libnvidia-nvvm", "libnvidia-nvvm70", "libnvidia-tileiras",
    "libnvidia-sandboxutils", "libnvidia-ml", "libnvidia-cfg", "libnvidia-nscq",
    "libnvidia-encode", "libnvidia-opticalflow", "libnvcuvid", "libdxcore",
})  # fmt: skip
_NVIDIA_PROGRAMS = (
    "nvidia-smi", "nvidia-debugdump", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server",
)  # fmt: skip
_NVIDIA_FOLDERS = ("/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib",
                   "/run/opengl-driver/lib", "/usr/lib64")  # fmt: skip
_AMD_LIBRARIES = frozenset({
    "libamd_comgr", "libcomgr", "libCXLActivityLogger", "libhc_am", "libhipblas", "libhip_hcc", "libamdhip64",
    "libhiprand", "libhsakmt", "libhsa-runtime64", "libmcwamp", "libmcwamp_cpu", "libmcwamp_hsa",
    "libmiopengemm", "libMIOpen", "libdrm_amdgpu", "librccl", "librocblas", "librocfft-device", "librocfft",
    "librocrand", "librocr_debug_agent64", "libamdcomgr64", "libamdocl64", "libcltrace",
})  # fmt: skip
_AMD_PROGRAMS = ("rocm-smi", "rocminfo", "amd-smi")
_AMD_FOLDERS = ("/opt/rocm/lib", "/opt/rocm/lib64")

_PROGRAM_FOLDERS = (
    "/usr/lib/wsl/lib", "/usr/local/nvidia/bin", "/usr/bin", "/usr/local/bin", "/bin", "/usr/sbin",
    "/opt/bin", "/opt/rocm/bin", "/run/current-system/sw/bin",
)  # fmt: skip

_SOCKETS = ("/run/nvidia-persistenced", "/run/nvidia-fabricmanager")
#: The directory of MPS's control daemon, unless CUDA_MPS_PIPE_DIRECTORY is set.
_MPS = "/tmp/nvidia-mps"

_LIBRARY = expression(r"(?P<stem>lib[\w+-]+)\.so(?:\.[\d.]+)?")
#: The driver's version at the end of a library's name; libnvidia-nvvm.so.4.0.0 has its own.
_VERSIONED = expression(r"\.so\.(\d{3,}\.\d+(?:\.\d+)?)$")


def find(
    root: str = "/", *, machine: str = "", environment: Mapping[str, str] | None = None
) -> tuple[GpuDriver, ...]:
    """The machine's drivers, with files below `root`; `environment`: the caller's PATH, and the directory of
    MPS."""
    tree = Root(root)
    machine = machine or os.uname().machine
    found = (_nvidia(tree, machine, environment or {}), _amd(tree, machine))
    return tuple(driver for driver in found if driver is not None)


def gpus(drivers: Iterable[GpuDriver]) -> tuple[str, ...]:
    """The device nodes with one GPU each."""
    each = re.compile(r"/dev/(nvidia\d+|dri/renderD\d+|dxg)")
    return tuple(path for driver in drivers for path in driver.devices if each.fullmatch(path))


def _nvidia_devices(tree: Root) -> list[str]:
    names = [f"/dev/{name}" for name in tree.names("/dev", "nvidia*") if re.fullmatch(r"nvidia\d+", name)]
    control = ("dxg", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
    folders = [f"/dev/{name}" for name in ("nvidia-caps", "nvidia-caps-imex-channels")]
    return [
        *sorted(names, key=numbers),
        *(path for name in control if tree.real(path := f"/dev/{name}") is not None),
        *(f"{folder}/{name}" for folder in folders for name in tree.names(folder)),
    ]


def _nvidia(tree: Root, machine: str, environment: Mapping[str, str]) -> GpuDriver | None:
    devices = _nvidia_devices(tree)
    version = _nvidia_version(tree)
    if not devices and version is None and b"libcuda.so" not in tree.read("/etc/ld.so.cache"):
        return None
    notes: list[str] = []
    libraries, source = _libraries(tree, machine, _NVIDIA_LIBRARIES, _NVIDIA_FOLDERS, version, notes)
    if not any(file.name.startswith("libcuda.so") for file in libraries):
        notes.append("libcuda.so.1 not found: these GPUs cannot be used for computing")
        libraries = []
    version = version or next(
        (told[1] for file in libraries if (told := _VERSIONED.search(file.path)) is not None), ""
    )
    if not any(file.name == "libcuda.so" for file in libraries):
        # Some programs open it by its development name.
        libraries += [
            DriverFile(name="libcuda.so", path=f.path) for f in libraries if f.name == "libcuda.so.1"
        ]
    programs = _programs(tree, _NVIDIA_PROGRAMS, environment.get("PATH", ""))
    if any(re.fullmatch(r"/dev/nvidia\d+", path) for path in devices) and "/dev/nvidia-uvm" not in devices:
        notes.append("/dev/nvidia-uvm, which CUDA requires, does not exist: nvidia-modprobe -u -c 0")
    notes += _closed(tree, devices)
    glibc, glibc_by = _glibc(libraries)
    return GpuDriver(
        vendor="nvidia", version=version, source=source or "the loader's cache",
        cuda=versions.newest_cuda(version), models=_nvidia_models(tree),
        devices=tuple(devices), majors=_majors(tree, devices),
        libraries=tuple(libraries), programs=tuple(programs), sockets=tuple(_sockets(tree, environment)),
        glibc=glibc, glibc_by=glibc_by, notes=tuple(notes),
    )  # fmt: skip


def _amd(tree: Root, machine: str) -> GpuDriver | None:
    if tree.real("/dev/kfd") is None:
        return None
    devices = [f"/dev/dri/{name}" for name in tree.names("/dev/dri", "renderD*")] + ["/dev/kfd"]
    notes: list[str] = []
    libraries, source = _libraries(tree, machine, _AMD_LIBRARIES, _AMD_FOLDERS, None, notes)
    told = re.match(r"\d+(?:\.\d+)+", tree.text("/opt/rocm/.info/version"))
    glibc, glibc_by = _glibc(libraries)
    return GpuDriver(
        vendor="amd", version=told[0] if told else "", source=source or "the loader's cache",
        devices=tuple(devices), majors=_majors(tree, devices), libraries=tuple(libraries),
        programs=tuple(_programs(tree, _AMD_PROGRAMS)), glibc=glibc, glibc_by=glibc_by,
        notes=(*notes, *_closed(tree, devices)),
    )  # fmt: skip


def _nvidia_version(tree: Root) -> str | None:
    """The kernel module's version, as in "NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release
    Build"."""
    told = re.search(
        r"Kernel Module(?: for \S+)?\s+(\d+\.\d+(?:\.\d+)?)", tree.text("/proc/driver/nvidia/version")
    ) or re.fullmatch(r"(\d+\.\d+(?:\.\d+)?)\n?", tree.text("/sys/module/nvidia/version"))
    return told[1] if told else None


def _nvidia_models(tree: Root) -> tuple[str, ...]:
    """Each GPU's model; none for a driver without /proc/driver/nvidia (WSL)."""
    folder = "/proc/driver/nvidia/gpus"
    texts = (tree.text(f"{folder}/{name}/information") for name in tree.names(folder))
    return tuple(
        told[1].strip() for text in texts if (told := re.search(r"^Model:\s*(.+)$", text, re.MULTILINE))
    )


def _libraries(
    tree: Root,
    machine: str,
    stems: frozenset[str],
    folders: tuple[str, ...],
    version: str | None,
    notes: list[str],
) -> tuple[list[DriverFile], str | None]:
    """The libraries of these names, and the directory in which the first was found when the cache has
    none."""
    found: dict[str, str] = {}
    others: list[str] = []

    def take(name: str, path: str) -> None:
        real = tree.real(path)
        if real is None or not os.path.isfile(real) or name in found:
            return
        if _is_other(real, version):
            others.append(path)
        else:
            found[name] = real

    for entry in _cached(tree, machine, notes):
        if (named := _LIBRARY.fullmatch(entry.name)) and named["stem"] in stems:
            take(entry.name, entry.path)
    stems_found = {name.partition(".so")[0] for name in found}
    source = None
    own = architectures.find(machine)
    for folder in (*folders, *([f"/usr/lib/{own.triplet}"] if own is not None else [])):
        for name in tree.names(folder, "lib*.so*"):
            named = _LIBRARY.fullmatch(name)
            if named and named["stem"] in stems and named["stem"] not in stems_found:
                before = len(found)
                take(name, f"{folder}/{name}")
                if len(found) > before:
                    source = source or (folder if not stems_found else None)
                    if (soname := _soname(found[name])) is not None:
                        take(soname, f"{folder}/{name}")
    if others:
        notes.append(
            f"ignored, because the kernel module has version {version}:  {', '.join(dict.fromkeys(others))}"
        )
    return _files(found), source


def _cached(tree: Root, machine: str, notes: list[str]) -> tuple[cache.Entry, ...]:
    data = tree.read("/etc/ld.so.cache")
    try:
        return cache.parse(data, machine) if data else ()
    except ValueError as error:
        notes.append(f"/etc/ld.so.cache cannot be parsed: {error}")
        return ()


def _soname(path: str) -> str | None:
    with binary.opened(path) as elf:
        return elf.soname


def _is_other(path: str, version: str | None) -> bool:
    told = _VERSIONED.search(path)
    return version is not None and told is not None and told[1] != version


def _programs(tree: Root, names: tuple[str, ...], search: str = "") -> list[DriverFile]:
    """The programs, from their usual directories, then from the caller's PATH."""
    found = {}
    for name in names:
        for folder in (*_PROGRAM_FOLDERS, *(f for f in search.split(":") if f.startswith("/"))):
            real = tree.real(f"{folder}/{name}")
            if real is not None and tree.is_program(f"{folder}/{name}"):
                found[name] = real
                break
    return _files(found)


def _files(found: Mapping[str, str]) -> list[DriverFile]:
    return [DriverFile(name=name, path=path) for name, path in sorted(found.items())]


def _sockets(tree: Root, environment: Mapping[str, str]) -> Iterator[Mount]:
    for path in (*_SOCKETS, environment.get("CUDA_MPS_PIPE_DIRECTORY") or _MPS):
        real = tree.real(path)
        if real is not None and os.path.isdir(real) and os.access(real, os.X_OK):
            # Writable for the pipes in it; the host's modes protect the rest.
            yield Mount(source=real, target=path, writable=True)


def _majors(tree: Root, devices: Iterable[str]) -> tuple[int, ...]:
    return tuple(sorted({major for path in devices if (major := tree.major(path)) is not None}))


def _closed(tree: Root, devices: Iterable[str]) -> list[str]:
    """Notes on devices that this user may not open; nvidia-caps are for administrators."""
    closed = [
        path
        for path in devices
        if "nvidia-caps" not in path
        and (real := tree.real(path)) is not None
        and not os.access(real, os.R_OK | os.W_OK)
    ]
    groups = "the groups render and video" if any("/dri/" in path for path in closed) else "access"
    return [f"you cannot open {', '.join(closed)}; ask the administrator for {groups}"] if closed else []


def _glibc(libraries: Iterable[DriverFile]) -> tuple[str | None, str]:
    """The newest glibc that the libraries require, and the library that requires it."""
    newest, by = None, ""
    for path in dict.fromkeys(file.path for file in libraries):
        with binary.opened(path) as elf:
            glibc = elf.glibc
        if glibc is not None and numbers(glibc) > numbers(newest or ""):
            newest, by = glibc, os.path.basename(path)
    return newest, by
