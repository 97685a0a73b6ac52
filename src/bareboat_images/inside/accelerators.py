"""CUDA, ROCm and the GPU kernels of frameworks in an image."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bareboat_base.elf import binary
from bareboat_base.versions import numbers
from bareboat_images.inside import fatbin
from bareboat_images.inside.fatbin import in_order
from bareboat_images.inside.libraries import Libraries
from bareboat_images.inside.search import Search, package
from bareboat_images.model import CudaCompat

#: PyTorch's libraries with kernels: the current one, and that of versions before 2.0.
_TORCH_KERNELS = ("libtorch_cuda.so", "libtorch_cuda_cu.so")


def cuda(search: Search, libraries: Libraries) -> str | None:
    """The newest CUDA version. All versions are recorded as evidence."""
    found: list[tuple[str, str]] = []
    for prefix in ("/usr/local/cuda", *search.prefixes):
        for name in ("version.json", "version.txt"):
            text = search.text(f"{prefix}/{name}") if name in search.view.names(prefix) else None
            stated = re.search(r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"(\d+\.\d+)', text or "") or re.search(
                r"CUDA Version (\d+\.\d+)", text or ""
            )
            if stated:
                found.append((stated[1], f"{prefix}/{name}"))
    found += _torch_versions(search, "cuda")
    found += _wheels(search, r"nvidia_cuda_runtime(?:_cu\d+)?", parts=2)
    found += _conda_versions(search, ("cuda-cudart", "cudatoolkit"), parts=2)
    found += [(_first(v, 2), path) for v, path in libraries.get("cudart", ()) if v.count(".") >= 1]
    return _newest(search, "CUDA", found)


def kernels(search: Search) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Framework -> the architectures of its kernels, from its libraries or TensorFlow's own list."""
    for folder in dict.fromkeys(search.package_folders):
        for name in _TORCH_KERNELS:
            path = f"{folder}/torch/lib/{name}"
            with search.view.open(path) as descriptor, binary.read(descriptor) as library:
                code = fatbin.read(library) if library is not None else ()
            if code:
                search.note(f"kernels for {' '.join(code)}", path)
                yield "torch", code
                break
        path = f"{folder}/tensorflow/python/platform/build_info.py"
        text = search.text(path) or ""
        stated = re.search(r"cuda_compute_capabilities['\"]?[^\[]{0,40}\[([^\]]{0,1000})\]", text)
        if stated and (code := in_order(re.findall(r"(?:sm|compute)_\d+[af]?", stated[1]))):
            search.note(f"kernels for {' '.join(code)}", path)
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
                found.append((stated[1], folder))
    newest = _newest(search, "CUDA forward compatibility", found)
    matching = [CudaCompat(folder=path, driver=version) for version, path in found if version == newest]
    return matching[0] if matching else None


def library(search: Search, libraries: Libraries, name: str, stem: str, *, parts: int) -> str | None:
    found = _wheels(search, rf"nvidia_{stem}(?:_cu\d+)?", parts=parts)
    found += _conda_versions(search, (stem, f"lib{stem}"), parts=parts)
    found += [(_first(v, parts), path) for v, path in libraries.get(stem, ()) if "." in v]
    return _newest(search, name, found)


def rocm(search: Search) -> str | None:
    found = []
    for prefix in ("/opt/rocm", *search.prefixes):
        if ".info" in search.view.names(prefix):
            stated = re.match(r"\d+\.\d+(?:\.\d+)?", search.text(f"{prefix}/.info/version") or "")
            if stated:
                found.append((stated[0], f"{prefix}/.info/version"))
    return _newest(search, "ROCm", found or _torch_versions(search, "hip"))


def _torch_versions(search: Search, name: str) -> list[tuple[str, str]]:
    found = []
    for folder in dict.fromkeys(search.package_folders):
        if "torch" in search.view.names(folder):
            path = f"{folder}/torch/version.py"
            stated = re.search(rf"^{name}\b[^=\n]*=\s*'(\d+\.\d+)", search.text(path) or "", re.MULTILINE)
            if stated:
                found.append((stated[1], path))
    return found


def _wheels(search: Search, pattern: str, *, parts: int) -> list[tuple[str, str]]:
    found = []
    for folder in dict.fromkeys(search.package_folders):
        for name in search.view.names(folder):
            each = package(name)
            if each is not None and re.fullmatch(pattern, each.name):
                found.append((_first(each.version, parts), f"{folder}/{name}"))
    return found


def _conda_versions(search: Search, names: Sequence[str], *, parts: int) -> list[tuple[str, str]]:
    return [
        (_first(packages[name], parts), f"{prefix}/conda-meta")
        for prefix, packages in search.conda.items()
        for name in names
        if name in packages
    ]


def _newest(search: Search, name: str, found: Sequence[tuple[str, str]]) -> str | None:
    for version, path in found:
        search.note(f"{name} {version}", path)
    return max((version for version, _ in found), key=numbers, default=None)


def _first(version: str, parts: int) -> str:
    return ".".join(version.split(".")[:parts])
