"""Directories in memory of a run's containers, overlays included, which vanish with them: held open from
outside, so that their files can be counted when the containers have ended."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bareboat_base import process_facts
from bareboat_base.files import mounts

#: Directories of a container that no program writes results to.
_OTHERS = ("/dev", "/proc", "/sys", "/run")
#: When containers have started, also on a busy machine. Later searches are rarer, each when the run is twice
#: as old.
_STARTED_S = 3.0

log = logging.getLogger("bareboat")


class KeptDirectories:
    """Those of the containers below the process `script`, which was started at `began_s` since 1970."""

    def __init__(self, script: int, began_s: float) -> None:
        self._script, self._began_s = script, began_s
        self._points: dict[int, str] = {}
        # Of the host, or found already. Directories of Apptainer share a file system with its own files.
        self._known = {line.device for line in mounts.lines(mounts.table_of("self"))}
        self._next_s = 0.0

    def search(self, wall_s: float) -> None:
        """Open those that the run has now, unless the last search was not long ago."""
        if wall_s < self._next_s:
            return
        self._next_s = 2 * wall_s if wall_s > _STARTED_S else 0.0
        namespaces = {os.stat("/proc/self/ns/mnt").st_ino}
        for pid in process_facts.started_by(self._script):
            with contextlib.suppress(OSError):  # it ended
                if (number := os.stat(f"/proc/{pid}/ns/mnt").st_ino) not in namespaces:
                    self._open(pid)
                    namespaces.add(number)

    def has_waiting(self, descriptor: int) -> bool:
        """Whether a container is ready, its command waiting for the end of a descriptor: opens its own."""
        for engine in process_facts.started_by(self._script):
            for pid in process_facts.children(engine):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    if hex(descriptor) in Path(f"/proc/{pid}/syscall").read_text().split()[1:2]:
                        self._open(pid)
                        return True
        return False

    def _open(self, pid: int) -> None:
        for line in mounts.lines(mounts.table_of(str(pid))):
            name = f"{line.device}:{line.root}"
            if line.kind not in ("tmpfs", "overlay") or "rw" not in line.options[:1]:
                continue
            if line.point.startswith(_OTHERS) or "/mnt/session" in line.point:
                continue
            if not self._known.isdisjoint((line.device, name)):
                continue
            with contextlib.suppress(OSError):
                opened = os.open(f"/proc/{pid}/root{line.point}", os.O_RDONLY | os.O_DIRECTORY)
                # Another mount may be over it, such as the working directory over the home.
                if _mount_of(opened) == line.number:
                    self._points[opened] = line.point
                    self._known.add(name)
                else:
                    os.close(opened)

    def report(self, bash: str, scripts: Path, environment: Mapping[str, str], stderr: int) -> None:
        """Close them when the containers have ended, and print what they hold by the functions beside the
        job script (kept.sh), which are not started for empty ones."""
        found = [opened for opened in self._points if _holds_files(opened)]
        counted = any(Path(environment["BAREBOAT_CONTROL"]).glob("discarded.*"))  # by PRoot's starter
        for library in scripts.glob("lib-*.sh") if found or counted else ():
            words = [word for opened in found for word in (self._points[opened], str(opened))]
            text = 'parsed=all && . "$1" && show_kept "${@:2}"'  # all of it is parsed, and once
            argv = [bash, "-uc", text, "bash", str(library), f"{self._began_s:.6f}", *words]
            log.debug("+ %s", shlex.join(argv))
            null = subprocess.DEVNULL
            subprocess.run(
                argv, env=environment, stdin=null, stdout=null, stderr=stderr, pass_fds=found, check=False
            )
        for opened in self._points:
            os.close(opened)
        self._points.clear()


def _mount_of(opened: int) -> str:
    with open(f"/proc/self/fdinfo/{opened}", encoding="ascii") as stream:
        return stream.read().partition("mnt_id:")[2].split()[0]


def _holds_files(opened: int) -> bool:
    """Whether blocks of its file system are used; where it counts none, that is not known."""
    try:
        found = os.fstatvfs(opened)
    except OSError:
        return False
    return not found.f_blocks or found.f_blocks != found.f_bfree
