"""Probes: look at this machine once and say what it can do."""

from bareboat.probe.machine import probe

__all__ = ["probe"]
