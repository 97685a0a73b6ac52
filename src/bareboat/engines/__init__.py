"""Engines: ways to run a command in an image. One module each, satisfying `Engine`.

An engine knows nothing of launchers and schedulers. It judges whether it can run an image; its
`Enclosure` makes of a command the one that runs it in a container.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Protocol

from bareboat.engines.places import Place, planned
from bareboat.model import (
    Command,
    EngineFacts,
    ForwardEnv,
    GpuDriver,
    IfSet,
    Image,
    Joined,
    Mount,
    NodePath,
    Outcome,
    Refusal,
    Site,
    Variable,
)


class Host(Protocol):
    """What an engine's probe may ask of the machine. `bareboat.probe.host` is the real one."""

    def which(self, name: str) -> str | None: ...

    def run(self, argv: Sequence[str]) -> Outcome: ...

    def tool(self, name: str) -> str | None:
        """The folder of a tool that `bareboat doctor --fix` has installed."""
        ...

    def scratch(self) -> str:
        """A folder on the store's file system, gone after the probe."""
        ...

    def absent(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Those of the paths that were not there when they were first asked for."""
        ...

    def user_namespace_obstacle(self) -> Refusal | None:
        """What forbids user namespaces here; None when they work."""
        ...


class Seccomp(StrEnum):
    """How an engine's containers are filtered: by our list of system calls, by our filter that guards the
    terminal only, by the engine's own list, or not at all. An engine says it as its `SECCOMP`."""

    FULL = "full"
    TERMINAL = "terminal"
    OWN = "own"
    NONE = "none"


class Apart(StrEnum):
    """What an engine puts a run's processes into that they cannot leave: a user namespace that no other
    process of the user's shares (Podman's containers share one), a tracer (PRoot), or nothing. An engine says
    it as its `APART`."""

    USER = "user"
    TRACER = "tracer"
    NOTHING = ""


@dataclass(frozen=True, slots=True)
class Guard:
    """The filter of system calls on the command (`bareboat.seccomp`): its files lie in `folder`. `full`: it
    allows what Podman allows by default; else it only keeps what runs inside from typing into the user's
    terminal."""

    folder: str
    full: bool

    #: The descriptor by which an engine gets the program, or the loader: neither one that the C library or
    #: bash would take next nor one by which a launcher talks to its ranks.
    NUMBER: ClassVar[int] = 197

    def program(self) -> str:
        """The program for seccomp(2)."""
        return f"{self.folder}/{'full' if self.full else 'terminal'}.bpf"

    def loader(self, *, full: bool | None = None) -> str:
        """The program that puts the filter on itself and turns itself into its arguments."""
        return f"{self.folder}/{'full' if self.full and full is not False else 'terminal'}.run"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMount:
    """A mount whose source is known only on the node."""

    source: NodePath
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What the engine shows the command: `layers` bottom first, or one read-only `flat` tree, or a `packed`
    file, in which mounts of the image's own folders have their sources (FILE/PATH); `joined`: the tree that
    is the root in place of the flat one, whose directories are among the mounts; over it `scratch`, folders
    to write to; then the mounts, outer before inner. `seen_through`: of the scratch folders, those that show
    what the flat tree has there, for an engine that stacks; what is written to them vanishes all
    the same. `identity`: a folder with the etc/passwd and etc/group that the command is to see; None: the
    image's own. `missing`: folders that the layers do not have and the command needs; a tree or file has
    been given them. `passed`: variables of the job script that the command gets when they are set, by name
    and by the beginning of their names; `given`: variables with values that only the script knows.
    `driver`: the GPU driver whose files are among the mounts. `guard`: the filter of system calls;
    `seccomp`: whether an engine that has one of its own uses it. `by_env`: the command's program is not known
    before the start, and the image has an env(1), which exits with 127 or 126 where an engine does not."""

    layers: tuple[str, ...] = ()
    flat: Place | None = None
    joined: Place | None = None
    packed: str | None = None
    scratch: tuple[str, ...] = ()
    seen_through: tuple[str, ...] = ()
    mounts: tuple[Mount | NodeMount, ...] = ()
    identity: str | None = None
    missing: tuple[str, ...] = ()
    home: str
    passed: tuple[str, ...] = ()
    passed_prefixes: tuple[str, ...] = ()
    given: tuple[tuple[str, Variable | Joined], ...] = ()
    driver: GpuDriver | None = None
    guard: Guard | None = None
    seccomp: bool = True
    by_env: bool = False

    @property
    def tree(self) -> Place | None:
        """The tree that is mounted as the root."""
        return self.joined or self.flat

    @property
    def planned_mounts(self) -> tuple[Mount, ...]:
        """The mounts, with their sources as far as the planner knows them."""
        return tuple(
            Mount(source=planned(each.source), target=each.target, writable=each.writable)
            for each in self.mounts
        )

    @property
    def identity_mounts(self) -> tuple[Mount, ...]:
        """The passwd and group of `identity`, over the image's."""
        if self.identity is None:
            return ()
        return tuple(
            Mount(source=self.identity + path, target=path) for path in ("/etc/passwd", "/etc/group")
        )

    @property
    def root(self) -> Place | None:
        """What is read-only as a whole: the flat tree or the packed file."""
        return self.flat or self.packed


@dataclass(frozen=True, slots=True)
class Enclosure:
    """How an engine runs this image here. `reason`: in one sentence; `overlay`: layers can be stacked;
    `mount_points`: whatever is mounted must have its place in the image beforehand; `relinked`: absolute
    links would lead out of the image, and must be made relative.

    `wrap`: the command that runs a command in a container. Pure; raises PlanError for a container that the
    engine cannot show. `run_folder`: where the command finds the run's folder that a variable names; None:
    nowhere. `reads_tree`: it shows the image's tree, and not a copy of its own."""

    reason: str
    wrap: Callable[[Command, Container], Command] = field(compare=False, repr=False)
    overlay: bool = True
    mount_points: bool = False
    relinked: bool = False
    run_folder: Callable[[Container, str], Place | None] = field(
        default=lambda _, variable: NodePath(variable), compare=False, repr=False
    )
    reads_tree: bool = True


class Engine(Protocol):
    """A module of `bareboat.engines`; or one of its ways to run, where it has several to choose from: then
    its `MODES` maps their names to engines of their own, best first, which users call NAME:MODE. One that was
    never run on the real tool says so in UNTESTED."""

    NAME: str
    #: Whether the command sees the image. Only `native` does not.
    CONTAINS: bool
    #: Whether it can stack trees, with memory to write to on top: the image's layers, for `writable = true`,
    #: and a scratch folder on what the image has there. Else the image is read-only and scratch is empty.
    STACKS: bool
    # JOINS: whether its root may be a tree on which directories of the flat one are mounted. Without it a job
    # that mounts where the image has nothing gets a whole tree of its own.
    #: The kinds of packed image that it runs, best first: "sif", "squashfs".
    FILES: tuple[str, ...]
    #: What of the contract (tests/contract/test_engine*.py, by the name of the test) it cannot keep, and why.
    LIMITS: Mapping[str, str]

    def probe(self, host: Host) -> tuple[EngineFacts, ...]:
        """Find the engine's program and run something in it."""
        ...

    def judge(self, site: Site, image: Image | None) -> Enclosure | Refusal:
        """Pure: how the engine runs the image on the site, or why it cannot."""
        ...


#: Programs by which engines start commands.
ENV, SHELL = "/usr/bin/env", "/bin/sh"
STARTERS = (ENV, SHELL)


def starts_by(engine: Engine) -> tuple[str, ...]:
    """Those that the image must have; an engine says it as its `STARTS_BY`."""
    return tuple(getattr(engine, "STARTS_BY", ()))


def keeps_read_only(engine: Engine) -> bool:
    """Whether a read-only mount within a writable one is kept from the command; so it is unless the engine
    says otherwise."""
    return bool(getattr(engine, "KEEPS_READ_ONLY", True))


def untested(engine: Engine) -> str:
    """What an engine says that was never run on the real tool; empty for the others."""
    return str(getattr(engine, "UNTESTED", ""))


def seccomp(engine: Engine) -> Seccomp:
    """How the engine's containers are filtered; one that does not say it is not known to filter."""
    return Seccomp(getattr(engine, "SECCOMP", Seccomp.NONE))


def apart(engine: Engine) -> Apart:
    """What finds a run's processes that have lost its mark."""
    return Apart(getattr(engine, "APART", Apart.NOTHING))


def needs_namespaces(engine: Engine) -> bool:
    """Whether the engine runs in a user namespace and no other way."""
    return bool(getattr(engine, "NEEDS_NAMESPACES", False))


def holds(engine: Engine) -> bool:
    """Whether the engine's own process stays as the command's parent and would end it with itself: a signal
    for the command is not for it."""
    return bool(getattr(engine, "HOLDS", False))


#: A limit of every engine that makes a user namespace: the kernel wants CAP_SYS_PTRACE in that of the other.
#: https://man7.org/linux/man-pages/man2/ptrace.2.html ("Ptrace access mode checking")
ALONE_IN_NAMESPACE = (
    "each container has its own user namespace, and the kernel does not let a process read the memory of a "
    "process in another one (CMA): ranks in separate containers must copy through /dev/shm"
)

#: A limit of every engine whose containers are guarded by Landlock, each by rules of its own.
#: https://docs.kernel.org/userspace-api/landlock.html#ptrace-restrictions
GUARDED_APART = (
    "Landlock, which protects the image, does not let a process read memory outside its own container"
)

#: Variables of a run that Bareboat itself sets; every engine passes them on when they are set.
RUN_VARIABLES = ("BAREBOAT_RUN", "BAREBOAT_METER_DIR", "BAREBOAT_GATE", "BAREBOAT_RUN_DIR")
#: Of these, the ones that name a folder which the command must be able to write.
RUN_FOLDERS = ("BAREBOAT_METER_DIR", "BAREBOAT_RUN_DIR")


def broken(name: str, path: str, detail: str, *, version: str = "", remedy: str = "") -> EngineFacts:
    """An engine on PATH that does not work here."""
    return EngineFacts(
        name=name, path=path, version=version, origin="on PATH", works=False, detail=detail, remedy=remedy
    )


def when_set(name: str) -> IfSet:
    """NAME=VALUE for env(1), where the job script has the variable."""
    return IfSet(name, (Joined((f"{name}=", Variable(name))),))


#: In the words of `forwarded`: the variable's name and its value.
PASSED_NAME, PASSED_VALUE = Variable("name"), Variable("value")
PASSED_ASSIGNMENT = Joined((PASSED_NAME, "=", PASSED_VALUE))


def forwarded(container: Container, *words: str | Variable | Joined) -> tuple[ForwardEnv, ...]:
    """These words, once for each variable that the launcher and the scheduler want the command to see."""
    if not container.passed and not container.passed_prefixes:
        return ()
    return (ForwardEnv(container.passed, container.passed_prefixes, words),)


#: What programs expect of the host: the names of machines. (The user's name is in the captured image.)
HOST_FILES = ("/etc/resolv.conf", "/etc/hosts")


#: Names of checks (`Site.checks`) by which engines judge.
USER_NAMESPACES = "user namespaces"
PTRACE = "ptrace"
PROGRAMS_IN_STORE = "programs in the store"

#: What the check "seccomp" says where the kernel has none.
NO_SECCOMP = "not in this kernel"

#: Below this /dev/shm is too small for a rank's data loader: Docker's default of 64 MiB is known to be.
LEAST_SHM_BYTES = 256 * 2**20


def usable(name: str, site: Site, image: Image | None, *, program: str, remedy: str) -> EngineFacts | Refusal:
    """The engine as it was probed; Refusal where it cannot run anything. `remedy`: where it comes from."""
    if image is None:
        return Refusal("no image to run", remedy="bareboat capture")
    facts = site.engine(name)
    if facts is None:
        return Refusal(f"{program} is not installed", remedy=remedy)
    if not facts.works:
        return Refusal(facts.detail, remedy=facts.remedy)
    return facts


def refusal(site: Site, name: str) -> Refusal | None:
    """What the site's check of this name says against an engine that needs it; None when it works."""
    check = site.check(name)
    if check is None or check.works:
        return None
    return Refusal(check.detail, remedy=check.remedy)


def basic_environment(site: Site, *, home: str) -> Mapping[str, str]:
    """What every command gets in every engine, beside the image's, the launcher's and the job's."""
    # The zone by its name: images keep /etc/localtime as a link, which cannot be mounted over.
    zone = {"TZ": site.timezone} if site.timezone else {}
    return {
        **zone,
        "HOME": home,
        "USER": site.user,
        "LOGNAME": site.user,
        "LANG": "C.UTF-8",
        # Packages of ~/.local are the commonest way for a host to leak into an environment.
        "PYTHONNOUSERSITE": "1",
    }
