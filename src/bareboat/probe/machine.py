"""This machine -> Site. Each engine is probed by running something in it."""

from __future__ import annotations

import logging
import os
import platform
import pwd
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from bareboat import kept_facts, registry
from bareboat.engines import Host
from bareboat.gpu import find, versions
from bareboat.model import Check, EngineFacts, FileSystem, GpuDriver, MpiFacts, SchedulerFacts, Site
from bareboat.model.fabric import Network
from bareboat.probe import mpi_library, mpis, permits
from bareboat.probe.fabrics import probe_network
from bareboat.probe.host import RealHost, cpus
from bareboat.probe.permits import read_text
from bareboat_base import execute
from bareboat_base.clock import utc_now
from bareboat_base.errors import BareboatError, ToolTimeoutError
from bareboat_base.files import failures
from bareboat_base.files.mounts import existing, mount_of
from bareboat_base.printable import one_line
from bareboat_images.store import Store

#: The programs with which an MPI's launcher can reach other nodes.
_REMOTE_TOOLS = ("ssh",)
#: Probes that run side by side: more than there usually are programs to try.
_AT_ONCE = 20


class Needs(Struct, frozen=True, kw_only=True):
    """What a plan depends on: engines and schedulers by name (None: all), and whether it is the MPIs and the
    network."""

    engines: tuple[str, ...] | None = None
    schedulers: tuple[str, ...] | None = None
    mpis: bool = True
    network: bool = True


def probe(store: Store, needs: Needs | None = None, *, thorough: bool = False) -> Site:
    """Probe this machine. Writes only below the store's tmp and, briefly, in /tmp; both are removed.

    Starting a program in each engine of a cluster takes seconds; with `needs`, only what it names is probed.
    Without `thorough`, facts that no engine and no plan needs are omitted.
    """
    needs = needs or Needs()
    uid = os.getuid()
    user = _user(uid)
    home = os.path.expanduser("~")
    remarks: list[str] = []
    file_systems = _file_systems(store, home, remarks)
    drivers = attempt("the GPU drivers", partial(find.find, environment=os.environ), (), remarks)
    with store.scratch(own=True) as scratch:
        host = RealHost(scratch, user=user)
        names = registry.names("engines") if needs.engines is None else needs.engines
        seen = _side_by_side(store, host, needs, names, drivers, remarks, thorough=thorough)
        mpis = tuple(
            attempt(mpi.title, partial(mpi_library.complete, mpi, store, os.environ), mpi, remarks)
            for mpi in seen.mpis
        )
        checks = _checks(host, seen.engines, file_systems, remarks, thorough=thorough)
    return Site(
        hostname=platform.node(),
        kernel=platform.release(),
        architecture=platform.machine(),
        distribution=_distribution(),
        glibc=(os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc "),
        cpu_model=processor_name(read_text("/proc/cpuinfo"), platform.machine()),
        cpus=cpus(),
        mem_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE"),
        user=user,
        uid=uid,
        gid=os.getgid(),
        home=home,
        timezone=os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2],
        load_1min=os.getloadavg()[0],
        checks=checks,
        engines=seen.engines,
        schedulers=seen.schedulers,
        gpus=find.gpus(drivers),
        gpu_drivers=drivers,
        gpu_capabilities=seen.capabilities,
        file_systems=file_systems,
        mpis=mpis,
        network=seen.network,
        other_tools={name: path for name in _REMOTE_TOOLS if (path := execute.which(name))},
        unprobed=tuple(name for name in registry.names("engines") if name not in names),
        remarks=tuple(remarks),
        probed_at=utc_now(),
    )


class _Seen(NamedTuple):
    schedulers: tuple[SchedulerFacts, ...]
    engines: tuple[EngineFacts, ...]
    mpis: tuple[MpiFacts, ...]
    network: Network | None
    capabilities: tuple[str, ...]


