"""Bareboat on arm64: its own tests in a Debian for arm64 (tests/lab/arm64.sh), emulated. Only when asked for.

By qemu-user, what is Bareboat's own; on an emulated machine with a kernel for arm64, what the kernel does:
namespaces, overlays, seccomp, ptrace, Landlock. docs/architectures.md says what neither shows.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from bareboat_base.seccomp import program
from bareboat_base.seccomp.table import ADDED

pytestmark = pytest.mark.arm64

LAB = Path(__file__).parents[1] / "lab" / "arm64.sh"
TREE = Path("/opt/bareboat-lab/arm64")
PYTEST = ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
#: Debian's linux-libc-dev-arm64-cross.
HEADERS = Path("/usr/aarch64-linux-gnu/include/asm-generic/unistd.h")

#: Modules of tests/unit that read or write what differs between machines, or start programs.
UNITS = (
    "architectures", "collect", "elf", "gpu_find", "gpu_image", "host_mpi", "inside", "locks", "manifest",
    "mpi_facts", "pack", "sif", "unpack",
)  # fmt: skip
#: Of those, what qemu-user cannot do.
NOT_UNDER_QEMU_USER = {
    "test_pack.py::test_of_several_at_once_one_packs": "/proc/self/stat gives each thread another start time",
}


def emulated(verb: str, *command: str) -> str:
    """What a command printed on arm64. `verb`: run by qemu-user, or boot a whole machine."""
    if not (TREE / "disk.squashfs").exists():
        pytest.skip("there is no tree for arm64: sudo tests/lab/arm64.sh")
    done = subprocess.run([LAB, verb, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_golden_scripts() -> None:
    assert " passed" in emulated("run", *PYTEST, "tests/golden")


def test_units() -> None:
    left_out = [word for name in NOT_UNDER_QEMU_USER for word in ("--deselect", f"tests/unit/{name}")]
    said = emulated("run", *PYTEST, *left_out, *(f"tests/unit/test_{name}.py" for name in UNITS))
    assert " passed" in said


def test_images_from_a_registry_and_from_files() -> None:
    chosen = "image_for_another or read_anew or costs_only_once or second_pull"
    assert "4 passed" in emulated("boot", *PYTEST, "tests/contract/test_images.py", "-k", chosen)


JOB = """\
set -e
mkdir /tmp/work && cd /tmp/work
python -m venv --without-pip /tmp/env
cat >job.py <<'END'
import os, platform
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(platform.machine(), os.path.exists("/checkout"), *(status[n].strip() for n in ("Seccomp", "CapEff")))
END
bareboat run --python /tmp/env/bin/python -- python job.py
bareboat image show --json "$(bareboat image ls | sed -n 's/^\\(sha256:[0-9a-f]*\\).*/\\1/p')"
"""


def test_a_captured_environment_in_the_embedded_bubblewrap_with_its_filter() -> None:
    said = emulated("boot", "bash", "-c", JOB)
    assert "aarch64 False 2 0000000000000000" in said
    assert re.search(r'"architecture": ?"arm64"', said)


def test_the_filter_on_the_kernel_that_it_is_for() -> None:
    argv = ("env", "PYTHONPATH=tests:tests/hostile", "python", "tests/emulated/filter.py")
    assert re.search(r"^aarch64: \d{3} calls refused", emulated("boot", *argv), re.M)


def test_the_numbers_are_those_of_the_kernel_s_headers() -> None:
    if not HEADERS.exists():
        pytest.skip("linux-libc-dev-arm64-cross is not installed")
    text = HEADERS.read_text()
    numbers = {m[1]: int(m[2]) for m in re.finditer(r"^#define (__NR\w+)\s+(\d+)$", text, re.M)}
    names = re.finditer(r"^#define (__NR_\w+) (__NR3264_\w+)$", text, re.M)
    numbers |= {m[1]: numbers[m[2]] for m in names if m[2] in numbers}
    numbers = {name.removeprefix("__NR_"): number for name, number in numbers.items()}
    ours = {name: number for number, (name, _) in program.calls("aarch64").items()}
    # Of later kernels than these headers.
    assert {name for name in ours if name not in numbers} <= set(ADDED)
    assert {name: number for name, number in ours.items() if numbers.get(name, number) != number} == {}
