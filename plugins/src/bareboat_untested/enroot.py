"""Enroot: NVIDIA's unprivileged sandbox, `enroot start` on the image's flat tree as a container of its own.

Enroot identifies a container by its name in ENROOT_DATA_PATH, so this is the directory of the flat trees. Its
hooks edit files of the container (etc/passwd, for example), which are hard links to the store's layers: so it
gets no directory with hooks, mounts or variables, not even the system's, and all mounts are explicit. It
executes the command and does not stay as its parent. It leaves only its lock in the tree, an empty `.lock`.

Written from https://github.com/NVIDIA/enroot/tree/master/doc and its command line; see UNTESTED.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from bareboat.engines import (
    HOST_FILES,
    STARTERS,
    Apart,
    Container,
    Enclosure,
    Engine,
    Host,
    broken,
    command_environment,
    run_directories,
    when_set,
)
from bareboat.engines.host_programs import system_mounts
from bareboat.engines.places import join, parent, planned
from bareboat.engines.run_directories import inside, inside_name, run_variables
from bareboat.model import (
    Command,
    EngineFacts,
    IfSet,
    Image,
    Joined,
    NodePath,
    Refusal,
    Site,
    Word,
)
from bareboat.model.command import CARRIER
from bareboat_base.errors import PlanError
from bareboat_untested import plain_start

#: The caller's settings of where Enroot keeps the user's data.
_CALLERS = ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_DATA_HOME", "ENROOT_RUNTIME_PATH", "ENROOT_CACHE_PATH")
#: A directory that does not exist: no hooks, no fstab, no variables but ours.
_NOWHERE = "/proc/self/bareboat"
#: fstab(5)'s escapes; a colon separates the fields of --mount and has none.
_ESCAPES = str.maketrans({" ": "\\040", "\t": "\\011", "\n": "\\012", "\\": "\\134"})


class Enroot(Engine):
    NAME = "enroot"
    APART = Apart.USER
    STARTS_BY = STARTERS
    UNTESTED = "untested: written from Enroot's documentation, never run on the real Enroot"

    def probe(self, host: Host) -> tuple[EngineFacts, ...]:
        path = host.which("enroot")
        return () if path is None else (_try(host, path),)

    def judge(self, site: Site, image: Image | None) -> Enclosure | Refusal:
        return run_directories.judge(
            self.NAME, site, image, _wrap, program="enroot", note=lambda _facts: f"; {self.UNTESTED}"
        )


def _try(host: Host, path: str) -> EngineFacts:
    outcome = host.run([path, "version"])
    version = re.search(r"^(\d{1,5}\.\d{1,5}\S{0,40})$", outcome.stdout.strip())
    if not outcome.ok or version is None:
        return broken(Enroot.NAME, path, f"`enroot version` said: {outcome.stdout or outcome.stderr}".strip())
    image = Path(host.scratch()) / "image"
    image.mkdir()
    container = Container(flat=str(image), scratch=("/run",), mounts=system_mounts(), home="/")
    command = Command(
        argv=("/bin/sh", "-c", "echo written > /run/x && cat /run/x && ! echo written 2>/dev/null > /x"),
    )
    words = _words(path, container, command, home=os.path.expanduser("~"), user="", environment={})
    known = [word for word in words if isinstance(word, str)]
    callers = [f"{name}={os.environ[name]}" for name in _CALLERS if os.environ.get(name)]
    outcome = host.run([*known[:4], *callers, *known[4:]])
    if outcome.ok and outcome.stdout == "written\n":
        return EngineFacts(
            name=Enroot.NAME, path=path, version=version[0], origin="on PATH", works=True,
            detail=f"it ran on a read-only directory; {Enroot.UNTESTED}",
        )  # fmt: skip
    obstacle = host.user_namespace_obstacle() or Refusal(
        f"it failed with: {outcome.stderr.strip() or repr(outcome.stdout)}",
        "bareboat doctor",
    )
    detail = f"{obstacle.reason}; {Enroot.UNTESTED}"
    return broken(Enroot.NAME, path, detail, version=version[0], remedy=obstacle.remedy)


def _wrap(facts: EngineFacts, site: Site, command: Command, container: Container) -> Command:
    assert container.flat is not None  # STACKS is False
    found = command_environment.entries(command, container, site)
    words = _words(facts.path, container, command, home=site.home, user=site.user, environment=found)
    return Command(argv=words, sealed=command_environment.exported(found))


def _words(
    path: str,
    container: Container,
    command: Command,
    *,
    home: str,
    user: str,
    environment: Mapping[str, command_environment.Value],
) -> tuple[Word, ...]:
    # It has the run's mark from its start, because it becomes the command.
    words: list[Word] = ["env", "-i", "-S", command_environment.carriers(len(environment))]
    words += ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", f"HOME={home}"]
    words += [f"USER={user}", join("ENROOT_DATA_PATH=", parent(container.flat or ""))]
    words += [f"ENROOT_SYSCONF_PATH={_NOWHERE}", f"ENROOT_CONFIG_PATH={_NOWHERE}"]
    words += [f"ENROOT_{name}=no" for name in ("LOGIN_SHELL", "ROOTFS_WRITABLE", "REMAP_ROOT")]
    words += map(when_set, (*_CALLERS, "BAREBOAT_RUN"))
    words += [path, "start"]
    # Without a value it is the one in Enroot's own environment.
    for number in range(len(environment)):
        words += ["--env", f"{CARRIER}{number}"]
    for line in _mounts(container):
        words += ["--mount", line]
    for name in container.run_folders:
        bind = Joined((NodePath(name), f":{inside_name(name)}:none:x-create=dir,bind,rw"))
        words.append(IfSet(name, ("--mount", bind)))
    run = run_variables()
    start = plain_start.words(command.workdir, environment, run, inside(command.argv), container)
    return (*words, "--", planned(container.flat or "").rpartition("/")[2], *start)


def _mounts(container: Container) -> list[str | Joined]:
    """Fields of fstab(5), joined by colons. Outer before inner, in the given order."""
    found: list[str | Joined] = [
        "/proc:/proc:none:x-create=dir,rbind,rw",
        "/sys:/sys:none:x-create=dir,rbind,ro",
        "/dev:/dev:none:x-create=dir,rbind,rw",
    ]
    for path in container.scratch:
        mode = "1777" if path in ("/tmp", "/var/tmp") else "755"
        found.append(f"tmpfs:{_field(path)}:tmpfs:x-create=dir,rw,nosuid,nodev,mode={mode}")
    found += [f"{path}:{path}:none:x-create=file,bind,ro,nofail,silent" for path in HOST_FILES]
    for mount in (*container.identity_mounts, *container.mounts):
        way = "rw" if mount.writable else "ro"
        source = _field(mount.source) if isinstance(mount.source, str) else mount.source
        found.append(join(source, f":{_field(mount.target)}:none:x-create=auto,rbind,{way}"))
    return found


def _field(path: str) -> str:
    if ":" in path:
        raise PlanError(
            f"enroot cannot mount {path}: a colon parts the fields of its mounts",
            remedy="rename the directory, or use another engine",
        )
    return path.translate(_ESCAPES)
