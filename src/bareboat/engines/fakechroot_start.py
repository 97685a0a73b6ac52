"""Starts a command under fakechroot, and protects the image and the host's files, which fakechroot does not.

The job script of the engine udocker:F1 contains this file after `proot_start`. It runs on the node with the
installed python3, 3.6 or newer, without Bareboat. libfakechroot, preloaded, prefixes every path that a
program passes to the C library with the image's directory. In addition:

- fakechroot cannot mount. The command's root is a directory made for the run: links to the entries of the
  image and to the sources of the mounts; real directories on the way to each mount and where it may write.
- Accesses that bypass the C library's functions (system calls of Go and of static programs, paths within
  the loader) would reach the host's files. Landlock allows reads only of the image, the mounts and the few
  files that the C library itself reads on the host; others fail with "Permission denied".
- It has no read-only root file system: Landlock provides it.

https://github.com/dex4er/fakechroot/blob/master/man/fakechroot.pod
"""

import ctypes
import os
import signal
import struct
import sys
import time

from bareboat.engines.proot_start import (
    _GRACE_S,
    _PR_SET_CHILD_SUBREAPER,
    _PR_SET_NO_NEW_PRIVS,
    _PR_SET_PDEATHSIG,
    _WRITES,
    _WRITES_OF_FILE,
    OLDEST_LANDLOCK,
    Options,
    _check,
    _end_orphans,
    _libc,
    _place,
    _remove,
    landlock_abi,
)

# What the job script carries starts here. ------------------------------------------------------------

#: Rights of Landlock to execute a file, to read it, and to read a directory.
_READS, _READS_OF_FILE = 1 << 0 | 1 << 2 | 1 << 3, 1 << 0 | 1 << 2

#: Files that the C library reads on the host even with a preloaded library: time zones, host names, and
#: locales and character sets, which are for its version and therefore fit the image too.
_OF_HOST = (
    "/usr/share/zoneinfo", "/etc/localtime", "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf",
    "/etc/host.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols", "/usr/lib/locale",
    "/usr/share/locale/locale.alias", "/usr/lib64/gconv", "/usr/lib/gconv",
    "/usr/lib/{0}-linux-gnu/gconv",
)  # fmt: skip
#: Directories of libraries, as the loaders of Debian, Red Hat and others have them.
_LIBRARIES = ("/lib/{0}-linux-gnu", "/usr/lib/{0}-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")

_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"

#: fakechroot's limit of excluded paths.
_MOST_EXCLUDED = 100


class _Refusal(Exception):
    """Why the command cannot run; `code`: the exit code that a shell would use."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        self.text = text


def fakechroot(words: "list[str]") -> int:
    """Run the command of the words under fakechroot."""
    options = Options(words, "--library")
    entries = (entry.partition("=") for entry in options.environment)
    environment = {**{name: value for name, _, value in entries}, **options.carried}
    image = os.path.realpath(options.root)
    mounts = [each for each in options.mounts if each[0] != "--ro-try" or os.path.exists(each[1])]
    work = _place() + "/bareboat-fakechroot-" + os.urandom(8).hex()
    os.mkdir(work, 0o700)
    try:
        if landlock_abi() < OLDEST_LANDLOCK:
            raise _Refusal(3, "this kernel has no Landlock, without which the image could be written to")
        base = work + "/root"
        places = {_inside(image, target): "" for target in options.scratch}
        places.update({_inside(image, target): source for _, source, target in mounts})
        for path in (image, *(source for _, source, _ in mounts)):
            _add_way(image, places, path)
        empty = _make_view(base, image, places, _inside(image, options.cwd))
        # The kernel returns a mount's real path when a program asks for its working directory.
        excluded = {path for _, source, _ in mounts for path in (source, os.path.realpath(source))}
        excluded = {image, *excluded}
        odd = next((path for path in (base, *excluded) if ":" in path), None)
        if odd is not None or len(excluded) > _MOST_EXCLUDED:
            why = "of the colon in " + odd if odd is not None else "there are too many mounts"
            raise _Refusal(3, "fakechroot cannot keep the paths of this run apart, because " + why)
        try:
            os.chdir(base + options.cwd)
        except OSError as error:
            raise _Refusal(3, "the working directory %s: %s" % (options.cwd, error.strerror)) from None  # noqa: UP031
        file, argv = _program(base, options.command, environment.get("PATH", _DEFAULT_PATH))
        loader = _loader(file)
        libraries = _library_folders(base, environment.get("LD_LIBRARY_PATH", ""))
        preload = [options.tool, *environment.get("LD_PRELOAD", "").split()]
        environment["FAKECHROOT_BASE"] = base
        environment["FAKECHROOT_EXCLUDE_PATH"] = ":".join(sorted(excluded))
        environment["LD_LIBRARY_PATH"] = ":".join(libraries)
        environment["LD_PRELOAD"] = ":".join(preload)
        writable = [*empty, *(source for kind, source, _ in mounts if kind == "--bind")]
        readable = [base, image, loader, *preload, *(source for _, source, _ in mounts)]
        readable += [path.format(os.uname().machine) for path in _OF_HOST]
        return _wait_for(file, argv, environment, writable, readable)
    except _Refusal as refusal:
        os.write(2, os.fsencode("bareboat: " + refusal.text + "\n"))
        return refusal.code
    finally:
        os.chdir("/")
        _remove(work)


def _inside(image: str, target: str) -> str:
    """A path of the container after following the image's links on its way."""
    path = os.path.realpath(image + target)
    if path != image and not path.startswith(image + "/"):
        raise _Refusal(3, "nothing can be mounted at " + target + ", which is a link to " + path)
    return path[len(image) :]


