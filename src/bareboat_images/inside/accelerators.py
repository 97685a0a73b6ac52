"""CUDA, ROCm and the GPU kernels of frameworks in an image."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from bareboat_base.elf import binary
from bareboat_base.elf.binary import Binary
from bareboat_base.versions import numbers
from bareboat_images.inside.libraries import Libraries
from bareboat_images.inside.search import Search, package
from bareboat_images.model import CudaCompat

#: PyTorch's libraries with kernels: the current one, and that of versions before 2.0.
_TORCH_KERNELS = ("libtorch_cuda.so", "libtorch_cuda_cu.so")

#: Of the section .nv_fatbin: a sequence of containers, each a header and entries of machine code or PTX. An
#: entry is a header with the architecture, and the code, which is skipped. NVIDIA does not document the
#: format; it was derived from CuPy's libraries, whose list of architectures is known.
_MAGIC = 0xBA55ED50
_PTX, _ELF = 1, 2
#: Nearly all objects of a library are compiled for the same architectures, so more entries are not needed.
_MOST_ENTRIES = 4000


def compiled_for(library: Binary) -> tuple[str, ...]:
    """The architectures of a library's kernels, such as sm_80 and, for PTX, compute_90; () for a library
    without GPU code. All offsets are checked."""
    start, length = library.section(b".nv_fatbin")
    found: set[str] = set()
    entries, at, end = 0, start, start + length
    while at + 16 <= end and entries < _MOST_ENTRIES:
        if library.number("I", at) != _MAGIC:
            at += 8  # containers are aligned
            entries += 1
            continue
        header, size = library.number("H", at + 6), library.number("Q", at + 8)
        if header < 16:
            break
        entry, at = at + header, at + header + size
        while entry + 32 <= min(at, end) and entries < _MOST_ENTRIES:
            entries += 1
            kind, architecture = library.number("H", entry), library.number("I", entry + 28)
            head, body = library.number("I", entry + 4), library.number("Q", entry + 8)
            if head < 32:
                break
            if kind in (_PTX, _ELF) and 20 <= architecture < 1000:
                found.add(f"{'compute' if kind == _PTX else 'sm'}_{architecture}")
            entry += head + body
    return in_order(found)


def in_order(code: Iterable[str]) -> tuple[str, ...]:
    """Each once: machine code, then PTX, by capability."""

    def key(each: str) -> tuple[bool, int, str]:
        digits = re.search(r"\d+", each)
        return each.startswith("compute"), int(digits[0]) if digits else 0, each

    return tuple(sorted(set(code), key=key))


def cuda(search: Search, libraries: Libraries) -> str | None:
    """The newest CUDA version."""
    found: list[str] = []
    for prefix in ("/usr/local/cuda", *search.prefixes):
        for name in ("version.json", "version.txt"):
            text = search.text(f"{prefix}/{name}") if name in search.view.names(prefix) else None
            stated = re.search(r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"(\d+\.\d+)', text or "") or re.search(
                r"CUDA Version (\d+\.\d+)", text or ""
            )
            if stated:
                found.append(stated[1])
    found += _torch_versions(search, "cuda")
    found += _wheels(search, r"nvidia_cuda_runtime(?:_cu\d+)?", parts=2)
    found += _conda_versions(search, ("cuda-cudart", "cudatoolkit"), parts=2)
    found += [_first(version, 2) for version, _ in libraries.get("cudart", ()) if version.count(".") >= 1]
    return _newest(found)


def kernels(search: Search) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Framework -> the architectures of its kernels, from its libraries or TensorFlow's own list."""
    for folder in dict.fromkeys(search.package_folders):
        for name in _TORCH_KERNELS:
            path = f"{folder}/torch/lib/{name}"
            with search.view.open(path) as descriptor, binary.read(descriptor) as library:
                code = compiled_for(library) if library is not None else ()
            if code:
                yield "torch", code
                break
        path = f"{folder}/tensorflow/python/platform/build_info.py"
        text = search.text(path) or ""
        stated = re.search(r"cuda_compute_capabilities['\"]?[^\[]{0,40}\[([^\]]{0,1000})\]", text)
        if stated and (code := in_order(re.findall(r"(?:sm|compute)_\d+[af]?", stated[1]))):
            yield "tensorflow", code


def cuda_compat(search: Search) -> CudaCompat | None:
    """The newest forward-compatibility package. The name of its libcuda contains its version."""
    found = []
    folders = [f"{prefix}/compat" for prefix in ("/usr/local/cuda", *search.prefixes)]
    folders += [f"{prefix}/cuda-compat" for prefix in search.prefixes]  # conda's
    for folder in dict.fromkeys(folders):
        for name in search.view.names(folder):
            stated = re.fullmatch(r"libcuda\.so\.(\d{3}(?:\.\d+){1,2})", name)
            if stated:
                found.append(CudaCompat(folder=folder, driver=stated[1]))
    return max(found, key=lambda each: numbers(each.driver), default=None)


def library(search: Search, libraries: Libraries, stem: str, *, parts: int) -> str | None:
    """The newest version of one of NVIDIA's libraries."""
    found = _wheels(search, rf"nvidia_{stem}(?:_cu\d+)?", parts=parts)
    found += _conda_versions(search, (stem, f"lib{stem}"), parts=parts)
    found += [_first(version, parts) for version, _ in libraries.get(stem, ()) if "." in version]
    return _newest(found)


def rocm(search: Search) -> str | None:
    found = []
    for prefix in ("/opt/rocm", *search.prefixes):
        if ".info" in search.view.names(prefix):
            stated = re.match(r"\d+\.\d+(?:\.\d+)?", search.text(f"{prefix}/.info/version") or "")
            if stated:
                found.append(stated[0])
    return _newest(found or _torch_versions(search, "hip"))


def _torch_versions(search: Search, name: str) -> list[str]:
    found = []
    for folder in dict.fromkeys(search.package_folders):
        if "torch" in search.view.names(folder):
            text = search.text(f"{folder}/torch/version.py") or ""
            stated = re.search(rf"^{name}\b[^=\n]*=\s*'(\d+\.\d+)", text, re.MULTILINE)
            if stated:
                found.append(stated[1])
    return found


def _wheels(search: Search, pattern: str, *, parts: int) -> list[str]:
    folders = dict.fromkeys(search.package_folders)
    packages = (package(name) for folder in folders for name in search.view.names(folder))
    return [_first(each.version, parts) for each in packages if each and re.fullmatch(pattern, each.name)]


def _conda_versions(search: Search, names: Sequence[str], *, parts: int) -> list[str]:
    return [
        _first(packages[name], parts)
        for packages in search.conda.values()
        for name in names
        if name in packages
    ]


def _newest(found: Sequence[str]) -> str | None:
    return max(found, key=numbers, default=None)


def _first(version: str, parts: int) -> str:
    return ".".join(version.split(".")[:parts])
