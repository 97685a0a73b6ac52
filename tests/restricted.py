"""A node that forbids things: a program in namespaces of its own, where the kernel really refuses.

`python restricted.py OPTION… -- COMMAND…` makes a mount namespace (and, for who is not root, a user namespace
with the user's own numbers), changes it, gives up every right that it got by that, and becomes the command.

--noexec FOLDER      mounted noexec; what --keep names stays as it is
--keep FOLDER
--read-only FOLDER
--small FOLDER       an empty tmpfs of 1 MiB
--no-device NAME     a /dev without this entry
--deep FOLDER        overlays upon each other, so that the kernel takes the folder for no layer any more
--deny CALL          a seccomp filter answers the system call with EPERM
"""

import ctypes
import os
import platform
import struct
import sys
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_NOATIME, _NODIRATIME, _RELATIME = 1024, 2048, 1 << 21
_NEWNS, _NEWUSER = 0x20000, 0x10000000

#: System calls by machine: its number for seccomp(2), then theirs.
CALLS = {
    "x86_64": (0xC000003E, {"ptrace": 101, "process_vm_readv": 310, "mount": 165, "unshare": 272}),
    "aarch64": (0xC00000B7, {"ptrace": 117, "process_vm_readv": 270, "mount": 40, "unshare": 97}),
}


def check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        sys.exit(f"restricted.py: {what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    data = None if options is None else os.fsencode(options)
    check(_libc.mount(*words, ctypes.c_ulong(flags), data), f"mount {kind or flags:} at {target}")


def remount(folder: str, flag: int) -> None:
    """Add a flag. What the outer namespace has locked must be named again: mount_namespaces(7)."""
    had = os.statvfs(folder).f_flag
    pairs = (
        (os.ST_RDONLY, _RDONLY),
        (os.ST_NOSUID, _NOSUID),
        (os.ST_NODEV, _NODEV),
        (os.ST_NOEXEC, _NOEXEC),
        (os.ST_NOATIME, _NOATIME),
        (os.ST_NODIRATIME, _NODIRATIME),
        (os.ST_RELATIME, _RELATIME),
    )
    flags = sum(ours for theirs, ours in pairs if had & theirs)
    mount("none", folder, None, _REMOUNT | _BIND | flags | flag)


def enter() -> None:
    uid, gid = os.getuid(), os.getgid()
    if uid != 0:
        check(_libc.unshare(_NEWUSER), "unshare(CLONE_NEWUSER)")
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            Path("/proc/self", name).write_text(text)
    check(_libc.unshare(_NEWNS), "unshare(CLONE_NEWNS)")
    mount("none", "/", None, _REC | _PRIVATE)


def without_device(hidden: str) -> None:
    """The machine's own devices one by one in a new /dev, but for one."""
    entries = {entry.name: entry.is_dir() for entry in os.scandir("/dev") if not entry.is_symlink()}
    links = {entry.name: os.readlink(entry.path) for entry in os.scandir("/dev") if entry.is_symlink()}
    new = "/mnt"
    mount("none", new, "tmpfs", _NOSUID, "mode=755")
    for name, target in links.items():
        os.symlink(target, f"{new}/{name}")
    for name, is_folder in entries.items():
        if name != hidden:
            if is_folder:
                os.mkdir(f"{new}/{name}")
            else:
                Path(new, name).touch()
            mount(f"/dev/{name}", f"{new}/{name}", None, _BIND | _REC)
    mount(new, "/dev", None, _BIND | _REC)


def deep(folder: str) -> None:
    """Two overlays are all that the kernel allows upon each other (FILESYSTEM_MAX_STACK_DEPTH)."""
    beside = folder + ".deep"
    os.makedirs(beside, exist_ok=True)
    mount("none", beside, "tmpfs", 0)
    for level in "12":
        for name in ("upper", "work"):
            os.mkdir(f"{beside}/{name}{level}")
        options = f"lowerdir={folder},upperdir={beside}/upper{level},workdir={beside}/work{level},userxattr"
        mount("none", folder, "overlay", 0, options)


def deny(names: list[str]) -> None:
    audit, numbers = CALLS[platform.machine()]
    wanted = [numbers[name] for name in names]
    lines = [(0x20, 0, 0, 4), (0x15, 0, len(wanted) + 1, audit), (0x20, 0, 0, 0)]
    lines += [(0x15, len(wanted) - place, 0, number) for place, number in enumerate(wanted)]
    lines += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050001)]  # allow; EPERM
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(code))
    check(_libc.prctl(38, 1, 0, 0, 0), "no_new_privs")
    check(_libc.prctl(22, 2, program, 0, 0), "seccomp")


def main(words: list[str]) -> None:
    at = words.index("--")
    options = list(zip(words[:at:2], words[1:at:2], strict=True))
    home = os.getcwd()
    enter()
    for option, value in options:
        if option == "--keep":
            mount(value, value, None, _BIND | _REC)
    for option, value in options:
        match option:
            case "--noexec":
                mount(value, value, None, _BIND | _REC)
                remount(value, _NOEXEC)
            case "--read-only":
                mount(value, value, None, _BIND | _REC)
                remount(value, _RDONLY)
            case "--small":
                mount("none", value, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=1777")
            case "--no-device":
                without_device(value)
            case "--deep":
                deep(value)
    os.chdir(home)  # below a new mount there is another folder of this name
    denied = [value for option, value in options if option == "--deny"]
    if denied:
        deny(denied)
    if os.getuid() != 0:
        # By execve a user without ambient rights loses what the namespace gave; setpriv makes sure of it.
        os.execvp("setpriv", ["setpriv", "--ambient-caps=-all", "--inh-caps=-all", *words[at + 1 :]])
    os.execvp(words[at + 1], words[at + 1 :])


if __name__ == "__main__":
    main(sys.argv[1:])
