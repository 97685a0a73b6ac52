"""What Podman leaves behind: a user's state files, and processes that outlive its containers."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator

from bareboat import bash
from bareboat.engines import Host
from bareboat_base.marks import HELPER_VARIABLE

RUNTIME_DIR = "XDG_RUNTIME_DIR"
#: Defines `forget_pause`.
PAUSE = bash.piece(__package__, "podman_pause")
#: Where Podman and podman-hpc keep what a user's containers share when XDG_RUNTIME_DIR is not set.
_STATE = ("/tmp/podman-run-{uid}", "/tmp/containers-user-{uid}", "/tmp/storage-run-{uid}", "/tmp/{uid}_hpc")

#: What Podman makes below the runtime directory, the data directory and the settings directory.
_RUNTIME_STATE = ("containers", "libpod", "crun", "runc")
#: With a longer runtime directory Podman 4.3.1 does not detect the end of a container (measured: with 40
#: characters it waits forever). Without one it uses a directory of its own in /tmp.
_LONGEST_RUNTIME_DIR = 39


@contextlib.contextmanager
def leaving_nothing(host: Host) -> Iterator[str]:
    """Remove the state that Podman makes inside, and kill processes that it leaves behind if their
    environment has the yielded assignment."""
    mark = f"{HELPER_VARIABLE}=probe-{uuid.uuid4()}"
    trees, above = _state()
    new, new_above = host.absent(trees), host.absent(above)
    try:
        yield mark
    finally:
        clean = PAUSE + bash.piece(__package__, "podman_clean")
        afterwards(host).run(["bash", "-c", clean, "bash", mark, *new, "", *new_above])


def afterwards(host: Host) -> Host:
    """The machine, for cleaning up: the time limit of the probe may have passed."""
    return host.for_one_subject()


def _state() -> tuple[list[str], list[str]]:
    """Where Podman keeps its own files, and the parent directories that it makes for them, inner first."""
    home = os.path.expanduser("~")
    data = os.environ.get("XDG_DATA_HOME") or f"{home}/.local/share"
    settings = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    trees = [each.format(uid=os.getuid()) for each in _STATE]
    if is_short(runtime := os.environ.get(RUNTIME_DIR, "")) and runtime:
        trees += [f"{runtime}/{name}" for name in _RUNTIME_STATE]
    # Of its settings only what CNI's lock needs: a file of the user there is none of these.
    trees += [f"{data}/containers", f"{settings}/cni"]
    return trees, [data, os.path.dirname(data), settings]


def is_short(runtime_dir: str) -> bool:
    return len(os.fsencode(runtime_dir)) <= _LONGEST_RUNTIME_DIR
