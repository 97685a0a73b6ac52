"""udocker's mode F1: libfakechroot, preloaded, prefixes every path with the image's directory.

It needs neither ptrace nor namespaces.

udocker's own command is not used: it names programs by their path on the host, and starts them with the
image's loader by an option that loses the last arguments of scripts. Here `fakechroot_start` makes the
command's root directory and guards it; the loader is the host's, which must therefore be of the image's C
library. The modes F2 to F4 write into the image's programs and are not supported.

https://github.com/dex4er/fakechroot, and of udocker's many: https://github.com/indigo-dc/udocker
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from bareboat.engines import (
    GUARDED_APART,
    LOADER,
    Container,
    Enclosure,
    Host,
    fakechroot_start,
    proot_start,
    python_start,
)
from bareboat.engines.places import planned
from bareboat.model import Command, EngineFacts, Image, Mount, Refusal, Site
from bareboat_base import architectures
from bareboat_base.errors import PlanError
from bareboat_base.paths import lies_in

MODE = "F1"
STARTS_BY = (LOADER,)

#: Parts of the contract that it does not keep.
LIMITS = {
    "test_the_environment_is_exactly_the_documented_one": (
        "libfakechroot requires environment variables, which the command sees: FAKECHROOT, FAKECHROOT_BASE, "
        "FAKECHROOT_EXCLUDE_PATH, FAKECHROOT_VERSION, LD_LIBRARY_PATH, LD_PRELOAD"
    ),
    "test_packages_and_settings_of_the_caller_do_not_leak": (
        "libfakechroot requires LD_LIBRARY_PATH with the image's directories, which the command sees; the "
        "caller's value is not in it"
    ),
    "test_ranks_of_two_containers_read_each_other_s_memory": GUARDED_APART,
    "test_the_project_s_own_venv_is_the_image_s_not_the_host_s": (
        "the image cannot replace part of a mounted directory: the planner refuses the job"
    ),
    "test_a_directory_mounted_at_the_image_s_workdir_is_the_working_directory": (
        "a mount is a link: the command can work in it, but getcwd returns the path of the mount's source"
    ),
    "test_a_store_in_the_home_is_not_visible": (
        "the links to the image and to the mounts are followed step by step, so the directories on the way "
        "to them are visible, with nothing else in them"
    ),
}

COST = "system calls run at their own speed; each call that names a file is rewritten first"

#: Embedded in the job script: the node that runs it may not have Bareboat.
_STARTER = (
    python_start.source(proot_start).partition("\nif __name__ ==")[0]
    + "\n"
    + python_start.source(fakechroot_start).partition("starts here. ")[2].partition("\n")[2]
)

_LIBRARY = "libfakechroot"
#: udocker's engine has dozens; those of other distributions seldom work where the best three fail.
_MOST_TRIED = 3


def probe(
    host: Host, name: str, libraries: Path, engine: str, machine: str, remedy: str
) -> EngineFacts | None:
    """The first libfakechroot that works here, of udocker's `libraries` and then of the system; the facts of
    the first that fails when none works; None when none is installed."""
    obstacle = None
    if proot_start.landlock_abi() < proot_start.OLDEST_LANDLOCK:
        obstacle = "this kernel has no Landlock, without which the image could be written to"
    failed = None
    installed = any(host.which(program) for program in ("fakechroot", "udocker"))
    for path, origin in _libraries(libraries, engine, machine, installed=installed):
        fault = obstacle or _fault(host, path)
        facts = EngineFacts(
            name=name, path=path, version="", origin=origin, works=fault is None,
            detail=f"{MODE} ran; {COST}" if fault is None else f"{MODE}: {fault}",
            remedy="" if fault is None else remedy, modes=() if fault else (MODE,),
            faults={MODE: fault} if fault else {},
        )  # fmt: skip
        if facts.works:
            return facts
        failed = failed or facts
    return failed


def _libraries(folder: Path, engine: str, machine: str, *, installed: bool) -> Iterator[tuple[str, str]]:
    """Paths and origins of libfakechroot. udocker's: the best fit for the distribution and its version first,
    one per file size; then, if its programs are `installed`, the distribution's. `machine`: udocker's name of
    it."""
    sizes: set[int] = set()
    for library in sorted(folder.glob(f"{_LIBRARY}*{machine}.so"), key=lambda path: _fitness(path.name)):
        if library.stat().st_size not in sizes and len(sizes) < _MOST_TRIED:
            sizes.add(library.stat().st_size)
            yield str(library), engine
    for place in architectures.library_folders(os.uname().machine) if installed else ():
        path = f"{place}/fakechroot/{_LIBRARY}.so"
        if os.path.isfile(path):
            yield path, "of the system"
            return


def _fitness(name: str) -> tuple[bool, bool, str]:
    """Sort key: the library of this machine's distribution and version first."""
    import platform

    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    own = release.get("ID", "?").lower()
    version = release.get("VERSION_ID", "?").partition(".")[0]
    words = name.lower().split("-")
    return own not in words or version not in words, own not in words, name


