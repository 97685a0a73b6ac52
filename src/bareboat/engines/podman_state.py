"""What Podman leaves behind: its files of a user, and the processes that outlive its containers."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator

from bareboat import bash
from bareboat.engines import Host
from bareboat.model import HELPER_VARIABLE

RUNTIME_DIR = "XDG_RUNTIME_DIR"
#: Where Podman and podman-hpc keep what a user's containers share, when no XDG_RUNTIME_DIR says where.
_STATE = ("/tmp/podman-run-{uid}", "/tmp/containers-user-{uid}", "/tmp/storage-run-{uid}", "/tmp/{uid}_hpc")

#: What Podman makes below the runtime directory, the data directory and that of its settings.
_RUNTIME_STATE = ("containers", "libpod", "crun", "runc")
#: Podman 4.3.1 does not see the end of a container below a longer runtime directory (measured: with 40
#: characters it waits for ever). Without one it takes a directory of its own in /tmp.
_LONGEST_RUNTIME_DIR = 39


@contextlib.contextmanager
def leaving_nothing(host: Host) -> Iterator[str]:
    """What Podman makes for itself inside is removed, and processes that it leaves behind are killed if they
    have the given assignment in their environment."""
    mark = f"{HELPER_VARIABLE}=probe-{uuid.uuid4()}"
    trees, above = _state()
    new, new_above = host.absent(trees), host.absent(above)
    try:
        yield mark
    finally:
        clean = bash.piece(__package__, "podman_clean")
        afterwards(host).run(["bash", "-c", clean, "bash", mark, *new, "", *new_above])


def afterwards(host: Host) -> Host:
    """The machine, for cleaning up: the time for questions may be over."""
    anew = getattr(host, "for_one_subject", None)
    return host if anew is None else anew()


def _state() -> tuple[list[str], list[str]]:
    """Where Podman keeps its own files, and the directories above that it makes for them, inner first."""
    home = os.path.expanduser("~")
    data = os.environ.get("XDG_DATA_HOME") or f"{home}/.local/share"
    settings = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    trees = [each.format(uid=os.getuid()) for each in _STATE]
    if is_short(runtime := os.environ.get(RUNTIME_DIR, "")) and runtime:
        trees += [f"{runtime}/{name}" for name in _RUNTIME_STATE]
    # Of its settings only what CNI's lock needs: a file of the user's there is none of these.
    trees += [f"{data}/containers", f"{settings}/cni"]
    return trees, [data, os.path.dirname(data), settings]


def is_short(runtime_dir: str) -> bool:
    return len(os.fsencode(runtime_dir)) <= _LONGEST_RUNTIME_DIR
