"""Fixtures that hostile tests share with the contract."""

from engine_lab import base_site, lab

__all__ = ["base_site", "lab"]
