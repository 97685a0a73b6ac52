"""Probes: detect once what this machine supports."""

from bareboat.probe.machine import Needs, probe

__all__ = ["Needs", "probe"]
