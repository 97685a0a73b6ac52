"""A program in a container that tries to type into the terminal it was started from, in every engine.

The job runs on a pseudo-terminal that is its controlling one, as on a user's desk. Where the kernel itself
refuses TIOCSTI (dev.tty.legacy_tiocsti=0, since 6.2) the filter still shows by its errno.
"""

import errno
import fcntl
import json
import os
import signal
import struct
import termios
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from engine_lab import Lab, base_site, lab  # noqa: F401
from terminals import Desk, desk  # noqa: F401

from bareboat.engines import FILTERS, Seccomp
from bareboat.registry import engine as engine_named

pytestmark = pytest.mark.one_in(4)

TRIES = {
    "TIOCSTI": "ioctl(16, fd, 0x5412)",
    "TIOCSTI with bit 32 set": "ioctl(16, fd, 0x1_0000_5412)",
    "TIOCSTI with all high bits set": "ioctl(16, fd, 0xFFFF_FFFF_0000_5412)",
    "TIOCLINUX": "ioctl(16, fd, 0x541C)",
    "TIOCLINUX with high bits set": "ioctl(16, fd, 0xFFFF_FFFF_0000_541C)",
    "by x32's number": "ioctl(0x4000_0000 + 514, fd, 0x5412)",
    "by x86-64's number as x32": "ioctl(0x4000_0000 + 16, fd, 0x5412)",
    "by int 0x80": "by_int_80(fd, 0x5412)",
}

#: Tries it on every descriptor that may be a terminal; prints what each try returned, or its errno.
PROGRAM = r"""
import ctypes, json, mmap, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
letter = ctypes.create_string_buffer(b"X")
low = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, prot=7)

def ioctl(number, fd, request):
    done = libc.syscall(ctypes.c_long(number), ctypes.c_long(fd), ctypes.c_ulong(request), letter)
    return 0 if done >= 0 else ctypes.get_errno()

def by_int_80(fd, request):
    child = os.fork()
    if child == 0:
        place = ctypes.addressof(ctypes.c_char.from_buffer(low))
        code = b"\x53\xb8" + struct.pack("<I", 54) + b"\xbb" + struct.pack("<I", fd)
        code += b"\xb9" + struct.pack("<I", request) + b"\xba" + struct.pack("<I", place + 256)
        code += b"\xcd\x80\x5b\xc3"
        low[256:257] = b"X"
        low[: len(code)] = code
        done = ctypes.CFUNCTYPE(ctypes.c_int)(place)()
        os._exit(0 if done >= 0 else -done)
    status = os.waitpid(child, 0)[1]
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)

found = {}
names = [0, 1, 2, "/dev/tty", *(f"/dev/pts/{name}" for name in os.listdir("/dev/pts") if name.isdigit())]
for name in names:
    try:
        fd = name if isinstance(name, int) else os.open(name, os.O_RDWR | os.O_NONBLOCK)
        os.ttyname(fd) if isinstance(name, int) else None
    except OSError:
        continue
    for what, how in json.loads(sys.argv[1]).items():
        found.setdefault(what, []).append(eval(how))
open(sys.argv[2], "w").write(json.dumps(found))
"""


@pytest.fixture(autouse=True)
def _is_x86() -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("these calls are x86-64's")


def tried(lab: Lab, desk: Callable[[list[str]], Desk], **changes: object) -> tuple[dict[str, list[int]], str]:  # noqa: F811
    """What each try returned inside, and what was typed into the terminal, in hexadecimal."""
    said = lab.workdir / "said"
    script = lab.script("python", "-c", PROGRAM, json.dumps(TRIES), str(said), **changes)  # type: ignore[arg-type]
    seen = desk(["bash", str(script)]).end()
    assert b"code 0>" in seen, seen
    return json.loads(said.read_text()), seen.rpartition(b"<left ")[2].split()[0].decode()


