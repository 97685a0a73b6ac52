"""This machine -> Site. Every engine is tried by running something in it."""

from __future__ import annotations

import os
import platform
import pwd
import re
from concurrent.futures import ThreadPoolExecutor

from fairlead import execute, registry
from fairlead.clock import utc_now
from fairlead.gpu import find
from fairlead.model import Check, EngineFacts, FileSystem, Site
from fairlead.probe.host import RealHost, cpus, read_text, user_namespace_obstacle
from fairlead.probe.schedulers import probe_schedulers
from fairlead.store import Store

#: Container tools that a site may have. Fairlead names what it finds; those with an engine are tried.
_OTHER_TOOLS = (
    "enroot",
    "shifter",
    "sarus",
)


def probe(store: Store) -> Site:
    """Look at this machine. Writes only under the store's tmp, which is removed again."""
    with store.scratch() as scratch:
        host = RealHost(scratch, store.root / "tools")
        names = registry.names("engines")
        # Side by side, because what they do is start programs and wait for them.
        with ThreadPoolExecutor(len(names), thread_name_prefix="probe") as pool:
            found = pool.map(lambda name: registry.engine(name).probe(host), names)
            schedulers = probe_schedulers(host)
            engines = tuple(facts for each in found for facts in each)
    tools = {name: path for name in _OTHER_TOOLS if (path := execute.which(name))}
    drivers = find.find(environment=os.environ)
    uid = os.getuid()
    home = os.path.expanduser("~")
    return Site(
        hostname=platform.node(),
        kernel=platform.release(),
        architecture=platform.machine(),
        distribution=_distribution(),
        glibc=(os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc "),
        cpu_model=_cpu_model(),
        cpus=cpus(),
        mem_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE"),
        user=_user(uid),
        uid=uid,
        gid=os.getgid(),
        home=home,
        timezone=os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2],
        load_1min=os.getloadavg()[0],
        checks=_checks(engines),
        engines=engines,
        other_tools=tools,
        schedulers=schedulers,
        gpus=find.gpus(drivers),
        gpu_drivers=drivers,
        file_systems=tuple(
            _file_system(purpose, path)
            for purpose, path in (
                ("store", str(store.root)),
                ("home", home),
                ("tmp", "/tmp"),
                ("shm", "/dev/shm"),
            )
        ),
        probed_at=utc_now(),
    )


#: Modes of engines that work where user namespaces do not, and say nothing of them.
_WITHOUT_NAMESPACES = {"privileged", "F1", "P1", "P2"}


def _checks(engines: tuple[EngineFacts, ...]) -> tuple[Check, ...]:
    obstacle = user_namespace_obstacle()
    contained = [
        facts for facts in engines if facts.name != "native" and not _WITHOUT_NAMESPACES & set(facts.modes)
    ]
    works = any(facts.works for facts in contained)
    overlay = next((facts for facts in contained if facts.works), None)
    status = re.search(r"^Seccomp:\s*(\d)", read_text("/proc/self/status"), re.MULTILINE)
    return (
        Check(
            name="user namespaces",
            works=works or obstacle is None,
            detail="a container was started as this user"
            if works
            else obstacle[0]
            if obstacle
            else f"user.max_user_namespaces={read_text('/proc/sys/user/max_user_namespaces').strip()}",
            remedy="" if works or obstacle is None else obstacle[1],
        ),
        Check(
            name="overlay in a user namespace",
            works=overlay is not None and overlay.overlay,
            detail=overlay.detail if overlay is not None else "not tried: no engine works",
            remedy="" if overlay is None or overlay.overlay else "none needed: a flat tree serves instead",
        ),
        Check(
            name="FUSE",
            works=os.access("/dev/fuse", os.R_OK | os.W_OK),
            detail="/dev/fuse can be opened"
            if os.access("/dev/fuse", os.R_OK | os.W_OK)
            else "/dev/fuse cannot be opened by this user; nothing here needs it",
        ),
        Check(
            name="seccomp",
            works=status is None or status[1] != "2",
            detail="no filter on this process"
            if status is None or status[1] != "2"
            else "a filter is on this process: this is probably a container already",
        ),
    )


def _file_system(purpose: str, path: str) -> FileSystem:
    """The file system of a path, or of the nearest folder above it that exists."""
    place = path
    while not os.path.exists(place):
        place = os.path.dirname(place)
    best, kind, options = "", "unknown", ""
    for line in read_text("/proc/self/mounts").splitlines():
        _, mount, mount_kind, mount_options, *_ = line.split(" ")
        mount = mount.encode().decode("unicode_escape")
        if (os.path.realpath(place) + "/").startswith(mount.rstrip("/") + "/") and len(mount) >= len(best):
            best, kind, options = mount, mount_kind, mount_options
    state = os.statvfs(place)
    return FileSystem(
        purpose=purpose,
        path=path,
        kind=kind,
        free_bytes=state.f_bavail * state.f_frsize,
        free_inodes=state.f_favail,
        options=tuple(o for o in options.split(",") if o in ("ro", "noexec", "nosuid", "nodev")),
    )


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "unknown")
    except OSError:
        return "unknown"


def _cpu_model() -> str:
    named = re.search(r"^model name\s*: (.*)$", read_text("/proc/cpuinfo"), re.MULTILINE)
    return named[1] if named else platform.machine()


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return os.environ.get("USER", str(uid))
