"""Starts a command under PRoot, and protects the image and the exit code, which PRoot alone does not.

The job script of the engine udocker contains this file. It runs on the node with the installed python3, 3.6
or newer, without Bareboat. In addition to PRoot:

- PRoot has no read-only root file system. Landlock forbids writes outside the writable mounts; where it
  cannot, the image is copied for the run. https://docs.kernel.org/userspace-api/landlock.html
- PRoot rewrites the paths of the system calls that it knows. Newer calls would reach the host's files; a
  seccomp filter answers them with ENOSYS, and the C library uses the older call. But before 5.2 a program
  that clone(2) starts in the memory of another takes the other's heap; clone3(2) is allowed to start it.
- PRoot's exit code is that of the process that ended last. A shell inside reports that of the command.
- PRoot passes on its own environment, including PROOT_TMP_DIR. env(1) inside removes it.
"""

# shutil, tempfile and platform would double the time of a start.
import ctypes
import os
import select
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
else:  # signal itself makes enums of its numbers: 3 ms at every start
    import _signal as signal

_libc = ctypes.CDLL(None, use_errno=True)

#: Rights of Landlock that change something: bit 1 is to write a file, 4 to 12 to remove and to make entries,
#: 13 to move between directories (ABI 2), 14 to truncate (ABI 3). Files have the first and the last only.
_WRITES = sum(1 << bit for bit in (1, *range(4, 15)))
_WRITES_OF_FILE = 1 << 1 | 1 << 14
#: ABI 1 forbids every move between two directories, even writable ones, and breaks programs.
OLDEST_LANDLOCK = 2

#: Calls that take a path an old PRoot does not rewrite, or that reach files past it. The same on all
#: machines.
_UNKNOWN = {
    "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fspick": 433, "clone3": 435,
    "openat2": 437, "faccessat2": 439, "mount_setattr": 442, "fchmodat2": 452, "setxattrat": 463,
    "getxattrat": 464, "listxattrat": 465, "removexattrat": 466, "open_tree_attr": 467, "file_getattr": 468,
    "file_setattr": 469,
}  # fmt: skip
#: Machine -> its number for seccomp(2), that call's number, and its own numbers of such calls.
_MACHINES = {
    "x86_64": (
        0xC000003E,
        317,
        {"fanotify_mark": 301, "name_to_handle_at": 303, "renameat2": 316, "execveat": 322, "statx": 332},
    ),
    "aarch64": (
        0xC00000B7,
        277,
        {"fanotify_mark": 263, "name_to_handle_at": 264, "renameat2": 276, "execveat": 281, "statx": 291},
    ),
}

#: Writes the command's exit code to descriptor 9. The shell's messages about a killed child are not the
#: job's.
_TELL = (
    "exec 8>&2 2>/dev/null; trap : HUP INT QUIT TERM; "
    '"$@" 2>&8 8>&- 9>&-; code=$?; echo "$code" >&9; exit "$code"'
)
_SHELL, _ENV = "/bin/sh", "/usr/bin/env"
#: Variables that a shell sets by itself.
_OF_SHELLS = ("PWD", "OLDPWD", "SHLVL", "_")

#: Grace period for processes that the command left running, as in udocker and Docker.
_GRACE_S = 1.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_ENOSYS = 38


class Options:
    """The words of a starter: its `tool` (--proot), --root, --cwd, --env NAME=VALUE, --sealed NAME,NAME
    (their values are in BAREBOAT_ENV_0 and so on), --bind|--ro|--ro-try SOURCE TARGET (outer before inner),
    --scratch TARGET, --no-seccomp; then -- and the command."""

    def __init__(self, words: "list[str]", tool: str) -> None:
        single = {tool: "", "--root": "", "--cwd": "/"}
        self.environment: list[str] = []
        self.carried: dict[str, str] = {}
        self.mounts: list[tuple[str, str, str]] = []
        self.scratch: list[str] = []
        self.no_seccomp = False
        rest = iter(words)
        for word in rest:
            if word == "--":
                break
            if word == "--no-seccomp":
                self.no_seccomp = True
            elif word in single:
                single[word] = next(rest)
            elif word == "--env":
                self.environment.append(next(rest))
            elif word == "--sealed":
                self.carried = sealed(next(rest))
            elif word == "--scratch":
                self.scratch.append(next(rest))
            else:
                self.mounts.append((word, next(rest), next(rest)))
        self.command = list(rest)
        self.tool, self.root, self.cwd = single.values()