@pytest.mark.parametrize("is_on", [True, False], ids=["", "seccomp = false"])
def test_no_container_types_into_the_terminal(
    lab: Lab,  # noqa: F811
    desk: Callable[[list[str]], Desk],  # noqa: F811
    is_on: bool,
) -> None:
    if not lab.contains:
        return  # native is the user's own process
    found, typed = tried(lab, desk, **({} if is_on else {"seccomp": False}))
    assert "58" not in typed, f"it typed: {found}"
    kind = engine_named(lab.case.engine).SECCOMP
    assert kind is not Seccomp.NONE
    if kind is Seccomp.OWN:
        return
    for what in TRIES:
        answers = set(found[what])
        refused = {errno.ENOSYS, errno.EPERM} if "x32" in what or "int" in what else {errno.EPERM}
        # int 0x80 is a fault where the kernel has no 32-bit programs.
        assert answers <= refused | ({-signal.SIGSEGV} if "int" in what else set()), (what, found)


def test_without_the_filter_the_same_program_types(lab: Lab, desk: Callable[[list[str]], Desk]) -> None:  # noqa: F811
    """So the test above sees what it looks for."""
    if Path("/proc/sys/dev/tty/legacy_tiocsti").read_text().strip() == "0":
        pytest.skip("this kernel refuses TIOCSTI itself")
    if not lab.contains or engine_named(lab.case.engine).SECCOMP is Seccomp.OWN:
        return
    tools = {name: path for name, path in lab.site.other_tools.items() if name != FILTERS}
    bare = msgspec.structs.replace(lab.site, other_tools=tools)
    found, typed = tried(Lab(lab.case, lab.captured, bare, lab.workdir, lab.home), desk)
    assert "58" in typed, found
    assert 0 in found["TIOCSTI with all high bits set"]


SIZES = r"""
import os, signal, sys, time
def changed(*_):
    os.write(1, b"size %d %d\n" % os.get_terminal_size(0))
signal.signal(signal.SIGWINCH, changed)
changed()
print("ready", flush=True)
try:
    while True:
        time.sleep(0.05)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def interactive(lab: Lab) -> bool:  # noqa: F811
    return lab.contains and engine_named(lab.case.engine).SECCOMP is not Seccomp.OWN


def test_window_size_and_job_control_go_on_working(lab: Lab, desk: Callable[[list[str]], Desk]) -> None:  # noqa: F811
    if not interactive(lab):
        return
    shown = desk(["bash", str(lab.script("python", "-c", SIZES))])
    shown.until(b"ready")
    fcntl.ioctl(shown.master, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
    shown.until(b"size 101 33")
    shown.type(b"\x1a")
    shown.until(b"<stopped>")
    time.sleep(0.5)
    shown.seen = b""
    fcntl.ioctl(shown.master, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 77, 0, 0))
    shown.until(b"size 77 44")  # it goes on after fg
    shown.type(b"\x03")
    # The script ends the run by SIGTERM at the same time.
    seen = shown.end()
    assert b"interrupted" in seen or b"code 130>" in seen


@pytest.mark.parametrize("what", ["a REPL", "pdb"])
def test_an_interactive_session_works(lab: Lab, desk: Callable[[list[str]], Desk], what: str) -> None:  # noqa: F811
    if not interactive(lab):
        return
    command = (
        ["python", "-q", "-i"] if what == "a REPL" else ["python", "-c", "x = 40\nbreakpoint()\nprint(x)"]
    )
    shown = desk(["bash", str(lab.script(*command))])
    shown.until(b">>> " if what == "a REPL" else b"(Pdb) ")
    if what == "a REPL":
        shown.type(b"print('4' + '2')\n")
        shown.until(b"42")
        shown.type(b"exit()\n")
    else:
        shown.type(b"p x + 2\n")
        shown.until(b"42")
        shown.type(b"c\n")
    assert b"code 0>" in shown.end()
