"""podman-hpc: NERSC's wrapper of Podman, with storage, hooks and limits of the site.

Bareboat needs none of its own options; it passes words after `run` to Podman after its own. Its images are
not used: the flat tree runs as with Podman.

Manual: https://github.com/NERSC/podman-hpc
"""

from __future__ import annotations

from typing import ClassVar

from bareboat.engines.podman import Podman


class PodmanHpc(Podman):
    """Podman with other options; its own start was not measured."""

    NAME = "podman-hpc"
    #: It sets cgroupfs itself, and a program that mounts layers, which only the driver "overlay" accepts.
    #: Without a configuration the driver must be given, already at the first call: Podman stores it in its
    #: database and keeps it.
    _WAYS: ClassVar[tuple[dict[str, str], ...]] = (
        {"storage-driver": "overlay"},
        {"storage-driver": "overlay", "runtime": "runc"},
        {"storage-driver": "overlay", "runtime": "crun"},
        {},
        {"runtime": "runc"},
    )