def main(words: "list[str]") -> int:
    """Run the command of the words under PRoot."""
    options = Options(words, "--proot")
    mounts, proot, root = options.mounts, options.tool, options.root
    settings = {"PROOT_NO_SECCOMP": "1"} if options.no_seccomp else {}
    work = _place() + "/bareboat-proot-" + os.urandom(8).hex()
    os.mkdir(work, 0o700)
    try:
        writable = [source for kind, source, _ in mounts if kind == "--bind"]
        guarded = landlock_abi() >= OLDEST_LANDLOCK
        if not guarded or any(_lies_in(root, folder) for folder in writable):
            copy = work + "/root"
            _copy(root, copy)
            mounts = [
                (kind, copy + source[len(root) :] if source.startswith(root + "/") else source, target)
                for kind, source, target in mounts
            ]
            root = copy
        bound = [("%s/scratch-%d" % (work, number), target) for number, target in enumerate(options.scratch)]  # noqa: UP031
        for folder, _ in bound:
            os.mkdir(folder)
        bound += [(source, to) for kind, source, to in mounts if kind != "--ro-try" or os.path.exists(source)]
        argv = [proot, "-v", "-1", "-r", root, "-w", options.cwd]
        for number, (source, target) in enumerate(bound):
            _make_mount_point(root, bound[:number], target, os.path.isdir(source), work)
            argv += ["-b", source + ":" + target]
        own = work + "/proot"
        os.mkdir(own)
        settings["PROOT_TMP_DIR"] = own
        with open(proot, "rb") as stream:
            content = stream.read()
        settings.update(_loaders(content, own))
        told = _is_there(root, bound, _SHELL) and _is_there(root, bound, _ENV)
        if told:
            argv += [_SHELL, "-c", _TELL, "sh", _ENV]
            for name in (*settings, *_OF_SHELLS):
                argv += ["-u", name]
            argv += options.environment
            if "=" in options.command[0]:  # env would read it as a variable
                argv += [_SHELL, "-c", 'exec "$0" "$@"']
        else:  # an image without a shell: its command gets PRoot's variables too
            for entry in options.environment:
                name, _, value = entry.partition("=")
                settings[name] = value
        settings.update(options.carried)
        clones = _filter(is_asked=b"can't allocate heap" not in content)
        return _run(argv + options.command, settings, [work, *writable] if guarded else None, told, clones)
    finally:
        _try(_count, work, options.scratch, os.environ.get("BAREBOAT_CONTROL"))
        _remove(work)


def _count(work: str, scratch: "list[str]", control: "str | None") -> None:
    """Write the sizes and paths of files that vanish with `work`, as write_found of the job script does."""
    lines, caches = [], (".cache", ".config", ".local", ".nv", "__pycache__")
    for number, target in enumerate(scratch):
        top = "%s/scratch-%d" % (work, number)  # noqa: UP031
        for folder, folders, files in os.walk(top):
            folders[:] = [name for name in folders if name not in caches]
            for path in [folder + "/" + name for name in files]:
                state = os.lstat(path)
                if state.st_mode & 0o170000 == 0o100000 and state.st_size:
                    lines.append(os.fsencode("%d %s\n" % (state.st_size, target + path[len(top) :])))  # noqa: UP031
    if lines and control:
        with open("%s/discarded.%s.%d" % (control, os.uname().nodename, os.getpid()), "wb") as stream:  # noqa: UP031
            stream.writelines(lines)


def sealed(names: str) -> "dict[str, str]":
    """The variables whose values are in no argv, which every user of the machine can read."""
    listed = names.split(",") if names else []
    return {name: os.environ["BAREBOAT_ENV_%d" % number] for number, name in enumerate(listed)}  # noqa: UP031


