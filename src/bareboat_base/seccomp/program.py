"""The table of system calls -> classic BPF, as for seccomp(2).

The program is a binary search over ranges of numbers, so that a call costs some ten instructions; kernels
since 5.11 remember which calls are always allowed and run nothing for them.
https://man7.org/linux/man-pages/man2/seccomp.2.html
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from bareboat_base.seccomp.table import COLUMNS, LAST, lines, unlisted

#: Requests of ioctl(2) that put input into a terminal; the same numbers on all machines in the table.
#: https://man7.org/linux/man-pages/man2/TIOCSTI.2const.html, TIOCLINUX.2const.html
TIOCSTI, TIOCLINUX = 0x5412, 0x541C

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
SUCCESS = _ERRNO | 0
EPERM, ENOSYS, EINVAL = (_ERRNO | number for number in (errno.EPERM, errno.ENOSYS, errno.EINVAL))

#: ABI -> AUDIT_ARCH_*, which identify the ABI of a call's number.
AUDIT = {"x86_64": 0xC000003E, "i386": 0x40000003, "aarch64": 0xC00000B7, "arm": 0x40000028}

#: Machine -> its own ABI and that of its 32-bit programs.
MACHINES = {"x86_64": ("x86_64", "i386"), "aarch64": ("aarch64", "arm")}

#: On x86-64, numbers from here on are those of x32.
_X32 = 0x40000000

_LOAD, _JUMP, _EQUAL, _AT_LEAST, _RETURN, _AND = 0x20, 0x05, 0x15, 0x35, 0x06, 0x54
_TYPE, _CHARACTER, _BLOCK = 0o170000, 0o020000, 0o060000
_NUMBER, _ARCHITECTURE = 0, 4
_LONGEST = 255

_LINUX, _SHORT_INODE, _UNAME26, _ASK = 0x0000, 0x0008, 0x20000, 0xFFFFFFFF
_PERSONALITIES = (_LINUX, _SHORT_INODE, _UNAME26, _UNAME26 | _SHORT_INODE, _ASK)
_AF_NETLINK, _NETLINK_AUDIT = 16, 9


class Instruction(Struct, frozen=True):
    code: int
    value: int
    if_true: int = 0
    if_false: int = 0

    def packed(self) -> bytes:
        return struct.pack("<HBBI", self.code, self.if_true, self.if_false, self.value)


def calls(abi: str) -> dict[int, tuple[str, str]]:
    """Number -> name and verdict, for the calls in calls.txt in this ABI."""
    column = COLUMNS.index(abi)
    found = {}
    for name, verdict, *numbers in lines():
        if numbers[column] != "-":
            found[int(numbers[column])] = name, verdict
    return found


def verdicts(abi: str) -> dict[int, str]:
    """Number -> verdict, for all calls that are not answered with ENOSYS."""
    found = dict.fromkeys(sorted(set(range(LAST + 1)) - unlisted(abi)), "allow")
    return found | {number: verdict for number, (_, verdict) in calls(abi).items()}


def full(machine: str) -> bytes:
    """The filter that allows the table's calls."""
    return _program({abi: (verdicts(abi), "enosys") for abi in MACHINES[machine]})


#: Calls of an emulated root that return success and do nothing: they need more identifiers than one user has.
_IDENTITY = frozenset(
    f"{name}{width}"
    for name in (
        "chown", "lchown", "fchown", "fchownat", "setuid", "setgid", "setreuid", "setregid", "setresuid",
        "setresgid", "setgroups", "setfsuid", "setfsgid",
    )
    for width in ("", "32")
) | {"capset"}  # fmt: skip
#: Calls of a RUN that do nothing, too: package managers make them after every file, and no layer, pulled ones
#: included, is on the disk before it is used.
_SYNC = frozenset(("sync", "syncfs", "fsync", "fdatasync", "sync_file_range", "arm_sync_file_range"))
#: The argument of mknod(2) and mknodat(2) that distinguishes a device from a pipe.
_MODE_ARGUMENT = {"mknod": 1, "mknodat": 2}


def build(machine: str) -> bytes:
    """The filter for a step of a build: that of `root`, and calls that wait for the disk do nothing."""
    return _emulating(machine, _IDENTITY | _SYNC)


def root(machine: str) -> bytes:
    """The table's calls, and root emulation for those that change owners, identities and devices. The kernel
    runs the others, such as chmod, link and setxattr."""
    return _emulating(machine, _IDENTITY)


