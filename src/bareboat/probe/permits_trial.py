"""A program that tries what a node permits, and prints one line per trial.

It runs in a process of its own, from its text alone (`python3 -I -S -c …`), because it changes namespaces,
forks, and may be killed by a seccomp filter. Each trial is a child process. A line is `NAME <tab> STEP <tab>
ERRNO <tab> TEXT`; ERRNO is 0 for success, -N for termination by signal N.

Arguments: a directory on the store's file system (empty, removed by the caller), other directories in which
to start a program, then after "--" the user's name.
"""

import ctypes
import errno
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_libc = ctypes.CDLL(None, use_errno=True)

_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_MS_REC_PRIVATE = 1 << 14 | 1 << 18
_PTRACE_TRACEME, _PR_GET_NO_NEW_PRIVS = 0, 39

#: Time limit of a trial. A stuck file server must not stop the probe.
_PATIENCE_S = 5


class _Failed(Exception):
    def __init__(self, step: str, number: int, text: str = "") -> None:
        super().__init__(step)
        self.step, self.number, self.text = step, number, text


def _check(result: int, step: str) -> int:
    if result < 0:
        raise _Failed(step, ctypes.get_errno())
    return result


def main(words: "list[str]") -> None:
    mark = words.index("--")
    folders, user = words[:mark], words[mark + 1]
    store = folders[0]
    os.chdir(store)
    for name in ("lower", "other", "m"):
        os.mkdir(name)
    with open("lower/seen", "w") as stream:
        stream.write("seen")
    _try("user namespace", _mount_tmpfs)
    _try("overlay", lambda: _overlay("lower:other"))
    _try("overlay on tmpfs", lambda: _overlay("m/lower:m/other"))
    _try("fuse", lambda: os.close(os.open("/dev/fuse", os.O_RDWR)))
    _try("fuse mount", _fuse)
    _try("ptrace", _ptrace)
    _try("memory of others", _read_memory)
    _try("subordinate ids", lambda: _subordinate(user))
    _try("no_new_privs", lambda: str(_libc.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)))
    _try("landlock", lambda: str(_libc.syscall(444, None, ctypes.c_size_t(0), 1)))
    for folder in folders:
        _try("start in " + folder, lambda folder=folder: _start(folder))  # type: ignore[misc]


def _try(name: str, trial: "Callable[[], str | None]") -> None:
    """Run the trial in a child; print the result."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(_PATIENCE_S)
        try:
            try:
                line = "\t0\t" + (trial() or "")
            except _Failed as failed:
                line = "%s\t%d\t%s" % (failed.step, failed.number, failed.text)  # noqa: UP031
            except OSError as error:
                line = "%s\t%d\t" % (error.filename or "", error.errno or 0)  # noqa: UP031
            except Exception as error:  # for example an unusual /etc/subuid
                line = "%s\t%d\t%s" % ("", errno.EINVAL, error)  # noqa: UP031
            os.write(writes, line.encode(errors="surrogateescape"))
        finally:
            os._exit(0)
    os.close(writes)
    said = b""
    while part := os.read(reads, 4096):
        said += part
    os.close(reads)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        said = b"\t-%d\t" % os.WTERMSIG(status)
    sys.stdout.buffer.write(name.encode(errors="surrogateescape") + b"\t" + said.replace(b"\n", b" ") + b"\n")
    sys.stdout.flush()


# -- namespaces and mounts -----------------------------------------------------------------------------


def _enter() -> None:
    """Enter a user namespace, in which this user is root, and a mount namespace."""
    uid, gid = os.getuid(), os.getgid()
    _check(_libc.unshare(_CLONE_NEWUSER), "unshare(CLONE_NEWUSER)")
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        try:
            with open("/proc/self/" + name, "w") as stream:
                stream.write(text)
        except OSError as error:
            raise _Failed("/proc/self/" + name, error.errno or 0) from None
    _check(_libc.unshare(_CLONE_NEWNS), "unshare(CLONE_NEWNS)")
    _mount("none", "/", None, _MS_REC_PRIVATE, None)


def _mount(source: str, target: str, kind: "str | None", flags: int, options: "str | None") -> None:
    words = [None if word is None else word.encode() for word in (source, target, kind)]
    data = None if options is None else options.encode()
    _check(
        _libc.mount(*words, ctypes.c_ulong(flags), data), f"mount({kind})" if kind else "mount(MS_PRIVATE)"
    )


def _mount_tmpfs() -> None:
    _enter()
    _mount("none", "m", "tmpfs", 0, None)


def _overlay(lower: str) -> None:
    """Stack directories, read through the stack, write on top. Paths are relative: they need no escaping."""
    _mount_tmpfs()
    for name in ("upper", "work", "merged", "lower", "other"):
        os.mkdir("m/" + name)
    with open("m/lower/seen", "w") as stream:
        stream.write("seen")
    _mount("none", "m/merged", "overlay", 0, f"lowerdir={lower},upperdir=m/upper,workdir=m/work,userxattr")
    with open("m/merged/seen", "a+") as stream:
        stream.seek(0)
        if stream.read() != "seen":
            raise _Failed("reading through the overlay", errno.EIO)
        stream.write("changed")


def _fuse() -> None:
    _enter()
    device = os.open("/dev/fuse", os.O_RDWR)  # opened in this user namespace, or the mount is refused
    # No process serves it; mount(2) does not wait for one.
    _mount("none", "m", "fuse", 6, "fd=%d,rootmode=40000,user_id=0,group_id=0" % device)  # noqa: UP031


def _subordinate(user: str) -> str:
    """Map the user's ranges into a namespace with newuidmap and newgidmap, as rootless containers do."""
    ranges = [_range("/etc/subuid", user, os.getuid()), _range("/etc/subgid", user, os.getuid())]
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        number = 0 if _libc.unshare(_CLONE_NEWUSER) == 0 else ctypes.get_errno()
        os.write(writes, bytes([number]))
        signal.pause()
        os._exit(0)
    os.close(writes)
    try:
        said = os.read(reads, 1)
        if said != b"\0":  # empty: the child was killed
            raise _Failed("unshare(CLONE_NEWUSER)", said[0] if said else -signal.SIGSYS)
        for program, own, (first, count) in zip(
            ("newuidmap", "newgidmap"), (os.getuid(), os.getgid()), ranges, strict=True
        ):
            argv = [program, str(child), "0", str(own), "1", "1", str(first), str(count)]
            heard, says = os.pipe()
            try:
                pid = os.posix_spawnp(
                    program, argv, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, says, 2)]
                )
            except OSError as error:
                raise _Failed(program, error.errno or 0) from None
            os.close(says)
            text = os.read(heard, 400).decode(errors="replace").strip()
            if os.waitpid(pid, 0)[1] != 0:
                raise _Failed(program, errno.EPERM, text)
    finally:
        os.kill(child, signal.SIGKILL)
    return " and ".join(str(count) for _, count in ranges)