def _place() -> str:
    """A directory for temporary files. PRoot starts a program of its own there: it must not be mounted
    noexec, and no other user may exchange what is in it."""
    for folder in (os.environ.get("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"):
        if not folder or not os.access(folder, os.W_OK) or _others_rename(folder):
            continue
        if not os.statvfs(folder).f_flag & os.ST_NOEXEC:
            return folder
    return "/tmp"


def _others_rename(folder: str) -> bool:
    """Whether another user may rename files in a directory or above it."""
    root = os.stat("/").st_uid  # nobody, in a user namespace without root
    folder = os.path.realpath(folder)
    while True:
        found = os.stat(folder)
        if found.st_uid not in (0, root, os.geteuid()):
            return True
        if found.st_mode & 0o022 and not found.st_mode & 0o1000:
            return True
        if folder == "/":
            return False
        folder = os.path.dirname(folder)


def _copy(root: str, copy: str) -> None:
    import shutil

    shutil.copytree(root, copy, symlinks=True)


def _lies_in(path: str, folder: str) -> bool:
    return (os.path.realpath(path) + "/").startswith(os.path.realpath(folder).rstrip("/") + "/")


def _loaders(content: bytes, folder: str) -> "dict[str, str]":
    """The loaders with which PRoot starts programs. Old versions without PROOT_TMP_DIR would put them into
    /tmp, which is not writable here. They are ELF files inside the program itself."""
    found: dict[str, str] = {}
    start = -1 if b"PROOT_TMP_DIR" in content else content.find(b"\x7fELF", 1)
    while start > 0:
        bits, order, kind = content[start + 4] * 32, content[start + 5], content[start + 16 : start + 18]
        if bits in (32, 64) and order == 1 and kind == b"\2\0":  # an executable, and not these bytes in code
            # Offset and size of its section table, which is at its end: elf(5).
            at, form, numbers = (40, "<Q", 58) if bits == 64 else (32, "<I", 46)
            size, count = struct.unpack_from("<HH", content, start + numbers)
            end = start + struct.unpack_from(form, content, start + at)[0] + size * count
            name = "PROOT_LOADER" if bits == 64 else "PROOT_LOADER_32"
            found[name] = folder + "/" + name
            with open(found[name], "wb") as stream:
                stream.write(content[start:end])
            os.chmod(found[name], 0o700)
        start = content.find(b"\x7fELF", start + 1)
    return found


def _steps(root: str, bound: "list[tuple[str, str]]", target: str) -> "list[tuple[str, bool]]":
    """Resolve a path as PRoot does: where each of its parts lies on the host, and whether more follow. Stop
    at the first part that does not exist; a call after that part was made continues."""
    names = [name for name in target.split("/") if name]
    inside, links, steps = "", 0, []
    while names:
        inside = os.path.normpath(inside + "/" + names.pop(0)).rstrip("/")
        path = root + inside
        for source, place in bound:  # outer before inner: the last one holds
            if inside == place or inside.startswith(place + "/"):
                path = source + inside[len(place) :]
        steps.append((path, bool(names)))
        if not os.path.lexists(path):
            break
        if os.path.islink(path) and links < 40:
            links += 1
            to = os.readlink(path)
            names = [name for name in to.split("/") if name] + names
            inside = "" if to.startswith("/") else os.path.dirname(inside)
    return steps or [(root, False)]


def _is_there(root: str, bound: "list[tuple[str, str]]", path: str) -> bool:
    return os.path.lexists(_steps(root, bound, path)[-1][0])


def _make_mount_point(
    root: str, bound: "list[tuple[str, str]]", target: str, is_folder: bool, work: str
) -> None:
    """Make an empty directory or file where something is to be mounted and nothing exists: in the image's
    tree, as other engines do, or in a scratch directory; never in the user's mounts. PRoot would make it in
    /tmp."""
    while True:
        path, more = _steps(root, bound, target)[-1]
        if os.path.lexists(path) or not path.startswith((root + "/", work + "/")):
            return
        try:
            if more or is_folder:
                os.mkdir(path)
            else:
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
        except FileExistsError:  # by another rank
            pass
        except OSError:  # a store of another user: a newer PRoot emulates the mount point
            return


def _run(
    argv: "list[str]", environment: "dict[str, str]", writable: "list[str] | None", told: bool, clones: int
) -> int:
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    heard, tells = os.pipe()
    # The command decides what these do. A handler, unlike SIG_IGN, is not inherited.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    child = os.fork()
    if child == 0:
        try:
            os.dup2(tells, 9)
            os.set_inheritable(9, True)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
                signal.signal(number, signal.SIG_DFL)
            # On SIGQUIT PRoot kills all that it traces: nothing outlives this process.
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0)
            _restrict(writable)
            os.execve(argv[0], argv, environment)
        except BaseException as error:
            os.write(2, os.fsencode(f"bareboat: {argv[0]} cannot be started: {error}\n"))
        finally:
            os._exit(3)
    # This process must not outlive the job script either.
    signal.signal(signal.SIGUSR2, lambda *_: os.kill(child, signal.SIGQUIT))
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGUSR2, 0, 0, 0)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.close(tells)
    answer, status = _listen(heard, woken, child, clones)
    deadline = time.monotonic() + _GRACE_S
    while status is None and time.monotonic() < deadline:
        ended, how = os.waitpid(child, os.WNOHANG)
        if ended:
            status = how
        else:
            time.sleep(0.0005)
    if status is None:
        os.kill(child, signal.SIGQUIT)
        status = os.waitpid(child, 0)[1]
    _end_orphans()
    if answer:
        return int(answer)
    code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return code or (1 if told else 0)