def _side_by_side(
    store: Store,
    host: RealHost,
    needs: Needs,
    names: Sequence[str],
    drivers: tuple[GpuDriver, ...],
    remarks: list[str],
    *,
    thorough: bool,
) -> _Seen:
    """What programs answer. `names`: of the engines."""
    state = kept_facts.state()
    capabilities_of = partial(attempt, "the GPUs", partial(_capabilities, drivers), (), remarks)
    queues = registry.names("schedulers") if needs.schedulers is None else needs.schedulers
    if queues == (registry.HERE,) and not (needs.mpis or needs.network or thorough):
        known = [kept_facts.of_engine(store, name).read(state) for name in names]
        engines = tuple(facts for each in known if each is not None for facts in each)
        if None not in known:  # then without threads, which take longer than to read this
            return _Seen((), engines, (), None, capabilities_of())
    # Side by side, because what they do is start programs and wait for them: one that hangs is waited
    # for once, and not once for each.
    with execute.side_by_side(_AT_ONCE) as pool:
        if thorough:
            pool.submit(host.trials.answers)
        network_of = partial(probe_network, host) if needs.network else lambda: None
        seen_network = pool.submit(attempt, "the network", network_of, None, remarks)
        seen_schedulers = pool.map(lambda name: probe_scheduler(name, host), queues)
        seen_engines = pool.map(partial(_engine, store, host, state, thorough=thorough), names)
        no_mpis: tuple[MpiFacts, ...] = ()
        mpis_of = (
            partial(_mpis, store, host, state, remarks, thorough=thorough) if needs.mpis else lambda: no_mpis
        )
        seen_mpis = pool.submit(attempt, "MPI", mpis_of, no_mpis, remarks)
        seen_capabilities = pool.submit(capabilities_of)
        return _Seen(
            schedulers=tuple(facts for facts in seen_schedulers if facts is not None),
            engines=tuple(facts for each in seen_engines for facts in each),
            mpis=seen_mpis.result(),
            network=seen_network.result(),
            capabilities=seen_capabilities.result(),
        )


def probe_scheduler(name: str, host: RealHost) -> SchedulerFacts | None:
    """The scheduler's facts; None where it is not installed."""
    try:
        return registry.scheduler(name).probe(host.for_one_subject())
    except Exception as error:  # a controller that is down does not answer in time
        return SchedulerFacts(name=name, version="", works=False, detail=reason(error))


def _file_systems(store: Store, home: str, remarks: list[str]) -> tuple[FileSystem, ...]:
    places = (("store", str(store.root)), ("home", home), ("tmp", "/tmp"), ("shm", "/dev/shm"))
    systems = (
        attempt(f"the file system of {path}", partial(_file_system, purpose, path), None, remarks)
        for purpose, path in places
    )
    return tuple(system for system in systems if system is not None)


def _checks(
    host: RealHost,
    engines: Sequence[EngineFacts],
    file_systems: tuple[FileSystem, ...],
    remarks: list[str],
    *,
    thorough: bool,
) -> tuple[Check, ...]:
    """What this machine permits, as far as an engine depends on it."""
    in_namespace = any(facts.works and registry.engine(facts.name).NEEDS_NAMESPACES for facts in engines)
    ask = partial(
        permits.checks, host.trials, file_systems, engine_in_namespace=in_namespace, thorough=thorough
    )
    return attempt("the permissions of this machine", ask, (), remarks)


def _engine(
    store: Store, host: RealHost, state: str, name: str, *, thorough: bool
) -> tuple[EngineFacts, ...]:
    """The engine's facts: those of an earlier command where they are still true, unless all is probed.
    `state`: of the machine."""
    kept = kept_facts.of_engine(store, name)
    if not thorough and (known := kept.read(state)) is not None:
        return known
    found = probe_engine(name, host)
    kept.write(found if any(each.works for each in found) else (), state)
    return found


def _mpis(
    store: Store, host: RealHost, state: str, remarks: list[str], *, thorough: bool
) -> tuple[MpiFacts, ...]:
    """The MPIs of launchers on PATH, as of engines; then those of modules."""

    def files(facts: tuple[MpiFacts, ...]) -> Iterator[str]:
        yield mpis.__file__
        for each in facts:
            yield from (path for path in (each.launcher, each.library) if path is not None)

    kept = kept_facts.Kept(store, "launchers", MpiFacts, files)
    found = None if thorough else kept.read(state)
    if found is None:
        own: list[str] = []
        found = mpis.launchers(host, own)
        kept.write(() if own else found, state)
        remarks += own
    return (*found, *mpis.modules(os.environ.get("MODULEPATH", "").split(":")))


