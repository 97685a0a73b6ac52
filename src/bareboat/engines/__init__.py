"""Engines: ways to run a command in an image. One class each, in a file of its own, with `Engine` as its
base class.

An engine does not depend on launchers or schedulers. `judge` decides whether it can run an image; its
`Enclosure` turns a command into one that runs it in a container.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import ClassVar, Protocol

from msgspec import Struct

from bareboat.backend import Backend
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
    Word,
)
from bareboat_base import seccomp


class Host(Protocol):
    """The part of the machine that an engine's probe uses. `bareboat.probe.host` is the real
    implementation."""

    def which(self, name: str) -> str | None: ...

    def run(self, argv: Sequence[str]) -> Outcome: ...

    def scratch(self) -> str:
        """A directory on the store's file system, removed after the probe."""
        ...

    def user_namespace_obstacle(self) -> Refusal | None:
        """Why user namespaces do not work here; None when they work."""
        ...

    def for_one_subject(self) -> Host:
        """The same machine with a time limit of its own, for cleaning up."""
        ...


class Seccomp(StrEnum):
    """How an engine filters its containers' system calls: by our list, by our filter that only guards the
    terminal, by the engine's own list, or not at all."""

    FULL = "full"
    TERMINAL = "terminal"
    OWN = "own"
    NONE = "none"


class Apart(StrEnum):
    """What encloses a run's processes so that they cannot leave it: a user namespace shared with no other
    process of the user (Podman's containers share one), a tracer (PRoot), or nothing."""

    USER = "user"
    TRACER = "tracer"
    NOTHING = ""


class Guard(Struct, frozen=True):
    """The filter of system calls on the command (`bareboat_base.seccomp`), with its files in `folder`.
    `full`: it allows what Podman allows by default; otherwise it only prevents programs inside from
    typing into the user's terminal. `runs`: programs in the store can be executed. `root`: as `full`, with an
    emulation of root."""

    folder: str
    full: bool
    runs: bool = True
    root: bool = False

    #: The descriptor by which an engine gets the program or the loader. The C library, bash and launchers
    #: that talk to their ranks do not use this number.
    NUMBER: ClassVar[int] = 197

    def program(self, *, full: bool | None = None) -> str:
        """The program for seccomp(2)."""
        name = "terminal" if not self.full or full is False else "root" if self.root else "full"
        return f"{self.folder}/{name}.bpf"

    def start(self, argv: tuple[Word, ...], *modes: str) -> tuple[Word, ...]:
        """The words behind the program that does on the host what bash cannot: see `seccomp.start`."""
        if not self.runs or not argv:
            return argv
        first = "/usr/bin/env" if argv[0] == "env" else argv[0]  # the program does not search PATH
        return (f"{self.folder}/{seccomp.START}", "".join(modes), first, *argv[1:])

    def loader(self, *, full: bool | None = None) -> str:
        """The program that installs the filter on itself and then executes its arguments."""
        return self.program(full=full).removesuffix("bpf") + "run"


class NodeMount(Struct, frozen=True, kw_only=True):
    """A mount whose source is known only on the node."""

    source: NodePath
    target: str
    writable: bool = False


#: In a directory of `Foreground.changes`: the changed files.
UPPER = "upper"


class Foreground(Struct, frozen=True):
    """A command that takes the place of the process that calls Bareboat. `report`: the descriptor on which
    the engine reports the command's process, after which its own may end. `namespaces`: further ones for the
    container: pid, ipc, uts, net. `writable`: changes to a flat tree stay, and those to stacked layers are
    discarded; otherwise the root file system is read-only. `user`: the user and group IDs in the container;
    None: yours; 0 has the rights of root over your files. `changes`: a directory with `upper` and `work`
    that keeps the changes to stacked layers. The command's environment has nothing of Bareboat."""

    report: int
    namespaces: tuple[str, ...] = ()
    writable: bool = False
    user: tuple[int, int] | None = None
    changes: str | None = None


