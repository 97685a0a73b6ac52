"""Programs that packages start, and what a plan says of those that an image lacks."""

from __future__ import annotations

import msgspec
import pytest
from builders import make_image, make_job
from msgspec import UnsetType

from bareboat.model import CaptureRequest, CodeFacts
from bareboat.plan.warnings import image_warnings
from bareboat_images.inside import starts

JAX = {"jax_cuda12_plugin"}


@pytest.mark.parametrize(
    ("packages", "programs", "lacks"),
    [
        ({"numpy"}, set(), {}),
        ({"gitpython", "pydub"}, set(), {"gitpython": "git", "pydub": "ffmpeg"}),
        ({"gitpython", "pydub"}, {"git"}, {"pydub": "ffmpeg"}),
        # A wheel that brings it, where its package finds it.
        (JAX, set(), {"jax_cuda12_plugin": "ptxas"}),
        (JAX | {"nvidia_cuda_nvcc_cu12"}, set(), {}),
        (JAX | {"nvidia_cuda_nvcc"}, set(), {}),
        ({"pypandoc"}, set(), {"pypandoc": "pandoc"}),
        ({"pypandoc", "pypandoc_binary"}, set(), {}),
        # Without CUDA there is nothing to assemble.
        ({"tensorflow"}, set(), {}),
        ({"tensorflow", "nvidia_cuda_runtime_cu12"}, set(), {"tensorflow": "ptxas"}),
    ],
)
def test_lacking(packages: set[str], programs: set[str], lacks: dict[str, str]) -> None:
    assert starts.lacking(packages, programs.__contains__) == lacks


CAPTURED = (
    'the image has no ffmpeg, which ffmpy and pydub may start: set programs = ["ffmpeg", "git"] under '
    "[capture], or [] when the job does not need them"
)
PULLED = "the image has no git, which gitpython may start: use an image that has git, when the job needs it"


@pytest.mark.parametrize(
    ("name", "programs", "said"),
    [
        ("capture", None, CAPTURED),
        ("debian", None, PULLED),
        ("capture", (), None),
        ("capture", ("git",), None),
    ],
)
def test_the_plan_warns(name: str, programs: tuple[str, ...] | UnsetType, said: str | None) -> None:
    lacks = {"gitpython": "git", "pydub": "ffmpeg", "ffmpy": "ffmpeg"}
    image = msgspec.structs.replace(make_image(), lacks=lacks)
    job = make_job(image=name, capture=CaptureRequest(programs=programs))
    warnings = image_warnings(job, image, CodeFacts(compiles=True))
    assert (said in warnings) if said else not warnings
