"""udocker's modes P1 and P2: PRoot, which needs no namespaces and no setuid program, but ptrace, and is slow
at file calls.

PRoot is that of udocker's engine (or the one on PATH), called by `proot_start` and not by udocker's own
command, which cannot guarantee what Bareboat promises:

- a signal that ends the command becomes exit code 255 or 0, and a process left behind changes the code;
- it adds its own variables (container_root, PS1, …), and passes PRoot an option, -k, that old ones reject;
- it requires a container of its own (a copy of the image, some seconds and all its bytes) and lets jobs write
  to it.

Its other modes are not supported: F1 runs only images of the host's glibc and keeps nothing static in them;
F2 to F4 write into the image's programs; R1 to R3 (runc, crun) need user namespaces, with which bubblewrap
works, and exit with 1 without a terminal; S1 is the engine apptainer.

Limits, besides speed: where a read-only mount reports "Read-only file system", Landlock reports
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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from bareboat.engines import (
    HOST_FILES,
    PASSED_ASSIGNMENT,
    PROGRAMS_IN_STORE,
    RUN_VARIABLES,
    Apart,
    Container,
    Enclosure,
    Engine,
    Host,
    Seccomp,
    command_environment,
    forwarded,
    proot_start,
    refusal,
    when_set,
)
from bareboat.engines.places import planned
from bareboat.model import (
    Command,
    EngineFacts,
    IfSet,
    Image,
    Joined,
    Mount,
    NodePath,
    Refusal,
    Site,
    Variable,
    Word,
)
from bareboat_base.errors import PlanError
from bareboat_base.paths import lies_in

NAME = "udocker"
#: PRoot's, fastest first: P1 stops a program only at the relevant calls, P2 at every one.
PROOT_MODES = ("P1", "P2")

#: Measured, see bench/engines; reported to the user.
COST = "stat-heavy programs run 27 times slower, import torch half as slow again"

_INSTALL = "udocker install"
_GET = "pip install udocker && udocker install"

#: Embedded in the job script: the node that runs it may not have Bareboat. The text as `inspect` gives it,
#: whose import takes as long as that of all engines.
_STARTER = proot_start.__loader__.get_data(proot_start.__file__).decode()  # type: ignore[union-attr]
_SHARED = ("/dev", "/proc")
#: The system's python3 before one of the caller's, which may need the caller's variables.
_FIRST_PATH = Joined(("PATH=/usr/bin:/bin:", Variable("PATH")))


def _probe(host: Host) -> tuple[EngineFacts, ...]:
    """Try udocker's own PRoot and the one on PATH, in both modes."""
    found: list[EngineFacts] = []
    for path, origin in _programs(host):
        found.append(_try(host, path, origin))
        if found[-1].works:
            break
    udocker = host.which("udocker")
    if not found and udocker is not None:
        reason = "udocker is there, but its engine is not installed"
        found.append(
            EngineFacts(
                name=NAME, path=udocker, version="", origin="on PATH", works=False, detail=reason,
                remedy=_GET, faults=dict.fromkeys(PROOT_MODES, reason),
            )
        )  # fmt: skip
    return tuple(found)


def _programs(host: Host) -> Iterator[tuple[str, str]]:
    """PRoots in the order in which udocker looks for them, with their origins."""
    machine = os.uname().machine
    machine = "arm64" if machine == "aarch64" else machine  # udocker's name of it (its helper/archinfo.py)
    top = Path(os.environ.get("UDOCKER_DIR") or os.path.expanduser("~/.udocker"))
    programs = Path(os.environ.get("UDOCKER_BIN") or top / "bin")
    for name in (f"proot-{machine}-4_8_0", f"proot-{machine}", "proot"):
        if os.access(path := str(programs / name), os.X_OK):
            yield path, f"udocker's engine {_version(Path(os.environ.get('UDOCKER_LIB') or top / 'lib'))}"
            break
    system = host.which("proot")
    if system is not None:
        yield system, "on PATH"


def _version(libraries: Path) -> str:
    try:
        return (libraries / "VERSION").read_text().strip()
    except OSError:
        return "of unknown version"


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
    scratch = Path(host.scratch())
    root, hidden = scratch / "root", scratch / "hidden"
    root.mkdir()
    (root / "seen").write_text("inside\n")
    hidden.write_text("hidden\n")
    mounts = tuple(
        Mount(source=folder, target=folder)
        for folder in ("/bin", "/usr", "/lib", "/lib32", "/lib64", "/nix", "/gnu")
        if os.path.isdir(folder)
    )
    start = _words(path, mode, Container(flat=str(root), mounts=mounts, home="/root"), "/")
    argv = [word for word in start if isinstance(word, str)]  # no run, no directories of a run
    path_variable = f"PATH=/usr/bin:/bin:{os.environ.get('PATH', '')}"
    outcome = host.run(
        ["env", "-i", path_variable, "python3", *argv, "--env", path_variable,
         "--", "sh", "-c", _TRIAL, str(hidden)]
    )  # fmt: skip
    if (root / "seen").read_text() != "inside\n" or (root / "made").exists():
        return "what runs in it can write to the image"
    if not outcome.ok or outcome.stdout != _EXPECTED:
        if not outcome.stdout and outcome.stderr:
            return f"it failed with: {outcome.stderr.strip().splitlines()[0]}"
        return f"what runs in it sees other files than those of the image: {outcome.stdout!r}"
    return None


