"""Pure: what the arms of a study ran in, and what differs between two of them, by their plans and jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UNSET

from bareboat import commands, registry
from bareboat.model import Arm, Image, Job, Matrix, Study

#: Keys of a job that its plan does not read, or that follow from others.
_NO_DIFFERENCE = ("name", "prove", "engine", "image", "capture")
_NAMES = {
    "environment": "environment variables",
    "environment_from": "environment variables",
    "workdir": "working directory",
    "mounts": "mounts",
    "form": "form of the image",
    "site_layer": "site layer",
    "walltime_s": "time limit",
    "writable": "image's writability",
    "seccomp": "system call filter",
    "kernel_cache": "kernel cache",
    "topology": "number of nodes, ranks, CPUs or GPUs",
}


def engine_of(study: Study, arm: Arm) -> str:
    """The engine that the arm ran in, with the version that its plan used."""
    if arm.engine == registry.BARE_METAL:
        return "no container"
    facts = study.site.engine(arm.engine)
    return f"{arm.engine} {facts.version if facts else ''}".rstrip()


def images(matrix: Matrix, studies: Sequence[Study]) -> Iterator[tuple[str, Image]]:
    """Each image with its title, which names its arms where there are several images."""
    for image in matrix.images:
        arms = [arm for each in studies for arm in each.arms if arm.image_digest in (UNSET, image.digest)]
        what = "programs" if {arm.engine for arm in arms} == {registry.BARE_METAL} else "image"
        names = " and ".join(dict.fromkeys(arm.name for arm in arms))
        yield what + f" of {names}" * (len(matrix.images) > 1), image


def software(study: Study, image: Image) -> list[str]:
    """What of the image the command uses: Python and its packages if it is Python, the MPI of several
    ranks."""
    found = []
    if study.metered or any(commands.is_python(word) or word.endswith(".py") for word in study.job.command):
        found += [f"Python {image.python_version}"] * bool(image.python_version)
        found += [f"{name} {version}" for name, version in sorted(image.frameworks.items())]
    ranks = study.job.topology.world_size
    return found + [mpi.title for mpi in image.mpis[:1] if ranks > 1]


def is_same(study: Study) -> bool:
    """Whether both arms have the same plan, so that the study measures the method itself (A/A)."""
    baseline, contender = study.arms
    return baseline.plan_digest == contender.plan_digest


def sentence(study: Study) -> str:
    """What the arms are to each other."""
    if is_same(study):
        return "Both arms have the same plan: this study measures the method itself (A/A)."
    *most, last = list(dict.fromkeys(_names(study))) or ["plan"]
    names = f"{', '.join(most)} and {last}" if most else last
    return f"The arms differ in: {names}."


def _names(study: Study) -> Iterator[str]:
    baseline, contender = study.arms
    if baseline.engine != contender.engine:
        yield f"engine ({baseline.engine}, {contender.engine})"
    if baseline.image_digest != contender.image_digest:
        is_bare = [arm.engine == registry.BARE_METAL for arm in study.arms]
        yield "image" if len({*is_bare}) == 1 else "programs (those of the machine, those of the image)"
    if not study.jobs:
        return
    one, other = study.jobs
    if one.capture.python != other.capture.python:
        yield "Python environment"
    variables = _variables(one, other)
    for name in Job.__struct_fields__:
        if name in _NO_DIFFERENCE or getattr(one, name) == getattr(other, name):
            continue
        title = _NAMES.get(name, name)
        yield f"{title} ({', '.join(variables)})" if name == "environment" else title


def _variables(one: Job, other: Job) -> list[str]:
    """The environment variables whose values differ."""
    names = sorted({*one.environment, *other.environment})
    return [name for name in names if one.environment.get(name) != other.environment.get(name)]


def of_arms(study: Study, baseline: int, contender: int) -> Study:
    """The study with two of its arms, and their jobs."""
    places = (baseline, contender)
    jobs = tuple(study.jobs[place] for place in places) if study.jobs else ()
    return msgspec.structs.replace(study, arms=tuple(study.arms[place] for place in places), jobs=jobs)
