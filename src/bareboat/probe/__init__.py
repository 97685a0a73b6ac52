"""Probes: detect once what this machine supports."""

from bareboat.probe.machine import probe

__all__ = ["probe"]
