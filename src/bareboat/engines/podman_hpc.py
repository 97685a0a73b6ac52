"""podman-hpc: NERSC's wrapper of Podman, with storage, hooks and limits of the site.

Bareboat needs none of its own options; it passes words after `run` to Podman after its own. Its images are
not used: the flat tree runs as with Podman.

Manual: https://github.com/NERSC/podman-hpc
"""

from __future__ import annotations

from bareboat.engines import Enclosure, Host, podman, podman_state
from bareboat.model import EngineFacts, Image, Refusal, Site

NAME = "podman-hpc"
CONTAINS = True
STACKS = False
JOINS = True
FILES: tuple[str, ...] = ()
STARTS_BY = podman.STARTS_BY
SECCOMP = podman.SECCOMP
LIMITS = podman.LIMITS
#: Podman with other options; its own start was not measured.
COSTS = podman.COSTS

#: It sets cgroupfs itself, and a program that mounts layers, which only the driver "overlay" accepts. Without
#: a configuration the driver must be given, already at the first call: Podman stores it in its database and
#: keeps it.
_WAYS: tuple[dict[str, str], ...] = (
    {"storage-driver": "overlay"},
    {"storage-driver": "overlay", "runtime": "runc"},
    {"storage-driver": "overlay", "runtime": "crun"},
    {},
    {"runtime": "runc"},
)


leaving_nothing = podman_state.leaving_nothing


def probe(host: Host) -> tuple[EngineFacts, ...]:
    return podman.probe_as(NAME, host, _WAYS)


def judge(site: Site, image: Image | None) -> Enclosure | Refusal:
    return podman.judge_as(NAME, site, image)
