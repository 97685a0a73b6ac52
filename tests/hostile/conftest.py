"""Fixtures that hostile tests share with the contract."""

from engine_lab import base_site, lab
from trainings import place, project

__all__ = ["base_site", "lab", "place", "project"]
