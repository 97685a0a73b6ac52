"""For which GPUs kernels are built, and on which they run."""

import os
import struct
from pathlib import Path

import pytest
from builders import make_image, make_job, make_rootfs, make_site

from bareboat.gpu import versions
from bareboat.model import Topology
from bareboat.plan import plan
from bareboat_base.elf import binary
from bareboat_images.inside import accelerators
from bareboat_images.inside.survey import look

TORCH = ("sm_75", "sm_80", "sm_86", "sm_90")


@pytest.mark.parametrize(
    ("code", "capability", "runs"),
    [
        # Machine code: of the same major version, not of a newer minor one.
        (["sm_80"], "8.0", True),
        (["sm_80"], "8.6", True),
        (["sm_86"], "8.0", False),
        (["sm_80"], "9.0", False),
        (["sm_80"], "7.5", False),
        (TORCH, "8.9", True),
        (TORCH, "12.0", False),
        (TORCH, "7.0", False),
        # PTX: of any newer version.
        (["compute_80"], "8.0", True),
        (["compute_80"], "12.0", True),
        (["compute_80"], "7.5", False),
        ([*TORCH, "compute_90"], "12.1", True),
        # For one GPU, and for one family.
        (["sm_90a"], "9.0", True),
        (["sm_90a", "compute_90a"], "10.0", False),
        (["sm_100f"], "10.3", True),
        (["sm_100f", "compute_100f"], "12.0", False),
        (["sm_100a"], "10.3", False),
        # Not known.
        ([], "9.0", None),
        (["gfx90a"], "9.0", None),
        (TORCH, "", None),
        (TORCH, "N/A", None),
    ],
)
def test_what_runs(code: list[str], capability: str, runs: bool | None) -> None:
    assert versions.runs_on(code, capability) is runs


def fat(*entries: tuple[int, int], code: bytes = b"code" * 10) -> bytes:
    """A container of code, aligned: (1 for PTX and 2 for machine code, architecture)."""
    body = b"".join(
        struct.pack("<HHIQIIHHI", kind, 0x101, 64, len(code), 0, 0, 0, 0, architecture).ljust(64, b"\0")
        + code
        for kind, architecture in entries
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(data: bytes, *, length: int | None = None) -> bytes:
    """An ELF file with the section .nv_fatbin."""
    names = b"\0.nv_fatbin\0.shstrtab\0"
    at = 64 + len(data) + len(names)
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, at, 0, 64, 56, 0, 64, 3, 2
    )

    def section(name: int, start: int, size: int) -> bytes:
        return struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, start, size, 0, 0, 8, 0)

    table = bytes(64) + section(1, 64, len(data) if length is None else length)
    return header + data + names + table + section(12, 64 + len(data), len(names))


def read(folder: Path, data: bytes) -> tuple[str, ...]:
    (folder / "library.so").write_bytes(data)
    descriptor = os.open(folder / "library.so", os.O_RDONLY)
    try:
        with binary.read(descriptor) as found:
            assert found is not None
            return accelerators.compiled_for(found)
    finally:
        os.close(descriptor)


GOOD = fat((2, 80), (2, 90)) + bytes(16) + fat((2, 80), (2, 120), (1, 90))


def test_the_code_of_a_library(tmp_path: Path) -> None:
    assert read(tmp_path, library(GOOD)) == ("sm_80", "sm_90", "sm_120", "compute_90")
    assert read(tmp_path, library(b"")) == ()


def test_a_damaged_library_tells_nothing_and_ends(tmp_path: Path) -> None:
    assert read(tmp_path, library(GOOD, length=1 << 40)) == ()
    assert read(tmp_path, library(bytes(1 << 20))) == ()
    zero = fat((2, 80), (2, 90))
    endless = zero[:20] + bytes(12) + zero[32:]  # an entry whose header and code have no length
    assert read(tmp_path, library(endless)) == ()
    for cut in range(0, len(GOOD), 7):
        read(tmp_path, library(GOOD[:cut]))
        read(tmp_path, library(GOOD[:cut] + b"\xff" * 40 + GOOD[cut + 40 :]))


def test_an_image_with_pytorch_and_tensorflow(tmp_path: Path) -> None:
    packages = tmp_path / "usr/lib/python3/dist-packages"
    for path, data in (
        ("usr/bin/python3.11", b""),
        (f"{packages.relative_to(tmp_path)}/torch/lib/libtorch_cuda.so", library(GOOD)),
        (
            f"{packages.relative_to(tmp_path)}/tensorflow/python/platform/build_info.py",
            b"build_info = collections.OrderedDict([('cuda_compute_capabilities', "
            b"['sm_60', 'sm_80', 'compute_90']), ("
            b"'cuda_version', '12.5.1')])\n",
        ),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    (tmp_path / "usr/bin/python3").symlink_to("python3.11")
    assert look([tmp_path]).gpu_code == {
        "torch": ("sm_80", "sm_90", "sm_120", "compute_90"),
        "tensorflow": ("sm_60", "sm_80", "compute_90"),
    }


@pytest.mark.parametrize(
    ("gpus", "capabilities", "warns"),
    [(1, ("12.0",), True), (1, ("9.0",), False), (1, (), False), (0, ("12.0",), False)],
)
def test_the_plan_warns_of_gpus_without_kernels(
    gpus: int, capabilities: tuple[str, ...], warns: bool
) -> None:
    image = make_image(frameworks={"torch": "2.7.0"}, cuda="12.4", gpu_code={"torch": TORCH})
    site = make_site(gpu_capabilities=capabilities, gpus=("/dev/nvidia0",))
    job = make_job(topology=Topology(gpus_per_rank=gpus), engine="native")
    made = plan(job, image, make_rootfs(image), site)
    said = (
        "PyTorch 2.7.0 is built for sm_75, sm_80, sm_86, sm_90, and node017 has a GPU of compute capability "
        "12.0, which runs none of these; install a build for it, or use other GPUs"
    )
    assert (said in made.warnings) is warns
