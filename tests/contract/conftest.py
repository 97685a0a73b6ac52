"""Fixtures that several files of the contract share."""

from engine_lab import base_site, lab

__all__ = ["base_site", "lab"]