class Container(Struct, frozen=True, kw_only=True):
    """What the engine shows the command. `layers` bottom first, or one read-only `flat` tree, or a `packed`
    file, in which mounts of the image's own directories have their sources (FILE/PATH). `joined`: the tree
    that is the root instead of the flat one, whose directories are among the mounts. Over it `scratch`, the
    writable directories; then the mounts, outer before inner. `seen_through`: the scratch directories that
    show the content of the flat tree, for an engine that stacks; writes to them are discarded too.
    `identity`: a directory with the etc/passwd and etc/group for the command; None: the image's own.
    `missing`: directories that the command needs and the layers lack; a tree or file already has them.
    `passed`, `passed_prefixes`: variables of the job script that the command gets when they are set, by name
    and by prefix; `given`: variables whose values only the script knows. `driver`: the GPU driver whose files
    are among the mounts. `guard`: the filter of system calls; `seccomp`: whether an engine with a filter of
    its own uses it. `kernels`: the command uses a kernel cache.
    `foreground`: the command is no job's, for an engine with FOREGROUND. `inherits`: on bare metal, the
    command gets all variables of the job script. `real`: the paths without links of targets of mounts, where
    the image has a link on the way."""

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
    kernels: bool = False
    foreground: Foreground | None = None
    inherits: bool = False
    real: Mapping[str, str] = {}

    def at(self, target: str) -> str:
        """Where the engine mounts what the command sees at this path."""
        return self.real.get(target, target)

    @property
    def run_folders(self) -> tuple[str, ...]:
        """The variables of the job script that name directories to which the command must be able to
        write."""
        return (*RUN_FOLDERS, KERNELS) if self.kernels else RUN_FOLDERS

    @property
    def tree(self) -> Place | None:
        """The tree that is mounted as the root file system."""
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
        """Mounts of `identity`'s passwd and group over the image's."""
        if self.identity is None:
            return ()
        return tuple(
            Mount(source=self.identity + path, target=path) for path in ("/etc/passwd", "/etc/group")
        )

    @property
    def root(self) -> Place | None:
        """The part that is read-only as a whole: the flat tree or the packed file."""
        return self.flat or self.packed


def _node_path(_: Container, variable: str) -> Place:
    return NodePath(variable)


class Enclosure(Struct, frozen=True):
    """How an engine runs this image here. `reason`: one sentence; `overlay`: layers can be stacked;
    `mount_points`: the image must already have every mount point; `relinked`: absolute links would lead out
    of the image and must be made relative.

    `wrap`: make the command that runs a command in a container. Pure; raises PlanError for a container that
    the engine cannot show. `run_folder`: the path at which the command finds the run's directory that a
    variable names; None: nowhere. `reads_tree`: the engine shows the image's tree, not a copy of its own."""

    reason: str
    wrap: Callable[[Command, Container], Command]
    overlay: bool = True
    mount_points: bool = False
    relinked: bool = False
    run_folder: Callable[[Container, str], Place | None] = _node_path
    reads_tree: bool = True


class Engine(Backend):
    """An engine. Everything except `probe` is pure."""

    #: The notice of an engine that was never run on the real tool; "" for the others.
    UNTESTED = ""
    #: The name of its program, where that is not the engine's.
    PROGRAM = ""
    #: The command that installs it for a user; "" for none.
    INSTALL = ""
    #: Engines of their own for its modes, best first; users call them NAME:MODE.
    MODES: ClassVar[Mapping[str, Engine]] = {}
    #: Whether the command sees the image. Only `native` does not show it.
    CONTAINS = True
    #: Whether it can stack trees under a writable layer in memory: the image's layers, for `writable = true`,
    #: and a scratch directory over the image's content. Otherwise the image is read-only and scratch is
    #: empty.
    STACKS = False
    #: Whether it shows a `Container.foreground`.
    FOREGROUND = False
    #: Whether its root file system may be a tree on which directories of the flat one are mounted. Without it
    #: a job with mounts on paths that the image lacks gets a whole tree of its own.
    JOINS = False
    #: The kinds of packed image that it runs, best first: "sif", "squashfs".
    FILES: tuple[str, ...] = ()
    #: Programs that the image must have.
    STARTS_BY: tuple[str, ...] = ()
    #: Whether a read-only mount within a writable one is protected from the command.
    KEEPS_READ_ONLY = True
    #: How it filters its containers' system calls.
    SECCOMP = Seccomp.NONE
    #: What identifies a run's processes that no longer carry its mark.
    APART = Apart.NOTHING
    #: Whether it runs only in a user namespace.
    NEEDS_NAMESPACES = False
    #: Whether its own process stays as the command's parent, and would end the command when a signal for the
    #: command reaches it, or pass the signal on a second time.
    HOLDS = False
    #: Whether that process may end by such a signal, with any exit code, while the command still saves. Then
    #: it gets a session of its own, and the exit code is that of the last process in it.
    ENDS_FIRST = False
    #: Whether the command of a container that is ready waits until the descriptor in the variable BLOCK ends.
    BLOCKS = False

    @abstractmethod
    def probe(self, host: Host) -> tuple[EngineFacts, ...]:
        """Find the engine's program and run something in it."""

    @abstractmethod
    def judge(self, site: Site, image: Image | None) -> Enclosure | Refusal:
        """Decide how the engine runs the image on the site, or why it cannot."""

    def parts(self) -> tuple[Backend, ...]:
        return tuple(self.MODES.values())