def _emulating(machine: str, silent: frozenset[str]) -> bytes:
    """`silent`: the calls that return success and do nothing."""
    sections: dict[str, tuple[Mapping[int, str], str]] = {}
    for abi in MACHINES[machine]:
        changed = {}
        for number, (name, _) in calls(abi).items():
            if name in silent:
                changed[number] = "success"
            elif name in _MODE_ARGUMENT:
                changed[number] = f"device {_MODE_ARGUMENT[name]}"
        sections[abi] = verdicts(abi) | changed, "enosys"
    return _program(sections)


def terminal(machine: str) -> bytes:
    """The filter that only prevents input into terminals."""
    sections: dict[str, tuple[Mapping[int, str], str]] = {}
    for abi in MACHINES[machine]:
        ioctl = next(number for number, (name, _) in calls(abi).items() if name == "ioctl")
        sections[abi] = {ioctl: "ioctl"}, "allow"
    return _program(sections)


def _program(sections: Mapping[str, tuple[Mapping[int, str], str]]) -> bytes:
    """A check of the ABI before each ABI's part; calls of other ABIs return ENOSYS."""
    found = [Instruction(_LOAD, _ARCHITECTURE)]
    for abi, (verdicts, other) in sections.items():
        ranges = _ranges(verdicts, other)
        if abi == "x86_64" and other == "allow":
            ranges.append((_X32, "enosys"))
        part = [Instruction(_LOAD, _NUMBER), *_search(ranges)]
        found += [Instruction(_EQUAL, AUDIT[abi], 1, 0), Instruction(_JUMP, len(part)), *part]
    found.append(Instruction(_RETURN, ENOSYS))
    return b"".join(each.packed() for each in found)


def _ranges(verdicts: Mapping[int, str], other: str) -> list[tuple[int, str]]:
    """The first number of each range with the same verdict, and the verdict."""
    found = [(0, other)]
    for number, verdict in sorted(verdicts.items()):
        if found[-1][0] == number:
            found.pop()
        found += [(number, verdict), (number + 1, other)]
    return [each for i, each in enumerate(found) if i == 0 or each[1] != found[i - 1][1]]


def _search(ranges: Sequence[tuple[int, str]]) -> list[Instruction]:
    if len(ranges) == 1:
        return _answer(ranges[0][1])
    middle = len(ranges) // 2
    below, above = _search(ranges[:middle]), _search(ranges[middle:])
    if len(below) <= _LONGEST:
        return [Instruction(_AT_LEAST, ranges[middle][0], len(below), 0), *below, *above]
    return [
        Instruction(_AT_LEAST, ranges[middle][0], 0, 1),
        Instruction(_JUMP, len(below)),
        *below,
        *above,
    ]


def _answer(verdict: str) -> list[Instruction]:
    match verdict:
        case "allow":
            return [Instruction(_RETURN, _ALLOW)]
        case "eperm":
            return [Instruction(_RETURN, EPERM)]
        case "enosys":
            return [Instruction(_RETURN, ENOSYS)]
        case "success":
            return [Instruction(_RETURN, SUCCESS)]
        case "device 1" | "device 2":
            load, *tests = _unless(int(verdict[-1]), (_CHARACTER, _BLOCK), found=SUCCESS, other=_ALLOW)
            return [load, Instruction(_AND, _TYPE), *tests]
        case "ioctl":
            return _unless(1, (TIOCSTI, TIOCLINUX), found=EPERM, other=_ALLOW)
        case "personality":
            return _unless(0, _PERSONALITIES, found=_ALLOW, other=ENOSYS)
        case "socket":
            # Two instructions on, in what follows the test, is its "other".
            return [
                Instruction(_LOAD, _argument(0)),
                Instruction(_EQUAL, _AF_NETLINK, 0, 2),
                *_unless(2, (_NETLINK_AUDIT,), found=EINVAL, other=_ALLOW),
            ]
        case _:
            raise ValueError(f"the table of system calls has the verdict {verdict!r}")


def _unless(argument: int, values: Iterable[int], *, found: int, other: int) -> list[Instruction]:
    """`found` for these values of an argument. Only its low 32 bits are checked: the kernel ignores the
    others of an int, and a filter that checked them could be bypassed by setting them (CVE-2019-10063)."""
    values = tuple(values)
    tests = [Instruction(_EQUAL, value, len(values) - i, 0) for i, value in enumerate(values)]
    return [
        Instruction(_LOAD, _argument(argument)),
        *tests,
        Instruction(_RETURN, other),
        Instruction(_RETURN, found),
    ]


def _argument(index: int) -> int:
    """The offset of an argument's low half in struct seccomp_data, on little-endian machines."""
    return 16 + 8 * index
