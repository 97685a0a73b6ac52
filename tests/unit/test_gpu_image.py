"""Which CUDA a captured environment brings, by the names of its files."""

import pytest

from bareboat.captures.facts import cuda

SITE = "/env/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("path", "version"),
    [
        (f"{SITE}/nvidia_cuda_runtime_cu12-12.4.127.dist-info/METADATA", "12.4"),
        (f"{SITE}/nvidia_cuda_runtime-13.0.48.dist-info/METADATA", "13.0"),
        ("/conda/conda-meta/cuda-cudart-12.1.105-0.json", "12.1"),
        ("/conda/conda-meta/cudatoolkit-11.8.0-h6a678d5_0.json", "11.8"),
        ("/opt/cuda/lib64/libcudart.so.11.8.89", "11.8"),
        ("/opt/cuda/lib64/libcudart.so.12", None),
        (f"{SITE}/nvidia_cudnn_cu12-9.1.0.70.dist-info/METADATA", None),
        (f"{SITE}/torch-2.13.0+cpu.dist-info/METADATA", None),
    ],
)
def test_cuda_is_told_by_a_name(path: str, version: str | None) -> None:
    assert cuda([path]) == version


def test_the_newest_counts_by_number() -> None:
    names = ("nvidia_cuda_runtime_cu12-12.9.79", "nvidia_cuda_runtime_cu12-12.10.1", "numpy-2.1.0")
    assert cuda([f"{SITE}/{name}.dist-info/METADATA" for name in names]) == "12.10"
