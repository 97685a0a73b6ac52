"""udocker: no namespaces, no setuid. It works nearly everywhere; its cost depends on its mode.

- S1: the Apptainer or Singularity that udocker would use, started in the same way as the engine apptainer.
- F1: libfakechroot, preloaded (`bareboat.engines.fakechroot`).
- P1, P2: PRoot, which needs ptrace and is slow at file calls.

PRoot is that of udocker's engine (or the one on PATH), called by `proot_start` and not by udocker's own
command, which cannot guarantee what Bareboat promises:

- a signal that ends the command becomes exit code 255 or 0, and a process left behind changes the code;
- it adds its own variables (container_root, PS1, …), and passes PRoot an option, -k, that old ones reject;
- it requires a container of its own (a copy of the image, some seconds and all its bytes) and lets jobs write
  to it.

Its other modes are not supported: F2 to F4 write into the image's programs; R1 to R3 (runc, crun) need user
namespaces, with which bubblewrap works and costs less, and exit with 1 without a terminal.

Limits of P1 and P2, besides speed: where a read-only mount reports "Read-only file system", Landlock reports
"Permission denied", and it does not forbid the owner of the image's files to change their modes and times;
containers that are started one by one cannot read each other's memory (CMA), those of one torchrun can;
debuggers, which need ptrace themselves, do not run. Without Landlock (before Linux 5.19) read-only mounts can
be written to.

Manual: https://indigo-dc.github.io/udocker/ and https://proot-me.github.io/
"""

from __future__ import annotations

import functools
import os
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec
from msgspec import structs

from bareboat.engines import (
    GUARDED_APART,
    PROGRAMS_IN_STORE,
    PTRACE,
    Apart,
    Container,
    Enclosure,
    Engine,
    Host,
    Seccomp,
    fakechroot,
    proot_start,
    python_start,
    refusal,
)
from bareboat.engines.apptainer import Apptainer
from bareboat.engines.costs import Cost, Costs
from bareboat.engines.places import planned
from bareboat.model import Command, EngineFacts, Image, Outcome, Refusal, Site
from bareboat_base.errors import PlanError

NAME = "udocker"
#: PRoot's, fastest first: P1 stops a program only at the relevant calls, P2 at every one.
PROOT_MODES = ("P1", "P2")

#: Measured, see bench/engines; reported to the user.
COST = "stat-heavy programs run 27 times slower, import torch half as slow again"

_INSTALL = "udocker install"
_GET = "pip install udocker && udocker install"

_APPTAINER = Apptainer()

#: Embedded in the job script: the node that runs it may not have Bareboat.
_STARTER = python_start.source(proot_start)


def _probe(host: Host) -> tuple[EngineFacts, ...]:
    """Probe each mode: Apptainer, libfakechroot, then udocker's own PRoot and the one on PATH."""
    places = _Places()
    found = [*_starter(host, places)]
    preloaded = fakechroot.probe(host, NAME, places.libraries, places.engine(), places.machine, _GET)
    found += [preloaded] if preloaded is not None else []
    proots = []
    for path, origin in _programs(host, places):
        proots.append(_try(host, path, origin))
        if proots[-1].works:
            break
    found += proots
    udocker = host.which("udocker")
    if not proots and udocker is not None:
        reason = "udocker is there, but its engine is not installed"
        found.append(
            EngineFacts(
                name=NAME, path=udocker, version="", origin="on PATH", works=False, detail=reason,
                remedy=_GET, faults=dict.fromkeys(PROOT_MODES, reason),
            )
        )  # fmt: skip
    return tuple(found)


