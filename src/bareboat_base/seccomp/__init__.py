"""Filters of system calls (seccomp) for containers, as files that compute nodes read.

FULL allows what Podman allows by default (`table`), ROOT the same with an emulation of root, TERMINAL only
prevents input into the user's terminal. Each comes as a program for the kernel (.bpf) and as a loader for
engines that do not accept one (.run), which is the first program in a container. Beside them START, a program
in front of engines and launchers, and CONMON, before conmon. They are made once and stored in the store.
"""

from __future__ import annotations

from enum import StrEnum

FULL, ROOT, TERMINAL = "full", "root", "terminal"
START = "start.run"
CONMON = "conmon.sh"
#: What START does, as letters of its first argument.
Mode = StrEnum("Mode", {"KEYS": "k", "STAY": "bw", "RELEASE": "u", "SESSION": "s"})
NAMES = (*(f"{name}.{kind}" for name in (FULL, ROOT, TERMINAL) for kind in ("bpf", "run")), START, CONMON)

#: conmon would end by a signal for the job, and the container with it. Signals that do not end it are let
#: through: runc, unlike crun, would block them in the container too.
_CONMON = """\
#!/bin/sh
PATH=/usr/libexec/podman:/usr/local/libexec/podman:$PATH:/usr/bin
conmon=$(command -v conmon || podman info --format '{{.Host.Conmon.Path}}')
exec "${0%/*}/start.run" bn "$conmon" "$@"
"""

#: Machine -> the first 16 digits of the SHA-256 of its files; a test rebuilds them.
DIGESTS = {
    "x86_64": "5629b0041b2de9a0",
    "aarch64": "995173fe8d689c10",
}


def files(machine: str) -> dict[str, bytes]:
    """Name -> content of all files for this machine."""
    from bareboat_base.seccomp import loader, program, start  # only where the store lacks them

    found = {START: start.elf(machine), CONMON: _CONMON.encode()}
    for name, filter_of in ((FULL, program.full), (ROOT, program.root), (TERMINAL, program.terminal)):
        compiled = filter_of(machine)
        found[f"{name}.bpf"] = compiled
        found[f"{name}.run"] = loader.elf(machine, compiled)
    return found


def digest(found: dict[str, bytes]) -> str:
    """The entry of DIGESTS for these files."""
    import hashlib

    joined = hashlib.sha256()
    for name, content in sorted(found.items()):
        joined.update(f"{name} {len(content)}\n".encode() + content)
    return joined.hexdigest()[:16]
