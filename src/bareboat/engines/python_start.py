"""The words of Bareboat's own starters, proot_start and fakechroot_start, which have the same options."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from bareboat.engines import (
    HOST_FILES,
    PASSED_ASSIGNMENT,
    RUN_VARIABLES,
    Container,
    Host,
    command_environment,
    forwarded,
    when_set,
)
from bareboat.model import Command, IfSet, Joined, Mount, NodePath, Site, Variable, Word

_SHARED = ("/dev", "/proc")
#: The system's python3 before one of the caller's, which may need the caller's variables.
_FIRST_PATH = Joined(("PATH=/usr/bin:/bin:", Variable("PATH")))


def source(starter: ModuleType) -> str:
    """The starter's text, as `inspect` gives it, whose import takes as long as that of all engines."""
    data: bytes = starter.__loader__.get_data(starter.__file__)  # type: ignore[union-attr]
    return data.decode()


def words(program: str, own: Sequence[str], container: Container, workdir: str) -> list[Word]:
    """The words after python3, up to the environment. The command's parents do not carry the run's mark.
    `program`: the starter's text, because the node may not have Bareboat; `own`: options of its own.
    """
    # A job is planned once before its image is resolved: then there is no tree yet.
    found: list[Word] = ["-I", "-S", "-c", program, *own, "--root", container.flat or "", "--cwd", workdir]
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


def wrap(start: Sequence[Word], command: Command, container: Container, site: Site) -> Command:
    """The command behind `start` (the result of `words`), with no other environment."""
    given = command_environment.entries(command, container, site)
    carried = command_environment.carried(given)
    found: list[Word] = ["env", "-i", "-S", command_environment.carriers(len(carried)), _FIRST_PATH]
    found.append(when_set("TMPDIR"))
    if container.guard is not None:
        found += [container.guard.loader(full=False), "/usr/bin/env"]
    found += ["python3", *start]
    found += ["--sealed", ",".join(carried)]
    for name, value in command_environment.in_argv(given).items():
        found += ["--env", command_environment.assignment(name, value)]
    for name in RUN_VARIABLES:
        found.append(IfSet(name, ("--env", Joined((f"{name}=", Variable(name))))))
    found += forwarded(container, "--env", PASSED_ASSIGNMENT)
    return Command(argv=(*found, "--", *command.argv), sealed=command_environment.exported(carried))


def fault(host: Host, program: str, own: Sequence[str], trial: str, expected: str) -> str | None:
    """The fault of a starter, probed with the host's programs in a tree of our own. `trial`: a shell script
    that tries to write /seen and /made, and whose first argument is a file that it must not see; `expected`:
    its output."""
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
    start = words(program, own, Container(flat=str(root), mounts=mounts, home="/root"), "/")
    argv = [word for word in start if isinstance(word, str)]  # no run, no directories of a run
    path_variable = f"PATH=/usr/bin:/bin:{os.environ.get('PATH', '')}"
    outcome = host.run(
        ["env", "-i", path_variable, "python3", *argv, "--env", path_variable,
         "--", "sh", "-c", trial, str(hidden)]
    )  # fmt: skip
    if (root / "seen").read_text() != "inside\n" or (root / "made").exists():
        return "what runs in it can write to the image"
    if not outcome.ok or outcome.stdout != expected:
        if not outcome.stdout and outcome.stderr:
            return f"it failed with: {outcome.stderr.strip().splitlines()[0]}"
        return f"what runs in it sees other files than those of the image: {outcome.stdout!r}"
    return None
