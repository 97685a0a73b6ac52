"""RUN: execute a command in the root file system of its stage; its changes become a layer."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from bareboat_base import execute
from bareboat_base.errors import BareboatError, PlanError, RunError, ToolError
from bareboat_base.outcome import Outcome, signal_of
from bareboat_base.seccomp import program
from bareboat_images.builder import difference, sandbox
from bareboat_images.builder.copying import Copier, Request
from bareboat_images.builder.guarded_command import Word, run_shell, run_step
from bareboat_images.builder.packages import CERTIFICATES, Packages
from bareboat_images.builder.places import User, locate
from bareboat_images.builder.rootfs import Rootfs, Stubs, discard
from bareboat_images.builder.sandbox import Bind, Sandbox
from bareboat_images.builder.tree import Tree
from bareboat_images.recipe.instructions import Instruction

#: Limits on the output that is kept for errors.
_KEPT_BYTES = 1 << 16
_KEPT_LINES = 15
#: A file system with less free space counts as full.
_FULL_BYTES = 1 << 20
_OWN_PROCESSES = ("--unshare-pid", "--proc", "/proc")
_RESOLVER, _HOSTS = "/etc/resolv.conf", "/etc/hosts"


class Command(Struct, frozen=True, kw_only=True):
    """One RUN. `name`: of the Dockerfile; `words`: the command."""

    step: Instruction
    name: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    workdir: str
    user: User
    binds: tuple[Bind, ...] = ()
    network: bool = True
    packages: Packages = field(default_factory=Packages)


class Runner:
    """Runs the commands of a build. Features of the machine are probed once."""

    def __init__(
        self,
        scratch: Path,
        engine: Callable[[Callable[[str], bool]], str],
        machine: str,
        stopped: threading.Event,
    ) -> None:
        self._stopped = stopped
        self._scratch = scratch
        self._find_engine = engine
        self._machine = machine
        self._lock = threading.Lock()
        self._serials = itertools.count(1)
        self._found: _Found | None = None

    def run(
        self,
        command: Command,
        rootfs: Rootfs,
        made: Path,
        *,
        show: Callable[[bytes], None],
        shell: Callable[[BareboatError], bool] = lambda _error: False,
    ) -> None:
        """Run a command on top of the layers; its changes are in `made/tree`. Raises RunError if the command
        fails. `shell`: whether to open a shell before that."""
        found = self._probe()
        upper = made / "tree"
        upper.mkdir(parents=True)
        upper.chmod(0o755)
        lists = command.packages.lists(rootfs.view)
        binds = [*self._surroundings(command, made), *lists, *command.binds]
        stubs = Stubs(rootfs.view, ["/dev", "/proc", "/sys", *(bind.target for bind in binds)])
        work = made / "work"
        work.mkdir()
        box = Sandbox(
            uid=command.user.uid,
            gid=command.user.gid,
            workdir=command.workdir,
            environment=command.environment,
            apt=command.packages.apt(),
            binds=[replace(bind, target=stubs.path(bind.target)) for bind in binds],
            network=command.network,
            own_processes=found.own_processes,
        )
        tree: difference.Copied | None = None
        if found.overlay and rootfs.is_own():
            box = replace(box, layers=rootfs.lower(self._scratch), upper=str(upper), work=str(work))
        else:
            tree = difference.copied(rootfs, work / "tree")
            box = replace(box, tree=str(tree.path))
        if rootfs.view.find(command.workdir) is None:
            _make_workdir(rootfs, command.workdir, upper if tree is None else tree.path)
        tail = _Tail(show)
        code = self._start(found, box, command.words, tail)
        if code != 0:
            lines = tail.lines()
            if _is_full(made):  # not every program reports it
                place = self._scratch.parent.parent
                lines.append(f"No space left on device: the file system of the store, {place}")
            error = _failed(command, code, lines)
            if shell(error):
                argv = self._argv(found, replace(box, is_shell=True), (*_shell_of(rootfs), "-i"))
                run_shell(argv, environment=_minimal())
                error = error.but(
                    remedy="correct the instruction, and build again; earlier steps are in the cache"
                )
            raise error
        if tree is not None:
            difference.collect(tree, upper)
        stubs.remove(upper)
        discard(work)

    def _surroundings(self, command: Command, made: Path) -> list[Bind]:
        """Writable copies of the host's resolv.conf and hosts, discarded later, and the certificates."""
        found = []
        own = (
            f"127.0.0.1\tlocalhost {sandbox.HOST_NAME}\n::1\tlocalhost\n"
            if not command.network
            else (_read(_HOSTS) + f"\n127.0.1.1\t{sandbox.HOST_NAME}\n")
        )
        for path, text in ((_RESOLVER, _read(_RESOLVER)), (_HOSTS, own)):
            copy = made / os.path.basename(path)
            copy.write_text(text)
            copy.chmod(0o644)
            found.append(Bind(source=str(copy), target=path, writable=True))
        if command.packages.certificates:
            data = command.packages.certificates
            found.append(Bind(source="", target=CERTIFICATES, data=data, mode=0o644))
        return found

    def _start(self, found: _Found, box: Sandbox, words: tuple[str, ...], tail: _Tail) -> int:
        argv = self._argv(found, box, words)
        return run_step(
            argv, environment=_minimal(), show=tail, is_sandbox=True, stopped=self._stopped.is_set
        )

    def _argv(self, found: _Found, box: Sandbox, words: tuple[str, ...]) -> list[Word]:
        rules = program.build(self._machine)
        return [found.path, *sandbox.arguments(box, rules), *words]

    def _probe(self) -> _Found:
        """The engine and the features of the machine: overlayfs with an upper directory in the store, and a
        separate /proc."""
        with self._lock:
            if self._found is None:
                if self._machine not in program.MACHINES:
                    raise PlanError(
                        f"RUN is not supported on {self._machine}",
                        context="Bareboat has no system call filter for this architecture",
                        remedy=f"build on one of: {', '.join(program.MACHINES)}",
                    )
                tried: dict[str, bool] = {}

                def works(path: str) -> bool:
                    return tried.setdefault(path, self._has_overlay(path, *_OWN_PROCESSES))

                path = self._find_engine(works)
                whole = tried.get(path, False)
                own = whole or self._tries(path, _OWN_PROCESSES).ok
                if not own and not (plain := self._tries(path, [])).ok:
                    raise PlanError(
                        "RUN cannot run here: bubblewrap cannot make a user namespace",
                        context=plain.stderr.strip(),
                        remedy="bareboat doctor   # names what prevents it, and the fix",
                    )
                overlay = whole or self._has_overlay(path)
                self._found = _Found(path=path, own_processes=own, overlay=overlay)
            return self._found

    def _tries(self, path: str, words: Sequence[str]) -> Outcome:
        mounts = ["--unshare-user", "--uid", "0", "--gid", "0", "--ro-bind", "/", "/", "--dev", "/dev"]
        return execute.run([path, *mounts, *words, "true"])

    def _has_overlay(self, path: str, *words: str) -> bool:
        folder = self._scratch / f"overlay-{next(self._serials)}"
        lower, upper, work = folder / "lower", folder / "upper", folder / "work"
        for each in (lower, upper, work):
            each.mkdir(parents=True)
        (lower / "file").write_text("a")
        (lower / "gone").mkdir()
        outcome = execute.run(
            [path, "--unshare-user", "--uid", "0", "--gid", "0", "--ro-bind", "/", "/", "--dev", "/dev",
             *words, "--overlay-src", str(lower), "--overlay", str(upper), str(work), str(lower),
             "sh", "-c", f"cd '{lower}' && echo b > file && rmdir gone && mkdir gone"]
        )  # fmt: skip
        try:
            opaque = os.getxattr(upper / "gone", "user.overlay.opaque") == b"y"
            return outcome.ok and opaque and (upper / "file").read_text() == "b\n"
        except OSError:
            return False


