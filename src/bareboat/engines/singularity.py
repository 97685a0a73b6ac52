"""Singularity: SingularityCE, and the predecessor of Apptainer, which has the same command line."""

from __future__ import annotations

from bareboat.engines import Apart, Enclosure, Host, apptainer
from bareboat.model import EngineFacts, Image, Refusal, Site

NAME = "singularity"
CONTAINS = True
APART = Apart.USER
STACKS = False
FILES: tuple[str, ...] = ("sif",)
LIMITS = apptainer.LIMITS
SECCOMP = apptainer.SECCOMP
COSTS = apptainer.COSTS


def probe(host: Host) -> tuple[EngineFacts, ...]:
    return apptainer.probe_as(NAME, host)


def judge(site: Site, image: Image | None) -> Enclosure | Refusal:
    return apptainer.judge_as(NAME, site, image)