def _add_way(image: str, places: "dict[str, str]", path: str) -> None:
    """Make a host path to which links lead exist in the view, so that realpath(3) can follow it step by
    step."""
    path = os.path.realpath(path)
    seen = any(source and (path + "/").startswith(place + "/") for place, source in places.items())
    if not seen and os.path.realpath(image + path) == image + path:
        places[path] = path


def _make_view(base: str, image: str, places: "dict[str, str]", cwd: str) -> "list[str]":
    """Make the command's root directory: `places` maps mounts to their sources, and writable directories to
    "". Everything else is a link to the image. Return the writable directories."""
    empty = []
    ways = list(places)
    if os.path.isdir(_origin(image, places, cwd)):
        ways.append(cwd + "/")  # a real directory: through a link, getcwd(2) would return the link's target
    #: Path in the container -> where its entries are (None: nowhere); the directories that must be real.
    real: dict[str, str | None] = {"": image}
    for target in sorted(ways, key=lambda path: path.split("/")):
        parts = target.split("/")
        for end in range(2, len(parts)):
            path = "/".join(parts[:end])
            if path not in real:
                outer = real[path.rpartition("/")[0]]
                real[path] = places.get(path) or (None if outer is None else outer + "/" + parts[end - 1])
        if target in places and not places[target]:
            real[target] = None
            empty.append(base + target)
    for path, origin in real.items():  # outer before inner
        os.mkdir(base + path, 0o755)
        if origin is None:
            continue
        try:
            names = os.listdir(origin)
        except OSError:  # it does not exist or is not readable
            continue
        for name in names:
            inner = path + "/" + name
            if inner in real or inner in places:
                continue
            link = origin + "/" + name
            # A link of the image has the same target in the view, and there follows the mounts.
            os.symlink(
                os.readlink(link) if origin == image + path and os.path.islink(link) else link, base + inner
            )
    for target, source in places.items():
        if target not in real:
            os.symlink(source, base + target)
    return empty


def _origin(image: str, places: "dict[str, str]", path: str) -> str:
    """Where a directory of the container lies in the image; empty where it is not the image's."""
    outer = max((place for place in places if (path + "/").startswith(place + "/")), key=len, default=None)
    found = image + path if outer is None else places[outer] and places[outer] + path[len(outer) :]
    return found if (os.path.realpath(found) + "/").startswith(image + "/") else ""


def _program(base: str, command: "list[str]", path: str) -> "tuple[str, list[str]]":
    """The file to execute and its argv, found as by execvp(3) and execve(2), with a script's interpreter."""
    name, found = command[0], ""
    if "/" in name:
        found = base + name if name.startswith("/") else name
    else:
        for folder in path.split(":"):
            found = (base + folder if folder.startswith("/") else folder or ".") + "/" + name
            if os.path.isfile(found) and os.access(found, os.X_OK):
                name = folder + "/" + name
                break
    argv = list(command)
    for _ in range(5):
        try:
            if not os.path.isfile(found) or not os.access(found, os.X_OK):
                raise PermissionError(13, "Permission denied")
            with open(found, "rb") as stream:
                first = stream.read(256)
        except OSError as error:
            missing = not os.path.lexists(found)
            why = "not found" if missing else error.strerror
            raise _Refusal(127 if missing else 126, "%s: %s" % (command[0], why)) from None  # noqa: UP031
        if first[:4] == b"\x7fELF":
            return found, argv
        words = [b"/bin/sh"]  # a script without this line, as execvp(3) runs it
        if first[:2] == b"#!":
            words = first[2:].split(b"\n")[0].strip().split(None, 1) or words
        argv = [*map(os.fsdecode, words), name, *argv[1:]]
        name = argv[0]
        found = base + name
    raise _Refusal(126, command[0] + ": too many interpreters")