class _Found(Struct, frozen=True, kw_only=True):
    path: str
    own_processes: bool
    overlay: bool


class _Tail:
    """Shows output and keeps its end."""

    def __init__(self, show: Callable[[bytes], None]) -> None:
        self._show = show
        self._kept = b""

    def __call__(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-_KEPT_BYTES:]
        self._show(data)

    def lines(self) -> list[str]:
        text = self._kept.decode(errors="replace").replace("\r\n", "\n")
        rows = [row.rpartition("\r")[2] for row in text.split("\n")]
        return [row for row in rows if row.strip()][-_KEPT_LINES:]


def _failed(command: Command, code: int, lines: list[str]) -> RunError:
    """The error of a RUN: its last lines, the line in the Dockerfile, and a remedy."""
    step = command.step
    number = signal_of(code)
    how = f"was killed by signal {number}" if number else f"exited with code {code}"
    place = f"{command.name}:{step.line}: {step.text.partition(chr(10))[0]}"
    context = "\n".join([*lines, place])
    return RunError(
        f"RUN {how}",
        context=context,
        remedy=_hint("\n".join(lines), command) or "repeat with --shell-on-error",
    )


#: Messages of programs -> the remedy.
_HINTS = (
    (
        ("Temporary failure resolving", "Could not resolve", "Name or service not known",
         "Temporary failure in name resolution", "Network is unreachable", "NewConnectionError"),
        "check the network, or use your site's proxy, index or mirror: --build-arg https_proxy=$https_proxy, "
        "--pip-index URL, --apt-mirror URL   # docs/building.md",
    ),
    (
        ("CERTIFICATE_VERIFY_FAILED", "certificate verify failed", "SSL certificate problem",
         "server certificate verification failed"),
        "give RUN this machine's certificates: --ca-bundle /etc/ssl/certs/ca-certificates.crt",
    ),
    (
        ("bwrap: execvp",),
        "name a program that the image has; a base such as scratch has no shell for RUN",
    ),
    (
        ("Device or resource busy", "Resource busy", "Read-only file system"),
        "RUN cannot change what is mounted there; for apt's lists: build without --apt-mirror",
    ),
    (("No space left on device",), "free some space in the store, or use another: --store DIR"),
    (("Disk quota exceeded",), "free some of your quota, or use another store: --store DIR"),
    (("No module named pip", "pip: not found"), "install pip first: RUN apt-get install python3-pip"),
    (("Unable to locate package", "has no installation candidate"), "run apt-get update in the same RUN"),
)  # fmt: skip


def _hint(text: str, command: Command) -> str:
    for marks, remedy in _HINTS:
        if any(mark in text for mark in marks):
            if not command.network and "network" in remedy:
                return "remove --network=none, under which RUN has no network"
            return remedy
    return ""


def _make_workdir(rootfs: Rootfs, path: str, top: Path) -> None:
    """Make the working directory that a base image lacks."""
    request = Request(sources=(), target=path, is_folder=True)
    with Tree(top) as tree:
        Copier(rootfs.view, tree, request).make_folder(locate(rootfs.view, path).path)


def _shell_of(rootfs: Rootfs) -> tuple[str, ...]:
    for path in ("/bin/bash", "/bin/sh"):
        if rootfs.view.is_file(path):
            return (path,)
    raise ToolError("the image has no shell", remedy="RUN ls, or use another base")


def _is_full(path: Path) -> bool:
    state = os.statvfs(path)
    return state.f_bavail * state.f_frsize < _FULL_BYTES or (state.f_files > 0 and state.f_favail == 0)


def _minimal() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C.UTF-8"}


def _read(path: str) -> str:
    try:
        with open(path, errors="replace") as stream:
            return stream.read(1 << 16)
    except OSError:
        return ""
