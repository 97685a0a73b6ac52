"""Maintenance of a store: its contents, their verification, and removal."""

from __future__ import annotations

from bareboat_images.upkeep.removal import Collected, Freed, Removed, collect_garbage, meant, remove
from bareboat_images.upkeep.space import Amount, ImageUsage, Usage, shared_layers, usage
from bareboat_images.upkeep.verification import LayerCheck, State, Verified, verify

__all__ = [
    "Amount", "Collected", "Freed", "ImageUsage", "LayerCheck", "Removed", "State", "Usage", "Verified",
    "collect_garbage", "meant", "remove", "shared_layers", "usage", "verify",
]  # fmt: skip