class _Places:
    """Where udocker has put the programs and libraries of its engine."""

    def __init__(self) -> None:
        machine = os.uname().machine
        #: udocker's name of the machine in its file names (its helper/archinfo.py).
        self.machine = "arm64" if machine == "aarch64" else machine
        top = Path(os.environ.get("UDOCKER_DIR") or os.path.expanduser("~/.udocker"))
        self.programs = Path(os.environ.get("UDOCKER_BIN") or top / "bin")
        self.libraries = Path(os.environ.get("UDOCKER_LIB") or top / "lib")

    def engine(self) -> str:
        try:
            version = (self.libraries / "VERSION").read_text().strip()
        except OSError:
            version = "of unknown version"
        return f"udocker's engine {version}"

    def program(self, *names: str) -> str | None:
        """The first executable one of these names."""
        return next((path for name in names if os.access(path := str(self.programs / name), os.X_OK)), None)


def _programs(host: Host, places: _Places) -> Iterator[tuple[str, str]]:
    """PRoots in the order in which udocker looks for them, with their origins."""
    own = places.program(f"proot-{places.machine}-4_8_0", f"proot-{places.machine}", "proot")
    if own is not None:
        yield own, places.engine()
    system = host.which("proot")
    if system is not None:
        yield system, "on PATH"


class _Under:
    """The host with one program replaced, for the probe of the engine that starts it."""

    def __init__(self, host: Host, path: str) -> None:
        self._host = host
        self._path = path

    def which(self, name: str) -> str | None:
        return self._path if name == _APPTAINER.NAME else self._host.which(name)

    def run(self, argv: Sequence[str]) -> Outcome:
        return self._host.run(argv)

    def scratch(self) -> str:
        return self._host.scratch()

    def absent(self, paths: Sequence[str]) -> tuple[str, ...]:
        return self._host.absent(paths)

    def user_namespace_obstacle(self) -> Refusal | None:
        return self._host.user_namespace_obstacle()

    def for_one_subject(self) -> Host:
        return self._host.for_one_subject()


def _starter(host: Host, places: _Places) -> Iterator[EngineFacts]:
    """Mode S1, in udocker's order: the program of its setting, those on PATH, those of its engine."""
    own = places.program(
        *(f"{name}{end}" for name in ("apptainer", "singularity") for end in (f"-{places.machine}", ""))
    )
    asked = os.environ.get("UDOCKER_USE_SINGULARITY_EXECUTABLE", "")
    path = (
        (asked if asked != "UDOCKER" else own) or host.which("apptainer") or host.which("singularity") or own
    )
    if path is None:
        return
    for facts in _APPTAINER.probe(_Under(host, path)):
        yield msgspec.structs.replace(
            facts,
            name=NAME,
            origin=places.engine() if path == own else "on PATH",
            detail=f"S1 ran {facts.detail}" if facts.works else f"S1: {facts.detail}",
            modes=("S1",) if facts.works else (),
            settings={**facts.settings, _STARTED: ",".join(facts.modes)},
            faults={} if facts.works else {"S1": facts.detail},
        )


#: The setting that holds the mode of the engine apptainer.
_STARTED = "S1"


def _try(host: Host, path: str, origin: str) -> EngineFacts:
    outcome = host.run([path, "--version"])
    # The version is at the end of the banner; some builds do not have one.
    number = re.search(r"\d{1,5}\.\d{1,5}(\.\d{1,5})?", outcome.stdout)
    version = number[0] if number is not None else ""
    if not outcome.ok:
        detail = f"`proot --version` said: {outcome.stdout or outcome.stderr}".strip()
        return EngineFacts(
            name=NAME, path=path, version="", origin=origin, works=False, detail=detail, remedy=_INSTALL,
            faults=dict.fromkeys(PROOT_MODES, detail),
        )  # fmt: skip
    modes, said, faults = [], [], {}
    for mode in PROOT_MODES:
        fault = _fault(host, path, mode)
        said.append(f"{mode} ran" if fault is None else f"{mode}: {fault}")
        if fault is None:
            modes.append(mode)
        else:
            faults[mode] = fault
    if proot_start.landlock_abi() >= proot_start.OLDEST_LANDLOCK:
        guard = "Landlock keeps the image and read-only mounts from being written to"
    else:
        guard = "without Landlock here, each start copies the image, and read-only mounts are not kept"
    return EngineFacts(
        name=NAME, path=path, version=version, origin=origin, works=bool(modes), modes=tuple(modes),
        detail=f"{'; '.join(said)}; {guard}; PRoot: {COST}" if modes else "; ".join(said),
        remedy="" if modes else _INSTALL, faults=faults,
    )  # fmt: skip


