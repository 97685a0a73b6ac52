"""The sandbox of a RUN: bubblewrap's arguments. Pure.

One user of the host is one user of the container: root, or that of USER. Calls that would need more users
(chown, setuid, mknod …) return success and do nothing (`seccomp.program.build`).
Manual: https://github.com/containers/bubblewrap/blob/main/bwrap.xml
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

HOST_NAME = "bareboat-build"
#: Those that Docker gives a RUN, without those over the host's network.
_CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "SYS_CHROOT", "MKNOD",
    "SETFCAP",
)  # fmt: skip
#: Words that stand for descriptors (execute.run_step).
ARGUMENTS, FILTER, APT = "ARGUMENTS", "FILTER", "APT"
#: apt changes to a user of its own, and checks that it did.
APT_FILE = "/dev/.bareboat-apt.conf"
APT_TEXT = b'APT::Sandbox::User "root";\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """Something of the host in the tree. `stacked`: changes to it are discarded; `data`: not a path but a
    small file's content, with `mode`; `size_bytes`: of an empty tmpfs, where `source` is empty."""

    source: str
    target: str
    writable: bool = False
    stacked: bool = False
    data: bytes | None = None
    mode: int = 0o600
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """One start. `layers`: the trees below, bottom first, with `upper` and `work` of the overlay; or `tree`,
    a copy to write to. `own_processes`: it sees no others."""

    layers: Sequence[str] = ()
    upper: str = ""
    work: str = ""
    tree: str = ""
    uid: int = 0
    gid: int = 0
    workdir: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)
    binds: Sequence[Bind] = ()
    network: bool = True
    own_processes: bool = True
    is_shell: bool = False


def arguments(sandbox: Sandbox) -> tuple[list[str], dict[str, bytes]]:
    """bwrap's arguments without its program and the command, and the contents of the descriptors in them."""
    words = ["--unshare-user", "--uid", str(sandbox.uid), "--gid", str(sandbox.gid)]
    words += ["--unshare-ipc", "--unshare-uts", "--hostname", HOST_NAME]
    if sandbox.own_processes:
        words += ["--unshare-pid"]
    if not sandbox.network:
        words += ["--unshare-net"]
    words += ["--cap-drop", "ALL"]
    if sandbox.uid == 0:
        for name in _CAPABILITIES:
            words += ["--cap-add", f"CAP_{name}"]
    if sandbox.tree:
        words += ["--bind", sandbox.tree, "/"]
    else:
        for layer in sandbox.layers:
            words += ["--overlay-src", layer]
        words += ["--overlay", sandbox.upper, sandbox.work, "/"]
    words += ["--dev", "/dev"]
    words += ["--proc", "/proc"] if sandbox.own_processes else ["--bind", "/proc", "/proc"]
    words += ["--ro-bind", "/sys", "/sys"]
    given = {APT: APT_TEXT}
    data = [*words, "--perms", "0644", "--ro-bind-data", APT, APT_FILE]
    for number, bind in enumerate(sandbox.binds):
        if bind.data is not None:
            word = f"DATA{number}"
            given[word] = bind.data
            data += ["--perms", f"{bind.mode:04o}", "--ro-bind-data", word, bind.target]
        elif not bind.source:
            data += ["--size", str(bind.size_bytes)] if bind.size_bytes else []
            data += ["--perms", "1777", "--tmpfs", bind.target]
        elif bind.stacked:
            data += ["--overlay-src", bind.source, "--tmp-overlay", bind.target]
        else:
            data += ["--bind" if bind.writable else "--ro-bind", bind.source, bind.target]
    data += ["--clearenv"]
    settings: list[str] = []
    for name, value in {"APT_CONFIG": APT_FILE, **sandbox.environment}.items():
        settings += ["--setenv", name, value]
    data += ["--seccomp", FILTER, "--args", ARGUMENTS, "--chdir", sandbox.workdir, "--die-with-parent"]
    if not sandbox.is_shell:
        data += ["--new-session"]
    given[ARGUMENTS] = b"".join(each.encode(errors="surrogateescape") + b"\0" for each in settings)
    return [*data, "--"], given