def _capabilities(drivers: tuple[GpuDriver, ...]) -> tuple[str, ...]:
    """The compute capabilities of NVIDIA's GPUs, by nvidia-smi."""
    nvidia = next((driver for driver in drivers if driver.vendor == "nvidia" and find.gpus([driver])), None)
    if nvidia is None:
        return ()
    smi = next((file.path for file in nvidia.programs if file.name == "nvidia-smi"), None)
    if smi is None:
        return ()
    asked = execute.run([smi, "--query-gpu=compute_cap", "--format=csv,noheader"])
    return versions.capabilities(asked.stdout) if asked.ok else ()


def _file_system(purpose: str, path: str) -> FileSystem:
    """The file system of a path, or of the nearest existing directory above it."""
    mount, state = mount_of(path), os.statvfs(existing(path))
    return FileSystem(
        purpose=purpose,
        path=path,
        kind=mount.kind,
        free_bytes=state.f_bavail * state.f_frsize,
        free_inodes=state.f_favail,
        options=mount.options,
    )


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "unknown")
    except OSError:
        return "unknown"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return os.environ.get("USER", str(uid))


#: CPU implementer and part -> name, of what clusters have: arch/arm64/include/asm/cputype.h of Linux.
_ARM = {
    (0x41, 0xD0C): "Arm Neoverse N1", (0x41, 0xD40): "Arm Neoverse V1", (0x41, 0xD49): "Arm Neoverse N2",
    (0x41, 0xD4F): "Arm Neoverse V2", (0x41, 0xD84): "Arm Neoverse V3", (0x41, 0xD8E): "Arm Neoverse N3",
    (0x43, 0x0AF): "Cavium ThunderX2", (0x46, 0x001): "Fujitsu A64FX", (0x48, 0xD01): "HiSilicon TSV110",
    (0xC0, 0xAC3): "Ampere-1", (0xC0, 0xAC4): "Ampere-1A",
}  # fmt: skip


def processor_name(cpuinfo: str, machine: str) -> str:
    """`machine`, as uname(1) prints it, where the text names no processor."""
    fields: dict[str, str] = {}
    for line in re.finditer(r"^(\w[\w ]*?)[ \t]*: *(.*)$", cpuinfo, re.MULTILINE):
        fields.setdefault(line[1], line[2])
    if named := fields.get("model name") or fields.get("cpu"):  # cpu: POWER
        return named
    try:
        numbers = int(fields["CPU implementer"], 16), int(fields["CPU part"], 16)
    except (KeyError, ValueError):
        return machine
    return _ARM.get(numbers, f"{machine}, implementer {numbers[0]:#x}, part {numbers[1]:#x}")


T = TypeVar("T")
U = TypeVar("U")

_MOST_LATE, _MOST_DETAIL = 400, 1000

log = logging.getLogger("bareboat")


def reason(error: Exception) -> str:
    """Why a probe failed; --verbose shows the traceback."""
    log.debug("a probe failed", exc_info=error)
    if isinstance(error, ToolTimeoutError):
        return one_line(f"{error.message}; {error.remedy}", limit=_MOST_LATE)
    if isinstance(error, BareboatError):
        return one_line(error.message)
    return one_line(f"{type(error).__name__}: {error}".removesuffix(": "))


def attempt(what: str, probe: Callable[[], T], otherwise: U, remarks: list[str]) -> T | U:
    """The result of the probe; `otherwise` and a remark when it fails in any way, since a machine's tools and
    libraries fail in unforeseeable ways."""
    try:
        return probe()
    except Exception as error:
        remarks.append(f"{what} could not be probed: {reason(error)}")
        return otherwise


def _short(detail: str) -> str:
    return detail if len(detail) <= _MOST_DETAIL else one_line(detail, limit=_MOST_DETAIL)


def probe_engine(name: str, host: Host) -> tuple[EngineFacts, ...]:
    """The engine's facts, with long tool output shortened. An engine whose probe fails counts as not working,
    without effect on the others. Raises OSError where the store's file system is full or broken."""
    try:
        found = registry.engine(name).probe(host)
        return tuple(msgspec.structs.replace(facts, detail=_short(facts.detail)) for facts in found)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in failures.OF_DISKS:
            raise  # the file system is at fault, and another engine would fail the same way
        why = f"the probe failed: {reason(error)}"
        modes = (mode.partition(":")[2] for mode in registry.modes(name))
        return (
            EngineFacts(
                name=name, path=host.which(name) or "", version="", origin="on PATH", works=False,
                detail=why, remedy="bareboat doctor", faults={mode: why for mode in modes if mode},
            ),
        )  # fmt: skip