def _listen(heard: int, woken: int, child: int, clones: int) -> "tuple[bytes, int | None]":
    """Wait for the exit code that the shell reports, or for PRoot's end and its status without one."""
    while True:
        ready, _, _ = select.select([heard, woken, *([clones] if clones >= 0 else [])], [], [])
        if clones in ready:
            _answer(clones)
            continue
        if heard in ready:
            answer = os.read(heard, 16)
            if answer:
                return answer, None
            return b"", os.waitpid(child, 0)[1]
        os.read(woken, 64)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return b"", status


def _end_orphans() -> None:
    """Kill the processes that PRoot traced until it was killed: they would continue with the host's files
    visible."""
    while True:
        try:
            with open("/proc/thread-self/children") as stream:
                orphans = [int(word) for word in stream.read().split()]
        except OSError:  # a kernel without this list
            return
        if not orphans:
            return
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def landlock_abi() -> int:
    """The version of Landlock in this kernel; below 1 without it. Its call numbers are the same on all
    machines."""
    return int(_libc.syscall(444, None, ctypes.c_size_t(0), 1))


def _restrict(writable: "list[str] | None") -> None:
    """Restrict this process and its descendants: write only to `writable` (None: anywhere)."""
    if writable is not None:
        handled = _WRITES if landlock_abi() >= 3 else _WRITES & ~(1 << 14)
        rules = _check(_libc.syscall(444, struct.pack("Q", handled), ctypes.c_size_t(8), 0))
        for path in writable:
            place = os.open(path, os.O_PATH)
            allowed = handled if os.path.isdir(path) else handled & _WRITES_OF_FILE
            _check(_libc.syscall(445, rules, 1, struct.pack("=Qi", allowed, place), 0))
            os.close(place)
        _check(_libc.syscall(446, rules, 0))
        os.close(rules)


def _filter(is_asked: bool) -> int:
    """Refuse the calls that PRoot does not know to this process and its descendants. Return the descriptor
    that asks about each clone3 if it `is_asked` and the kernel can, else -1."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    machine = os.uname().machine
    if machine not in _MACHINES:
        return -1
    audit, seccomp, own = _MACHINES[machine]
    numbers = sorted([*_UNKNOWN.values(), *own.values()])
    # Another architecture: allow. A listed number: ENOSYS. Else allow. See seccomp(2), bpf.
    asks = [(0x15, 0, 1, _UNKNOWN["clone3"]), (0x06, 0, 0, 0x7FC00000)] if is_asked else []
    lines = [(0x20, 0, 0, 4), (0x15, 0, len(asks) + len(numbers) + 1, audit), (0x20, 0, 0, 0), *asks]
    lines += [(0x15, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    lines += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050000 | _ENOSYS)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(code))
    asked = int(_libc.syscall(seccomp, 1, 8 if is_asked else 0, program))
    return _filter(is_asked=False) if is_asked and asked < 0 else _check(asked) - (not is_asked)


def _answer(clones: int) -> None:
    """Continue a call of clone3 that starts a program (CLONE_VFORK), and refuse one that starts a thread."""
    request = ctypes.create_string_buffer(80)
    if _libc.ioctl(clones, ctypes.c_ulong(0xC0502100), request) < 0:  # it was killed
        return
    number, pid, arguments = struct.unpack_from("=QI20xQ", request)
    flags = 0
    try:
        with open("/proc/%d/mem" % pid, "rb", 0) as memory:  # noqa: UP031
            (flags,) = struct.unpack("Q", os.pread(memory.fileno(), 8, arguments))
    except OSError:
        pass
    for error in (0, -_ENOSYS) if flags & 0x4000 else (-_ENOSYS,):  # before Linux 5.5 none continues
        answer = struct.pack("=QqiI", number, 0, error, not error)
        if _libc.ioctl(clones, ctypes.c_ulong(0xC0182101), answer) == 0:
            return


def _check(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _remove(folder: str) -> None:
    """Remove the directory with its content as far as possible: an error here must not change the exit
    code."""
    for path, folders, _ in os.walk(folder):
        for name in folders:
            if not os.path.islink(path + "/" + name):
                _try(os.chmod, path + "/" + name, 0o700)  # the command may have made it unwritable
    for path, folders, files in os.walk(folder, topdown=False):
        for name in files:
            _try(os.unlink, path + "/" + name)
        for name in folders:
            _try(os.unlink if os.path.islink(path + "/" + name) else os.rmdir, path + "/" + name)
    _try(os.rmdir, folder)


def _try(action: "Callable[..., None]", *arguments: object) -> None:
    try:  # noqa: SIM105 (contextlib costs milliseconds)
        action(*arguments)
    except OSError:
        pass


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # skip the interpreter's cleanup, which would take a millisecond
