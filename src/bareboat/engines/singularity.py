"""Singularity: SingularityCE, and the predecessor of Apptainer, which has the same command line."""

from __future__ import annotations

from bareboat.engines.apptainer import Apptainer


class Singularity(Apptainer):
    NAME = "singularity"
