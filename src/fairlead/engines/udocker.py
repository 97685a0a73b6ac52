"""udocker: no namespaces, no setuid, only ptrace. It works nearly everywhere, and is slow at file calls.

What runs is the PRoot of udocker's engine (or the one on PATH), in udocker's modes P1 and P2, called by
`proot_start` and not by udocker's own command, which cannot keep what Fairlead promises:

- a signal that ends the command becomes exit code 255 or 0, and a process left behind changes the code;
- it adds its own variables (container_root, PS1, …), and passes PRoot an option, -k, that old ones break on;
- it wants a container of its own (a copy of the image, some seconds and all its bytes) and lets jobs write
  to it.

Its other modes are not used: F1 to F4 (fakechroot) leave static programs and absolute links on the host's
files, have no read-only mounts, and F2 to F4 write into the image's programs; R1 to R3 (runc, crun) need user
namespaces, with which bubblewrap works and costs less, and end with 1 when there is no terminal; S1 is
Apptainer, an engine of its own here.

What is not kept, beside speed: Landlock says "Permission denied" where a read-only mount says "Read-only file
system", and does not forbid the owner of the image's files to change their modes and times; containers that
are started one by one cannot read each other's memory (CMA), those of one torchrun can; debuggers, which need
ptrace themselves, do not run. Without Landlock (before Linux 5.19) read-only mounts can be written to.

Manual: https://indigo-dc.github.io/udocker/ and https://proot-me.github.io/
"""

from __future__ import annotations

import inspect
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

from fairlead.engines import (
    HOST_FILES,
    PASSED_ASSIGNMENT,
    RUN_FOLDERS,
    RUN_VARIABLES,
    Container,
    Host,
    Suitable,
    Unsuitable,
    basic_environment,
    passed_on,
    proot_start,
)
from fairlead.errors import PlanError
from fairlead.model import Command, EngineFacts, Image, Joined, Mount, Site, Variable, WhenSet, Word

NAME = "udocker"
CONTAINS = True
STACKS = False
LIMITS: dict[str, str] = {
    "test_ranks_of_two_containers_read_each_other_s_memory": (
        "Landlock, which guards the image, lets no process read the memory of one outside its own container"
    ),
}

#: Fastest first: P1 stops a program only at the calls that matter, P2 at every one.
MODES = ("P1", "P2")

#: Measured, see bench/engines: what nobody should have to find out.
COST = "stat-heavy programs run 27 times slower, import torch half as slow again"

_UNUSED = (
    "not used: F1 to F4 (fakechroot leaves static programs on the host's files and the image writable), "
    "R1 to R3 (they need user namespaces: bubblewrap is faster), S1 (that is the engine apptainer)"
)
_SHARED = ("/dev", "/proc")
_INSTALL = "udocker install"

#: The job script carries it: the node that runs it may have no Fairlead.
_STARTER = inspect.getsource(proot_start)


def probe(host: Host) -> tuple[EngineFacts, ...]:
    """udocker's own PRoot, then the one on PATH, each tried in both modes."""
    found = []
    udocker = host.which("udocker")
    for path, origin in _programs(host):
        found.append(_try(host, path, origin))
        if found[-1].works:
            break
    if not found and udocker is not None:
        found.append(
            EngineFacts(
                name=NAME, path=udocker, version="", origin="on PATH", works=False,
                detail="udocker is there, but its engine is not installed", remedy=_INSTALL,
            )
        )  # fmt: skip
    return tuple(found)


def _programs(host: Host) -> Iterator[tuple[str, str]]:
    """PRoot where udocker looks for it, in its order, and where from."""
    machine = platform.machine()
    top = Path(os.environ.get("UDOCKER_DIR") or os.path.expanduser("~/.udocker"))
    folder = Path(os.environ.get("UDOCKER_BIN") or top / "bin")
    library = Path(os.environ.get("UDOCKER_LIB") or top / "lib")
    for name in (f"proot-{machine}-4_8_0", f"proot-{machine}", "proot"):
        if os.access(folder / name, os.X_OK):
            try:
                version = (library / "VERSION").read_text().strip()
            except OSError:
                version = "of unknown version"
            yield str(folder / name), f"udocker's engine {version}"
            break
    system = host.which("proot")
    if system is not None:
        yield system, "on PATH"


def _try(host: Host, path: str, origin: str) -> EngineFacts:
    outcome = host.run([path, "--version"])
    # At the end of its banner; some builds do not know their own.
    number = re.search(r"\d+\.\d+(\.\d+)?", outcome.stdout)
    version = number[0] if number is not None else ""
    if not outcome.ok:
        detail = f"`proot --version` said: {outcome.stdout or outcome.stderr}".strip()
        return EngineFacts(name=NAME, path=path, version="", origin=origin, works=False, detail=detail)
    modes, said = [], []
    for mode in MODES:
        fault = _fault(host, path, mode)
        said.append(f"{mode} ran" if fault is None else f"{mode}: {fault}")
        if fault is None:
            modes.append(mode)
    if proot_start.landlock_abi() >= proot_start.OLDEST_LANDLOCK:
        guard = "Landlock keeps the image and read-only mounts from being written to"
    else:
        guard = "without Landlock here, each start copies the image, and read-only mounts are not kept"
    return EngineFacts(
        name=NAME, path=path, version=version, origin=origin, works=bool(modes), modes=tuple(modes),
        detail=f"{'; '.join(said)}; {guard}; PRoot: {COST}; {_UNUSED}" if modes else "; ".join(said),
        remedy="" if modes else _INSTALL,
    )  # fmt: skip