#: Known faults of libfakechroot: paths of programs started by programs, and writes.
_TRIAL = """\
sh -c 'cat /seen; stat -Lc %s /seen; [ -r /seen ] && echo read; ls -d /seen'
cd / && cat seen && pwd
if cat "$0" 2>/dev/null; then echo the host is seen; fi
{ echo changed >>/seen; echo made >/made; } 2>/dev/null
exit 0
"""
_EXPECTED = "inside\n7\nread\n/seen\ninside\n/\n"


def _fault(host: Host, library: str) -> str | None:
    """The fault of the library, probed with the host's programs in a tree of our own; None when it works."""
    if ":" in library or " " in library:
        return f"the loader does not accept {library!r}: colons and spaces separate libraries"
    return python_start.fault(host, _STARTER, ("--library", library), _TRIAL, _EXPECTED)


def judge(facts: EngineFacts, site: Site, image: Image) -> Enclosure | Refusal:
    """Decide whether this machine's loader can start the image's programs."""
    glibc = image.glibc if image.digest else site.glibc  # an image not captured yet
    if glibc is None:
        return Refusal(
            "the image has no glibc, into whose programs alone libfakechroot can be loaded: static programs "
            "and musl's do not look into the image"
        )
    if glibc != site.glibc:
        return Refusal(
            f"the image has glibc {glibc}, this machine {site.glibc}: under fakechroot programs are "
            "started by this machine's loader, which must be of the same"
        )
    return Enclosure(
        f"{facts.path}, {facts.origin}; mode {MODE} ran here when probed, and the image has this machine's "
        f"glibc {site.glibc}; {COST}; what escapes it, as static programs do, is denied by Landlock",
        functools.partial(_wrap, facts, site),
        overlay=False,
        relinked=True,
    )


def _wrap(facts: EngineFacts, site: Site, command: Command, container: Container) -> Command:
    refuse(container)
    start = python_start.words(_STARTER, ("--library", facts.path), container, command.workdir)
    return python_start.wrap(start, command, container, site)


def refuse(container: Container) -> None:
    """Raise PlanError for mounts that a link cannot replace."""
    remedy = "choose another engine: bareboat doctor"
    tree = planned(container.flat or "")
    mounts = container.planned_mounts
    if container.driver is not None and container.driver.libraries:
        raise PlanError(
            "under fakechroot a GPU's driver cannot be shown: the loader, which nothing is preloaded into, "
            "would look for its libraries by the host's names",
            remedy=remedy,
        )
    for mount in mounts:
        for path in (mount.source, mount.target):
            if ":" in path:
                raise PlanError(
                    f"fakechroot cannot mount {path!r}: a colon means something to it", remedy=remedy
                )
        if mount.writable and lies_in(tree, mount.source):
            raise PlanError(
                f"under fakechroot the image must not lie in a writable mount, as it does in {mount.source}",
                remedy=f"keep the store elsewhere: --store DIR; or {remedy}",
            )
        # A path that the host has too is the host's everywhere, once it is a mount's source.
        if mount.source != mount.target and not lies_in(mount.source, tree or "/"):
            taken = next((f for f in _SYSTEM if lies_in(mount.source, f) or lies_in(f, mount.source)), None)
            if taken is not None:
                raise PlanError(
                    f"under fakechroot {mount.source} cannot be mounted at {mount.target}: the image's "
                    f"{taken} would be the host's",
                    remedy=f"mount a directory of your own; or {remedy}",
                )
    for inner, outer in _pairs(mounts):
        if outer.source == outer.target or outer.writable:
            raise PlanError(
                f"under fakechroot {inner.target} cannot be shown in {outer.target}, which is mounted itself",
                remedy=remedy,
            )
    for mount in mounts:
        writable = [each.source for each in mounts if each.writable and each is not mount]
        outer_path = next((path for path in writable if lies_in(mount.source, path)), None)
        if outer_path is not None and not mount.writable:
            raise PlanError(
                f"under fakechroot {mount.target} cannot be read-only: {mount.source} lies in {outer_path}, "
                "which is mounted writable",
                remedy=f"mount it writable, or {remedy}",
            )


_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/var", "/root")


def _pairs(mounts: Sequence[Mount]) -> Iterator[tuple[Mount, Mount]]:
    for inner in mounts:
        for outer in mounts:
            if inner is not outer and inner.target != outer.target and lies_in(inner.target, outer.target):
                yield inner, outer