def _range(path: str, user: str, uid: int) -> "tuple[int, int]":
    try:
        with open(path) as stream:
            lines = stream.read().split("\n")
    except OSError as error:
        raise _Failed(path, error.errno or 0) from None
    for line in lines:
        name, _, rest = line.partition(":")
        if name in (user, str(uid)):
            first, _, count = rest.partition(":")
            return int(first), int(count)
    raise _Failed(path, errno.ENOENT)


# -- processes -----------------------------------------------------------------------------------------


def _ptrace() -> None:
    """Trace a child, as PRoot and debuggers do."""
    child = os.fork()
    if child == 0:
        if _libc.ptrace(_PTRACE_TRACEME, 0, None, None) != 0:
            os._exit(ctypes.get_errno())
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    status = os.waitpid(child, os.WUNTRACED)[1]
    if os.WIFSTOPPED(status):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    elif os.WIFSIGNALED(status):
        raise _Failed("ptrace(PTRACE_TRACEME)", -os.WTERMSIG(status))
    else:
        raise _Failed("ptrace(PTRACE_TRACEME)", os.WEXITSTATUS(status))


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _read_memory() -> None:
    """One child reads from another, like MPI's ranks on one node (CMA), which are not parent and child."""
    shared = ctypes.create_string_buffer(b"seen")  # at the same address in both
    other = os.fork()
    if other == 0:
        signal.pause()
        os._exit(0)
    try:
        reader = os.fork()
        if reader == 0:
            local = ctypes.create_string_buffer(4)
            here, there = _Vector(ctypes.addressof(local), 4), _Vector(ctypes.addressof(shared), 4)
            got = _libc.process_vm_readv(
                other, ctypes.byref(here), ctypes.c_ulong(1), ctypes.byref(there), ctypes.c_ulong(1), 0
            )
            os._exit(0 if got == 4 and local.raw == b"seen" else ctypes.get_errno() or errno.EIO)
        status = os.waitpid(reader, 0)[1]
    finally:
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)
    if status:
        number = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        raise _Failed("process_vm_readv", number)


def _start(folder: str) -> None:
    """Write a program into the directory and start it."""
    path = os.path.join(folder, "bareboat-probe-%d" % os.getpid())  # noqa: UP031
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o700)
    except OSError as error:
        raise _Failed("write", error.errno or 0) from None
    try:
        os.write(descriptor, b"#!/bin/sh\nexit 0\n")
        os.close(descriptor)
        child = os.fork()
        if child == 0:
            # A sibling forked while the file was open for writing keeps it open for a moment.
            for _ in range(50):
                try:
                    os.execv(path, [path])
                except OSError as error:
                    if error.errno != errno.ETXTBSY:
                        os._exit(error.errno or errno.EIO)
                    time.sleep(0.01)
            os._exit(errno.ETXTBSY)
        status = os.waitpid(child, 0)[1]
        if status:
            raise _Failed("execve", os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status))
    finally:
        os.unlink(path)


if __name__ == "__main__":
    main(sys.argv[1:])