class _P1(Engine):
    """A mode as an engine of its own."""

    NAME = "udocker:P1"
    APART = Apart.TRACER
    SECCOMP = Seccomp.TERMINAL
    KEEPS_READ_ONLY = False  # Landlock's rules add up: a writable directory cannot have exceptions
    _MODE = "P1"

    def probe(self, host: Host) -> tuple[EngineFacts, ...]:
        return _probe(host)

    def judge(self, site: Site, image: Image | None) -> Enclosure | Refusal:
        if image is None:
            return Refusal("no image to run", remedy="bareboat image capture")
        works = [facts for facts in site.engines if facts.name == NAME and self._MODE in facts.modes]
        if works:
            return refusal(site, PROGRAMS_IN_STORE) or _enclosure(self._MODE, works[0], site)
        failed = next((f for f in site.engines if f.name == NAME and self._MODE in f.faults), None)
        if failed is not None:
            return Refusal(failed.faults[self._MODE], remedy=failed.remedy)
        what = NAME if site.engine(NAME) is None else "PRoot"
        return Refusal(f"{what} is not installed", remedy=_GET)


class _P2(_P1):
    NAME = "udocker:P2"
    _MODE = "P2"


class Udocker(Engine):
    NAME = NAME
    APART = Apart.TRACER
    KEEPS_READ_ONLY = False
    #: Fastest modes first, as measured: see docs/engines.md.
    MODES: ClassVar[Mapping[str, Engine]] = {"P1": _P1(), "P2": _P2()}

    def probe(self, host: Host) -> tuple[EngineFacts, ...]:
        return _probe(host)

    def judge(self, site: Site, image: Image | None) -> Enclosure | Refusal:
        """The verdict on the first mode that can run the image, else on the first mode."""
        verdicts = [mode.judge(site, image) for mode in self.MODES.values()]
        return next((each for each in verdicts if isinstance(each, Enclosure)), verdicts[0])


def _enclosure(mode: str, facts: EngineFacts, site: Site) -> Enclosure:
    return Enclosure(
        f"{facts.path} {facts.version or 'of unknown version'}, {facts.origin}; mode {mode} ran "
        f"here when probed; {COST}",
        functools.partial(_wrap_proot, mode, facts, site),
        overlay=False,
        mount_points=True,
    )


def _wrap_proot(mode: str, facts: EngineFacts, site: Site, command: Command, container: Container) -> Command:
    """The command with no other environment. Its parents do not carry the run's mark."""
    _refuse_mounts(container)
    given = command_environment.entries(command, container, site)
    carried = command_environment.carried(given)
    found: list[Word] = ["env", "-i", "-S", command_environment.carriers(len(carried)), _FIRST_PATH]
    found += [when_set("TMPDIR"), when_set("BAREBOAT_CONTROL")]
    if container.guard is not None:
        found += [container.guard.loader(full=False), "/usr/bin/env"]
    found += ["python3", *_words(facts.path, mode, container, command.workdir)]
    found += ["--sealed", ",".join(carried)]
    for name, value in command_environment.in_argv(given).items():
        found += ["--env", command_environment.assignment(name, value)]
    for name in RUN_VARIABLES:
        found.append(IfSet(name, ("--env", Joined((f"{name}=", Variable(name))))))
    found += forwarded(container, "--env", PASSED_ASSIGNMENT)
    return Command(argv=(*found, "--", *command.argv), sealed=command_environment.exported(carried))


def _words(proot: str, mode: str, container: Container, workdir: str) -> Sequence[Word]:
    """The words after python3, up to the environment."""
    # A job is planned once before its image is resolved: then there is no tree yet.
    found: list[Word] = ["-I", "-S", "-c", _STARTER, "--proot", proot]
    found += ["--no-seccomp"] if mode == "P2" else []
    found += ["--root", container.flat or "", "--cwd", workdir]
    for path in _SHARED:
        found += ["--bind", path, path]
    found += ["--ro", "/sys", "/sys"]
    for path in container.scratch:
        found += ["--scratch", path]
    for path in HOST_FILES:
        found += ["--ro-try", path, path]
    for mount in (*container.identity_mounts, *container.mounts):
        found += ["--bind" if mount.writable else "--ro", mount.source, mount.target]
    for name in container.run_folders:
        found.append(IfSet(name, ("--bind", NodePath(name), NodePath(name))))
    return found


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
        outer = next((path for path in writable if lies_in(mount.source, path)), None)
        if outer is not None and not mount.writable and not own:
            raise PlanError(
                f"under PRoot {mount.target} cannot be read-only: {mount.source} lies in {outer}, which is "
                "mounted writable",
                remedy="mount it writable, or choose another engine: bareboat doctor",
            )