#: Programs by which engines start commands.
ENV, SHELL = "/usr/bin/env", "/bin/sh"
STARTERS = (ENV, SHELL)

#: Variables of a run that Bareboat sets; every engine passes them on when they are set.
RUN_VARIABLES = ("BAREBOAT_RUN", "BAREBOAT_METER_DIR", "BAREBOAT_GATE", "BAREBOAT_RUN_DIR")
#: Of these, the ones that name a directory to which the command must be able to write.
RUN_FOLDERS = ("BAREBOAT_METER_DIR", "BAREBOAT_RUN_DIR")
#: The number of a descriptor of the job script, for whose end a command waits.
BLOCK = "BAREBOAT_BLOCK"
#: The node's copy of the kernel cache, writable as these are.
KERNELS = "BAREBOAT_KERNELS"


def broken(name: str, path: str, detail: str, *, version: str = "", remedy: str = "") -> EngineFacts:
    """Facts about an engine on PATH that does not work here."""
    return EngineFacts(
        name=name, path=path, version=version, origin="on PATH", works=False, detail=detail, remedy=remedy
    )


def when_set(name: str) -> IfSet:
    """NAME=VALUE for env(1) if the job script has the variable."""
    return IfSet(name, (Joined((f"{name}=", Variable(name))),))


#: In the words of `forwarded`: the variable's name and its value.
PASSED_NAME, PASSED_VALUE = Variable("name"), Variable("value")
PASSED_ASSIGNMENT = Joined((PASSED_NAME, "=", PASSED_VALUE))


def forwarded(container: Container, *words: str | Variable | Joined) -> tuple[ForwardEnv, ...]:
    """These words, once for each variable that the launcher and the scheduler pass to the command."""
    if not container.passed and not container.passed_prefixes:
        return ()
    return (ForwardEnv(container.passed, container.passed_prefixes, words),)


#: Files of the host that programs need to resolve host names. (The captured image has the user's name.)
HOST_FILES = ("/etc/resolv.conf", "/etc/hosts")
#: Directories that the kernel fills, mounted in every container.
KERNEL = ("/dev", "/proc", "/sys")


#: Names of checks (`Site.checks`) on which engines depend.
USER_NAMESPACES = "user namespaces"
PROGRAMS_IN_STORE = "programs in the store"

#: Detail of the check "seccomp" on a kernel without it.
NO_SECCOMP = "not in this kernel"

#: In `Site.other_tools`: the directory of the filters (`bareboat.runs.programs.provide_filters`).
FILTERS = "seccomp filters"

#: Below this size /dev/shm is too small for a rank's data loader: Docker's default of 64 MiB is known to be.
LEAST_SHM_BYTES = 256 * 2**20


def usable(name: str, site: Site, image: Image | None, *, program: str, remedy: str) -> EngineFacts | Refusal:
    """The facts of the probed engine; Refusal where it cannot run anything. `remedy`: how to get the
    program."""
    if image is None:
        return Refusal("no image to run", remedy="bareboat image capture")
    facts = site.engine(name)
    if facts is None:
        return Refusal(f"{program} is not installed", remedy=remedy)
    if not facts.works:
        return Refusal(facts.detail, remedy=facts.remedy)
    return facts


def refusal(site: Site, name: str) -> Refusal | None:
    """The refusal of an engine that needs the site's check of this name; None when the check works."""
    check = site.check(name)
    if check is None or check.works is not False:
        return None
    return Refusal(check.detail, remedy=check.remedy)


def programs(site: Site) -> str | None:
    """The directory of the programs in the store, where they can be executed."""
    return site.other_tools.get(FILTERS) if refusal(site, PROGRAMS_IN_STORE) is None else None


def basic_environment(site: Site, *, home: str) -> Mapping[str, str]:
    """The variables that every command gets in every engine, besides the image's, the launcher's and the
    job's."""
    # By name: images have /etc/localtime as a link, which cannot be mounted over.
    zone = {"TZ": site.timezone} if site.timezone else {}
    return {
        **zone,
        "HOME": home,
        "USER": site.user,
        "LOGNAME": site.user,
        "LANG": "C.UTF-8",
        # Packages in ~/.local are the most frequent leak from the host into an environment.
        "PYTHONNOUSERSITE": "1",
    }