def _loader(file: str) -> str:
    """The program's loader, by its host path, because the kernel uses the host's. elf(5)."""
    with open(file, "rb") as stream:
        head = stream.read(64)
        if head[4:6] == b"\2\1":
            (start,), (size, count) = struct.unpack_from("<Q", head, 32), struct.unpack_from("<HH", head, 54)
            for number in range(count):
                stream.seek(start + number * size)
                entry = stream.read(56)
                if struct.unpack_from("<I", entry)[0] == 3:
                    stream.seek(struct.unpack_from("<Q", entry, 8)[0])
                    text = stream.read(struct.unpack_from("<Q", entry, 32)[0])
                    return os.fsdecode(text.rstrip(b"\0"))
    raise _Refusal(
        126, os.path.basename(file) + " is a static program: fakechroot cannot keep it in the image"
    )


def _library_folders(base: str, asked: str) -> "list[str]":
    """Where the loader, which ignores preloaded libraries, finds the image's libraries."""
    folders = [folder for folder in asked.split(":") if folder.startswith("/")]
    pending = ["/etc/ld.so.conf"]
    for path in pending:  # grows
        if len(pending) > 200:
            break
        try:
            with open(base + path, errors="surrogateescape") as stream:
                lines = [line.partition("#")[0].strip() for line in stream]
        except OSError:
            continue
        for line in lines:
            if line.startswith("include"):
                folder, _, pattern = line[len("include") :].strip().rpartition("/")
                folder = folder if folder.startswith("/") else "/etc/" + folder
                ending = pattern.lstrip("*")
                if os.path.isdir(base + folder):
                    pending += sorted(
                        folder + "/" + name for name in os.listdir(base + folder) if name.endswith(ending)
                    )
            elif line.startswith("/"):
                folders.append(line)
    folders += [folder.format(os.uname().machine) for folder in _LIBRARIES]
    found = [os.path.realpath(base + folder) for folder in folders if os.path.isdir(base + folder)]
    return list(dict.fromkeys(folder for folder in found if ":" not in folder and ";" not in folder))


def _wait_for(
    file: str, argv: "list[str]", environment: "dict[str, str]", writable: "list[str]", readable: "list[str]"
) -> int:
    """Run the command and wait for everything that it started; return its exit code."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    # The command decides what these do. A handler, unlike SIG_IGN, is not inherited.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if child == 0:
        try:
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
                signal.signal(number, signal.SIG_DFL)
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            _guard(writable, readable)
            os.execve(file, argv, environment)
        except BaseException as error:
            os.write(2, os.fsencode("bareboat: %s cannot be started: %s\n" % (argv[0], error)))  # noqa: UP031
        finally:
            os._exit(126)
    # This process must not outlive the job script either.
    signal.signal(signal.SIGUSR2, lambda *_: os.kill(child, signal.SIGKILL))
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGUSR2, 0, 0, 0)
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == child:
            break
    deadline = time.monotonic() + _GRACE_S
    try:
        while time.monotonic() < deadline:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.002)
    except ChildProcessError:  # none is left
        pass
    _end_orphans()
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _guard(writable: "list[str]", readable: "list[str]") -> None:
    """Restrict this process and its descendants: write only to `writable`, read and execute only there and in
    `readable`."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    writes = _WRITES if landlock_abi() >= 3 else _WRITES & ~(1 << 14)
    rules = _check(_libc.syscall(444, struct.pack("Q", writes | _READS), ctypes.c_size_t(8), 0))
    for paths, rights, of_file in (
        (writable, writes | _READS, (writes & _WRITES_OF_FILE) | _READS_OF_FILE),
        (readable, _READS, _READS_OF_FILE),
    ):
        for path in paths:
            try:
                place = os.open(path, os.O_PATH)
            except OSError:  # not every host has all of them
                continue
            allowed = rights if os.path.isdir(path) else of_file
            _check(_libc.syscall(445, rules, 1, struct.pack("=Qi", allowed, place), 0))
            os.close(place)
    _check(_libc.syscall(446, rules, 0))
    os.close(rules)


if __name__ == "__main__":
    sys.exit(fakechroot(sys.argv[1:]))
