"""podman-hpc: NERSC's way to call Podman, with storage, hooks and limits of the site.

It takes no options of its own that Bareboat would need; what it is given after `run` goes to Podman behind
its own. Its images are not used: the flat tree is run, as by Podman.

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
#: Podman with other options; its own start was not timed.
COSTS = podman.COSTS

#: It asks for cgroupfs itself, and names a program that mounts layers, which only the driver "overlay" takes.
#: Where no configuration says so, that must be said, and at the first call: Podman notes the driver in its
#: database, and keeps to it.
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
