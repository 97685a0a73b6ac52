"""The system calls that a container may make: Podman's default list, with our differences marked.

One line of calls.txt for each call: its name, the verdict, and its numbers in the four ABIs. A call without
a line is answered with ENOSYS, as if the kernel were older than the call; so is every call of x32.
Verdicts:

- allow; eperm: refused with EPERM.
- ioctl: all requests but TIOCSTI and TIOCLINUX, which type into a terminal.
- personality: the kinds of Linux that the list names. socket: all but the kernel's audit.

Source: containers-common 0.50 (Debian 12), /usr/share/containers/seccomp.json, with Podman's default
capabilities. Calls that came later than that list, or that we add to it, are in ADDED.
Numbers: the kernel's tables, as libseccomp 2.5.4 has them, and i386's own numbers (359 to 373, 393 to 402) of
what its socketcall and ipc do, too.
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


def lines() -> list[list[str]]:
    """Of each call: name, verdict, numbers."""
    data = pkgutil.get_data(__package__, "calls.txt")
    assert data is not None
    return [line.split() for line in data.decode().splitlines()]