#: Known faults of PRoot: paths after an exec, in system calls newer than it, and writes.
_TRIAL = """\
sh -c 'cat /seen; stat -c %s /seen; [ -r /seen ] && echo read'
if [ -e "$0" ]; then echo the host is seen; fi
{ echo changed >>/seen; echo made >/made; } 2>/dev/null
exit 0
"""
_EXPECTED = "inside\n7\nread\n"


def _fault(host: Host, path: str, mode: str) -> str | None:
    """The fault of PRoot in this mode, probed with the host's programs in a tree of our own; None when it
    works."""
    return python_start.fault(host, _STARTER, _own(path, mode), _TRIAL, _EXPECTED)


class _Mode(Engine):
    """A mode as an engine of its own."""

    APART = Apart.TRACER
    SECCOMP = Seccomp.TERMINAL
    _MODE: str
    #: What it requires, in the words of a refusal.
    _NEEDS: str

    def probe(self, host: Host) -> tuple[EngineFacts, ...]:
        return _probe(host)

    def judge(self, site: Site, image: Image | None) -> Enclosure | Refusal:
        if image is None:
            return Refusal("no image to run", remedy="bareboat image capture")
        works = [facts for facts in site.engines if facts.name == NAME and self._MODE in facts.modes]
        if works:
            return refusal(site, PROGRAMS_IN_STORE) or self._judge(works[0], site, image)
        failed = next((f for f in site.engines if f.name == NAME and self._MODE in f.faults), None)
        if failed is not None:
            return self._obstacle(site) or Refusal(failed.faults[self._MODE], remedy=failed.remedy)
        if site.engine(NAME) is None:
            return Refusal("udocker is not installed", remedy=_GET)
        return Refusal(f"{self._NEEDS} is not installed", remedy=_GET)

    @abstractmethod
    def _judge(self, facts: EngineFacts, site: Site, image: Image) -> Enclosure | Refusal:
        """Decide by the facts of a program that works in this mode."""

    def _obstacle(self, site: Site) -> Refusal | None:
        """A better reason than the program's own why it does not work."""
        return None


class _S1(_Mode):
    NAME = "udocker:S1"
    LIMITS = Apptainer.LIMITS
    _MODE = "S1"
    _NEEDS = "Apptainer or Singularity"

    def _judge(self, facts: EngineFacts, site: Site, image: Image) -> Enclosure | Refusal:
        verdict = _APPTAINER.judge(_apptainer_s(facts, site), image)
        if isinstance(verdict, Refusal):
            return verdict
        return structs.replace(verdict, reason=f"mode S1: {verdict.reason}")


class _F1(_Mode):
    NAME = f"{NAME}:{fakechroot.MODE}"
    LIMITS = fakechroot.LIMITS
    STARTS_BY = fakechroot.STARTS_BY
    _MODE = fakechroot.MODE
    _NEEDS = "libfakechroot"

    def _judge(self, facts: EngineFacts, site: Site, image: Image) -> Enclosure | Refusal:
        return fakechroot.judge(facts, site, image)


class _P1(_Mode):
    NAME = "udocker:P1"
    KEEPS_READ_ONLY = False  # Landlock's rules add up: a writable directory cannot have exceptions
    LIMITS: ClassVar[Mapping[str, str]] = {
        "test_ranks_of_two_containers_read_each_other_s_memory": GUARDED_APART,
    }
    _MODE = "P1"
    _NEEDS = "PRoot"

    def _judge(self, facts: EngineFacts, site: Site, image: Image) -> Enclosure | Refusal:
        return _judge_proot(self._MODE, facts, site, image)

    def _obstacle(self, site: Site) -> Refusal | None:
        return refusal(site, PTRACE)  # PRoot's own message does not explain why it may not trace


