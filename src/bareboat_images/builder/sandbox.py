"""The sandbox of a RUN: bubblewrap's arguments. Pure.

One user of the host is one user of the container: root, or that of USER. System calls that require more users
(chown, setuid, mknod …) return success and do nothing (`seccomp.program.build`).
Manual: https://github.com/containers/bubblewrap/blob/main/bwrap.xml
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from bareboat_base.printable import quoted
from bareboat_images.builder.guarded_command import Data, Word

HOST_NAME = "bareboat-build"
#: The capabilities of a RUN in Docker, without those for the host's network.
_CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "SYS_CHROOT", "MKNOD",
    "SETFCAP",
)  # fmt: skip
#: apt would change to its own user and check the result.
APT_FILE = "/dev/.bareboat-apt.conf"
APT_TEXT = b'APT::Sandbox::User "root";\n'


class Bind(Struct, frozen=True, kw_only=True):
    """A bind mount. `stacked`: changes are discarded; `data`: the content of a small file with `mode`, used
    instead of `source`; `size_bytes`: of a tmpfs, which an empty `source` requests."""

    source: str
    target: str
    writable: bool = False
    stacked: bool = False
    data: bytes | None = None
    mode: int = 0o600
    size_bytes: int = 0


class Sandbox(Struct, frozen=True, kw_only=True):
    """One start. `layers`: lower directories, bottom first, with `upper` and `work` of the overlay; or
    `tree`: a writable copy. `apt`: more settings for apt. `own_processes`: in a separate PID namespace."""

    layers: Sequence[str] = ()
    upper: str = ""
    work: str = ""
    tree: str = ""
    uid: int = 0
    gid: int = 0
    workdir: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)
    apt: bytes = b""
    binds: Sequence[Bind] = ()
    network: bool = True
    own_processes: bool = True
    is_shell: bool = False


def arguments(sandbox: Sandbox, seccomp: bytes) -> list[Word]:
    """The arguments of bwrap, without its name and the command. `seccomp`: the filter. Raises ValueError for
    a value with a NUL byte: the text after it would be read as more arguments."""
    words: list[Word] = ["--unshare-user", "--uid", str(sandbox.uid), "--gid", str(sandbox.gid)]
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
    words += ["--perms", "0644", "--ro-bind-data", Data(APT_TEXT + sandbox.apt), APT_FILE]
    for bind in sandbox.binds:
        if bind.data is not None:
            words += ["--perms", f"{bind.mode:04o}", "--ro-bind-data", Data(bind.data), bind.target]
        elif not bind.source:
            words += ["--size", str(bind.size_bytes)] if bind.size_bytes else []
            words += ["--perms", "1777", "--tmpfs", bind.target]
        elif bind.stacked:
            words += ["--overlay-src", bind.source, "--tmp-overlay", bind.target]
        else:
            words += ["--bind" if bind.writable else "--ro-bind", bind.source, bind.target]
    words += ["--clearenv"]
    settings: list[str] = []
    for name, value in {"APT_CONFIG": APT_FILE, **sandbox.environment}.items():
        settings += ["--setenv", name, value]
    for each in (*settings, *(word for word in words if isinstance(word, str)), sandbox.workdir):
        if "\0" in each:
            raise ValueError(f"{quoted(each)} has a NUL byte, which no argument or variable can have")
    packed = b"".join(each.encode(errors="surrogateescape") + b"\0" for each in settings)
    words += ["--seccomp", Data(seccomp), "--args", Data(packed)]
    words += ["--chdir", sandbox.workdir, "--die-with-parent"]
    if not sandbox.is_shell:
        words += ["--new-session"]
    return [*words, "--"]
