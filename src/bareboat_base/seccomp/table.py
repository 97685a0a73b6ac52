"""The system calls that a container may make: Podman's default list, with our differences marked.

A call up to LAST is allowed, unless its number is UNLISTED or calls.txt has another verdict. Later calls, and
those of x32, are answered with ENOSYS, as if the kernel were older than they are. calls.txt has a line for
each call with a verdict of its own, and for those that are named in `program` or ADDED: the name, the
verdict, and the numbers in the four ABIs. Verdicts:

- allow; eperm: refused with EPERM.
- ioctl: all requests but TIOCSTI and TIOCLINUX, which type into a terminal.
- personality: the kinds of Linux that the list names. socket: all but the kernel's audit.

Source: containers-common 0.50 (Debian 12), /usr/share/containers/seccomp.json, with Podman's default
capabilities. Calls that came later than that list, or that we add to it, are in ADDED.
Numbers: the kernel's tables, as libseccomp 2.5.4 has them.
"""

from __future__ import annotations

import pkgutil

#: What the table has beyond Podman's list, and why.
ADDED = {
    "move_pages": "hwloc and numactl query with it the NUMA node of a page; for other users' processes it "
    "returns and moves nothing",
    **dict.fromkeys(
        ("cachestat", "fchmodat2", "futex_requeue", "futex_wait", "futex_waitv", "futex_wake",
         "map_shadow_stack", "mseal", "set_mempolicy_home_node"),
        "newer than the list; newer lists of Podman contain it or similar calls",
    ),
}  # fmt: skip

#: The ABIs, in the order of the columns.
COLUMNS = ("x86_64", "i386", "aarch64", "arm")

#: The last number in the list, in each ABI.
LAST = 462
#: The numbers up to LAST that the list does not have, and that no call has.
UNLISTED = {
    "x86_64": "156 174 177 181-185 236 248-249 335-423 425-427 443 457-461",
    "i386": "17 31-32 35 44 53 56 58 98 112 127 130 137 149 188-189 222-223 251 273 285-287 337 345 387-392 "
    "415-416 425-427 443 453 457-461",
    "aarch64": "217-218 244-259 295-423 425-427 443 453 457-461",
    "arm": "7 13 17-18 22 25 27-28 30-32 35 44 48 53 56 58-59 68-69 76 82 84 89-90 98 101-102 109-110 "
    "112-113 117 123 127 130 137 149 166-167 188-189 222-223 254-255 309-310 313 402 415-416 425-427 443 "
    "447 453 457-461",
}


def lines() -> list[list[str]]:
    """Of each call: name, verdict, numbers."""
    data = pkgutil.get_data(__package__, "calls.txt")
    assert data is not None
    return [line.split() for line in data.decode().splitlines()]


def unlisted(abi: str) -> set[int]:
    """The numbers in UNLISTED."""
    pairs = (each.partition("-") for each in UNLISTED[abi].split())
    return {number for first, _, last in pairs for number in range(int(first), int(last or first) + 1)}
