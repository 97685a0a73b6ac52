"""A program: the parent of a step. It ends the step when Bareboat ends, at whatever moment that is.

    guard_program.py sandbox|tool DESCRIPTOR COMMAND [ARGUMENT …]
    guard_program.py shell - COMMAND [ARGUMENT …]

DESCRIPTOR is one end of a socket, whose other end only Bareboat has: it is closed when Bareboat is killed.
bubblewrap's `--die-with-parent` is not enough, because each of its processes asks for it some time after its
start. `sandbox`: what the step leaves is killed, too, in whatever session it is. `tool`: the command's
process group is terminated, and killed five seconds later; what it leaves on purpose stays. `shell`: a
sandbox in the user's terminal, which is not guarded. A sandbox gets a new session keyring: kernel keys, such
as Kerberos tickets of `KEYRING:session`, have no namespaces.
The exit code is the command's, 128 + N for signal N. Why a command cannot start is written to the socket.
"""

from __future__ import annotations

# Every step waits for this program to start: contextlib, and the enumerations of signal, take as long to
# import as all else.
import _signal as signal  # type: ignore[import-not-found]
import ctypes
import errno
import os
import select
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36
#: keyctl(2) by machine, and its operation that joins a session keyring.
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN = 1
_NO_KEYRING = b"no session keyring for the sandbox: the limit on keys is reached; see /proc/key-users"
_END_S = 5.0
_LOOK_S = 0.01


def main() -> int:
    kind, words = sys.argv[1], sys.argv[3:]
    library = ctypes.CDLL(None, use_errno=True)
    if kind == "shell":
        if not _leave_keys(library):
            os.write(2, b"bareboat: " + _NO_KEYRING + b"\n")
            return 126
        os.execvpe(words[0], words, os.environ)
    descriptor = int(sys.argv[2])
    os.set_inheritable(descriptor, False)
    is_sandbox = kind == "sandbox"
    if is_sandbox:
        library.prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what loses its parent becomes a child of this process
        if not _leave_keys(library):
            os.write(descriptor, _NO_KEYRING)
            return 126
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _nothing)
    signal.signal(signal.SIGTERM, _nothing)  # those of the process group get it
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if poll.poll(0):
        return 1
    poll.register(woken, select.POLLIN)
    try:
        command = os.fork()
        if command == 0:
            _become(words, descriptor)
    except OSError as error:
        os.write(descriptor, (error.strerror or str(error)).encode())
        return 127
    # The output ends with the command, and not with this process.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for output in (1, 2):
        os.dup2(nowhere, output)
    code = None
    while code is None:
        ready = [number for number, _ in poll.poll()]
        if descriptor in ready:
            _end(is_sandbox)
            return 128 + int(signal.SIGKILL)
        with _suppressed(BlockingIOError):
            os.read(woken, 4096)
        code = _reaped(command)
    if is_sandbox:
        _end(is_sandbox)
    return code


def _leave_keys(library: ctypes.CDLL) -> bool:
    """Join a new session keyring; at the limit on keys, the one that the user's containers share. False where
    the caller's stays. A kernel that has no keys, or refuses the call, refuses it to the sandbox, too."""
    number = _KEYCTL.get(os.uname().machine)
    if number is None:
        return True
    for name in (None, b"_bareboat"):
        if library.syscall(ctypes.c_long(number), ctypes.c_long(_JOIN), name) >= 0:
            return True
    return ctypes.get_errno() in (errno.ENOSYS, errno.EPERM, errno.EACCES)


def _become(words: list[str], descriptor: int) -> None:
    try:
        os.execvpe(words[0], words, os.environ)
    except (OSError, ValueError) as error:
        with _suppressed(OSError):
            os.write(descriptor, (getattr(error, "strerror", None) or str(error)).encode())
    finally:
        os._exit(127)


def _reaped(command: int) -> int | None:
    """Collect the children that exited; the command's exit code, if it is one of them."""
    code = None
    with _suppressed(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if found[0] == command:
                ended = os.waitstatus_to_exitcode(found[1])
                code = ended if ended >= 0 else 128 - ended
    return code


def _end(is_sandbox: bool) -> None:
    """Kill all children, and those that become children by that; or terminate the process group."""
    deadline = time.monotonic() + _END_S
    if not is_sandbox:
        os.killpg(0, signal.SIGTERM)
    while time.monotonic() < deadline:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            break
        if is_sandbox:
            for pid in _children():
                with _suppressed(OSError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)
    if not is_sandbox:
        os.killpg(0, signal.SIGKILL)


def _children() -> list[int]:
    own, found = str(os.getpid()), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with _suppressed(OSError), open(f"/proc/{name}/stat", "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
            if fields[1].decode() == own:
                found.append(int(name))
    return found


class _suppressed:  # as in contextlib
    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._kinds)


def _nothing(_number: int, _frame: object) -> None:
    """A handler, not SIG_IGN, because the command would inherit an ignored signal."""


if __name__ == "__main__":
    sys.exit(main())
