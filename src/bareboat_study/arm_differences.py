"""Pure: what differs between the two arms of a study, by their plans and jobs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bareboat.model import Job, Study

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
        yield "image"
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
