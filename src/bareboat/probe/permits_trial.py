"""A program that tries what a node permits, and prints one line per trial.

It runs in a process of its own, from its text alone (`python3 -I -S -c …`), because it changes namespaces,
forks, and may be killed by a seccomp filter. Each trial is a child process, and all run at once: one that
hangs, in a stuck file server for example, is left alone. A line is `NAME <tab> STEP <tab> ERRNO`; ERRNO is 0
for success, -N for termination by signal N.

Argument: a directory on the store's file system (empty, removed by the caller).
"""

import ctypes
import errno
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_libc = ctypes.CDLL(None, use_errno=True)

_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_MS_REC_PRIVATE = 1 << 14 | 1 << 18

#: Time limit of all trials.
_TIME_LIMIT_S = 5


class _Failed(Exception):
    def __init__(self, step: str, number: int) -> None:
        super().__init__(step)
        self.step, self.number = step, number


def _check(result: int, step: str) -> int:
    if result < 0:
        raise _Failed(step, ctypes.get_errno())
    return result


def main(folder: str) -> None:
    trials: dict[str, Callable[[], None]] = {
        "user namespace": _mount_tmpfs,
        "overlay": lambda: _overlay(folder),
        "overlay on tmpfs": lambda: _overlay(_TMPFS),
        "start": lambda: _start(folder),
    }
    children = {name: _begin(trial) for name, trial in trials.items()}
    deadline = time.monotonic() + _TIME_LIMIT_S
    for name, (child, reads) in children.items():
        answer = _answer(child, reads, max(0.0, deadline - time.monotonic()))
        line = name.encode(errors="surrogateescape") + b"\t" + answer.replace(b"\n", b" ") + b"\n"
        sys.stdout.buffer.write(line)
        sys.stdout.flush()


def _begin(trial: "Callable[[], None]") -> "tuple[int, int]":
    """Start the trial in a child; return its number and the descriptor of its answer."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        for descriptor in (1, 2):  # which the caller reads to their end
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        try:
            try:
                trial()
                line = "\t0"
            except _Failed as failed:
                line = "%s\t%d" % (failed.step, failed.number)  # noqa: UP031
            except OSError as error:
                line = "%s\t%d" % (error.filename or "", error.errno or 0)  # noqa: UP031
            os.write(writes, line.encode(errors="surrogateescape"))
        finally:
            os._exit(0)
    os.close(writes)
    return child, reads


def _answer(child: int, reads: int, limit_s: float) -> bytes:
    if not select.select([reads], [], [], limit_s)[0]:
        os.kill(child, signal.SIGKILL)  # it ends when what it waits for does
        return b"the trial did not finish\t%d" % errno.ETIMEDOUT
    said = os.read(reads, 4096)
    status = os.waitpid(child, 0)[1]
    return b"\t-%d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else said


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


#: Where each trial mounts a file system of its own, in its namespace.
_TMPFS = "/tmp"


def _mount_tmpfs() -> None:
    _enter()
    _mount("none", _TMPFS, "tmpfs", 0, None)


def _overlay(folder: str) -> None:
    """Stack directories of this one, read through the stack, write on top. Their paths are relative: they
    need no escaping."""
    if folder == _TMPFS:
        _mount_tmpfs()
    os.chdir(folder)
    for name in ("lower", "other"):
        os.mkdir(name)
    with open("lower/seen", "w") as stream:
        stream.write("seen")
    if folder != _TMPFS:
        _mount_tmpfs()
    for name in ("upper", "work", "merged"):
        os.mkdir(f"{_TMPFS}/{name}")
    above = f"upperdir={_TMPFS}/upper,workdir={_TMPFS}/work"
    _mount("none", f"{_TMPFS}/merged", "overlay", 0, f"lowerdir=lower:other,{above},userxattr")
    with open(f"{_TMPFS}/merged/seen", "a+") as stream:
        stream.seek(0)
        if stream.read() != "seen":
            raise _Failed("reading through the overlay", errno.EIO)
        stream.write("changed")


# -- processes -----------------------------------------------------------------------------------------


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
    main(sys.argv[1])