class _P2(_P1):
    NAME = "udocker:P2"
    _MODE = "P2"


class Udocker(Engine):
    NAME = NAME
    APART = Apart.TRACER
    KEEPS_READ_ONLY = False
    COSTS: ClassVar[Costs] = {
        ("", ""): Cost(start_ms=45, file_call=27, imports=2.0),
        ("P1", ""): Cost(start_ms=45, file_call=27, imports=2.0),
        ("P2", ""): Cost(start_ms=45, file_call=27, imports=2.3),
        ("F1", ""): Cost(start_ms=40, file_call=2.0, imports=1.1),
        ("S1", ""): Cost(start_ms=87, file_call=1.6, imports=1.0),
    }
    LIMITS = _P1.LIMITS
    #: Fastest modes first, as measured: see docs/engines.md.
    MODES: ClassVar[Mapping[str, Engine]] = {"S1": _S1(), fakechroot.MODE: _F1(), "P1": _P1(), "P2": _P2()}

    def probe(self, host: Host) -> tuple[EngineFacts, ...]:
        return _probe(host)

    def judge(self, site: Site, image: Image | None) -> Enclosure | Refusal:
        """The verdict on the first mode that can run the image, else on the first mode."""
        verdicts = [mode.judge(site, image) for mode in self.MODES.values()]
        return next((each for each in verdicts if isinstance(each, Enclosure)), verdicts[0])


def _apptainer_s(facts: EngineFacts, site: Site) -> Site:
    """The site as the engine apptainer sees it."""
    settings = {name: value for name, value in facts.settings.items() if name != _STARTED}
    modes = tuple(facts.settings[_STARTED].split(","))
    told = msgspec.structs.replace(
        facts,
        name=_APPTAINER.NAME,
        modes=modes,
        settings=settings,
        detail=facts.detail.removeprefix("S1 ran "),
    )
    return msgspec.structs.replace(site, engines=(told,))


def _judge_proot(mode: str, facts: EngineFacts, site: Site, _image: Image) -> Enclosure | Refusal:
    return Enclosure(
        f"{facts.path} {facts.version or 'of unknown version'}, {facts.origin}; mode {mode} ran "
        f"here when probed; {COST}",
        functools.partial(_wrap_proot, mode, facts, site),
        overlay=False,
        mount_points=True,
    )


def _wrap_proot(mode: str, facts: EngineFacts, site: Site, command: Command, container: Container) -> Command:
    _refuse_mounts(container)
    start = python_start.words(_STARTER, _own(facts.path, mode), container, command.workdir)
    return python_start.wrap(start, command, container, site)


def _refuse_mounts(container: Container) -> None:
    """Raise PlanError for mounts that PRoot cannot make, or that Landlock cannot keep read-only."""
    writable = [mount.source for mount in container.planned_mounts if mount.writable]
    for mount in container.planned_mounts:
        for path in (mount.source, mount.target):
            if ":" in path or path.endswith("!"):
                raise PlanError(
                    f"PRoot cannot mount {path!r}: a colon, and an exclamation mark at the end, mean "
                    "something to it",
                    remedy="rename it, or choose another engine: bareboat doctor",
                )
        own = container.flat is not None and mount.source.startswith(
            f"{planned(container.flat)}/"
        )  # copied for the run, if necessary
        outer = next((path for path in writable if f"{mount.source}/".startswith(f"{path}/")), None)
        if outer is not None and not mount.writable and not own:
            raise PlanError(
                f"under PRoot {mount.target} cannot be read-only: {mount.source} lies in {outer}, which is "
                "mounted writable",
                remedy="mount it writable, or choose another engine: bareboat doctor",
            )


def _own(proot: str, mode: str) -> tuple[str, ...]:
    return ("--proot", proot, "--no-seccomp") if mode == "P2" else ("--proot", proot)
