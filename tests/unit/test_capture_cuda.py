"""CUDA libraries that are left out of a capture: only those that no other file needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import make_job
from elves import make_elf

from bareboat.captures import cuda
from bareboat.captures.collect import Collection, Part
from bareboat.model import CaptureRequest, Topology
from bareboat_base.elf.loader import of_machine
from bareboat_base.errors import UsageError

#: File -> the libraries that it needs.
FILES = {
    "torch/lib/libtorch.so": ["libcublas.so.12"],
    "nvidia/cublas/lib/libcublas.so.12": ["libcublasLt.so.12"],
    "nvidia/cublas/lib/libcublasLt.so.12": [],
    "nvidia/cudnn/lib/libcudnn_engines.so.9": ["libcudnn_ops.so.9"],
    "nvidia/cudnn/lib/libcudnn_ops.so.9": [],
    "nvidia/cublas/lib/libcublas_static.a": [],
    "nvidia/cublas/__init__.py": [],
    "triton/backends/nvidia/bin/ptxas": [],
    "other/libother.so": [],
}
STAYS = {
    "torch/lib/libtorch.so", "nvidia/cublas/lib/libcublas.so.12", "nvidia/cublas/lib/libcublasLt.so.12",
    "nvidia/cublas/__init__.py", "other/libother.so",
}  # fmt: skip


def test_what_pytorch_is_linked_with_stays(tmp_path: Path) -> None:
    packages = tmp_path / "site-packages"
    for name, needed in FILES.items():
        path = packages / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_elf(needed=needed) if ".so" in name or "/bin/" in name else b"text")
    collection = Collection()
    collection.add(str(packages), Part.PACKAGES)
    programs = [str(packages / name) for name in FILES if ".so" in name or "/bin/" in name]
    before = cuda.size_bytes(collection)
    assert before > 0
    cuda.leave_out(collection, of_machine(""), programs)
    left = {path.removeprefix(f"{packages}/") for path, _ in collection.files()}
    assert left == STAYS
    assert cuda.size_bytes(collection) < before
    assert "4 CUDA libraries that no other file needs" in collection.left_out[-1]


def test_a_job_with_gpus_keeps_them() -> None:
    with pytest.raises(UsageError, match=r"capture\.cuda is false") as raised:
        make_job(capture=CaptureRequest(cuda=False), topology=Topology(gpus_per_rank=1))
    assert "gpus_per_rank = 0" in raised.value.remedy