#: What a PRoot may get wrong: paths after an exec, in system calls that came after it, and writes.
_TRIAL = """\
sh -c 'cat /seen; stat -c %s /seen; [ -r /seen ] && echo read'
if [ -e "$0" ]; then echo the host is seen; fi
{ echo changed >>/seen; echo made >/made; } 2>/dev/null
exit 0
"""
_EXPECTED = "inside\n7\nread\n"


def _fault(host: Host, path: str, mode: str) -> str | None:
    """What is wrong with PRoot in this mode, tried with the host's programs in a tree of our own."""
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
    words = _start(path, mode, Container(flat=str(root), mounts=mounts, home="/root"), "/")
    argv = [word for word in words if isinstance(word, str)]  # no run, no folders of a run
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


def judge(site: Site, image: Image | None) -> Suitable | Unsuitable:
    if image is None:
        return Unsuitable("there is no image to run", remedy="fairlead capture")
    facts = site.engine(NAME)
    if facts is None:
        return Unsuitable("there is no udocker", remedy="pip install udocker==1.3.17 && udocker install")
    if not facts.works or not facts.modes:
        return Unsuitable(facts.detail, remedy=facts.remedy)
    return Suitable(
        f"{facts.path} {facts.version or 'of unknown version'}, {facts.origin}; mode {facts.modes[0]} ran "
        f"here when probed; {COST}",
        overlay=False,
        mount_points=True,
    )


def wrap(command: Command, container: Container, site: Site) -> Command:
    facts = site.engine(NAME)
    assert facts is not None  # judge() said Suitable
    _refuse_mounts(container)
    words: list[Word] = ["env", "-i", _FIRST_PATH]
    words.append(WhenSet("TMPDIR", (Joined(("TMPDIR=", Variable("TMPDIR"))),)))
    words += ["python3", *_start(facts.path, facts.modes[0], container, command.workdir)]
    environment = {**basic_environment(site, home=container.home), **command.environment}
    for name, value in sorted(environment.items()):
        words += ["--env", f"{name}={value}"]
    for name in RUN_VARIABLES:
        words.append(WhenSet(name, ("--env", Joined((f"{name}=", Variable(name))))))
    words += passed_on(container, "--env", PASSED_ASSIGNMENT)
    return Command(argv=(*words, "--", *command.argv), where=command.where)


def _refuse_mounts(container: Container) -> None:
    """Raises PlanError for mounts that PRoot cannot make, or that Landlock cannot keep read-only."""
    writable = [mount.source for mount in container.mounts if mount.writable]
    for mount in container.mounts:
        for path in (mount.source, mount.target):
            if ":" in path or path.endswith("!"):
                raise PlanError(
                    f"PRoot cannot mount {path!r}: a colon, and an exclamation mark at the end, mean "
                    "something to it",
                    remedy="rename it, or choose another engine: fairlead doctor",
                )
        own = mount.source.startswith(f"{container.flat}/")  # copied for the run, if need be
        outer = next((path for path in writable if f"{mount.source}/".startswith(f"{path}/")), None)
        if outer is not None and not mount.writable and not own:
            raise PlanError(
                f"under PRoot {mount.target} cannot be read-only: {mount.source} lies in {outer}, which is "
                "mounted writable",
                remedy="mount it writable, or choose another engine: fairlead doctor",
            )


#: The system's python3 before one of the caller's, which may need the caller's variables.
_FIRST_PATH = Joined(("PATH=/usr/bin:/bin:", Variable("PATH")))


def _start(proot: str, mode: str, container: Container, workdir: str) -> list[Word]:
    """What follows python3, up to the environment. The parents of the command do not carry the run's mark."""
    # A job is planned once before its image is looked for: then there is no tree yet.
    words: list[Word] = ["-I", "-S", "-c", _STARTER, "--proot", proot, "--root", container.flat or ""]
    words += ["--no-seccomp"] if mode == "P2" else []
    words += ["--cwd", workdir]
    for path in _SHARED:
        words += ["--bind", path, path]
    words += ["--ro", "/sys", "/sys"]
    for path in container.scratch:
        words += ["--scratch", path]
    for path in HOST_FILES:
        words += ["--ro-try", path, path]
    if container.identity is not None:
        for name in ("passwd", "group"):
            words += ["--ro", f"{container.identity}/etc/{name}", f"/etc/{name}"]
    for mount in container.mounts:
        words += ["--bind" if mount.writable else "--ro", mount.source, mount.target]
    for name in RUN_FOLDERS:
        words.append(WhenSet(name, ("--bind", Variable(name), Variable(name))))
    return words
