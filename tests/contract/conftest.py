"""Fixtures that several files of the contract share."""

from engine_lab import base_site, lab
from trainings import place, project

__all__ = ["base_site", "lab", "place", "project"]
